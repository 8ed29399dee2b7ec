"""Judge the steps of a file by themselves: run the model's operations on the tensors of the file.

Rounding adds up with depth, and what it may add up to excuses a wrong epsilon late in a deep model. So where
nothing but depth excuses a difference, the operations of the model between two pairs of tensors are run on
what those of the file were given: in float64, to know the result, and in the precision of the two passes, to
know how much of it their rounding loses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from copy import copy
from typing import NamedTuple

import numpy as np

from ...core.graph import Graph
from .crossing import Calls
from .differences import ROUNDINGS, difference
from .elements import Elements, eps_of
from .regions import Region, Regions

#: How many times as much as the model a file may lose to rounding, whose kernels add in another order.
_WORSE = 4.0


class Step(NamedTuple):
    """The result of judging a step.

    Attributes:
        region: The operations.
        error: The relative difference between the result of the file and the one in float64.
        allowed: How large it may be.
    """

    region: Region
    error: float
    allowed: float

    @property
    def is_wrong(self) -> bool:
        """True if rounding does not explain the error."""
        return self.error > self.allowed


class Steps:
    """Judges steps.

    Args:
        calls: The calls of the model.
        b: The graph of the file.
        partner: The rows of the file, by those of the model, that differ by no more than rounding explains.
        apart: The rows of the model that differ by more.
        value: Returns the value in the file of a row of the model, in its shape.
    """

    def __init__(
        self,
        calls: Calls,
        b: Graph,
        partner: Mapping[int, int],
        apart: Set[int],
        value: Callable[[int], Elements],
    ) -> None:
        self._calls, self._b, self._partner, self._apart, self._value = calls, b, partner, apart, value
        self._regions = Regions(calls.graph, b, partner)

    def judge(self, row: int, without: Collection[int] = ()) -> Step | None:
        """Return what is found of the step that ends at a row; None if it cannot be run.

        Args:
            row: A row of the model that has a partner.
            without: Rows of the model that it may not begin at.
        """
        region = self._regions.of(row, self._partner[row], without)
        if region is None or not (self._apart - {row, *without}).isdisjoint(region.rows):
            return None
        y, given = self._value(row), {one: self._value(one) for one in region.given}
        if any(value.is_complex for value in given.values()):
            return None
        arrays = {one: np.ascontiguousarray(value.array) for one, value in given.items()}
        own, other = self._dtype(self._calls.graph, region.rows), self._dtype(self._b, region.others)
        rounding = ROUNDINGS * max(eps_of(own), eps_of(other))
        result = self._calls.computed(region.rows, arrays, other if eps_of(other) > eps_of(own) else "")
        if result is None or result.array.shape != y.array.shape:
            return None
        error = difference(result, y)
        if error.relative <= rounding and not error.lopsided:  # as nearly always: float64 takes longer
            return Step(region, error.relative, rounding)
        exact = self._calls.computed(region.rows, arrays, "float64")
        if exact is None:
            return None
        allowed = max(rounding, _WORSE * difference(result, exact).relative)
        return Step(region, difference(y, exact).relative, allowed)

    def also(self, i: int, j: int, y: Elements) -> Steps:
        """Return the same steps, which may also begin or end at another pair of rows.

        Args:
            i: A row of the model.
            j: The row of the file.
            y: Its value, in the shape of the model's.
        """
        other = copy(self)
        other._partner = {**self._partner, i: j}
        other._regions = self._regions.also(i, j)
        other._value = lambda row: y if row == i else self._value(row)
        return other

    def leave_out(self, row: int) -> None:
        """Let no step begin at a row of the model, because its partner does not correspond to it."""
        self._regions.leave_out(row)

    def _dtype(self, graph: Graph, rows: Sequence[int]) -> str:
        """Return the coarsest dtype of floats that operations return."""
        return max((graph.dtype_of(row) for row in rows), key=eps_of)
