"""Validation and features of a Record."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from intus.core.errors import InputError
from intus.core.record import KINDS, Record

arrays = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4), elements=st.just(1)
)


@given(arrays, st.none() | st.integers(0, 3))
def test_features_have_batch_axis_first(array, axis):
    array = np.arange(array.size, dtype=np.float32).reshape(array.shape)
    if axis is not None and axis >= max(array.ndim, 1):
        with pytest.raises(InputError, match=f"batch_axis={axis}"):
            Record(array, "a", batch_axis=axis)
        return
    record = Record(array, "a", batch_axis=axis)
    features = record.features()
    assert features.shape[0] == record.rows
    assert sorted(features.ravel().tolist()) == sorted(array.ravel().tolist())
    if axis is not None and array.ndim:
        for row in range(record.rows):
            np.testing.assert_array_equal(features[row], np.take(array, row, axis).ravel())


def test_features_of_empty_batch():
    assert Record(np.zeros((0, 3, 2)), "a").features().shape == (0, 6)


def test_parameter_is_one_row():
    record = Record(np.zeros((4, 3)), "fc.weight", kind="parameter", batch_axis=None)
    assert record.rows == 1
    assert record.features().shape == (1, 12)


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_are_accepted(kind):
    assert Record(np.zeros(2), "a", kind=kind).kind == kind


def test_invalid_kind_and_item_count_are_refused():
    with pytest.raises(InputError, match=r"record at 'fc1' must have a kind of .* got 'outputs'"):
        Record(np.zeros(2), "fc1", kind="outputs")
    with pytest.raises(InputError, match="has 4 rows but 3 item ids"):
        Record(np.zeros((4, 2)), "fc1", items=np.arange(3))
