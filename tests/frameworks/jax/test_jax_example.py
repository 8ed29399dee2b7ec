"""The example in NNX trains as the one in PyTorch does."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.example_losses import assert_same_losses


@pytest.mark.long
def test_same_losses_as_torch(tmp_path: Path) -> None:
    assert_same_losses("nnx", tmp_path)
