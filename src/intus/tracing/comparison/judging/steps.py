"""Judge the steps of a pass by themselves: run the model's operations on its tensors.

Rounding adds up with depth, and what it may add up to excuses a wrong epsilon late in a deep model. An
operation may also amplify it: a layer norm of rows that are nearly constant divides by what is left of their
digits. So where depth excuses a difference, or does not, the operations of the model between two pairs of
tensors are run on what those of the other pass were given: in float64, to know the result; in the precision
of the two passes, to know how much of it their rounding loses; and on numbers that are rounded otherwise, to
know how much of it no way to compute it could keep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.graph import Graph
from ..pairing.regions import Region, Regions
from ..values.differences import (
    ROUNDINGS,
    Part,
    Whole,
    are_same,
    difference,
    half_of_digits,
    less_rounded,
    smaller_parts,
    smaller_relative,
)
from ..values.elements import Elements, eps_of
from .cancelling import lost_in_differences
from .crossing import Calls

if TYPE_CHECKING:
    from torch import Tensor

    from .sides import Side

#: How many times as much as the model a file may lose to rounding, whose kernels add in another order.
_WORSE = 4.0
#: How many times numbers are rounded otherwise: two of them rarely leave the same result as it is.
_ROUNDED = 3


#: Returns the relative difference of two values, or of a part of them.
_Relative = Callable[[Elements, Elements], float]


class Step(NamedTuple):
    """The result of judging a step.

    Attributes:
        region: The operations.
        error: The relative difference between the result of the other pass and the one in float64.
        allowed: How large it may be, by what the rounding of the model loses.
        amplified: The relative difference that other rounding of what it was given makes; 0.0 if not needed.
        eps: The distance from 1 to the next number of the precision it was computed in.
        draws: The first row of the model in the region that draws random numbers, which are others in each
            run, so that nothing is known of the error; -1 if none does.
        cancelled: How large the error may be by what rounding leaves where large numbers cancel, as in a
            variance that is the mean of the squares less the square of the mean; 0.0 if not needed. Of a
            pass that can be run again, its own operations in float64 tell.
    """

    region: Region
    error: float
    allowed: float
    amplified: float
    eps: float
    draws: int = -1
    cancelled: float = 0.0

    @property
    def is_wrong(self) -> bool:
        """True if rounding does not explain the error."""
        return self.error > max(self.allowed, self.amplified, self.cancelled)

    @property
    def by_cancelling(self) -> bool:
        """True if only what rounding leaves where large numbers cancel explains the error."""
        return max(self.allowed, self.amplified) < self.error <= self.cancelled

    @property
    def lost(self) -> float:
        """The part of the result that rounding takes, if that is more than half of the digits; else 0.0.

        Or more than it takes from the model: then another way to compute it may explain the error, unless it
        is known that large numbers cancel there.
        """
        is_amplified = self.error > self.allowed and not self.by_cancelling
        most = max(self.allowed, self.amplified, self.cancelled)
        return most if is_amplified or most > half_of_digits(self.eps) else 0.0


class _Rounded:
    """Results of operations that are given numbers which are rounded otherwise.

    Numbers that are the same in both passes were not rounded: only operations that round themselves take
    others for them, as another way to compute the same would. So no rounding makes an ``embedding`` of the
    same ids another.

    Args:
        calls: The calls of the model.
        rows: The rows of the operations.
        given: What they are given.
        dtype: The dtype that the model's floats are rounded to; ``""`` for their own.
        eps: The distance from 1 to the next number of the precision that numbers are rounded to.
    """

    def __init__(
        self, calls: Calls, rows: Sequence[int], given: Mapping[int, np.ndarray], dtype: str, eps: float
    ) -> None:
        self._calls, self._rows, self._given, self._dtype, self._eps = calls, rows, given, dtype, eps

    @cached_property
    def results(self) -> list[Elements]:
        """The results in float64."""
        return self._computed("float64")

    @cached_property
    def _with_differences(self) -> list[Elements]:
        """The results with variances that are computed as differences; none if none is computed."""
        from .variances import VariancesAsDifferences

        with VariancesAsDifferences() as mode:
            results = self._computed(self._dtype)
        return results if mode.found else []

    def _computed(self, dtype: str) -> list[Elements]:
        signs = np.random.default_rng(0)

        def otherwise(t: Tensor) -> Tensor:
            if not t.is_floating_point():
                return t
            sign = signs.choice((-1.0, 1.0), tuple(t.shape))
            return t * (1 + self._eps * t.new_tensor(sign))

        unrounded = self._calls.unrounded(self._rows, self._given, self._dtype)
        results = (
            self._calls.computed(self._rows, self._given, dtype, otherwise, unrounded)
            for _ in range(_ROUNDED)
        )
        return [result for result in results if result is not None]

    def apart(self, exact: Elements, relative: _Relative, *, variances: bool = False) -> float:
        """Return the relative difference that the rounding makes to a result.

        Args:
            exact: The result.
            relative: Returns the relative difference of two values.
            variances: Whether variances are computed as differences, and what is computed is rounded too.
        """
        found = (relative(one, exact) for one in (self._with_differences if variances else self.results))
        return max((one for one in found if one < math.inf), default=0.0)


class Steps:
    """Judges steps.

    Args:
        calls: The calls of the model.
        b: The other pass, such as that of a file.
        partner: Its rows, by those of the model, that differ by no more than rounding explains.
        apart: The rows of the model that differ by more.
        value: Returns the value in the other pass of a row of the model, in its shape.
    """

    def __init__(
        self,
        calls: Calls,
        b: Side,
        partner: Mapping[int, int],
        apart: Set[int],
        value: Callable[[int], Elements],
    ) -> None:
        self._calls, self._b, self._apart, self._value = calls, b, apart, value
        self._partner = dict(partner)
        self._regions = Regions(calls.graph, b.graph, partner)

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
        own, other = self._dtype(self._calls.graph, region.rows), self._dtype(self._b.graph, region.others)
        eps = max(eps_of(own), eps_of(other))
        rounding = ROUNDINGS * eps
        dtype = other if eps_of(other) > eps_of(own) else ""
        result = self._calls.computed(region.rows, arrays, dtype)
        if result is None or result.array.shape != y.array.shape:
            return None
        error = difference(result, y)
        if error.relative <= rounding and not error.lopsided and smaller_relative(result, y) <= rounding:
            return Step(region, error.relative, rounding, 0.0, eps)  # as nearly always: float64 takes longer
        draws = next((row for row in region.rows if self._calls.draws(row)), -1)
        if draws >= 0:
            return Step(region, error.relative, rounding, math.inf, eps, draws)
        exact = self._calls.computed(region.rows, arrays, "float64")
        if exact is None:
            return None
        rounded = _Rounded(self._calls, region.rows, arrays, dtype, eps)

        in_differences = lost_in_differences([(self._b, region.others)], y) if self._b.calls is None else None

        def judged(measure: Part | Whole, worse: float = 1.0, lost_in_b: float = 0.0) -> Step:
            """Return what is found of the result or a part of it, of which the other pass lost so much."""
            most = measure.size(y, exact) or 1.0

            def relative(one: Elements, other: Elements) -> float:
                """Return a relative difference, as a part of the numbers of ``b`` if these are larger.

                What rounding leaves of 0 may be any part of itself, but explains no larger numbers.
                """
                return measure.relative(one, other) * min(1.0, measure.size(one, other) / most)

            found, lost = measure.relative(y, exact), relative(result, exact)
            allowed = max(rounding, _WORSE * lost) if lost < math.inf else rounding
            amplified = worse * rounded.apart(exact, relative) if found > allowed else 0.0
            known, cancelled = max(allowed, amplified), 0.0
            if found > known:
                other = self._exact_of_b(region, y)
                if other is None:
                    cancelled = max(lost_in_b, _WORSE * rounded.apart(exact, relative, variances=True))
                elif relative(other, exact) <= known:
                    cancelled = found
            return Step(region, found, allowed, amplified, eps, cancelled=cancelled)

        most = 0.0 if in_differences is None else in_differences.whole
        whole = judged(Whole(), lost_in_b=most)
        if whole.is_wrong:
            return whole
        # Of few elements the rounding may be small by chance.
        parts = [(part, most) for part in smaller_parts(y, exact)]
        if whole.lost:  # a row of which rounding takes everything excuses no other
            less = less_rounded(y, exact, [result, *rounded.results])
            parts += [] if less is None else [(less, most)]
            parts += [] if in_differences is None else in_differences.parts(y, exact)
        judged_parts = (judged(part, _WORSE, lost) for part, lost in parts)
        return next((part for part in judged_parts if part.is_wrong), whole)

    def _exact_of_b(self, region: Region, y: Elements) -> Elements | None:
        """Return what the operations of ``b`` return in float64; None if that is not known.

        Args:
            region: The operations.
            y: What they returned in the pass. In another layout than there, nothing is known of it.
        """
        if self._b.calls is None or not are_same(self._b.value(region.others[-1]), y):
            return None
        return self._b.calls.exact(region.others)

    def add(self, i: int, j: int) -> None:
        """Let steps begin at another pair of rows."""
        self._partner[i] = j
        self._regions.add(i, j)

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
