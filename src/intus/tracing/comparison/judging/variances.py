"""Compute variances as a difference, as some kernels do.

The mean of the squares less the square of the mean is a variance too, but of numbers that are far from 0 it
is the small difference of two large ones, of which little is left after rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class VariancesAsDifferences(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, norms and variances of PyTorch are computed from the mean of the squares.

    Attributes:
        found: Whether any was.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and return what it would with its variance as a difference."""
        result = func(*args, **(kwargs or {}))  # it also writes running statistics
        otherwise = _WAYS.get(func.overloadpacket.__name__)
        out = None if otherwise is None else otherwise(*args, **(kwargs or {}))
        if out is None:
            return result
        self.found = True
        return (out.to(result[0].dtype), *result[1:]) if isinstance(result, tuple) else out.to(result.dtype)


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    return _affine(_normed(x, range(-len(shape), 0), eps), weight, bias)


def _group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> Tensor:
    out = _normed(x.reshape(n, groups, -1), (-1,), eps).reshape(x.shape)
    return _affine(out, *(_by_channel(t, x) for t in (weight, bias)))


def _batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, *settings: Any) -> Tensor | None:
    *_, is_training, _, eps = settings  # the running statistics come before, if there are any
    if not is_training:
        return None
    out = _normed(x, [axis for axis in range(x.ndim) if axis != 1], eps)
    return _affine(out, *(_by_channel(t, x) for t in (weight, bias)))


def _var(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor | None:
    if x.is_complex():
        return None
    dims = [*dim] if dim else [*range(x.ndim)]
    _, variance = _moments(x, dims)
    count = x.numel() / max(variance.numel(), 1)
    free = count - (1 if correction is None else correction)
    if free <= 0:
        return None
    return (variance if keepdim else variance.squeeze(dims)) * (count / free)


def _std(*args: Any, **kwargs: Any) -> Tensor | None:
    out = _var(*args, **kwargs)
    return None if out is None else out.sqrt()


def _normed(x: Tensor, dims: Sequence[int], eps: float) -> Tensor:
    mean, variance = _moments(x, dims)
    return (_wide(x) - mean) * torch.rsqrt(variance + eps)


def _moments(x: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the mean and the variance along some axes, which are kept."""
    x = _wide(x)
    mean, squares = (t.mean([*dims], keepdim=True) for t in (x, x * x))
    return mean, (squares - mean * mean).clamp_min(0)


def _wide(x: Tensor) -> Tensor:
    """Return a tensor in the precision that kernels compute moments in, which is float32 at least."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _by_channel(t: Tensor | None, x: Tensor) -> Tensor | None:
    return None if t is None else t.reshape(-1, *[1] * (x.ndim - 2))


#: How the first result of an operation is computed then; None where that is no variance.
_WAYS: dict[str, Callable[..., Tensor | None]] = {
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"), _batch_norm),
    **dict.fromkeys(("var", "var_mean"), _var),
    **dict.fromkeys(("std", "std_mean"), _std),
}
