"""Read the tensors that ``vmap`` and other transforms of ``torch.func`` wrap, while a transform runs."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch._C._functorch import get_unwrapped, is_batchedtensor, maybe_get_bdim, maybe_get_level
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from ..capture.containers import is_wrapped

#: A context in which no transform applies to what runs, so that plain tensors stay plain.
outside_transforms = temporarily_clear_interpreter_stack


class Wrapper(NamedTuple):
    """One wrapper around a tensor.

    Attributes:
        level: The level of the transform that made it.
        batch_axis: The axis over which ``vmap`` runs; -1 if another transform made the wrapper.
    """

    level: int
    batch_axis: int


def unwrapped(t: Tensor) -> list[Tensor]:
    """Return a tensor and the tensors inside it, the innermost last; most tensors have none inside."""
    chain = [t]
    while is_wrapped(chain[-1]):
        chain.append(get_unwrapped(chain[-1]))
    return chain


def wrappers(t: Tensor) -> list[Wrapper]:
    """Return the wrappers around the innermost tensor, the outermost first."""
    return [
        Wrapper(maybe_get_level(one) or 0, maybe_get_bdim(one) if is_batchedtensor(one) else -1)
        for one in unwrapped(t)[:-1]
    ]
