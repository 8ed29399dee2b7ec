"""Validate a graph call by call: the base class Checker, and TraceValidator for the saved values of a trace.

Parents are taken from the edges of the graph and compared with the sources that were noted when the call ran,
so that a lost or wrong edge is detected as well as a wrong value, also if the parent has no effect on the
result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from ...core.analysis.walks import ancestors
from ...core.errors import InputError
from ...core.graph import CONSTANT, INPUT, OUTPUT
from ...core.graph import FAILED as RAISED
from ..capture.context.randomness import common_generators, preserve_generators
from ..capture.functions import describe
from ..capture.invocation import Invocation
from ..capture.memory import local_of
from ..capture.saving.store import for_replay
from ..progress_bar import progress
from ..replaying.call_inputs import CallInputs, MismatchError, rows_by_call
from ..replaying.replay import (
    Replays,
    UnprovenError,
    is_autograd,
    run_call,
    same,
    unrecorded,
)
from .exemptions import SCRATCH, why_unrepeatable
from .perturb import ArgumentResults, Perturbations, one_line, perturbs_every
from .report import EXEMPT, FAILED, PROVEN, UNPROVEN, Check, Report
from .uninitialized import UNINITIALIZED

if TYPE_CHECKING:
    from ..results.trace import Trace


class Checker:
    """Checks the calls and outputs of one graph.

    Args:
        inputs: Finds the arguments of the calls; it has the graph and the calls.
    """

    def __init__(self, inputs: CallInputs) -> None:
        self.inputs, self.graph, self.replays = inputs, inputs.graph, inputs.replays

    def report(self) -> Report:
        """Return the checks of all ops and outputs, in order of execution."""
        events = rows_by_call(self.graph)
        with preserve_generators(common_generators()), unrecorded():
            checks = {
                row: one
                for event, rows in progress(events.items(), "validate", "calls")
                for row, one in self._event(event, rows)
            }
        return Report([checks[row] for row in sorted(checks)])

    def _event(self, event: int, rows: list[int]) -> list[tuple[int, Check]]:
        """Return the checks of the rows that one call returned."""
        try:
            if self.graph.metas[int(self.graph.ops.meta[rows[0]])].device == "meta":
                raise UnprovenError("it is on the meta device, which has no values to compare")
            if int(self.graph.ops.kind[rows[0]]) == OUTPUT:
                checks = [self._output(rows[0])]
            elif self._was_caught(rows[0]):
                checks = [
                    Check(
                        self.graph.label(rows[0]), EXEMPT, ("it raised, and the model caught the exception",)
                    )
                ]
            else:
                call = self.replays.call(event)
                if call is None:
                    raise UnprovenError(
                        "its call was not recorded, because it raised or ran where it cannot be recorded"
                    )
                self._check_function(call, rows)
                self.inputs.check_edges(call, rows)
                checks = self._call(call, rows)
        except Exception as error:
            checks = [Check(self.graph.label(row), *status_of_error(error)) for row in rows]
        return list(zip(rows, checks, strict=True))

    def _check_function(self, call: Invocation, rows: list[int]) -> None:
        """Raise MismatchError unless the graph has the type of the function that was called."""
        is_module = isinstance(call.func, Module)
        called = type(call.func).__name__.lower() if is_module else describe(call.func).type
        for row in rows:
            type_ = self.graph.types[int(self.graph.ops.type[row])]
            if type_ != called:
                raise MismatchError(f"the call was of {called!r}, the graph has {type_!r}")

    def _call(self, call: Invocation, rows: list[int]) -> list[Check]:
        """Return the checks of the rows that ``call`` returned."""
        raise NotImplementedError

    def _output(self, row: int) -> Check:
        parents = list(self.inputs.parents_by_arg.get(row, {}).values())
        if not parents and row in self.graph.row_params:
            return Check(self.graph.label(row), EXEMPT, ("it is an unchanged parameter",))
        if not parents:
            raise MismatchError("it has no parent")
        (parent,) = parents
        self._check_returned(row, parent)
        kinds = {int(self.graph.ops.kind[ancestor]) for ancestor in ancestors(self.graph, [row])}
        if CONSTANT in kinds and INPUT not in kinds and self.graph.rows_of(INPUT):
            raise UnprovenError(
                "it depends on no input, only on tensors made before the pass or where nothing is recorded"
            )
        return Check(self.graph.label(row), PROVEN)

    def _check_returned(self, row: int, parent: int) -> None:
        """Raise MismatchError unless the output ``row`` is what its parent returned."""
        raise NotImplementedError

    def _combine(
        self, rows: list[int], arguments: Mapping[int, tuple[str, str]], alike: Sequence[str]
    ) -> list[Check]:
        """Return the checks of a call that returned the same again, from the statuses of its arguments."""
        statuses = {status for status, _ in arguments.values()}
        status = FAILED if FAILED in statuses else EXEMPT if statuses else PROVEN
        reasons = tuple(why for own_status, why in arguments.values() if own_status == status)
        return [Check(self.graph.label(row), status, reasons, tuple(alike)) for row in rows]

    def _difference(self, call: Invocation, row: int, why: str, unrepeatable: str) -> Check:
        """Return the check of a row that differs from its replay: failed, unless there is a reason for it.

        Args:
            call: The call.
            row: The row.
            why: How it differs.
            unrepeatable: That the call was seen to differ from itself; "" if it was not.
        """
        label, modes = self.graph.label(row), ", ".join(self.replays.modes_around)
        if modes:
            return Check(label, UNPROVEN, (f"{why}; it ran under {modes}, which may change what it does",))
        unrepeatable = why_unrepeatable(call) or unrepeatable
        return Check(label, UNPROVEN if unrepeatable else FAILED, (unrepeatable or why,))

    def _was_caught(self, row: int) -> bool:
        """Return whether the op raised an exception that the model caught."""
        no_result = self.graph.dtype_of(row) == ""
        return no_result and not self.graph.ops.flags[row] & RAISED

    def _output_number(self, row: int) -> int:
        return max(int(self.graph.ops.output[row]), 0)


def validate_trace(trace: Trace, perturb: str) -> Report:
    """Check every op and output of a trace by its saved values; see ``Trace.validate``.

    Args:
        trace: The trace.
        perturb: ``"alike"`` or ``"all"``.

    Raises:
        InputError: If ``perturb`` is neither, or the trace has no calls to run again.
    """
    every = perturbs_every(perturb)
    if trace._replays is None:
        raise InputError(
            "This trace has no calls to run again: it was taken with save='none', copied, or read from a "
            "file. Trace the model again with save='all'."
        )
    return TraceValidator(trace, trace._replays, every=every).report()


class TraceValidator(Checker):
    """Validates the saved values of a trace.

    Args:
        trace: The trace.
        replays: Its calls.
        every: Whether to try random values on each call; otherwise on one of those that are alike.
    """

    def __init__(self, trace: Trace, replays: Replays, *, every: bool) -> None:
        super().__init__(CallInputs(trace.graph, replays, for_replay(trace.values), trace.why_not_stored))
        self.trace = trace
        self.perturbations = Perturbations(trace.graph.args, every=every)

    def _call(self, call: Invocation, rows: list[int]) -> list[Check]:
        saved = {row: self.inputs.value(row) for row in rows}
        given = [self.inputs.argument(tensor_arg, rows[0]) for tensor_arg in call.tensor_args]
        out = rerun_call(call, given)
        type_ = self.graph.types[int(self.graph.ops.type[rows[0]])]
        blank = type_ in UNINITIALIZED
        scratch = [row for row in rows if (type_, self._output_number(row)) in SCRATCH]
        differences = {
            row: describe_difference(saved[row], out, self._output_number(row), blank=blank or row in scratch)
            for row in rows
        }
        if any(differences.values()):
            unrepeatable = why_not_repeated(call, given, out, 3)
            return [
                self._explained_failure(call, row, differences[row], unrepeatable)
                if differences[row]
                else Check(self.graph.label(row), PROVEN)
                for row in rows
            ]
        arguments = NO_ARGUMENTS if blank else self.perturbations.check(rows[0], type_, call, given, out)
        checks = self._combine(rows, arguments.statuses, [self.graph.label(row) for row in arguments.alike])
        return [
            Check(check.label, EXEMPT, NO_ARGUMENTS.statuses[-1][1:]) if row in scratch else check
            for row, check in zip(rows, checks, strict=True)
        ]

    def _check_returned(self, row: int, parent: int) -> None:
        if not same(self.inputs.value(row), self.inputs.output(row)):
            raise MismatchError(f"it differs from what {self.graph.label(parent)} returned")

    def _explained_failure(self, call: Invocation, row: int, why: str, unrepeatable: str) -> Check:
        """Return the check of a row that differs, with what may explain the difference."""
        label = self.graph.label(row)
        if label in self.graph.facts.get("changed", ()):
            return Check(label, EXEMPT, ("it was changed by rerun",))
        if row in self.trace.maybe_modified:
            why += "; something that was not recorded wrote to its memory"
        return self._difference(call, row, why, unrepeatable)


def why_not_repeated(call: Invocation, given: list[Tensor], out: list[Tensor], runs: int) -> str:
    """Return that a call does not repeat itself, if further runs show it; else ``""``.

    Kernels of a GPU that add atomically round differently each time.

    Args:
        call: The call.
        given: Its tensors.
        out: What it returned on them, run again once.
        runs: The number of further runs.
    """
    for _ in range(runs):
        other = rerun_call(call, given)
        if len(out) != len(other) or not all(map(same, out, other)):
            return "it does not repeat itself: run again twice on the same arguments, it differs"
    return ""


#: The results for a call that returns uninitialized memory, whose arguments are not checked.
NO_ARGUMENTS = ArgumentResults(
    {-1: (EXEMPT, "its memory is uninitialized, so only shape and dtype were compared")}, ()
)


def rerun_call(call: Invocation, given: list[Tensor]) -> list[Tensor]:
    """Run a call again.

    Raises:
        UnprovenError: If it is a call of autograd whose graph no longer exists, or communicates with other
            processes.
        MismatchError: If it raises.
    """
    try:
        return run_call(call, given)
    except UnprovenError:
        raise
    except Exception as error:
        if is_autograd(call):
            raise UnprovenError(
                "it needs the autograd graph, which no longer exists; validate(model, …) checks it"
            ) from None
        raise MismatchError(f"run again, it raised {one_line(error)}") from None


def describe_difference(saved: Tensor, out: Sequence[Tensor], number: int, *, blank: bool) -> str:
    """Return how an output differs from its replay; ``""`` if it does not.

    Args:
        saved: The output of the pass.
        out: The outputs of the replay.
        number: The index of the output.
        blank: Whether the output is uninitialized memory, of which only shape and dtype are compared.
    """
    if number >= len(out):
        return f"run again, it returned {len(out)} tensors, not {number + 1}"
    again = out[number]
    if blank:
        alike = (saved.shape, saved.dtype) == (again.shape, again.dtype)
        return "" if alike else "run again, its shape or dtype differs"
    return "" if same(saved, again) else f"run again on its parents, it differs{_extent(saved, again)}"


def status_of_error(error: Exception) -> tuple[str, tuple[str, ...]]:
    """Return the status and the reason for an exception while a call was checked.

    Exceptions other than ``MismatchError`` come from values that cannot be compared (on ``meta``, nested, of
    a foreign class), so they leave the call unproven.
    """
    if isinstance(error, MismatchError):
        return FAILED, (str(error),)
    return UNPROVEN, (
        str(error) if isinstance(error, UnprovenError) else f"it cannot be checked: {one_line(error)}",
    )


def _extent(saved: Tensor, again: Tensor) -> str:
    """Describe the extent of a difference: the shapes, the dtypes, or the largest absolute difference."""
    saved, again = local_of(saved), local_of(again)
    if saved.shape != again.shape:
        return f" (shape {tuple(again.shape)}, saved {tuple(saved.shape)})"
    if saved.dtype != again.dtype:
        return f" ({again.dtype}, saved {saved.dtype})"
    largest = (
        (saved.to(torch.float64) - again.to(torch.float64)).abs().max()
        if not saved.is_complex()
        else torch.zeros(0)
    )
    return f" by up to {largest.item():.3g}" if largest.numel() else ""
