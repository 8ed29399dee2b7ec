"""Find how much of a tensor rounding takes where a pass computes it as a small difference of large numbers.

The mean of the squares less the square of the mean is a variance, of which the rounding of both leaves little
if they are much larger. The recorded values tell, also those of passes that cannot be run again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..parameters.parameters import UsedParameters
from ..values.differences import ROUNDINGS
from ..values.elements import Elements
from ..values.settings import different_constants, stated_apart
from .pairs import Pair, Pairs
from .sides import Side

#: The operations whose result may be much smaller than what they are given.
_DIFFERENCES = frozenset({"add", "sub", "subtract"})
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


def lost_in_differences(pairs: Pairs, pair: Pair) -> float:
    """Return the part of a pair that rounding takes in the differences that led to it.

    Args:
        pairs: The pairs, of which those before have been judged.
        pair: The pair.
    """
    led = _led_to(pairs, pair)
    lost = [*(_lost(pairs.a, row) for row in led.rows), *(_lost(pairs.b, row) for row in led.others)]
    return max(lost, default=0.0)


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
    lost = lost_in_differences(pairs, pair)
    differing = [one.difference for one in _led_to(pairs, pair).given if not one.is_explained]
    if not all(one is not None and lost <= _LEFT * one.relative for one in differing):
        return False
    return max(pair.difference.relative, pair.smaller) <= lost and not are_set_otherwise(pairs, pair)


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


def _lost(side: Side, row: int) -> float:
    """Return the part of the result of an operation that the rounding of what it is given takes."""
    if not side.is_op(row) or side.kind(row) not in _DIFFERENCES:
        return 0.0
    out = side.value(row)
    given = [value for parent in side.graph.parents(row) if (value := side.value(parent)) is not None]
    if out is None or not out.is_float or not given or not (size := _size(out)):
        return 0.0
    lost = ROUNDINGS * out.eps * max(map(_size, given)) / size
    return lost if lost < math.inf else 0.0


def _size(value: Elements) -> float:
    """Return the root of the mean of the squares of the elements."""
    array = value.array.astype(np.float64)
    return float(np.sqrt(np.mean(array * array))) if array.size else 0.0
