"""Scores of units and hypotheses, compared with scipy, scikit-learn and planted truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from score_help import fed, read
from sklearn.metrics import jaccard_score

from intus.core.errors import InputError
from intus.scores import Scorer, iou, register
from intus.scores.statistics.split import places
from intus.scores.units.affinity import moved


@pytest.fixture(scope="module")
def world() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 300 items of 20 rows: four units, three binary hypotheses; unit 0 responds to hypothesis 0."""
    rng = np.random.default_rng(0)
    h = (rng.random((6000, 3)) < [0.1, 0.3, 0.02]).astype(float)
    x = rng.normal(1000, 1, size=(6000, 4)).astype(np.float32)
    x[:, 0] += 3 * h[:, 0].astype(np.float32)
    return x, h, np.repeat(np.arange(300), 20)


def test_correlation_equals_scipy(world):
    x, h, items = world
    scorer = Scorer("correlation")
    for part in np.array_split(np.arange(6000), 13):
        scorer.update(x[part], h[part], items[part])
    for unit in range(4):
        for target in range(3):
            want = stats.pearsonr(x[:, unit].astype(np.float64), h[:, target]).statistic
            got = read(scorer, "correlation", str(target), unit)
            assert got.value == pytest.approx(want, abs=1e-8)
            assert got.low <= got.value <= got.high
            assert got.n == 6000
    hit, miss = read(scorer, "correlation", "0", 0), read(scorer, "correlation", "1", 0)
    assert hit.low > hit.baseline
    assert miss.high < 0.1
    assert hit.baseline < 0.06


def test_correlation_with_large_hypothesis_mean():
    """Seconds since 1970 have a mean that is large relative to their spread; also with merged scorers."""
    x = np.random.default_rng(0).normal(size=(2000, 1))
    h = 1.7e9 + 1000 * (x[:, 0] + np.random.default_rng(1).normal(size=2000))
    h[5] = np.nan
    want = stats.pearsonr(np.delete(x[:, 0], 5), np.delete(h, 5)).statistic
    parts = [Scorer("correlation") for _ in range(2)]
    for part, rows in zip(parts, (slice(0, 700), slice(700, None)), strict=True):
        part.update(x[rows], {"h": h[rows]}, np.arange(2000)[rows])
    for scorer in (fed("correlation", x, {"h": h}), parts[0].merge(parts[1])):
        got = read(scorer, "correlation", "h", 0)
        assert got.value == pytest.approx(want, abs=1e-8)
        assert got.baseline < 0.1


def test_missing_values_are_excluded_pairwise(world):
    x, h, items = (part.copy() for part in world)
    h[::7, 0], x[3, 1], x[5, 1] = np.nan, np.nan, np.inf
    scorer = fed(["correlation", "mean_difference"], x, h, items)
    rows = np.isfinite(h[:, 0]) & np.isfinite(x[:, 1])
    want = stats.pearsonr(x[rows, 1].astype(np.float64), h[rows, 0]).statistic
    got = read(scorer, "correlation", "0", 1)
    assert (got.value, got.n) == (pytest.approx(want, abs=1e-8), rows.sum())
    assert read(scorer, "correlation", "1", 0).n == 6000
    want = x[rows & (h[:, 0] == 1), 1].mean(dtype=float) - x[rows & (h[:, 0] == 0), 1].mean(dtype=float)
    assert read(scorer, "mean_difference", "0", 1).value == pytest.approx(want, abs=1e-6)


def test_correlation_interval_coverage_with_clustered_rows():
    """Fisher's interval with n = rows covers the truth in a third of these cases."""
    rng = np.random.default_rng(0)
    hits = fisher = 0
    for _ in range(150):
        shared = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 120)
        both = np.repeat(shared, 12, axis=0) + rng.normal(0, 1e-3, (1440, 2))
        got = read(fed("correlation", both[:, :1], both[:, 1:], np.repeat(np.arange(120), 12)), *_FIRST)
        hits += got.low <= 0.5 <= got.high
        fisher += abs(np.arctanh(got.value) - np.arctanh(0.5)) < 1.96 / np.sqrt(1437)
    assert hits >= 135
    assert fisher < 75


_FIRST = ("correlation", "0", 0)


def test_mean_difference_scales_with_unit(world):
    scorer = fed("mean_difference", *world)
    got = read(scorer, "mean_difference", "0", 0)
    assert got.low < 3 < got.high
    assert got.baseline < 0.3


@pytest.mark.parametrize("quantile", [0.005, 0.1])
def test_iou_equals_sklearn(world, quantile):
    x, h, items = world
    scorer = fed(iou(quantile, name="iou_q"), x, h, items)
    for unit in range(4):
        threshold = np.quantile(x[:, unit], 1 - quantile).astype(np.float32)
        for target in range(3):
            got = read(scorer, "iou_q", str(target), unit)
            assert got.value == pytest.approx(jaccard_score(h[:, target] == 1, x[:, unit] > threshold))
            assert got.note.startswith(f"threshold {threshold:.4g}")


def test_iou_note_gives_largest_possible_value():
    h = np.zeros(10_000)
    h[:35] = 1
    x = np.column_stack([h + np.linspace(0, 0.1, 10_000)[::-1], np.random.default_rng(0).random(10_000)])
    got = read(fed(["iou", "iou_max"], x, {"rare": h}), "iou", "rare", 0)
    assert got.value == pytest.approx(35 / 50)
    assert got.note.endswith("at most 0.7 possible")
    best = read(fed("iou_max", x, {"rare": h}), "iou_max", "rare", 0)
    assert best.value == 1.0
    assert np.isnan(best.low)  # every part of the items says 1: nothing is known of the spread


@pytest.mark.parametrize("name", ["iou", "iou_max"])
@pytest.mark.parametrize(
    ("items", "per", "shared"), [(2000, 1, 0), (400, 20, 1), (100, 50, 2)], ids=["rows", "items", "strong"]
)
def test_p_value_of_overlap_without_and_with_a_relation(name, items, per, shared):
    rng = np.random.default_rng(items)
    ids, noise, planted = np.repeat(np.arange(items), per), [], []
    for seed in range(20):
        h, x = (
            rng.normal(size=(items * per, size)) + shared * rng.normal(size=(items, size))[ids]
            for size in (1, 6)
        )
        label = (h > np.quantile(h, 0.9)).astype(float)
        x[:, 5] += 4 * label[:, 0]
        found = [one.p for one in fed(name, x, label, ids, seed=seed).result()]
        noise += found[:5]
        planted.append(found[5])
    assert np.mean(np.array(noise) < 0.05) <= 0.08
    assert np.mean(np.array(planted) < 0.05) >= 0.8


def test_p_value_of_overlap_of_independent_rows_is_near_the_exact_one():
    rng = np.random.default_rng(3)
    x, h = rng.normal(size=(20_000, 20)), (rng.random((20_000, 1)) < 0.3).astype(float)
    x += np.linspace(0, 0.5, 20) * h
    for unit, one in enumerate(fed(iou(0.01, name="iou_q"), x, h).result()):
        on = x[:, unit] > np.quantile(x[:, unit], 0.99)
        table = [[(on & (h[:, 0] == v)).sum(), (~on & (h[:, 0] == v)).sum()] for v in (1, 0)]
        exact = stats.fisher_exact(table).pvalue
        assert exact / 3 < one.p or one.p > 0.05
        assert one.p < exact**0.4 or exact > 0.01


def test_p_value_without_overlap_is_one():
    x = np.arange(1000.0)[:, None]
    got = read(fed("iou", x, (x[:, 0] < 500).astype(float)[:, None]), "iou", "0", 0)
    assert (got.value, got.p) == (0, 1)


def test_iou_max_is_evaluated_on_held_out_items(world):
    x, h, items = world
    held = places(items, 0).held
    got = read(fed("iou_max", x, h, items), "iou_max", "0", 0)
    levels = np.unique(x[~held, 0])
    tries = [jaccard_score(h[~held, 0] == 1, x[~held, 0] >= level) for level in levels[::40]]
    near = levels[::40][int(np.argmax(tries))]
    threshold = float(got.note.split()[1])
    assert threshold == pytest.approx(near, abs=0.5)
    assert got.n == held.sum()
    assert got.value > 0.6 > 5 * got.baseline
    assert got.low < got.value < got.high


def test_iou_max_threshold_equals_exhaustive_search():
    rng = np.random.default_rng(1)
    x = rng.integers(0, 12, size=(400, 1)).astype(float)  # many ties
    h = (rng.random(400) < 0.05 + x[:, 0] / 30).astype(float)
    held = places(np.arange(400), 0).held
    best = max(np.unique(x), key=lambda t: jaccard_score(h[~held] == 1, x[~held, 0] >= t))
    got = read(fed("iou_max", x, {"h": h}), "iou_max", "h", 0)
    assert got.note == f"threshold {best:.4g}"
    assert got.value == pytest.approx(jaccard_score(h[held] == 1, x[held, 0] >= best))


def test_iou_of_saturated_unit_counts_tied_rows():
    h = np.r_[np.ones(100), np.zeros(900)]
    x = np.where(h == 1, 1.0, np.random.default_rng(0).random(1000) / 2)[:, None]
    assert read(fed("iou", x, {"h": h}), "iou", "h", 0).value == 1.0


def test_control_moves_hypotheses_between_items():
    position = np.tile(np.arange(5), 40)
    item = np.repeat(np.arange(40), 5)
    scorer = fed("iou", np.zeros((200, 1)), {"item": item, "position": position}, item)
    where = scorer.statistics.drawn()[0]
    values = moved(scorer.statistics)
    assert (values[:, 1] == where.position).all()
    assert (values[:, 0] != where.item).all()
    assert sorted(values[:, 0]) == sorted(item)
    source = {int(a): set(values[where.item == a, 0]) for a in range(40)}
    assert all(len(came) == 1 for came in source.values())


def test_control_of_trimmed_sample():
    """The unit is the upper half of every item, so hypotheses of other items fit it equally well."""
    rng = np.random.default_rng(0)
    items, position = np.repeat(np.arange(200), 64), np.tile(np.arange(64), 200)
    x = np.stack([position < 32, rng.random(12800)], axis=1) + rng.normal(0, 0.01, (12800, 2))
    scorer = Scorer(["correlation", "iou_max"], sample_bytes=1 << 18)
    scorer.update(x.astype(np.float32), {"upper": (position < 32).astype(float)}, items)
    where = scorer.statistics.drawn()[0]
    assert not scorer.statistics.sample.complete
    counts = np.unique(where.item, return_counts=True)[1]
    assert len(counts) > 30
    assert (counts != 64).sum() <= 1  # items are kept whole, but for the last
    assert 0.15 < where.held.mean() < 0.35
    for name in ("correlation", "iou_max"):
        got = read(scorer, name, "upper", 0)
        assert got.value > 0.99
        assert got.baseline > 0.97, name


def test_control_of_items_of_different_lengths():
    length = np.random.default_rng(0).integers(20, 64, 200)
    items, position = np.repeat(np.arange(200), length), np.concatenate([np.arange(n) for n in length])
    first = (position < 10).astype(float)
    scorer = fed(["correlation", "iou"], first[:, None], {"first": first, "position": position}, items)
    assert read(scorer, "correlation", "first", 0).baseline == pytest.approx(1)
    where = scorer.statistics.drawn()[0]
    values = moved(scorer.statistics)
    there = np.isfinite(values[:, 1])
    assert 0.6 < there.mean() < 1
    assert (values[there, 1] == where.position[there]).all()


def test_item_larger_than_sample_is_kept_in_part():
    scorer = Scorer("iou_max", sample_bytes=1)
    scorer.update(np.random.default_rng(0).random((5000, 1)), {"h": np.arange(5000) % 2}, np.zeros(5000, int))
    assert 1000 < len(scorer.statistics.drawn()[1]) <= 1024


def test_position_confound_raises_baseline():
    """A unit that depends on the position only must not exceed its control."""
    position = np.tile(np.arange(20), 200)
    centre = ((position > 5) & (position < 14)).astype(float)
    what = centre * (np.random.default_rng(0).random(4000) < 0.9)
    got = read(
        fed("correlation", centre[:, None], {"h": what}, np.repeat(np.arange(200), 20)), "correlation", "h", 0
    )
    assert got.value > 0.8
    assert got.baseline == pytest.approx(got.value, abs=0.05)


@pytest.mark.parametrize(
    ("unit", "labels", "note"),
    [
        (np.ones(50), np.arange(50) % 2, "the unit or the hypothesis is constant"),
        (np.arange(50.0), np.full(50, np.nan), "no annotated rows"),
        (np.arange(50.0), ["a", "b"] * 25, "the labels are not numbers"),
        (np.arange(50.0), [None] * 50, "no annotated rows"),
    ],
)
def test_affinity_without_data_is_nan_with_note(unit, labels, note):
    for name in ("correlation", "mean_difference", "iou", "iou_max"):
        got = read(fed(name, unit[:, None], {"h": labels}), name, "h", 0)
        if name == "mean_difference" and note.endswith("constant"):
            assert got.value == 0
            continue
        assert np.isnan(got.value), got
        assert got.note == note


def test_iou_of_real_valued_hypothesis_is_nan():
    x = np.arange(60.0)[:, None]
    scorer = fed(["iou", "iou_max", "mean_difference", "correlation"], x, {"h": x[:, 0] / 7})
    for name in ("iou", "iou_max", "mean_difference"):
        assert read(scorer, name, "h", 0).note == "needs labels 0 and 1"
    assert read(scorer, "correlation", "h", 0).value == pytest.approx(1)


def test_function_of_unit_and_hypothesis_as_score(world):
    x, h, items = world
    from intus.scores.units.affinity import of_pairs

    spearman = of_pairs(lambda u, v: stats.spearmanr(u, v).statistic, "spearman")
    scorer = fed(spearman, x[:1000], h[:1000], items[:1000])
    got = read(scorer, "spearman", "0", 0)
    assert got.value == pytest.approx(stats.spearmanr(x[:1000, 0], h[:1000, 0]).statistic)
    assert got.low < got.value < got.high
    assert got.baseline < 0.2


@pytest.mark.long
def test_register_functions_and_estimators(digits):
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.naive_bayes import GaussianNB

    x, y = digits
    try:
        register("spread_t", lambda behaviours: behaviours.max() - behaviours.min())

        @register("between_t")
        def between(behaviours, labels):
            return np.var([behaviours[labels == c].mean() for c in np.unique(labels)])

        @register("cov_t", per="unit")
        def covariance(unit, hypothesis):
            return np.cov(unit, hypothesis)[0, 1]

        scorer = fed(["spread_t", "between_t", GaussianNB(), AgglomerativeClustering(10)], x, {"y": y})
        assert read(scorer, "spread_t").value == 16
        assert read(scorer, "between_t", "y").value > 3 * read(scorer, "between_t", "y").baseline
        bayes = read(scorer, "GaussianNB", "y")
        assert bayes.low < bayes.value < bayes.high
        assert 0.7 < bayes.value < 0.95
        assert bayes.baseline < 0.2
        assert read(scorer, "AgglomerativeClustering", "y").value > 0.7
        got = read(fed("cov_t", x[:200, 20:22], {"h": y[:200] > 4}), "cov_t", "h", 1)
        assert got.value == pytest.approx(np.cov(x[:200, 21], y[:200] > 4)[0, 1])
        with pytest.raises(InputError, match="'spread_t' is registered already"):
            register("spread_t", lambda behaviours: 0)
    finally:
        from intus.scores.base import _SCORES

        for name in ("spread_t", "between_t", "cov_t"):
            _SCORES.pop(name, None)
    with pytest.raises(InputError, match="takes 3 arguments"):
        Scorer([lambda a, b, c: 0])
    with pytest.raises(InputError, match="scikit-learn estimator, got 7"):
        Scorer([7])


def test_entry_point_scores_are_loaded(monkeypatch, caplog, digits):
    from importlib import metadata

    from intus.scores import base, registry

    points = [
        metadata.EntryPoint("broken_t", "intus.no_such_module:score", "intus.scores"),
        metadata.EntryPoint("entry_t", "numpy:max", "intus.scores"),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "intus.scores" else [])
    registry._load_entry_points.cache_clear()
    try:
        assert read(fed("entry_t", digits[0]), "entry_t").value == 16
        assert "'broken_t'" in caplog.text
        with pytest.raises(InputError, match="no score 'broken_t'"):
            Scorer("broken_t")
    finally:
        base._SCORES.pop("entry_t", None)
        registry._load_entry_points.cache_clear()


@pytest.mark.parametrize("name", ["iou", "iou_max", "correlation"])
def test_nan_of_one_unit_affects_no_other_unit(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 3))
    y = (x[:, 0] + 0.3 * rng.normal(size=800) > 1.5).astype(float)
    spoilt = x.copy()
    spoilt[::3, 1] = np.nan
    spoilt[:, 2] = np.inf
    clean, dirty = fed(name, x, {"y": y}), fed(name, spoilt, {"y": y})
    assert read(dirty, name, "y", 0).value == read(clean, name, "y", 0).value
    kept = np.arange(800) % 3 != 0
    alone = fed(name, x[kept][:, 1:2], {"y": y[kept]}, np.flatnonzero(kept))
    assert read(dirty, name, "y", 1).value == pytest.approx(read(alone, name, "y", 0).value)
    assert np.isnan(read(dirty, name, "y", 2).value)
