"""Alignment of behaviors with labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intus.core.errors import InputError
from intus.inspection.alignment.align import onto, resize, rows

sides = st.integers(1, 9)


@settings(max_examples=60, deadline=None)
@given(h=sides, w=sides, height=st.integers(1, 20), width=st.integers(1, 20), seed=st.integers(0, 99))
def test_resize_equals_torch(h, w, height, width, seed):
    maps = np.random.default_rng(seed).normal(size=(2, 3, h, w)).astype(np.float32)
    want = torch.nn.functional.interpolate(
        torch.from_numpy(maps), (height, width), mode="bilinear", align_corners=False
    )
    np.testing.assert_allclose(resize(maps, (height, width)), want.numpy(), atol=1e-5)


def test_rows_keep_symbols_of_a_record_together():
    array = np.arange(2 * 3 * 2 * 2).reshape(2, 3, 2, 2)
    flat = rows(array)
    assert flat.shape == (8, 3)
    assert flat[5].tolist() == array[1, :, 0, 1].tolist()


def test_record_labels_average_positions():
    array = np.random.default_rng(0).normal(size=(3, 2, 4, 5))
    np.testing.assert_allclose(onto(array, (), "a", "h", []), array.mean(axis=(2, 3)))


@pytest.mark.parametrize("grid", [(8, 12), (16, 24), (4, 6), (2, 3), (6, 10)])
def test_map_that_covers_the_record_is_resized(grid):
    maps = np.random.default_rng(0).normal(size=(2, 3, 6, 10)).astype(np.float32)
    given = onto(maps, grid, "conv", "h", [(3, 8), (8, 12)])
    want = torch.nn.functional.interpolate(torch.from_numpy(maps), grid, mode="bilinear", align_corners=False)
    np.testing.assert_allclose(given, want.numpy(), atol=1e-5)


@pytest.mark.parametrize("grid", [(5, 12), (5, 5), (12, 8), (8, 24), (10, 6), (7, 11), (3, 4)])
def test_map_that_does_not_cover_the_record_is_refused(grid):
    maps = np.zeros((2, 3, 6, 10), np.float32)
    words = (
        rf"gives maps of {grid[0]} × {grid[1]}, which fit neither the record \(8 × 12\) nor 'conv' \(6 × 10"
    )
    with pytest.raises(InputError, match=words):
        onto(maps, grid, "conv", "h", [(3, 8), (8, 12)])
    with pytest.raises(InputError, match="the record, whose size is unknown, nor 'conv'"):
        onto(maps, grid, "conv", "h", [])
