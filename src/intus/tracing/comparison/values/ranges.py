"""Find what numbers a tensor of a pass can have, whatever the inputs are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ....core.graph import INPUT, OP
from ....core.vocabularies import common_type
from ....core.vocabularies.families import (
    AVERAGE_POOLS,
    DRAWING,
    DROPOUTS,
    LIKE_FIRST,
    MAX_POOLS,
    MOVES,
    NOT_NEGATIVE,
)
from .elements import plain
from .settings import arguments, bounds, number_of

if TYPE_CHECKING:
    from ...results.trace import Trace

_ANY = (-math.inf, math.inf)
_POSITIVE = (0.0, math.inf)
#: The range of what operations return, by the names of PyTorch or ONNX.
_RANGES = {
    **dict.fromkeys(NOT_NEGATIVE, _POSITIVE),
    **dict.fromkeys(("sigmoid", "softmax", "softmin", "hardsigmoid", "hard_sigmoid"), (0.0, 1.0)),
    **dict.fromkeys(("tanh", "sin", "cos", "erf", "sign", "softsign", "cosine_similarity"), (-1.0, 1.0)),
    **dict.fromkeys(("log_softmax", "logsigmoid", "log_sigmoid"), (-math.inf, 0.0)),
}
#: Operations that return no number outside of the range of what they are given.
_WITHIN = MOVES.difference(LIKE_FIRST, DRAWING).union(DROPOUTS, MAX_POOLS, AVERAGE_POOLS) | {
    *("mean", "reduce_mean", "nanmean", "max", "min", "amax", "amin", "reduce_max", "reduce_min"),
    *("cummax", "cummin", "sort", "topk", "maximum", "minimum", "where", "masked_fill"),
    *("max_pool", "average_pool", "global_average_pool", "global_max_pool"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
    *("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "median", "lerp"),
}
#: Operations that make no negative number of numbers that are not negative.
_GROWING = frozenset(
    ("add", "mul", "multiply", "div", "divide", "true_divide", "sum", "reduce_sum", "cumsum", "matmul", "pow")
)
#: Operations whose numbers are theirs alone, the same in every pass.
_FIXED = frozenset({"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"})
#: Operations that write a number of their own.
_FILLING = frozenset(
    (
        "pad",
        "where",
        "masked_fill",
        "fill",
        "scatter",
        "index_fill",
        "index_put",
        "constant_of_shape",
        "lerp",
        "setitem",
    )
)


class Ranges:
    """The ranges of the tensors of a pass.

    Args:
        trace: The trace of the pass.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace, self.graph = trace, trace.graph
        self._found: list[tuple[float, float]] = []  # of the first rows
        self._free: set[int] = set()
        for row, kind in enumerate(trace.graph.ops.kind.tolist()):
            is_float = "float" in trace.graph.dtype_of(row)
            if kind == INPUT:
                is_free = is_float
            else:
                parents = trace.graph.parents(row)
                has_weights = bool(trace.graph.row_params.get(row)) and bool(parents)
                is_free = kind == OP and is_float and (has_weights or not self._free.isdisjoint(parents))
            if is_free:
                self._free.add(row)

    def is_free(self, row: int) -> bool:
        """Return whether a tensor may have any floats, unlike what is computed of masks or indices alone."""
        return row in self._free

    def of(self, row: int) -> tuple[float, float]:
        """Return the smallest and the largest number that a row may have."""
        while len(self._found) <= row:  # parents come first, and a deep model needs no recursion
            self._found.append(self._range(len(self._found)))
        return self._found[row]

    def _range(self, row: int) -> tuple[float, float]:
        kind, parents = common_type(self.graph, row), self.graph.parents(row)
        if self.graph.ops.kind[row] == INPUT:
            return _ANY
        if not parents or row not in self._free or kind in _FIXED:
            return self._of_values(row)
        given = [self.of(parent) for parent in parents]
        limits = bounds(self.graph, row)
        if limits is not None:
            return max(limits[0], given[0][0]), min(limits[1], given[0][1])
        if kind in _RANGES:
            return _RANGES[kind]
        numbers = [number_of(text) for text in arguments(self.graph.setting(row)).values()]
        constants = [number for number in numbers if number is not None]
        if self.graph.row_params.get(row):
            return _ANY
        if kind in _WITHIN:
            given += [(number, number) for number in (0.0, *constants)] if kind in _FILLING else []
            return min(low for low, _ in given), max(high for _, high in given)
        is_even = kind == "pow" and len(constants) == 1 and constants[0] % 2 == 0
        is_square = kind in ("mul", "multiply") and self._is_square(row)
        if is_even or is_square:
            return _POSITIVE
        if kind in _GROWING and min([low for low, _ in given] + constants) >= 0:
            return _POSITIVE
        return _ANY

    def _is_square(self, row: int) -> bool:
        """Return whether an operation multiplies a tensor with itself."""
        given = [parent for _, parent in self.graph.parents_by_argument(row)]
        return len(given) == 2 and given[0] == given[1]

    def _of_values(self, row: int) -> tuple[float, float]:
        """Return the range of what a pass does not compute from its inputs."""
        value = plain(self._trace.values.get(row))
        if value is None or not value.array.size or value.array.dtype.kind not in "biuf":
            return _ANY
        return float(value.array.min()), float(value.array.max())
