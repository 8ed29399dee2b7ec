"""Find outputs that two passes return in another order, and those that only one of them returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.analysis.alignment import in_order
from ...core.graph import OUTPUT, Graph, end_names
from ...core.vocabularies import common_type
from ...core.vocabularies.families import DROPOUTS, MOVES
from ...viewing.repr_text import listed
from .values.elements import plain

if TYPE_CHECKING:
    from ..results.trace import Trace
    from .judging.pairs import Pair


def counterparts(a: Graph, b: Graph) -> list[int]:
    """Return for each output of ``a`` the place of that of ``b`` which it is to be, from 0; -1 for none.

    Two outputs are to be one if they have one place; or one name, if both passes name all their outputs, and
    alike: the keys of a dict may have another order. Files and runs of a Session have an order as well.

    Args:
        a: The first graph.
        b: The second graph.
    """
    names, others = _keys(a, b)
    if _are_named_alike(names, others):
        return [others.index(name) for name in names]
    return [at if at < len(others) else -1 for at in range(len(names))]


def with_named_outputs(a: Graph, b: Graph, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return pairs of rows in which outputs of one name are paired, if they have other places.

    Args:
        a: The first graph.
        b: The second graph.
        pairs: Pairs of rows; -1 where there is none.
    """
    places, ends = counterparts(a, b), b.rows_of(OUTPUT)
    if places == sorted(places) or -1 in places:
        return pairs
    partner = dict(pairs) | {row: ends[n] for row, n in zip(a.rows_of(OUTPUT), places, strict=True)}
    return in_order([partner[row] for row in range(len(a.ops))], len(b.ops))


def misplaced_outputs(a: Trace, b: Trace, pairs: Sequence[Pair]) -> list[str]:
    """Return which outputs have another place in ``b`` than in ``a``, or are those of one only, as sentences.

    An output is known by the operation that computed it, and by its name if both passes have the name.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows, with what was found.
    """
    names, others = _keys(a.graph, b.graph)
    sentences = []
    for at, place in enumerate(counterparts(a.graph, b.graph)):
        found = _named_place(names[at], names, others)
        if found in (-1, place):
            found = _place(a, at, b, place, pairs)
        if found not in (-1, place):
            words = [str(at + 1), str(found + 1)]
            if _are_named_alike(names, others):
                words = [repr(names[at]), repr(others[found])]
            sentences.append(f"Output {words[0]} of {a.graph.model} is output {words[1]} of {b.graph.model}.")
    if len(names) != len(others):
        sentences.append(f"{_said(a.graph, 'a')}, {_said(b.graph, 'b')}.")
    return sentences


def _place(a: Trace, at: int, b: Trace, expected: int, pairs: Sequence[Pair]) -> int:
    """Return the place in ``b`` of an output of ``a``, from 0; -1 if it is not known or has no effect.

    Args:
        a: The first trace.
        at: The place in ``a``.
        b: The second trace.
        expected: The place where it is to be; -1 for none.
        pairs: The pairs of rows, with what was found.
    """
    end = a.graph.rows_of(OUTPUT)[at]
    partner = {pair.a: pair.b for pair in pairs if pair.a >= 0 and pair.b >= 0 and pair.is_explained}
    computed = [_returned(b.graph, row) for row in b.graph.rows_of(OUTPUT)]
    for row, rows in ((_returned(a.graph, end), computed), (end, b.graph.rows_of(OUTPUT))):
        places = [n for n, other in enumerate(rows) if other == partner.get(row, -1)]
        if places and expected not in places:
            if expected < 0 or not _are_equal(b, rows[places[0]], rows[expected]):
                return places[0]
            # On these inputs a sum and its ReLU may have the same values. They are told apart nevertheless.
            type_ = _type(a.graph, _returned(a.graph, end))
            one, other = (_type(b.graph, computed[n]) for n in (places[0], expected))
            if type_ == one != other and _NOTHING.isdisjoint((one, other)):
                return places[0]
    return -1


def _keys(a: Graph, b: Graph) -> tuple[list[str], list[str]]:
    """Return the names of outputs by which those of two passes are one; ``""`` for each if none counts."""
    names, others = _names(a), _names(b)
    are_ordered = all("format" in one.facts or one.model == "Session" for one in (a, b))
    return ([""] * len(names), [""] * len(others)) if are_ordered else (names, others)


def _names(graph: Graph) -> list[str]:
    """Return the names of the outputs, ``""`` for those that have none."""
    names = end_names(graph.ops.kind.tolist(), graph.facts)
    return [names.get(row, "") for row in graph.rows_of(OUTPUT)]


def _are_named_alike(names: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether all outputs of two passes have names, each its own, and both passes have the same."""
    return "" not in names and len({*names}) == len(names) and sorted(names) == sorted(others)


def _named_place(name: str, names: Sequence[str], others: Sequence[str]) -> int:
    """Return the place of the output of a name in the second pass; -1 if it is not that of one in both."""
    return others.index(name) if name and names.count(name) == others.count(name) == 1 else -1


def _said(graph: Graph, side: str) -> str:
    """Return which outputs a pass has, in words."""
    labels = [graph.label(row) for row in graph.rows_of(OUTPUT)]
    named = [f"{one} ({name})" if name else one for one, name in zip(labels, _names(graph), strict=True)]
    count = f"{len(labels)} output{'' if len(labels) == 1 else 's'}"
    return f"{graph.model} ({side}) has {count}{f' ({listed(named)})' if named else ''}"


def _returned(graph: Graph, end: int) -> int:
    """Return the row whose value is an output."""
    return next(iter(graph.parents(end)), -2)


def _are_equal(trace: Trace, row: int, other: int) -> bool:
    """Return whether two rows have the same value."""
    one, two = (plain(trace.values.get(n)) for n in (row, other))
    return one is not None and two is not None and one.equals(two)


def _type(graph: Graph, row: int) -> str:
    """Return the common name of the type of a row; ``""`` if it is unknown."""
    return common_type(graph, row)


#: Types of operations that may return what they are given.
_NOTHING = MOVES | DROPOUTS | {""}
