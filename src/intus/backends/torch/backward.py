"""Tell whether a backward pass comes through what a call of a model computed."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor

from ...core.nested import leaves


class BackwardPasses:
    """The backward passes through one call; implements ``backends.feeds.Backward``.

    The nodes of autograd's graph that made what modules returned have a hook. After the call they alone refer
    to it: once it is gone, so is the graph. A loss may use any of them, whatever the call returned.
    """

    def __init__(self) -> None:
        self.has_come = False
        self._hook: _OnBackward | None = _OnBackward(self)  # until the call ends
        self._alive = weakref.ref(self._hook)
        self._given: set[Any] = set()

    def begin(self, inputs: Any) -> None:
        """Register the inputs of the call: a backward pass through what made them may leave the call out."""
        self._given = {tensor.grad_fn for tensor in leaves(inputs, Tensor)}

    def observe(self, output: Any) -> None:
        """Observe what a module, or the call itself, returned."""
        for tensor in [output] if isinstance(output, Tensor) else leaves(output, Tensor):
            node = tensor.grad_fn
            if node is not None and node not in self._given and self._hook is not None:
                node.register_prehook(self._hook)

    def end(self) -> None:
        """Register the end of the call."""
        self._hook = None
        self._given.clear()

    def may_come(self) -> bool:
        """Return whether one may still come, because autograd's graph exists."""
        return self._alive() is not None


class _OnBackward:
    __slots__ = ("__weakref__", "_passes")

    def __init__(self, passes: BackwardPasses) -> None:
        self._passes = passes

    def __call__(self, gradients: Any) -> None:
        self._passes.has_come = True
