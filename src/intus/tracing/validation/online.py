"""Validate a pass while it runs, without keeping activations.

Each operation is replayed just before it runs, on its parents as they were noted. When the pass is over, what
was noted is compared with the graph, edge by edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from ..capture.memory import copied, is_freed, memory_of, version_of
from ..capture.recording import ROW, Recording
from ..capture.saving.choose import Chooser
from ..capture.saving.values import Values
from ..replaying.call_inputs import MismatchError
from ..replaying.replay import NOT_IN_GRAPH, Replays, UnprovenError, apply_patch, unrecorded
from .exemptions import UNINITIALIZED
from .offline import NO_ARGUMENTS, Checker, describe_difference, rerun_call, status_of_error
from .perturb import NOT_IN_GRAPH_REASON, ArgumentResults, Perturbations
from .report import EXEMPT, FAILED, PROVEN, Check


class LiveValues(Values):
    """The activations of one pass, for as long as the model itself keeps them.

    A tensor that is about to be overwritten is copied if another tensor shares its memory, because it may be
    read through that one.

    Args:
        every: Whether to try random values on each call; otherwise on one of those that are alike.
        on_checked: Called after each call that was checked.

    Attributes:
        outputs: The outputs of the model, kept because the model does not keep them.
    """

    def __init__(self, *, every: bool, on_checked: Callable[[], Any]) -> None:
        super().__init__(Chooser("all"))
        self.every = every
        self.on_checked = on_checked
        self.outputs: list[Tensor] = []
        self._living: dict[int, tuple[ref[Tensor], int | None]] = {}
        self._rows_in: dict[int | None, list[int]] = {}
        self._shared: set[int | None] = set()  # memory written to while several tensors shared it

    def call_log(self, recording: Recording) -> OnlineValidator:
        """Return the validator, which checks each call as it is noted."""
        return OnlineValidator(recording, self)

    def on_tensor(self, row: int, kind: int, type_: str, t: Tensor) -> None:
        """Remember a tensor by its row."""
        if is_wrapped(t):
            return
        if kind == OUTPUT:
            self.outputs.append(t)
        memory = memory_of(t)
        if memory in self._shared:
            super().on_tensor(row, kind, type_, t)
        else:
            self._living[row] = ref(t), version_of(t)
            self._rows_in.setdefault(memory, []).append(row)

    def before_unseen_writes(self, t: Tensor) -> None:
        """Copy what shares memory with ``t``, which code outside of torch may now write to."""
        self._keep_copies(t, except_for=None)

    def before_writing(self, t: Tensor) -> None:
        """Forget the value of ``t``, which is about to be overwritten, and copy what shares its memory."""
        self._keep_copies(t, except_for=t)

    def _keep_copies(self, t: Tensor, except_for: Tensor | None) -> None:
        memory = memory_of(t)
        for row in self._rows_in.pop(memory, ()):
            other = self._living.pop(row)[0]()
            if other is not None and other is not except_for and not is_freed(other):
                self.kept[row] = copied(other.detach())
                self._shared.add(memory)
        super().before_writing(t)

    def value(self, row: int) -> Tensor:
        """Return the tensor of a row.

        Raises:
            MismatchError: If it no longer exists, so that no call can have received it.
            UnprovenError: If its value is not known.
        """
        if row in self.kept:
            return self.kept[row]
        if row not in self._living:
            raise UnprovenError("an argument has no plain value, or was overwritten")
        reference, version = self._living[row]
        t = reference()
        if t is None:
            raise MismatchError("an argument was noted that no longer existed")
        if is_freed(t):
            raise UnprovenError("an argument was in memory that the model freed")
        if version_of(t) != version:
            raise UnprovenError("an argument was written to by something that was not recorded")
        return t

    def remaining(self, rows: Mapping[int, int]) -> dict[int, Tensor]:
        """Return the values that still exist when the pass is over.

        Args:
            rows: The row of the graph for each recorded row.

        Returns:
            The values by row of the graph.
        """
        values = {}
        for row, graph_row in rows.items():
            try:
                values[graph_row] = self.value(row)
            except (UnprovenError, MismatchError):
                continue
        return values


class Finding:
    """The result of checking one call while the pass ran.

    Attributes:
        type: The type of the operation.
        row: The recorded row of the first tensor it returned; -1 while it runs.
        out: What the replay returned; emptied after the comparison.
        differences: For each output, how the replay differs; ``""`` if it does not.
        arguments: The results for its arguments.
        error: The status and reason if it could not be checked.
    """

    __slots__ = ("arguments", "differences", "error", "out", "row", "type")

    def __init__(self, type_: str) -> None:
        self.type, self.row = type_, -1
        self.out: list[Tensor] = []
        self.differences: list[str] = []
        self.arguments = ArgumentResults({}, ())
        self.error: tuple[str, tuple[str, ...]] | None = None


class OnlineValidator(CallLog):
    """Notes the calls of one pass as ``CallLog`` does, and replays each.

    Args:
        recording: The recording of the pass.
        values: The activations that exist at present.

    Attributes:
        findings: The finding of each call, by recorded row.
    """

    def __init__(self, recording: Recording, values: LiveValues) -> None:
        super().__init__()
        self.findings: dict[int, Finding] = {}
        self._recording, self._values = recording, values
        self._perturbations = Perturbations(recording.args, every=values.every)

    def before(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, inputs: list[int]
    ) -> tuple[LoggedCall, Finding] | None:
        """Note a call, and replay it before the model runs it and may change its arguments."""
        note = super().before(func, args, kwargs, inputs)
        if note is None:
            return None
        finding = Finding(describe(func).type)
        self._replay(note, finding)
        return note, finding

    def after(self, row: int, noted: tuple[LoggedCall, Finding], out: Any) -> None:
        """Compare what the call returned with its replay."""
        note, finding = noted
        super().after(row, note, out)
        self._compare(row, finding, tensors(out))

    def add_module(
        self, row: int, module: Module, given: CallArguments, picks: tuple[int, ...], out: list[Tensor]
    ) -> LoggedCall | None:
        """Check a module whose operations are not recorded, after it returned ``out``."""
        note = super().add_module(row, module, given, picks, out)
        if note is not None:
            finding = Finding(type(module).__name__.lower())
            with preserve_generators(common_generators()):
                self._replay(note, finding, picks)
            self._compare(row, finding, out)
        return note

    def _replay(self, note: LoggedCall, finding: Finding, picks: tuple[int, ...] | None = None) -> None:
        try:
            with self._not_recorded():
                call = self.invocation(note, TensorArg, picks)
                given = [self._given(tensor_arg) for tensor_arg in call.tensor_args]
                finding.out = rerun_call(call, given)
                finding.arguments = (
                    NO_ARGUMENTS
                    if finding.type in UNINITIALIZED
                    else self._perturbations.check(finding, finding.type, call, given, finding.out)
                )
        except Exception as error:
            finding.error = status_of_error(error)

    @contextmanager
    def _not_recorded(self) -> Iterator[None]:
        """Exclude what runs inside from the recording."""
        self._values.busy = True
        try:
            with unrecorded():
                yield
        finally:
            self._values.busy = False

    def _given(self, tensor_arg: TensorArg) -> Tensor:
        if tensor_arg.patch is None:
            return self._value(tensor_arg.source)
        if tensor_arg.patch.unseen:
            raise UnprovenError("its memory was written to by something that was not recorded")
        return apply_patch(self._value(tensor_arg.patch.base), tensor_arg.patch, self._value)

    def _value(self, row: int) -> Tensor:
        return self._recording.addresses.params[-1 - row][1] if row < 0 else self._values.value(row)

    def _compare(self, row: int, finding: Finding, out: list[Tensor]) -> None:
        finding.row, again = row, finding.out
        finding.out = []
        self.findings[row] = finding
        self._values.on_checked()
        if finding.error is not None:
            return
        try:
            with self._not_recorded():
                if any(map(is_wrapped, out)):
                    raise UnprovenError(
                        "it ran inside a transform such as vmap, whose tensors have no values"
                    )
                blank = finding.type in UNINITIALIZED
                finding.differences = [
                    describe_difference(t.detach(), again, number, blank=blank)
                    for number, t in enumerate(out)
                ]
        except Exception as error:
            finding.error = status_of_error(error)


class OnlineReport(Checker):
    """Combines the findings of a pass that was checked while it ran with its graph.

    Args:
        graph: The graph.
        replays: The calls.
        values: The values that still exist, by row of the graph.
        validator: What checked the calls.
    """

    def __init__(
        self, graph: Graph, replays: Replays, values: dict[int, Tensor], validator: OnlineValidator
    ) -> None:
        super().__init__(graph, replays, values)
        self._findings, self._graph_row = validator.findings, replays.graph_row

    def _call(self, call: Invocation, rows: list[int]) -> list[Check]:
        finding = self._findings[int(self.graph.ops.event[rows[0]]) * len(ROW)]
        statuses = dict(finding.arguments.statuses)
        for number, tensor_arg in enumerate(call.tensor_args):
            name = f"argument {self.graph.args[tensor_arg.arg]!r}: "
            if tensor_arg.source == NOT_IN_GRAPH:
                statuses[number] = EXEMPT, name + NOT_IN_GRAPH_REASON
                continue
            parent = self.inputs.parent(tensor_arg, rows[0])
            if parent != tensor_arg.source:
                raise MismatchError(
                    f"{name}it came from {self.inputs.label(tensor_arg.source)}, the graph has another parent"
                )
        if finding.error is not None:
            return [Check(self.graph.label(row), *finding.error) for row in rows]
        differences = {row: finding.differences[self._output_number(row)] for row in rows}
        if any(differences.values()):
            return [
                Check(self.graph.label(row), *((FAILED, (text,)) if text else (PROVEN,)))
                for row, text in differences.items()
            ]
        alike = [self.inputs.label(self._graph_row(other.row)) for other in finding.arguments.alike]
        return self._combine(rows, statuses, alike)
