"""Resolve ``units=`` of ``inspect``: which layers, and which of their units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from ..backends.base import Backend, Operation
from ..core.address import Address, UnitRange, Units, is_pattern, split_units
from ..core.errors import AddressError, CaptureError, InputError, did_not_run
from ..core.graph import Graph
from ..core.selection import Match, main_row, match
from ..core.units import UnitAxes, index, unknown_axis


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """Units of one call of a layer.

    Attributes:
        address: The module, with its call from the second on: ``conv1``, ``conv1:2``.
        units: Which units: brackets of an address, or a mask or tuple of numbers; None for all.
        axis: The axis that the caller named; None to find it.
        row: The row of the graph that the module returned; -1 if its graph is not known.
        written: What the caller wrote, for messages.
        hypotheses: The names of the hypotheses that these units are scored for; None for all.
    """

    address: str
    units: Units | tuple[int, ...] | tuple[bool, ...] | None
    axis: int | None
    row: int
    written: str
    hypotheses: tuple[str, ...] | None = None

    def unit_axis(self, axes: UnitAxes | None, by_kind: int | None, shape: tuple[int, ...]) -> int:
        """Return the axis of the units in an output of this shape.

        Args:
            axes: The unit axes of the model's graph; None if it is not known.
            by_kind: The axis that the backend derives from the kind of the layer; None if it cannot.
            shape: The shape of the output.

        Raises:
            AddressError: If there is no such axis, or it is not known.
        """
        if self.axis is not None:
            if not -len(shape) <= self.axis < len(shape):
                raise AddressError(
                    f"{self.written!r} names axis {self.axis}, but the output has {len(shape)} axes, of "
                    f"shape {shape}."
                )
            return self.axis % len(shape)
        axis = axes.find(self.row) if axes is not None and self.row >= 0 else by_kind
        if axis is None or not 0 <= axis < len(shape):
            raise unknown_axis(self.address, shape)
        return axis

    def pick(self, count: int) -> np.ndarray:
        """Return the numbers of the units out of ``count``, int64, in the order written.

        Raises:
            AddressError: If there is no such unit.
        """
        numbers = np.arange(count)
        if self.units is None:
            return numbers
        if not isinstance(self.units, Units):
            if self.units and isinstance(self.units[0], bool):
                if len(self.units) != count:
                    raise AddressError(
                        f"The mask for {self.address!r} has {len(self.units)} entries, but there are {count} "
                        "units."
                    )
                return np.flatnonzero(self.units)
            brackets = Units(tuple(self.units))
        else:
            brackets = self.units._replace(axis=None)
        return np.atleast_1d(numbers[index((count,), (brackets,), 0, f"{self.address}{brackets}")[0]])


def resolve(given: Any, graph: Graph, operations: Sequence[Operation], backend: Backend) -> list[UnitGroup]:
    """Resolve what the caller passed as ``units``, in the order written.

    Args:
        given: A pair ``(layer, units)``, a layer, or a list of these; None for all units of all layers with
            parameters. A layer is an address or pattern, which may name its units itself
            (``"features.6[14]"``), or a number that counts the layers with parameters from 1. Units are
            ``"*"``, a number, a slice, a list, a mask, or text as in brackets (``"0,4:8@1"``). A third place
            names the hypotheses that these units are scored for.
        graph: The graph of the model's pass, or of its modules if that is not known.
        operations: The model's operations.
        backend: Their backend.

    Returns:
        The groups, each once.

    Raises:
        AddressError: If there is no such layer; the message suggests the nearest.
        CaptureError: If the layer did not run.
        InputError: If it is not of that form.
    """
    numbered = [op.address for op in operations if backend.parameters(op)]
    if given is None:
        if not numbered:
            raise AddressError(_unnumbered(graph.model))
        given = [(address, "*") for address in numbered]
    parts = given if isinstance(given, list) else [given]
    if not parts:
        raise InputError("units is empty. Write units=[(1, '*')] for all units of the first layer.")
    groups: list[UnitGroup] = []
    for part in parts:
        only = None
        if isinstance(part, tuple) and len(part) == 3 and isinstance(part[2], list):
            only, part = tuple(part[2]), part[:2]
        layer, units, axis = _read(part)
        if isinstance(layer, int):
            layer = _numbered(layer, numbered, graph.model)
        calls = _calls(graph, layer)
        groups += [UnitGroup(address, units, axis, row, str(part), only) for address, row in calls]
    unique = {(group.address, repr(group.units), group.axis, group.hypotheses): group for group in groups}
    return list(unique.values())


def _read(part: Any) -> tuple[int | str, Any, int | None]:
    """Return the layer, the units and the axis that a part names."""
    layer, units = part if isinstance(part, tuple) and len(part) == 2 else (part, "*")
    if isinstance(part, tuple) and len(part) != 2:
        raise InputError(
            f"units must be written (layer, units), for example (1, '*'), got {part!r}. A third place is a "
            "list of the names of hypotheses."
        )
    if isinstance(layer, Integral) and not isinstance(layer, bool):
        return int(layer), *_units(layer, units)
    if not isinstance(layer, str | Address):
        raise InputError(f"A layer is an address, or a number counted from 1, got {layer!r}.")
    place, named = split_units(str(layer))
    if not named:
        return place, *_units(layer, units)
    if not (isinstance(units, str) and units == "*"):
        raise InputError(f"{str(layer)!r} names units already. Write it alone, without {units!r}.")
    if len(named) > 1:
        raise InputError(
            f"{str(layer)!r} selects along {len(named)} axes, but inspect takes units along one. Write one "
            "pair of brackets."
        )
    return place, named[0], named[0].axis


def _units(layer: Any, units: Any) -> tuple[Any, int | None]:
    """Return the units in the second place of a pair, and the axis that they name."""
    if isinstance(units, str):
        try:
            found = Units.parse(":" + units[1:] if units[:1] == "*" else units)
        except InputError:
            raise _no_units(layer, units) from None
        return (None if found.which == (UnitRange(),) else found), found.axis
    if isinstance(units, slice):
        return Units((UnitRange(units.start, units.stop, units.step),)), None
    array = np.asarray(units)
    if array.dtype.kind not in "iub" or array.ndim > 1:
        raise _no_units(layer, units)
    return tuple(np.atleast_1d(array).tolist()), None


def _no_units(layer: Any, units: Any) -> InputError:
    return InputError(
        f"The units of layer {layer!r} must be '*', numbers, a slice or a mask, or text such as '0,4:8', got "
        f"{units!r}."
    )


def _calls(graph: Graph, layer: str) -> list[tuple[str, int]]:
    """Return the module calls that an address means, each with the row that it returned."""
    try:
        found = match(graph, layer)
    except AddressError:
        if layer in {module.address for module in graph.modules}:
            sentence = did_not_run(layer, "for the first record")
            raise CaptureError(f"{sentence} Choose a layer that every record passes through.") from None
        raise
    if found.params:
        raise AddressError(f"{layer!r} is a parameter, but inspect reads what modules return. Name a module.")
    names = found.names
    if is_pattern(layer):  # it may match labels too, most of which no module returned
        addresses = {module.address for module in graph.modules}
        names = [name for name in names if name in addresses or _is_call(name, addresses)] or names
    calls: dict[int, None] = {}
    refused = None
    for name in names:
        try:
            calls |= dict.fromkeys(_calls_of(graph, name, layer, found))
        except AddressError as error:
            if not is_pattern(layer):
                raise
            refused = refused or error
    if refused is not None and not calls:
        raise refused
    return [(_address(graph, call), main_row(graph, call)) for call in calls]


def _calls_of(graph: Graph, name: str, layer: str, found: Match) -> list[int]:
    """Return the module calls that a name of the graph means."""
    place = Address.parse(name)
    address = str(Address(place.name))
    for number, module in enumerate(graph.modules):
        if module.address == address:
            calls = np.flatnonzero(graph.calls.module == number).tolist()
            return [call for call in calls if place.call in (None, int(graph.calls.passno[call]))]
    innermost = []
    for row in graph.rows(name) or ():
        exits = graph.row_exits.get(row)
        if not exits:
            inside = graph.call_address(int(graph.ops.call[row])) if graph.ops.call[row] >= 0 else ""
            raise AddressError(
                f"{layer!r} means {graph.label(row)!r}, which no module returns, but inspect reads what "
                f"modules return. It ran in {inside or 'the model itself'!r}."
            )
        main = main_row(graph, exits[0])
        if main != row:
            raise AddressError(
                f"{layer!r} means {graph.label(row)!r}, which is not the first tensor that "
                f"{_address(graph, exits[0]) or 'the model'!r} returns: that is {graph.label(main)!r}. "
                "inspect reads the first. Pass the other one through an Identity, and name that."
            )
        innermost.append(exits[0])
    return innermost


def _is_call(name: str, addresses: set[str]) -> bool:
    module, colon, _ = name.rpartition(":")
    return bool(colon) and module in addresses


def _address(graph: Graph, call: int) -> str:
    """Return the address of a module's call: from the second on with its number."""
    number = int(graph.calls.passno[call])
    address = graph.modules[int(graph.calls.module[call])].address
    return address if number == 1 else f"{address}:{number}"


def _numbered(number: int, layers: list[str], model: str) -> str:
    if not layers:
        raise AddressError(_unnumbered(model))
    if not 1 <= number <= len(layers):
        raise AddressError(
            f"{model} has no layer {number}: its layers with parameters are 1 to {len(layers)}, "
            f"{', '.join(layers[:6])}{' …' if len(layers) > 6 else ''}."
        )
    return layers[number - 1]


def _unnumbered(model: str) -> str:
    return f"{model} has no layer with parameters to count. Name a module instead, such as ('relu', '*')."
