"""Restore what a pass changed: memory that existed before it, and attributes of modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from ..memory import is_foreign, is_freed, memory_of
from .attributes import Attributes
from .autograd_flags import Flags
from .autograd_history import AutogradHistory
from .reachable import stateful
from .sharded_parameters import ShardedParameters


class StateRestorer:
    """Copies memory before the pass writes to it, and attributes of modules, and restores them at the end.

    Nothing is copied before ``watch`` is called.

    Attributes:
        lost: The tensors that could not be restored, because their memory was freed and not all of it had
            been copied.
        memories: The memories that existed before the pass, as far as is known.
    """

    def __init__(self) -> None:
        self.lost: list[Tensor] = []
        self.memories: set[int] = set()
        self._allocated: set[int] = set()  # memories that operations of the pass allocated
        self._sizes: dict[int, tuple[Tensor, int]] = {}  # of memories known before the pass, in bytes
        self._watching = False
        self._emptied: set[int] = set()  # memories that were freed or shrunk
        self._attributes = Attributes()
        self._sharded = ShardedParameters()
        #: By memory, geometry and dtype: the tensor, an alias of its data, and a copy of its values.
        self._undo: dict[Any, tuple[Tensor, Tensor, Tensor]] = {}
        self._leaves: dict[int, Tensor] = {}  # by id: tensors without autograd history that were written to
        self._history = AutogradHistory()  # of the other tensors that were written to
        #: Tensors with their gradients from before the first backward pass, and copies of these.
        self._gradients: list[tuple[Tensor, Tensor | None, Tensor | None]] = []
        self._versions: list[_unsafe_preserve_version_counter] = []  # from before each first write
        self._flags: dict[int, Flags] = {}  # by id of the tensor

    def watch(self, modules: Iterable[Module]) -> None:
        """Start copying: the attributes of these modules now, memory before each write."""
        self._watching = True
        for module in modules:
            self.add_module(module)

    def add_module(self, module: Module) -> None:
        """Copy the attributes of a module that the pass has met."""
        if self._watching:
            self._attributes.remember(module)
            self._sharded.remember(module)

    def add_late_module(self, module: Module) -> None:
        """Notice what changes in a module that the pass has met and that was not found before it."""
        if self._watching:
            self._attributes.remember_late(module)

    def add_reachable(self, *values: Any) -> None:
        """Copy the state of the modules, optimizers and generators that a call can reach.

        Args:
            *values: What the call consists of.
        """
        if not self._watching:
            return
        for found in stateful(*values):
            if isinstance(found, Optimizer):
                self._attributes.remember_optimizer(found)
                for state in found.state.values():
                    self._add_all(state.values() if isinstance(state, dict) else ())
                continue
            if not isinstance(found, Module):
                self._attributes.remember_generator(found)
                continue
            for module in found.modules():
                self.add_module(module)
                self._add_all(module._parameters.values())
                self._add_all(module._buffers.values())

    def _add_all(self, values: Iterable[Any]) -> None:
        for t in values:
            if isinstance(t, Tensor) and not is_lazy(t):
                self.add(t)

    def changed_late(self) -> list[Module]:
        """Return the modules whose attributes ``restore`` cannot restore, and that changed."""
        return self._attributes.changed_late()

    def add_arguments(self, values: Any) -> None:
        """Copy the attributes and elements of the objects among the arguments of the pass."""
        if self._watching:
            self._attributes.remember_arguments(values)

    def add(self, t: Tensor, *, in_use: bool = True) -> None:
        """Record that the memory of ``t`` existed before the pass.

        Args:
            t: The tensor.
            in_use: Whether it had this size before the pass. Memory that is met during the pass may have been
                allocated for it, and be freed at its end.
        """
        memory = memory_of(t)
        if memory is not None and memory not in self._allocated:
            self.memories.add(memory)
            if in_use:
                self._sizes.setdefault(memory, (t, t.untyped_storage().nbytes()))

    def add_allocated(self, t: Tensor) -> None:
        """Record that an operation of the pass allocated the memory of ``t``, unless it is known from before.

        A module that the pass creates is met later, when it is first called. Its memory is not restored.
        """
        memory = memory_of(t)
        if self._watching and memory is not None and memory not in self.memories and not is_foreign(t):
            self._allocated.add(memory)

    def existed(self, t: Tensor) -> bool:
        """Return whether the memory of ``t`` existed before the pass, as far as is known."""
        return memory_of(t) in self.memories

    def before_writing(self, t: Tensor, copy: Tensor | None = None) -> None:
        """Copy the values of ``t``, which is about to be written, if its memory existed before the pass.

        Args:
            t: The tensor.
            copy: A copy of its values, if there is one already.
        """
        memory = memory_of(t) if self._watching else None
        if memory not in self.memories or is_freed(t):
            return
        self.before_flagging(t)
        for one in (t, t if t._base is None else t._base):
            if one.is_leaf:
                self._leaves[id(one)] = one
        if t.requires_grad and not t.is_leaf:
            self._history.before_writing(t)
        key = (memory, t.storage_offset(), t.shape, t.stride(), t.dtype)
        if key not in self._undo and memory not in self._emptied:  # else these are not the contents of before
            self._undo[key] = (t, t.data, t.detach().clone() if copy is None else copy)
            if not t.is_inference():
                self._versions.append(_unsafe_preserve_version_counter(t))

    def before_shrinking(self, storage: torch.UntypedStorage) -> None:
        """Remember that memory loses what it contained before the pass, also if it is allocated again."""
        if self._watching and storage._cdata in self.memories:
            self._emptied.add(storage._cdata)

    def before_backward(self) -> None:
        """Remember the gradients of the parameters and inputs, to which a backward pass is about to add."""
        if not self._watching or self._gradients:
            return
        for t, _ in self._sizes.values():
            if t.is_leaf and t.requires_grad:
                grad = t.grad
                self._gradients.append((t, grad, None if grad is None else grad.detach().clone()))

    def before_flagging(self, t: Tensor) -> None:
        """Remember how autograd treats ``t``, if it is from before the pass, which is about to change that.

        Of a view under ``no_grad``, torch does not say so once its base was written to.
        """
        is_plain = not t._is_view() or torch.is_grad_enabled()
        if self._watching and is_plain and self.existed(t) and id(t) not in self._flags:
            self._flags[id(t)] = Flags(t, has_own_gradient=not self._gradients)

    def _restore_gradients(self) -> None:
        for t, grad, before in self._gradients:
            if grad is not None and before is not None:
                with _unsafe_preserve_version_counter(grad):
                    grad.data.copy_(before)
            t.grad = grad
        self._gradients.clear()

    def gathered(self) -> list[Tensor]:
        """Return the tensors whose memory ``restore`` will free."""
        return self._sharded.gathered()

    def modified(self) -> list[Tensor]:
        """Return aliases of the tensors from before the pass that it wrote to."""
        return [t for _, t, _ in self._undo.values()]

    def changed_attributes(self) -> list[tuple[Any, Any]]:
        """Return what the pass assigned: dicts of attributes with a key, and containers with None."""
        return list(self._attributes.changed())

    def restore(self) -> None:
        """Undo the writes, last first, and then restore the attributes of modules.

        Values are copied through ``.data``, which autograd does not track. Versions are restored too, because
        a later backward pass would refuse tensors that look modified. Tensors that had no autograd history
        have none again, for example a buffer that averages activations; others have their own.
        """
        self._sharded.restore()
        self._history.restore()
        self._restore_gradients()
        self._reallocate()
        for tensor, data, before in reversed(list(self._undo.values())):
            if is_freed(data):
                continue
            with torch.no_grad(), torch.inference_mode(data.is_inference()):
                _write(data, before)
                if _geometry_differs(tensor, data):  # it was resized, or its ``data`` was set
                    tensor.data = data
        for t in self._leaves.values():
            # A view is detached with its base, and torch may refuse to return the ``grad_fn`` of one.
            if not t._is_view() and t.grad_fn is not None:
                t.detach_()
        self._leaves.clear()
        for flags in self._flags.values():
            flags.restore()
        self._flags.clear()
        while self._versions:
            self._versions.pop().__exit__()
        self._undo.clear()
        self._attributes.restore()

    def _reallocate(self) -> None:
        """Allocate memory again that the pass freed, if all of its contents were copied."""
        for memory, (t, size) in self._sizes.items():
            is_large_enough = t.untyped_storage().nbytes() >= size
            if memory_of(t) != memory or (is_large_enough and memory not in self._emptied):
                continue
            if any(key[0] == memory and copy.nbytes == size for key, (*_, copy) in self._undo.items()):
                if not is_large_enough:
                    t.untyped_storage().resize_(size)
            else:
                self.lost.append(t)
        self._sizes.clear()
        self._emptied.clear()


def _write(data: Tensor, values: Tensor) -> None:
    """Copy values into a tensor, which may be expanded: torch refuses to write an element several times."""
    if data.layout == torch.strided:
        for axis, (length, step) in enumerate(zip(data.shape, data.stride(), strict=True)):
            if length > 1 and step == 0:
                data, values = data.narrow(axis, 0, 1), values.narrow(axis, 0, 1)
    data.copy_(values)


def _geometry_differs(one: Tensor, other: Tensor) -> bool:
    return memory_of(one) != memory_of(other) or (
        (one.storage_offset(), one.shape, one.stride())
        != (other.storage_offset(), other.shape, other.stride())
    )
