"""What stood before a model ran: the addresses of its modules, parameters and buffers, and the memory that
came from outside, so that what a pass writes there can be put back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn import Module, Parameter

from ..core.address import Address
from .attributes import Attributes
from .memory import memory_of


class Places:
    """Names for what belongs to a model; modules met on the way are named when they are met.

    ``modules`` and ``names`` run side by side, ``numbers`` has a place by a module's id; ``sources`` tells
    of a tensor's id whether it is a parameter or a buffer, and which.
    """

    def __init__(self) -> None:
        self.modules: list[Any] = []  # held, so that their ids stay their own
        self.names: list[str] = []
        self.params: list[tuple[str, Parameter]] = []
        self.buffers: list[tuple[str, Tensor]] = []
        self.sources: dict[int, tuple[str, int]] = {}
        self.numbers: dict[int, int] = {}
        self._outside: set[int] = set()
        self.watch = False  # whether what the pass changes is to be put back
        self._attributes = Attributes()
        self._undo: dict[Any, tuple[Tensor, Tensor, Tensor]] = {}  # by place: it, as it lay, its values
        self._versions: list[_unsafe_preserve_version_counter] = []  # as they were before each first write

    def learn(self, model: Module, prefix: str = "") -> None:
        """Name a model's modules, parameters and buffers, those already named aside."""
        for name, module in model.named_modules(prefix=prefix):
            if id(module) in self.numbers:
                continue
            self.numbers[id(module)] = len(self.modules)
            self.modules.append(module)
            self.names.append(str(Address(name)))
            if self.watch:
                self._attributes.remember(module)
            own = f"{self.names[-1]}." if name else ""
            self._learn_tensors("param", own, module._parameters, self.params)
            self._learn_tensors("buffer", own, module._buffers, self.buffers)

    def _learn_tensors(self, kind: str, prefix: str, tensors: Any, found: list[tuple[str, Any]]) -> None:
        for key, t in tensors.items():
            if t is not None and id(t) not in self.sources:
                self.sources[id(t)] = (kind, len(found))
                found.append((prefix + (key if key.isidentifier() else str(Address(key))), t))
                self.outside(t)

    def add(self, module: Any, parent: int) -> int:
        """Number a module that nobody named: it is called by its class under the module ``parent``."""
        above = Address.parse(self.names[parent]).name if parent >= 0 else ""
        own = type(module).__name__
        plain = f"{above}.{own}" if above else own
        name, count = plain, 1
        while str(Address(name)) in self.names:
            count += 1
            name = f"{plain}_{count}"
        self.learn(module, name)
        return self.numbers[id(module)]

    # -- what is to be as it was ---------------------------------------------------------------------

    def watch_over(self) -> None:
        """From now on what the pass changes is to be put back."""
        self.watch = True
        for module in self.modules:
            self._attributes.remember(module)

    def outside(self, t: Tensor) -> None:
        """Remember that the memory of ``t`` was there before the pass."""
        storage = memory_of(t)
        if storage is not None:
            self._outside.add(storage)

    def before_writing(self, t: Tensor) -> None:
        """Copy what stands where ``t`` is about to be written, if it came from outside."""
        storage = memory_of(t)
        if storage not in self._outside or not self.watch:
            return
        place = (storage, t.storage_offset(), t.shape, t.stride(), t.dtype)
        if place not in self._undo:
            self._undo[place] = (t, t.data, t.detach().clone())
            if not t.is_inference():
                self._versions.append(_unsafe_preserve_version_counter(t))

    def written(self) -> list[Tensor]:
        """Everything from outside that the pass wrote to."""
        return [t for _, t, _ in self._undo.values()]

    def put_back(self) -> None:
        """Undo what the pass wrote outside, the last first; ``.data`` keeps it from autograd's sight. The
        counts of writes are put back too: a backward pass yet to come would refuse what looks changed. Last
        come the modules' attributes."""
        for itself, t, before in reversed(list(self._undo.values())):
            with torch.no_grad(), torch.inference_mode(t.is_inference()):
                t.copy_(before)
                if _lies_elsewhere(itself, t):  # it was resized, or its ``data`` was set
                    itself.data = t
        while self._versions:
            self._versions.pop().__exit__()
        self._undo.clear()
        self._attributes.put_back()


def _lies_elsewhere(one: Tensor, other: Tensor) -> bool:
    return memory_of(one) != memory_of(other) or (
        (one.storage_offset(), one.shape, one.stride())
        != (other.storage_offset(), other.shape, other.stride())
    )
