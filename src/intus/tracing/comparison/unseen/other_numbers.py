"""Run the operations of two passes on other numbers than those of these inputs.

A ``hardsigmoid`` is ``x / 6 + 0.5`` between -3 and 3, an ``abs`` changes no positive number and a sort none
that are in order. Where two passes compute a tensor by other operations, these are given larger, negative and
shuffled numbers: what differs then may differ on other inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....core.analysis.walks import ancestors
from ....core.graph import OP, OUTPUT, Graph
from ....core.vocabularies import common_type, draws_at_random
from ....core.vocabularies.families import MOVES
from ....viewing.repr_text import listed
from ..pairing.regions import Region, Regions
from ..values.differences import SAME, SAME_HALF, Difference, difference
from ..values.elements import Elements, eps_of, plain
from ..values.ranges import Ranges
from .passes import placed
from .without_effect import Unseen

if TYPE_CHECKING:
    from ...results.trace import Trace

#: The relative difference up to which two passes agree where an operation of one alone has an effect.
#: Smaller than ``SAME``, because here it is to be shown that nothing differs.
_SHOWN = SAME / 10
#: Operations of a file of which the branch that was taken, or the last iteration, is run again.
_DECIDING = frozenset({"if", "loop", "scan", "cond", "while_loop"})
#: How many tensors are left out at most, before which it is looked for where they do.
_MOST_WITHOUT = 4
#: How many times as large as those of the pass other numbers are.
_FACTOR = 20.0
#: The relative differences up to which, and behind which, rounding explains all or nothing of what operations
#: return that are given the same. Between them, it explains so many times what a change of the last digit of
#: what they are given makes: they may amplify rounding on numbers that they are never given in a pass.
_LEAST_APART, _APART, _AMPLIFIED = 2e-5, 10 * SAME, 100
_SEED = 0
#: The largest number of operations of each side that are run at once.
_MOST = 1000


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


class _Effect(NamedTuple):
    """The effect of an operation on numbers.

    Attributes:
        acts: Whether it returns none of what it is given.
        chooses_alike: Whether it returns any of several tensors that it is given.
    """

    acts: bool
    chooses_alike: bool


class OnOthers(NamedTuple):
    """Results of running the operations of two passes on other numbers.

    Attributes:
        apart: Where the passes agree on these inputs alone.
        untried: What is said of operations that could not be run so.
    """

    apart: list[Apart]
    untried: list[str]


def on_other_numbers(a: Trace, b: Trace, pairs: Iterable[tuple[int, int]]) -> OnOthers:
    """Return where two passes agree on these inputs alone, as far as their operations can be run again.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows whose values differ by no more than rounding explains.
    """
    both = [(i, j) for i, j in pairs if i >= 0 and j >= 0]
    probe = _probe(a, b, both)
    if probe is None:
        why = "because the operations of one side cannot be run again"
        return OnOthers([], [f"No operation was run on other numbers, {why}."])
    apart = list(probe.found(both))
    rows = listed([placed(a.graph, row) for row in probe.untried])
    return OnOthers(
        apart, [f"Not run on other numbers, so that only these show them: {rows}."] if rows else []
    )


def not_shown_to_agree(
    a: Trace, b: Trace, pairs: Iterable[tuple[int, int]], found: Sequence[Unseen]
) -> list[Unseen]:
    """Return which operations of one pass alone are not shown to be a part of what both compute.

    A pass may compute in several steps what the other does in one, and choose between some of them: a
    ``nan_to_num`` is written as a choice of what is no number. If both passes agree on other numbers on
    which such a choice has an effect, it is no step of one alone. Nor is a choice between two ways to compute
    the same. A bound or a threshold is not judged so: near it, too few numbers show another.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows whose values differ by no more than rounding explains.
        found: The operations.
    """
    both = [(i, j) for i, j in pairs if i >= 0 and j >= 0]
    probe = _probe(a, b, both) if found else None
    return [one for one in found if probe is None or not probe.shows(one, both)]


def _probe(a: Trace, b: Trace, both: Sequence[tuple[int, int]]) -> _Probe | None:
    """Return what runs the operations of two passes; None if they cannot be run."""
    same = {i: j for i, j in both if _shape(a.graph, i) == _shape(b.graph, j)}
    one, two = _computing(a), _computing(b)
    if one is None or two is None:
        return None
    return _Probe(a, b, one, two, Regions(a.graph, b.graph, same, _MOST))


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


_Make = Callable[[np.ndarray, np.random.Generator], np.ndarray]
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


def can_be_run(trace: Trace) -> bool:
    """Return whether the operations of a trace can be run again."""
    return _computing(trace) is not None


def _shape(graph: Graph, row: int) -> tuple[int, ...]:
    return graph.metas[int(graph.ops.meta[row])].shape


class _Probe:
    def __init__(self, a: Trace, b: Trace, one: _Computing, two: _Computing, regions: Regions) -> None:
        self._a, self._b, self._one, self._two = a, b, one, two
        self._regions = regions
        self._ranges = Ranges(a), Ranges(b)
        #: The rows of the first pass that other operations of the second compute, and that could not be run.
        self.untried: list[int] = []

    def found(self, pairs: Iterable[tuple[int, int]]) -> Iterator[Apart]:
        """Yield what differs on other numbers, once for operations that are repeated."""
        seen: dict[object, bool] = {}
        for i, j in pairs:
            region = self._region(i, j)
            if region is None:
                if self._is_cut(i, j):
                    self.untried.append(i)
                continue
            if self._draws(region):
                self.untried.append(i)
                continue
            kind = self._kind(region)
            if kind in seen:
                continue
            numbers = self._differ(region)
            if numbers is None:
                self.untried += [i] if self._are_others(region.rows, region.others) else []
            seen[kind] = bool(numbers)
            if numbers:
                yield Apart(i, j, numbers)

    def shows(self, one: Unseen, pairs: Iterable[tuple[int, int]]) -> bool:
        """Return whether both passes agree where a choice of one alone has an effect."""
        graph = (self._a if one.side == "a" else self._b).graph
        if common_type(graph, one.row) != "where":
            return False
        for i, j in pairs:
            region = self._region(i, j) if (i if one.side == "a" else j) >= one.row else None
            without = set[int]()
            while region is not None and one.row in (region.rows if one.side == "a" else region.others):
                if self._agree_where_it_acts(region, one):
                    return True
                # The first of several steps may be paired with the one operation that they compute.
                without |= {*region.given}
                region = self._region(i, j, without) if len(without) <= _MOST_WITHOUT else None
            if without:
                return False
        return False

    def _agree_where_it_acts(self, region: Region, one: Unseen) -> bool:
        """Return whether both passes agree on other numbers, on some of which an operation has an effect."""
        given = self._given(region)
        if given is None:
            return False
        arrays, free = given
        others = [self._others(arrays, free, make) for make in _OTHERS.values()]
        effects = list(self._effects(region, one, [arrays | some for some in others]))
        if None in effects or any(effect.acts for effect in effects if effect):
            return None not in effects
        if all(effect.chooses_alike for effect in effects if effect):
            return True
        special = [{row: _among(x, numbers) for row, x in others[0].items()} for numbers in _SPECIAL]
        effects = list(self._effects(region, one, [arrays | some for some in special], only_finite=True))
        return None not in effects and any(effect.acts for effect in effects if effect)

    def _effects(
        self,
        region: Region,
        one: Unseen,
        sets: Iterable[Mapping[int, np.ndarray]],
        *,
        only_finite: bool = False,
    ) -> Iterator[_Effect | None]:
        """Yield the effect of an operation on sets of numbers; None where the passes do not agree.

        Args:
            region: The operations that it is one of.
            one: The operation.
            sets: What they are given.
            only_finite: Whether results that are not finite show nothing: what makes them hides the rest.
        """
        for given in sets:
            found = self._apart(region, given)
            agree = found is not None and not found.lopsided and found.relative <= _SHOWN
            result = self._one(region.rows, given) if agree and only_finite else None
            if result is not None and not np.isfinite(result.array).all():
                yield _Effect(False, False)
            else:
                yield self._effect(region, one, given) if agree else None

    def _effect(self, region: Region, one: Unseen, given: Mapping[int, np.ndarray]) -> _Effect:
        """Return the effect of an operation on numbers.

        Args:
            region: The operations that it is one of.
            one: The operation.
            given: What they are given, by the rows of the first pass.
        """
        side, run, rows = self._a, self._one, region.rows
        if one.side == "b":
            side, run, rows = self._b, self._two, region.others
            given = {self._regions.partner(row): array for row, array in given.items()}

        def value(row: int) -> Elements | None:
            if row in given:
                return plain(given[row])
            return run([n for n in rows if n <= row], given) if row in rows else None

        result = value(one.row)
        operands = [value(row) for row in side.graph.parents(one.row)]
        apart = [
            difference(x, result)
            for x in operands
            if x is not None
            and result is not None
            and (x.dtype, x.array.shape) == (result.dtype, result.array.shape)
        ]
        changes = [found.lopsided or found.relative > _SHOWN for found in apart]
        return _Effect(bool(changes) and all(changes), len(changes) > 1 and not any(changes))

    def _region(self, i: int, j: int, without: Collection[int] = ()) -> Region | None:
        """Return the operations of a pair, from tensors none of which depends on another, or is left out."""
        ends = {int(side.graph.ops.kind[row]) for side, row in ((self._a, i), (self._b, j))}
        if not ends <= {OP, OUTPUT} or "bool" in (self._a.graph.dtype_of(i), self._b.graph.dtype_of(j)):
            return None
        without = {*without}
        region = self._regions.of(i, j, without)
        if region is not None and ends == {OUTPUT} and (region.rows, region.others) == ([i], [j]):
            return None  # no operation
        while region is not None:  # what depends on another of what is given has not just any numbers
            given = {*region.given}
            inner = {one for one in given if not given.isdisjoint(ancestors(self._a.graph, [one]))}
            if not inner:
                return region
            without |= inner
            region = self._regions.of(i, j, without)
        return None

    def _draws(self, region: Region) -> bool:
        """Return whether operations draw random numbers, which are others in each run."""
        replays = self._a._replays
        calls = [replays.call(int(self._a.graph.ops.event[row])) for row in region.rows] if replays else []
        if any(call is not None and call.states for call in calls):
            return True
        return any(draws_at_random(self._b.graph, row) for row in region.others)

    def _is_cut(self, i: int, j: int) -> bool:
        """Return whether other operations compute floats of an input, and are too many to be run."""
        is_free = self._ranges[0].is_free(i) and self._ranges[1].is_free(j)
        are_ops = self._a.graph.ops.kind[i] == self._b.graph.ops.kind[j] == OP
        if not (are_ops and is_free):
            return False
        before = {
            self._regions.partner(row) for row in self._a.graph.parents(i) if self._ranges[0].is_free(row)
        }
        given = {row for row in self._b.graph.parents(j) if self._ranges[1].is_free(row)}
        return before != given or self._are_others([i], [j])

    def _are_others(self, rows: Sequence[int], others: Sequence[int]) -> bool:
        """Return whether operations of the second pass compute in another way than those of the first."""
        one, two = (
            sorted(kind for row in some if (kind := common_type(side.graph, row)) not in MOVES)
            for side, some in ((self._a, rows), (self._b, others))
        )
        return one != two

    def _kind(self, region: Region) -> object:
        """Return what is the same of regions that are repeated, as the layers of a model are."""
        sides = (self._a.graph, region.rows), (self._b.graph, region.others)
        return tuple(tuple((g.type_of(row), g.setting(row)) for row in rows) for g, rows in sides)

    def _differ(self, region: Region) -> str | None:
        """Return on what numbers a region differs; ``""`` if on none, None if it cannot be run on others."""
        if not any(self._ranges[0].is_free(row) for row in region.given):
            return ""
        given = self._given(region)
        # They have to agree on the values of the pass, as they do there.
        if given is None or self._is_apart(region, given[0]) is not False:
            return None
        for numbers, make in _OTHERS.items():
            if self._is_apart(region, given[0] | self._others(*given, make)):
                return numbers
        return ""

    def _given(self, region: Region) -> tuple[dict[int, np.ndarray], list[int]] | None:
        """Return what a region is given, and which of it may have any floats; None if there is none.

        Other numbers may take another branch, which a file is not run along.
        """
        if any(common_type(self._b.graph, row) in _DECIDING for row in region.others):
            return None
        own = {row: plain(self._a.values.get(row)) for row in region.given}
        given = {row: value for row, value in own.items() if value is not None and not value.is_complex}
        free = [row for row, value in given.items() if value.is_float and self._ranges[0].is_free(row)]
        if len(given) < len(own) or not free:
            return None
        return {row: value.array for row, value in given.items()}, free

    def _others(
        self, given: Mapping[int, np.ndarray], free: Sequence[int], make: _Make
    ) -> dict[int, np.ndarray]:
        """Return other numbers for rows, within the range that they can have."""
        random = np.random.default_rng(_SEED)
        made = {row: self._within(row, make(given[row], random)) for row in free}
        return {row: _as(given[row].dtype, array) for row, array in made.items()}

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
        found = self._apart(region, given)
        if found is None:
            return None
        half = self._is_half(region)
        if half or found.lopsided or not _LEAST_APART < found.relative <= _APART:
            return found.relative > (SAME_HALF if half else _LEAST_APART) or (found.lopsided and not half)
        return found.relative > _AMPLIFIED * self._by_rounding(region, given)

    def _by_rounding(self, region: Region, given: Mapping[int, np.ndarray]) -> float:
        """Return how much of a result changes with the last digit of what a region is given."""
        random = np.random.default_rng(_SEED)
        rounded = {
            row: (x * (1 + random.choice((-1.0, 1.0), x.shape) * np.finfo(x.dtype).eps)).astype(x.dtype)
            if x.dtype.kind == "f"
            else x
            for row, x in given.items()
        }
        x, y = self._one(region.rows, given), self._one(region.rows, rounded)
        return math.inf if x is None or y is None else difference(x, y).relative

    def _is_half(self, region: Region) -> bool:
        """Return whether a region ends in a precision below float32."""
        ends = self._a.graph.dtype_of(region.rows[-1]), self._b.graph.dtype_of(region.others[-1])
        return max(map(eps_of, ends)) > eps_of("float32")

    def _apart(self, region: Region, given: Mapping[int, np.ndarray]) -> Difference | None:
        """Return how far apart what two passes compute from the same is; None if they cannot be run."""
        x = self._one(region.rows, given)
        others = {self._regions.partner(row): array for row, array in given.items()}
        y = None if x is None else self._two(region.others, others)
        if x is None or y is None or x.array.size != y.array.size:
            return None
        return difference(x, y._replace(array=y.array.reshape(x.array.shape)))


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


def _near_one(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return an array of random numbers of about 1, near which functions bend."""
    return random.normal(size=array.shape)


def _smaller(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return an array of smaller random numbers."""
    return random.normal(size=array.shape) * (min(_size(array), 1.0) / _FACTOR**2)


def _size(array: np.ndarray) -> float:
    """Return the root of the mean square of the finite numbers of an array."""
    finite = array[np.isfinite(array)].astype(np.float64)
    return math.sqrt(float(np.mean(finite**2))) if finite.size else 0.0


_OTHERS = {
    "negative or shuffled numbers": _shuffled,
    "larger numbers": _larger,
    "smaller numbers": _smaller,
    "numbers near 1": _near_one,
}


def _among(array: np.ndarray, numbers: Sequence[float]) -> np.ndarray:
    """Return an array with other numbers between its own."""
    flat = array.reshape(-1).copy()
    for place, number in enumerate(numbers):
        flat[place :: 2 * len(numbers)] = number
    return flat.reshape(array.shape)


#: Numbers that only a step has an effect on that looks for them.
_SPECIAL = ((math.nan,), (math.inf, -math.inf), (0.0,))
