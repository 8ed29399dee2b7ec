"""The PyTorch backend: forward hooks on modules and tensor hooks for gradients, all removed on detach.

Rules, each covered by a test:

- A hook returns None, since any other value would replace the output.
- Gradients are observed on tensors, since full backward hooks break in-place operations.
- Hooks are pickled and copied as functions that do nothing, so that a probed model can be saved and copied.
- Arrays are copies, since the next operation may write in place.
- A module that runs outside a call of the model is not observed (activation checkpointing runs modules again
  inside ``backward``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from ...core.errors import InputError
from ...core.nested import leaves
from ...core.units import axis_of_type
from ..ablating import Ablations
from ..base import GraphRecorder, Handle, Operation, Tap, check_kinds
from ..feeds import Feed
from ..reading import Reading, Target
from .ablating import ablate
from .agreement import Together, job, together
from .attachment import Attachment
from .attribution import attribute
from .eval_forward import (
    as_inputs,
    buffer_fingerprint,
    evaluation,
    fingerprint,
    kernels,
    settings,
    uninitialized,
    unwrapped,
    version,
    version_by_sample,
)
from .feed import TorchFeed
from .first_call import is_compiled
from .kept_values import keep_values
from .loaders import random_loader
from .order import first_batch, first_rows, is_time_first, row_contents
from .reading import read
from .remains import remains
from .sharding import OF_PARAMETERS, address_of, class_name, is_wrapper, ranks_of, refusal, ungathered
from .state import model_state
from .weights import initialized, weights, with_weights

#: Modules whose weights are used without a call of the module.
_BYPASSED: dict[type[nn.Module], str] = {
    nn.modules.linear.NonDynamicallyQuantizableLinear: (
        "MultiheadAttention uses the weights of its out_proj without a call, so its output is not recorded. "
        "Select the attention itself."
    )
}


class TorchBackend:
    """Observes any ``torch.nn.Module``; see ``Backend`` for the contract of each method."""

    name = "torch"
    makes_statistics = True
    blind_spot = (
        "Modules inside torch.compile, torch.jit or a CUDA graph are not observed. Pass the model that is "
        "not compiled."
    )

    def owns(self, model: Any) -> bool:
        """Return whether the model is a module."""
        return isinstance(model, nn.Module)

    def operations(self, model: nn.Module) -> list[Operation]:
        """Return every module that can be called, once, under its first name.

        Containers without a ``forward``, such as ``ModuleList``, are excluded, and so are scripted modules
        with all that is inside of them, because they run outside of Python and take no hooks. A wrapper of
        FSDP1 is left out for the module inside, which has its address.

        Raises:
            InputError: If the model itself is scripted.
        """
        if isinstance(model, torch.jit.ScriptModule):
            raise InputError(
                f"The model is a {type(model).__name__} of torch.jit, whose operations run outside of Python "
                "and cannot be observed. Pass the model that it was made of."
            )
        scripted = tuple(
            name for name, module in model.named_modules() if isinstance(module, torch.jit.ScriptModule)
        )
        return [
            Operation(address_of(name), class_name(module), module, _BYPASSED.get(type(module), ""))
            for name, module in model.named_modules()
            if not (is_wrapper(module) or any(f"{name}.".startswith(f"{one}.") for one in scripted))
            and (type(module).forward is not nn.Module.forward or "forward" in vars(module))
        ]

    def parameters(self, operation: Operation) -> list[str]:
        """Return the names of the module's own parameters."""
        return [name for name, _ in operation.module.named_parameters(recurse=False)]

    def unit_axis(self, operation: Operation, shape: tuple[int, ...]) -> int | None:
        """Return the unit axis of a layer of torch.

        It is that of the function of the same name (``Conv2d``, ``conv2d``); other modules have None.
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
        """Return ``"train"`` or ``"eval"``, from the training flag."""
        return "train" if model.training else "eval"

    def has_gradients(self) -> bool:
        """Return whether what runs now is recorded for gradients."""
        return torch.is_grad_enabled()

    def inner(self, model: nn.Module, *, compiled: bool) -> nn.Module:
        """Return the module inside a wrapper for data parallelism and, with ``compiled``, for compilation."""
        return unwrapped(model, compiled=compiled)

    def rows(self, inputs: Any, axis: int) -> int | None:
        """Return the length along ``axis`` of the first tensor that has that axis.

        Raises:
            InputError: If there are packed items, of which the entries are no rows.
        """
        if leaves(inputs, PackedSequence):
            raise InputError(
                "The inputs have a PackedSequence, whose entries come in an order of their own. Pass the "
                "padded items and their lengths, and let the model pack them."
            )
        return first_rows(inputs, axis)

    def order(self, inputs: Any, axis: int) -> bytes | str | None:
        """Return a hash of the tensors' values, or the reason why there is none."""
        return first_batch(inputs, axis)

    def is_time_first(self, model: nn.Module) -> bool:
        """Return whether a module of the model has its batch along another axis than the first."""
        return is_time_first(model)

    def row_contents(self, inputs: Any, axis: int) -> np.ndarray | None:
        """Return a hash of each row of a call's arguments; None if they cannot be compared."""
        return row_contents(inputs, axis)

    def shuffled(self) -> str | None:
        """Return a description of a DataLoader with a random sampler that is being iterated over."""
        return random_loader()

    def feed(self, model: nn.Module) -> Feed:
        """Return an observer of the DataLoaders that give the model its batches."""
        return TorchFeed(model)

    def version(self, model: nn.Module) -> int:
        """Return a number that changes if parameters are written to in place or replaced."""
        return version(model)

    def fingerprint(self, model: nn.Module) -> int:
        """Return a number of the values of the parameters; 0 if it is not known."""
        return fingerprint(model)

    def writes(self, model: nn.Module) -> int:
        """Return a number that changes with a write to a parameter, as far as counts and some values show."""
        return version_by_sample(model)

    def buffers(self, model: nn.Module) -> int:
        """Return a number of the values of the buffers that a model's state has; 0 if it is not known."""
        return buffer_fingerprint(model)

    def state(self, model: nn.Module) -> Any:
        """Return a hash of weights, attributes, hooks and code; None if it cannot be known."""
        return model_state(model)

    def inputs(self, model: nn.Module, data: Any) -> Any:
        """Return arrays as tensors on the model's device, floats in the dtype of its parameters."""
        return as_inputs(model, data)

    def evaluation(self, model: nn.Module) -> AbstractContextManager[Callable[[Any], Any]]:
        """Return the context manager ``eval_forward.evaluation``."""
        return evaluation(model)

    def settings(self) -> Callable[[], AbstractContextManager[None]]:
        """Return a function that returns a context with the present autocast, default dtype and device."""
        return settings()

    def kernels(self, model: nn.Module) -> dict[str, Any]:
        """Return the settings by which torch chooses kernels for the model, by name."""
        return kernels(model)

    def remains(self, model: nn.Module) -> Callable[[], nn.Module] | None:
        """Return a function that returns a twin of a model after its end; None if there can be none."""
        return remains(model)

    def keep_values(self, model: nn.Module) -> Callable[[nn.Module], AbstractContextManager[None]]:
        """Copy the values of a model, and return a function that returns a context in which it has them."""
        return keep_values(model)

    def unobserved(self, model: nn.Module) -> str:
        """Return a warning if a module of the model was compiled, because its calls are not observed."""
        names = [name for name, module in model.named_modules() if is_compiled(module)]
        if not names:
            return ""
        what = f"Its module {names[0]!r}" if names[0] else "The model"
        return (
            f"{what} was compiled, and modules inside compiled code are not observed. Pass a probe_set, "
            "which runs uncompiled, or train the model that is not compiled."
        )

    def graph_recorder(self, model: nn.Module) -> GraphRecorder | None:
        """Return the recorder of ``intus.trace``, imported only now because attaching does not need it.

        A model of FSDP1 has none: its graph would have the addresses of the wrappers.
        """
        if any(map(is_wrapper, model.modules())):
            return None
        from ...tracing.first_pass_graph import FirstPassRecorder

        return FirstPassRecorder()

    def class_name(self, model: nn.Module) -> str:
        """Return the name of a module's class; of sharded modules, that of the module before."""
        return class_name(model)

    def refusal(self, model: nn.Module, kinds: Collection[str]) -> str | None:
        """Return the reason why a sharded or lazy model cannot be recorded; None if it can."""
        if (reason := refusal(model, kinds)) is not None:
            return reason
        return uninitialized(model) if any(kind in OF_PARAMETERS for kind in kinds) else None

    def without_probe_set(self, model: nn.Module) -> str | None:
        """Return the reason why a model cannot run a probe set; None if it can."""
        return ungathered(model) or uninitialized(model)

    def is_shared(self, model: nn.Module) -> bool:
        """Return whether several processes can run a model only together."""
        return bool(ranks_of(model))

    def job(self) -> str | None:
        """Return the name of the process group's job; "" outside of one, None if its store fails."""
        return job()

    def together(self, model: nn.Module, about: str) -> Together | None:
        """Agree with the processes that share a sharded model; None if there are none."""
        return together(ranks_of(model), about)

    def read(
        self, model: nn.Module, inputs: Any, chosen: Sequence[int | str], target: Target | None = None
    ) -> Reading:
        """Return values of operations, and gradients, of one traced pass."""
        return read(model, inputs, chosen, target)

    def ablate(
        self, model: nn.Module, inputs: Any, address: str, axis: int, changes: Sequence[Mapping[int, float]]
    ) -> Ablations:
        """Return the outputs of one traced pass, and of its reruns with units replaced by numbers."""
        return ablate(model, inputs, address, axis, changes)

    def attribute(
        self,
        model: nn.Module,
        inputs: Any,
        layers: list[Operation],
        method: str,
        target: Target,
        seed: int,
    ) -> dict[str, np.ndarray]:
        """Return attributions of layers by captum."""
        return attribute(model, inputs, layers, method, target, seed)

    def weights(self, path: Path) -> dict[str, Any]:
        """Return the state dict in a file."""
        return weights(path)

    def with_weights(self, model: nn.Module, state: Mapping[str, Any]) -> nn.Module:
        """Return a copy of a module with a state dict."""
        return with_weights(model, state)

    def initialized(self, model: nn.Module, seed: int) -> nn.Module:
        """Return a newly initialized copy of a module."""
        return initialized(model, seed)

    def attach(
        self, model: nn.Module, operations: Iterable[Operation], kinds: Collection[str], tap: Tap
    ) -> Handle:
        """Register the hooks. ``parameter_grad`` is the gradient accumulated in ``.grad`` by ``backward``."""
        return Attachment(model, list(operations), check_kinds(kinds), tap)
