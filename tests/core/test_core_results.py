"""The table of scores."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intus.core.errors import InputError
from intus.core.results import COLUMNS, Results

values = {
    str: st.text(max_size=8),
    int: st.integers(-1, 2**40),
    float: st.floats(allow_nan=True, allow_infinity=True),
}
rows = st.lists(
    st.fixed_dictionaries({}, optional={name: values[type(missing)] for name, missing in COLUMNS.items()}),
    max_size=6,
)


def same(value, other):
    return value == other or (
        isinstance(value, float) and isinstance(other, float) and math.isnan(value) and math.isnan(other)
    )


@given(rows)
def test_from_rows_round_trip(given_rows):
    table = Results.from_rows(given_rows)
    assert len(table) == len(given_rows)
    for row, out in zip(given_rows, table, strict=True):
        assert list(out) == list(COLUMNS)
        for name, missing in COLUMNS.items():
            value = row.get(name, missing)
            applies = not (same(value, missing) and (missing in ("", -1) or missing != missing))
            assert same(out[name], value if applies else None)


@given(rows, rows)
def test_concat(first, second):
    table = Results.concat([Results.from_rows(first), Results(), Results.from_rows(second)])
    assert len(table) == len(first) + len(second)
    assert table["score"].tolist() == [row.get("score", "") for row in first + second]


def test_concat_of_nothing_is_empty_table():
    table = Results.concat([])
    assert len(table) == 0
    assert list(table) == []
    assert list(table.to_pandas().columns) == list(COLUMNS)


def test_where_filters_by_all_given_columns():
    table = Results.from_rows(
        [{"address": a, "score": s, "value": 1.0} for a in ("fc1", "fc2") for s in ("mean", "std")]
    )
    found = table.where(address="fc2", score="std")
    assert [(row["address"], row["score"]) for row in found] == [("fc2", "std")]
    assert len(table.where(score="nope")) == 0


def test_to_pandas_copies():
    table = Results.from_rows([{"score": "mean", "value": 1.0, "n": 3}])
    frame = table.to_pandas()
    frame.loc[0, "value"] = 9.0
    assert table["value"].tolist() == [1.0]
    assert frame["n"].dtype == np.int64


def test_unknown_columns_and_unequal_lengths_are_refused():
    with pytest.raises(InputError, match=r"no column 'scores'\. Did you mean 'score'"):
        Results.from_rows([{"scores": 1}])
    with pytest.raises(InputError, match="no column 'vale'"):
        Results()["vale"]
    with pytest.raises(InputError, match=r"lengths \[1, 2\]"):
        Results({"value": [1.0], "n": [1, 2]})
    with pytest.raises(InputError, match="no column 'colour'"):
        Results({"colour": ["red"]})


def test_repr_summarizes_table():
    table = Results.from_rows([{"address": "fc1", "score": "mean"}, {"address": "fc2", "score": "std"}])
    assert repr(table) == "<Results: 2 rows, 2 addresses, scores mean, std>"
