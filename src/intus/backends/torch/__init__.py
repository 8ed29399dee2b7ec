"""PyTorch: forward hooks on the modules, tensor hooks for gradients, nothing left behind.

Rules that the field taught (tests hold each): a hook returns None, for a value would replace the output;
gradients are heard on the tensor, since full backward hooks break in-place operations; hooks are picklable
objects that come back as nothing, so a probed model can be saved and copied; arrays are copies, for the next
operation may write in place; a module that runs outside a call of the model (activation checkpointing runs
it again inside ``backward``) is not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from torch import nn

from ...core.address import Address
from ..base import Handle, Operation, Tap, check_kinds
from .attachment import Attachment
from .eval_forward import run_quietly, unwrapped, version
from .loaders import random_loader
from .order import first_batch, first_rows


class TorchBackend:
    """Watches any ``torch.nn.Module``, unmodified."""

    name = "torch"

    def owns(self, model: Any) -> bool:
        """Whether it is a module."""
        return isinstance(model, nn.Module)

    def operations(self, model: nn.Module) -> list[Operation]:
        """Every module that can be called, once, under the first of its names; ``ModuleList`` cannot."""
        return [
            Operation(str(Address(name)), type(module).__name__, module)
            for name, module in model.named_modules()
            if type(module).forward is not nn.Module.forward or "forward" in vars(module)
        ]

    def mode(self, model: nn.Module) -> str:
        """The training flag."""
        return "train" if model.training else "eval"

    def inner(self, model: nn.Module, *, compiled: bool) -> nn.Module:
        """What ``DistributedDataParallel``, ``DataParallel`` and, if asked, ``torch.compile`` hold."""
        return unwrapped(model, compiled=compiled)

    def rows(self, inputs: Any, axis: int) -> int | None:
        """Of the first tensor that has the axis."""
        return first_rows(inputs, axis)

    def order(self, inputs: Any) -> bytes | None:
        """Out of the first tensor's numbers."""
        return first_batch(inputs)

    def shuffled(self) -> str | None:
        """A DataLoader with a random sampler."""
        return random_loader()

    def version(self, model: nn.Module) -> int:
        """Out of the parameters' versions, which in-place writes raise."""
        return version(model)

    def run(self, model: nn.Module, inputs: Any) -> None:
        """In eval mode, without gradients; see ``quiet.py`` for what is put back."""
        run_quietly(model, inputs)

    def attach(
        self, model: nn.Module, operations: Iterable[Operation], kinds: Collection[str], tap: Tap
    ) -> Handle:
        """Register the hooks. ``parameter_grad`` is what ``backward`` has accumulated in ``.grad``."""
        return Attachment(model, list(operations), check_kinds(kinds), tap)
