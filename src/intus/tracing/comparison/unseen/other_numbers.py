"""Run the operations of two passes on other numbers than those of these inputs.

A ``hardsigmoid`` is ``x / 6 + 0.5`` between -3 and 3, an ``abs`` changes no positive number and a sort none
that are in order. Where two passes compute a tensor by other operations, these are given larger, negative and
shuffled numbers: what differs then may differ on other inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....core.analysis.walks import ancestors
from ....core.graph import OP, OUTPUT, Graph
from ..pairing.regions import Region, Regions
from ..values.differences import difference
from ..values.elements import Elements, is_half, plain
from ..values.ranges import Ranges
from .without_effect import placed

if TYPE_CHECKING:
    from ...results.trace import Trace

#: How many times as large as those of the pass other numbers are.
_FACTOR = 20.0
#: The relative difference behind which rounding is no explanation of one region: in float32, in half.
_APART, _APART_HALF = 1e-2, 5e-2
_SEED = 0


class Apart(NamedTuple):
    """Two operations that return the same on these inputs, and not what they do on other numbers.

    Attributes:
        a: The row of the first pass.
        b: The row of the second pass.
        numbers: Words for the numbers.
    """

    a: int
    b: int
    numbers: str


def apart_on_other_numbers(a: Trace, b: Trace, pairs: Iterable[tuple[int, int]]) -> list[Apart]:
    """Return where two passes agree on these inputs alone, as far as their operations can be run again.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows whose values differ by no more than rounding explains.
    """
    both = [(i, j) for i, j in pairs if i >= 0 and j >= 0]
    same = {i: j for i, j in both if _shape(a.graph, i) == _shape(b.graph, j)}
    one, two = _computing(a), _computing(b)
    if one is None or two is None:
        return []
    probe = _Probe(a, b, one, two, Regions(a.graph, b.graph, same))
    return list(probe.found(both))


def sentences(found: Iterable[Apart], a: Graph, b: Graph, names: tuple[str, str]) -> Iterator[str]:
    """Yield what is said of these operations.

    Args:
        found: The operations.
        a: The first graph.
        b: The second graph.
        names: The names of the passes.
    """
    for one in found:
        yield (
            f"{placed(a, one.a)} in {names[0]} and {b.label(one.b)} in {names[1]} compute the same on these "
            f"inputs, and not where they are given {one.numbers}"
        )


_Computing = Callable[[Sequence[int], Mapping[int, np.ndarray]], Elements | None]


def _computing(trace: Trace) -> _Computing | None:
    """Return what runs the operations of a trace again; None if they cannot be run."""
    if trace._parts is not None:
        parts = trace._parts
        return lambda rows, given: plain(parts.computed(rows, rows[-1], given))
    if trace._replays is None:
        return None
    from ..judging.crossing import calls_of

    calls = calls_of(trace)
    return None if calls is None else calls.computed


def _shape(graph: Graph, row: int) -> tuple[int, ...]:
    return graph.metas[int(graph.ops.meta[row])].shape


class _Probe:
    def __init__(self, a: Trace, b: Trace, one: _Computing, two: _Computing, regions: Regions) -> None:
        self._a, self._b, self._one, self._two = a, b, one, two
        self._regions = regions
        self._ranges = Ranges(a), Ranges(b)

    def found(self, pairs: Iterable[tuple[int, int]]) -> Iterator[Apart]:
        """Yield what differs on other numbers, once for operations that are repeated."""
        seen: dict[object, bool] = {}
        for i, j in pairs:
            region = self._region(i, j)
            if region is None:
                continue
            kind = self._kind(region)
            if kind in seen:
                continue
            numbers = self._differ(region)
            seen[kind] = bool(numbers)
            if numbers:
                yield Apart(i, j, numbers)

    def _region(self, i: int, j: int) -> Region | None:
        """Return the operations of a pair, from tensors none of which depends on another."""
        ends = {int(side.graph.ops.kind[row]) for side, row in ((self._a, i), (self._b, j))}
        if not ends <= {OP, OUTPUT} or "bool" in (self._a.graph.dtype_of(i), self._b.graph.dtype_of(j)):
            return None
        region, without = self._regions.of(i, j), set[int]()
        while region is not None:  # what depends on another of what is given has not just any numbers
            given = {*region.given}
            inner = {one for one in given if not given.isdisjoint(ancestors(self._a.graph, [one]))}
            if not inner:
                return region
            without |= inner
            region = self._regions.of(i, j, without)
        return None

    def _kind(self, region: Region) -> object:
        """Return what is the same of regions that are repeated, as the layers of a model are."""
        sides = (self._a.graph, region.rows), (self._b.graph, region.others)
        return tuple(tuple((g.type_of(row), g.setting(row)) for row in rows) for g, rows in sides)

    def _differ(self, region: Region) -> str:
        """Return on what numbers the operations of a region differ; ``""`` if on none."""
        own = {row: plain(self._a.values.get(row)) for row in region.given}
        given = {row: value for row, value in own.items() if value is not None and not value.is_complex}
        free = [row for row, value in given.items() if value.is_float and self._ranges[0].is_free(row)]
        if len(given) < len(own) or not free:
            return ""
        arrays = {row: value.array for row, value in given.items()}
        if self._is_apart(region, arrays) is not False:  # as on the values of the pass, where they agree
            return ""
        random = np.random.default_rng(_SEED)
        for numbers, make in _OTHERS.items():
            made = {row: self._within(row, make(arrays[row], random)) for row in free}
            others = {row: _as(arrays[row].dtype, array) for row, array in made.items()}
            if self._is_apart(region, arrays | others):
                return numbers
        return ""

    def _within(self, row: int, array: np.ndarray) -> np.ndarray:
        """Return an array with its numbers moved into the range that those of a row have."""
        partner = self._regions.partner(row)
        ranges = self._ranges[0].of(row), self._ranges[1].of(partner)
        low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
        if math.isfinite(low) and math.isfinite(high):
            inside = np.remainder(array, high - low) if high > low else np.zeros_like(array)
            return np.asarray(low + inside)
        if math.isfinite(low):
            return np.asarray(low + np.abs(array))
        return np.asarray(high - np.abs(array)) if math.isfinite(high) else array

    def _is_apart(self, region: Region, given: Mapping[int, np.ndarray]) -> bool | None:
        """Return whether two passes compute something else from the same; None if they cannot be run."""
        x = self._one(region.rows, given)
        others = {self._regions.partner(row): array for row, array in given.items()}
        y = None if x is None else self._two(region.others, others)
        if x is None or y is None or x.array.size != y.array.size:
            return None
        found = difference(x, y._replace(array=y.array.reshape(x.array.shape)))
        half = is_half(x, y)
        return found.relative > (_APART_HALF if half else _APART) or (found.lopsided and not half)


def _as(dtype: np.dtype[Any], array: np.ndarray) -> np.ndarray:
    """Return an array in another dtype, whose largest number stands for larger ones."""
    most = float(np.finfo(dtype).max)
    return np.asarray(np.clip(array, -most, most), dtype=dtype)


def _shuffled(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the numbers of an array in another order, with other signs."""
    signs = random.choice((-1.0, 1.0), array.shape)
    return np.asarray(random.permutation(array.reshape(-1)).reshape(array.shape) * signs)


def _larger(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return an array of larger random numbers."""
    return random.normal(size=array.shape) * (_FACTOR * max(_size(array), 1.0))


def _smaller(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return an array of smaller random numbers."""
    return random.normal(size=array.shape) * (min(_size(array), 1.0) / _FACTOR**2)


def _size(array: np.ndarray) -> float:
    """Return the root of the mean square of the finite numbers of an array."""
    finite = array[np.isfinite(array)].astype(np.float64)
    return math.sqrt(float(np.mean(finite**2))) if finite.size else 0.0


_OTHERS = {"negative or shuffled numbers": _shuffled, "larger numbers": _larger, "smaller numbers": _smaller}
