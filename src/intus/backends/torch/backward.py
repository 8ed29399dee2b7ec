"""Tell whether a backward pass comes through what a call of a model returned."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor

from ...core.nested import leaves


class BackwardPasses:
    """The backward passes through the outputs of one call; implements ``backends.feeds.Backward``.

    The nodes of autograd's graph have a hook, and alone refer to it: once it is gone, so is the graph.

    Args:
        output: What the call returned.
    """

    def __init__(self, output: Any) -> None:
        self.has_come = False
        hook = _OnBackward(self)
        for tensor in leaves(output, Tensor):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(hook)
        self._hook = weakref.ref(hook)

    def may_come(self) -> bool:
        """Return whether one may still come, because autograd's graph exists."""
        return self._hook() is not None


class _OnBackward:
    __slots__ = ("__weakref__", "_passes")

    def __init__(self, passes: BackwardPasses) -> None:
        self._passes = passes

    def __call__(self, gradients: Any) -> None:
        self._passes.has_come = True
