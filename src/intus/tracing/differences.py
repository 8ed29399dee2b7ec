"""How far apart two tensors are, and how far rounding alone could have taken them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

#: Roundings of the coarser dtype that one operation is allowed: the relative difference that one rounding
#: makes is about a third of eps, and a composite operation makes several.
ROUNDINGS = 4.0


class Difference(NamedTuple):
    """``largest`` is the greatest absolute difference, ``relative`` the norm of the difference over the
    greater norm, ``cosine`` that of the angle between the two, ``share`` the part of the elements that are
    not equal, ``nan`` and ``other_nan`` how many are NaN in the first and the second. What is NaN, or the
    same infinity, in both is left out; of two dtypes, what the narrower cannot hold counts as its limit."""

    largest: float
    relative: float
    cosine: float
    share: float
    nan: int
    other_nan: int

    @property
    def lopsided(self) -> bool:
        """Whether more is NaN on one side, or something infinite there alone."""
        return self.nan != self.other_nan or self.relative == float("inf")


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
    x, y = (_numbers(_within(t, other.dtype)) for t, other in ((a, b), (b, a)))
    equal = x == y if a.is_floating_point() or a.dtype != b.dtype else (a == b).numpy()
    if equal.all():
        return Difference(0.0, 0.0, 1.0, 0.0, 0, 0)
    nan, other_nan = np.isnan(x), np.isnan(y)
    lost = int(nan.sum()), int(other_nan.sum())
    if any(lost):
        equal |= nan & other_nan
    with np.errstate(invalid="ignore", over="ignore"):  # an infinity or a NaN on one side
        apart = np.where(equal, 0.0, x - y).ravel()
        one, other = (np.where(equal & ~np.isfinite(t), 0.0, t).ravel() for t in (x, y))
        far, norms = _norm(apart), (_norm(one), _norm(other))
        product, scale = norms[0] * norms[1], max(norms)
        cosine = float(one @ other / product) if 0 < product < np.inf else float("nan")
    finite = bool(far < np.inf)
    return Difference(
        largest=float(np.abs(np.nan_to_num(apart, nan=np.inf)).max()),
        relative=(far / scale if scale else 0.0) if finite else float("inf"),
        cosine=cosine if scale else 1.0,
        share=1 - float(equal.mean()),
        nan=lost[0],
        other_nan=lost[1],
    )


def _numbers(t: Tensor) -> np.ndarray:
    return t.to(torch.float64).numpy()


def _norm(x: np.ndarray) -> float:
    return float(np.sqrt(x @ x))


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
    numbers = _numbers(x).ravel()
    return float(np.abs(numbers).sum()), float(numbers @ numbers), float(numbers.sum())
