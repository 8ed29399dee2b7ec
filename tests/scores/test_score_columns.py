"""Results as columns, and scorers that are sent to another process."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from score_help import fed, same
from sklearn.naive_bayes import GaussianNB

from intus.core.errors import InputError
from intus.scores import Scorer, get, iou, names


def unit_data(rows=400, units=5, hypotheses=3):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, units)).astype(np.float32)
    return x, (rng.random((rows, hypotheses)) < 0.3).astype(float), np.arange(rows) // 4


def test_columns_equal_scipy_in_order():
    x, h, items = unit_data()
    found = fed("correlation", x, h, items).columns()
    want = [stats.pearsonr(x[:, u].astype(float), h[:, t]).statistic for t in range(3) for u in range(5)]
    np.testing.assert_allclose(found.value, want, atol=1e-6)
    assert found.unit.tolist() == [0, 1, 2, 3, 4] * 3
    assert found.target.tolist() == ["0"] * 5 + ["1"] * 5 + ["2"] * 5
    assert found.n.tolist() == [400] * 15
    assert {found.value.dtype, found.p.dtype} == {np.dtype(float)}
    assert [type(part) for part in next(iter(found))] == [
        str, float, str, int, float, float, float, int, str, float,
    ]  # fmt: skip


def test_columns_of_layer_and_unit_scores_are_in_the_order_of_scores():
    x, h, items = unit_data()
    found = fed(["mean", "iou", "linear_f1"], x, h, items).columns()
    assert list(dict.fromkeys(found.score)) == ["mean", "iou", "linear_f1", "linear_f1.majority"]
    assert len(found) == 1 + 15 + 6
    assert found.note[1].startswith("threshold ")


def test_columns_before_the_first_rows():
    assert len(Scorer(["correlation", "mean"]).columns()) == 0


def test_results_share_their_texts():
    rng = np.random.default_rng(0)
    found = fed("correlation", rng.normal(size=(64, 500)), rng.normal(size=(64, 20))).columns()
    assert len(found) == 10_000
    distinct = [
        len({id(one) for one in column.tolist()}) for column in (found.score, found.target, found.note)
    ]
    assert distinct == [1, 20, 1]


UNIT_SCORES = [name for name in names() if get(name).per == "unit"]


@pytest.mark.parametrize(
    "scores", [UNIT_SCORES, ["linear_f1", "kmeans_ami", "mean", "std"], [iou(0.1), GaussianNB()]]
)
def test_pickled_and_merged_scorers_equal_one_pass(scores):
    x, h, items = unit_data()
    whole, parts = Scorer(scores), []
    for at in (0, 200):
        part, rows = Scorer(scores), slice(at, at + 200)
        for scorer in (whole, part):
            scorer.update(x[rows], h[rows], items[rows])
        part.result()
        parts.append(pickle.loads(pickle.dumps(part)))
    same(whole.result(), parts[0].merge(parts[1]).result(), 1e-12)
    assert [s.name for s in parts[0].scores] == [s.name for s in whole.scores]


@pytest.mark.long
def test_pickled_scorer_in_another_process(tmp_path):
    x, h, items = unit_data()
    scorer = fed([*UNIT_SCORES, iou(0.02)], x, h, items)
    (tmp_path / "scorer").write_bytes(pickle.dumps(scorer))
    code = (
        "import pickle, sys; scorer = pickle.load(open(sys.argv[1], 'rb')); "
        "sys.stdout.buffer.write(pickle.dumps(scorer.result()))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "scorer"], capture_output=True, check=True, timeout=60
    )
    same(scorer.result(), pickle.loads(out.stdout), 1e-12)


def test_score_of_a_lambda_cannot_be_pickled():
    with pytest.raises(InputError, match=r"cannot be sent to another process .*top level of a module"):
        pickle.dumps(Scorer(lambda behaviours: behaviours.mean()))


def test_score_that_suits_some_targets_only_keeps_this_when_pickled():
    score = pickle.loads(pickle.dumps(get("r2").by_default()))
    x, h, _ = unit_data()
    assert fed(score, x, {"binary": h[:, 0], "real": x[:, 0] / 3}).columns().target.tolist() == ["real"]
