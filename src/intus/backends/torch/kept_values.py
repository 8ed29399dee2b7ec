"""Keep the values of a model that others are loaded into, and put them back for a while."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn.parameter import is_lazy

from ...core.errors import InputError
from .eval_forward import is_capturing
from .unseen import hidden, is_symbolic


class BeforeLoad:
    """A hook that calls a function before ``load_state_dict`` of a model, or of a part of it, writes.

    Like the other hooks it is pickled and copied as one that does nothing, without intus.

    Args:
        before: A method, which is referred to weakly.
    """

    __slots__ = ("_before",)

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = weakref.WeakMethod(before)

    def __call__(self, *args: Any) -> None:
        """Call the function."""
        before = self._before()
        if before is None or is_symbolic() or is_capturing():
            return
        with suppress(Exception), hidden():
            before()

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


def attach(model: nn.Module, before: Callable[[], None]) -> Callable[[], None]:
    """Call a method before weights are loaded into a model, and return a function that ends this."""
    hook = BeforeLoad(before)
    handles = [
        one.register_load_state_dict_pre_hook(hook)  # type: ignore[no-untyped-call]
        for one in model.modules()
    ]

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return remove


def keep_values(model: nn.Module) -> Callable[[nn.Module], AbstractContextManager[None]]:
    """Copy the parameters and buffers of a model.

    Args:
        model: The model.

    Returns:
        A function of the model, or of a twin of it. It returns a context in which that has these values.

    Example:
        >>> net = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.ones_(net.weight)
        >>> as_before = keep_values(net)
        >>> _ = nn.init.zeros_(net.weight)
        >>> with as_before(net):
        ...     net.weight.item()
        1.0
        >>> net.weight.item()
        0.0
    """
    with torch.inference_mode(False), torch.no_grad():
        return partial(_exchanged, {name: one.clone() for name, one in _tensors(model).items()})


@contextmanager
def _exchanged(values: dict[str, Tensor], model: nn.Module) -> Iterator[None]:
    """Exchange the values of a model for others in place, and then back."""
    now = _tensors(model)
    if {name: _form(one) for name, one in now.items()} != {name: _form(one) for name, one in values.items()}:
        raise InputError("its parameters or buffers are of other names, shapes, dtypes or devices now")
    done: list[str] = []
    try:
        for name, value in values.items():
            _exchange(now[name], value)
            done.append(name)
        yield
    finally:
        for name in reversed(done):  # since tensors may share memory
            _exchange(now[name], values[name])


def _exchange(one: Tensor, other: Tensor) -> None:
    # a backward that is still to come refuses tensors that it needs if they look modified
    with torch.no_grad(), hidden(), _unsafe_preserve_version_counter(one):
        before = one.clone()
        one.copy_(other)
        other.copy_(before)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    found = [*model.named_parameters(), *model.named_buffers()]
    return {name: one for name, one in found if not (is_lazy(one) or one.is_meta or one.is_inference())}


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device
