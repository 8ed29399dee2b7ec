"""Alignment of behaviors with labels."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intus.inspection.align import onto, resize, rows

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
    np.testing.assert_allclose(onto(array, (), "a", "h"), array.mean(axis=(2, 3)))
