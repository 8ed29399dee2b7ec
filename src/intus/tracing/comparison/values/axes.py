"""Compare the axes along which operations of two frameworks reduce or normalize."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.graph import INPUT
from ....core.vocabularies import common_type
from ....core.vocabularies.families import SOFTMAXES
from ....viewing.repr_text import listed
from .differences import SAME, difference
from .elements import plain
from .settings import arguments, common

if TYPE_CHECKING:
    from ...results.trace import Trace

#: Operations along axes, by the names of PyTorch or ONNX.
_ALONG = (
    SOFTMAXES
    | {"sum", "mean", "prod", "amax", "amin", "max", "min", "all", "any"}
    | {"argmax", "argmin", "cumsum", "cumprod", "cummax", "cummin"}
    | {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"}
)
_NAMES = ("dim", "axis", "axes", "reduction_indices", "dimension")


def different_axes(a: Trace, rows_a: Iterable[int], b: Trace, rows_b: Iterable[int]) -> list[str]:
    """Return the axes that the operations of two frameworks have, as a sentence, if they are others.

    Axes are counted from 0 in what is given to the first of the operations that permute it. Those of images
    whose channels are elsewhere in the other framework are counted where they are in ``a``. If the inputs are
    laid out alike, equal axes of what is transposed are no others: what made it is.

    Args:
        a: The first trace.
        rows_a: The rows of its operations.
        b: The second trace.
        rows_b: The rows of its operations that compute the same.
    """
    one, two = list(_along(a, rows_a)), list(_along(b, rows_b))
    turn = _turn(a, one[0].given, b, two[0].given) if one and two else None
    if turn is None:
        return []
    stated = [{found.axes for found in side} for side in (one, two)]
    two = [found._replace(axes=tuple(sorted(turn[axis] for axis in found.axes))) for found in two]
    axes = [sorted({found.axes for found in side}) for side in (one, two)]
    if axes[0] == axes[1]:
        return []
    if stated[0] == stated[1] and _are_given_the_same(a, b):
        given = a.graph.label(one[0].given), b.graph.label(two[0].given)
        return [f"what {one[0].label} is given is transposed: {given[0]} in a, {given[1]} in b"]
    numbers = [listed([", ".join(map(str, each)) for each in own]) for own in axes]
    labels = [listed([found.label for found in side]) for side in (one, two)]
    return [f"its axes are {numbers[0]} ({labels[0]}) in a, {numbers[1]} ({labels[1]}) in b"]


class _Along(NamedTuple):
    """An operation along axes.

    Attributes:
        label: Its label.
        given: The row of what it is given, before that was permuted.
        axes: The axes of that.
    """

    label: str
    given: int
    axes: tuple[int, ...]


def _along(trace: Trace, rows: Iterable[int]) -> Iterator[_Along]:
    """Yield the operations along axes among some rows, if their axes are known."""
    graph = trace.graph
    for row in rows:
        kind, parents = common_type(graph, row), graph.parents(row)
        if kind not in _ALONG or not parents:
            continue
        given, rank = common(graph, row, arguments(graph.setting(row))), len(_shape(trace, parents[0]))
        text = next((given[name] for name in _NAMES if name in given), "-1" if kind in SOFTMAXES else "None")
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            continue
        numbers = [n for n in (found if isinstance(found, list | tuple) else [found]) if isinstance(n, int)]
        if numbers and all(-rank <= n < rank for n in numbers):
            source, order = _before_permuted(trace, parents[0])
            yield _Along(graph.label(row), source, tuple(sorted(order[n % rank] for n in numbers)))


def _before_permuted(trace: Trace, row: int) -> tuple[int, list[int]]:
    """Return the row of what was permuted, and where it has the axes of the result."""
    graph = trace.graph
    order = list(range(len(_shape(trace, row))))
    while common_type(graph, row) == "permute" and graph.parents(row):
        axes = _permutation(trace, row)
        if sorted(axes) != sorted(order):
            break
        order, row = [axes[n] for n in order], graph.parents(row)[0]
    return row, order


def _permutation(trace: Trace, row: int) -> list[int]:
    """Return the order of axes that an operation makes, which is a setting or a value; empty if unknown."""
    given, parents = arguments(trace.graph.setting(row)), trace.graph.parents(row)
    text = next((given[name] for name in ("permutation", "perm", "axes") if name in given), None)
    if text is not None:
        return [int(n) for n in ast.literal_eval(text)]
    value = plain(trace.values.get(parents[1])) if len(parents) == 2 else None
    return [] if value is None else [int(n) for n in value.array.ravel()]


def _shape(trace: Trace, row: int) -> tuple[int, ...]:
    return tuple(trace.graph.metas[int(trace.graph.ops.meta[row])].shape)


def _are_given_the_same(a: Trace, b: Trace) -> bool:
    """Return whether each input of a pass is one of the other, so that both have the same layout."""
    others = [plain(b.values.get(row)) for row in b.graph.rows_of(INPUT)]
    return all(
        x is not None
        and any(y is not None and x.array.shape == y.array.shape and x.equals(y) for y in others)
        for x in (plain(a.values.get(row)) for row in a.graph.rows_of(INPUT))
    )


def _turn(a: Trace, row: int, b: Trace, other: int) -> list[int] | None:
    """Return where ``a`` has each axis of a tensor of ``b``; None if it is not known."""
    rank = len(_shape(b, other))
    if len(_shape(a, row)) != rank:
        return None
    order = list(range(rank))
    if rank < 3:
        return order
    x, y = plain(a.values.get(row)), plain(b.values.get(other))
    if x is None or y is None:
        return None
    for turn in (order, [0, *order[2:], 1], [0, rank - 1, *order[1:-1]]):
        moved = y.array.transpose(np.argsort(turn))
        if moved.shape == x.array.shape and difference(x, y._replace(array=moved)).relative <= SAME:
            return turn
    return None
