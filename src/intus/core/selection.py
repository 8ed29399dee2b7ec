"""Which places in a network the caller means: one resolver for trace, view, probe and inspect.

A selection is a string (label, short label, pass, module address, what the model's code calls an input or
output, operation type, module class, or a glob over labels and addresses), an int (the ordinal of an
operation, negative from the end), a predicate, or a list of selections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from .errors import AddressError, InputError, did_you_mean
from .graph import OP, Graph

Selection = str | int | slice | Callable[[Any], Any] | Iterable[Any]


def is_glob(text: str) -> bool:
    """Whether a string is a pattern rather than a name."""
    return any(mark in text for mark in "*?")


def resolve(graph: Graph, key: str | int, *, ordinals: Sequence[int] | None = None) -> list[int]:
    """Rows of ``graph.ops`` that one name or ordinal stands for.

    ``ordinals`` are the rows that integers count over, by default all operations.
    Raises AddressError with the nearest names, or the range an ordinal must be in.
    """
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
        raise AddressError(_no_name(key, graph))
    return found


def _no_name(key: str, graph: Graph) -> str:
    """What to write where one name is wanted and ``key`` is none."""
    try:
        labels = [repr(graph.label(row)) for row in select(graph, key)]
    except AddressError:
        return f"{graph.model} has no {key!r}. {did_you_mean(key, speakable(graph))}"
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return f"{key!r} is no name of one op: it means {', '.join(labels[:3])}{more}. Write find({key!r})."


def select(graph: Graph, selection: Selection, *, handle: Callable[[int], Any] | None = None) -> list[int]:
    """Rows of ``graph.ops`` that a selection means, sorted and each once.

    ``"all"`` and ``"none"`` mean what they say. ``handle`` makes what predicates are called with from a
    row. Raises AddressError when a name or pattern matches nothing.
    """
    return sorted(set(_select(graph, selection, handle or (lambda row: row))))


def _select(graph: Graph, selection: Selection, handle: Callable[[int], Any]) -> list[int]:
    if isinstance(selection, str):
        if selection == "none":
            return []
        if selection == "all":
            return list(range(len(graph.ops)))
        return _select_text(graph, selection)
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


def _select_text(graph: Graph, text: str) -> list[int]:
    if (rows := graph.rows(text)) is not None:
        return rows
    if text in graph.types:
        wanted = graph.types.index(text)
        return np.flatnonzero(graph.ops.type == wanted).tolist()
    named = [module.address for module in graph.modules if module.type == text]
    if not named and is_glob(text):
        named = [name for name in graph.names() if fnmatchcase(name, text)]
    rows = [row for name in named for row in graph.rows(name) or ()]
    if rows:
        return rows
    known = [*speakable(graph), *graph.types, *(module.type for module in graph.modules)]
    raise AddressError(f"{graph.model} has no {text!r}. {did_you_mean(text, known)}")


def speakable(graph: Graph) -> list[str]:
    """Names worth suggesting: no pass numbers unless nothing else exists, no empty root."""
    names = [name for name in graph.names() if name and ":" not in name] or list(graph.names())
    return [*graph.ends, *names]
