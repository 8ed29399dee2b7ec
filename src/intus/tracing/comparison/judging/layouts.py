"""Bring a value into the layout of the one it is compared with: channels first or last, rows of a matrix."""

from __future__ import annotations

import itertools
import math

import numpy as np

from ....core.graph import INPUT, Graph
from ....core.vocabularies import KINDS, is_translated
from ....core.vocabularies.families import MOVES
from ..values.differences import SAME, difference
from ..values.elements import Elements
from .sides import Side

#: Frameworks whose images have their channels last.
_CHANNELS_LAST = frozenset({"jax", "keras", "tensorflow"})
#: The order of the axes of images with their channels moved, and their pixels transposed.
_TRANSPOSED = (0, 3, 2, 1)
#: The largest number of axes of which all orders are tried.
_MOST_AXES = 4


def layouts_differ(a: Graph, b: Graph) -> bool:
    """Return whether the images of one pass may have their channels last, and those of the other first.

    Of two passes of one framework, the shapes of their inputs tell.
    """
    frameworks = {a.facts.get("framework"), b.facts.get("framework")}
    if len(frameworks) == 2:
        return not frameworks.isdisjoint(_CHANNELS_LAST)
    shapes = (_input_shapes(graph) for graph in (a, b))
    return any(one != other and _is_moved(one, other) for one, other in zip(*shapes, strict=False))


def _input_shapes(graph: Graph) -> list[tuple[int, ...]]:
    return [tuple(graph.metas[int(graph.ops.meta[row])].shape) for row in graph.rows_of(INPUT)]


def _is_moved(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether one of two shapes has as its last axis what is the second of the other."""
    return (len(one) > 2 and (one[0], *one[2:], one[1]) == other) or (other[0], *other[2:], other[1]) == one


def laid_out(a: Side, i: int, x: Elements, b: Side, j: int, y: Elements) -> Elements:
    """Return ``y``, with its channels moved as in another framework if that is nearer to ``x``.

    Inside of a module a framework may give a tensor axes of length 1, for which others broadcast it.

    Args:
        a: The first pass.
        i: A row of it.
        x: Its value.
        b: The second pass.
        j: A row of it.
        y: Its value.
    """
    are_other = layouts_differ(a.graph, b.graph)
    is_one = x.array.size == 1 == y.array.size and is_translated(b.graph)
    if not (are_other or is_one):
        return y
    is_inside = all(side.is_op(row) and row not in side.graph.row_exits for side, row in ((a, i), (b, j)))
    if is_inside and x.array.shape != y.array.shape and x.array.squeeze().shape == y.array.squeeze().shape:
        return y._replace(array=y.array.reshape(x.array.shape))
    if not are_other:
        return y
    if _is_flattened({a.kind(i), b.kind(j)}, x, y):
        return y._replace(array=np.ascontiguousarray(y.array).reshape(x.array.shape))
    if min(x.array.ndim, y.array.ndim) < 3:
        return y
    fitting = (one for one in _with_channels_moved(y) if one.array.shape == x.array.shape)
    return min(fitting, key=lambda one: difference(x, one).relative, default=y)


def layouts_like(a: Graph, x: Elements, b: Graph, y: Elements) -> list[Elements]:
    """Return ``y``, in each layout that another framework may have it in and that has the shape of ``x``.

    Args:
        a: The graph of the first pass.
        x: A value of it.
        b: The graph of the second pass.
        y: A value of it, which need not be that of ``x``.
    """
    may_move = layouts_differ(a, b) and y.array.ndim > 2
    all_layouts = _with_channels_moved(y) if may_move else [y]
    return [one for one in all_layouts if one.array.shape == x.array.shape]


def is_permuted(x: Elements, y: Elements, allowed: float) -> bool:
    """Return whether a value is another one with its axes in another order.

    Args:
        x: The first value.
        y: The second value.
        allowed: The relative difference up to which they are the same.
    """
    rank = x.array.ndim
    if rank != y.array.ndim or rank > _MOST_AXES or sorted(x.array.shape) != sorted(y.array.shape):
        return False
    orders = (y._replace(array=y.array.transpose(axes)) for axes in itertools.permutations(range(rank)))
    return any(difference(x, one).relative <= allowed for one in orders if one.array.shape == x.array.shape)


def _with_channels_moved(y: Elements) -> list[Elements]:
    """Return a value as it is, with its channels last as the first, and with the first as the last."""
    return [y, *(y._replace(array=np.moveaxis(y.array, *axes)) for axes in ((1, -1), (-1, 1)))]


def _is_flattened(kinds: set[str], x: Elements, y: Elements) -> bool:
    """Return whether two products are one but that one side computes it on the rows of a matrix.

    So does Keras, which gives what a dense layer returns its shape afterwards.
    """
    shapes = sorted((x.array.shape, y.array.shape), key=len)
    if {KINDS.get(kind, kind) for kind in kinds} != {"matmul"} or not len(shapes[0]) == 2 < len(shapes[1]):
        return False
    return shapes[0] == (math.prod(shapes[1][:-1]), shapes[1][-1])


def in_shape(a: Side, i: int, x: Elements, b: Side, j: int, y: Elements) -> Elements:
    """Return ``y`` in the shape of ``x``, if another framework or a file computed the same elements.

    Another framework may have the heads of an attention behind its steps, but the pixels of an image
    in no other order. A file may compute a linear layer on the rows of a matrix and give the result its shape
    afterwards, or transpose a sum in place of what is added. That is no difference of operations that
    compute, but what an operation does that only moves elements.

    Args:
        a: The first pass.
        i: A row of it.
        x: Its value.
        b: The second pass.
        j: A row of it.
        y: Its value.
    """
    is_other = x.array.shape != y.array.shape and layouts_differ(a.graph, b.graph)
    if not (b.is_file or is_other) or x.array.size != y.array.size:
        return y
    are_ops = a.is_op(i) and b.is_op(j)
    if not are_ops or (a.graph.type_of(i) in MOVES and b.graph.type_of(j) in MOVES):
        return y
    if x.array.shape == y.array.shape and difference(x, y).relative <= SAME:
        return y
    sizes = [np.abs(one.array).sum(dtype=np.float64) for one in (x, y)]
    if not math.isclose(*sizes, rel_tol=SAME):
        return y
    orders = [y.array]
    if y.array.ndim == x.array.ndim <= _MOST_AXES:
        ways = itertools.permutations(range(y.array.ndim))
        orders += [y.array.transpose(axes) for axes in ways if axes != _TRANSPOSED or b.is_file]
    flat = (one for one in orders if one.shape == x.array.shape or one is y.array)
    moved = (y._replace(array=np.ascontiguousarray(one).reshape(x.array.shape)) for one in flat)
    return next((one for one in moved if difference(x, one).relative <= SAME), y)
