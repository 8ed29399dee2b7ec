"""``probe`` for training loops: ``TrainerProbe`` for Hugging Face, ``LightningProbe`` and ``Keras``.

Each is imported on first access, and only then requires its framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .keras import Keras
    from .lightning import LightningProbe
    from .trainer import TrainerProbe

__all__ = ["Keras", "LightningProbe", "TrainerProbe"]

_HOME = {"Keras": ".keras", "LightningProbe": ".lightning", "TrainerProbe": ".trainer"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'intus.callbacks' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name], __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
