"""Data for the tests of scores."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the digits as (1797, 64) float32 and their classes."""
    data = load_digits()
    return data.data.astype(np.float32), data.target
