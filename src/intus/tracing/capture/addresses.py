"""Give modules, parameters and buffers their addresses."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.parameter import is_lazy

from ...core.address import Address
from ...core.graph import Param
from .containers import is_wrapped
from .context.state_restorer import StateRestorer
from .memory import distribution, inner_of, memory_of


class Addresses:
    """The addresses of a model's modules, parameters and buffers, and of modules met during the pass.

    Args:
        restorer: Learns about everything that is given an address, since it existed before the pass.

    Attributes:
        modules: The modules, by number. They are kept alive so that their ids are not reused.
        names: The addresses of ``modules``.
        params: Addresses and parameters, by number.
        buffers: Addresses and buffers, by number.
        sources: By a tensor's id: ``"param"`` or ``"buffer"``, and its number.
        owners: The parameters and buffers of wrapper subclasses (``DTensor``), by the id of what is inside.
        numbers: The numbers of ``modules``, by id.
    """

    def __init__(self, restorer: StateRestorer) -> None:
        self.modules: list[Any] = []
        self.names: list[str] = []
        self.params: list[tuple[str, Parameter]] = []
        self.buffers: list[tuple[str, Tensor]] = []
        self.sources: dict[int, tuple[str, int]] = {}
        self.owners: dict[int, Tensor] = {}
        self.numbers: dict[int, int] = {}
        self._memories: dict[int | None, int] | None = None  # see ``param_in``
        self._restorer = restorer

    def add_model(self, model: Module, prefix: str = "", *, is_late: bool = False) -> None:
        """Give addresses to a model's modules, parameters and buffers, except those that already have one.

        Args:
            model: The model.
            prefix: The address of ``model`` itself.
            is_late: Whether it was met in the midst of the pass.
        """
        for name, module in model.named_modules(prefix=prefix):
            if id(module) in self.numbers:
                continue
            address, key = str(Address(name)), id(module)
            self.numbers[key] = len(self.modules)
            self.modules += [module]  # no signal is handled until the address is there as well
            self.names += [address]
            (self._restorer.add_late_module if is_late else self._restorer.add_module)(module)
            own = f"{self.names[-1]}." if name else ""
            self._add_tensors("param", own, module._parameters, self.params)
            self._add_tensors("buffer", own, module._buffers, self.buffers)

    def second_names(self) -> dict[str, str]:
        """Return the address of each module that has several names, by its other names."""
        others: dict[str, str] = {}
        for address, module in zip(self.names, self.modules, strict=True):
            for key, child in module._modules.items():
                name = f"{address}.{key}" if address else key
                own = self.names[self.numbers[id(child)]] if id(child) in self.numbers else name
                if own != name:
                    above = Address.parse(address).name if address else ""
                    name = str(Address(f"{above}.{key}" if above else key))
                    others |= {name: own} if own != name else {}
        return others

    def _add_tensors(self, kind: str, prefix: str, tensors: Any, named: list[tuple[str, Any]]) -> None:
        for key, t in tensors.items():
            if t is not None and id(t) not in self.sources and not is_wrapped(t):
                self.sources[id(t)] = (kind, len(named))
                named.append((prefix + (key if key.isidentifier() else str(Address(key))), t))
                self._restorer.add(t)
                inner = inner_of(t)
                while inner is not None:
                    self.owners[id(inner)] = t
                    inner = inner_of(inner)
                self._memories = None

    def param_in(self, memory: int | None) -> int:
        """Return the number of the parameter in a memory; -1 if there is none, or more than one."""
        if self._memories is None:
            memories = [None if is_lazy(p) else memory_of(p) for _, p in self.params]
            counts = Counter(memories)
            self._memories = {
                memory: number
                for number, memory in enumerate(memories)
                if memory is not None and counts[memory] == 1
            }
        return self._memories.get(memory, -1)

    def add(self, module: Any, parent: int) -> int:
        """Give an address to a module that is not part of the model: its class, below its calling module.

        Args:
            module: The module.
            parent: The number of the module that called it, -1 for none.

        Returns:
            The number of the module.
        """
        above = Address.parse(self.names[parent]).name if parent >= 0 else ""
        own = type(module).__name__
        plain = f"{above}.{own}" if above else own
        name, count = plain, 1
        while str(Address(name)) in self.names:
            count += 1
            name = f"{plain}_{count}"
        self.add_model(module, name, is_late=True)
        return self.numbers[id(module)]


def param_of(name: str, p: Any) -> Param:
    """Return the facts about a parameter or buffer."""
    spread = distribution(p)
    return Param(
        name,
        () if is_lazy(p) else tuple(p.shape),  # it stays uninitialized if the pass failed
        str(p.dtype).removeprefix("torch."),
        0 if is_lazy(p) else (prod(spread[0]) if spread else p.numel()) * p.element_size(),
        bool(p.requires_grad),
        *spread,
    )
