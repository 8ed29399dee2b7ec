"""Resolve ``units=`` of ``inspect``: which layers or operations, and which of their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from ..backends.base import Backend, Operation
from ..core.address import Address, UnitRange, Units, is_pattern, of_call, split_units
from ..core.errors import AddressError, CaptureError, InputError, did_not_run, did_you_mean
from ..core.graph import INPUT, OP, Graph
from ..core.selection import main_row, match
from ..core.units import UnitAxes, index, unknown_axis
from .directions import Basis, Dictionary, Directions

#: The note of units that are a random baseline.
RANDOM = "a random baseline, no finding"


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """Units of one call of a layer, or of one operation.

    Attributes:
        address: The module, with its call from the second on: ``conv1``, ``conv1:2``; or the short label of
            an operation that no module returns (``relu_1``), or the name of an input of the model.
        units: Which units: brackets of an address, or a mask or tuple of numbers; None for all.
        axis: The axis that the caller named; None to find it.
        row: The row of the graph that the module returned; -1 if its graph is not known.
        written: What the caller wrote, for messages.
        operation: Whether the address is that of an operation or input, which only a trace can read.
        basis: The directions or the dictionary that the units are computed with; None for the layer's units.
        hypotheses: The names of the hypotheses that these units are scored for; None for all.
        optional: Whether it was not named, but is one of all layers or of a pattern, and may be left out.
    """

    address: str
    units: Units | tuple[int, ...] | tuple[bool, ...] | None
    axis: int | None
    row: int
    written: str
    hypotheses: tuple[str, ...] | None = None
    operation: bool = False
    basis: Basis | None = None
    optional: bool = False

    @property
    def shown(self) -> str:
        """The address in the table: ``layer2``, or ``layer2 (directions)``."""
        return self.address if self.basis is None else f"{self.address} ({self.basis.name})".lstrip()

    @property
    def is_baseline(self) -> bool:
        """True if the units are random, to compare others with."""
        return self.basis is not None and self.basis.random

    def labels(self, columns: Mapping[str, np.ndarray], beside: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """Return the labels that the units are scored for.

        Args:
            columns: The labels, by the name of the hypothesis.
            beside: The names of further hypotheses to keep.

        Raises:
            InputError: If the caller named a hypothesis that does not exist.
        """
        if self.hypotheses is None:
            return dict(columns)
        for name in self.hypotheses:
            if name not in columns:
                raise InputError(f"units names the hypothesis {name!r}. {did_you_mean(name, columns)}")
        chosen = {*self.hypotheses, *beside}
        return {name: column for name, column in columns.items() if name in chosen}

    def compute(self, array: np.ndarray) -> np.ndarray:
        """Return the units of a layer's output: the output itself, or its directions or features.

        Args:
            array: The output, (records, units, …positions).
        """
        if self.basis is None:
            return array
        last = np.moveaxis(array, 1, -1)
        rows = last.reshape(-1, last.shape[-1]).astype(np.float64)
        found = self.basis.features(rows, self.address).astype(np.float32)
        return np.moveaxis(found.reshape(*last.shape[:-1], -1), -1, 1)

    def notes(self, units: np.ndarray) -> np.ndarray:
        """Return a note for each unit: the name of a direction, or that it is a random baseline."""
        if self.basis is None:
            return np.full(len(units), "", dtype=object)
        if self.basis.random:
            return np.full(len(units), RANDOM, dtype=object)
        names = np.array([*self.basis.names, ""], dtype=object)
        return names[units] if self.basis.names else np.full(len(units), "", dtype=object)

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
        if axis is None and axes is not None and axes.is_translated:  # these backends know their layers'
            axis = by_kind
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


def resolve(
    given: Any, graph: Graph, operations: Sequence[Operation], backend: Backend, seed: int = 0
) -> list[UnitGroup]:
    """Resolve what the caller passed as ``units``, in the order written.

    Args:
        given: A pair ``(layer, units)``, a layer, or a list of these; None for all units of all layers with
            parameters. A layer is an address or pattern, which may name its units itself
            (``"features.6[14]"``), or a number that counts the layers with parameters from 1. Units are
            ``"*"``, a number, a slice, a list, a mask, text as in brackets (``"0,4:8@1"``),
            ``Directions`` or a ``Dictionary``, which is followed by its random baseline. A third place names
            the hypotheses that these units are scored for.
        graph: The graph of the model's pass, or of its modules if that is not known.
        operations: The model's operations.
        backend: Their backend.
        seed: The seed of random baselines. Default: 0.

    Returns:
        The groups, each once.

    Raises:
        AddressError: If there is no such layer; the message suggests the nearest.
        CaptureError: If the layer did not run.
        InputError: If it is not of that form.
    """
    numbered, every = [op.address for op in operations if backend.parameters(op)], False
    if given is None:
        if not numbered:
            raise AddressError(_unnumbered(graph.model))
        given = [(address, "*") for address in numbered]
        every = True
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
        bases: list[Basis | None] = [None]
        if isinstance(units, Directions | Dictionary):
            bases, units = [units, units.randomized(seed)], None
        groups += [
            UnitGroup(
                address, units, axis, row, str(part), only, operation, basis, every or is_pattern(layer)
            )
            for address, row, operation in _places(graph, layer, every)
            for basis in bases
        ]
    observed = {op.address for op in operations}
    for group in groups:
        if not group.operation and str(Address(Address.parse(group.address).name)) not in observed:
            raise CaptureError(f"{group.address!r} cannot be observed. {backend.blind_spot}")
    found = {_identity(group): group for group in groups}
    for group in groups:
        other = found[_identity(group)].basis
        if group.basis is not None and other is not group.basis and not group.basis.random:
            raise InputError(
                f"Two sets of units would be called {group.shown!r}. Give one another name, such as "
                f"{type(group.basis).__name__}(…, name='second')."
            )
    return list(found.values())


def _identity(group: UnitGroup) -> Any:
    return group.shown, repr(group.units), group.axis, group.hypotheses


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
    if isinstance(units, Directions | Dictionary) and len(named) == 1 and named[0].which == (UnitRange(),):
        return place, units, named[0].axis
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
    if isinstance(units, Directions | Dictionary):
        return units, None
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


def _places(graph: Graph, layer: str, optional: bool) -> list[tuple[str, int, bool]]:
    """Return what an address means: address, row, and whether it is an operation that no module returns.

    The row is -1 for a module that did not run and may be left out.
    """
    try:
        found = match(graph, layer)
    except AddressError:
        if layer in {module.address for module in graph.modules} and layer not in graph.untold_calls:
            if optional:
                return [(layer, -1, False)]
            sentence = did_not_run(layer, "for the first record")
            raise CaptureError(f"{sentence} Choose a layer that every record passes through.") from None
        raise
    if found.params:
        raise AddressError(
            f"{layer!r} is a parameter, which has no behavior. Name a module or an operation, whose values "
            "depend on the records."
        )
    names = found.names
    if is_pattern(layer):  # it may match labels too
        addresses = {module.address for module in graph.modules}
        names = [name for name in names if name in addresses or _is_call(name, addresses)] or names
    places: dict[tuple[str, int, bool], None] = {}
    for name in names:
        places |= dict.fromkeys(_places_of(graph, name))
    if is_pattern(layer):  # inputs and buffers are meant by name only, and ``*`` alone means modules
        modules = [place for place in places if not place[2]]
        computed = [place for place in places if graph.ops.kind[place[1]] == OP]
        return (modules if set(layer) <= {"*", "."} else computed) or computed or list(places)
    return list(places)


def _places_of(graph: Graph, name: str) -> list[tuple[str, int, bool]]:
    """Return the module calls and operations that a name of the graph means, as ``_places``."""
    place = Address.parse(name)
    address = str(Address(place.name))
    for number, module in enumerate(graph.modules):
        if module.address == address:
            calls = np.flatnonzero(graph.calls.module == number).tolist()
            calls = [call for call in calls if place.call in (None, int(graph.calls.passno[call]))]
            return [(_address(graph, call), main_row(graph, call), False) for call in calls]
    places = []
    for row in graph.rows(name) or ():
        exits = graph.returned_by(row)
        if exits and main_row(graph, exits[0]) == row:
            places.append((_address(graph, exits[0]), row, False))
        else:
            places.append((_label(graph, row), row, True))
    return places


def _label(graph: Graph, row: int) -> str:
    """Return the name of a row: that of an input in the model's code, or its short label.

    It ends with the pass from the second pass on, as the address of a module's call does.
    """
    named = [name for name, rows in graph.ends.items() if rows == [row]]
    if named and graph.ops.kind[row] == INPUT:
        return named[0]
    layer, passno = int(graph.ops.layer[row]), int(graph.ops.passno[row])
    label = of_call(f"{graph.type_of(row)}_{graph.layer_numbers(layer)[0]}", passno)
    return label if row in (graph.rows(label) or ()) else graph.label(row)


def _is_call(name: str, addresses: set[str]) -> bool:
    module, colon, _ = name.rpartition(":")
    return bool(colon) and module in addresses


def _address(graph: Graph, call: int) -> str:
    """Return the address of a module's call: from the second on with its number."""
    return of_call(graph.modules[int(graph.calls.module[call])].address, int(graph.calls.passno[call]))


def _numbered(number: int, layers: list[str], model: str) -> str:
    if not layers:
        raise AddressError(_unnumbered(model))
    if not 1 <= number <= len(layers):
        raise AddressError(
            f"{model} has no layer {number}. Its layers with parameters are {_listed(layers)}."
        )
    return layers[number - 1]


def _listed(layers: list[str]) -> str:
    """Return the numbers and addresses of layers.

    >>> _listed(["fc", "2"])
    "1 ('fc') and 2 ('2')"
    """
    parts = [f"{number} ({layer!r})" for number, layer in enumerate(layers, 1)]
    shown = [*parts[:6], "…", parts[-1]] if len(parts) > 7 else parts
    return " and ".join([part for part in (", ".join(shown[:-1]), shown[-1]) if part])


def _unnumbered(model: str) -> str:
    return f"{model} has no layer with parameters to count. Name a module instead, such as ('relu', '*')."
