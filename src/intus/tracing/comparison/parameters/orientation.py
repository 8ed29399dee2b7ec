"""Tell whether two operations take a matrix in the same order of its axes, or one takes it transposed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..values.elements import plain, value_of
from ..values.settings import arguments

if TYPE_CHECKING:
    from ...results.trace import Trace

#: Frameworks and formats whose operations are known here.
_KNOWN = frozenset({"torch", "torch.export", "ONNX"})
#: The axis of a matrix that is summed over (or looked up), by the argument that the matrix is.
_SUMMED = {
    "linear": {1: 1},
    "matmul": {0: 1, 1: 0},
    "mm": {0: 1, 1: 0},
    "addmm": {1: 1, 2: 0},
    "gemm": {0: 1, 1: 0},
    "embedding": {1: 0},
    "gather": {0: 0},
    "multi_head_attention_forward": {4: 1, 9: 1},
}
#: The names of arguments, where they are given by name.
_NAMES = {"input": 0, "weight": 1, "other": 1, "mat1": 1, "mat2": 2}


def is_turned(a: Trace, address: str, b: Trace, other: str) -> bool | None:
    """Return whether a matrix of ``b`` has to be the transpose of the matrix of ``a`` to compute the same.

    Args:
        a: The first trace.
        address: The address of a parameter in it.
        b: The second trace.
        other: The address of the parameter in it that corresponds.

    Returns:
        None if that is not known: of other operations, or of a matrix that is used both ways.
    """
    axes, others = (set(_axes(trace, name)) for trace, name in ((a, address), (b, other)))
    if not axes or not others:
        return None
    alike, turned = others <= axes, {1 - axis for axis in others} <= axes
    return None if alike == turned else turned


def _axes(trace: Trace, address: str) -> Iterator[int]:
    """Yield the axes over which operations sum a parameter, as far as they are known."""
    graph = trace.graph
    if graph.facts.get("framework") not in _KNOWN:
        return
    number = next((n for n, param in enumerate(graph.params) if param.address == address), None)
    for row, numbers in graph.row_params.items():
        if number not in numbers:
            continue
        parents = set(_arguments(trace, row))
        kind = graph.type_of(row)
        places = [place for place in _SUMMED.get(kind, {}) if place not in parents]
        matrices = [n for n in numbers if len(graph.params[n].shape) == 2]
        if places and (len(matrices) == 1 == len(places) or kind == "multi_head_attention_forward"):
            yield from _axis(trace, row, places[0])
        elif not parents and len(numbers) == 1:  # a transposition, or a copy, of the matrix alone
            yield from _axes_of_copy(trace, row, address)


def _axes_of_copy(trace: Trace, row: int, address: str) -> Iterator[int]:
    """Yield the axes over which operations sum what another made of a matrix: itself, or its transpose."""
    value = trace.values.get(row)
    copy, own = None if value is None else plain(value), value_of(trace, address)
    if copy is None or own is None:
        return
    same, turned = (np.array_equal(copy.array, one) for one in (own.array, own.array.T))
    if same == turned:
        return
    for child in trace.graph.children(row):
        for place, parent in _arguments(trace, child).items():
            if parent == row:
                yield from (1 - axis if turned else axis for axis in _axis(trace, child, place))


def _axis(trace: Trace, row: int, place: int) -> Iterator[int]:
    """Yield the axis over which an operation sums the matrix that it takes as an argument, if it is known."""
    kind, setting = trace.graph.type_of(row), trace.graph.setting(row)
    axis = _SUMMED.get(kind, {}).get(place)
    if axis is None or (kind == "gather" and "axis=0" not in setting):
        return
    is_flipped = kind == "gemm" and arguments(setting).get(f"trans{'AB'[place]}", "0") != "0"
    yield 1 - axis if is_flipped else axis


def _arguments(trace: Trace, row: int) -> dict[int, int]:
    """Return the rows that an operation takes, by the place of the argument; -1 for an unknown name."""
    given = trace.graph.parents_by_argument(row)
    return {int(name) if name.isdigit() else _NAMES.get(name, -1): parent for name, parent in given}
