"""Proof of a pass while it runs: each op is run again just before it runs, on its parents as they were noted,
and no activation is kept. What was noted is then compared with the graph, edge by edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import ref

from torch import Tensor
from torch.nn import Module

from ...core.graph import OUTPUT, Graph
from ..capture.call_log import CallArguments, CallLog, LoggedCall
from ..capture.containers import is_wrapped, tensors
from ..capture.context.randomness import common_generators, preserve_generators
from ..capture.functions import describe
from ..capture.invocation import Invocation, TensorArg
from ..capture.memory import copied, memory_of, version_of
from ..capture.recording import ROW, Recording
from ..capture.saving.choose import Chooser
from ..capture.saving.values import Values
from ..replaying.call_inputs import WrongError
from ..replaying.replay import LEFT_OUT, Replays, UnprovenError, patched, unrecorded
from .exemptions import UNINITIALISED
from .offline import BLANK, Checker, again, difference, refusal
from .perturb import NOWHERE, Asked, Perturbations
from .report import EXEMPT, FAILED, PROVEN, Check


class LiveValues(Values):
    """The activations of one pass for as long as the model itself holds them. A copy is held of what is about
    to be overwritten while another tensor shares its memory: it may be read through that one."""

    def __init__(self, *, every: bool) -> None:
        super().__init__(Chooser("all"))
        self.every = every
        self.ends: list[Tensor] = []  # the outputs, which the model lets go
        self._living: dict[int, tuple[ref[Tensor], int | None]] = {}
        self._rows_in: dict[int | None, list[int]] = {}
        self._shared: set[int | None] = set()  # memory that was written to while several tensors shared it

    def call_log(self, recording: Recording) -> OnlineValidator:
        """What proves each call as it is noted."""
        return OnlineValidator(recording, self)

    def on_tensor(self, row: int, kind: int, type_: str, t: Tensor) -> None:
        """Know a tensor by its row."""
        if is_wrapped(t):
            return
        if kind == OUTPUT:
            self.ends.append(t)
        memory = memory_of(t)
        if memory in self._shared:
            super().on_tensor(row, kind, type_, t)
        else:
            self._living[row] = ref(t), version_of(t)
            self._rows_in.setdefault(memory, []).append(row)

    def before_unseen_writes(self, t: Tensor) -> None:
        """Whoever has the memory now may write at any time."""
        self._keep_copies(t, but=None)

    def before_writing(self, t: Tensor) -> None:
        """What ``t`` was is over; what other tensors see of its memory is copied."""
        self._keep_copies(t, but=t)

    def _keep_copies(self, t: Tensor, but: Tensor | None) -> None:
        memory = memory_of(t)
        for row in self._rows_in.pop(memory, ()):
            other = self._living.pop(row)[0]()
            if other is not None and other is not but:
                self.kept[row] = copied(other.detach())
                self._shared.add(memory)
        super().before_writing(t)

    def value(self, row: int) -> Tensor:
        """What the row's tensor was; WrongError where it is gone, so that nobody can have been given it."""
        if row in self.kept:
            return self.kept[row]
        if row not in self._living:
            raise UnprovenError("it was given what has no value of its own, or was overwritten")
        reference, version = self._living[row]
        t = reference()
        if t is None:
            raise WrongError("it was noted as given what was gone by then")
        if version_of(t) != version:
            raise UnprovenError("what it was given was written to out of sight")
        return t

    def left(self, rows: Mapping[int, int]) -> dict[int, Tensor]:
        """What is there when the pass is over, by the number that ``rows`` gives each row."""
        found = {}
        for row, number in rows.items():
            try:
                found[number] = self.value(row)
            except (UnprovenError, WrongError):
                continue
        return found


class Finding:
    """What was found of one call: what it gave when run again, how what it gave in the pass differs from
    that by output, what was asked of its arguments, and why it could not be checked."""

    __slots__ = ("asked", "out", "refused", "row", "type", "wrong")

    def __init__(self, type_: str) -> None:
        self.type, self.row = type_, -1
        self.out: list[Tensor] = []
        self.wrong: list[str] = []
        self.asked = Asked({}, ())
        self.refused: tuple[str, tuple[str, ...]] | None = None


class OnlineValidator(CallLog):
    """Notes the calls of one pass as ``CallLog`` does, and runs each again as it comes."""

    def __init__(self, recording: Recording, passing: LiveValues) -> None:
        super().__init__()
        self.found: dict[int, Finding] = {}
        self._recording, self._passing = recording, passing
        self._perturbations = Perturbations(recording.args, every=passing.every)

    def before(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, inputs: list[int]
    ) -> tuple[LoggedCall, Finding] | None:
        """Note a call, and run it again while its arguments are what they are."""
        note = super().before(func, args, kwargs, inputs)
        if note is None:
            return None
        finding = Finding(describe(func).type)
        self._run_again(note, finding)
        return note, finding

    def after(self, row: int, noted: tuple[LoggedCall, Finding], out: Any) -> None:
        """Compare what the call returned with what it gave when run again."""
        note, finding = noted
        super().after(row, note, out)
        self._compare(row, finding, tensors(out))

    def add_module(
        self, row: int, module: Module, given: CallArguments, picks: tuple[int, ...], out: list[Tensor]
    ) -> LoggedCall | None:
        """Prove a module whose insides are out of sight when it has returned ``out``."""
        note = super().add_module(row, module, given, picks, out)
        if note is not None:
            finding = Finding(type(module).__name__.lower())
            with preserve_generators(common_generators()):
                self._run_again(note, finding, picks)
            self._compare(row, finding, out)
        return note

    def _run_again(self, note: LoggedCall, finding: Finding, picks: tuple[int, ...] | None = None) -> None:
        try:
            with self._aside():
                call = self.invocation(note, TensorArg, picks)
                given = [self._given(tensor_arg) for tensor_arg in call.tensor_args]
                finding.out = again(call, given)
                finding.asked = (
                    BLANK
                    if finding.type in UNINITIALISED
                    else self._perturbations.ask(finding, finding.type, call, given, finding.out)
                )
        except Exception as error:
            finding.refused = refusal(error)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """What runs here is no part of the pass."""
        self._passing.busy = True
        try:
            with unrecorded():
                yield
        finally:
            self._passing.busy = False

    def _given(self, tensor_arg: TensorArg) -> Tensor:
        if tensor_arg.patch is None:
            return self._value(tensor_arg.source)
        if tensor_arg.patch.unseen:
            raise UnprovenError("its memory was written to out of sight")
        return patched(self._value(tensor_arg.patch.base), tensor_arg.patch, self._value)

    def _value(self, row: int) -> Tensor:
        return self._recording.addresses.params[-1 - row][1] if row < 0 else self._passing.value(row)

    def _compare(self, row: int, finding: Finding, out: list[Tensor]) -> None:
        finding.row, again = row, finding.out
        finding.out = []
        self.found[row] = finding
        if finding.refused is not None:
            return
        try:
            with self._aside():
                if any(map(is_wrapped, out)):
                    raise UnprovenError("it ran inside a transform, which looks through its tensors")
                blank = finding.type in UNINITIALISED
                finding.wrong = [
                    difference(t.detach(), again, number, blank=blank) for number, t in enumerate(out)
                ]
        except Exception as error:
            finding.refused = refusal(error)


class OnlineReport(Checker):
    """Puts together what was found of each call while the pass ran, and what the graph says of it."""

    def __init__(
        self, graph: Graph, replays: Replays, values: dict[int, Tensor], witness: OnlineValidator
    ) -> None:
        super().__init__(graph, replays, values)
        self._found, self._where = witness.found, replays.place

    def _call(self, call: Invocation, rows: list[int]) -> list[Check]:
        finding = self._found[int(self.graph.ops.event[rows[0]]) * len(ROW)]
        said = dict(finding.asked.said)
        for number, tensor_arg in enumerate(call.tensor_args):
            name = f"argument {self.graph.args[tensor_arg.arg]!r}: "
            if tensor_arg.source == LEFT_OUT:
                said[number] = EXEMPT, name + NOWHERE
                continue
            parent = self.parents.parent(tensor_arg, rows[0])
            if parent != tensor_arg.source:
                raise WrongError(
                    f"{name}it came from {self.parents.label(tensor_arg.source)}, not as the graph has it"
                )
        if finding.refused is not None:
            return [Check(self.graph.label(row), *finding.refused) for row in rows]
        wrong = {row: finding.wrong[self._output_number(row)] for row in rows}
        if any(wrong.values()):
            return [
                Check(self.graph.label(row), *((FAILED, (wrong[row],)) if wrong[row] else (PROVEN,)))
                for row in rows
            ]
        alike = [self.parents.label(self._where(other.row)) for other in finding.asked.alike]
        return self._sums(rows, said, alike)
