"""Copies of a module with other weights: those of a state dict or a file, or newly initialized ones."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ...core.address import Address
from ...core.errors import InputError

#: Where training scripts and frameworks put the state dict in a file that holds more.
_KEYS = ("state_dict", "model_state_dict", "model", "module")


def weights(path: Path) -> dict[str, Any]:
    """Return the state dict in a file; see ``backends.checkpoints.LoadsWeights``."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InputError(
            f"{str(path)!r} holds more than tensors, such as a pickled model, which only its own code can "
            "load. Pass load=, a function that takes the path and returns the model."
        ) from None
    except (OSError, EOFError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}") from None
    if is_state(content):
        return dict(content)
    found = [key for key in _KEYS if isinstance(content, Mapping) and is_state(content.get(key))]
    if len(found) == 1:
        return dict(content[found[0]])
    keys = f", but {', '.join(map(repr, list(content)[:6]))}" if isinstance(content, Mapping) else ""
    raise InputError(
        f"{str(path)!r} holds no state dict{keys}. Pass load=, a function that takes the path and returns "
        "the model."
    )


def is_state(value: Any) -> bool:
    """Return whether a value is a state dict: a mapping of names to tensors."""
    return (
        isinstance(value, Mapping)
        and any(isinstance(one, Tensor) for one in value.values())
        and all(isinstance(key, str) for key in value)
        and not any(isinstance(one, Mapping | nn.Module) for one in value.values())
    )


def with_weights(model: nn.Module, state: Mapping[str, Any]) -> nn.Module:
    """Return a copy of a module with a state dict; see ``backends.checkpoints.LoadsWeights``."""
    made = copy.deepcopy(model)
    try:
        found = made.load_state_dict(dict(state), strict=False)
    except RuntimeError as error:
        raise InputError(f"The weights do not fit {type(model).__name__}: {error}") from None
    for names, text in ((found.missing_keys, "lack"), (found.unexpected_keys, "have an unknown")):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise InputError(
                f"The weights do not fit {type(model).__name__}: they {text} {names[0]!r}{more}. Pass the "
                "model that they were saved from, or load=."
            )
    return made


def initialized(model: nn.Module, seed: int) -> nn.Module:
    """Return a newly initialized copy of a module; see ``backends.checkpoints.LoadsWeights``."""
    made = copy.deepcopy(model)
    resets = []
    for name, module in made.named_modules():
        own = [key for key, _ in module.named_parameters(recurse=False)]
        reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
        if callable(reset):
            resets.append(reset)
        elif own:
            address = str(Address(name)) or type(made).__name__
            raise InputError(
                f"{address!r}, a {type(module).__name__}, has the parameter {own[0]!r} but no "
                "reset_parameters, so that it cannot be initialized newly. Give it that method, or pass a "
                "new model in models=."
            )
    devices = sorted({p.device.index for p in made.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices), torch.no_grad():
        torch.manual_seed(seed)
        for reset in resets:
            reset()
    return made
