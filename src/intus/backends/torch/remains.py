"""Make a twin of a model that no longer exists, of what it was made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn


def remains(model: nn.Module) -> Callable[[], nn.Module] | None:
    """Return a function that returns a module of the same class, with the attributes of a model.

    It keeps these, but not the model. None of a class whose objects do something at their end, or have more
    than their attributes.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> twin, weight = remains(model), model.weight
        >>> del model
        >>> twin().weight is weight
        True
    """
    kind = type(model)
    has_slots = any(vars(one).get("__slots__") for one in kind.__mro__)
    if hasattr(kind, "__del__") or has_slots or isinstance(model, torch.jit.ScriptModule):
        return None
    return partial(_twin, kind, vars(model))


def _twin(kind: type[nn.Module], attributes: dict[str, object]) -> nn.Module:
    twin = object.__new__(kind)
    object.__setattr__(twin, "__dict__", attributes)
    return twin
