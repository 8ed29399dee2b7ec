"""Run operations of a trace of PyTorch on the tensors of another trace, or of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, no_grad

from ....core.graph import OP, OUTPUT
from ...capture.invocation import Invocation
from ...capture.saving.store import for_replay
from ...replaying.call_inputs import CallInputs
from ...replaying.replay import Replays, UnprovenError, run_call, unrecorded
from ..values.differences import are_same, difference, rounding, smaller_relative
from ..values.elements import Elements, plain

if TYPE_CHECKING:
    from ...results.trace import Trace


def undisturbed() -> ExitStack:
    """Return a context in which no active trace and no autograd graph records what runs."""
    stack = ExitStack()
    stack.enter_context(unrecorded())
    stack.enter_context(no_grad())
    return stack


class Calls:
    """The calls of a trace that can be run again.

    Attributes:
        graph: The graph of the trace.
        replays: The calls.
        inputs: The arguments of the calls, from the values of the trace.
    """

    def __init__(self, trace: Trace, replays: Replays) -> None:
        self.graph, self.replays = trace.graph, replays
        self.inputs = CallInputs(self.graph, replays, for_replay(trace.values), trace.why_not_stored)

    def call(self, row: int) -> Invocation | None:
        """Return the call that returned the row; None if there is none."""
        return self.replays.call(int(self.graph.ops.event[row]))

    def draws(self, row: int) -> bool:
        """Return whether the call that returned the row drew random numbers."""
        call = self.call(row)
        return call is not None and bool(call.states)

    def of_parameters(self, row: int) -> set[str]:
        """Return the names of the arguments that are parameters in the call that returned the row."""
        call = self.call(row)
        given = () if call is None else call.tensor_args
        return {self.graph.args[tensor_arg.arg] for tensor_arg in given if tensor_arg.source < 0}

    def arguments(self, row: int, call: Invocation) -> dict[str, Tensor]:
        """Return the tensors that a call received, by the name of the argument."""
        return {
            self.graph.args[tensor_arg.arg]: self.inputs.argument(tensor_arg, row)
            for tensor_arg in call.tensor_args
        }

    def result(self, row: int, call: Invocation, given: list[Tensor]) -> Elements | None:
        """Run a call on these tensors and return what corresponds to the row."""
        return plain(run_call(call, given)[max(int(self.graph.ops.output[row]), 0)])

    def computed(
        self,
        rows: Sequence[int],
        given: Mapping[int, Any],
        dtype: str = "",
        otherwise: Callable[[Tensor], Tensor] | None = None,
        unrounded: Set[int] = frozenset(),
    ) -> Elements | None:
        """Run operations one after another, and return the result of the last.

        Args:
            rows: Their rows, in order of execution.
            given: Arrays for the rows that they begin at.
            dtype: The dtype that all floats are computed in; ``""`` for their own.
            otherwise: Rounds numbers otherwise; None to leave them as they are. Numbers that are the same in
                both passes were not rounded, and reach an operation that rounds nothing as they are.
            unrounded: The rows of the operations that round nothing, as ``unrounded`` returns them.

        Returns:
            The result; None if they cannot be run so.
        """
        run = _Run(self, dtype, otherwise, unrounded)
        try:
            for row, value in given.items():
                run.begin(row, value)
            for row in rows:
                if self.graph.ops.kind[row] == OUTPUT:
                    return plain(run.inputs.output(row))
                run.add(row, run.called(row))
        except Exception:  # a missing value or kernel, a shape or dtype that does not fit
            return None
        return plain(run.values[rows[-1]])

    def exact(self, rows: Sequence[int]) -> Elements | None:
        """Return the result of operations in float64, begun at what they were given in the pass.

        Args:
            rows: Their rows, in order of execution.

        Returns:
            The result of the last; None if they cannot be run so, or a rerun replaced what one returned.
        """
        changed = self.graph.facts.get("changed", ())
        if any(self.graph.label(row) in changed for row in rows):
            return None
        begins = {parent for row in rows for parent in self.graph.parents(row)}.difference(rows)
        values = self.inputs.values
        if not all(row in values for row in begins):
            return None
        return self.computed(rows, {row: values[row] for row in begins}, "float64")

    def unrounded(self, rows: Sequence[int], given: Mapping[int, Any], dtype: str = "") -> set[int]:
        """Return the rows of the operations that round nothing: they return the same in float64.

        They move, choose, compare or count what they are given, and no other way to compute that rounds.

        Args:
            rows: The rows of operations, in order of execution.
            given: Arrays for the rows that they begin at.
            dtype: The dtype that all floats are computed in; ``""`` for their own.
        """
        run, rounding_calls = _Run(self, dtype), set[int]()
        try:
            for row, value in given.items():
                run.begin(row, value)
            for row in rows:
                if self.graph.ops.kind[row] == OP:
                    result, finer = run.called(row), run.called(row, "float64")
                    if not are_same(plain(result), plain(finer)):
                        rounding_calls.add(int(self.graph.ops.event[row]))
                    run.add(row, result)
        except Exception:  # as in ``computed``
            return set()
        return {row for row in rows if int(self.graph.ops.event[row]) not in rounding_calls}


class _Run:
    """One run of operations of a trace on other numbers.

    Args:
        calls: The calls of the trace.
        dtype: The dtype that all floats are computed in; ``""`` for their own.
        otherwise: Rounds numbers otherwise; None to leave them as they are.
        unrounded: The rows of the operations that round nothing.

    Attributes:
        values: The values so far, as operations that round nothing take them.
        inputs: The arguments of calls, from these.
    """

    def __init__(
        self,
        calls: Calls,
        dtype: str,
        otherwise: Callable[[Tensor], Tensor] | None = None,
        unrounded: Set[int] = frozenset(),
    ) -> None:
        self._calls, self._dtype, self._unrounded = calls, dtype, unrounded
        self._otherwise, self._own = otherwise, calls.inputs.values
        self.values, others = dict[int, Tensor](), dict[int, Tensor]()
        self.inputs, self._rounded, self._others = copy(calls.inputs), copy(calls.inputs), others
        self.inputs.values, self._rounded.values = self.values, others
        self._exact = set[int]()
        self._returned: dict[tuple[int, str], list[Tensor]] = {}

    def begin(self, row: int, value: Any) -> None:
        """Set an array as the value of a row that operations begin at."""
        own = self._own[row]
        t = _tensor(value)
        if t.is_floating_point() and not (own.is_floating_point() or own.is_complex()):
            t = t.round()  # such as ids that the other pass has as floats
        t = _in(t.to(own.device, own.dtype), self._dtype)
        if self._otherwise is None or are_same(plain(own), plain(value)):
            self._set_exact(row, t)
        else:
            self.values[row] = self._others[row] = self._otherwise(t)

    def add(self, row: int, t: Tensor) -> None:
        """Set what an operation returned."""
        if row in self._unrounded and self._exact.issuperset(self._calls.graph.parents(row)):
            self._set_exact(row, t)
        else:
            self.values[row] = self._others[row] = t

    def called(self, row: int, dtype: str = "") -> Tensor:
        """Run the call that returned a row, once for all that it returned.

        Args:
            row: The row.
            dtype: The dtype that all floats are computed in; ``""`` for that of the run.
        """
        graph, dtype = self._calls.graph, dtype or self._dtype
        key = int(graph.ops.event[row]), dtype
        if key not in self._returned:
            if (call := self._calls.call(row)) is None:
                raise UnprovenError(f"{graph.label(row)} has no call")
            for parent in graph.parents(row):
                if parent not in self.values and graph.ops.kind[parent] != OP:  # a buffer
                    self._exact.add(parent)
                    t = _in(self._own[parent], self._dtype)
                    self.values[parent] = self._others[parent] = t
            inputs = self.inputs if row in self._unrounded else self._rounded
            tensors = [inputs.argument(tensor_arg, row) for tensor_arg in call.tensor_args]
            cast = {id(t): _in(t, dtype) for t in tensors}  # one object remains one
            self._returned[key] = run_call(call, [cast[id(t)] for t in tensors])
        output = self._returned[key][max(int(graph.ops.output[row]), 0)]
        return _in(output, dtype)

    def _set_exact(self, row: int, t: Tensor) -> None:
        """Set a value that only an operation that rounds something takes rounded otherwise."""
        self._exact.add(row)
        self.values[row], self._others[row] = t, self._otherwise(t) if self._otherwise else t


def _tensor(value: Any) -> Tensor:
    """Return an array of a file as a tensor, a copy of one that torch may not write to."""
    is_read_only = isinstance(value, np.ndarray) and not value.flags.writeable
    return torch.as_tensor(value.copy() if is_read_only else value)


def _in(t: Tensor, dtype: str) -> Tensor:
    """Return a tensor of floats in another dtype, and any other as it is."""
    return t.to(getattr(torch, dtype)) if dtype and t.is_floating_point() else t


def calls_of(trace: Trace) -> Calls | None:
    """Return the calls of a trace; None if they cannot be run again, or its values were transformed."""
    replays: Any = None if "form" in trace.graph.facts else trace._replays
    return None if replays is None else Calls(trace, replays)


def isolated_error(
    a: Calls, row: int, b: Calls, other: int, y: Elements, *, edited: bool
) -> tuple[float, float] | None:
    """Run an operation of ``a`` on the inputs of ``b``, and compare with the result of ``b``.

    Args:
        a: The calls of the first trace.
        row: A row of it.
        b: The calls of the second trace.
        other: A row of it, of the same type.
        y: The value of that row.
        edited: Whether a rerun replaced the value of ``b``, so that its operation did not make it.

    Returns:
        The relative difference, and how large it may be; None if the operation cannot be run so.
    """
    call, other_call = a.call(row), b.call(other)
    if call is None or other_call is None:
        return None
    try:
        inputs = b.arguments(other, other_call)
        given = list(_crossed(a, row, call, inputs))
        out = a.result(row, call, given)
    except Exception:  # other arguments, a missing value, a shape that does not fit
        return None
    if out is None or out.array.shape != y.array.shape:
        return None
    distance = difference(out, y).relative
    if edited:
        return distance, 0.0
    kinds = [[(t.dtype, t.device, t.stride()) for t in some] for some in (given, inputs.values())]
    if distance and out.dtype == y.dtype and kinds[0] == kinds[1]:
        again = b.result(other, other_call, list(inputs.values()))
        if again is not None and again.equals(y):  # some kernels add in no fixed order
            return distance, 0.0  # same kernel, same inputs: the operation makes every difference
    known = [elements for elements in map(plain, inputs.values()) if elements is not None]
    return distance, rounding(out, y, *known)


def is_unaffected(a: Calls, row: int, b: Calls, other: int, x: Elements) -> bool:
    """Return whether an operation of ``a`` returns the same when it is given the inputs of ``b``.

    Args:
        a: The calls of the first trace.
        row: A row of it.
        b: The calls of the second trace.
        other: The row of it that corresponds.
        x: The value of the row of ``a``.
    """
    call, other_call = a.call(row), b.call(other)
    if call is None or other_call is None:
        return False
    try:
        out = a.result(row, call, list(_crossed(a, row, call, b.arguments(other, other_call))))
    except Exception:  # as in ``isolated_error``
        return False
    if out is None or out.array.shape != x.array.shape:
        return False
    found, allowed = difference(out, x), rounding(out, x)
    return found.relative <= allowed and not found.lopsided and smaller_relative(out, x) <= allowed


def _crossed(a: Calls, row: int, call: Invocation, inputs: dict[str, Tensor]) -> Iterator[Tensor]:
    """Yield the tensors for a's call: a's parameters, and b's tensors with a's dtype and device."""
    own = a.arguments(row, call)
    for tensor_arg in call.tensor_args:
        name = a.graph.args[tensor_arg.arg]
        x, y = own[name], inputs[name]
        if tensor_arg.source < 0:
            yield x
        else:
            dtype = x.dtype if y.is_floating_point() and x.is_floating_point() else None
            yield y.to(x.device, dtype or y.dtype)
