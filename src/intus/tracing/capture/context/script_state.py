"""Restore the state of a ScriptModule: its code runs outside Python, so that no write is seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
from torch import Tensor

from .randomness import common_generators


class ScriptState:
    """Copies of the buffers and attributes of one ScriptModule, without those of its submodules.

    Args:
        module: The module.
    """

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        self._module: Any = module._c
        parameters = {name for name, _ in module.named_parameters(recurse=False)}
        names = {name for name, _ in module.named_buffers(recurse=False)}
        # A frozen module has no ``_concrete_type`` of its own.
        concrete: Any = torch._C.ConcreteModuleType.from_jit_type(self._module._type())
        names |= set(concrete.get_attributes())
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


class ScriptCall:
    """Copies of what a call of a ScriptModule may change, from before the call.

    Args:
        module: The module.

    Attributes:
        may_write: Whether its code may write into memory, or assign attributes.
        wrote_into_arguments: Whether the call did write into its arguments; set after it.
        states: The random generators with their states.
    """

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        self._module = module
        self.may_write = _may_write(module)
        self.wrote_into_arguments = False
        self._states = self._current()
        self.states = tuple((g, g.get_state()) for g in common_generators())

    def _current(self) -> list[ScriptState]:
        return [ScriptState(one) for one in self._module.modules()] if self.may_write else []  # type: ignore[arg-type]

    @contextmanager
    def state(self) -> Iterator[None]:
        """Give the module the state that it had before the call, inside the ``with`` block."""
        now = self._current()
        for state in self._states:
            state.restore()
        try:
            yield
        finally:
            for state in now:
                state.restore()


#: Operators that write into running statistics, which their names do not tell.
_NORMALIZATIONS = ("batch_norm", "instance_norm")


def _may_write(module: torch.jit.ScriptModule) -> bool:
    """Return whether a ScriptModule's code assigns, writes in place, or calls what is not torch's own."""
    try:
        todo = list(module.inlined_graph.nodes())
    except Exception:  # it has no ``forward``, or a method that cannot be inlined
        return True
    while todo:
        node = todo.pop()
        namespace, _, name = node.kind().partition("::")
        if namespace not in ("aten", "prim") or name in ("SetAttr", "CallFunction", "CallMethod", "append"):
            return True
        if name.endswith(("_", *_NORMALIZATIONS)) and not name.endswith("__"):
            return True
        for block in node.blocks():
            todo += list(block.nodes())
    return False
