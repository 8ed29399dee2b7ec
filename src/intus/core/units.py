"""Which part of a value an address means: ``conv1[3]``, ``conv1[0,4:8]``, ``ln_f[-1@1][0:4]``.

Each pair of brackets after a name holds units, counted from 0 (below zero from the end), several with
commas, ranges as Python writes them. ``@`` and a number say along which axis; without it units are those of
the value: the channels of a convolution, the features of a linear layer, the heads of attention.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .errors import AddressError, InputError
from .graph import Graph

_GRAMMAR = re.compile(r"(?P<name>(?:\\.|[^\\\[\]])*)(?P<parts>(?:\[[^\[\]]*\])*)", re.DOTALL)
_PART = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(-?\d+)?:(-?\d+)?(?::(-?[1-9]\d*))?")
_CONVOLUTION = re.compile(r"conv(?:_transpose)?([123])d")
#: What gives channels second, and what gives features last.
_SECOND = frozenset({"batch_norm", "instance_norm", "group_norm", "convolution", "native_batch_norm"})
_LAST = frozenset(
    {"linear", "addmm", "embedding", "embedding_bag", "layer_norm", "rms_norm", "native_layer_norm", "lstm",
     "gru", "rnn_tanh", "rnn_relu", "multi_head_attention_forward"}
)  # fmt: skip
#: After these the axes of what came before say nothing any more.
_REARRANGING = frozenset(
    {"transpose", "permute", "movedim", "swapaxes", "T", "mT", "t", "view", "reshape", "flatten", "unflatten",
     "unsqueeze", "squeeze", "getitem", "expand", "einsum", "unbind", "fold", "unfold"}
)  # fmt: skip

Index = int | slice | list[int]


class Part(NamedTuple):
    """What stands in one pair of brackets; ``axis`` is None where it is not said."""

    units: tuple[int | slice, ...]
    axis: int | None


def split(text: str) -> tuple[str, list[Part]]:
    """The name in an address, and the parts it asks for. Raises InputError for what is no unit.

    >>> split("features.6:2[1,4:6][-1@2]")
    ('features.6:2', [Part(units=(1, slice(4, 6, None)), axis=None), Part(units=(-1,), axis=2)])
    """
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r} is not an address. Write NAME, NAME[3], NAME[0,4:8] or NAME[-1@1], the last along "
            "axis 1; put a backslash before '[' or ']' inside a name."
        )
    return match["name"], [_part(inner, text) for inner in _PART.findall(match["parts"])]


def _part(inner: str, text: str) -> Part:
    units, at, axis = inner.partition("@")
    try:
        return Part(tuple(_unit(one.strip()) for one in units.split(",")), int(axis) if at else None)
    except ValueError:
        raise InputError(
            f"[{inner}] in {text!r} is no unit: write [3], [3,5,7], [2:6], or [3@1] for axis 1."
        ) from None


def _unit(text: str) -> int | slice:
    match = _RANGE.fullmatch(text)
    return slice(*(int(end) if end else None for end in match.groups())) if match else int(text)


def index(shape: Sequence[int], parts: Sequence[Part], units: int, key: str) -> list[Index]:
    """What the parts take along each axis of a value of that shape; ``units`` is the axis of its units.

    Raises AddressError where there is no such unit or axis, InputError where one axis is given twice.

    >>> index((2, 8, 5), [Part((3, 5), None), Part((slice(2),), 2)], 1, "conv1[3,5][:2@2]")
    [slice(None, None, None), [3, 5], slice(None, 2, None)]
    """
    found: list[Index] = [slice(None)] * len(shape)
    for part in parts:
        axis = units if part.axis is None else part.axis
        if not -len(shape) <= axis < len(shape):
            raise AddressError(
                f"{key!r}: the value has {len(shape)} axes, of shape {tuple(shape)}; no {axis}."
            )
        axis %= len(shape)
        if found[axis] != slice(None):
            raise InputError(f"{key!r} takes units along axis {axis} twice: write [3,5] for several.")
        count = shape[axis]
        for unit in part.units:
            if isinstance(unit, int) and not -count <= unit < count:
                where = "" if part.axis is None else f" along axis {axis}"
                raise AddressError(
                    f"{key!r} is out of range: there are {count} units{where}, counted from 0."
                )
        found[axis] = part.units[0] if len(part.units) == 1 else _several(part.units, count)
    return found


def _several(units: tuple[int | slice, ...], count: int) -> list[int]:
    found: list[int] = []
    for unit in units:
        found += range(count)[unit] if isinstance(unit, slice) else [unit]
    return found


def unit_axis(graph: Graph, row: int) -> int:
    """The axis of a row's units, as the operation tells that gave it its form: of convolutions the channels,
    of linear layers, norms and embeddings the last. Where none tells, the second of four axes or more (heads
    of attention), else the last.
    """
    last = len(graph.metas[int(graph.ops.meta[row])].shape) - 1
    at: int | None = row
    while at is not None:
        type_ = graph.types[int(graph.ops.type[at])]
        convolution = _CONVOLUTION.fullmatch(type_)
        if convolution and last >= int(convolution[1]):
            return last - int(convolution[1])
        if type_ in _SECOND:
            return min(1, last)
        if type_ in _LAST:
            return last
        at = None if type_ in _REARRANGING else _of_same_form(graph, at)
    return 1 if last >= 3 else last


def _of_same_form(graph: Graph, row: int) -> int | None:
    """The first parent that has as many axes."""
    axes = [len(graph.metas[int(graph.ops.meta[at])].shape) for at in (row, *graph.parents(row))]
    return next((at for at, n in zip(graph.parents(row), axes[1:], strict=True) if n == axes[0]), None)
