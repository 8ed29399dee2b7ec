"""Random projection and summary of wide rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from intus.backends.torch.captured_tensor import to_projected
from intus.backends.torch.random_projection import projected, summary
from intus.core.projection import PROJECTED, SUMMARY


@pytest.mark.parametrize("features", [4097, 8192, 10_000])
def test_projection_is_balanced_sparse_sign_matrix(features):
    matrix = projected(torch.eye(features)).numpy()
    assert matrix.shape == (features, PROJECTED)
    assert set(np.unique(matrix)) == {-1.0, 0.0, 1.0}
    assert np.array_equal(np.abs(matrix).sum(axis=1), np.ones(features))
    shares = np.abs(matrix).sum(axis=0)
    assert shares.max() - shares.min() <= 1
    rows = np.random.default_rng(0).normal(size=(3, 5, features)).astype(np.float32)
    np.testing.assert_allclose(projected(torch.tensor(rows)).numpy(), rows @ matrix, rtol=1e-3, atol=1e-3)


def test_projection_preserves_distances():
    """Rows with the structure of images, and noise, keep their distances to a few percent."""
    rng = np.random.default_rng(0)
    smooth = np.cumsum(rng.normal(size=(40, 32, 16, 16)), axis=2).reshape(40, -1)
    for rows in (smooth, rng.normal(size=(40, 20_000))):
        near = projected(torch.tensor(rows, dtype=torch.float32)).numpy()
        upper = np.triu_indices(40, 1)
        before, after = (
            np.linalg.norm(one[:, None] - one[None], axis=-1)[upper]
            for one in (rows, near.astype(np.float64))
        )
        assert abs(np.median(after / before) - 1) < 0.02
        assert np.abs(after / before - 1).max() < 0.15


def test_projection_is_deterministic_and_leaves_global_rng():
    before = torch.get_rng_state()
    rows = torch.ones(2, 5001)
    assert torch.equal(projected(rows), projected(rows))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_summary_describes_rows_before_projection(dtype):
    torch.manual_seed(0)
    rows = (torch.randn(6, 8, 24, 24) + 3).relu().to(dtype)
    rows[1, 2, 3, 4], rows[4, 0, 0, 0] = float("nan"), float("inf")
    array, measured = to_projected(rows, 5, 0)
    assert array.shape == (5, PROJECTED)
    assert array.dtype == measured.dtype == np.float32
    flat = rows.double().flatten(1).numpy()[[0, 2, 3]]
    found = dict(zip(SUMMARY, measured.T, strict=True))
    assert found["nonfinite"].tolist() == [0, 1, 0, 0, 1]
    expected = {
        "mean": flat.mean(1),
        "mean_abs": np.abs(flat).mean(1),
        "variance": flat.var(1),
        "norm": np.linalg.norm(flat, axis=1),
        "sparsity": (flat == 0).mean(1),
        "low": flat.min(1),
        "high": flat.max(1),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(found[name][[0, 2, 3]], values, rtol=1e-4, atol=1e-6, err_msg=name)


def test_variance_with_large_mean():
    rows = torch.randn(4, 9000) + 3000
    found = summary(rows)[:, SUMMARY.index("variance")]
    np.testing.assert_allclose(found, rows.double().var(1, correction=0), rtol=1e-3)


def test_projection_of_sequences_with_batch_second():
    words = torch.randn(7, 3, 6000)
    array, measured = to_projected(words, 2, 1)
    assert array.shape == (7, 2, PROJECTED)
    np.testing.assert_allclose(array[4, 1], projected(words[4, 1:2]).numpy()[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(measured[:, 0], words[:, :2].mean((0, 2)).numpy(), atol=1e-6)


def test_to_projected_refuses_complex():
    with pytest.raises(TypeError, match="complex"):
        to_projected(torch.ones(2, 5000, dtype=torch.complex64))
