"""Measure how far apart two values are, and how far rounding alone could have taken them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...results.arrays import blocks
from .elements import Elements, plain

#: The relative difference that one operation may have, in eps of the coarser dtype. One rounding makes about
#: a third of eps, and a composite operation rounds several times.
ROUNDINGS = 4.0
#: The relative difference up to which two tensors are taken for one where it is not known how many operations
#: rounded before: in float32, and in half precision, in which a whole model rounds this much.
SAME, SAME_HALF = 1e-3, 5e-2
#: The relative difference up to which two tensors in half precision have the same elements: less than
#: ``SAME_HALF``, because these are sorted, so that some others come near.
_SAME_ELEMENTS = {"float16": 1e-2, "bfloat16": 3e-2}
#: Elements are smaller than others, not the tail of them, if they are two or more and no element has a size
#: between, on so many powers of two.
_GAP, _LEAST = 6, 2
#: A power of two below those of all numbers.
_LEAST_POWER = -1100
#: How many elements a row has that tells how much of it rounding takes, and how many times as much it takes
#: of others at least. Of single elements it takes little by chance.
_ROW, LESS = 8, 100


class Difference(NamedTuple):
    """The difference of two tensors of one shape.

    Elements that are NaN in both, or the same infinity in both, are left out. Of two dtypes, values that the
    narrower one cannot represent count as its limit.

    Attributes:
        largest: The largest absolute difference.
        relative: The norm of the difference divided by the larger norm.
        cosine: The cosine similarity.
        fraction_different: The fraction of elements that are not equal; 0.0 does not equal -0.0.
        nan: The number of NaN in the first tensor.
        other_nan: The number of NaN in the second tensor.
    """

    largest: float
    relative: float
    cosine: float
    fraction_different: float
    nan: int
    other_nan: int

    @property
    def lopsided(self) -> bool:
        """True if one tensor has more NaN than the other, or an infinity that the other has not."""
        return self.nan != self.other_nan or self.relative == float("inf")


_NONE = Difference(0.0, 0.0, 1.0, 0.0, 0, 0)


def difference(a: Elements, b: Elements) -> Difference:
    """Return the difference of two values of one shape, as ``plain`` returns them.

    Example:
        >>> difference(plain(np.array([3.0, 4.0])), plain(np.array([3.0, 4.5]))).largest
        0.5
    """
    if not a.array.size or (a.equals(b) and not (a.is_float and np.isnan(a.array).any())):
        return _NONE
    # float64 does not represent every int64, so integers are also compared exactly.
    exact = a.dtype == b.dtype and not a.is_float
    unequal = int((a.array != b.array).sum()) if exact else 0
    nan = other_nan = 0
    largest, squares, squares_a, squares_b, product = 0.0, 0.0, 0.0, 0.0, 0.0
    with np.errstate(invalid="ignore", over="ignore"):  # an infinity or a NaN on one side
        for x, y in blocks(a.within(b), b.within(a)):
            equal = x == y
            unequal += 0 if exact else int(np.count_nonzero(equal & (np.signbit(x) != np.signbit(y))))
            if not np.isfinite(x).all() or not np.isfinite(y).all():
                is_nan, other_is_nan = np.isnan(x), np.isnan(y)
                nan, other_nan = nan + int(is_nan.sum()), other_nan + int(other_is_nan.sum())
                equal |= is_nan & other_is_nan
                x, y = (np.where(equal & ~np.isfinite(t), 0.0, t) for t in (x, y))
            apart = np.where(equal, 0.0, x - y)
            unequal += 0 if exact else equal.size - int(np.count_nonzero(equal))
            largest = max(largest, float(np.abs(np.nan_to_num(apart, nan=np.inf)).max()))
            squares += float(apart @ apart)
            squares_a, squares_b, product = (
                squares_a + float(x @ x),
                squares_b + float(y @ y),
                product + float(x @ y),
            )
    if not (unequal or nan or other_nan):
        return _NONE
    distance, norms = math.sqrt(squares), (math.sqrt(squares_a), math.sqrt(squares_b))
    scale, size = max(norms), norms[0] * norms[1]
    return Difference(
        largest=largest,
        relative=(distance / scale if scale else 0.0) if distance < math.inf else math.inf,
        cosine=(product / size if 0 < size < math.inf else math.nan) if scale else 1.0,
        fraction_different=unequal / a.array.size,
        nan=nan,
        other_nan=other_nan,
    )


def are_same(x: Elements | None, y: Elements | None) -> bool:
    """Return whether two values are known and the same numbers, of whatever dtype."""
    if x is None or y is None or x.array.shape != y.array.shape:
        return False
    first = [Elements(one.array.flat[:1], one.dtype) for one in (x, y)]  # it differs nearly always
    return all(difference(*two).fraction_different == 0 for two in (first, (x, y)))


class Part(NamedTuple):
    """Elements of a value that the others hide: much smaller ones, or those that rounding takes little of.

    Attributes:
        where: True for these elements.
        least: The size that each counts as at least: 1, which functions bounded by 1 round at, or the largest
            of the value if that is less.
    """

    where: np.ndarray
    least: float

    def relative(self, a: Elements, b: Elements) -> float:
        """Return the norm of the difference of these elements divided by the larger norm of them."""
        with np.errstate(invalid="ignore", over="ignore"):
            x, y = self._of(a, b)
            distance = float(np.linalg.norm(x - y))
        return distance / self.size(a, b) if distance < math.inf else math.inf

    def size(self, a: Elements, b: Elements) -> float:
        """Return the larger norm of these elements, or what that of the least ones is."""
        x, y = self._of(a, b)
        with np.errstate(over="ignore"):
            norms = [float(np.linalg.norm(one)) for one in (x, y)]
        return max(*norms, self.least * math.sqrt(x.size))

    def _of(self, a: Elements, b: Elements) -> list[np.ndarray]:
        """Return these elements of two values."""
        return [one[self.where].astype(np.float64) for one in (a.within(b), b.within(a))]


class Whole:
    """All elements of a value, measured as a ``Part`` is."""

    def relative(self, a: Elements, b: Elements) -> float:
        """Return the norm of the difference divided by the larger norm."""
        return difference(a, b).relative

    def size(self, a: Elements, b: Elements) -> float:
        """Return the larger norm, of the elements that are finite."""
        arrays = (one.astype(np.float64) for one in (a.within(b), b.within(a)))
        with np.errstate(over="ignore"):
            return max(float(np.linalg.norm(one[np.isfinite(one)])) for one in arrays)


def smaller_parts(a: Elements, b: Elements) -> Iterator[Part]:
    """Yield where two values of one shape have elements that are much smaller than all others, part by part.

    A norm is that of the largest elements: one of -1e9 in place of minus infinity, or an outlier, hides
    whatever differs in logits beside it.

    Example:
        >>> logits = plain(np.array([0.5, 2.0, -1e9, 0.0]))
        >>> [part.where.tolist() for part in smaller_parts(logits, logits)]
        [[True, True, False, False]]
    """
    if not (a.is_float and b.is_float) or a.array.size <= _LEAST:
        return
    size = _sizes(a, b)
    kept = np.isfinite(size) & (size > 0)
    powers = np.where(kept, np.frexp(size)[1] - _LEAST_POWER, 0)
    counted = np.bincount(powers[kept])
    found = np.flatnonzero(counted)
    counts = counted[found]
    least, start = _least(size), 0
    for end in (1 + np.flatnonzero(np.diff(found) > _GAP)).tolist():
        if counts[start:end].sum() >= _LEAST:
            yield Part(kept & (powers >= found[start]) & (powers <= found[end - 1]), least)
            start = end


def less_rounded(a: Elements, b: Elements, rounded: Iterable[Elements]) -> Part | None:
    """Return the rows of two values of which rounding takes much less than of others; None if there are none.

    Of a row of scores that are all masked with -1e9 rounding takes everything, and nothing of the others.

    Args:
        a: A value.
        b: The same value of another pass.
        rounded: The second one as other rounding makes it.

    Example:
        >>> masked = np.array([[0.5] * 8, [0.0] * 8])
        >>> less_rounded(plain(masked), plain(masked), [plain(masked + [[0], [1]])]).where[:, 0].tolist()
        [True, False]
    """
    shape = b.array.shape
    axis = next((axis for axis in range(len(shape), 0, -1) if math.prod(shape[axis:]) >= _ROW), 0)
    if not axis:
        return None
    own, inside = b.array.astype(np.float64), tuple(range(axis, len(shape)))
    taken = np.zeros(shape[:axis])
    with np.errstate(invalid="ignore", over="ignore"):
        for one in rounded:
            apart = np.nan_to_num(one.array.astype(np.float64) - own, nan=0.0)
            taken = np.maximum(taken, np.square(apart).sum(inside))
    less = taken * LESS**2 < taken.max()
    return part_of_rows(a, b, less) if less.any() else None


def part_of_rows(a: Elements, b: Elements, rows: np.ndarray) -> Part:
    """Return some rows of two values of one shape as a part of them.

    Args:
        a: A value.
        b: Another one.
        rows: True for these rows, by the first axes.
    """
    where = rows.reshape(*rows.shape, *[1] * (a.array.ndim - rows.ndim))
    size = _sizes(a, b)
    return Part(np.broadcast_to(where, size.shape) & np.isfinite(size), _least(size))


def _sizes(a: Elements, b: Elements) -> np.ndarray:
    """Return the larger size of each two elements."""
    found: np.ndarray = np.fmax(np.abs(a.within(b)), np.abs(b.within(a)))
    return found


def _least(size: np.ndarray) -> float:
    """Return the size that each element of a part counts as at least, of the sizes of all elements."""
    return min(1.0, float(size[np.isfinite(size)].max(initial=0.0)))


def smaller_relative(a: Elements, b: Elements) -> float:
    """Return the largest relative difference of the parts of two values that are much smaller than others.

    Example:
        >>> x, y = np.array([0.5, 2.0, -1e9]), np.array([0.5, 2.5, -1e9])
        >>> round(smaller_relative(plain(x), plain(y)), 2)
        0.2
    """
    return max((part.relative(a, b) for part in smaller_parts(a, b)), default=0.0)


def rounding(*values: Elements) -> float:
    """Return the relative difference that the rounding of one operation explains among these dtypes.

    Integers explain none.

    Example:
        >>> rounding(plain(torch.ones(1)), plain(torch.ones(1, dtype=torch.bfloat16)))
        0.03125
    """
    return ROUNDINGS * max((value.eps for value in values), default=0.0)


def half_of_digits(eps: float) -> float:
    """Return the relative difference that half of the digits of a precision tell.

    Example:
        >>> half_of_digits(2.0**-10)
        0.03125
    """
    return math.sqrt(eps)


def element_sums(value: Any) -> tuple[float, float, float]:
    """Return Σ|x|, Σx² and Σx over the elements of a value, which its layout does not affect.

    NaN for a value without comparable elements.
    """
    x = plain(value)
    if x is None or not x.array.size:
        return float("nan"), float("nan"), float("nan")
    sums = [(np.abs(n).sum(), n @ n, n.sum()) for (n,) in blocks(x.array)]
    size, squares, total = (float(sum(column)) for column in zip(*sums, strict=True))
    return size, squares, total


def same_elements(x: Elements, y: Elements) -> bool:
    """Return whether two values have the same elements, in any order, or repeated otherwise."""
    find = np.sort if x.array.size == y.array.size else np.unique
    one, two = (t._replace(array=find(t.array, axis=None)) for t in (x, y))
    if one.array.shape != two.array.shape:
        return False
    apart = difference(one, two)
    return apart.relative <= max(_SAME_ELEMENTS.get(t.dtype, SAME) for t in (x, y)) and not apart.lopsided
