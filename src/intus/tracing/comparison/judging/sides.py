"""Look at one of two passes that are judged: its values, the state that its operations use, its calls."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ....core.graph import OP
from ....core.vocabularies import common_type
from ....core.vocabularies.families import (
    COMPARISONS,
    DROPOUTS,
    MAX_POOLS,
    MOVES,
    NORMS,
    OF_BOUNDS,
    ROUNDING,
    SIGNS,
    SOFTMAXES,
)
from ...validation.uninitialized import UNINITIALIZED
from ..pairing.regions import of_inputs
from ..values.differences import SAME, are_same, difference, rounding, same_elements
from ..values.elements import Elements, plain, value_of

if TYPE_CHECKING:
    from ...results.trace import Trace
    from .crossing import Calls

#: Operations that return the same for many inputs, by the names of PyTorch or ONNX: they hide differences.
#: Any other may make up for one (``x * 2 / 2``), or is not known to hide it.
HIDING = NORMS.union(SOFTMAXES, OF_BOUNDS, COMPARISONS, ROUNDING, SIGNS, MAX_POOLS) | {
    *("skip_layer_normalization", "normalize", "local_response_norm", "relu", "relu6", "threshold"),
    *("hardsigmoid", "hard_sigmoid", "max_pool", "amax", "amin", "reduce_max", "reduce_min"),
    *("argmax", "argmin", "topk", "sort", "argsort"),
}


class Side:
    """One of two passes that are judged.

    Attributes:
        trace: Its trace.
        graph: Its graph.
        calls: Its calls; None if they cannot be run again, as only those of PyTorch can.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace, self.graph = trace, trace.graph
        self.calls = _calls_of(trace)
        is_torch = trace.graph.facts.get("framework") == "torch"
        self._uninitialized = UNINITIALIZED if is_torch else frozenset[str]()

    @property
    def is_file(self) -> bool:
        """True for the pass of a model file."""
        return "format" in self.graph.facts

    def kind(self, row: int) -> str:
        """Return the common name of the type of a row."""
        return common_type(self.graph, row)

    def is_op(self, row: int) -> bool:
        """Return whether a row is the result of an operation."""
        return bool(self.graph.ops.kind[row] == OP)

    def computes(self, row: int) -> bool:
        """Return whether a row is the result of an operation that does not only move elements."""
        return self.is_op(row) and self.kind(row) not in MOVES

    def is_idle_dropout(self, row: int) -> bool:
        """Return whether a row is the result of a dropout that returned what it was given."""
        return self.is_op(row) and self.kind(row) in DROPOUTS and bool(returned(self.trace, row))

    def value(self, row: int) -> Elements | None:
        """Return the value of a row to compare; None if it was not saved or is uninitialized memory."""
        value = self.trace.values.get(row)
        return None if value is None or self.graph.type_of(row) in self._uninitialized else plain(value)

    def depends_on_inputs(self, row: int) -> bool:
        """Return whether the values of a row depend on those of an input."""
        return row in self._of_inputs

    @cached_property
    def _of_inputs(self) -> set[int]:
        return of_inputs(self.graph)

    def has_state(self, row: int, value: Elements | None, allowed: float) -> bool:
        """Return whether an operation uses a parameter that is near a value, or may be.

        Args:
            row: The row of the operation.
            value: The value; None if it is not known.
            allowed: The relative difference up to which two values are near.
        """
        states = self.states(row)
        return value is None or any(one is None or not are_apart(value, one, allowed) for one in states)

    def states(self, row: int) -> list[Elements | None]:
        """Return the parameters that an operation uses; None for one whose value is not known."""
        addresses = (self.graph.params[number].address for number in self.graph.row_params.get(row, ()))
        return [value_of(self.trace, address) for address in addresses]

    def changed(self, row: int) -> bool:
        """Return whether a rerun replaced the row's value."""
        return self.graph.label(row) in self.graph.facts.get("changed", ())


def _calls_of(trace: Trace) -> Calls | None:
    """Return the calls of a trace if they can be run again; other traces need no torch."""
    if trace._replays is None:
        return None
    from .crossing import calls_of

    return calls_of(trace)


def returned(trace: Trace, row: int) -> list[int]:
    """Return the tensors whose numbers an operation returned as it was given them; none if it made others."""
    x = plain(trace.values.get(row))
    return [parent for parent in trace.graph.parents(row) if are_same(x, plain(trace.values.get(parent)))]


def are_apart(x: Elements, y: Elements, allowed: float) -> bool:
    """Return whether two operands are others, not only in another order or shape.

    Args:
        x: The first.
        y: The second.
        allowed: The relative difference up to which operands of one shape are the same.
    """
    if x.array.shape == y.array.shape:
        return difference(x, y).relative > allowed
    sums = [float(np.abs(one.array).sum(dtype=np.float64)) for one in (x, y)]
    if x.array.size != y.array.size or not math.isclose(*sums, rel_tol=SAME):
        return True
    return not same_elements(x, y)


def are_turned(x: Elements, y: Elements, allowed: float) -> bool:
    """Return whether two operands of two shapes have their elements in another order.

    A view of the same elements has another shape too, but one order from the first to the last of them.

    Args:
        x: The first.
        y: The second.
        allowed: The relative difference up to which elements are the same.
    """
    if x.array.shape == y.array.shape or x.array.size != y.array.size:
        return False
    flat = (one._replace(array=one.array.reshape(-1)) for one in (x, y))
    return sorted(x.array.shape) == sorted(y.array.shape) or difference(*flat).relative > allowed


def has_near(value: Elements, states: Iterable[Elements | None]) -> bool:
    """Return whether a value is among those of parameters, but for rounding."""
    return any(one is not None and not are_apart(value, one, rounding(value, one)) for one in states)
