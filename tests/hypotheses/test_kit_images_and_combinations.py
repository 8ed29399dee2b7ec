"""Masks, segmentation maps, lags and combinations, as inspect reads them, against numpy and pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import intus
from intus.core.errors import InputError
from intus.hypotheses import both, categories, either, lag, masks, negate, nesting, regex, tokenize
from intus.inspection.hypotheses import Labels, as_hypotheses

TEXTS = ["a(b)", "", "((x))(y", "no", "f(a, 'b')  # c", "(" * 9]
rng = np.random.default_rng(0)
MAPS = rng.integers(0, 5, size=(6, 4, 3))


def labels_of(given, records, block=4):
    """Return the labels of all records by name, as a list with an array for each record."""
    labels, out = Labels(as_hypotheses(given, len(records))), {}
    for start in range(0, len(records), block):
        numbers = np.arange(start, min(start + block, len(records)))
        for name, column in labels.of(numbers, lambda numbers=numbers: [records[i] for i in numbers]).items():
            out.setdefault(name, []).extend(column)
    return out


def flat(labels):
    """Return the labels of all records without what is not annotated."""
    joined = np.concatenate([np.ravel(one) for one in labels])
    return joined[np.array([x is not None and x == x for x in joined])]


# --- images


def test_categories_are_the_values_of_the_map():
    names = {1: "cat", 3: "dog"}
    for found in (
        labels_of(categories(MAPS, names), range(6)),
        labels_of(categories(lambda number: MAPS[number], names), range(6)),
        labels_of(categories(list(MAPS), ["none", "cat", "two", "dog"]), range(6)),
    ):
        for number, name in names.items():
            np.testing.assert_array_equal(found[name], number == MAPS)
    found = labels_of(categories(MAPS, names, ignore=0), range(6))
    np.testing.assert_array_equal(
        found["dog"],
        pd.DataFrame(MAPS.reshape(6, -1))
        .eq(3)
        .where(pd.DataFrame(MAPS.reshape(6, -1)).ne(0))
        .to_numpy(float)
        .reshape(MAPS.shape),
    )
    with pytest.raises(InputError, match="6 entries, but there are 5 records"):
        labels_of(categories(MAPS, names), range(5))
    with pytest.raises(InputError, match="must have whole numbers, got float64"):
        labels_of(categories(MAPS + 0.5, names), range(6))


def test_masks_of_arrays_lists_dicts_and_functions():
    mask = MAPS > 2
    want = mask.astype(float)
    as_dicts = [{"a": one, "b": ~one} for one in mask]
    for what in (
        masks(mask, name="a"),
        masks(list(mask.astype(int)), name="a"),
        masks({"a": mask, "b": ~mask}),
        masks(as_dicts),
        masks(lambda number: mask[number], name="a"),
        masks(lambda number: as_dicts[number], names=["a", "b"]),
    ):
        found = labels_of(what, range(6))
        np.testing.assert_array_equal(found["a"], want)
        if len(found) > 1:
            np.testing.assert_array_equal(found["b"], 1 - want)


def test_absent_mask_is_zero():
    given = [{"a": MAPS[0] > 1}, {"b": MAPS[1] > 1}, {"a": MAPS[2] > 1, "b": MAPS[2] < 1}]
    found = labels_of(masks(given), range(3))
    np.testing.assert_array_equal(found["a"][1], np.zeros((4, 3)))
    np.testing.assert_array_equal(found["b"], [np.zeros((4, 3)), MAPS[1] > 1, MAPS[2] < 1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: masks(MAPS), "must have booleans, 0 and 1 only, got int64"),
        (lambda: masks(lambda number: {"a": MAPS[number] > 1}), "their names must be known: masks"),
        (
            lambda: masks(lambda number: {"c": MAPS[number] > 1}, names=["a"]),
            "The mask 'c' of record 0 is not among",
        ),
        (lambda: masks(MAPS[:5] > 1), "5 entries, but there are 6 records"),
        (lambda: masks({"a": MAPS > 1, "b": MAPS[:4] > 1}), "an entry for each record under each name"),
    ],
)
def test_impossible_masks(make, words):
    with pytest.raises(InputError, match=words):
        labels_of(make(), range(6))


# --- lag


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=7), min_size=1, max_size=6),
    k=st.integers(-8, 8),
)
def test_lag_equals_shift_of_pandas(rows, k):
    want = [pd.Series(row).shift(-k).to_numpy() for row in rows]
    found = labels_of({"h": lag(lambda record: record, k)}, rows)["h"]
    for ours, theirs in zip(found, want, strict=True):
        np.testing.assert_array_equal(ours[: len(theirs)], theirs)
        assert np.isnan(ours[len(theirs) :]).all()
    batched = intus.hypothesis("h", batch=True)(lambda records: [list(record) for record in records])
    assert list(labels_of(lag(batched, k), rows)) == [f"h{k:+d}"]
    np.testing.assert_array_equal(flat(labels_of(lag(batched, k), rows)[f"h{k:+d}"]), flat(want))
    of_text = labels_of({"h": lag(lambda record: [str(x) for x in record], k)}, rows)["h"]
    assert [int(x) for x in flat(of_text)] == flat(want).tolist()


@pytest.mark.parametrize("k", [-2, 0, 1, 3])
def test_lag_of_arrays_tables_and_many(k):
    array = rng.integers(0, 2, size=(6, 5))
    want = np.stack([pd.Series(row).shift(-k) for row in array])
    np.testing.assert_array_equal(labels_of({"h": lag(array, k)}, range(6))["h"], want)
    named = intus.hypothesis("ghost", kind="binary")(array)
    assert list(labels_of(lag(named, k), range(6))) == [f"ghost{k:+d}"]
    plain = labels_of([tokenize(), nesting(name="n")], TEXTS)
    shifted = labels_of([lag(tokenize(), k), lag(nesting(name="n"), k)], TEXTS)
    assert list(shifted) == [f"{name}{k:+d}" for name in plain]
    for name, rows in plain.items():
        for text, row, ours in zip(TEXTS, rows, shifted[f"{name}{k:+d}"], strict=True):
            want_row = pd.Series(row[: len(text)], dtype=float).shift(-k).to_numpy()
            np.testing.assert_array_equal(ours[: len(text)], want_row)
    with pytest.raises(InputError, match="6 entries, but there are 5"):
        labels_of(lag(array, k), range(5))


@pytest.mark.parametrize("k", [-3, -1, 0, 2, 9])
@pytest.mark.parametrize("block", [3, 40])
def test_lag_over_records_equals_shift_of_pandas_within_groups(k, block):
    """Frames of episodes: maps, numbers and several names, from functions and arrays."""
    frames, episode = rng.integers(0, 5, size=(40, 4, 3)), np.repeat([0, 1, 2, 3], [5, 15, 12, 8])

    def seen(frame):
        return {"map": frame > 2, "sum": frame.sum()}

    want = pd.Series(frames.sum(axis=(1, 2))).groupby(episode).shift(-k).to_numpy(float)
    for data in (frames, torch.from_numpy(frames)):
        found = labels_of(
            lag(intus.hypothesis(names=["map", "sum"])(seen), k, over=data, groups=episode), frames, block
        )
        assert list(found) == [f"map{k:+d}", f"sum{k:+d}"]
        np.testing.assert_array_equal(found[f"sum{k:+d}"], want)
    of_array = labels_of({"h": lag(frames > 2, k, over=frames, groups=episode)}, frames, 40)["h"]
    gone = np.isnan(want)
    moved = np.clip(np.arange(40) + k, 0, 39)
    np.testing.assert_array_equal(np.array(of_array)[~gone], frames[moved][~gone] > 2)
    assert np.isnan(np.array(of_array, float)[gone]).all()
    np.testing.assert_array_equal(np.array(found[f"map{k:+d}"], float), np.array(of_array, float))


def test_lag_over_records_refuses_other_lengths():
    with pytest.raises(
        InputError, match=r"lag has 5 records in over, groups of shape \(5,\), and labels of 6 records"
    ):
        lag(MAPS, 1, over=MAPS[:5])
    with pytest.raises(InputError, match=r"groups of shape \(4,\)"):
        lag(len, 1, over=MAPS, groups=[0, 0, 1, 1])
    with pytest.raises(InputError, match=r"Pass the data too: lag\(…, over=data"):
        lag(len, 1, groups=[0, 0, 1, 1])


def test_lag_refuses_what_is_no_sequence():
    with pytest.raises(InputError, match="'labels_0' has one label for record 0"):
        labels_of(lag([1, 2, 3], 1), range(3))
    with pytest.raises(InputError, match=r"labels of shape \(4, 3\) for record 0"):
        labels_of(lag(MAPS, 1), range(6))
    with pytest.raises(InputError, match=r"whole number of symbols, got 1\.5"):
        lag(len, 1.5)
    with pytest.raises(InputError, match=r"labels by the number of the record\. Pass it to inspect"):
        lag(MAPS, 1)("record")


# --- combinations


def test_combinations_equal_those_of_booleans():
    a, b = (rng.integers(0, 2, size=(6, 5)).astype(float) for _ in range(2))
    a[0, 0] = np.nan
    frame = [pd.array(np.ravel(x), dtype="Float64") for x in (a, b)]
    missing = np.isnan(a)
    for make, operate in ((both, np.logical_and), (either, np.logical_or)):
        found = np.array(labels_of({"h": make(a, b)}, range(6))["h"])
        np.testing.assert_array_equal(found[~missing], operate(a, b)[~missing])
        assert np.isnan(found[missing]).all()
        np.testing.assert_array_equal(np.array(labels_of({"h": make(b, a)}, range(6))["h"]), found)
    found = np.array(labels_of({"h": negate(a)}, range(6))["h"])
    np.testing.assert_array_equal(found.ravel(), (1 - frame[0]).to_numpy(float, na_value=np.nan))


def test_combination_of_many_with_one():
    inside = regex(r"\(.*?\)", name="brackets")
    plain = labels_of([tokenize(kinds=["name", "comment"]), inside], TEXTS)
    found = labels_of(both(tokenize(kinds=["name", "comment"]), inside), TEXTS)
    del plain["comment"]
    assert list(found) == ["name and brackets", "comment and brackets"]
    for text, name, bracket, ours in zip(
        TEXTS, plain["name"], plain["brackets"], found["name and brackets"], strict=True
    ):
        n = len(text)
        np.testing.assert_array_equal(ours[:n], np.where(np.isnan(name[:n]), np.nan, name[:n] * bracket[:n]))


def test_combinations_refuse():
    for wrong, records in ((MAPS, range(6)), (nesting(), TEXTS)):  # a depth is no truth value
        with pytest.raises(InputError, match="binary, but a record got more than 0 and 1"):
            labels_of(negate(wrong), records)
    with pytest.raises(InputError, match="labels of 6 records and 'labels_0' of 5"):
        both(MAPS, MAPS[:5])
    with pytest.raises(InputError, match=r"shape \(4, 3\) for record 0 and 'labels_0' of shape \(\)"):
        labels_of(both(MAPS > 1, [1, 0, 1, 0, 1, 0]), range(6))
    with pytest.raises(InputError, match="The second hypothesis, 'tokenize', gives several"):
        labels_of(both(regex("a"), tokenize()), TEXTS)


def test_error_of_a_function_names_it_and_the_record():
    def broken(record):
        raise ZeroDivisionError

    for what in (broken, lag(broken, 1), masks(broken), both(broken, regex("a"))):
        with pytest.raises(ZeroDivisionError) as error:
            labels_of(what, TEXTS)
        assert error.value.__notes__ == ["in the hypothesis 'broken', on record 0"]


def test_public_names_are_loaded_on_first_use():
    assert intus.hypotheses.lag is lag
    assert set(intus.hypotheses.__all__) <= set(dir(intus.hypotheses))
