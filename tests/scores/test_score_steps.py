"""The gradient noise scale."""

from __future__ import annotations

import numpy as np
import pytest
from score_help import fed, read


def test_gradient_noise_of_gaussian_gradients():
    rng = np.random.default_rng(0)
    direction = rng.normal(size=500)
    wanted = 4.0 * 500 / (direction @ direction)
    found = [
        read(fed("gradient_noise", direction + rng.normal(0, 2, (40, 500))), "gradient_noise").value
        for _ in range(50)
    ]
    assert np.mean(found) == pytest.approx(wanted, rel=0.03)


def test_gradient_noise_is_unbiased_in_number_of_steps():
    """The noise in the squared norm of the mean is subtracted, so three steps suffice on average."""
    rng = np.random.default_rng(1)
    direction = rng.normal(size=2000)
    few = [
        read(fed("gradient_noise", direction + rng.normal(size=(3, 2000))), "gradient_noise").value
        for _ in range(60)
    ]
    assert np.mean(few) == pytest.approx(2000 / (direction @ direction), rel=0.05)


def test_gradient_noise_of_blocks_and_merged_scorers():
    rng = np.random.default_rng(2)
    x = rng.normal(1, 1, (30, 7))
    one, first, second = (
        fed("gradient_noise", x),
        fed("gradient_noise", x[:11]),
        fed("gradient_noise", x[11:]),
    )
    assert read(first.merge(second), "gradient_noise").value == pytest.approx(
        read(one, "gradient_noise").value
    )


def test_gradient_noise_without_direction_has_note():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(10, 50))
    assert "no direction" in read(fed("gradient_noise", x - x.mean(axis=0)), "gradient_noise").note
    assert "fewer than two" in read(fed("gradient_noise", x[:1]), "gradient_noise").note
