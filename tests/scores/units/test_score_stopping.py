"""Permutation tests over all units, and precision of results while rows arrive."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from score_help import fed, read

from intus.core.errors import InputError
from intus.scores import Scorer
from intus.scores.statistics.jackknife import half_width
from intus.scores.statistics.permutation import midranks, permutations
from intus.scores.statistics.split import places


def clustered(rng, documents=40, each=5, units=50, hypotheses=20):
    """Return units, binary labels and documents; both sides resemble each other within a document."""
    document = np.repeat(np.arange(documents), each)
    x = rng.normal(size=(documents, units))[document] + 0.5 * rng.normal(size=(len(document), units))
    h = rng.normal(size=(documents, hypotheses))[document] + 0.5 * rng.normal(
        size=(len(document), hypotheses)
    )
    return x.astype(np.float32), (h > 0.4).astype(float), document


def share_of_hypotheses_found(name, runs, **options):
    found = []
    for seed in range(runs):
        x, h, document = clustered(np.random.default_rng(seed))
        scorer = Scorer(name, seed=seed, **options)
        scorer.update(x, h, np.arange(len(x)), groups=document)
        found.append((scorer.columns().p.reshape(20, 50) <= 0.05).any(axis=1))
    return np.mean(found)


@pytest.mark.long
def test_family_wise_false_positives_of_1000_null_pairs():
    """Without the maximum over units, nine of ten hypotheses have a unit with p below .05."""
    assert share_of_hypotheses_found("correlation", 15, null=200) <= 0.07
    assert share_of_hypotheses_found("correlation", 3) > 0.8


@pytest.mark.long
@pytest.mark.parametrize("name", ["mean_difference", "auroc", "iou", "iou_max", "mutual_information"])
def test_family_wise_false_positives_of_other_scores(name):
    assert share_of_hypotheses_found(name, 3, null=60) <= 0.09


@pytest.mark.long
@pytest.mark.parametrize("name", ["correlation", "auroc", "iou_max", "mutual_information"])
def test_related_unit_has_the_least_possible_p(name):
    rng = np.random.default_rng(0)
    x, h, document = clustered(rng, 200, 4, units=8, hypotheses=2)
    x[:, 3] += 3 * h[:, 1].astype(np.float32)
    scorer = Scorer(name, null=99)
    scorer.update(x, h, np.arange(800), groups=document)
    assert read(scorer, name, "1", 3).p == 0.01
    assert read(scorer, name, "0", 3).p > 0.01


@pytest.mark.long
def test_p_of_one_unit_equals_scipy():
    rng = np.random.default_rng(3)
    x = rng.normal(size=60)
    h = 0.3 * x + rng.normal(size=60)
    scorer = Scorer("correlation", null=1500)
    scorer.update(x[:, None], {"h": h}, np.arange(60))
    want = stats.permutation_test(
        (x, h),
        lambda a, b: stats.pearsonr(a, b).statistic,
        permutation_type="pairings",
        n_resamples=3000,
        rng=0,
    )
    assert read(scorer, "correlation", "h", 0).p == pytest.approx(want.pvalue, abs=0.025)


@pytest.mark.long
def test_p_of_several_units_equals_a_simple_loop():
    """The loop permutes whole documents and keeps the largest correlation of any unit."""
    rng = np.random.default_rng(5)
    x, h, document = clustered(rng, units=12, hypotheses=2)
    x[:, 4] += 0.6 * h[:, 0].astype(np.float32)
    scorer = Scorer("correlation", null=2000)
    scorer.update(x, h, np.arange(len(x)), groups=document)

    def strengths(labels):
        return np.abs(np.corrcoef(x, labels, rowvar=False)[:12, 12:])

    found, above = strengths(h), np.zeros((12, 2))
    for _ in range(2000):
        order = rng.permutation(40)
        permuted = h.reshape(40, 5, 2)[order].reshape(200, 2)
        above += strengths(permuted).max(axis=0) >= found
    want = (1 + above) / 2001
    got = np.array([[read(scorer, "correlation", str(k), unit).p for k in range(2)] for unit in range(12)])
    np.testing.assert_allclose(got, want, atol=0.05)
    assert 0.001 < want[4, 0] < 0.5
    assert (want < 0.9).sum() > 4


def test_note_where_p_is_the_least_of_the_permutations():
    rng = np.random.default_rng(0)
    x, h, document = clustered(rng, 200, 4, units=8, hypotheses=2)
    x[:, 3] += 3 * h[:, 1].astype(np.float32)
    scorer = Scorer("correlation", null=99)
    scorer.update(x, h, np.arange(800), groups=document)
    noted = {(one.target, one.unit): one for one in scorer.result() if "the least p of 99" in one.note}
    assert [one.p for one in noted.values()] == [0.01] * len(noted)
    assert ("1", 3) in noted
    assert all(one.p > 0.01 for one in scorer.result() if (one.target, one.unit) not in noted)


def test_permutations_move_whole_groups():
    item = np.repeat(np.arange(24), 3)
    where = places(item, 0, groups=item // 4)
    for rows in permutations(where, 5, 0):
        assert sorted(rows) == list(range(72))
        assert (where.position[rows] == where.position).all()
        source = {int(c): set((item // 4)[rows][item // 4 == c].tolist()) for c in range(6)}
        assert all(len(from_) == 1 for from_ in source.values())
        assert (item[rows] % 4 == item % 4).all()


def test_permutations_of_groups_of_different_lengths():
    item = np.array([0, 0, 0, 1, 2, 2, 7, 7, 7, 7])
    for rows in permutations(places(item, 0), 20, 1):
        for row, source in enumerate(rows):
            assert source == -1 or np.sum(item[:source] == item[source]) == np.sum(item[:row] == item[row])
    assert next(permutations(places(np.empty(0, int), 0), 1, 0)).shape == (0,)


def test_midranks_equal_scipy():
    x = np.round(np.random.default_rng(0).normal(size=(200, 3)), 1)
    np.testing.assert_array_equal(midranks(x), stats.rankdata(x, axis=0))


def test_half_width_equals_scipy():
    parts = np.random.default_rng(0).normal(size=(9, 4))
    parts[:4, 1], parts[:7, 2] = np.nan, np.nan
    got = half_width(parts)
    for column in (0, 1):
        known = parts[np.isfinite(parts[:, column]), column]
        low, high = stats.t.interval(0.95, len(known) - 1, known.mean(), stats.sem(known))
        assert got[column] == pytest.approx((high - low) / 2)
    assert np.isnan(got[2])


@pytest.mark.long
@pytest.mark.parametrize("name", ["correlation", "mean_difference", "iou", "auroc"])
def test_stopped_results_are_within_eps(name):
    """Of 800 pairs at most one may be further than eps from the result of all rows."""
    rng = np.random.default_rng(0)
    h = (np.repeat(rng.random((6000, 20)), 10, axis=0) < 0.3).astype(float)
    x = rng.normal(size=(60_000, 40)).astype(np.float32)
    x[:, :20] += h.astype(np.float32)
    items, scorer, eps = np.arange(60_000) // 10, Scorer(name), 0.05
    for start in range(0, 60_000, 3000):
        part = slice(start, start + 3000)
        scorer.update(x[part], h[part], items[part])
        if start % 6000 == 0 and scorer.converged(eps):
            break
    assert start < 54_000
    found, whole = scorer.columns(), fed(name, x, h, items).columns()
    assert found.n.max() < 60_000
    assert (np.abs(found.value - whole.value) > eps).sum() <= 1
    assert not Scorer(name).converged(eps)


def test_classifier_converges():
    rng = np.random.default_rng(0)
    scorer, sizes = Scorer("linear_accuracy"), []
    for _ in range(40):
        x = rng.normal(size=(100, 5))
        scorer.update(x, {"y": x[:, 0] + rng.normal(size=100) > 0})
        sizes.append(scorer.converged(0.05))
    assert not sizes[0]
    assert sizes[-1]


def test_hypothesis_without_a_value_is_not_precise():
    """A rare hypothesis is constant at first; to stop then would leave it without a value."""
    rng = np.random.default_rng(0)
    scorer = Scorer("correlation")
    x = rng.normal(size=(4000, 3))
    scorer.update(x, {"h": x[:, 0] > 0, "rare": np.zeros(4000)})
    assert np.isnan(scorer.precision()["correlation"][0][:, 1]).all()
    assert not scorer.converged(0.06)
    more = rng.normal(size=(4000, 3))
    scorer.update(more, {"h": more[:, 0] > 0, "rare": rng.random(4000) < 0.05}, np.arange(4000, 8000))
    assert scorer.converged(0.1)


def test_labels_that_are_no_numbers_do_not_keep_the_pass_going():
    rng = np.random.default_rng(0)
    scorer = Scorer("correlation")
    x = rng.normal(size=(4000, 3))
    scorer.update(x, {"h": x[:, 0] > 0, "name": np.array(["a", "b"] * 2000)})
    assert scorer.converged(0.06)


def test_strongest_units_are_separated():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(8000, 2))
    x = rng.normal(size=(8000, 6))
    x[:, 1] += 2 * h[:, 0]
    x[:, 2] += h[:, 0]
    x[:, [4, 5]] += 2 * h[:, 1:]  # two units that are equally strong
    few, many = Scorer(["correlation", "mean"]), Scorer(["correlation", "mean"])
    few.update(x[:40], h[:40])
    many.update(x, h)
    assert not few.separated(1)
    assert many.separated(1, share=0.5)
    assert not many.separated(1)
    assert many.separated(2)
    assert many.separated(6)


def test_bad_arguments_are_refused():
    scorer = fed("correlation", np.eye(4), {"h": [0, 1, 0, 1]})
    with pytest.raises(InputError, match=r"eps=0 must be a positive half-width"):
        scorer.converged(0)
    with pytest.raises(InputError, match=r"eps=nan must be a positive half-width"):
        scorer.converged(float("nan"))
    with pytest.raises(InputError, match="top=0 must be 1 or more units"):
        scorer.separated(0)
    for bad in (-1, 0.5, True):
        with pytest.raises(InputError, match=f"null={bad} must be a number of permutations"):
            Scorer("correlation", null=bad)
