"""Extreme layers and labels: each score equals an independent computation, or is NaN with the reason."""

from __future__ import annotations

import numpy as np
import pytest
from score_help import fed, read
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_mutual_info_score, f1_score
from sklearn.preprocessing import StandardScaler

from intus.scores import get, names
from intus.scores.statistics.split import places

RNG = np.random.default_rng(0)
N = 400
Y = RNG.integers(0, 3, N)
PLAIN = RNG.normal(size=(N, 6)) + 2 * np.eye(6)[Y]
CONSTANT = np.hstack([PLAIN, np.full((N, 1), 5.0), np.zeros((N, 1))])
HOLES = np.where(RNG.random((N, 1)) < 0.1, np.inf, PLAIN)
LONE = np.where(np.arange(N) == 7, 9, Y)
HALF = RNG.random(N) < 0.5
OF_LAYERS = [name for name in names() if get(name).per != "unit"]

SOUND = {
    "plain": (PLAIN, Y),
    "float32": (PLAIN.astype(np.float32), Y),
    "float16": (PLAIN.astype(np.float16), Y),
    "int8": ((PLAIN * 20).astype(np.int8), Y),
    "uint8": ((PLAIN * 20 + 100).astype(np.uint8), Y),
    "int64": ((PLAIN * 1e7).astype(np.int64), Y),
    "bool": (PLAIN > 0.5, Y),
    "constant columns": (CONSTANT, Y),
    "duplicate columns": (np.hstack([PLAIN] * 3), Y),
    "duplicate rows": (np.repeat(PLAIN[:100], 4, axis=0), np.repeat(Y[:100], 4)),
    "mean of a million": (PLAIN + 1e6, Y),
    "mean of a million in float32": ((PLAIN + 1e6).astype(np.float32), Y),
    "tiny": (PLAIN * 1e-12, Y),
    "tiny in float32": ((PLAIN * 1e-30).astype(np.float32), Y),
    "large in float32": ((PLAIN * 1e30).astype(np.float32), Y),
    "mixed scales": (PLAIN * 10.0 ** np.arange(-12, 18, 5), Y),
    "rows that are not finite": (HOLES, Y),
    "a class of one": (PLAIN, LONE),
    "strings": (PLAIN, np.array(["a", "b", "c"])[Y]),
    "missing labels": (PLAIN, np.where(HALF, np.nan, Y)),
    "None for missing": (PLAIN, np.where(HALF, None, Y)),
    "more columns than rows": (np.hstack([PLAIN, RNG.normal(size=(N, 700))]), Y),
    "a thousand classes": (RNG.normal(size=(3000, 4)), np.arange(3000) % 1000),
    "one column": (PLAIN[:, :1], Y),
}
VOID = {
    "one class": (PLAIN, Y * 0, "a single class"),
    "no labels": (PLAIN, [None] * N, "no labelled"),
    "one row": (PLAIN[:1], Y[:1], "a single class"),
    "two rows": (PLAIN[:2], [0, 1], "too few"),
    "no rows": (PLAIN[:0], Y[:0], "no labelled"),
    "no columns": (PLAIN[:, :0], Y, "no features"),
    "a channel of NaN": (np.where(np.arange(6) == 1, np.nan, PLAIN), Y, "400 of 400 rows left out"),
    "1,001 classes": (RNG.normal(size=(2002, 4)), np.arange(2002) % 1001, "too many different labels"),
}


@pytest.mark.parametrize("case", SOUND)
def test_describing_scores_equal_numpy(case):
    x = np.asarray(SOUND[case][0], dtype=np.float64)
    x = x[np.isfinite(x).all(axis=1)]
    wanted = {
        "mean": x.mean(),
        "mean_abs": np.abs(x).mean(),
        "variance": x.var(),
        "std": x.std(),
        "norm": np.linalg.norm(x, axis=1).mean(),
        "sparsity": (x == 0).mean(),
        "min": x.min(),
        "max": x.max(),
        "dead": (x == 0).all(axis=0).mean(),
    }
    scorer = fed([*wanted, "participation_ratio", "effective_rank"], SOUND[case][0])
    for name, value in wanted.items():
        assert read(scorer, name).value == pytest.approx(value, rel=1e-9, abs=1e-300), name
    centred = (x - x.mean(axis=0)) / np.abs(x).max()
    singular = np.linalg.svd(centred, compute_uv=False)
    share = singular[singular > 1e-8 * singular[0]] / singular[singular > 1e-8 * singular[0]].sum()
    ratio = (singular**2).sum() ** 2 / (singular**4).sum()
    assert read(scorer, "participation_ratio").value == pytest.approx(ratio, rel=1e-6)
    assert read(scorer, "effective_rank").value == pytest.approx(
        np.exp(-(share * np.log(share)).sum()), rel=1e-4
    )


@pytest.mark.parametrize("case", SOUND)
def test_linear_f1_is_at_least_sklearns(case):
    x, y = np.asarray(SOUND[case][0]), np.asarray(SOUND[case][1])
    scorer = fed("linear_f1", x, {"y": y})
    held = places(np.arange(len(x)), 0).held
    used = np.isfinite(x.astype(np.float64)).all(axis=1) & np.array(
        [v == v and v is not None for v in y.tolist()]
    )
    scale = (
        2.0 ** -np.frexp(np.abs(x[used].astype(np.float64)).max(axis=0))[1]
    )  # scikit-learn needs help there
    z, kinds = x.astype(np.float64) * scale, np.unique(y[used], return_inverse=True)[1]
    codes = np.full(len(y), -1)
    codes[used] = kinds
    train, test = used & ~held, used & held
    scaler = StandardScaler().fit(z[train])
    theirs = LogisticRegression(max_iter=1000).fit(scaler.transform(z[train]), codes[train])
    guess = theirs.predict(scaler.transform(z[test]))
    got = read(scorer, "linear_f1", "y")
    assert got.value >= f1_score(codes[test], guess, average="macro", zero_division=0) - 0.03
    assert got.n == test.sum()


@pytest.mark.parametrize(
    "name", ["linear_f1", "lda_f1", "kmeans_ami", "participation_ratio", "effective_rank"]
)
@pytest.mark.parametrize(
    "case", ["mean of a million", "tiny", "tiny in float32", "large in float32", "float32"]
)
def test_scores_are_invariant_to_scale_and_offset(name, case):
    plain, moved = (fed(name, SOUND[which][0], {"y": Y}).result()[0].value for which in ("plain", case))
    assert moved == pytest.approx(plain, rel=1e-4)


def test_kmeans_ami_of_extreme_scales_equals_sklearn():
    x = PLAIN.astype(np.float32)
    found = KMeans(3, n_init=10, random_state=0).fit_predict(x)
    theirs = adjusted_mutual_info_score(Y, found)
    for factor in (1e-30, 1.0, 1e30):
        got = read(fed("kmeans_ami", x * np.float32(factor), {"y": Y}), "kmeans_ami", "y")
        assert got.value == pytest.approx(theirs, abs=0.03)


@pytest.mark.parametrize("case", [*SOUND, *VOID])
def test_every_result_is_finite_or_has_note(case):
    x, y = (SOUND | VOID)[case][:2]
    dear = case in (*VOID, "constant columns", "duplicate rows", "a class of one", "large in float32")
    scorer = fed([name for name in OF_LAYERS if dear or get(name).default], x, {"y": y})
    for result in scorer.result():
        assert np.isfinite(result.value) or result.note, result


@pytest.mark.parametrize("name", ["linear_f1", "lda_f1", "kmeans_ami", "logistic_f1", "mdl_compression"])
@pytest.mark.parametrize("case", VOID)
def test_undefined_scores_have_reason(name, case):
    x, y, why = VOID[case]
    if (name, case) == ("mdl_compression", "two rows"):
        why = ""  # a code of two labels is as long with the layer as without
    got = read(fed(name, x, {"y": y}), name, "y")
    assert why in got.note
    assert np.isnan(got.value) == bool(why)


def test_logistic_regression_refuses_one_class_per_row():
    x, y = SOUND["a thousand classes"]
    got = read(fed("logistic_f1", x[:1200], {"y": y[:1200]}), "logistic_f1", "y")
    assert "classes are too many for" in got.note
