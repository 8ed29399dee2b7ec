"""Descriptions of scores: in the registry, in the documentation, and with results."""

from __future__ import annotations

import math
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.naive_bayes import GaussianNB

from intus.core.errors import InputError
from intus.scores import ScoreInfo, Scorer, base, get, infos, names, register
from intus.scores.comparisons.layers import relations
from intus.scores.registry import as_score
from intus.scores.units.affinity import of_pairs

DOCUMENT = Path(__file__).parents[2] / "docs" / "scores.md"


@pytest.fixture(autouse=True)
def registry():
    """Unregister the scores of a test after it."""
    names()  # those of installed packages are loaded once
    before = dict(base._SCORES)
    yield
    base._SCORES.clear()
    base._SCORES.update(before)


def test_scores_page_is_up_to_date():
    """`make scores` writes it; run in a separate process, where no test has registered a score."""
    made = subprocess.run([sys.executable, "-m", "intus.scores"], capture_output=True, text=True, check=True)
    assert made.stdout == DOCUMENT.read_text(encoding="utf-8"), "run `make scores`"


def test_every_score_has_description():
    documented = re.findall(r"^### `(.*)`$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert (
        len(documented) == 39 + 1 + 4 + 1 + 3
    )  # registered; a baseline, coefficients, a step; of two points
    for name in documented:
        info = infos()[name]
        assert info.label != name, name
        assert info.formula, name
        assert info.about.endswith("."), name


@pytest.fixture(scope="module")
def results():
    """Return every layer score of a layer that encodes one target well and another not at all."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random((600, 6)) < 0.1, 0, rng.normal(size=(600, 6)))
    labels = {
        "sign": (x[:, 0] > 0).astype(int),
        "age": x @ rng.normal(size=6),
        "noise": rng.integers(0, 3, 600),
    }
    scorer = Scorer([name for name in names() if get(name).per != "unit"])
    scorer.update(x, labels, np.arange(600), types=rng.integers(0, 50, 600))
    units = Scorer([name for name in names() if get(name).per == "unit"])
    units.update(x, {"sign": labels["sign"]}, np.arange(600))
    other = Scorer("cka")
    other.update(x[:, :3] ** 3, items=np.arange(600))
    compared = [get(name) for name in names() if get(name).per == "layers"]
    pairs = [r for score in compared for _, r in relations({"a": scorer, "b": other}, score)]
    return [*scorer.result(), *units.result(), *pairs]


@pytest.mark.parametrize("noise", [0.05, 0.3, 30.0])
def test_no_interval_goes_beyond_the_range_of_its_score(noise):
    """Before, r2 was 0.99 with an interval of [0.97, 1.01]."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    number = x @ rng.normal(size=4) + noise * rng.normal(size=60)
    scorer = Scorer([name for name in names() if get(name).per != "layers"])
    scorer.update(x, {"number": number, "sign": (number > 0).astype(int)}, np.arange(60))
    known, bounded = infos(), set()
    for result in scorer.result():
        info = known[result.score]
        assert not result.low < (-math.inf if info.low is None else info.low), result
        assert not result.high > (math.inf if info.high is None else info.high), result
        if not math.isnan(result.high) and info.high is not None:
            bounded.add(result.score)
    assert {"r2", "linear_f1", "correlation"} <= bounded


def test_results_match_their_descriptions(results):
    known = infos()
    found = {}
    for result in results:
        info = known[result.score]
        assert (result.target != "") == info.needs_target, result
        assert (result.unit >= 0) == (info.level == "unit"), result
        if math.isfinite(result.value):
            low, high = (-math.inf if info.low is None else info.low), info.high
            assert low <= result.value <= (math.inf if high is None else high), result
            assert math.isfinite(result.baseline) == bool(info.baseline), result
            found.setdefault(result.score, []).append(math.isfinite(result.low))  # NaN where nothing varies
    for name, bounded in found.items():
        assert any(bounded) == bool(known[name].interval), name
    assert set(names()) <= {*found, "gradient_noise"}


def test_further_rows_have_descriptions(results):
    beside = {info.name: info for name in names() for info in get(name).infos[1:]}
    # the first step with NaN is of a training, which a Scorer does not know
    assert {result.score for result in results} - set(names()) == set(beside) - {"nonfinite_step"}
    assert {info.baseline_of for info in beside.values()} == {"linear_f1", ""}


def test_registered_function_is_described_by_docstring():
    @register("kurtosis_t", label="Kurtosis", low=-2)
    def kurtosis(behaviours):
        """Excess kurtosis of all entries,
        by moments.

        A second paragraph.
        """
        return 0.0

    @register("gap_t")
    def gap(behaviours, labels):
        return 0.0

    register("both_t", lambda unit, hypothesis: 0.0, per="unit", high=1)
    known = infos()
    assert known["kurtosis_t"] == ScoreInfo(
        name="kurtosis_t", label="Kurtosis", low=-2, about="Excess kurtosis of all entries, by moments."
    )
    assert (known["gap_t"].label, known["gap_t"].needs_target, known["gap_t"].about) == ("gap_t", True, "")
    assert known["gap_t"].baseline == "the same with shuffled labels"
    assert (known["both_t"].level, known["both_t"].needs_target, known["both_t"].high) == ("unit", True, 1)
    assert list(known)[-6:-3] == ["kurtosis_t", "gap_t", "both_t"]  # after intus's own, before those of pairs


def test_registered_function_without_a_module_cannot_be_pickled():
    """Another process does not have what this process registered, so its name is no use there."""
    register("lambda_t", lambda behaviours: behaviours.mean())
    with pytest.raises(
        InputError, match=r"'lambda_t' cannot be sent to another process .*top level of a mod"
    ):
        pickle.dumps(Scorer("lambda_t"))


def test_estimator_score_has_description():
    bayes, means = as_score(GaussianNB(), "bayes_t").infos[0], as_score(KMeans(3), "means_t").infos[0]
    assert bayes.about == "Macro F1 of GaussianNB, on held-out rows."
    assert (bayes.low, bayes.high, bayes.needs_target) == (0, 1, True)
    assert "KMeans" in means.about
    assert of_pairs(max, "pairs_t").infos[0].baseline.startswith("the largest absolute value of any unit")


@pytest.mark.parametrize("text", ["x" * 1001, "a\0b"])
def test_invalid_description_is_refused(text):
    with pytest.raises(
        InputError, match="label of the score 'mine' must be text of at most 1,000 characters"
    ):
        ScoreInfo(name="mine", label=text)


def test_score_info_round_trip_ignores_unknown_fields():
    info = infos()["linear_f1"]
    assert ScoreInfo.from_json(info.to_json() | {"colour": "red"}) == info
