"""Running the calls of a finished pass again, each on what it was given: nothing outside is changed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..capture.call_log import INPUTS, CallLog
from ..capture.context.execution_context import DEFAULT, within
from ..capture.context.randomness import preserve_generators
from ..capture.functions import describe, results, written
from ..capture.invocation import Invocation, Patch, TensorArg, arguments
from ..capture.memory import Geometry, copied, version_of
from ..capture.recording import ROW, Recording

#: A tensor_arg's source where the tensor came from a row that leads nowhere and was left out of the graph.
LEFT_OUT = -(1 << 62)


class UnprovenError(Exception):
    """Why a call cannot be run again on what it was given."""


class Replays:
    """The calls of a finished pass by event number; ``params`` are the parameters with their write counts.

    ``where`` tells a recorded row's place in the graph, as ``assemble`` renumbered them; ``kept`` are the
    saved values, of which those are held that calls took and that the graph left out.
    """

    def __init__(
        self, recording: Recording, call_log: CallLog, where: Callable[[int], int], kept: Mapping[int, Tensor]
    ) -> None:
        self._call_log, self._where = call_log, where
        self.params: list[tuple[Tensor, int | None]] = [
            (p, version_of(p)) for _, p in recording.addresses.params
        ]
        left = [row for row in kept if where(row) < 0]
        used = {row for note in call_log.calls.values() for row in note[INPUTS][::2]} if left else set()
        self._left = {row: kept[row] for row in left if row in used}
        #: Outputs that were written to after they had been returned.
        self.outputs = {
            where(row): self._hole(tensor_arg.arg, tensor_arg.source, tensor_arg.grad, tensor_arg.patch)
            for row, tensor_arg in call_log.outputs.items()
        }

    def with_params(self, params: Mapping[int, Tensor]) -> Replays:
        """The same calls with other parameters, by number."""
        if not params:
            return self
        other = copy.copy(self)
        other.params = [
            (params[number], version_of(params[number])) if number in params else pair
            for number, pair in enumerate(self.params)
        ]
        return other

    def call(self, event: int) -> Invocation | None:
        """The call of that number, its rows as the graph's; None where it was not noted."""
        row = event * len(ROW)
        note = self._call_log.calls.get(row)
        if event < 0 or note is None:
            return None
        return self._call_log.invocation(note, self._hole, self._call_log.picks.get(row))

    def _hole(self, arg: int, source: int, grad: bool, patch: Patch | None) -> TensorArg:
        left = self._left.get(source) if patch is None else None
        if patch is not None:
            writes = tuple((self.place(row), geometry) for row, geometry in patch.writes)
            patch = patch._replace(base=self.place(patch.base), writes=writes)
        return TensorArg(arg, self.place(source), grad, patch, left)

    def place(self, row: int) -> int:
        """A recorded row's place in the graph; LEFT_OUT where it was trimmed."""
        if row < 0:
            return row
        place = self._where(row)
        return place if place >= 0 else LEFT_OUT


def run(call: Invocation, given: Sequence[Tensor]) -> list[Tensor]:
    """Run a call on ``given``, one tensor for each of its tensor_args, and return the tensors it returns.

    What it writes into is copied first, random state is what it was then, and what it is now afterwards.
    """
    with _as_then(call), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        about = describe(call.func)
        targets = {id(t) for t in written(about, *arguments(call.args, call.kwargs, given))}
        foreign = _may_write_anywhere(call.func)
        ready: dict[int, Tensor] = {}  # one for each: functions ask whether query and key are the same object
        for t, tensor_arg in zip(given, call.tensor_args, strict=True):
            if id(t) not in ready:
                mine = t.detach()
                if tensor_arg.grad and (t.is_floating_point() or t.is_complex()):
                    mine.requires_grad_()
                ready[id(t)] = copied(mine) if foreign or id(t) in targets else mine
        args, kwargs = arguments(call.args, call.kwargs, [ready[id(t)] for t in given])
        out = call.func(*args, **kwargs)
        returned = results(about, out, written(about, args, kwargs))
        return [t.detach() for t in returned] if call.picks is None else [returned[n] for n in call.picks]


def unrecorded() -> AbstractContextManager[Any]:
    """No trace around this one sees what runs here; subclasses of Tensor keep their ways where none is."""
    return torch._C.DisableTorchFunction() if torch._C._len_torch_function_stack() else nullcontext()


def patched(value: Tensor, patch: Patch, written_by: Callable[[int], Tensor]) -> Tensor:
    """What an argument was after the writes of ``patch``; UnprovenError where that cannot be told."""
    if patch.unseen or patch.place is None or any(place is None for _, place in patch.writes):
        raise UnprovenError("its memory was written to out of sight")
    latest: dict[Geometry | None, int] = {}  # a later write to the same place leaves nothing of an earlier
    for row, place in patch.writes:
        latest.pop(place, None)
        latest[place] = row
    places = [patch.place, *(place for place in latest if place is not None)]
    low, high = min(place[0] for place in places), max(_end(place) for place in places)
    memory = value.new_empty(high - low)

    def view(place: Geometry) -> Tensor:
        offset, shape, stride = place
        return memory.as_strided(shape, stride, offset - low)

    try:
        with torch.no_grad():
            view(patch.place).copy_(value)
            for place, row in latest.items():
                source = written_by(row)
                if place is None or source.dtype != value.dtype:
                    raise UnprovenError("its memory was written to as another dtype")
                view(place).copy_(source)
    except RuntimeError as error:
        raise UnprovenError(f"what was written to its memory cannot be put together ({error})") from None
    return view(patch.place)


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal bit for bit; NaN equals itself, 0.0 is not -0.0.

    >>> nan = torch.tensor([float("nan"), 0.0])
    >>> same(nan, nan.clone()), same(nan, -nan)
    (True, False)
    """
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device or a.layout != b.layout:
        return False
    if a.is_quantized:
        return bool(torch.equal(a, b))
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    one, other = _bits(a), _bits(b)
    if one.device.type == "cpu":  # several times as fast as torch.equal
        return bool(np.array_equal(one.numpy(), other.numpy()))
    return bool(torch.equal(one, other))


def equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same values; NaN equals itself, and 0.0 is -0.0 (a product with zero)."""
    if a.shape != b.shape or a.dtype != b.dtype or a.layout != torch.strided or a.is_quantized:
        return same(a, b)
    return same(a, b) or bool(torch.isclose(a, b, rtol=0, atol=0, equal_nan=True).all())


def _bits(t: Tensor) -> Tensor:
    plain = t.detach().resolve_conj().resolve_neg().contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    width = (torch.int8, torch.int16, torch.int32, torch.int64)
    return plain.view(width[plain.element_size().bit_length() - 1])


def _end(place: Geometry) -> int:
    offset, shape, stride = place
    return offset + 1 + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))


def _may_write_anywhere(func: Any) -> bool:
    """A module, or an operator whose schema says that it writes: every argument is copied."""
    schema = getattr(func, "_schema", None)
    overloads = getattr(func, "overloads", None)
    return isinstance(func, torch.nn.Module) or bool(getattr(schema, "is_mutable", overloads is not None))


@contextmanager
def _as_then(call: Invocation) -> Iterator[None]:
    """ExecutionContext state and random numbers are those of when the call first ran."""
    with preserve_generators(generator for generator, _ in call.states), within(call.context or DEFAULT):
        for generator, state in call.states:
            generator.set_state(state)
        yield
