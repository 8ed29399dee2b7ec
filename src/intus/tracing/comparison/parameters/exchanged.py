"""Find what differs in one layer and is in another layer of the other pass: weights that were swapped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ....core.graph import BUFFER
from ..judging.layouts import laid_out
from ..judging.sides import Side
from ..values.differences import SAME, difference, rounding
from ..values.elements import Elements, plain, value_of
from .parameters import UsedParameters, nearest

if TYPE_CHECKING:
    from ...results.trace import Trace


def exchanged(a: Trace, row: int, b: Trace, other: int) -> list[str]:
    """Return which values of another layer, or under another name, a layer that differs has, as sentences.

    Where the values of parameters are not known, what the layers return tells.

    Args:
        a: The first trace.
        row: A row of it that differs.
        b: The second trace.
        other: The row of it that corresponds.
    """
    both = UsedParameters(a, _beside(a, row), b, _beside(b, other)).both
    found = values_of_others(a, b, both)
    is_known = all(value_of(a, one) is not None and value_of(b, two) is not None for one, two in both)
    return found if found or is_known else [*_returned(a, row, b, other)]


def values_of_others(a: Trace, b: Trace, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return which parameters or buffers have the values of another of the other pass, as sentences.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The addresses of parameters or buffers that correspond.
    """
    values = [(one, two, value_of(a, one), value_of(b, two)) for one, two in pairs]
    known = [(one, two, x, y) for one, two, x, y in values if x is not None and y is not None]
    apart = [(one, two, x, y) for one, two, x, y in known if not _are_one(x, y)]
    found = [
        f"{two} of b has the values of {third} of a" for one, two, _, y in apart for third in _has(a, one, y)
    ]
    return found or [
        f"{one} of a has the values of {third} of b" for one, two, x, _ in apart for third in _has(b, two, x)
    ]


def _beside(trace: Trace, row: int) -> list[int]:
    """Return the rows of the module call that a row ran in, without those of the calls inside of it."""
    calls = trace.graph.ops.call
    return np.flatnonzero(calls == calls[row]).tolist() if calls[row] >= 0 else [row]


def _are_one(x: Elements, y: Elements) -> bool:
    apart = nearest(x, y)
    return apart is not None and apart.relative <= rounding(x, y) and not apart.lopsided


def _has(trace: Trace, own: str, value: Elements) -> list[str]:
    """Return the address of the only other parameter or buffer with some values, as a list; empty if none.

    A parameter has those of a parameter, and a buffer those of a buffer. Numbers that are all one are those
    of a layer that was not trained, which tell nothing.
    """
    size = value.array.size
    if not size or bool((value.array == value.array.flat[0]).all()):
        return []
    graph = trace.graph
    metas = ((row, graph.metas[int(graph.ops.meta[row])]) for row in graph.rows_of(BUFFER))
    shapes = {graph.state_address(row): meta.shape for row, meta in metas}
    if own not in shapes:
        shapes = {param.address: param.shape for param in graph.params}
    others = (one for one, shape in shapes.items() if one != own and int(np.prod(shape)) == size)
    known = ((address, value_of(trace, address)) for address in others)
    found = [address for address, one in known if one is not None and _are_one(one, value)]
    return found if len(found) == 1 else []


def _returned(a: Trace, row: int, b: Trace, other: int) -> Iterator[str]:
    """Yield which other module of one pass returned what a module of the other returned."""
    for one, at, name, two, begin, last in ((b, other, "b", a, row, "a"), (a, row, "a", b, other, "b")):
        module, third = _layer(one, at), _layer_that_returned(two, begin, one, at)
        if module and third:
            yield f"what {module} returns in {name} is what {third} returns in {last}"
            return


def _layer_that_returned(trace: Trace, without: int, other: Trace, row: int) -> str:
    """Return the module whose result has the value of a row of the other pass; ``""`` if none or several."""
    y = plain(other.values.get(row))
    if y is None or not y.array.size or bool((y.array == y.array.flat[0]).all()):
        return ""
    found = set()
    for at in sorted({*trace.graph.row_exits} - {without}):
        x = plain(trace.values.get(at))
        if x is None or x.array.size != y.array.size:
            continue
        moved = laid_out(Side(trace), at, x, Side(other), row, y)
        if x.array.shape == moved.array.shape and difference(x, moved).relative <= SAME:
            found.add(_layer(trace, at))
    return found.pop() if len(found) == 1 else ""


def _layer(trace: Trace, row: int) -> str:
    """Return the innermost module that returned a row; ``""`` if none did."""
    graph = trace.graph
    calls = graph.row_exits.get(row, ())
    return graph.modules[int(graph.calls.module[calls[0]])].address if calls else ""
