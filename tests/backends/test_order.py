"""The order of rows by what a call gets: all of its inputs, from all over each."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from intus.backends.host_arrays import ALIKE, NO_ARRAYS, order_of_rows
from intus.backends.torch.order import first_batch

X = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)


def of_torch(arrays, axis):
    return first_batch(([torch.from_numpy(np.ascontiguousarray(one)) for one in arrays], {}), axis)


@pytest.fixture(params=[order_of_rows, of_torch])
def order(request):
    return request.param


@given(st.data())
@pytest.mark.parametrize("order", [order_of_rows, of_torch])
def test_order_of_rows_is_that_of_all_inputs(order, data):
    """An order of rows that are all different is equal only to itself, whatever stands beside them."""
    rows, axis = data.draw(st.integers(2, 6)), data.draw(st.integers(0, 1))
    way = data.draw(st.permutations(range(rows)))
    count = data.draw(st.integers(0, 3))
    at = data.draw(st.integers(0, count))
    shape = data.draw(st.sampled_from([(rows, 2), (rows, 2, 3)]))
    beside = [np.moveaxis(np.ones(shape, np.float32), 0, axis)] * count
    first, second = (
        order([*beside[:at], np.moveaxis(x, 0, axis), *beside[at:]], axis) for x in (X[:rows], X[list(way)])
    )
    assert isinstance(first, bytes)
    assert (first == second) == (list(way) == list(range(rows)))


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_that_are_all_alike_show_no_order(order, axis):
    positions = np.broadcast_to(np.arange(5.0), (6, 5))
    assert order([np.moveaxis(positions, 0, axis), np.ones((6, 6))], axis) == ALIKE


def test_batch_of_one_row_has_an_order(order):
    assert isinstance(order([X[:1]], 0), bytes)


def test_order_is_of_values_from_all_over_a_batch(order):
    """Images begin with many values that all of them have, such as a black border."""
    images = np.zeros((4, 300, 300), np.float32)
    images[:, 200:] = np.arange(1.0, 5.0)[:, None, None]
    assert order([images], 0) != order([images[::-1]], 0)


def test_call_without_arrays_has_no_order(order):
    assert order([], 0) == NO_ARRAYS
