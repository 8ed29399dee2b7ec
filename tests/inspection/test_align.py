from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intus.core.errors import InputError
from intus.inspection.align import onto, resize, rows, units_second

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


def test_units_second():
    assert units_second(np.zeros((4, 7)), 4, "a").shape == (4, 7)
    assert units_second(np.zeros(4), 4, "a").shape == (4, 1)
    assert units_second(np.zeros((4, 5, 7)), 4, "a").shape == (4, 7, 5)
    assert units_second(np.zeros((4, 5, 7)), 4, "a", last=False).shape == (4, 5, 7)
    assert units_second(np.zeros((4, 8, 9, 7)), 4, "a").shape == (4, 8, 9, 7)
    assert units_second(np.zeros((4, 8, 9, 7)), 4, "a", last=True).shape == (4, 7, 8, 9)
    assert units_second(np.zeros((5, 4, 7)), 4, "a").shape == (4, 7, 5)
    assert units_second(np.zeros((4, 4, 7)), 4, "a", time_first=True)[0].shape == (7, 4)
    with pytest.raises(InputError, match=r"'a' gave shape \(20, 7\) for 4 records: no axis is the batch"):
        units_second(np.zeros((20, 7)), 4, "a")


def test_record_labels_average_positions():
    array = np.random.default_rng(0).normal(size=(3, 2, 4, 5))
    np.testing.assert_allclose(onto(array, (), "a", "h"), array.mean(axis=(2, 3)))
