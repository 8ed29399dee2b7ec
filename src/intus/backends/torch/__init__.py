"""PyTorch: forward hooks on modules, tensor hooks for gradients, nothing left behind.

Rules learned from the field, each held by a test: a hook returns None, for a value would replace the output;
gradients are observed on the tensor, since full backward hooks break in-place operations; hooks are picklable
objects that come back as nothing, so a probed model can be saved and copied; arrays are copies, for the next
operation may write in place; a module that runs outside a call of the model (activation checkpointing runs
it again inside ``backward``) is not observed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from typing import Any

from torch import nn

from ...core.address import Address
from ...core.units import axis_of_type
from ..base import GraphRecorder, Handle, Operation, Tap, check_kinds
from .attachment import Attachment
from .eval_forward import as_inputs, evaluation, unwrapped, version
from .loaders import random_loader
from .order import first_batch, first_rows


class TorchBackend:
    """Observes any ``torch.nn.Module``, unmodified; see ``Backend`` for what each method promises."""

    name = "torch"
    blind_spot = "What runs inside torch.compile is not observed: pass a model that is not compiled."

    def owns(self, model: Any) -> bool:
        """Return whether it is a module."""
        return isinstance(model, nn.Module)

    def operations(self, model: nn.Module) -> list[Operation]:
        """Return every module that can be called, once, under its first name; a ``ModuleList`` cannot."""
        return [
            Operation(str(Address(name)), type(module).__name__, module)
            for name, module in model.named_modules()
            if type(module).forward is not nn.Module.forward or "forward" in vars(module)
        ]

    def parameters(self, operation: Operation) -> list[str]:
        """Return the names in the module's own ``_parameters``."""
        return [name for name, _ in operation.module.named_parameters(recurse=False)]

    def unit_axis(self, operation: Operation, shape: tuple[int, ...]) -> int | None:
        """Return what a layer of torch's own tells, by the function of the same name: ``Conv2d``,
        ``conv2d``.
        """
        if 1 <= len(shape) <= 2:
            return len(shape) - 1
        kind = type(operation.module)
        if not kind.__module__.startswith("torch.nn.modules."):
            return None
        function = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()
        axis = axis_of_type(function, len(shape))
        return axis_of_type(re.sub(r"\dd$", "", function), len(shape)) if axis is None else axis

    def mode(self, model: nn.Module) -> str:
        """Return the training flag in words."""
        return "train" if model.training else "eval"

    def inner(self, model: nn.Module, *, compiled: bool) -> nn.Module:
        """Return what ``DistributedDataParallel``, ``DataParallel`` and, if asked, ``torch.compile`` wrap."""
        return unwrapped(model, compiled=compiled)

    def rows(self, inputs: Any, axis: int) -> int | None:
        """Return the length of the first tensor that has the axis."""
        return first_rows(inputs, axis)

    def order(self, inputs: Any) -> bytes | str | None:
        """Return a hash of the first tensor's numbers; in one of several processes, why there is none."""
        return first_batch(inputs)

    def shuffled(self) -> str | None:
        """Return the DataLoader with a random sampler that is being iterated over, in words."""
        return random_loader()

    def version(self, model: nn.Module) -> int:
        """Return a sum over the parameters' versions, which in-place writes raise."""
        return version(model)

    def inputs(self, model: nn.Module, data: Any) -> Any:
        """Return arrays as tensors on the model's device, floats in its parameters' dtype."""
        return as_inputs(model, data)

    def evaluation(self, model: nn.Module) -> AbstractContextManager[Callable[[Any], Any]]:
        """Return the context of ``eval_forward.evaluation``."""
        return evaluation(model)

    def graph_recorder(self, model: nn.Module) -> GraphRecorder | None:
        """Return the recorder of ``intus.trace``, imported now: who only attaches does not need it."""
        from ...tracing.first_pass_graph import FirstPassRecorder

        return FirstPassRecorder()

    def attach(
        self, model: nn.Module, operations: Iterable[Operation], kinds: Collection[str], tap: Tap
    ) -> Handle:
        """Register the hooks. ``parameter_grad`` is what ``backward`` has accumulated in ``.grad``."""
        return Attachment(model, list(operations), check_kinds(kinds), tap)
