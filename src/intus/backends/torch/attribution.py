"""Attribute numbers of the output to the units of layers, by captum."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import InputError, require
from ..base import Operation
from ..reading import Target
from .captured_tensor import main_tensor, to_numpy
from .reading import all_differentiable, differentiable, numbers

#: SmoothGrad averages this many gradients, each of inputs with Gaussian noise. Its standard deviation is this
#: share of each record's range, as in the paper.
NOISY_COPIES, NOISE = 25, 0.15


def attribute(
    model: nn.Module, inputs: Any, layers: list[Operation], method: str, target: Target, seed: int
) -> dict[str, np.ndarray]:
    """Attribute one number per record to layers; see ``backends.reading.Attributes``."""
    with (
        warnings.catch_warnings(),
        torch.inference_mode(False),
        torch.enable_grad(),
        all_differentiable(model),
    ):
        warnings.simplefilter("ignore")  # captum warns of each hook that it registers, and removes it
        captum = require("captum.attr", extra="attribution", why=f"for behavior={method!r}", package="captum")
        call = _Call(model, inputs, target)
        return {
            layer.address: to_numpy(_METHODS[method](captum, call, layer.module, seed).detach())
            for layer in layers
        }


class _Call:
    """A call of the model, as captum needs it: a function of tensors with one number per record.

    Args:
        model: The model.
        inputs: Its inputs.
        target: The number of each record.
    """

    def __init__(self, model: nn.Module, inputs: Any, target: Target) -> None:
        self.model, self.inputs, self.target = model, inputs, target
        self.floats = [one for one in _leaves(inputs) if one.is_floating_point()]

    def placeholder(self) -> Tensor:
        """Return an input for captum where the inputs do not change."""
        return torch.zeros(self.target.records, requires_grad=True)

    def __call__(self, _: Tensor) -> Tensor:
        return self.run(differentiable(self.inputs))

    def run(self, inputs: Any) -> Tensor:
        """Run the model on inputs and return one number per record."""
        if isinstance(inputs, Mapping):
            output = self.model(**inputs)
        else:
            output = self.model(*(inputs if isinstance(inputs, tuple) else (inputs,)))
        return numbers(output, self.target)

    def with_floats(self, *values: Tensor) -> Tensor:
        """Run the model with other values for the floating-point inputs, in order."""
        remaining = iter(values)

        def replaced(part: Any) -> Any:
            if isinstance(part, Mapping):
                return {name: replaced(value) for name, value in part.items()}
            if isinstance(part, tuple):
                return tuple(map(replaced, part))
            return next(remaining) if isinstance(part, Tensor) and part.is_floating_point() else part

        return self.run(replaced(self.inputs))


def _leaves(inputs: Any) -> Iterator[Tensor]:
    if isinstance(inputs, Tensor):
        yield inputs
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else ()
    for part in parts:
        yield from _leaves(part)


def _first(value: Any) -> Tensor:
    """Return the attribution of the main tensor of a layer."""
    found = main_tensor(value)
    assert found is not None
    return found[1]


def _gradient(captum: Any, forward: Callable[..., Tensor], layer: nn.Module, given: Any) -> Tensor:
    method = captum.LayerGradientXActivation(forward, layer, multiply_by_inputs=False)
    return _first(method.attribute(given))


def _smoothgrad(captum: Any, call: _Call, layer: nn.Module, seed: int) -> Tensor:
    if not call.floats:
        raise InputError(
            "behavior='smoothgrad' adds noise to floating-point inputs, and the model's inputs are integers. "
            "Use behavior='gradient'."
        )
    ranges = []
    for values in call.floats:
        flat = values.detach().flatten(1) if values.ndim > 1 else values.detach()[:, None]
        spread = flat.amax(1) - flat.amin(1)
        ranges.append(spread.reshape(-1, *[1] * (values.ndim - 1)))

    def noisy(*noise: Tensor) -> Tensor:
        return call.with_floats(*(x + r * z for x, r, z in zip(call.floats, ranges, noise, strict=True)))

    method = captum.LayerGradientXActivation(noisy, layer, multiply_by_inputs=False)
    zeros = tuple(torch.zeros_like(values, requires_grad=True) for values in call.floats)
    torch.manual_seed(seed)  # ``evaluation`` restores the state
    return _first(
        captum.NoiseTunnel(method).attribute(
            zeros, nt_type="smoothgrad", nt_samples=NOISY_COPIES, nt_samples_batch_size=1, stdevs=NOISE
        )
    )


def _guided(captum: Any, call: _Call) -> Any:
    guided = captum.GuidedBackprop(call.model)
    guided.forward_func = call
    return guided


def _guided_backprop(captum: Any, call: _Call, layer: nn.Module, seed: int) -> Tensor:
    guided = _guided(captum, call)
    guided.gradient_func = lambda forward, given, *_: (_gradient(captum, forward, layer, given[0]),)
    return _first(guided.attribute(call.placeholder()))


def _gradcam(captum: Any, call: _Call, layer: nn.Module, seed: int) -> Tensor:
    return _first(captum.LayerGradCam(call, layer).attribute(call.placeholder(), attr_dim_summation=False))


def _guided_gradcam(captum: Any, call: _Call, layer: nn.Module, seed: int) -> Tensor:
    cam = _gradcam(captum, call, layer, seed)
    if len(call.floats) != 1 or call.floats[0].ndim != cam.ndim or cam.ndim < 3:
        raise InputError(
            "behavior='guided_gradcam' needs a model of one image and a layer of maps: it multiplies a map "
            f"with the gradient of the image. The layer has shape {tuple(cam.shape)}."
        )
    image = call.floats[0]
    guided = _guided(captum, call)
    guided.forward_func = call.with_floats
    gradient = guided.attribute(image.detach().clone().requires_grad_(True)).sum(1, keepdim=True)
    resized = captum.LayerAttribution.interpolate(cam, tuple(image.shape[2:]), interpolate_mode="nearest")
    product: Tensor = resized * gradient
    return product


_METHODS: dict[str, Callable[[Any, _Call, nn.Module, int], Tensor]] = {
    "smoothgrad": _smoothgrad,
    "guided_backprop": _guided_backprop,
    "gradcam": _gradcam,
    "guided_gradcam": _guided_gradcam,
}
