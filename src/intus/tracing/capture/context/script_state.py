"""Restore the state of a ScriptModule: its code runs outside Python, so that no write is seen."""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from torch import Tensor


class ScriptState:
    """Copies of the buffers and attributes of one ScriptModule, without those of its submodules.

    Args:
        module: The module.
    """

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        self._module: Any = module._c
        parameters = {name for name, _ in module.named_parameters(recurse=False)}
        names = {name for name, _ in module.named_buffers(recurse=False)}
        names |= set(getattr(module, "_concrete_type", module._c).get_attributes())
        self._values: dict[str, Any] = {}
        self._copies: dict[str, tuple[Tensor, int]] = {}
        for name in names - parameters:
            value = self._module.getattr(name)
            self._values[name] = value if isinstance(value, Tensor) else copy(value)
            if isinstance(value, Tensor):
                self._copies[name] = value.detach().clone(), value._version

    def restore(self) -> None:
        """Restore the attributes, and the values of those that are tensors."""
        for name, value in self._values.items():
            if name in self._copies:
                before, version = self._copies[name]
                with torch.no_grad():
                    value.data.copy_(before)  # always: batch norm does not count its writes
                torch._C._autograd._unsafe_set_version_counter((value,), (version,))
            if self._module.getattr(name) is not value:
                self._module.setattr(name, value)
