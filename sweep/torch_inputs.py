"""torch's own test inputs: the operators of ``op_db`` and the modules of ``module_db``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_flatten, tree_unflatten

#: How many samples of an operator are used: the first ones, and the last of those that are read.
FIRST, READ = 2, 24
#: The first of these that an operator has is the type of its samples.
_DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool, torch.float16)


class Case(NamedTuple):
    """One call to check.

    Attributes:
        name: The sample and the form of the call.
        model: A module, or a function of the tensors.
        inputs: The arguments of the model; every tensor among them is an argument of its own if it is a
            function.
        differentiable: Whether torch says that gradients are supported.
    """

    name: str
    model: Callable[..., Any]
    inputs: tuple[Any, ...]
    kwargs: dict[str, Any]
    differentiable: bool


class Subject(NamedTuple):
    """An operator or a module, with its cases."""

    family: str
    name: str
    cases: Callable[[], Iterator[Case]]


def operators() -> Iterator[Subject]:
    """Yield every entry of ``op_db``."""
    for op in op_db:
        yield Subject("operators", op.full_name, lambda op=op: _operator_cases(op))


def modules() -> Iterator[Subject]:
    """Yield every entry of ``module_db``."""
    for info in module_db:
        yield Subject("modules", info.name, lambda info=info: _module_cases(info))


def _operator_cases(op: Any) -> Iterator[Case]:
    dtype = next((dtype for dtype in _DTYPES if dtype in op.dtypes), None)
    if dtype is None:
        raise ValueError("none for the CPU")
    torch.manual_seed(0)
    differentiable = op.supports_autograd and dtype in (torch.float32, torch.complex64)
    samples = list(islice(op.sample_inputs("cpu", dtype, requires_grad=False), READ))
    chosen = samples[:FIRST] + samples[FIRST:][-1:]
    forms: dict[str, Any] = {"function": op.op, "method": op.method_variant, "in place": op.inplace_variant}
    for number, sample in enumerate(chosen):
        for form, function in forms.items():
            if function is None or (form == "in place" and sample.broadcasts_input):
                continue
            yield _call(f"sample {number}, {form}", function, sample, {}, differentiable, copied=False)
            if form == "in place" and differentiable:  # a leaf that requires gradients cannot be written into
                yield _call(f"sample {number}, in place on a copy", function, sample, {}, True, copied=True)
        if op.supports_out:
            yield _call(f"sample {number}, out=", op.op, sample, {"out": True}, False, copied=False)


def _call(
    name: str, function: Any, sample: Any, extra: dict[str, Any], differentiable: bool, *, copied: bool
) -> Case:
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def run(*tensors: Tensor) -> Any:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        first, args, kwargs = tree_unflatten(given, spec)
        if copied:
            first = first * 1
        if extra:
            shaped = function(first, *args, **kwargs)
            kwargs = {**kwargs, "out": tree_map_tensors(shaped)}
        return function(first, *args, **kwargs)

    run.__name__ = run.__qualname__ = getattr(function, "__name__", "call")
    return Case(name, run, tuple(leaves[place] for place in places), {}, differentiable and not extra)


def tree_map_tensors(value: Any) -> Any:
    """Return tensors of the same shapes to write into."""
    if isinstance(value, Tensor):
        return torch.zeros_like(value)
    return tuple(torch.zeros_like(part) for part in value)


def _module_cases(info: Any) -> Iterator[Case]:
    dtype = next(dtype for dtype in _DTYPES if dtype in info.dtypes)
    for training in (False, True) if info.train_and_eval_differ else (True,):
        torch.manual_seed(0)
        found = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=False, training=training
        )
        for number, one in enumerate(found):
            torch.manual_seed(0)
            module = info.module_cls(*one.constructor_input.args, **one.constructor_input.kwargs)
            module = module.to("cpu", dtype).train(training)
            given = one.forward_input
            if given is None:
                continue
            if any(isinstance(param, UninitializedParameter) for param in module.parameters()):
                module(*given.args, **given.kwargs)  # a lazy module is initialized by its first pass
            yield Case(
                f"input {number}, {'train' if training else 'eval'}",
                module,
                tuple(given.args),
                dict(given.kwargs),
                bool(info.supports_gradgrad or dtype is torch.float32),
            )


def copies(value: Any) -> Any:
    """Return a copy of arguments, with equal strides."""
    return copy.deepcopy(value)
