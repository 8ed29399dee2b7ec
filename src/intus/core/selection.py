"""Resolve addresses and selections in a graph, for every function that accepts them.

``trace[...]``, ``find``, ``save=``, ``rerun``, ``inspect(units=)`` and ``probe(which=)`` all use this module,
so an address has the same meaning everywhere, or is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .address import Address, Units, is_pattern, matches, split_units, tokens
from .errors import AddressError, InputError, did_not_run, did_you_mean
from .graph import BUFFER, OP, OP_KINDS, PARAMETER, Graph

#: The ways to select operations: an address or pattern (label, short label, pass, module address, name of an
#: input or output, operation type, module class), an int (the ordinal of an operation, negative from the
#: end), a slice of ordinals, a predicate on an op, or a list of selections.
Selection = str | int | slice | Address | Callable[[Any], Any] | Iterable[Any]

#: The number of tensors that an error names.
_MOST = 6


class Match(NamedTuple):
    """The meaning of an address in a graph.

    Attributes:
        names: The names of the graph that it matches: itself, the labels of an operation type, the modules of
            a class, or the labels and addresses that match a pattern.
        rows: Rows of ``graph.ops``, sorted; empty if the address names parameters.
        params: Indices into ``graph.params``; empty if the address names rows.
        units: The units selected of each of them; empty for whole values.
    """

    names: list[str]
    rows: list[int]
    params: list[int]
    units: tuple[Units, ...]


def match(graph: Graph, text: str) -> Match:
    """Resolve an address or pattern.

    A name means the first of these that exists: a label, module address or pass; an input or output as the
    model's code names it; an operation type; a module class; a parameter. A pattern means every module that
    it matches, the model itself excluded, or else every label, or else every parameter. Units of a module
    that returns several tensors are those of the first that is no scalar.

    Args:
        graph: The graph to search.
        text: An address or pattern, with or without units.

    Returns:
        The rows or parameters that it means. A pattern or a class means all that a module may have returned.

    Raises:
        AddressError: If nothing matches: the message suggests the nearest names. If it is a module, or units
            of modules, of which it is not known what they return: the message has what they may return.
        InputError: If the text does not follow the grammar of ``core.address``.
    """
    _check_meant(graph, text)
    rows = graph.rows(text)
    if rows is not None:
        check_outputs_known(graph, graph.module_names.get(text, ()))
        return Match([text], sorted(set(rows)), [], ())
    place, units = split_units(text)
    pattern = is_pattern(place)
    if not pattern:
        place = Address.parse(place).place
    names = [place] if graph.rows(place) is not None else _names_of_kind(graph, place)
    check_outputs_known(graph, graph.module_names.get(place, ()))
    params = param_addresses(graph)
    if not names and place in params:
        return Match([place], [], [params[place]], units)
    if not names and pattern:
        names = [name for name in graph.names() if name and name[0] != ":" and matches(place, name)]
        modules = graph.module_names
        names = [name for name in names if name in modules] or names
        matching = [name for name in params if matches(place, name)]
        if not names and matching:
            return Match(matching, [], sorted({params[name] for name in matching}), units)
    if names:
        found = (main_rows(graph, name) if units else graph.rows(name) or () for name in names)
        rows = sorted({row for part in found for row in part})
        return Match(names, rows, [], units)
    idle = _never_called(graph)
    absent = {one for one in idle if one == place or (pattern and matches(place, one))}
    name = "" if pattern else Address.parse(place).name
    check_told(graph, {name, *absent})
    if absent:
        inside = [one for one in graph.facts.get("inside_operations", ()) if _is_named(graph, one, place)]
        if inside:
            raise AddressError(
                f"{inside[0]!r} ran inside of one operation, such as a loop or a branch, which is recorded "
                "as a whole: its outputs are not in the trace."
            )
        raise AddressError(did_not_run(place))
    if name in graph.untold_calls:
        raise AddressError(
            f"{graph.model} has no {place!r}: the file does not tell calls in a row of that module apart. "
            "Without the number, the address means all of them."
        )
    others = {} if pattern else graph.facts.get("second_names", {})
    if others and (own := others.get(str(Address(Address.parse(place).name)))):
        calls = [name for name in graph.module_names if name.rpartition(":")[0] == own]
        raise AddressError(
            f"{graph.model} has no {place!r} of its own: it is another name of the module {own!r}, whose "
            f"calls are {', '.join(map(repr, calls))}. Name one of these."
        )
    if pattern and (wider := _wider(graph, place)):
        raise AddressError(f"{graph.model} has no {place!r}: '*' does not match dots. Write {wider!r}.")
    escaped = str(Address(text))
    if escaped != text and (graph.rows(escaped) is not None or escaped in params):
        raise AddressError(
            f"{graph.model} has no {text!r}. Did you mean {escaped!r}? A backslash escapes ':', '[' and ']' "
            "in a name."
        )
    known = [*_suggestions(graph), *graph.types, *(module.type for module in graph.modules), *params]
    raise AddressError(f"{graph.model} has no {place!r}. {did_you_mean(place, known)}")


def _check_meant(graph: Graph, text: str) -> None:
    """Raise AddressError if a label or type is also the framework's name of something else."""
    others = graph.facts.get("other_names", {})
    if not others or is_pattern(text):
        return
    address = Address.parse(text)
    name = next((one for one in (address.place, str(Address(address.name))) if one in others), None)
    if name is None:
        return
    where = f"{others[name]!r} in this trace" if others[name] else "which is not in this trace"
    meant = graph.rows(name)
    labels = _names_of_kind(graph, name) if meant is None else [graph.label(row) for row in meant]
    raise AddressError(
        f"{name!r} is the name of a tensor or operation of {graph.model}, {where}, and also what "
        f"{', '.join(map(repr, labels[:_MOST]))} can be called here. Write a label in full, or select with a "
        "function, such as find(lambda op: op.type == …)."
    )


def check_told(graph: Graph, addresses: Iterable[str]) -> None:
    """Raise AddressError if one of some modules may have been called, but the file does not state where.

    Args:
        graph: The graph.
        addresses: The addresses of modules, among other names.
    """
    called = set(graph.calls.module.tolist())
    for number, module in enumerate(graph.modules):
        if number not in called and module.address in graph.untold_calls and module.address in addresses:
            rows = sorted({row for uses in graph.state_uses(number) for row in uses})
            raise AddressError(
                f"The output of {module.address!r} is not known, because {graph.model} does not state which "
                f"operations are its own. Its parameters are used in {_listed(graph, rows)}. Write the label "
                "of the tensor that you mean."
            )


def _is_named(graph: Graph, address: str, name: str) -> bool:
    """Return whether a name is a module's address, its class, or a pattern that matches the address."""
    types = {module.type for module in graph.modules if module.address == address}
    return name == address or name in types or (is_pattern(name) and matches(name, address))


def _never_called(graph: Graph) -> set[str]:
    """Return the addresses and classes of the modules that were not called."""
    called = set(graph.calls.module.tolist())
    idle = [module for number, module in enumerate(graph.modules) if number not in called]
    return {name for module in idle for name in (module.address, module.type)}


def main_rows(graph: Graph, name: str) -> list[int]:
    """Return the rows of a name, of each module call only the main output."""
    rows = graph.rows(name) or []
    calls = graph.module_names.get(name)
    return rows if calls is None else [row for call in calls if (row := main_row(graph, call)) >= 0]


def main_row(graph: Graph, call: int) -> int:
    """Return the row of a module call's main output: the first that is not a scalar; -1 if there is none.

    Raises:
        AddressError: If it is not known what the call returned. The message has what it may have returned.
    """
    check_outputs_known(graph, [call])
    rows = graph.call_outputs.get(call, [])
    shaped = [row for row in rows if graph.metas[int(graph.ops.meta[row])].shape]
    return (shaped or rows or [-1])[0]


def check_outputs_known(graph: Graph, calls: Iterable[int]) -> None:
    """Raise AddressError if it is not known what one of some module calls returned.

    Args:
        graph: The graph.
        calls: Rows of ``graph.calls``.
    """
    for call in calls:
        if call in graph.unknown_outputs:
            rows = graph.call_outputs[call]
            raise AddressError(
                f"The output of {graph.call_address(call)!r} is not known, because {graph.model} does not "
                f"state what modules return. What it may have returned: {_listed(graph, rows)}. Write the "
                "label of the tensor that you mean."
            )


def _listed(graph: Graph, rows: Sequence[int]) -> str:
    """Return the labels and shapes of the first of some rows."""
    shown = [f"{graph.label(row)!r} ({_dimensions(graph, row)})" for row in rows[:_MOST]]
    more = f" and {len(rows) - _MOST} more" if len(rows) > _MOST else ""
    return f"{', '.join(shown)}{more}"


def _dimensions(graph: Graph, row: int) -> str:
    shape = graph.metas[int(graph.ops.meta[row])].shape
    return "×".join("?" if length < 0 else str(length) for length in shape) or "scalar"


def resolve(graph: Graph, key: str | int | Address, *, ordinals: Sequence[int] | None = None) -> list[int]:
    """Return the rows of a single name or ordinal.

    Args:
        graph: The graph to search.
        key: A label, pass, module address, the name of an input or output, or an ordinal.
        ordinals: The rows that integers count; all operations by default.

    Returns:
        The rows: one, or one for each pass of a layer or output of a module.

    Raises:
        AddressError: If there is no such name (the message suggests the nearest ones) or ordinal (the message
            has the valid range), if the key means several ops, parameters, or units of an op, or if it is a
            module of which it is not known what it returned (the message has what it may have returned).
        InputError: If the key is neither a string nor an int.
    """
    key = str(key) if isinstance(key, Address) else key
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise InputError(f"An address must be a string or an int, got {key!r} of type {type(key).__name__}.")
    if isinstance(key, int):
        rows = graph.rows_of(OP) if ordinals is None else ordinals
        if not -len(rows) <= key < len(rows):
            raise AddressError(
                f"[{key}] is out of range: there are {len(rows)} operations, so write {-len(rows)} to "
                f"{len(rows) - 1}."
            )
        return [rows[key]]
    _check_meant(graph, key)
    found = graph.rows(key)
    check_outputs_known(graph, graph.module_names.get(key, ())[:1])
    if found is None:
        matching = whole_rows(graph, key)
        if len(matching) == 1:
            return matching
        found = None if is_pattern(key) else graph.rows(Address.parse(key).place)
        if found is None:
            labels = [repr(graph.label(row)) for row in matching]
            more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
            raise AddressError(
                f"{key!r} means {len(labels)} ops, not one: {', '.join(labels[:3])}{more}. "
                f"Write find({key!r})."
            )
    return found


def select(graph: Graph, selection: Selection, *, handle: Callable[[int], Any] | None = None) -> list[int]:
    """Return the rows of a selection, sorted and without duplicates.

    Args:
        graph: The graph to search.
        selection: See ``Selection``. ``"all"`` selects all rows, ``"none"`` no row.
        handle: Converts a row to the argument of predicates; by default they receive the row itself.

    Raises:
        AddressError: If a name or pattern matches nothing, or names parameters or units.
        InputError: If the selection is of another type.
    """
    return sorted(set(_select(graph, selection, handle or (lambda row: row))))


def whole_rows(graph: Graph, text: str) -> list[int]:
    """Return the rows of an address that must name whole values of operations.

    Args:
        graph: The graph to search.
        text: An address or pattern.

    Raises:
        AddressError: If it matches nothing, or names parameters or units.
    """
    found = match(graph, text)
    if found.params:
        raise AddressError(
            f"{text!r} is a parameter, not an operation's output. trace.value({text!r}) returns it, "
            "trace.params lists all, and rerun can change it."
            if len(found.params) == 1
            else f"{text!r} names {len(found.params)} parameters, not an operation's output. trace.params "
            "lists all, and rerun can change them."
        )
    if found.units:
        raise units_refused(text)
    return found.rows


def units_refused(text: str) -> AddressError:
    """Return the error for an address with units if only whole operations can be selected."""
    return AddressError(
        f"{text!r} names units, but only whole operations can be selected here. Write "
        f"{split_units(text)[0]!r}. trace.value, rerun and inspect accept units."
    )


def _suggestions(graph: Graph) -> list[str]:
    """Return the names worth suggesting in an error message.

    The root is excluded, and so are names with a pass number unless there are no others.
    """
    names = [name for name in graph.names() if name and ":" not in name] or list(graph.names())
    return [*graph.ends, *names]


def param_addresses(graph: Graph) -> dict[str, int]:
    """Return the index of every parameter by address.

    A tied parameter has one address for each module that holds it.
    """
    own = {param.address: number for number, param in enumerate(graph.params)}
    if shared := graph.facts.get("shared_params"):  # whatever the attributes of other modules are called
        return {address: own[first] for address, first in shared.items() if first in own} | own
    tied = {
        f"{module.address}.{graph.params[number].address.rpartition('.')[2]}".lstrip("."): number
        for module in graph.modules
        for number in module.params
    }
    return tied | own


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
    """Return the pattern with ``**`` for ``*`` if it then matches something, else None."""
    wider = "".join("**" if token == "*" else token for token in tokens(pattern))
    names = (*graph.names(), *param_addresses(graph))
    return wider if any(name and matches(wider, name) for name in names) else None


def _names_of_kind(graph: Graph, name: str) -> list[str]:
    """Return the labels of an operation type or kind, or else the modules of a class that ran."""
    if name and name in graph.types:
        rows = np.flatnonzero(graph.ops.type == graph.types.index(name)).tolist()
        return [graph.label(row) for row in rows]
    for kind in (BUFFER, PARAMETER):
        if name == OP_KINDS[kind] and (rows := graph.rows_of(kind)):
            return [graph.label(row) for row in rows]
    found = [module.address for module in graph.modules if module.type == name]
    return [address for address in found if graph.rows(address)]
