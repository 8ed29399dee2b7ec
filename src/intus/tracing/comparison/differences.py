"""Measure how far apart two tensors are, and how far rounding alone could have taken them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..capture.memory import local_of
from ..replaying.replay import same
from ..results.arrays import blocks

#: The relative difference that one operation may have, in eps of the coarser dtype. One rounding makes about
#: a third of eps, and a composite operation rounds several times.
ROUNDINGS = 4.0


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
        """Whether one tensor has more NaN than the other, or an infinity that the other has not."""
        return self.nan != self.other_nan or self.relative == float("inf")


_NONE = Difference(0.0, 0.0, 1.0, 0.0, 0, 0)


def plain(t: Tensor) -> Tensor | None:
    """Return the elements of a tensor as real numbers on the CPU; None if they cannot be compared.

    Complex numbers become pairs; quantized and sparse tensors become dense. Of a ``DTensor`` this is the part
    of this process.
    """
    t = local_of(t)
    if t.is_meta or t.is_nested:
        return None
    t = t.detach()
    if t.is_quantized:
        t = t.dequantize()
    if t.layout != torch.strided:
        t = t.to_dense()
    return (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).resolve_neg().cpu()


def difference(a: Tensor, b: Tensor) -> Difference:
    """Return the difference of two tensors of one shape, as ``plain`` returns them.

    Example:
        >>> difference(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5])).largest
        0.5
    """
    # NaN are counted below. torch.equal has no float8, and takes 0.0 for -0.0.
    if not a.numel() or (a.dtype == b.dtype and a.itemsize > 1 and torch.equal(a, b) and same(a, b)):
        return _NONE
    # float64 does not represent every int64, so integers are also compared exactly.
    exact = a.dtype == b.dtype and not a.is_floating_point()
    unequal = int((a != b).sum()) if exact else 0
    nan = other_nan = 0
    largest, squares, squares_a, squares_b, product = 0.0, 0.0, 0.0, 0.0, 0.0
    with np.errstate(invalid="ignore", over="ignore"):  # an infinity or a NaN on one side
        for x, y in blocks(_within(a, b.dtype), _within(b, a.dtype)):
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
        fraction_different=unequal / a.numel(),
        nan=nan,
        other_nan=other_nan,
    )


def _within(t: Tensor, dtype: torch.dtype) -> Tensor:
    """Clamp finite values to the limits of a dtype: masks are often filled with the least value of theirs."""
    if t.dtype == dtype or not (t.is_floating_point() and dtype.is_floating_point):
        return t
    limit = torch.finfo(dtype).max
    return t if torch.finfo(t.dtype).max <= limit else torch.where(t.isinf(), t, t.clamp(-limit, limit))


def rounding(*tensors: Tensor) -> float:
    """Return the relative difference that the rounding of one operation explains among these dtypes.

    Integers explain none.

    Example:
        >>> rounding(torch.ones(1), torch.ones(1, dtype=torch.bfloat16))
        0.03125
    """
    kinds = [t.dtype for t in tensors if t.is_floating_point() or t.is_complex()]
    return ROUNDINGS * max((torch.finfo(kind).eps for kind in kinds), default=0.0)


def element_sums(t: Tensor) -> tuple[float, float, float]:
    """Return Σ|x|, Σx² and Σx over the elements of a tensor, which its layout does not affect.

    NaN for a tensor without comparable elements.
    """
    x = plain(t)
    if x is None or not x.numel():
        return float("nan"), float("nan"), float("nan")
    sums = [(np.abs(n).sum(), n @ n, n.sum()) for (n,) in blocks(x)]
    size, squares, total = (float(sum(column)) for column in zip(*sums, strict=True))
    return size, squares, total
