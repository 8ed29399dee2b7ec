"""The addresses of what belongs to a model: its modules, parameters and buffers."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.parameter import is_lazy

from ...core.address import Address
from ...core.graph import Param
from .context.state_restorer import StateRestorer


class Addresses:
    """Names for what belongs to a model; modules met on the way are named when they are met.

    ``modules`` and ``names`` run side by side, ``numbers`` has a place by a module's id; ``sources`` tells
    of a tensor's id whether it is a parameter or a buffer, and which. All that is named is ``outside``.
    """

    def __init__(self, restorer: StateRestorer) -> None:
        self.modules: list[Any] = []  # held, so that their ids stay their own
        self.names: list[str] = []
        self.params: list[tuple[str, Parameter]] = []
        self.buffers: list[tuple[str, Tensor]] = []
        self.sources: dict[int, tuple[str, int]] = {}
        self.numbers: dict[int, int] = {}
        self._restorer = restorer

    def learn(self, model: Module, prefix: str = "") -> None:
        """Name a model's modules, parameters and buffers, those already named aside."""
        for name, module in model.named_modules(prefix=prefix):
            if id(module) in self.numbers:
                continue
            self.numbers[id(module)] = len(self.modules)
            self.modules.append(module)
            self.names.append(str(Address(name)))
            self._restorer.add_module(module)
            own = f"{self.names[-1]}." if name else ""
            self._learn_tensors("param", own, module._parameters, self.params)
            self._learn_tensors("buffer", own, module._buffers, self.buffers)

    def _learn_tensors(self, kind: str, prefix: str, tensors: Any, found: list[tuple[str, Any]]) -> None:
        for key, t in tensors.items():
            if t is not None and id(t) not in self.sources:
                self.sources[id(t)] = (kind, len(found))
                found.append((prefix + (key if key.isidentifier() else str(Address(key))), t))
                self._restorer.add(t)

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


def param_of(name: str, p: Any) -> Param:
    """What is known of a parameter."""
    return Param(
        name,
        () if is_lazy(p) else tuple(p.shape),  # a pass that failed may leave it as it was
        str(p.dtype).removeprefix("torch."),
        0 if is_lazy(p) else p.numel() * p.element_size(),
        bool(p.requires_grad),
    )
