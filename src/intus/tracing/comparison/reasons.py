"""Explain why two calls of one operation may differ: their parameters, arguments and context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...core.graph import BUFFER, CONSTANT, INPUT, PARAMETER
from .parameters.parameters import UsedParameters, different_state
from .values.differences import difference
from .values.elements import plain
from .values.settings import (
    NOT_GIVEN,
    arguments,
    different_of_torch,
    different_settings,
    different_shared,
    number_of,
)
from .values.torch_arguments import signature_of

if TYPE_CHECKING:  # traces of files and of other frameworks have no calls, and need no torch
    from torch import Tensor

    from ..capture.invocation import Invocation
    from ..results.trace import Trace

_OUTSIDE = {
    INPUT: "the inputs differ",
    BUFFER: "the buffers differ",
    PARAMETER: "the parameters differ",
    CONSTANT: "it was made outside the model",
}


class _Tensor:
    def __repr__(self) -> str:
        return "a tensor"


def reasons(a: Trace, row: int, b: Trace, other: int) -> list[str]:
    """Return how the computation of two rows differs, as sentences.

    Args:
        a: The first trace.
        row: A row of it.
        b: The second trace.
        other: A row of it.

    Returns:
        The sentences; empty if nothing is known to differ.
    """
    changed = [
        f"it was changed by rerun in {name}"
        for name, trace, trace_row in (("a", a, row), ("b", b, other))
        if trace.graph.label(trace_row) in trace.graph.facts.get("changed", ())
    ]
    if changed:
        return changed
    kind = int(a.graph.ops.kind[row])
    if kind in (BUFFER, PARAMETER):
        return different_state(a, row, b, other) or [_OUTSIDE[kind]]
    if kind in _OUTSIDE:
        return [_OUTSIDE[kind]]
    call_a, call_b = _call(a, row), _call(b, other)
    if call_a is None or call_b is None:
        why = drawn(a, [row], b, [other]) or [
            *UsedParameters(a, [row], b, [other]).different(),
            *different_settings(a.graph, row, b.graph, other),
        ]
        # What was not saved, such as the list that a loop wrote, may have brought the difference.
        return why or UsedParameters(a, _with_unsaved(a, row), b, _with_unsaved(b, other)).different()
    apart = (
        _arguments(a, row, call_a, b, other, call_b)
        if a.graph.type_of(row) == b.graph.type_of(other)
        else different_shared(a.graph, row, b.graph, other)
    )
    return [*_parameters(a, call_a, b, call_b), *apart, *_context(call_a, call_b)]


def drawn(a: Trace, rows_a: Iterable[int], b: Trace, rows_b: Iterable[int]) -> list[str]:
    """Return which of two files draws random numbers in some operations, as sentences.

    A file that was exported in training mode has dropouts that drop whenever it runs.

    Args:
        a: A trace.
        rows_a: Rows of it.
        b: Another one.
        rows_b: Rows of it.
    """
    return [
        f"{trace.graph.label(row)} of {name} drops at random (training_mode=True)"
        for name, trace, rows in (("a", a, rows_a), ("b", b, rows_b))
        for row in list(rows)
        if trace.graph.type_of(row) == "dropout" and trace.graph.dtype_of(row) != "bool"  # no mask
        if (given := arguments(trace.graph.setting(row))).get("training_mode") == "True"
        and number_of(given.get("ratio", "0.5")) != 0
    ][:1]


def _with_unsaved(trace: Trace, row: int) -> list[int]:
    """Return a row, and those that it was computed from with no saved value between."""
    found, waiting = {row}, [row]
    while waiting:
        left = {one for one in trace.graph.parents(waiting.pop()) if one not in trace.values} - found
        found |= left
        waiting += left
    return sorted(found)


def _call(trace: Trace, row: int) -> Invocation | None:
    replays = trace._replays
    return None if replays is None else replays.call(int(trace.graph.ops.event[row]))


def _parameters(a: Trace, call_a: Invocation, b: Trace, call_b: Invocation) -> Iterator[str]:
    params_a, params_b = _params(a, call_a), _params(b, call_b)
    for name in (name for name in params_a if name in params_b):
        (address, p), (other, q) = params_a[name], params_b[name]
        both = f"{address} of a and {other} of b" if address != other else f"{address} of a and of b"
        if p is None or q is None:
            changed = both if p is q else f"{address} of a" if p is None else f"{other} of b"
            yield f"{changed} changed since the trace was taken, so its value is unknown"
            continue
        if p.shape != q.shape:
            yield f"{both} are of shapes {tuple(p.shape)} and {tuple(q.shape)}"
            continue
        x, y = plain(p), plain(q)
        if x is not None and y is not None and (found := difference(x, y)).fraction_different:
            nan = f"have {found.nan} and {found.other_nan} NaN"
            by = f"differ by {found.relative:.2g} of their norm"
            yield f"{both} {nan if found.nan != found.other_nan else by}"


def _params(trace: Trace, call: Invocation) -> dict[str, tuple[str, Tensor | None]]:
    """Return the address and value of the parameters that a call took, by the name of the argument.

    The value of a parameter that changed since the pass is None.
    """
    graph, replays = trace.graph, trace._replays
    assert replays is not None
    numbers = {graph.args[tensor_arg.arg]: -1 - tensor_arg.source for tensor_arg in call.tensor_args}
    return {
        name: (graph.params[number].address, None if replays.is_changed(number) else replays.params[number])
        for name, number in numbers.items()
        if 0 <= number < len(replays.params)
    }


def _arguments(
    a: Trace, row: int, call_a: Invocation, b: Trace, other: int, call_b: Invocation
) -> Iterator[str]:
    one, two = (
        [trace.graph.args[tensor.arg] for tensor in call.tensor_args]
        for trace, call in ((a, call_a), (b, call_b))
    )
    apart = different_of_torch(a.graph, row, b.graph, other, (one, two))
    for name, x, y in _written_apart(call_a, call_b) if apart is None else apart:
        yield f"{name} is {x} in a, {y} in b"


def _written_apart(a: Invocation, b: Invocation) -> Iterator[tuple[str, str, str]]:
    """Yield the arguments of two calls that are written otherwise: the name and both texts."""
    args_a, args_b = _args_by_name(a), _args_by_name(b)
    for name in dict.fromkeys((*args_a, *args_b)):
        x, y = (repr(args[name]) if name in args else NOT_GIVEN for args in (args_a, args_b))
        if x != y and not name.startswith("_"):
            yield name, x, y


def _args_by_name(call: Invocation) -> dict[str, Any]:
    """Return the arguments by name, or by position from 1 if the function has no signature."""
    from ..capture.invocation import arguments

    args, kwargs = arguments(call.args, call.kwargs, (_Tensor() for _ in call.tensor_args))
    try:
        bound = signature_of(call.func).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
    except (TypeError, ValueError):  # functions written in C have no signature
        return {f"argument {number}": value for number, value in enumerate(args, 1)} | kwargs


def _context(a: Invocation, b: Invocation) -> Iterator[str]:
    from ..capture.context.execution_context import DEFAULT

    context_a, context_b = a.context or DEFAULT, b.context or DEFAULT
    if context_a.autocast != context_b.autocast:
        yield f"autocast is {_cast(context_a.autocast)} in a, {_cast(context_b.autocast)} in b"
    drawn = [bool(call.states) for call in (a, b)]
    if any(drawn):
        yield "it draws random numbers" + ("" if all(drawn) else f" only in {'a' if drawn[0] else 'b'}")


def _cast(on: tuple[Any, ...]) -> str:
    return ", ".join(f"{device} {str(dtype).removeprefix('torch.')}" for device, dtype in on) or "off"
