"""Find how much of a tensor rounding takes where a pass computes it as a small difference of large numbers.

The mean of the squares less the square of the mean is a variance, of which the rounding of both leaves little
if they are much larger. The recorded values tell, also those of passes that cannot be run again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..parameters.parameters import UsedParameters
from ..values.differences import LESS, ROUNDINGS, Part, part_of_rows
from ..values.elements import Elements
from ..values.settings import different_constants, stated_apart
from .pairs import Pair, Pairs
from .sides import Side

#: The operations whose result may be much smaller than what they are given.
_DIFFERENCES = frozenset({"add", "sub", "subtract"})
#: The operations that may write a number in place of what they are given, and how many numbers at most.
_CHOICES, _MOST_WRITTEN = frozenset({"where", "masked_fill"}), 4
#: The part of how parents differ of which so little is left that they do not correspond.
_LEFT = 1e-3


class _Led(NamedTuple):
    """The operations that led to a pair since the last pairs that both passes have.

    Attributes:
        given: Those last pairs.
        rows: The rows of ``a`` since then, and that of the pair.
        others: The same of ``b``.
    """

    given: list[Pair]
    rows: list[int]
    others: list[int]


class Lost(NamedTuple):
    """The part of a value that rounding takes in differences of large numbers that led to it.

    Attributes:
        whole: The part of all of it.
        rows: The same of each of its rows, along its first axis of more than one; empty if that is not known.
        axis: That axis.
    """

    whole: float
    rows: np.ndarray
    axis: int

    def parts(self, a: Elements, b: Elements) -> Iterator[tuple[Part, float]]:
        """Yield the rows of two values of which rounding takes less, with what it takes of them at most."""
        less = self.rows * LESS < self.whole
        if less.any() and not less.all():
            rows = less.reshape(*[1] * self.axis, -1)
            shape = a.array.shape[: self.axis + 1]
            yield part_of_rows(a, b, np.broadcast_to(rows, shape)), float(self.rows[less].max())


def lost_in_differences(sides: Iterable[tuple[Side, Sequence[int]]], value: Elements) -> Lost:
    """Return the part of a value that rounding takes in the differences that led to it.

    Args:
        sides: The passes, each with the rows of the operations that led to it.
        value: The value.
    """
    whole, by_rows, axis = 0.0, list[np.ndarray](), _first_axis(value)
    for side, rows in sides:
        written = _written(side, rows)
        for row in rows:
            if (found := _difference(side, row, written)) is None:
                continue
            out, given = found
            part = _part(out, given)
            whole = max(whole, part if part < math.inf else 0.0)
            if part:
                by_rows.append(_by_row(out, given))
    count = value.array.shape[axis] if axis >= 0 else 0
    are_of_rows = bool(by_rows) and value.array.shape.count(count) == 1  # else it may be another axis
    are_of_rows = are_of_rows and all(len(one) == count for one in by_rows)
    return Lost(whole, np.max(by_rows, axis=0) if are_of_rows else np.zeros(0), axis)


def is_lost_in_differences(pairs: Pairs, pair: Pair) -> bool:
    """Return whether what rounding takes in differences, and nothing else known, explains how a pair differs.

    Operations may be paired that do not correspond, such as sums of squares of other numbers. What follows
    tells if nothing of how they differ is left.

    Args:
        pairs: The pairs, of which those before have been judged.
        pair: The pair.
    """
    if pair.difference is None or pair.difference.lopsided:
        return False
    led = _led_to(pairs, pair)
    x, y = pairs.a.value(pair.a), pairs.value_of_b(pair.a)
    if x is None:
        return False
    lost = lost_in_differences(((pairs.a, led.rows), (pairs.b, led.others)), x)
    differing = [one.difference for one in led.given if not one.is_explained]
    if not all(one is not None and lost.whole <= _LEFT * one.relative for one in differing):
        return False
    if max(pair.difference.relative, pair.smaller) > lost.whole or are_set_otherwise(pairs, pair):
        return False
    return all(part.relative(x, y) <= max(most, pair.rounding_error) for part, most in lost.parts(x, y))


def are_set_otherwise(pairs: Pairs, pair: Pair) -> bool:
    """Return whether the operations that led to a pair are known to have other parameters or constants."""
    a, b, (_, rows, others) = pairs.a, pairs.b, _led_to(pairs, pair)
    if UsedParameters(a.trace, rows, b.trace, others).are_apart():
        return True
    is_one_each = len(rows) == len(others) == 1
    stated = [*stated_apart(a.graph, rows[0], b.graph, others[0])] if is_one_each else []
    return bool(stated or different_constants(a.graph, rows, b.graph, others))


def _led_to(pairs: Pairs, pair: Pair) -> _Led:
    """Return what led to a pair."""
    waiting, seen = pairs.parents(pair), set[int]()
    while waiting:
        if (n := waiting.pop()) not in seen:
            seen.add(n)
            waiting += () if pairs[n].has_both else pairs.parents(pairs[n])
    found = [pairs[n] for n in sorted(seen)]
    since = [*(one for one in found if not one.has_both), pair]
    rows, others = (
        sorted(row for row in some if row >= 0) for some in zip(*((p.a, p.b) for p in since), strict=True)
    )
    return _Led([one for one in found if one.has_both], rows, others)


def _difference(side: Side, row: int, written: np.ndarray) -> tuple[Elements, list[np.ndarray]] | None:
    """Return the result of an operation that may be a small difference, with what was rounded before.

    None of any other operation, and where the values are not known.

    Args:
        side: The pass.
        row: The row of the operation.
        written: The numbers that a choice wrote, which nothing rounded: these count as 0.
    """
    if not side.is_op(row) or side.kind(row) not in _DIFFERENCES:
        return None
    out = side.value(row)
    given = [value for parent in side.graph.parents(row) if (value := side.value(parent)) is not None]
    if out is None or not out.is_float or not given:
        return None
    arrays = (one.array.astype(np.float64) for one in given)
    return out, [np.where(np.isin(one, written), 0.0, one) for one in arrays]


def _written(side: Side, rows: Iterable[int]) -> np.ndarray:
    """Return the numbers that choices between a tensor and a number wrote, such as -1e9 for a mask."""
    found: set[float] = set()
    for row in rows:
        out = side.value(row) if side.is_op(row) and side.kind(row) in _CHOICES else None
        if out is None or not out.is_float:
            continue
        chosen = np.ones(out.array.shape, bool)
        for parent in side.graph.parents(row):
            value = side.value(parent) if side.depends_on_inputs(parent) else None
            if value is not None and value.is_float and value.array.shape == out.array.shape:
                chosen &= value.array != out.array
        numbers = np.unique(out.array[chosen].astype(np.float64))
        found |= {*numbers.tolist()} if len(numbers) <= _MOST_WRITTEN else set()
    return np.array(sorted(found))


def _part(out: Elements, given: Sequence[np.ndarray]) -> float:
    """Return the part of a difference that the rounding of what it is given takes."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        own, *sizes = (np.sqrt(np.mean(np.square(one))) for one in (out.array.astype(np.float64), *given))
        lost = ROUNDINGS * out.eps * np.divide(max(sizes), own)
    return float(np.nan_to_num(lost, nan=0.0, posinf=math.inf))


def _by_row(out: Elements, given: Sequence[np.ndarray]) -> np.ndarray:
    """Return ``_part`` of each row along the first axis of more than one; empty if that is not known."""
    shape, axis = out.array.shape, _first_axis(out)
    if axis < 0 or not all(_is_broadcast(one.shape, shape) for one in given):
        return np.zeros(0)
    arrays = [np.moveaxis(np.broadcast_to(one, shape), axis, 0) for one in given]
    own = np.moveaxis(out.array, axis, 0)
    return np.array(
        [_part(out._replace(array=own[n]), [one[n] for one in arrays]) for n in range(shape[axis])]
    )


def _is_broadcast(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Return whether an array of a shape is broadcast to another one, as no write to a part is."""
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(length in (1, other) for length, other in pairs)


def _first_axis(value: Elements) -> int:
    """Return the first axis of more than one; -1 if there is none."""
    return next((axis for axis, length in enumerate(value.array.shape) if length > 1), -1)
