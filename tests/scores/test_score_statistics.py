"""Statistics of streams: exact merging, any batches, types and shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_help import fed, read, same

from intus.core.errors import InputError
from intus.scores import Scorer, names
from intus.scores.registry import infos
from intus.scores.statistics.labels import Classes, numbers
from intus.scores.statistics.sample import Sample
from intus.scores.statistics.split import GROUPS, HELD_OUT, places

#: Every score of intus that needs no target, so that a new statistic is tested; and the scores of targets
#: that are a function of the whole sample.
ALL = [name for name in names() if not infos()[name].needs_target]
ALL += ["linear_f1", "linear_accuracy", "kmeans_mi", "kmeans_ami"]
UNITS = ["correlation", "mean_difference", "iou", "iou_max", "auroc", "mutual_information"]


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 90),
    features=st.integers(1, 6),
    cuts=st.lists(st.integers(0, 90), max_size=4),
    strings=st.booleans(),
    holes=st.booleans(),
)
def test_merged_scorers_equal_single_scorer(seed, rows, features, cuts, strings, holes):
    rng = np.random.default_rng(seed)
    x = rng.normal(5, 1, size=(rows, features)) * rng.integers(0, 2, size=(rows, 1))
    y = rng.integers(0, 3, rows)
    x[:, 0] += y
    labels = np.array([None if holes and i % 5 == 0 else int(c) for i, c in enumerate(y)], dtype=object)
    if strings:
        labels = np.array([None if c is None else f"c{c}" for c in labels], dtype=object)
    if holes:
        x[rng.random(rows) < 0.1] = np.nan
    items = rng.permutation(rows * 2)[:rows]
    whole = fed(ALL, x, {"a": labels, "b": y % 2}, items)

    merged = Scorer(ALL)
    parts = np.split(np.arange(rows), sorted(min(c, rows) for c in cuts))
    for part in parts[::-1]:
        merged.merge(fed(ALL, x[part], {"a": labels[part], "b": y[part] % 2}, items[part]))
    same(whole.result(), merged.result(), 1e-6)


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), cuts=st.lists(st.integers(0, 40), max_size=3), holes=st.booleans())
def test_merged_unit_scorers_equal_single_scorer(seed, cuts, holes):
    rng = np.random.default_rng(seed)
    items = np.repeat(rng.permutation(40), 6)
    x = rng.normal(3, 1, size=(240, 3)).astype(np.float32)
    h = (rng.random((240, 2)) < 0.3).astype(float)
    x[:, 0] += 2 * h[:, 0]
    if holes:
        h[rng.random(h.shape) < 0.2] = np.nan
        x[rng.random(x.shape) < 0.01] = np.inf
    whole, blocks, merged = (Scorer(UNITS) for _ in range(3))
    whole.update(x, h, items)
    parts = np.split(np.arange(240), sorted(6 * c for c in cuts))[::-1]
    for part in parts:
        blocks.update(x[part], h[part], items[part])
        merged.merge(fed(UNITS, x[part], h[part], items[part]))

    def without_baseline(scorer):
        """Scores from sums move hypotheses within a block, so that this baseline depends on the blocks.

        A block of one item gets those of the block before, which a merged scorer does not know.
        """
        summed = ("correlation", "mean_difference")
        return [r._replace(baseline=0) if r.score in summed else r for r in scorer.result()]

    if min(len(part) for part in parts if len(part)) > 6:
        same(blocks.result(), merged.result(), 1e-9)
    same(without_baseline(blocks), without_baseline(merged), 1e-9)
    same(without_baseline(whole), without_baseline(merged), 1e-6)


def test_batch_sizes_do_not_change_results(digits):
    x, y = digits
    whole, batches = fed(ALL, x, {"y": y}), Scorer(ALL)
    for part in np.array_split(np.arange(len(x)), 23):
        batches.update(x[part], {"y": y[part]})
    same(whole.result(), batches.result(), 1e-8)


def test_results_depend_on_seed_only(digits):
    x, y = digits
    one, again, other = (fed(ALL, x, {"y": y}, seed=s) for s in (1, 1, 2))
    assert one.result() == again.result() or str(one.result()) == str(again.result())
    assert read(one, "linear_f1", "y").n != read(other, "linear_f1", "y").n


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 400), capacity=st.integers(1, 60), cut=st.integers(0, 400), seed=st.integers(0, 99)
)
def test_sample_consists_of_smallest_keys(rows, capacity, cut, seed):
    where = places(np.arange(rows), seed)
    x = np.arange(rows, dtype=float)[:, None]
    codes, values = np.zeros((rows, 0), np.int64), np.zeros((rows, 0))

    def sample(*parts: np.ndarray) -> Sample:
        made = Sample(capacity, 1)
        for part in parts:
            made.add(where.take(part), x[part], codes[part], values[part])
        return made

    index = np.arange(rows)
    merged = sample(index[cut:])
    merged.merge(sample(*np.array_split(index[:cut], 7)), [])
    want = np.argsort(where.key)[:capacity]
    assert merged.rows()[1][:, 0].tolist() == want[np.argsort(where.turn[want])].tolist()
    assert merged.complete == (rows <= capacity)


def test_places_are_uniform_and_independent():
    where = places(np.arange(200_000), 0)
    assert where.held.mean() == pytest.approx(HELD_OUT, abs=0.005)
    counts = np.bincount(where.group, minlength=GROUPS)
    assert counts.min() > 0.95 * counts.mean()
    assert where.held[where.key < np.median(where.key)].mean() == pytest.approx(HELD_OUT, abs=0.005)
    assert abs(np.corrcoef(where.group, where.held)[0, 1]) < 0.01
    twice = places(np.repeat(np.arange(500), 3), 0)
    assert (twice.held.reshape(500, 3) == twice.held[::3, None]).all()
    assert len(np.unique(twice.key)) == 1500
    assert twice.position.reshape(500, 3).tolist() == [[0, 1, 2]] * 500


def test_sample_memory_is_bounded():
    scorer = Scorer("kmeans_ami", sample_bytes=1 << 20)
    rng = np.random.default_rng(0)
    for _ in range(20):
        scorer.update(rng.normal(size=(4000, 32)), {"y": rng.integers(0, 3, 4000)})
    held = sum(part[1].nbytes for part in scorer.statistics.sample._parts)
    assert held < 8 << 20
    assert abs(read(scorer, "kmeans_ami", "y").value) < 0.02


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8, bool])
def test_any_dtype_and_shape_is_accepted(dtype):
    x = (np.arange(240).reshape(20, 3, 4) % 7).astype(dtype)
    scorer = fed(["mean", "std"], x)
    assert read(scorer, "mean").value == pytest.approx(x.astype(float).mean())
    assert read(scorer, "std").value == pytest.approx(x.astype(float).std())
    assert scorer.statistics.features == 12
    assert read(fed("mean", x[:, 0, 0]), "mean").n == 20


def test_scorer_copies_arrays_of_caller():
    x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    kept = x.copy()
    scorer = fed(["kmeans_ami"], x, {"y": np.arange(200) % 2})
    x[:] = 0
    np.testing.assert_array_equal(np.sort(scorer.statistics.drawn()[1], 0), np.sort(kept, 0))


def test_invalid_updates_are_refused():
    scorer = fed("mean", np.ones((4, 3)), {"y": [0, 1, 0, 1]})
    with pytest.raises(InputError, match="first behaviours had 3 features, these have 5"):
        scorer.update(np.ones((4, 5)), {"y": [0, 1, 0, 1]})
    with pytest.raises(InputError, match=r"labels \['y'\], this one has \['z'\]"):
        scorer.update(np.ones((4, 3)), {"z": [0, 1, 0, 1]})
    with pytest.raises(InputError, match=r"'y' have shape \(3,\), but there are 4 rows"):
        scorer.update(np.ones((4, 3)), {"y": [0, 1, 0]})
    with pytest.raises(InputError, match="one id per row"):
        scorer.update(np.ones((4, 3)), {"y": [0, 1, 0, 1]}, items=[1])
    with pytest.raises(InputError, match="real numbers"):
        scorer.update(np.array([["a"]]))
    with pytest.raises(InputError, match="same scores and the same seed"):
        scorer.merge(Scorer("mean", seed=9))
    with pytest.raises(InputError, match=r"There is no score 'linear_f2'\. Did you mean .*'linear_f1'"):
        Scorer("linear_f2")
    with pytest.raises(InputError, match=r"a number, a string or a bool, got \[1\]"):
        fed("linear_f1", np.ones((1, 1)), {"y": np.array([[1], None], dtype=object)[:1]})


def test_scorer_without_rows_has_no_results():
    assert Scorer(ALL).result() == []
    assert Scorer("mean").merge(Scorer("mean")).result() == []
    assert {"linear_f1", "kmeans_ami", "iou", "dead"} <= set(names())


def test_merge_of_too_many_classes_has_note():
    x = np.random.default_rng(0).normal(size=(2400, 2))
    y = np.arange(2400.0)
    merged = fed("linear_f1", x[:1200], {"y": y[:1200]}).merge(fed("linear_f1", x[1200:], {"y": y[1200:]}))
    assert read(merged, "linear_f1", "y").note == "too many different labels to be classes"
    small = fed("linear_f1", x[:900], {"y": y[:900]}, np.arange(900))
    small.merge(fed("linear_f1", x[900:1800], {"y": y[900:1800]}, np.arange(900, 1800)))
    assert read(small, "linear_f1", "y").note == "too many different labels to be classes"


def test_labels_of_objects_are_those_of_each_alone():
    """Encode labels of several types, some of them missing, equal or NumPy's."""
    labels = [1, "a", None, np.int64(1), True, 2.5, float("nan"), np.float32(2.5), np.str_("a"), False, 0]
    column = np.empty(len(labels), dtype=object)
    column[:] = labels
    classes = Classes()
    codes = classes.encode(column)
    assert codes.dtype == np.int16
    assert codes.tolist() == [0, 1, -1, 0, 0, 2, -1, 2, 1, 3, 3]
    assert classes.in_order() == [1, "a", 2.5, False]
    assert {type(label) for label in classes.in_order()} <= {int, str, float, bool}
    with pytest.raises(InputError, match=r"A label must be a number, a string or a bool, got \[2\]\."):
        Classes().encode(np.array([1, [2], 3], dtype=object))


def test_numbers_of_objects():
    column = np.array([1, None, True, 2.5, np.float32(0.5)], dtype=object)
    np.testing.assert_array_equal(numbers(column), [1, np.nan, 1, 2.5, 0.5])
    assert numbers(np.array([1, None, "2"], dtype=object)) is None
    assert numbers(np.array([1, None, np.str_("2")], dtype=object)) is None
