"""What was there before a pass, and is put back as it was: memory from outside, and what modules hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn import Module

from ..memory import memory_of
from .attributes import Attributes


class StateRestorer:
    """Learns of memory and modules as they are met; what changes after ``watch`` is put back at the end."""

    def __init__(self) -> None:
        self._memories: set[int] = set()
        self._watching = False
        self._attributes = Attributes()
        self._undo: dict[Any, tuple[Tensor, Tensor, Tensor]] = {}  # by place: it, as it lay, its values
        self._leaves: dict[int, Tensor] = {}  # by id: what was written to and had no history
        self._versions: list[_unsafe_preserve_version_counter] = []  # as they were before each first write

    def watch(self, modules: Iterable[Module]) -> None:
        """From now on what the pass changes, in these modules too, is to be put back."""
        self._watching = True
        for module in modules:
            self._attributes.remember(module)

    def add_module(self, module: Module) -> None:
        """A module that the pass has met."""
        if self._watching:
            self._attributes.remember(module)

    def add(self, t: Tensor) -> None:
        """The memory of ``t`` was there before the pass."""
        memory = memory_of(t)
        if memory is not None:
            self._memories.add(memory)

    def before_writing(self, t: Tensor) -> None:
        """Copy what stands where ``t`` is about to be written, if it came from outside."""
        memory = memory_of(t) if self._watching else None
        if memory not in self._memories:
            return
        for one in (t, t if t._base is None else t._base):
            if one.is_leaf:
                self._leaves[id(one)] = one
        place = (memory, t.storage_offset(), t.shape, t.stride(), t.dtype)
        if place not in self._undo:
            self._undo[place] = (t, t.data, t.detach().clone())
            if not t.is_inference():
                self._versions.append(_unsafe_preserve_version_counter(t))

    def written(self) -> list[Tensor]:
        """Everything from outside that the pass wrote to."""
        return [t for _, t, _ in self._undo.values()]

    def put_back(self) -> None:
        """Undo what the pass wrote outside, the last first; ``.data`` keeps it from autograd's sight. The
        counts of writes are put back too: a backward pass yet to come would refuse what looks changed. What
        had no history has none again, such as a buffer that averages activations. Attributes come last."""
        for itself, t, before in reversed(list(self._undo.values())):
            with torch.no_grad(), torch.inference_mode(t.is_inference()):
                t.copy_(before)
                if _lies_elsewhere(itself, t):  # it was resized, or its ``data`` was set
                    itself.data = t
        for t in self._leaves.values():
            if t.grad_fn is not None and not t._is_view():  # of a view, its base
                t.detach_()
        self._leaves.clear()
        while self._versions:
            self._versions.pop().__exit__()
        self._undo.clear()
        self._attributes.put_back()


def _lies_elsewhere(one: Tensor, other: Tensor) -> bool:
    return memory_of(one) != memory_of(other) or (
        (one.storage_offset(), one.shape, one.stride())
        != (other.storage_offset(), other.shape, other.stride())
    )
