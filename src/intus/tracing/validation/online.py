"""Validate a pass while it runs, without keeping activations.

Each operation is replayed just before it runs, on its parents as they were noted. These are compared with the
tensors that the operation really receives: the very same tensors, or equal bit for bit. When the pass is
over, what was noted is compared with the graph, edge by edge. So a wrong parent is found also where it has no
effect on the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import ref
from zlib import crc32

import numpy as np
import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack
from torch.nn import Module, Parameter

from ...core.graph import Graph
from ...core.shared_array import shared_array
from ..capture.call_log import CallArguments, CallLog, LoggedCall
from ..capture.containers import is_wrapped, tensors
from ..capture.context.randomness import common_generators, preserve_generators
from ..capture.context.script_state import ScriptCall
from ..capture.functions import describe
from ..capture.invocation import Invocation, TensorArg, flatten
from ..capture.memory import copied, is_freed, memory_of, version_of
from ..capture.recording import ROW, Recording
from ..capture.saving.choose import Chooser
from ..capture.saving.values import Values
from ..replaying.call_inputs import CallInputs, MismatchError
from ..replaying.replay import NOT_IN_GRAPH, Replays, UnprovenError, apply_patch, bits_of, same, unrecorded
from ..replaying.transforms import outside_transforms, unwrapped
from .autograd import Trail
from .offline import NO_ARGUMENTS, Checker, describe_difference, rerun_call, status_of_error, why_not_repeated
from .perturb import NOT_IN_GRAPH_REASON, ArgumentResults, Perturbations
from .report import EXEMPT, FAILED, PROVEN, UNPROVEN, Check
from .uninitialized import UNINITIALIZED


class _Living(NamedTuple):
    """A tensor that the model may still have.

    Attributes:
        references: The tensor, and what is inside it or shares its memory and value.
        version: How often its memory had been written to.
        contents: The checksum of its value; None if it has none.
    """

    references: tuple[ref[Tensor], ...]
    version: int | None
    contents: int | None


def checksum(t: Tensor) -> int | None:
    """Return a checksum of a tensor's value, to detect writes that change no version.

    Such are writes to its storage or by its address. None where the value cannot be read cheaply or need not
    be complete: in wrappers and special layouts, under transforms and dispatch modes, and if several
    processes take part.

    >>> t = torch.zeros(3)
    >>> before = checksum(t)
    >>> _ = t.untyped_storage().fill_(1)
    >>> checksum(t) == before
    False
    """
    is_plain = type(t) in (Tensor, Parameter) and t.layout == torch.strided and not is_wrapped(t)
    if not is_plain or t.is_nested or t.is_quantized or t.device.type not in ("cpu", "cuda"):
        return None
    if _len_torch_dispatch_stack() or peek_interpreter_stack() is not None:
        return None
    if is_freed(t) or t.nbytes > t.untyped_storage().nbytes():
        return None
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return None
    with torch._C.DisableTorchFunction():
        bits = bits_of(t)
        return _checksum(shared_array(bits)) if bits.device.type == "cpu" else int(bits.sum())


#: The bytes of an array up to which all of it is given to crc32, and those that are added up otherwise.
_SMALL, _CHUNK = 1 << 14, 512


def _checksum(array: np.ndarray) -> int:
    """Return a checksum of an array; of a large one that of the sums of its chunks, which is much faster."""
    content = array.reshape(-1).view(np.uint8)
    size = 0 if content.size <= _SMALL else content.size // _CHUNK * _CHUNK
    sums = content[:size].view(np.uint64).reshape(-1, _CHUNK // 8).sum(1)
    return crc32(content[size:].data, crc32(sums.data))


class LiveValues(Values):
    """The activations of one pass, for as long as the model itself keeps them.

    A tensor that is about to be overwritten is copied if another tensor shares its memory, because it may be
    read through that one. Of a tensor that a transform such as ``vmap`` wraps, the tensors inside are
    remembered too, because they outlive the transform.

    Args:
        every: Whether to try random values on each call; otherwise on one of those that are alike.
        on_checked: Called after each call that was checked.
        trail: Collects what is compared with autograd; None to compare nothing.

    Attributes:
        outputs: The outputs of the model, kept because the model does not keep them.
    """

    def __init__(self, *, every: bool, on_checked: Callable[[], Any], trail: Trail | None = None) -> None:
        super().__init__(Chooser("all"))
        self.every, self.trail = every, trail
        self.on_checked = on_checked
        self.outputs: list[Tensor] = []
        self._living: dict[int, _Living] = {}
        self._rows_in: dict[int | None, list[int]] = {}
        self._shared: set[int | None] = set()  # memory written to while several tensors shared it

    def call_log(self, recording: Recording) -> OnlineValidator:
        """Return the validator, which checks each call as it is noted."""
        return OnlineValidator(recording, self)

    def on_tensor(self, row: int, kind: int, type_: str, t: Tensor) -> None:
        """Remember a tensor by its row."""
        if self.trail is not None and not is_wrapped(t):
            with torch._C.DisableTorchFunction():
                self.trail.nodes.add(self._recording, row, kind, t)
                self.trail.add(row, t)
        memory = memory_of(t)
        if memory in self._shared and not is_wrapped(t):
            super().on_tensor(row, kind, type_, t)
        else:
            chain = unwrapped(t)
            self._living[row] = _Living(tuple(map(ref, chain)), version_of(chain[-1]), checksum(t))
            self._rows_in.setdefault(memory, []).append(row)

    def add_alias(self, offset: int, alias: Tensor) -> None:
        """Remember another tensor with the memory and value of a row."""
        if offset in self._living:
            living = self._living[offset]
            self._living[offset] = living._replace(references=(*living.references, ref(alias)))

    def before_unseen_writes(self, t: Tensor) -> None:
        """Copy what shares memory with ``t``, which code outside of torch may now write to."""
        self._keep_copies(t, except_for=None)

    def before_writing(self, t: Tensor) -> None:
        """Forget the value of ``t``, which is about to be overwritten, and copy what shares its memory."""
        self._keep_copies(t, except_for=t)

    def _keep_copies(self, t: Tensor, except_for: Tensor | None) -> None:
        memory = memory_of(t)
        for row in self._rows_in.pop(memory, ()):
            other = self._living.pop(row).references[0]()
            if other is not None and other is not except_for and not is_freed(other):
                self.kept[row] = other.clone() if is_wrapped(other) else copied(other.detach())
                self._shared.add(memory)
        super().before_writing(t)

    def value(self, row: int) -> Tensor:
        """Return the tensor of a row.

        Raises:
            MismatchError: If it no longer exists, so that no call can have received it.
            UnprovenError: If its value is not known.
        """
        return self.kept[row] if row in self.kept else self._alive(row)[0]

    def has(self, row: int, t: Tensor) -> bool:
        """Return whether ``t`` is the tensor of a row, with the value that the row had.

        It is, if it is that tensor itself, wraps it or was inside it. A transform also takes and returns
        views that are made where nothing is recorded. These share the memory, which counts its writes.

        Raises:
            MismatchError: If the tensor of the row no longer exists.
            UnprovenError: If its value is not known.
        """
        if row in self.kept:
            return self.kept[row] is t
        living, chain = self._alive(row), unwrapped(t)
        if any(one is other for one in living for other in chain):
            return True
        is_transformed = len(self._living[row].references) > 1 or len(chain) > 1
        version = self._living[row].version
        return (
            is_transformed
            and memory_of(t) == memory_of(living[0])
            and version is not None
            and version_of(chain[-1]) == version
        )

    def leaves(self) -> dict[int, int]:
        """Return the rows of the tensors that still exist, by id."""
        tensors_of_rows = ((row, living.references[0]()) for row, living in self._living.items())
        return {id(t): row for row, t in tensors_of_rows if t is not None}

    def _alive(self, row: int) -> list[Tensor]:
        """Return the tensor of a row and those inside it, as far as they exist."""
        if row not in self._living:
            raise UnprovenError("an argument was overwritten by something that was not recorded")
        references, version, contents = self._living[row]
        chain = [t for t in (reference() for reference in references) if t is not None]
        if not chain and len(references) > 1:
            raise UnprovenError("an argument was inside a transform such as vmap, which is over")
        if not chain:
            raise MismatchError("an argument was noted that no longer existed")
        if is_freed(chain[-1]):
            raise UnprovenError("an argument was in memory that the model freed")
        now = None if contents is None else checksum(chain[-1])
        if version_of(chain[-1]) != version or (now is not None and now != contents):
            raise UnprovenError("an argument was written to by something that was not recorded")
        return chain


class Finding:
    """The result of checking one call while the pass ran.

    Attributes:
        type: The type of the operation.
        row: The recorded row of the first tensor it returned; -1 while it runs.
        received: The tensors among its arguments, while it runs.
        out: What the replay returned; emptied after the comparison.
        differences: For each output, how the replay differs; ``""`` if it does not.
        arguments: The results for its arguments.
        error: The status and reason if it could not be checked.
        unrepeatable: That the call was seen to differ from itself; "" if it was not.
    """

    __slots__ = ("arguments", "differences", "error", "out", "received", "row", "type", "unrepeatable")

    def __init__(self, type_: str) -> None:
        self.type, self.row = type_, -1
        self.out: list[Tensor] = []
        self.received: list[Tensor] = []
        self.differences: list[str] = []
        self.arguments = ArgumentResults({}, ())
        self.error: tuple[str, tuple[str, ...]] | None = None
        self.unrepeatable = ""


class OnlineValidator(CallLog):
    """Notes the calls of one pass as ``CallLog`` does, and replays each.

    Args:
        recording: The recording of the pass.
        values: The activations that exist at present.

    Attributes:
        findings: The finding of each call, by recorded row.
        outputs_checked: For each output of the pass, by recorded row: its producer, and the status and reason
            if it could not be shown to be what that returned.
    """

    def __init__(self, recording: Recording, values: LiveValues) -> None:
        super().__init__()
        self.findings: dict[int, Finding] = {}
        self.outputs_checked: dict[int, tuple[int, tuple[str, tuple[str, ...]] | None]] = {}
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
        finding.received = _tensors_among(args, kwargs)
        self._replay(note, finding, func)
        return note, finding

    def after(self, row: int, noted: tuple[LoggedCall, Finding], out: Any) -> None:
        """Compare what the call returned with its replay."""
        note, finding = noted
        super().after(row, note, out)
        if self._values.trail is not None:
            self._values.trail.add_received(row, finding.received)
        finding.received = []
        self._compare(row, finding, tensors(out))

    def add_module(
        self,
        row: int,
        module: Module,
        given: CallArguments,
        picks: tuple[int, ...],
        out: list[Tensor],
        script: ScriptCall | None = None,
    ) -> LoggedCall | None:
        """Check a module whose operations are not recorded, after it returned ``out``."""
        note = super().add_module(row, module, given, picks, out, script)
        if note is not None:
            finding = Finding(type(module).__name__.lower())
            finding.received = _tensors_among(*given[:2])
            if script is not None and script.wrote_into_arguments:
                finding.error = UNPROVEN, ("it wrote into its arguments where nothing is recorded",)
            else:
                with preserve_generators(common_generators()):
                    self._replay(note, finding, module, picks, script)
            finding.received = []
            self._compare(row, finding, out)
        return note

    def add_output(self, row: int, t: Tensor, source: int, arg: int) -> None:
        """Compare an output of the pass with its parent."""
        super().add_output(row, t, source, arg)
        tensor_arg = TensorArg(arg, source, False, self.patches.get((id(t), source)))
        try:
            with self._not_recorded():
                self._given(tensor_arg, t)
            self.outputs_checked[row] = source, None
        except Exception as error:
            self.outputs_checked[row] = source, status_of_error(error)

    def _replay(
        self,
        note: LoggedCall,
        finding: Finding,
        func: Any,
        picks: tuple[int, ...] | None = None,
        script: ScriptCall | None = None,
    ) -> None:
        try:
            with self._not_recorded():
                call = self.invocation(note, TensorArg, picks, script)
                if call.func != func:  # equal, because each access of a property's getter makes another one
                    raise MismatchError("another function was noted than was called")
                given = [
                    self._given(tensor_arg, t)
                    for tensor_arg, t in zip(call.tensor_args, finding.received, strict=True)
                ]
                finding.out = rerun_call(call, given)
                if any(t.device.type == "cuda" for t in given):
                    finding.unrepeatable = why_not_repeated(call, given, finding.out, 1)
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

    def _given(self, tensor_arg: TensorArg, received: Tensor) -> Tensor:
        """Return an argument of a call by its noted producer.

        Args:
            tensor_arg: The argument.
            received: The tensor that the call receives.

        Raises:
            MismatchError: If that is another tensor.
            UnprovenError: If the value is not known.
        """
        patch = tensor_arg.patch
        if patch is None or patch.unseen:
            if tensor_arg.source < 0:
                if self._recording.addresses.params[-1 - tensor_arg.source][1] is received:
                    return received
            elif self._values.has(tensor_arg.source, received):
                return received
        if patch is None:
            value = self._value(tensor_arg.source)
        elif patch.unseen:
            raise UnprovenError("its memory was written to by something that was not recorded")
        else:
            value = apply_patch(self._value(patch.base), patch, self._value)
        if same(value, received):
            return value
        name = self._recording.args[tensor_arg.arg]
        if is_wrapped(value) or is_wrapped(received):
            with outside_transforms():
                if same(unwrapped(value)[-1], unwrapped(received)[-1]):
                    return received
            raise UnprovenError(f"argument {name!r}: a transform such as vmap made another view of it")
        raise MismatchError(f"argument {name!r}: the noted parent is not the tensor that the call received")

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
                blank = finding.type in UNINITIALIZED
                finding.differences = [
                    describe_difference(t.detach(), again, number, blank=blank)
                    for number, t in enumerate(out)
                ]
        except Exception as error:
            finding.error = status_of_error(error)


def _tensors_among(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> list[Tensor]:
    """Return the tensors among the arguments of a call, in the order of ``Invocation.tensor_args``."""
    found: list[Tensor] = []
    for value in (*args, *(kwargs or {}).values()):
        flatten(value, found)
    return found


class OnlineReport(Checker):
    """Combines the findings of a pass that was checked while it ran with its graph.

    Args:
        graph: The graph.
        replays: The calls.
        validator: What checked the calls.
    """

    def __init__(self, graph: Graph, replays: Replays, validator: OnlineValidator) -> None:
        super().__init__(CallInputs(graph, replays, {}))
        self._findings, self._graph_row = validator.findings, replays.graph_row
        self._outputs = {
            replays.graph_row(row): (replays.graph_row(source), error)
            for row, (source, error) in validator.outputs_checked.items()
        }

    def _call(self, call: Invocation, rows: list[int]) -> list[Check]:
        finding = self._findings[int(self.graph.ops.event[rows[0]]) * len(ROW)]
        statuses = dict(finding.arguments.statuses)
        for number, tensor_arg in enumerate(call.tensor_args):
            if tensor_arg.source == NOT_IN_GRAPH:
                name = f"argument {self.graph.args[tensor_arg.arg]!r}: "
                statuses[number] = EXEMPT, name + NOT_IN_GRAPH_REASON
        if finding.error is not None:
            return [Check(self.graph.label(row), *finding.error) for row in rows]
        differences = {row: finding.differences[self._output_number(row)] for row in rows}
        if any(differences.values()):
            return [
                self._difference(call, row, text, finding.unrepeatable)
                if text
                else Check(self.graph.label(row), PROVEN)
                for row, text in differences.items()
            ]
        alike = [self.inputs.label(self._graph_row(other.row)) for other in finding.arguments.alike]
        return self._combine(rows, statuses, alike)

    def _check_returned(self, row: int, parent: int) -> None:
        source, error = self._outputs[row]
        if source != parent:
            raise MismatchError(
                f"it was returned by {self.inputs.label(source)}, the graph has another parent"
            )
        if error is not None:
            status, (reason,) = error
            raise (MismatchError if status == FAILED else UnprovenError)(reason)
