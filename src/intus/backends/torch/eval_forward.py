"""A call of a model in the midst of its training that the training never notices.

In eval mode and without gradients; training flags, buffers, random states and autocast's cache are as before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_PARALLEL = (nn.parallel.DistributedDataParallel, nn.DataParallel)


def run_quietly(model: nn.Module, inputs: Any) -> None:
    """Call ``model`` with ``inputs``: a tensor, a tuple of positional arguments or keywords in a mapping.
    They are moved to where its parameters are. What it computes goes to its hooks alone.

    >>> net = nn.Dropout()
    >>> run_quietly(net, torch.ones(3)), net.training
    (None, True)
    """
    place = next((p.device for p in model.parameters()), None)
    given = _moved(inputs, place)
    watching = torch._C._EnableTorchFunction()  # off in a hook of ours, where this may run
    with watching, _as_it_was(model), torch.no_grad(), _without_autocast_cache():
        if isinstance(given, Mapping):
            model(**given)
        else:
            model(*given if isinstance(given, tuple) else (given,))


def unwrapped(model: nn.Module, *, compiled: bool) -> nn.Module:
    """The module inside what data parallelism, or with ``compiled`` torch.compile, puts around it. Such a
    wrapper may talk to other processes in every call, which a call on one of them alone would wait for."""
    inner = model._modules.get("module" if isinstance(model, _PARALLEL) else "_orig_mod")
    if inner is None or not (compiled or isinstance(model, _PARALLEL)):
        return model
    return unwrapped(inner, compiled=compiled)


def version(model: nn.Module) -> int:
    """A number that changes when an optimizer writes to the parameters."""
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
    """Weights that autocast casts without gradients must not be what the training finds in its cache."""
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
