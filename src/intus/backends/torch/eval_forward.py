"""Calls of a model in evaluation mode that leave no mark on its training.

Gradients are off; training flags, buffers, random states and autocast's cache are restored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_PARALLEL = (nn.parallel.DistributedDataParallel, nn.DataParallel)


@contextmanager
def evaluation(model: nn.Module) -> Iterator[Callable[[Any], Any]]:
    """Put a model into evaluation mode, without gradients, and restore everything at the end.

    Yields:
        A function that calls the model with a tensor, a tuple of positional arguments or a mapping of
        keywords, moved to the device of its parameters, and returns the output.

    Example:
        >>> net = nn.Dropout()
        >>> with evaluation(net) as run:
        ...     run(torch.ones(3)).tolist()
        [1.0, 1.0, 1.0]
        >>> net.training
        True
    """
    device = next((p.device for p in model.parameters()), None)

    def run(inputs: Any) -> Any:
        given = _moved(inputs, device)
        with torch._C._EnableTorchFunction():  # it is off in a hook of ours, where this may run
            if isinstance(given, Mapping):
                return model(**given)
            return model(*given if isinstance(given, tuple) else (given,))

    with _as_it_was(model), torch.no_grad(), _without_autocast_cache():
        yield run


def as_inputs(model: nn.Module, data: Any) -> Any:
    """Return data as the model takes them: arrays as tensors on its device, floats in its dtype."""
    if isinstance(data, Mapping):
        return {name: as_inputs(model, value) for name, value in data.items()}
    if isinstance(data, tuple):
        return tuple(as_inputs(model, value) for value in data)
    if isinstance(data, np.ndarray):
        data = torch.from_numpy(np.ascontiguousarray(data))
    if not isinstance(data, Tensor):
        return data
    parameter = next(iter(model.parameters()), None)
    if parameter is None:
        return data
    floats = data.is_floating_point() and parameter.is_floating_point()
    return data.to(parameter.device, parameter.dtype if floats else None)


def unwrapped(model: nn.Module, *, compiled: bool) -> nn.Module:
    """Return the module inside the wrapper of data parallelism or, with ``compiled``, of torch.compile.

    Such a wrapper may talk to other processes in every call: a call in one process alone would wait for them.
    """
    inner = model._modules.get("module" if isinstance(model, _PARALLEL) else "_orig_mod")
    if inner is None or not (compiled or isinstance(model, _PARALLEL)):
        return model
    return unwrapped(inner, compiled=compiled)


def version(model: nn.Module) -> int:
    """Return a number that changes when an optimizer writes to the parameters."""
    return sum(p._version + p.data_ptr() for p in model.parameters() if not p.is_meta)


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    modules = list(model.modules())
    flags = [module.training for module in modules]
    buffers = [dict(module._buffers) for module in modules]
    values = {id(b): (b, b._version, b.clone()) for held in buffers for b in held.values() if b is not None}
    python, own = random.getstate(), np.random.get_state()
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices):
        for module in modules:
            module.training = False  # not ``eval()``, which a model may have made its own
        try:
            yield
        finally:
            for module, flag, held in zip(modules, flags, buffers, strict=True):
                module.training = flag
                if any(module._buffers.get(name) is not buffer for name, buffer in held.items()):
                    module._buffers.update(held)
            with torch.no_grad():
                for buffer, before, value in values.values():
                    if buffer._version != before:
                        buffer.copy_(value)
            random.setstate(python)
            np.random.set_state(own)


@contextmanager
def _without_autocast_cache() -> Iterator[None]:
    """Keep weights that autocast casts without gradients out of the cache that the training uses."""
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cached)


def _moved(value: Any, place: torch.device | None) -> Any:
    if isinstance(value, Tensor):
        return value if place is None or value.device == place else value.to(place)
    if isinstance(value, Mapping):
        return {key: _moved(part, place) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(part, place) for part in value)
    return value
