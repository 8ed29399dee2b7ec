"""Notice that a model is made of other modules or parameters than before."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

_Members = tuple[tuple[str, ...], tuple[weakref.ref[Any] | None, ...]]


class _Part(NamedTuple):
    """A module, its children, and its parameters with whether they require gradients."""

    module: weakref.ref[nn.Module]
    children: _Members
    parameters: _Members
    requires_grad: tuple[bool, ...]


class Layout:
    """The modules and parameters of a model at one time, of which no reference is kept.

    Args:
        model: The model.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> layout = Layout(model)
        >>> layout.is_of(model, parameters=True)
        True
        >>> model[0], model[1] = model[1], model[0]
        >>> layout.is_of(model, parameters=True)
        False
    """

    def __init__(self, model: nn.Module) -> None:
        self._parts = [
            _Part(
                weakref.ref(module),
                _members(module._modules),
                _members(module._parameters),
                tuple(one.requires_grad for one in module._parameters.values() if one is not None),
            )
            for module in _observable(model)
        ]

    def is_of(self, model: nn.Module, *, parameters: bool) -> bool:
        """Return whether a model still has these modules, and with ``parameters`` also these parameters.

        Tensors that stand in for parameters in one call, as those of ``torch.func.functional_call``, count
        as the parameters.

        Args:
            model: The model; also a twin that has its attributes.
            parameters: Whether to compare parameters.
        """
        for number, part in enumerate(self._parts):
            module = part.module() if number else model
            if module is None or not _has(module._modules, part.children):
                return False
            if parameters and not _has_parameters(module._parameters, part):
                return False
        return True


def _observable(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of a model once each, but none of a scripted one, which takes no hooks."""
    seen, waiting = set[nn.Module](), [model]
    while waiting:
        module = waiting.pop()
        if module not in seen and not isinstance(module, torch.jit.ScriptModule):
            seen.add(module)
            yield module
            waiting += [child for child in module._modules.values() if child is not None]


def _members(members: Mapping[str, Any]) -> _Members:
    return tuple(members), tuple(None if one is None else weakref.ref(one) for one in members.values())


def _has(now: Mapping[str, Any], known: _Members) -> bool:
    """Return whether members have the same names in the same order, and are the same objects."""
    names, references = known
    if len(now) != len(names) or tuple(now) != names:
        return False
    for one, reference in zip(now.values(), references, strict=True):
        if (None if reference is None else reference()) is not one:
            return False
    return True


def _has_parameters(now: Mapping[str, Any], part: _Part) -> bool:
    if _has(now, part.parameters):
        return part.requires_grad == tuple([one.requires_grad for one in now.values() if one is not None])
    stand_in = any(one is not None and not isinstance(one, nn.Parameter) for one in now.values())
    return stand_in and tuple(now) == part.parameters[0]
