"""Restore how autograd treats a tensor: whether it requires a gradient, its gradient, and its hooks."""

from __future__ import annotations

from torch import Tensor

#: The attributes of a tensor with its hooks, each a mapping or None.
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class Flags:
    """The settings of autograd for one tensor, from before the pass.

    Args:
        t: The tensor.
        has_own_gradient: Whether its present gradient is the one from before the pass.
    """

    def __init__(self, t: Tensor, *, has_own_gradient: bool) -> None:
        self._tensor, self._required, self._is_leaf = t, t.requires_grad, t.is_leaf
        self._restores_gradient = has_own_gradient and t.is_leaf
        self._grad = t.grad if self._restores_gradient else None
        hooks = {name: getattr(t, name, None) for name in _HOOKS}
        self._hooks = {name: None if found is None else set(found) for name, found in hooks.items()}

    def restore(self) -> None:
        """Restore all of it."""
        t = self._tensor
        if self._restores_gradient and t.grad is not self._grad:
            t.grad = self._grad
        if self._is_leaf and t.is_leaf and t.requires_grad != self._required:
            t.requires_grad_(self._required)
        for name, before in self._hooks.items():
            hooks = getattr(t, name, None)
            if hooks is None:
                continue
            for key in [key for key in hooks if before is None or key not in before]:
                del hooks[key]
            if before is None:  # otherwise torch adds later hooks to this mapping, which it may not use
                setattr(t, name, None)
