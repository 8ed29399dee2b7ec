"""Proof of a graph, call by call: run again each gave the same, the graph's edges say what went in, and what
went in matters. ``Checker`` is what all proofs share; ``TraceValidator`` proves a trace by its saved values.

Parents are taken from the graph's own edges, so a lost or a wrong edge shows as well as a wrong value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...core.errors import InputError
from ...core.graph import CONSTANT, INPUT, OUTPUT, Graph
from ...core.graph import FAILED as RAISED
from ...core.walks import ancestors
from ..capture.context.randomness import common_generators, preserve_generators
from ..capture.invocation import Invocation
from ..capture.saving.store import for_replay
from ..replaying.call_inputs import Parents, WrongError, calls_of
from ..replaying.replay import LEFT_OUT, Replays, UnprovenError, run, same, unrecorded
from .exemptions import SCRATCH, UNINITIALISED
from .perturb import Asked, Perturbations, asks_every, told
from .report import EXEMPT, FAILED, PROVEN, UNPROVEN, Check, Report

if TYPE_CHECKING:
    from ..results.trace import Trace


class Checker:
    """Checks the calls and outputs of one graph; ``values`` are the tensors there are, by row."""

    def __init__(self, graph: Graph, replays: Replays, values: Mapping[int, Tensor]) -> None:
        self.graph, self.replays = graph, replays
        self.parents = Parents(graph, replays, values)

    def report(self) -> Report:
        """Every op and output in the order they ran."""
        events = calls_of(self.graph)
        with preserve_generators(common_generators()), unrecorded():
            found = {row: one for event, rows in events.items() for row, one in self._event(event, rows)}
        return Report([found[row] for row in sorted(found)])

    def _event(self, event: int, rows: list[int]) -> list[tuple[int, Check]]:
        """The checks of the rows that one call returned."""
        try:
            if self.graph.metas[int(self.graph.ops.meta[rows[0]])].device == "meta":
                raise UnprovenError("it is on the meta device, which has no values to compare")
            if int(self.graph.ops.kind[rows[0]]) == OUTPUT:
                checks = [self._output(rows[0])]
            elif self._was_caught(rows[0]):
                checks = [Check(self.graph.label(rows[0]), EXEMPT, ("it raised, and the model went on",))]
            else:
                call = self.replays.call(event)
                if call is None:
                    raise UnprovenError("its call was not noted: it ran out of sight, or raised")
                self.parents.agree(call, rows)
                checks = self._call(call, rows)
        except Exception as error:
            checks = [Check(self.graph.label(row), *refusal(error)) for row in rows]
        return list(zip(rows, checks, strict=True))

    def _call(self, call: Invocation, rows: list[int]) -> list[Check]:
        """The checks of the rows that ``call`` returned."""
        raise NotImplementedError

    def _output(self, row: int) -> Check:
        parents = list(self.parents.into.get(row, {}).values())
        if not parents and row in self.graph.row_params:
            return Check(self.graph.label(row), EXEMPT, ("it is a parameter as it stands",))
        returned = self.parents.returned(row)
        (parent,) = parents
        if not same(self.parents.value(row), returned):
            raise WrongError(f"it is not what {self.graph.label(parent)} returned")
        kinds = {int(self.graph.ops.kind[above]) for above in ancestors(self.graph, [row])}
        if CONSTANT in kinds and INPUT not in kinds and self.graph.rows_of(INPUT):
            raise UnprovenError(
                "it descends from no input, only from tensors made before the pass or out of sight"
            )
        return Check(self.graph.label(row), PROVEN)

    def _sums(
        self, rows: list[int], said: Mapping[int, tuple[str, str]], alike: Sequence[str]
    ) -> list[Check]:
        """The checks of a call that gave the same again, by what is to be said of its arguments."""
        statuses = {status for status, _ in said.values()}
        status = FAILED if FAILED in statuses else EXEMPT if statuses else PROVEN
        reasons = tuple(why for its, why in said.values() if its == status)
        return [Check(self.graph.label(row), status, reasons, tuple(alike)) for row in rows]

    def _was_caught(self, row: int) -> bool:
        """Whether the op returned nothing, and is not the one that ended the pass."""
        nothing = self.graph.metas[int(self.graph.ops.meta[row])].dtype == ""
        return nothing and not self.graph.ops.flags[row] & RAISED

    def _output_number(self, row: int) -> int:
        return max(int(self.graph.ops.output[row]), 0)


def validate_trace(trace: Trace, perturb: str) -> Report:
    """Check every op and output of a trace by its saved values."""
    every = asks_every(perturb)
    if trace._replays is None:
        raise InputError(
            "This trace has no calls to run again: it was taken with save='none', copied, or read from a "
            "file. Trace the model again with save='all'."
        )
    return TraceValidator(trace, trace._replays, every=every).report()


class TraceValidator(Checker):
    """Proves the saved values of a trace. ``every`` tries random values on each call, else on one of those
    that are alike."""

    def __init__(self, trace: Trace, replays: Replays, *, every: bool) -> None:
        super().__init__(trace.graph, replays, for_replay(trace.values))
        self.trace = trace
        self.perturbations = Perturbations(trace.graph.args, every=every)

    def _call(self, call: Invocation, rows: list[int]) -> list[Check]:
        saved = {row: self.parents.value(row) for row in rows}
        given = [self.parents.given(tensor_arg, rows[0]) for tensor_arg in call.tensor_args]
        out = again(call, given)
        type_ = self.graph.types[int(self.graph.ops.type[rows[0]])]
        blank = type_ in UNINITIALISED
        scratch = [row for row in rows if (type_, self._output_number(row)) in SCRATCH]
        wrong = {
            row: difference(saved[row], out, self._output_number(row), blank=blank or row in scratch)
            for row in rows
        }
        if any(wrong.values()):
            return [
                self._excused(call, row, wrong[row]) if wrong[row] else Check(self.graph.label(row), PROVEN)
                for row in rows
            ]
        asked = BLANK if blank else self.perturbations.ask(rows[0], type_, call, given, out)
        checks = self._sums(rows, asked.said, [self.graph.label(row) for row in asked.alike])
        return [
            Check(check.label, EXEMPT, BLANK.said[-1][1:]) if row in scratch else check
            for row, check in zip(rows, checks, strict=True)
        ]

    def _excused(self, call: Invocation, row: int, why: str) -> Check:
        """A difference with what may explain it."""
        label = self.graph.label(row)
        if label in self.graph.facts.get("changed", ()):
            return Check(label, EXEMPT, ("it was changed in a rerun",))
        changed = [
            self.graph.params[-1 - tensor_arg.source].address
            for tensor_arg in call.tensor_args
            if LEFT_OUT < tensor_arg.source < 0 and self._changed(-1 - tensor_arg.source)
        ]
        if changed:
            why += f"; {', '.join(changed)} changed since the trace was taken"
        elif row in self.trace.maybe_modified:
            why += "; something unseen wrote to its memory"
        return Check(label, FAILED, (why,))

    def _changed(self, number: int) -> bool:
        value, version = self.replays.params[number]
        return version is not None and value._version != version


#: Of a call whose result is whatever memory held, no argument is asked.
BLANK = Asked({-1: (EXEMPT, "its memory is not initialised, so only shape and dtype were compared")}, ())


def again(call: Invocation, given: list[Tensor]) -> list[Tensor]:
    """Run a call again; WrongError where it raises, UnprovenError where it must."""
    try:
        return run(call, given)
    except Exception as error:
        if getattr(call.func, "__module__", None) == "torch.autograd":
            raise UnprovenError("it needs what autograd had recorded, which is gone") from None
        raise WrongError(f"run again it raised {told(error)}") from None


def difference(was: Tensor, out: Sequence[Tensor], number: int, *, blank: bool) -> str:
    """How what a call returned, as its output ``number``, differs when run again; "" where it does not."""
    if number >= len(out):
        return f"run again it returned {len(out)} tensors, not {number + 1}"
    now = out[number]
    if blank:
        alike = (was.shape, was.dtype) == (now.shape, now.dtype)
        return "" if alike else "run again its shape or dtype is another"
    return "" if same(was, now) else f"run again on its parents it gives something else{_how_far(was, now)}"


def refusal(error: Exception) -> tuple[str, tuple[str, ...]]:
    """The status and reason of what could not be checked; other errors come of values that cannot be
    compared: on meta, nested, of a foreign class."""
    if isinstance(error, WrongError):
        return FAILED, (str(error),)
    return UNPROVEN, (
        str(error) if isinstance(error, UnprovenError) else f"it cannot be checked: {told(error)}",
    )


def _how_far(was: Tensor, now: Tensor) -> str:
    """The greatest difference, where there is one to tell."""
    if was.shape != now.shape:
        return f" (shape {tuple(now.shape)}, saved {tuple(was.shape)})"
    if was.dtype != now.dtype:
        return f" ({now.dtype}, saved {was.dtype})"
    far = (
        (was.to(torch.float64) - now.to(torch.float64)).abs().max()
        if not was.is_complex()
        else torch.zeros(0)
    )
    return f" (differs by up to {far.item():.3g})" if far.numel() else ""
