"""How far apart two tensors are, and how far rounding alone could have taken them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..results.value_summary import blocks

#: Roundings of the coarser dtype that one operation is allowed: the relative difference that one rounding
#: makes is about a third of eps, and a composite operation makes several.
ROUNDINGS = 4.0


class Difference(NamedTuple):
    """``largest`` is the greatest absolute difference, ``relative`` the norm of the difference over the
    greater norm, ``cosine`` that of the angle between the two, ``fraction_different`` the part of the
    elements that are not equal, ``nan`` and ``other_nan`` how many are NaN in the first and the second. What
    is NaN, or the same infinity, in both is left out; of two dtypes, what the narrower cannot hold counts as
    its limit."""

    largest: float
    relative: float
    cosine: float
    fraction_different: float
    nan: int
    other_nan: int

    @property
    def lopsided(self) -> bool:
        """Whether more is NaN on one side, or something infinite there alone."""
        return self.nan != self.other_nan or self.relative == float("inf")


_NONE = Difference(0.0, 0.0, 1.0, 0.0, 0, 0)


def plain(t: Tensor) -> Tensor | None:
    """The numbers of a tensor in memory, as real numbers; None where it has none that can be compared."""
    if t.is_meta or t.is_nested:
        return None
    t = t.detach()
    if t.is_quantized:
        t = t.dequantize()
    if t.layout != torch.strided:
        t = t.to_dense()
    return (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).resolve_neg().cpu()


def difference(a: Tensor, b: Tensor) -> Difference:
    """How far apart two tensors of one shape are; see ``plain``.

    >>> difference(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5])).largest
    0.5
    """
    if not a.numel() or (a.dtype == b.dtype and a.itemsize > 1 and torch.equal(a, b)):  # float8 has no equal
        return _NONE
    # Whole numbers may lie beyond what a float64 tells apart.
    exact = a.dtype == b.dtype and not a.is_floating_point()
    unequal = int((a != b).sum()) if exact else 0
    nan = other_nan = 0
    largest, squares, of_one, of_other, product = 0.0, 0.0, 0.0, 0.0, 0.0
    with np.errstate(invalid="ignore", over="ignore"):  # an infinity or a NaN on one side
        for x, y in blocks(_within(a, b.dtype), _within(b, a.dtype)):
            equal = x == y
            if not np.isfinite(x).all() or not np.isfinite(y).all():
                lost, other_lost = np.isnan(x), np.isnan(y)
                nan, other_nan = nan + int(lost.sum()), other_nan + int(other_lost.sum())
                equal |= lost & other_lost
                x, y = (np.where(equal & ~np.isfinite(t), 0.0, t) for t in (x, y))
            apart = np.where(equal, 0.0, x - y)
            unequal += 0 if exact else equal.size - int(np.count_nonzero(equal))
            largest = max(largest, float(np.abs(np.nan_to_num(apart, nan=np.inf)).max()))
            squares += float(apart @ apart)
            of_one, of_other, product = of_one + float(x @ x), of_other + float(y @ y), product + float(x @ y)
    if not (unequal or nan or other_nan):
        return _NONE
    far, norms = math.sqrt(squares), (math.sqrt(of_one), math.sqrt(of_other))
    scale, size = max(norms), norms[0] * norms[1]
    return Difference(
        largest=largest,
        relative=(far / scale if scale else 0.0) if far < math.inf else math.inf,
        cosine=(product / size if 0 < size < math.inf else math.nan) if scale else 1.0,
        fraction_different=unequal / a.numel(),
        nan=nan,
        other_nan=other_nan,
    )


def _within(t: Tensor, dtype: torch.dtype) -> Tensor:
    """Finite values within the limits of a dtype: masks are filled with the least number their dtype has."""
    if t.dtype == dtype or not (t.is_floating_point() and dtype.is_floating_point):
        return t
    limit = torch.finfo(dtype).max
    return t if torch.finfo(t.dtype).max <= limit else torch.where(t.isinf(), t, t.clamp(-limit, limit))


def rounding(*tensors: Tensor) -> float:
    """The relative difference that one operation's rounding explains among tensors of these dtypes; whole
    numbers explain none.

    >>> rounding(torch.ones(1), torch.ones(1, dtype=torch.bfloat16))
    0.03125
    """
    kinds = [t.dtype for t in tensors if t.is_floating_point() or t.is_complex()]
    return ROUNDINGS * max((torch.finfo(kind).eps for kind in kinds), default=0.0)


def held(t: Tensor) -> tuple[float, float, float]:
    """Σ|x|, Σx² and Σx of a tensor in any layout of its elements: what equal tensors share."""
    x = plain(t)
    if x is None or not x.numel():
        return float("nan"), float("nan"), float("nan")
    sums = [(np.abs(n).sum(), n @ n, n.sum()) for (n,) in blocks(x)]
    size, squares, total = (float(sum(column)) for column in zip(*sums, strict=True))
    return size, squares, total
