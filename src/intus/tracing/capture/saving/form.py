"""In what form activations are kept: elsewhere, as another dtype, or what a function makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ....core.errors import InputError
from ..context.randomness import common_generators, put_back
from ..memory import copied

#: What ``Tensor.to`` takes: a device, a dtype, a tensor to be like, or a tuple or dict of its arguments.
To = str | torch.device | torch.dtype | Tensor | tuple[Any, ...] | dict[str, Any]


class Form:
    """Turns an activation into what is kept of it.

    ``changes`` says in words what makes the kept values others than those that were, ``""`` if nothing does.

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
        """What is kept of a detached tensor; RNG and grad mode are left alone, and so is ``t``."""
        kept = t
        if self._transform is not None:
            kept = self._transformed(t)
        if self._to is not None:
            kept = self._moved(kept)
        if (kept.dtype, kept.device, kept.shape) != (t.dtype, t.device, t.shape):
            self.changes = self.changes or f"to={self._to!r}"
        return copied(kept) if self._copy and _shares(kept, t) else kept

    def _transformed(self, t: Tensor) -> Tensor:
        function = self._transform
        assert function is not None
        name = getattr(function, "__qualname__", repr(function))
        self.changes = f"transform={name}"
        with torch.no_grad(), put_back(common_generators()):
            made = function(copied(t))  # what it writes into is its own
        if not isinstance(made, Tensor):
            raise InputError(f"transform must return a tensor, {name} returned {type(made).__name__}.")
        made = made.detach()
        return made.clone() if _is_part(made) else made

    def _moved(self, t: Tensor) -> Tensor:
        """Whole numbers and masks keep their dtype, as they do in ``Module.to``."""
        dtype = self._dtype if self._dtype is not None and t.is_floating_point() else t.dtype
        return t.to(t.device if self._device is None else self._device, dtype)


def _target(to: To | None) -> tuple[torch.device | None, torch.dtype | None]:
    """The device and the dtype that ``to`` means, each None where it says nothing of it."""
    if to is None:
        return None, None
    args = to if isinstance(to, tuple) else () if isinstance(to, dict) else (to,)
    try:
        device, dtype, *_ = torch._C._nn._parse_to(*args, **(to if isinstance(to, dict) else {}))
        torch.empty(0, device=device, dtype=dtype)
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise InputError(
            f"to={to!r} is nothing that Tensor.to takes here ({said}). Write a device ('cpu'), a dtype "
            "(torch.float16), or both in a tuple."
        ) from None
    if dtype is not None and not dtype.is_floating_point:
        raise InputError(
            f"to={to!r} is no dtype of floating point numbers, and no others are converted. For anything "
            "else use transform=lambda t: t.to(…)."
        )
    return device, dtype


def _shares(a: Tensor, b: Tensor) -> bool:
    try:
        return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return a is b


def _is_part(t: Tensor) -> bool:
    """Whether a tensor holds on to more memory than it shows."""
    try:
        return t.untyped_storage().nbytes() > t.numel() * t.element_size()
    except (RuntimeError, NotImplementedError):
        return False
