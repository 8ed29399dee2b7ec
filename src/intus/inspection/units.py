"""Which units: layers by number, name or pattern, and which of their units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from numbers import Integral
from typing import Any

import numpy as np

from ..backends.base import Operation
from ..core.address import Address
from ..core.errors import AddressError, InputError, did_you_mean
from ..core.selection import is_glob


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """A layer's ``address`` (``conv1``, ``conv1:2`` for its second call) and the ``wanted`` units of it."""

    address: str
    wanted: Any = "*"

    def pick(self, count: int) -> np.ndarray:
        """Numbers of the wanted units out of ``count``, ascending as written; raises AddressError."""
        every = np.arange(count)
        if isinstance(self.wanted, str | slice):
            return every if isinstance(self.wanted, str) else every[self.wanted]
        wanted = np.atleast_1d(np.asarray(self.wanted))
        if wanted.dtype == bool:
            if len(wanted) != count:
                raise AddressError(
                    f"The mask for {self.address!r} has {len(wanted)} entries, but there are {count} units."
                )
            return np.asarray(every[wanted])
        for unit in wanted.tolist():
            if not 0 <= unit < count:
                raise AddressError(
                    f"{self.address!r} has no unit {unit}: it has {count}, so write 0 to {count - 1} or '*'."
                )
        return wanted.astype(np.int64)


def resolve(wrote: Any, operations: Sequence[Operation], model: str) -> list[UnitGroup]:
    """What the caller wrote, in one model, in the order written.

    ``(layer, units)`` or just the layer, one or a list. A layer is a number counting the layers with
    parameters from 1, a module's address, or a glob over these; units are ``"*"``, a number, a slice, a list
    or a mask. An address, as text or as an Address, may name its one unit itself: ``"features.6[14]"``.
    Raises AddressError with the nearest names.
    """
    parts = wrote if isinstance(wrote, list) else [wrote]
    if not parts:
        raise InputError("There are no units to inspect: write units=[(1, '*')] for all of the first layer.")
    groups: list[UnitGroup] = []
    for part in parts:
        layer, wanted = _apart(*_pair(part), operations)
        groups += [UnitGroup(address, wanted) for address in _layers(layer, operations, model)]
    return list({(g.address, repr(g.wanted)): g for g in groups}.values())


def _pair(part: Any) -> tuple[Any, Any]:
    if not isinstance(part, tuple):
        return part, "*"
    if len(part) != 2:
        raise InputError(f"Units are written (layer, units), for example (1, '*'), got {part!r}.")
    layer, wanted = part
    if isinstance(wanted, str) and wanted != "*":
        raise InputError(f"The units of layer {layer!r} are '*', numbers, a slice or a mask, got {wanted!r}.")
    kind = "iub" if not isinstance(wanted, str | slice) else ""
    if kind and np.asarray(wanted).dtype.kind not in kind:
        raise InputError(f"The units of layer {layer!r} are '*', numbers, a slice or a mask, got {wanted!r}.")
    return layer, wanted


def _apart(layer: Any, wanted: Any, operations: Sequence[Operation]) -> tuple[Any, Any]:
    """The layer and the wanted units, the unit that an address names taken out of it."""
    if isinstance(layer, Address):
        layer = str(layer)
    if not isinstance(layer, str):
        return layer, wanted
    try:
        address = Address.parse(layer)
    except InputError:
        return layer, wanted
    if address.unit is None or str(Address(address.name)) not in {o.address for o in operations}:
        return layer, wanted
    if not isinstance(wanted, str):
        raise InputError(f"{layer!r} names a unit already, so write {layer!r} alone, without {wanted!r}.")
    return str(Address(address.name, address.call)), [address.unit]


def _layers(layer: Any, operations: Sequence[Operation], model: str) -> list[str]:
    names = [operation.address for operation in operations]
    if isinstance(layer, Integral) and not isinstance(layer, bool):
        return [_numbered(int(layer), parametric(operations), model)]
    if not isinstance(layer, str):
        raise InputError(f"A layer is a number counted from 1 or a module's address, got {layer!r}.")
    if layer in names and layer:
        return [layer]
    try:
        address = Address.parse(layer)
    except InputError:
        address = Address(layer)
    plain = str(Address(address.name))
    if plain in names and plain:
        return [plain if address.call in (None, 1) else f"{plain}:{address.call}"]
    if is_glob(layer):
        pool = parametric(operations) if layer == "*" else [name for name in names if name]
        if found := [name for name in pool if fnmatchcase(name, layer)]:
            return found
    raise AddressError(f"{model} has no layer {layer!r}. {did_you_mean(layer, [n for n in names if n])}")


def parametric(operations: Sequence[Operation]) -> list[str]:
    """Addresses of the layers that have parameters of their own, in the order of the model."""
    return [o.address for o in operations if any(True for _ in o.module.parameters(recurse=False))]


def _numbered(number: int, layers: list[str], model: str) -> str:
    if not layers:
        raise AddressError(
            f"{model} has no layer with parameters to count; name a module instead, such as ('relu', '*')."
        )
    if not 1 <= number <= len(layers):
        raise AddressError(
            f"{model} has no layer {number}: its layers with parameters are 1 to {len(layers)}, "
            f"{', '.join(layers[:6])}{' …' if len(layers) > 6 else ''}."
        )
    return layers[number - 1]
