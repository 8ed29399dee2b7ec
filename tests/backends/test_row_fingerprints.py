"""Fingerprints of rows on a tensor's device: those of numpy, whatever the axis, the dtype and the sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intus.backends.torch import row_fingerprints as module
from intus.backends.torch.captured_tensor import captured, to_numpy
from intus.backends.torch.row_fingerprints import fingerprints
from intus.core import fingerprints as numpys

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    at_once=st.sampled_from([1, 5, 64, 1 << 18]),
)
def test_fingerprints_of_tensors_are_those_of_numpy(shape, data, dtype, at_once):
    axis = data.draw(st.integers(0, len(shape) - 1))
    tensor = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 3).to(dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ON_PROCESSOR", at_once)
        patch.setattr(numpys, "_AT_ONCE", at_once)
        found, expected = fingerprints(tensor, axis), numpys.fingerprints(to_numpy(tensor), axis)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_fingerprints_take_what_is_not_finite():
    tensor = torch.tensor([[1.0, torch.nan], [torch.inf, 2.0], [-torch.inf, 2.0], [1.0, 0.0]])
    found = fingerprints(tensor, 0)
    np.testing.assert_allclose(found, numpys.fingerprints(tensor.numpy(), 0))
    assert np.isfinite(found).all()
    assert (found[0] == found[3]).all()  # NaN counts as 0


def test_only_plain_real_tensors_have_fingerprints_of_their_own():
    assert captured("a", "output", 0, torch.ones(3)).fingerprints is not None
    for other in (torch.ones(3, dtype=torch.complex64), torch.ones(3, 2).to_sparse()):
        assert captured("a", "output", 0, other).fingerprints is None


def test_fingerprints_need_no_gradient_and_no_copy_of_the_tensor():
    tensor = torch.randn(4, 3, requires_grad=True)
    before = tensor._version
    fingerprints(tensor * 1, 1)
    assert tensor.grad is None
    assert tensor._version == before
