"""The examples in a Session and in Keras train as the one in PyTorch does."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.example_losses import assert_same_losses


@pytest.mark.long
@pytest.mark.parametrize("name", ["session", "keras"])
def test_same_losses_as_torch(name: str, tmp_path: Path) -> None:
    assert_same_losses(name, tmp_path)
