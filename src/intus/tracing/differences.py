"""How far apart two tensors are, and how far rounding alone could have taken them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .replay import same

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
    return torch.view_as_real(t.resolve_conj()).cpu() if t.is_complex() else t.cpu()


def difference(a: Tensor, b: Tensor) -> Difference:
    """How far apart two tensors of one shape are; see ``plain``.

    >>> difference(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5])).largest
    0.5
    """
    if a.dtype == b.dtype and same(a, b):
        lost = int(a.isnan().sum())
        return Difference(0.0, 0.0, 1.0, 0.0, lost, lost)
    x, y = (_within(t, other.dtype).to(torch.float64) for t, other in ((a, b), (b, a)))
    nan, other_nan = x.isnan(), y.isnan()
    equal = (x == y) | (nan & other_nan)
    if not bool((x.isfinite() & y.isfinite()).all()):
        x, y = x.masked_fill(equal, 0), y.masked_fill(equal, 0)
    apart = x - y
    norms = float(x.norm()), float(y.norm())
    far, scale = float(apart.norm()), max(norms)
    if not far < float("inf"):  # an infinity or a NaN on one side
        far, scale = float("inf"), 1.0
    product = norms[0] * norms[1]
    cosine = float((x.flatten() @ y.flatten()) / product) if 0 < product < float("inf") else float("nan")
    return Difference(
        largest=float(apart.abs().nan_to_num(float("inf")).max()) if apart.numel() else 0.0,
        relative=far / scale if scale else 0.0,
        cosine=cosine if scale else 1.0,
        share=1 - float(equal.double().mean()) if equal.numel() else 0.0,
        nan=int(nan.sum()),
        other_nan=int(other_nan.sum()),
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
    x = x.to(torch.float64)
    return float(x.abs().sum()), float(x.square().sum()), float(x.sum())
