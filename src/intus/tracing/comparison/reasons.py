"""Why two calls of one operation may differ: what they were called with, and what they drew."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...core.graph import BUFFER, CONSTANT, INPUT
from ..capture.context.execution_context import DEFAULT
from ..capture.invocation import Invocation, arguments
from .differences import difference, plain

if TYPE_CHECKING:
    from ..results.trace import Trace

_OUTSIDE = {INPUT: "the inputs differ", BUFFER: "the buffers differ", CONSTANT: "it comes from outside"}


class _Tensor:
    def __repr__(self) -> str:
        return "a tensor"


def reasons(a: Trace, row: int, b: Trace, other: int) -> list[str]:
    """What is not the same in how the two rows were made, in sentences; empty where nothing is known."""
    changed = [
        f"it was changed in a rerun in {name}"
        for name, trace, at in (("a", a, row), ("b", b, other))
        if trace.graph.label(at) in trace.graph.facts.get("changed", ())
    ]
    if changed:
        return changed
    kind = int(a.graph.ops.kind[row])
    if kind in _OUTSIDE:
        return [_OUTSIDE[kind]]
    mine, theirs = _call(a, row), _call(b, other)
    if mine is None or theirs is None:
        return []
    return [*_parameters(a, mine, b, theirs), *_arguments(mine, theirs), *_surroundings(mine, theirs)]


def _call(trace: Trace, row: int) -> Invocation | None:
    replays = trace._replays
    return None if replays is None else replays.call(int(trace.graph.ops.event[row]))


def _parameters(a: Trace, call: Invocation, b: Trace, other: Invocation) -> Iterator[str]:
    mine, theirs = _own(a, call), _own(b, other)
    for name in (name for name in mine if name in theirs):
        (address, p), (twin, q) = mine[name], theirs[name]
        both = f"{address} of a and {twin} of b" if address != twin else f"{address} of a and of b"
        if p.shape != q.shape:
            yield f"{both} are of shapes {tuple(p.shape)} and {tuple(q.shape)}"
            continue
        x, y = plain(p), plain(q)
        if x is not None and y is not None and (found := difference(x, y)).fraction_different:
            nan = f"have {found.nan} and {found.other_nan} NaN"
            by = f"differ by {found.relative:.2g} of their norm"
            yield f"{both} {nan if found.nan != found.other_nan else by}"


def _own(trace: Trace, call: Invocation) -> dict[str, tuple[str, Tensor]]:
    """The parameters a call took, by the argument's name."""
    assert trace._replays is not None
    graph, params = trace.graph, trace._replays.params
    return {
        graph.args[tensor_arg.arg]: (
            graph.params[-1 - tensor_arg.source].address,
            params[-1 - tensor_arg.source][0],
        )
        for tensor_arg in call.tensor_args
        if -1 - len(params) < tensor_arg.source < 0
    }


def _arguments(a: Invocation, b: Invocation) -> Iterator[str]:
    mine, theirs = _named(a), _named(b)
    for name in dict.fromkeys((*mine, *theirs)):
        values = [repr(side[name]) if name in side else "not given" for side in (mine, theirs)]
        if values[0] != values[1]:
            yield f"{name} is {values[0]} in a, {values[1]} in b"


def _named(call: Invocation) -> dict[str, Any]:
    """Arguments by name where the function tells its own, else by number from 1."""
    args, kwargs = arguments(call.args, call.kwargs, (_Tensor() for _ in call.tensor_args))
    try:
        bound = inspect.signature(call.func).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
    except (TypeError, ValueError):  # written in C, it tells no names
        return {f"argument {number}": value for number, value in enumerate(args, 1)} | kwargs


def _surroundings(a: Invocation, b: Invocation) -> Iterator[str]:
    mine, theirs = a.context or DEFAULT, b.context or DEFAULT
    if mine.autocast != theirs.autocast:
        yield f"autocast is {_cast(mine.autocast)} in a, {_cast(theirs.autocast)} in b"
    drawn = [bool(call.states) for call in (a, b)]
    if any(drawn):
        yield "it draws random numbers" + ("" if all(drawn) else f" in {'a' if drawn[0] else 'b'} alone")


def _cast(on: tuple[Any, ...]) -> str:
    return ", ".join(f"{device} {str(dtype).removeprefix('torch.')}" for device, dtype in on) or "off"
