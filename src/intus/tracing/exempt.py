"""Why an op's result may rightly stay the same when one of its arguments changes.

Asked only after random values made no difference: each rule looks at what the call was given and returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .functions import describe, written
from .invocation import Invocation, filled

_LIKE = ("zeros", "ones", "empty", "full", "rand", "randn", "randint")
#: Functions that take nothing but shape, dtype or device: type -> from which argument on.
_SHAPE_ONLY = {
    **{f"{name}_like": 0 for name in _LIKE},
    **{f"new_{name}": 0 for name in (*_LIKE, "tensor", "empty_strided")},
    "new": 0,
    **dict.fromkeys(("expand_as", "view_as", "reshape_as", "type_as", "to", "sum_to_size", "resize_as"), 1),
}
#: Functions whose result is whatever memory held.
UNINITIALISED = frozenset(
    {
        "empty",
        "empty_like",
        "new_empty",
        "empty_strided",
        "new_empty_strided",
        "empty_permuted",
        "new",
        "resize",
    }
)
_OVERWRITES = frozenset(
    {"setitem", "copy", "fill", "zero", "normal", "uniform", "bernoulli", "random", "exponential",
     "geometric", "cauchy", "log_normal", "set_data", "index_copy", "masked_scatter", "scatter"}
)  # fmt: skip
_PRODUCTS = frozenset(
    {"mul", "multiply", "div", "matmul", "mm", "bmm", "mv", "dot", "linear", "bilinear", "einsum", "addmm",
     "addcmul", "baddbmm", "conv1d", "conv2d", "conv3d", "outer", "pow", "lerp", "add", "sub", "tensordot",
     "scaled_dot_product_attention", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
)  # fmt: skip
_SELECTS = frozenset({"where", "masked_fill", "masked_select", "setitem", "getitem", "masked_scatter"})
_NORMS = frozenset({"batch_norm", "instance_norm"})
_ROUNDS = frozenset(
    {"sign", "sgn", "floor", "ceil", "round", "trunc", "floordiv", "floor_divide", "heaviside", "threshold",
     "clamp", "clip", "clamp_min", "clamp_max", "bernoulli"}
)  # fmt: skip


class Case(NamedTuple):
    """One argument that made no difference: the op's type, its call, what it was given, which of these it
    is, the argument's name, and what was returned."""

    type: str
    call: Invocation
    given: list[Tensor]
    number: int
    arg: str
    out: list[Tensor]

    @property
    def others(self) -> list[Tensor]:
        """The other floating-point arguments."""
        return [
            t
            for n, t in enumerate(self.given)
            if n != self.number and (t.is_floating_point() or t.is_complex())
        ]

    @property
    def written(self) -> list[Tensor]:
        """The arguments that the call writes into."""
        args = tuple(filled(value, self.given.__getitem__) for value in self.call.args)
        kwargs = {name: filled(value, self.given.__getitem__) for name, value in self.call.kwargs.items()}
        return written(describe(self.call.func), args, kwargs)

    @property
    def constants(self) -> list[Any]:
        """The plain numbers among the arguments."""
        return list(_numbers((self.call.args, self.call.kwargs)))

    @property
    def place(self) -> int:
        """The argument's position, -1 for a keyword."""
        first = self.arg.partition(".")[0]
        return int(first) if first.isdigit() else -1


def _numbers(value: Any) -> Iterator[int | float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, dict):
        yield from _numbers([*value.values()])


def reason(case: Case) -> str | None:
    """The reason why this argument need not matter; None where it must."""
    for rule in _RULES:
        why = rule(case)
        if why is not None:
            return why
    return None


def _empty(case: Case) -> str | None:
    if case.given[case.number].numel() == 0 or all(t.numel() == 0 for t in case.out):
        return "it is empty, or what comes out is"
    return None


def _shape(case: Case) -> str | None:
    start = _SHAPE_ONLY.get(case.type)
    if start is not None and (case.place >= start or case.place == -1):
        return "only the argument's shape, dtype or device is used"
    return None


def _overwritten(case: Case) -> str | None:
    if case.arg == "out" or case.arg.startswith("out."):
        return "it is where the result goes"
    return "all of it is overwritten" if case.type in _OVERWRITES and case.place == 0 else None


def _whole_numbers(case: Case) -> str | None:
    if not any(t.is_floating_point() or t.is_complex() for t in case.out):
        return "the result is of whole numbers or truths, which many values share"
    return None


def _zero(case: Case) -> str | None:
    if case.type not in _PRODUCTS:
        return None
    if any(not t.any() for t in case.others) or 0 in case.constants:
        return "it is multiplied by zero"
    return None


def _dropped(case: Case) -> str | None:
    if "dropout" in case.type and not any(bool(t.any()) for t in case.out):
        return "dropout dropped all of it"
    return None


def _statistics(case: Case) -> str | None:
    if case.type in _NORMS and any(t is case.given[case.number] for t in case.written):
        return "in training the batch's own statistics are used"
    return None


def _one_element(case: Case) -> str | None:
    alone = {"softmax": 1.0, "log_softmax": 0.0}.get(case.type)
    if alone is not None and bool((case.out[0] == alone).all()):
        return "it is normalised over one element"
    if case.type == "layer_norm" and case.place == 0 and case.given[case.number].shape[-1:] == (1,):
        return "it is normalised over one element"
    if case.type == "scaled_dot_product_attention" and case.place in (0, 1) and case.given[1].shape[-2] == 1:
        return "there is one key to attend to"
    return None


def _masked(case: Case) -> str | None:
    masks = [t for t in case.given if t.dtype == torch.bool]
    if case.type in _SELECTS and any(bool(mask.all()) or not mask.any() for mask in masks):
        return "the mask selects none of it"
    return None


def _saturated(case: Case) -> str | None:
    if case.type in _ROUNDS:
        return "rounding or clamping gives the same for many values"
    return None


def _not_finite(case: Case) -> str | None:
    if not any(bool(t.isfinite().any()) for t in case.out if t.is_floating_point() or t.is_complex()):
        return "NaN or infinity comes out whatever goes in"
    return None


_RULES: tuple[Callable[[Case], str | None], ...] = (
    *(_empty, _shape, _overwritten, _whole_numbers, _zero, _dropped, _statistics, _one_element),
    *(_masked, _saturated, _not_finite),
)
