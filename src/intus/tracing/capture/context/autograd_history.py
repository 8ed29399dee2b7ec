"""Restore the autograd history of tensors that existed before a pass and that it writes into."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.autograd.graph import saved_tensors_hooks

from ..memory import memory_of


class AutogradHistory:
    """Gives tensors a second autograd history while a pass writes into them.

    An in-place operation becomes the last step in the history of a tensor, and torch has no way back: a later
    backward pass would run through the traced pass, without an error. So before the first write, the C++ part
    of the tensor is exchanged with that of a stand-in: an alias of its memory whose history continues that of
    the tensor. The pass writes into the stand-in, with the gradients that it would have anyway. ``restore``
    exchanges the two back.

    A view is exchanged together with its base, because a write into a view is a step in the history of both.
    """

    def __init__(self) -> None:
        self._exchanged: list[tuple[Tensor, Tensor]] = []
        self._retaining: list[Tensor] = []  # tensors whose gradients the user retains
        self._bases: dict[int, Tensor] = {}  # by id of the stand-in, which is the base of the other views

    def before_writing(self, t: Tensor) -> None:
        """Exchange a tensor that has a history with its stand-in, unless this was done before.

        Args:
            t: The tensor that the pass is about to write into.
        """
        if any(t is one for one, _ in self._exchanged):
            return
        base = t._base
        with torch.inference_mode(False), torch.enable_grad():
            if base is None or memory_of(base) != memory_of(t):  # FSDP assigns ``data`` of views
                self._exchange(t, Alias.apply(t))  # type: ignore[no-untyped-call]
                return
            base = self._bases.get(id(base), base)
            if all(base is not one for one, _ in self._exchanged):
                self._exchange(base, Alias.apply(base))  # type: ignore[no-untyped-call]
            self._exchange(t, base.as_strided(t.shape, t.stride(), t.storage_offset()))

    def _exchange(self, t: Tensor, stand_in: Tensor) -> None:
        if t.retains_grad:
            _release(t)
            self._retaining.append(t)
        self._exchanged += [(t, stand_in)]  # first, because an interrupt may be raised after the exchange
        try:
            torch._C._swap_tensor_impl(t, stand_in)
        except RuntimeError:
            self._exchanged.pop()
            raise
        self._bases[id(stand_in)] = t

    def restore(self) -> None:
        """Give every tensor its own history again."""
        while self._exchanged:
            t, stand_in = self._exchanged.pop()
            if t.retains_grad:  # the model called ``retain_grad``
                _release(t)
            torch._C._swap_tensor_impl(t, stand_in)
        while self._retaining:
            t = self._retaining.pop()
            grad = t.grad
            torch._C._swap_tensor_impl(t, _twin(t))
            t.retain_grad()
            t.grad = grad
        self._bases.clear()


def _release(t: Tensor) -> None:
    """Undo ``retain_grad``: it makes the node refer to the tensor, and torch then refuses to exchange it.

    A node refers to one tensor for each of its outputs. So a twin that retains its gradient takes the place.
    """
    _twin(t).retain_grad()


def _twin(t: Tensor) -> Tensor:
    """Return another tensor with the memory of ``t`` that is the same output of the same node."""
    with torch.inference_mode(False), torch.enable_grad(), saved_tensors_hooks(Tensor.detach, _unchanged):
        node: Any = (t * t).grad_fn
        twin: Tensor = node._saved_self
        return twin


def _unchanged(t: Tensor) -> Tensor:
    return t


class Alias(Function):
    """Returns an alias of a tensor's memory, which is no view, so that it can be written into."""

    @staticmethod
    def forward(ctx: FunctionCtx, t: Tensor) -> Tensor:
        """Return the alias."""
        return t.detach()

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Any) -> Any:
        """Return the gradient unchanged."""
        return grads[0]
