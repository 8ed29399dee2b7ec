"""Find what the caller means by an address or a selection, in a graph: one resolver for every verb.

``trace[...]``, ``find``, ``save=``, ``rerun``, ``inspect(units=)`` and ``probe(which=)`` all ask here, so an
address means the same to each, or is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .address import Address, Units, is_pattern, matches, split_units, tokens
from .errors import AddressError, InputError, did_you_mean
from .graph import OP, Graph

#: What a caller may write to select operations: an address or pattern (label, short label, pass, module
#: address, name of an input or output, operation type, module class), an int (the ordinal of an operation,
#: negative from the end), a slice of these, a predicate on an op, or a list of selections.
Selection = str | int | slice | Address | Callable[[Any], Any] | Iterable[Any]


class Match(NamedTuple):
    """What an address means in a graph.

    Attributes:
        names: The names of the graph that it means: itself, or the labels of a type, the modules of a class,
            the labels and addresses that match a pattern.
        rows: Rows of ``graph.ops``, sorted; empty where the address names parameters.
        params: Indices into ``graph.params``; empty where it names rows.
        units: The units it selects of each of them; empty for whole values.
    """

    names: list[str]
    rows: list[int]
    params: list[int]
    units: tuple[Units, ...]


def match(graph: Graph, text: str) -> Match:
    """Find what an address means.

    A name means, in this order: a label, module address, or pass; an input or output as the model's code
    calls it; an operation type; a module class; a parameter; and if it has wildcards, every label and
    module address (else parameter) that the pattern matches, the model itself excluded.

    Args:
        graph: The graph to look in.
        text: An address or pattern, with or without units.

    Raises:
        AddressError: If nothing matches; the message suggests the nearest names.
        InputError: If the text does not follow the grammar of ``core.address``.
    """
    rows = graph.rows(text)
    if rows is not None:
        return Match([text], sorted(set(rows)), [], ())
    place, units = split_units(text)
    pattern = is_pattern(place)
    if not pattern:
        place = Address.parse(place).place
    names = [place] if graph.rows(place) is not None else _names_of_kind(graph, place)
    params = param_addresses(graph)
    if not names and place in params:
        return Match([place], [], [params[place]], units)
    if not names and pattern:
        names = [name for name in graph.names() if name and name[0] != ":" and matches(place, name)]
        found = [name for name in params if matches(place, name)]
        if not names and found:
            return Match(found, [], sorted({params[name] for name in found}), units)
    if names:
        rows = sorted({row for name in names for row in graph.rows(name) or ()})
        return Match(names, rows, [], units)
    if pattern and (wider := _wider(graph, place)):
        raise AddressError(f"{graph.model} has no {place!r}: '*' stays within a name. Write {wider!r}.")
    known = [*speakable(graph), *graph.types, *(module.type for module in graph.modules), *params]
    raise AddressError(f"{graph.model} has no {place!r}. {did_you_mean(place, known)}")


def resolve(graph: Graph, key: str | int | Address, *, ordinals: Sequence[int] | None = None) -> list[int]:
    """Return the rows that a key of a trace means: one name, or an ordinal.

    Args:
        graph: The graph to look in.
        key: A label, pass, module address, the name of an input or output, or an ordinal.
        ordinals: The rows that integers count over; all operations by default.

    Raises:
        AddressError: If there is no such name (with the nearest ones) or ordinal (with the valid range), or
            the key means several ops, parameters, or units of an op.
    """
    key = str(key) if isinstance(key, Address) else key
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise InputError(f"An address is a string or an int, got {key!r} of type {type(key).__name__}.")
    if isinstance(key, int):
        rows = graph.rows_of(OP) if ordinals is None else ordinals
        if not -len(rows) <= key < len(rows):
            raise AddressError(
                f"[{key}] is out of range: there are {len(rows)} operations, so write {-len(rows)} to "
                f"{len(rows) - 1}."
            )
        return [rows[key]]
    found = graph.rows(key)
    if found is None:
        meant = whole_rows(graph, key)
        if len(meant) == 1:
            return meant
        found = None if is_pattern(key) else graph.rows(Address.parse(key).place)
        if found is None:
            labels = [repr(graph.label(row)) for row in meant]
            more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
            raise AddressError(
                f"{key!r} means {len(labels)} ops, not one: {', '.join(labels[:3])}{more}. "
                f"Write find({key!r})."
            )
    return found


def select(graph: Graph, selection: Selection, *, handle: Callable[[int], Any] | None = None) -> list[int]:
    """Return the rows that a selection means, sorted and each once.

    Args:
        graph: The graph to look in.
        selection: See ``Selection``; ``"all"`` and ``"none"`` mean what they say.
        handle: Makes, from a row, what predicates are called with; the row itself by default.

    Raises:
        AddressError: If a name or pattern matches nothing, or names parameters or units.
        InputError: If it is no selection at all.
    """
    return sorted(set(_select(graph, selection, handle or (lambda row: row))))


def whole_rows(graph: Graph, text: str) -> list[int]:
    """Return the rows that an address means, where only whole values of operations will do.

    Raises:
        AddressError: If it means nothing, or parameters, or units of a value.
    """
    found = match(graph, text)
    if found.params:
        raise AddressError(
            f"{text!r} is a parameter, not an operation's output. trace.value({text!r}) returns it, "
            "trace.params lists all, and rerun can change it."
        )
    if found.units:
        raise units_refused(text)
    return found.rows


def units_refused(text: str) -> AddressError:
    """Return the error for an address with units where only whole operations can be selected."""
    return AddressError(
        f"{text!r} names units, and only whole operations can be selected here. Write "
        f"{split_units(text)[0]!r}; trace.value, rerun and inspect take units."
    )


def speakable(graph: Graph) -> list[str]:
    """Return the names worth suggesting: without pass numbers unless nothing else exists, without the
    root.
    """
    names = [name for name in graph.names() if name and ":" not in name] or list(graph.names())
    return [*graph.ends, *names]


def param_addresses(graph: Graph) -> dict[str, int]:
    """Return the index of every parameter by address; a tied one answers to each module that holds it."""
    tied = {
        f"{module.address}.{graph.params[number].address.rpartition('.')[2]}".lstrip("."): number
        for module in graph.modules
        for number in module.params
    }
    return tied | {param.address: number for number, param in enumerate(graph.params)}


def _select(graph: Graph, selection: Selection, handle: Callable[[int], Any]) -> list[int]:
    if isinstance(selection, Address):
        return whole_rows(graph, str(selection))
    if isinstance(selection, str):
        if selection == "none":
            return []
        return list(range(len(graph.ops))) if selection == "all" else whole_rows(graph, selection)
    if isinstance(selection, slice):
        return graph.rows_of(OP)[selection]
    if isinstance(selection, int):
        return resolve(graph, selection)
    if callable(selection):
        return [row for row in range(len(graph.ops)) if selection(handle(row))]
    if isinstance(selection, Iterable):
        return [row for part in selection for row in _select(graph, part, handle)]
    raise InputError(
        f"A selection is a name, an ordinal, a predicate or a list of these, got {selection!r} of type "
        f"{type(selection).__name__}."
    )


def _wider(graph: Graph, pattern: str) -> str | None:
    """The pattern with ``**`` for ``*``, if it then matches something."""
    wider = "".join("**" if token == "*" else token for token in tokens(pattern))
    names = (*graph.names(), *param_addresses(graph))
    return wider if any(name and matches(wider, name) for name in names) else None


def _names_of_kind(graph: Graph, name: str) -> list[str]:
    """Labels of an operation type, or else the modules of a class that ran."""
    if name and name in graph.types:
        rows = np.flatnonzero(graph.ops.type == graph.types.index(name)).tolist()
        return [graph.label(row) for row in rows]
    found = [module.address for module in graph.modules if module.type == name]
    return [address for address in found if graph.rows(address)]
