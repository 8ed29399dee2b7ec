"""Convert activations before they are saved: to another device or dtype, or by a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ....core.errors import InputError
from ..context.randomness import common_generators, preserve_generators
from ..memory import copied

#: What ``Tensor.to`` takes: a device, a dtype, a tensor to be like, or a tuple or dict of its arguments.
To = str | torch.device | torch.dtype | Tensor | tuple[Any, ...] | dict[str, Any]


class Form:
    """Converts activations into the form in which they are saved.

    Args:
        to: A device, dtype or other arguments of ``Tensor.to``; only floating point tensors change dtype.
        transform: A function of a copy of the activation that returns the tensor to save.
        copy: Whether to copy at once instead of only before something writes to the activation's memory.

    Raises:
        InputError: If an argument is not one of these.

    Attributes:
        plain: Whether no conversion was asked for.
        changes: The option that has made saved values differ from the activations, for error messages; ``""``
            if none has.

    Example:
        >>> Form(to=("cpu", torch.float16)).apply(torch.ones(2))
        tensor([1., 1.], dtype=torch.float16)
    """

    def __init__(
        self, to: To | None = None, transform: Callable[[Tensor], Tensor] | None = None, copy: bool = False
    ) -> None:
        if transform is not None and not callable(transform):
            raise InputError(f"transform must be a function of a tensor, got {transform!r}.")
        if not isinstance(copy, bool):
            raise InputError(f"copy must be True or False, got {copy!r}.")
        self._device, self._dtype = _target(to)
        self._transform, self._copy, self._to = transform, copy, to
        self.plain = to is None and transform is None and not copy
        self.changes = ""

    def apply(self, t: Tensor) -> Tensor:
        """Return the tensor to save for a detached activation.

        The activation, grad mode and random state remain unchanged.

        Raises:
            InputError: If ``transform`` does not return a tensor.
        """
        result = t
        if self._transform is not None:
            result = self._transformed(t)
        if self._to is not None:
            result = self._moved(result)
        if (result.dtype, result.device, result.shape) != (t.dtype, t.device, t.shape):
            self.changes = self.changes or f"to={self._to!r}"
        return copied(result) if self._copy and _shares_memory(result, t) else result

    def _transformed(self, t: Tensor) -> Tensor:
        function = self._transform
        assert function is not None
        name = getattr(function, "__qualname__", repr(function))
        self.changes = f"transform={name}"
        with torch.no_grad(), preserve_generators(common_generators()):
            made = function(copied(t))  # a copy, because it may write into it
        if not isinstance(made, Tensor):
            raise InputError(f"transform must return a tensor, {name} returned {type(made).__name__}.")
        made = made.detach()
        return made.clone() if _is_part(made) else made

    def _moved(self, t: Tensor) -> Tensor:
        """Apply ``to``; integers and booleans keep their dtype, as in ``Module.to``."""
        dtype = self._dtype if self._dtype is not None and t.is_floating_point() else t.dtype
        return t.to(t.device if self._device is None else self._device, dtype)


def _target(to: To | None) -> tuple[torch.device | None, torch.dtype | None]:
    """Return the device and the dtype that ``to`` specifies, each None if it does not."""
    if to is None:
        return None, None
    args = to if isinstance(to, tuple) else () if isinstance(to, dict) else (to,)
    try:
        device, dtype, *_ = torch._C._nn._parse_to(*args, **(to if isinstance(to, dict) else {}))
        torch.empty(0, device=device, dtype=dtype)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"to={to!r} cannot be passed to Tensor.to ({reason}). Write a device ('cpu'), a dtype "
            "(torch.float16), or both in a tuple."
        ) from None
    if dtype is not None and not dtype.is_floating_point:
        raise InputError(
            f"The dtype of to={to!r} must be floating point, because only floating point tensors are "
            "converted. For other conversions use transform=lambda t: t.to(…)."
        )
    return device, dtype


def _shares_memory(a: Tensor, b: Tensor) -> bool:
    try:
        return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return a is b


def _is_part(t: Tensor) -> bool:
    """Return whether a tensor keeps more memory alive than it views."""
    try:
        return t.untyped_storage().nbytes() > t.numel() * t.element_size()
    except (RuntimeError, NotImplementedError):
        return False
