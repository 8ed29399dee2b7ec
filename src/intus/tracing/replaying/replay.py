"""Run the calls of a finished pass again on their arguments, without changing anything else."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch._ops import HigherOrderOperator

from ...core.shared_array import shared_array
from ..capture.call_log import INPUTS, CallLog
from ..capture.containers import is_wrapped
from ..capture.context.branches import followed
from ..capture.context.execution_context import DEFAULT, within
from ..capture.context.no_collectives import collectives_refused
from ..capture.context.randomness import preserve_generators
from ..capture.functions import describe, results, written
from ..capture.invocation import Invocation, Patch, TensorArg, arguments
from ..capture.memory import (
    Geometry,
    copied,
    inner_of,
    local_of,
    pointer_of,
    same_wrapper,
    settled,
    version_of,
    wrapping,
)
from ..capture.recording import ROW, Recording
from ..capture.saving.kept import Kept
from ..capture.saving.sample import Sample, is_unchanged, sample
from .transforms import outside_transforms, unwrapped, wrappers

#: The source of an argument whose row is not in the graph, because no output depends on it.
NOT_IN_GRAPH = -(1 << 62)


class UnprovenError(Exception):
    """A call cannot be run again on its arguments; the message says why."""


class _Param(NamedTuple):
    """A parameter, with the version and address of its memory and a sample of it when the pass ended."""

    name: str
    tensor: Tensor
    version: int | None
    pointer: int
    sample: Sample | None

    @classmethod
    def of(cls, name: str, p: Tensor) -> _Param:
        return cls(name, p, version_of(p), pointer_of(p), sample(p))

    def is_changed(self) -> bool:
        """Return whether the parameter was replaced, or written to as far as version and sample show."""
        if (self.version, self.pointer) != (version_of(self.tensor), pointer_of(self.tensor)):
            return True
        return self.sample is not None and not is_unchanged(self.tensor, self.sample)


class Replays:
    """The calls of a finished pass, by the number of the call.

    Args:
        recording: The recording of the pass.
        call_log: The calls as they were noted.
        graph_row: Maps a recorded row to its row in the graph, negative if it is not in the graph.
        kept: The saved values by recorded row. Those that calls took and that are not in the graph are kept.

    Attributes:
        outputs: The outputs that were written to after they had been returned, by row of the graph.
        modes_around: The classes of other modes around the trace, under which no call is run again.
        param_reads: The method by which Python read the value of a parameter itself, by its number.
    """

    def __init__(
        self,
        recording: Recording,
        call_log: CallLog,
        graph_row: Callable[[int], int],
        kept: Mapping[int, Tensor],
    ) -> None:
        self._call_log, self._graph_row = call_log, graph_row
        self._params = [_Param.of(name, p) for name, p in recording.addresses.params]
        self.param_reads, self.modes_around = recording.param_reads, recording.modes_around
        not_in_graph = [row for row in kept if graph_row(row) < 0]
        used = (
            {row for note in call_log.calls.values() for row in note[INPUTS][::2]} if not_in_graph else set()
        )
        found = {row: kept[row] for row in not_in_graph if row in used}
        counted = [row for row in found if not found[row].is_inference()]
        self._values_not_in_graph = Kept(found, counted, found) if found else {}
        self.outputs = {
            graph_row(row): self._tensor_arg(
                tensor_arg.arg, tensor_arg.source, tensor_arg.grad, tensor_arg.patch
            )
            for row, tensor_arg in call_log.outputs.items()
        }

    def with_params(self, params: Mapping[int, Tensor]) -> Replays:
        """Return the same calls with other parameters, given by number."""
        if not params:
            return self
        other = copy.copy(self)
        other._params = [
            _Param.of(p.name, params[number]) if number in params else p
            for number, p in enumerate(self._params)
        ]
        return other

    @property
    def params(self) -> list[Tensor]:
        """The parameters, by number, with the values that they have now; see ``param``."""
        return [p.tensor for p in self._params]

    def is_changed(self, number: int) -> bool:
        """Return whether a parameter was written to or replaced since the pass ended."""
        return self._params[number].is_changed()

    def param(self, number: int) -> Tensor:
        """Return the value that a parameter had in the pass.

        Raises:
            UnprovenError: If it changed since.
        """
        p = self._params[number]
        if p.is_changed():
            raise UnprovenError(f"{p.name} changed since the trace was taken")
        return p.tensor

    def call(self, event: int) -> Invocation | None:
        """Return the call of that number, with rows of the graph; None if it was not noted."""
        row = event * len(ROW)
        note = self._call_log.calls.get(row)
        if event < 0 or note is None:
            return None
        log = self._call_log
        return log.invocation(note, self._tensor_arg, log.picks.get(row), log.scripts.get(row))

    def _tensor_arg(self, arg: int, source: int, grad: bool, patch: Patch | None) -> TensorArg:
        value = self._values_not_in_graph.get(source) if patch is None else None
        if patch is not None:
            writes = tuple((self.graph_row(row), geometry) for row, geometry in patch.writes)
            patch = patch._replace(base=self.graph_row(patch.base), writes=writes)
        return TensorArg(arg, self.graph_row(source), grad, patch, value)

    def graph_row(self, row: int) -> int:
        """Return the row of the graph for a recorded row; ``NOT_IN_GRAPH`` if it has none.

        Negative numbers, which mean parameters, are returned unchanged.
        """
        if row < 0:
            return row
        graph_row = self._graph_row(row)
        return graph_row if graph_row >= 0 else NOT_IN_GRAPH


def run_call(call: Invocation, given: Sequence[Tensor]) -> list[Tensor]:
    """Run a call again.

    Arguments that the function writes into are copied first. It runs in the original context (autocast, grad
    mode, …) with the original random state; the current ones are restored afterwards. A call of autograd runs
    on the tensors themselves, whose history it needs, and leaves that history intact.

    Args:
        call: The call.
        given: One tensor for each of its ``tensor_args``.

    Returns:
        The tensors that it returns, detached.

    Raises:
        UnprovenError: If it communicates with other processes. It is stopped before that.
    """
    with _original_context(call), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        description = describe(call.func)
        targets = {id(t) for t in written(description, *arguments(call.args, call.kwargs, given))}
        writes_any = _may_write_to_any_argument(call.func)
        ready: dict[int, Tensor] = {}  # by id: functions test whether query and key are the same object
        for t, tensor_arg in zip(given, call.tensor_args, strict=True):
            if id(t) not in ready:
                is_written = writes_any or id(t) in targets
                ready[id(t)] = t if is_autograd(call) else _ready(t, tensor_arg, is_written=is_written)
        if getattr(call.func, "__name__", "") == "detach_":  # torch refuses it for views
            ready = {key: t.clone() for key, t in ready.items()}
        args, kwargs = arguments(call.args, call.kwargs, [ready[id(t)] for t in given])
        if is_autograd(call):
            args, kwargs = args[:_RETAIN_GRAPH], {**kwargs, **_named_flags(args), "retain_graph": True}
        guard = collectives_refused(call.func, wraps=any(inner_of(t) is not None for t in given))
        try:
            script = nullcontext() if call.script is None else call.script.state()
            with guard, script, followed() if isinstance(call.func, HigherOrderOperator) else nullcontext():
                out = call.func(*args, **kwargs)
        finally:  # torch's C++ code turns exceptions into others
            if guard.refused:
                raise UnprovenError(
                    f"it communicates with the other processes ({guard.refused}), and one of them cannot run "
                    "a collective again alone"
                )
        returned = results(description, out, written(description, args, kwargs))
        if call.picks is not None:
            found = [*returned, *(ready[id(t)] for t in given)]
            returned = [found[n] for n in call.picks]
        return [t.detach() for t in returned]


#: The positional arguments of ``torch.autograd.grad`` from here on are flags.
_RETAIN_GRAPH = 3
_FLAGS = (
    "retain_graph",
    "create_graph",
    "only_inputs",
    "allow_unused",
    "is_grads_batched",
    "materialize_grads",
)


def is_autograd(call: Invocation) -> bool:
    """Return whether a call computes gradients (``torch.autograd.grad``)."""
    return getattr(call.func, "__module__", None) == "torch.autograd"


def _named_flags(args: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(_FLAGS, args[_RETAIN_GRAPH:], strict=False))


def _ready(t: Tensor, tensor_arg: TensorArg, *, is_written: bool) -> Tensor:
    """Return a tensor as an argument of a call that runs again: without the history that it has now."""
    if is_wrapped(t) or peek_interpreter_stack() is not None:  # a transform may forbid ``requires_grad_``
        return t.clone() if is_written else t
    argument = t.detach()
    if tensor_arg.grad and (t.is_floating_point() or t.is_complex()):
        argument.requires_grad_()
    return copied(argument) if is_written else argument


def unrecorded() -> AbstractContextManager[Any]:
    """Return a context in which no active trace records what runs.

    Outside any trace it does nothing, so that Tensor subclasses behave as usual.
    """
    return torch._C.DisableTorchFunction() if torch._C._len_torch_function_stack() else nullcontext()


def apply_patch(value: Tensor, patch: Patch, written_by: Callable[[int], Tensor]) -> Tensor:
    """Return an argument's value after writes through views of its memory.

    Args:
        value: The value before the writes.
        patch: The writes.
        written_by: Returns the value of the row that wrote.

    Raises:
        UnprovenError: If the result cannot be reconstructed.
    """
    if patch.conversion is not None:
        try:
            return patch.conversion(value)
        except RuntimeError as error:
            raise UnprovenError(str(error)) from None
    if inner_of(value) is not None:  # the places of the writes are those in the memory inside
        return wrapping(value)(apply_patch(local_of(value), patch, written_by))
    if patch.unseen or patch.place is None or any(place is None for _, place in patch.writes):
        raise UnprovenError("its memory was written to by something that was not recorded")
    latest: dict[Geometry | None, int] = {}  # a later write to the same place overwrites an earlier one
    for row, place in patch.writes:
        latest.pop(place, None)
        latest[place] = row
    places = [patch.place, *(place for place in latest if place is not None)]
    low, high = min(place[0] for place in places), max(_end(place) for place in places)
    memory = value.new_empty(high - low)

    def view(place: Geometry) -> Tensor:
        offset, shape, stride = place
        return memory.as_strided(shape, stride, offset - low)

    def write(place: Geometry, source: Tensor) -> None:
        target = view(place)
        for axis, (length, step) in enumerate(zip(place[1], place[2], strict=True)):
            if length > 1 and step == 0:  # expanded: torch refuses to write the same element several times
                target, source = target.narrow(axis, 0, 1), source.narrow(axis, 0, 1)
        target.copy_(source)

    try:
        with torch.no_grad():
            write(patch.place, value)
            for place, row in latest.items():
                source = local_of(written_by(row))
                if place is None or source.dtype != value.dtype:
                    raise UnprovenError("its memory was written to as another dtype")
                write(place, source)
    except RuntimeError as error:
        raise UnprovenError(f"the writes to its memory cannot be combined ({error})") from None
    return view(patch.place)


def same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors are equal bit for bit: NaN equals itself, 0.0 does not equal -0.0.

    Example:
        >>> nan = torch.tensor([float("nan"), 0.0])
        >>> same(nan, nan.clone()), same(nan, -nan)
        (True, False)
    """
    if is_wrapped(a) or is_wrapped(b):
        with outside_transforms():
            return wrappers(a) == wrappers(b) and same(unwrapped(a)[-1], unwrapped(b)[-1])
    if a.is_nested or b.is_nested:
        return a.is_nested == b.is_nested and _same_parts(a, b)
    if type(a) is not Tensor or type(b) is not Tensor:
        a, b = settled(a), settled(b)
        if inner_of(a) is not None:  # of a ``DTensor`` each process compares its own part
            return same_wrapper(a, b) and same(local_of(a), local_of(b))
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device or a.layout != b.layout:
        return False
    if a.is_quantized:
        return bool(torch.equal(a, b))
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    one, other = bits_of(a), bits_of(b)
    if one.device.type == "cpu":  # several times as fast as torch.equal
        return bool(np.array_equal(shared_array(one), shared_array(other)))
    return bool(torch.equal(one, other))


def _same_parts(a: Tensor, b: Tensor) -> bool:
    """Return whether the tensors inside two nested tensors are the same; these may have no common shape."""
    parts, others = a.unbind(), b.unbind()
    return len(parts) == len(others) and all(map(same, parts, others))


def equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have equal values: NaN equals itself, and 0.0 equals -0.0."""
    if a.is_nested or b.is_nested:
        return same(a, b)
    if inner_of(a) is not None:
        return same_wrapper(a, b) and equal(local_of(a), local_of(b))
    if a.shape != b.shape or a.dtype != b.dtype or a.layout != torch.strided or a.is_quantized:
        return same(a, b)
    return same(a, b) or bool(torch.isclose(a, b, rtol=0, atol=0, equal_nan=True).all())


def bits_of(t: Tensor) -> Tensor:
    """Return the bits of a tensor's elements as a contiguous tensor of integers."""
    if type(t) is not Tensor:
        with torch._C.DisableTorchFunction():  # of a subclass with plain memory this makes a plain tensor
            t = t.detach()
    plain = t.detach().resolve_conj().resolve_neg().contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    width = (torch.int8, torch.int16, torch.int32, torch.int64)
    return plain.view(width[plain.element_size().bit_length() - 1])


def _end(place: Geometry) -> int:
    offset, shape, stride = place
    return offset + 1 + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))


def _may_write_to_any_argument(func: Any) -> bool:
    """Return whether a function is a module, or an operator whose schema says that it writes."""
    schema = getattr(func, "_schema", None)
    overloads = getattr(func, "overloads", None)
    return isinstance(func, torch.nn.Module) or bool(getattr(schema, "is_mutable", overloads is not None))


@contextmanager
def _original_context(call: Invocation) -> Iterator[None]:
    """Restore the execution context and the random state of a call, and undo that on exit."""
    with preserve_generators(generator for generator, _ in call.states), within(call.context or DEFAULT):
        for generator, state in call.states:
            generator.set_state(state)
        yield
