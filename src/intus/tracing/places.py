"""What stood before a model ran: the addresses of its modules, parameters and buffers, and the memory that
came from outside, so that what a pass writes there can be put back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn import Module, Parameter

from ..core.address import Address


class Places:
    """Names for what belongs to a model; modules met on the way are named when they are met.

    ``modules`` and ``names`` run side by side; ``sources`` tells of a tensor's id whether it is a parameter
    or a buffer, and which.
    """

    def __init__(self) -> None:
        self.modules: list[Any] = []  # held, so that their ids stay their own
        self.names: list[str] = []
        self.params: list[tuple[str, Parameter]] = []
        self.buffers: list[tuple[str, Tensor]] = []
        self.sources: dict[int, tuple[str, int]] = {}
        self._numbers: dict[int, int] = {}
        self._outside: set[int] = set()
        self.watch = False  # whether what is written outside is to be put back
        self._undo: dict[Any, tuple[Tensor, Tensor]] = {}
        self._versions: list[_unsafe_preserve_version_counter] = []  # as they were before each first write

    def learn(self, model: Module, prefix: str = "") -> None:
        """Name a model's modules, parameters and buffers, those already named aside."""
        for name, module in model.named_modules(prefix=prefix):
            if id(module) not in self._numbers:
                self._numbers[id(module)] = len(self.modules)
                self.modules.append(module)
                self.names.append(str(Address(name)))
        for name, param in model.named_parameters(prefix=prefix):
            if id(param) not in self.sources:
                self.sources[id(param)] = ("param", len(self.params))
                self.params.append((str(Address(name)), param))
                self.outside(param)
        for name, buffer in model.named_buffers(prefix=prefix):
            if id(buffer) not in self.sources:
                self.sources[id(buffer)] = ("buffer", len(self.buffers))
                self.buffers.append((str(Address(name)), buffer))
                self.outside(buffer)

    def number(self, module: Any, parent: str) -> int:
        """The number of a module; one nobody named is called by its class under ``parent``."""
        number = self._numbers.get(id(module))
        if number is None:
            above, own = Address.parse(parent).name, type(module).__name__
            plain = f"{above}.{own}" if above else own
            name, count = plain, 1
            while str(Address(name)) in self.names:
                count += 1
                name = f"{plain}_{count}"
            self.learn(module, name)
            number = self._numbers[id(module)]
        return number

    # -- memory --------------------------------------------------------------------------------------

    def outside(self, t: Tensor) -> None:
        """Remember that the memory of ``t`` was there before the pass."""
        storage = _storage(t)
        if storage is not None:
            self._outside.add(storage)

    def before_writing(self, t: Tensor) -> None:
        """Copy what stands where ``t`` is about to be written, if it came from outside."""
        storage = _storage(t)
        if storage not in self._outside or not self.watch:
            return
        place = (storage, t.storage_offset(), t.shape, t.stride(), t.dtype)
        if place not in self._undo:
            self._undo[place] = (t.data, t.detach().clone())
            if not t.is_inference():
                self._versions.append(_unsafe_preserve_version_counter(t))

    def written(self) -> list[Tensor]:
        """Everything from outside that the pass wrote to."""
        return [t for t, _ in self._undo.values()]

    def put_back(self) -> None:
        """Undo what the pass wrote outside, the last first; ``.data`` keeps it from autograd's sight. The
        counts of writes are put back too: a backward pass yet to come would refuse what looks changed."""
        for t, before in reversed(list(self._undo.values())):
            with torch.no_grad(), torch.inference_mode(t.is_inference()):
                t.copy_(before)
        while self._versions:
            self._versions.pop().__exit__()
        self._undo.clear()


def _storage(t: Tensor) -> int | None:
    """The identity of a tensor's memory; None where it has none to speak of (sparse, uninitialised)."""
    try:
        return int(t.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError, ValueError):
        return None
