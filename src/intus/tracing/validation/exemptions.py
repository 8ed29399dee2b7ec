"""Rules that explain why an operation's result may stay the same when one of its arguments changes.

They apply only after random values made no difference, and examine what the call received and returned. An
argument that no rule explains is exempt with the reason ``WITHOUT_EFFECT``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.vocabularies.families import DRAWING_OVER, LIKE_FIRST, LIKE_OTHERS, OVERWRITING, ROUNDING, SIGNS
from ..capture.containers import walk
from ..capture.functions import describe, written
from ..capture.invocation import Invocation, arguments

#: The reason for an argument that made no difference, if no rule explains it.
WITHOUT_EFFECT = "it has no effect here: random values in its place give the same result"
#: Functions that use only the shape, dtype or device of an argument: type -> first such argument.
_SHAPE_ONLY = dict.fromkeys(LIKE_FIRST, 0) | dict.fromkeys(LIKE_OTHERS, 1)
#: Outputs, as (type, number), that are a kernel's scratch memory, with arbitrary contents.
SCRATCH = frozenset({("mkldnn_rnn_layer", 3)})
#: Functions that do not repeat themselves on the same arguments, and why.
_UNREPEATABLE = {
    "linalg_lstsq": "called twice on the same arguments, LAPACK's gelsy (its default driver) "
    "rounds differently"
}
_OVERWRITES = (
    OVERWRITING
    | DRAWING_OVER
    | {
        *("setitem", "set_data", "index_copy", "masked_scatter", "scatter", "constant", "kaiming_uniform"),
    }
)
_SUMS = ("addmm", "addmv", "baddbmm", "addbmm", "sparse_addmm")
_Factors = dict[str, tuple[str, ...]]
_TWO: _Factors = {"0": ("1",), "1": ("0",)}
_SUM: _Factors = {"1": ("2",), "2": ("1",)}
_CELL: _Factors = {"0": ("2",), "2": ("0",), "3": ("1",)}
#: Arguments that are only used as a factor: type -> argument -> the other factors.
_FACTORS: dict[str, _Factors] = {
    **dict.fromkeys(("mul", "multiply", "matmul", "mm", "bmm", "mv", "dot", "outer", "linear"), _TWO),
    **dict.fromkeys(
        ("tensordot", *(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))), _TWO
    ),
    **dict.fromkeys((*_SUMS, "addcmul"), _SUM),
    **dict.fromkeys(("gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _CELL),
    "lstm_cell": {**_CELL, "3": ("1.0",)},
    "bilinear": {"0": ("1", "2"), "1": ("0", "2"), "2": ("0", "1")},
    "div": {"1": ("0",)},
    "addcdiv": {"2": ("1",)},
}
_NAMES = {
    "input": "0", "weight": "1", "mat1": "1", "mat2": "2", "batch1": "1", "batch2": "2", "tensor1": "1",
    "tensor2": "2", "other": "1", "self": "0",
}  # fmt: skip
_SELECTS = frozenset({"where", "masked_fill", "masked_select", "setitem", "getitem", "masked_scatter"})
#: Positions of the weight and the bias of a normalization in ``torch.nn.functional``; -1 for none.
_NORMS = {"batch_norm": (3, 4), "instance_norm": (3, 4), "layer_norm": (2, 3), "group_norm": (2, 3),
          "rms_norm": (2, -1)}  # fmt: skip
_ROUNDS = (
    ROUNDING | SIGNS | {"heaviside", "threshold", "clamp", "clip", "clamp_min", "clamp_max", "bernoulli"}
)


_WIDEST = 1e5  # greater than any random value that is tried
_HALF_EPS = 2.0**-24  # half of the float32 resolution at 1


class Case(NamedTuple):
    """An argument that made no difference.

    Attributes:
        type: The type of the operation.
        call: The call.
        given: The tensors that it received.
        number: The index of the argument in ``given``.
        arg: The name of the argument: ``"0"``, ``"1.0"``, ``"weight"``.
        out: The tensors that it returned.
    """

    type: str
    call: Invocation
    given: list[Tensor]
    number: int
    arg: str
    out: list[Tensor]

    @property
    def others(self) -> list[Tensor]:
        """The other floating-point and complex arguments."""
        return [
            t
            for n, t in enumerate(self.given)
            if n != self.number and (t.is_floating_point() or t.is_complex())
        ]

    @property
    def named(self) -> dict[str, Tensor]:
        """The tensors that the call received, by the name of the argument."""
        args, kwargs = arguments(self.call.args, self.call.kwargs, self.given)
        values = {**{str(n): value for n, value in enumerate(args)}, **kwargs}
        return {path: t for name, value in values.items() for t, path in walk(value, name, [])}

    @property
    def written(self) -> list[Tensor]:
        """The arguments that the call writes into."""
        given = arguments(self.call.args, self.call.kwargs, self.given)
        return written(describe(self.call.func), *given)

    @property
    def place(self) -> int:
        """The position of the argument; -1 for a keyword argument."""
        first = self.arg.partition(".")[0]
        return int(first) if first.isdigit() else -1


def reason(case: Case) -> str | None:
    """Return why this argument need not matter; None if no rule knows.

    Args:
        case: The argument, and what the call received and returned.
    """
    for rule in _RULES:
        why = rule(case)
        if why is not None:
            return why
    return None


def _empty(case: Case) -> str | None:
    if case.given[case.number].numel() == 0 or all(t.numel() == 0 for t in case.out):
        return "it is empty, or the result is"
    return None


def _shape(case: Case) -> str | None:
    start = _SHAPE_ONLY.get(case.type)
    if start is not None and (case.place >= start or case.place == -1):
        return "only the argument's shape, dtype or device is used"
    return None


def _overwritten(case: Case) -> str | None:
    if case.arg == "out" or case.arg.startswith("out."):
        return "the result is written into it"
    first = case.place == 0 or case.arg == "tensor"  # the name that torch.nn.init gives it
    return "all of it is overwritten" if case.type in _OVERWRITES and first else None


def _integer_result(case: Case) -> str | None:
    if not any(t.is_floating_point() or t.is_complex() for t in case.out):
        return "the result is integers or booleans, which many values share"
    return None


def _zero(case: Case) -> str | None:
    why = "it is multiplied by zero"
    if case.type == "einsum":
        return why if any(not t.any() for t in case.others) else None
    named, factors = case.named, _FACTORS.get(case.type, {})
    others = factors.get(case.arg, factors.get(_NAMES.get(case.arg, ""), ()))
    found = {_NAMES.get(name, name): t for name, t in named.items()}
    if any(name in found and not found[name].any() for name in others):
        return why
    return why if _by_a_number(case) == 0 else None


def _by_a_number(case: Case) -> Any:
    """Return the plain number that scales the argument, if there is one.

    It is a factor, an exponent, the weight of ``lerp`` (or 1 - weight), or ``alpha``, ``beta`` or ``value``.
    """
    args, kwargs, first = case.call.args, case.call.kwargs, case.place == 0
    if case.type in ("mul", "multiply"):
        return next((value for value in args if isinstance(value, int | float)), None)
    if case.type == "pow" and first:
        return args[1] if len(args) > 1 else kwargs.get("exponent")
    if case.type == "lerp" and case.place in (0, 1):
        weight = args[2] if len(args) > 2 else kwargs.get("weight")
        return (1 - weight if first else weight) if isinstance(weight, int | float) else None
    if case.type in ("add", "sub"):
        return None if first else kwargs.get("alpha")
    if case.type in _SUMS:
        return kwargs.get("beta" if first else "alpha")
    if case.type in ("addcmul", "addcdiv"):
        return None if first else kwargs.get("value")
    return None


def _normalized(case: Case) -> str | None:
    """Exempt the input, statistics and weight of a normalization if what multiplies them is zero."""
    weight, bias = _affine(case)
    if weight is None or case.type not in _NORMS:
        return None
    argument = case.given[case.number]
    if argument is not weight and argument is not bias and not weight.any():
        return "it is multiplied by a weight of zero"
    by_channel = case.type in ("batch_norm", "instance_norm", "group_norm")
    shape = (-1, *(1,) * (case.out[0].dim() - 2)) if by_channel else weight.shape
    rest = case.out[0] if bias is None else case.out[0] - bias.reshape(shape)
    return "what it multiplies is zero" if argument is weight and not rest.any() else None


def _affine(case: Case) -> tuple[Tensor | None, Tensor | None]:
    """Return the weight and the bias of a normalization, None for each that is missing."""
    named = case.named
    positions = _NORMS.get(case.type, (-1, -1))
    if case.type in ("batch_norm", "instance_norm") and len(case.call.args) >= 9:  # those of torch itself
        positions = (1, 2)
    weight, bias = (
        named.get(name, named.get(str(position)))
        for name, position in zip(("weight", "bias"), positions, strict=True)
    )
    return weight, bias


def _covered(case: Case) -> str | None:
    """Exempt the target of ``scatter_reduce`` without ``include_self`` if the index covers all of it."""
    if case.type not in ("scatter_reduce", "index_reduce") or case.place != 0:
        return None
    if case.call.kwargs.get("include_self", True):
        return None
    axis = case.call.args[1] if len(case.call.args) > 1 else case.call.kwargs["dim"]
    index = next(t for t in case.given if not t.is_floating_point())
    written = torch.zeros(case.given[case.number].shape, dtype=torch.bool)
    if case.type == "index_reduce":
        written.index_fill_(axis, index, True)
    else:
        written.scatter_(axis, index, True)
    return "all of it is overwritten" if bool(written.all()) else None


def _dropped(case: Case) -> str | None:
    if "dropout" in case.type and not any(bool(t.any()) for t in case.out):
        return "dropout zeroed all of it"
    return None


def _statistics(case: Case) -> str | None:
    if case.type in ("batch_norm", "instance_norm") and any(
        t is case.given[case.number] for t in case.written
    ):
        return "in training mode the statistics of the batch are used"
    return None


def _one_element(case: Case) -> str | None:
    alone = {"softmax": 1.0, "log_softmax": 0.0}.get(case.type)
    if alone is not None and bool((case.out[0] == alone).all()):
        return "it is normalized over one element"
    if case.type == "layer_norm" and case.place == 0 and case.given[case.number].shape[-1:] == (1,):
        return "it is normalized over one element"
    return None


_ONE_KEY = "there is one key to attend to"


def _attention(case: Case) -> str | None:
    """Exempt a query or key if its scores cannot matter.

    That is the case if each query has one key, if all keys have the same value, or if all scores stay below
    half of the float32 resolution at 1, so that their exponential is 1.
    """
    named = case.named
    query, key, value = (
        named.get(name, named.get(str(n))) for n, name in enumerate(("query", "key", "value"))
    )
    argument = case.given[case.number]
    if case.type != "scaled_dot_product_attention" or query is None or key is None or value is None:
        return None
    if argument is not query and argument is not key:
        return None
    mask = named.get("attn_mask", named.get("3"))
    if value.shape[-2] == 1 or (mask is not None and _leaves_one_key(mask, hidden=False)):
        return _ONE_KEY
    if bool((value == value[..., :1, :]).all()):
        return "all keys have the same value"
    other = key if argument is query else query
    width = query.shape[-1]
    scale = case.call.kwargs.get("scale") or width**-0.5
    largest_score = float(other.abs().max()) * _WIDEST * width * scale
    return "what it is multiplied by is zero, or too small to matter" if largest_score < _HALF_EPS else None


def _leaves_one_key(mask: Tensor, *, hidden: bool) -> bool:
    """Return whether a mask of shape (..., queries, keys) leaves at most one key to each query.

    Args:
        mask: Booleans, or numbers that are added to the scores.
        hidden: What a boolean mask is where a key is hidden; a mask of numbers is minus infinity there.
    """
    keys = mask != hidden if mask.dtype == torch.bool else mask != -torch.inf
    return bool((keys.sum(-1) <= 1).all())


def _multi_head_attention(case: Case) -> str | None:
    """Exempt what the scores of ``multi_head_attention_forward`` are made of if each query has one key."""
    if case.type != "multi_head_attention_forward":
        return None
    if case.arg not in ("0", "1", "query", "key", "q_proj_weight", "k_proj_weight"):
        return None
    named = case.named
    key, mask = named.get("key", named.get("1")), named.get("attn_mask")
    if key is None or "bias_k" in named or "7" in named or case.call.kwargs.get("add_zero_attn"):
        return None  # other keys are appended
    if len(case.call.args) > 9 and case.call.args[9]:
        return None
    alone = key.shape[0] == 1 or (mask is not None and _leaves_one_key(mask, hidden=True))
    return _ONE_KEY if alone else None


def _first_state(case: Case) -> str | None:
    """Exempt the weights of a recurrent layer that multiply the state, if it runs one step from zero."""
    if case.type not in ("lstm", "gru", "rnn_tanh", "rnn_relu") or not case.call.args:
        return None
    args, _ = arguments(case.call.args, case.call.kwargs, case.given)
    position, _, number = case.arg.partition(".")
    packed = isinstance(args[3], tuple | list)
    states, weights = args[2:4] if packed else args[1:3]
    if position != ("3" if packed else "2") or not number.isdigit():
        return None
    length = len(args[1]) if packed else args[0].shape[1 if args[-1] is True else 0]
    state = states[0] if case.type == "lstm" else states
    per_layer = len(weights) // len(state)
    is_recurrent = int(number) % per_layer == 1  # the first is that of the input
    if length != 1 or not is_recurrent or state[int(number) // per_layer].any():
        return None
    return "it is multiplied by a state of zero"


def _outside(case: Case) -> str | None:
    """Exempt the input of ``grid_sample`` if all points are outside: it is zero there for any input."""
    if case.type not in ("grid_sample", "grid_sampler") or case.arg not in ("0", "input"):
        return None
    return None if case.out[0].any() else "all points lie outside of it"


def _ignored(case: Case) -> str | None:
    if case.type not in ("cross_entropy", "nll_loss"):
        return None
    target = case.named.get("target", case.named.get("1"))
    args, ignored = case.call.args, case.call.kwargs.get("ignore_index", -100)
    ignored = args[4] if len(args) > 4 else ignored
    if target is None or target.is_floating_point() or not bool((target == ignored).all()):
        return None
    return "all targets are ignored"


def _absorbed(case: Case) -> str | None:
    """Exempt a summand if any random value is lost to rounding beside the other summand."""
    if case.type not in ("add", "sub") or len(case.call.args) != 2 or case.call.kwargs:
        return None
    other = case.call.args[1 - case.place] if case.place in (0, 1) else None
    tensors = [t for n, t in enumerate(case.given) if n != case.number]
    least = (
        abs(other)
        if isinstance(other, int | float)
        else min((float(t.abs().min()) for t in tensors), default=0)
    )
    eps = torch.finfo(case.out[0].dtype).eps
    return "it is lost to rounding beside the other summand" if least * eps / 4 > _WIDEST else None


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
        return "the result is NaN or infinite for any values"
    return None


_RULES: tuple[Callable[[Case], str | None], ...] = (
    *(_empty, _shape, _overwritten, _covered, _integer_result, _zero, _normalized, _dropped, _statistics),
    *(_one_element, _attention, _multi_head_attention, _first_state, _outside, _ignored),
    *(_absorbed, _masked, _saturated, _not_finite),
)


def why_unrepeatable(call: Invocation) -> str:
    """Return why a call need not return the same again on the same arguments; ``""`` if it must."""
    if call.kwargs.get("driver") not in (None, "gelsy"):
        return ""
    return _UNREPEATABLE.get(describe(call.func).type, "")
