"""Targets as plain JSON, from any container."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from intus.core.errors import InputError
from intus.monitoring.targets import check_pattern, plain_ids, plain_labels


@pytest.mark.parametrize("labels", [[1, "1", 2], [[True], ["True", None]], [0.5, "x", "0.5"]])
def test_labels_that_are_written_alike_are_refused(labels):
    """Before, they were two classes of one name."""
    with pytest.raises(InputError, match=r"targets of 'y' contain .* which would be two classes of one name"):
        plain_labels("y", labels)


@pytest.mark.parametrize(
    "targets",
    [
        [3, 1, 2], (3, 1, 2), np.array([3, 1, 2]), torch.tensor([3, 1, 2]), [np.int64(3), torch.tensor(1), 2],
        pd.Series([3, 1, 2], index=[7, 8, 9]), pd.Series([3, 1, 2], dtype="Int64"),
    ],
)  # fmt: skip
def test_labels_from_any_container(targets):
    labels = plain_labels("digit", targets)
    assert labels == [3, 1, 2]
    assert {type(label) for label in labels} == {int}


def test_missing_labels_become_none():
    assert plain_labels("t", [1.5, float("nan"), None]) == [1.5, None, None]
    assert plain_labels("t", pd.Series(["a", None, pd.NA])) == ["a", None, None]
    assert plain_labels("t", np.array([[1.0, np.nan], [2.0, 3.0]])) == [[1.0, None], [2.0, 3.0]]


def test_types_of_labels_are_kept():
    assert plain_labels("t", [True, False]) == [True, False]
    assert type(plain_labels("t", np.array([True]))[0]) is bool
    assert plain_labels("t", pd.Series(["a", "b"], dtype="category")) == ["a", "b"]


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "empty"),
        ([[], []], "empty"),
        (np.zeros((0,)), "empty"),
        ([[1, 2], 3], r"not nested alike: entry 0 has shape \(2,\), entry 1 has \(\)"),
        ([[1, 2], [[3], [4]]], "not nested alike"),
        ([[[1], [2]], [[3]]], "not nested alike"),
        ([[1, 2], None], "not nested alike"),
        ([[None], []], "no label"),
        ([None, float("nan")], "no label"),
        ([1, object()], r"got <object.* of type object at \[1\]"),
        ([[0, 1], [2, 1j]], r"got 1j of type complex at \[1\]\[1\]"),
        ([{"a": 1}], "type dict"),
        ([math.inf], "inf"),
        ("abc", "must be a list"),
        (5, "must be a list"),
        (np.array(5), "must be a list"),
    ],
)
def test_invalid_targets_are_refused(targets, message):
    with pytest.raises(InputError, match=message):
        plain_labels("digit", targets)


@pytest.mark.parametrize("pattern", ["(", None, 3, b"fc"])
def test_invalid_patterns_are_refused(pattern):
    with pytest.raises(InputError, match="layer_pattern must be"):
        check_pattern("layer_pattern", pattern)


labels = st.one_of(st.integers(), st.booleans(), st.text(), st.floats(allow_infinity=False), st.none())


@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(labels, min_size=width, max_size=width))))
def test_accepted_labels_are_rectangular_json(targets):
    try:
        out = plain_labels("t", targets)
    except InputError:
        assert not any(part is not None and part == part for row in targets for part in row)
        return
    assert json.loads(json.dumps(out, allow_nan=False)) == out
    assert [len(row) for row in out] == [len(row) for row in targets]


@given(st.lists(st.lists(st.integers(0, 3) | st.none(), max_size=5), min_size=1, max_size=6))
def test_lists_of_different_lengths_are_kept(targets):
    if any(label is not None for row in targets for label in row):
        assert plain_labels("t", [np.array(row, dtype=object) for row in targets]) == targets
        types = [[f"word {at}" for at in range(len(row))] for row in targets]
        assert plain_ids("types", types, targets) == types
        with pytest.raises(InputError, match="types has shape"):
            plain_ids("types", [*types[:-1], [*types[-1], "one more"]], targets)
