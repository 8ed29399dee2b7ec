"""The recorder: a TorchFunctionMode that notes every operation of one forward pass and changes nothing.

This is the hot path, the only code that touches live tensors. It appends integers, interns what repeats, and
formats nothing; ``assemble`` makes sense of it afterwards. Everything that the closure made by ``_handler``
needs is a local of its own: no attribute is looked up per operation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from types import CodeType, MethodType
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from ..core.graph import CREATED, FAILED, INPLACE, INPUT, OP, OUTPUT
from .branches import Read
from .containers import ATOMS, is_plain, tensors, walk
from .functions import Function, describe, results, written
from .keeper import Keeper
from .nest import Nest
from .origins import Origins
from .recording import CALL, POSITIONS, ROW, Recording
from .sites import Sites
from .values import Values

#: Keywords that may make a function write into an argument; ``functions.written`` tells whether it does.
_WRITE_FLAGS = frozenset({"out", "inplace", "training", "use_input_stats", "max_norm"})
_CALL = len(CALL)

#: Gives the plain value of a tensor that has none: how it is asked (``"bool"`` …), and the tensor.
Answer = Callable[[str, Tensor], Any]


class Recorder(TorchFunctionMode):
    """Records what runs while it is entered, on this thread; see ``intus.tracing.interpose`` for its use.

    ``model`` gives parameters, buffers and modules their addresses (None for a plain function); ``values``
    decides which activations are kept; ``entry`` is the code through which modules are called; after ``most``
    operations no more are noted; ``answer`` gives the plain values of tensors on ``meta``; ``nest`` opens
    composite functions.
    """

    def __init__(
        self,
        model: Module | None,
        values: Values,
        entry: CodeType | None = None,
        *,
        most: int = sys.maxsize,
        answer: Answer | None = None,
        nest: Nest | None = None,
    ) -> None:
        super().__init__()
        self._nest = nest
        self.recording = Recording()
        self.values = values
        values.begin(self.recording)
        self.keeper = values.keeper(self.recording)
        self._origins = Origins(self.recording, values, self.keeper)
        self._sites = Sites(self.recording, entry)
        if model is not None:
            self.recording.places.learn(model)
        limit = most * len(ROW) if most < sys.maxsize else 0
        self._handler = _handler(
            self.recording, self._origins, self._sites, values, self.keeper, limit, answer, nest
        )

    def __enter__(self) -> Recorder:
        # Bound for the time of the pass alone: a mode that held itself would wait for the garbage collector.
        self.__torch_function__ = MethodType(self._handler, self)  # type: ignore[method-assign]
        if self._nest is not None:
            self._nest.recorder = self
            around = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
            self._nest.inside = any(isinstance(mode, Recorder) for mode in around)
        self.values.nested = torch._C._len_torch_function_stack() > 0
        if self.keeper is not None:
            self.keeper.nested = self.values.nested
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        del self.__torch_function__
        if self._nest is not None:
            self._nest.recorder = None  # it would be a cycle

    def add_input(self, t: Tensor, name: str = "") -> None:
        """Declare an input of the pass; one tensor given twice is one input."""
        if not self._origins.is_known(t):
            self.recording.ends["inputs"].append(name)
            self.recording.places.outside(t)
            self._origins.add(t, INPUT, self.recording.type_number("input"))

    def add_output(self, t: Tensor, place: str, name: str = "") -> None:
        """Declare an output of the pass."""
        recording = self.recording
        recording.ends["outputs"].append(name)
        inputs = [self._origins.row(t), recording.arg_number(place)]
        source, arg = inputs
        self._origins.add_also(inputs)
        row = recording.add(OUTPUT, recording.type_number("output"), recording.meta_number(t), inputs)
        if self.keeper is not None:
            self.keeper.output(row, t, source, arg)
        self.values.offer(row, OUTPUT, "output", t)

    def begin_call(self, module: Module) -> int:
        """A module is being called from the caller's caller; returns the call's number."""
        recording = self.recording
        stack, calls = recording.stack, recording.calls
        parent, call = stack[-1], len(calls) // _CALL
        number = recording.places.numbers.get(id(module))
        if number is None:
            number = recording.places.add(module, calls[parent * _CALL] if parent >= 0 else -1)
        frame = sys._getframe(2)
        site = self._sites.numbers.get((id(frame.f_code), frame.f_lasti))
        if site is None:
            site = self._sites.number(frame)
        calls += (number, parent, len(recording.rows), -1, site)
        stack.append(call)
        return call

    def end_call(self, call: int, module: Module, args: Any, kwargs: Any, out: Any) -> None:
        """A module's call has returned ``out``."""
        seen = self._origins.known.get(id(out))
        if (
            seen is not None
            and seen[0]() is out
            and seen[2] is not None
            and seen[2] == out._version  # type: ignore[union-attr]
            and seen[1] >= 0
        ):
            self.recording.exits.extend((seen[1], call))
            if self.values.modules:
                self.values.returned(seen[1], call, out)  # type: ignore[arg-type]
            return
        with torch._C.DisableTorchFunction():  # our own look at the tensors is no part of the pass
            returned = tensors(out)
            unseen = [t for t in returned if not self._origins.is_known(t)]
            if unseen:
                picks = tuple(n for n, t in enumerate(returned) if any(t is other for other in unseen))
                self._opaque(call, module, (args, kwargs), unseen, picks)
            for t in returned:
                row = self._origins.row(t)
                if row >= 0:
                    self.recording.exits.extend((row, call))
                    if self.values.modules:
                        self.values.returned(row, call, t)
            self._origins.also.clear()

    def leave_call(self, call: int) -> None:
        """A module's call is over, whether it returned or raised."""
        recording = self.recording
        recording.calls[call * _CALL + 3] = len(recording.rows)
        recording.stack.pop()
        if call in self._origins.passed_on:
            self._origins.settle(call)

    def _opaque(
        self,
        call: int,
        module: Module,
        arguments: tuple[Any, Any],
        unseen: list[Tensor],
        picks: tuple[int, ...],
    ) -> None:
        """What ran out of Python's sight (a ScriptModule) is one operation with its edges kept."""
        args, kwargs = arguments
        named = {**{str(number): value for number, value in enumerate(args)}, **(kwargs or {})}
        inputs: list[int] = []
        for name, value in named.items():
            _gather(self.recording, self._origins, value, name, inputs, [])
        plain = list(inputs)
        self._origins.add_also(inputs)
        type_ = self.recording.type_number(type(module).__name__.lower())
        site = self.recording.calls[call * _CALL + 4]
        if self.keeper is not None:
            self.keeper.whole(len(self.recording.rows), module, (args, kwargs, plain), picks, unseen)
        _add_all(self.recording, self._origins, self.values, unseen, type_, inputs, site=site)


def _gather(
    recording: Recording, origins: Origins, value: Any, name: str, inputs: list[int], atoms: list[Any]
) -> None:
    """Find the tensors in one argument, and what is to be compared of the rest."""
    inputs += origins.from_host(value)
    for t, path in walk(value, name, atoms):
        inputs += (origins.row(t), recording.arg_number(path))


def _add_all(
    recording: Recording,
    origins: Origins,
    values: Values,
    made: list[Tensor],
    type_: int,
    inputs: list[int],
    *,
    site: int,
    time: int = 0,
    flags: int = 0,
    signature: int = -1,
) -> None:
    """Note the tensors that one call returned together."""
    event = len(recording.rows)
    if not inputs:
        flags |= CREATED
    rows, several, call = recording.rows, len(made) > 1, recording.stack[-1]
    metas, offer = recording.meta_numbers, values.offer if values.wanted is not None else None
    for number, t in enumerate(made):
        row, output = len(rows), number if several else -1
        try:
            meta = metas[t.shape, t.dtype, t.device]
        except (KeyError, RuntimeError):  # met for the first time; or nested, which has no shape
            meta = recording.meta_number(t)
        rows += (OP, type_, call, meta, site, event, output, time, flags, signature, len(inputs))
        recording.inputs += inputs
        time = 0  # of the call, once
        origins.note(t, row)
        if offer is not None:
            offer(row, OP, recording.types[type_], t)


def _handler(
    recording: Recording,
    origins: Origins,
    sites: Sites,
    values: Values,
    keeper: Keeper | None,
    most: int,
    answer: Answer | None,
    nest: Nest | None,
) -> Callable[..., Any]:
    """The function that stands between Python and torch; see the module's head."""
    functions: dict[Any, tuple[Function, int, int, bool, bool]] = {}
    signatures = recording.signatures
    rows, stack, known, metas = recording.rows, recording.stack, origins.known, recording.meta_numbers
    extend_rows, extend_inputs, types = rows.extend, recording.inputs.extend, recording.types
    new_meta, find, site_number = recording.meta_number, origins.row, sites.number
    known_sites, getframe = sites.numbers, sys._getframe
    offer, note_call = values.offer, None if keeper is None else keeper.before
    sources, keeping = recording.places.sources, values.wanted is not None
    transformed, also, returnable = origins.transformed, origins.also, (Tensor, tuple, list)

    def learn(func: Any) -> tuple[Function, int, int, bool, bool]:
        about = describe(func)
        type_ = recording.type_number(about.type) if about.record else -1
        special = about.writes or bool(about.mutates) or about.type == "data"
        entry = functions[func] = (about, type_, len(functions), special, about.by_index)
        return entry

    def note(about: Function, t: Tensor, out: Any, frame: Any) -> None:
        """What makes no row and is worth knowing all the same."""
        with torch._C.DisableTorchFunction():
            if about.note == "read":  # what torch asks for itself is not the model's choice
                row = find(t)
                if row >= 0 and sites.is_users(frame):
                    value = out if isinstance(out, bool) else None
                    read = Read(row, about.type, frame.f_code, frame.f_lasti, value, len(rows))
                    recording.reads.append(read)
            elif about.note == "host":
                origins.to_host(t)
            elif about.note == "backward":
                origins.differentiated(t)
            elif isinstance(out, Tensor):
                origins.gradient(out, t)
            also.clear()

    def before_writing(targets: list[Tensor]) -> None:
        """Keep what is about to be overwritten: saved activations, and what was there before the pass."""
        with torch._C.DisableTorchFunction():
            for target in targets:
                values.before_writing(target)
                recording.places.before_writing(target)

    def handler(
        mode: Any, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if most and len(rows) >= most:
            return func(*args, **(kwargs or {}))
        about, type_, function, special, by_index = functions.get(func) or learn(func)
        if type_ < 0:
            if about.note == "read" and answer is not None and args and args[0].is_meta:
                out = answer(about.type, args[0])
            else:
                out = func(*args, **kwargs) if kwargs else func(*args)
            if about.note and args and isinstance(args[0], Tensor):
                note(about, args[0], out, sys._getframe(1))
            return out
        if nest is not None and (way := nest.way(func, args, kwargs)):
            return nest.run(way, func, args, kwargs)
        inputs: list[int] = []
        atoms: list[Any] = [function]  # what is not a tensor, to tell alike operations by
        position = -1
        for value in args:
            position += 1
            cls = type(value)
            if (cls is Tensor or cls is Parameter) and position < POSITIONS:
                seen = known.get(id(value))
                if (
                    seen is not None
                    and seen[0]() is value  # before its version: an id may be an inference tensor's by now
                    and seen[2] is not None
                    and seen[2] == value._version  # type: ignore[union-attr]
                ):
                    inputs += (seen[1], position)
                else:
                    inputs += (find(value), position)
            elif cls in ATOMS:
                atoms.append(value)
            elif not by_index or not is_plain(value):  # what indices are is told by the line
                _gather(recording, origins, value, str(position), inputs, atoms)
        if kwargs:
            for name, value in kwargs.items():
                if type(value) in ATOMS:
                    atoms.append((name, value))
                else:
                    _gather(recording, origins, value, name, inputs, atoms)
        call = None if note_call is None else note_call(func, args, kwargs, inputs)
        if also:
            origins.add_also(inputs)
        writes = None  # the tensors this very call writes into
        if special or (kwargs and not _WRITE_FLAGS.isdisjoint(kwargs)):
            writes = written(about, args, kwargs or {})
            before_writing(writes)
            if about.type == "data":
                origins.data_of(args[0])
        began = perf_counter_ns()
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException as error:  # in case it is the one that ends the pass
            row = recording.add(
                OP, type_, new_meta(None), inputs, site=site_number(sys._getframe(1)), flags=FAILED
            )
            recording.raised = (row, error)
            raise
        time = perf_counter_ns() - began
        returned = out
        if writes and (out is None or about.mutates):
            made = results(about, out, writes)
            out = made[0] if len(made) == 1 else made
        if type(out) is not Tensor and not isinstance(out, returnable):
            return returned
        flags = (INPLACE if special and writes else 0) if inputs else CREATED
        before = None  # what an argument that is simply returned was until now
        if args and out is args[0]:
            if writes:  # F.relu(x, inplace=True)
                flags = INPLACE
            elif id(out) in sources:
                return out  # a parameter as it is: no operation that anyone could see
            else:
                before = known.get(id(out))
        elif writes and kwargs is not None and kwargs.get("out") is not None:
            flags = INPLACE
        frame = getframe(1)
        site = known_sites.get((id(frame.f_code), frame.f_lasti))
        if site is None:
            site = site_number(frame)
        if by_index:
            signature = -2 - site
        else:
            key = tuple(atoms)
            signature = signatures.get(key, -1)
            if signature < 0:
                signature = signatures[key] = len(signatures)
        row = len(rows)
        if keeper is not None and call is not None:
            keeper.after(row, call, out)
        if type(out) is Tensor:
            try:
                meta = metas[out.shape, out.dtype, out.device]
            except (KeyError, RuntimeError):  # met for the first time; or nested, which has no shape
                meta = new_meta(out)
            extend_rows((OP, type_, stack[-1], meta, site, row, -1, time, flags, signature, len(inputs)))
            extend_inputs(inputs)
            try:
                known[id(out)] = (ref(out), row, out._version)
            except RuntimeError:  # an inference tensor counts no writes
                known[id(out)] = (ref(out), row, None)
            if transformed:
                origins.note(out, row)
            if keeping:
                offer(row, OP, types[type_], out)
        else:
            made = tensors(out)
            _add_all(
                recording,
                origins,
                values,
                made,
                type_,
                inputs,
                site=site,
                time=time,
                flags=flags,
                signature=signature,
            )
        if writes:
            origins.wrote(writes, row, row)
        elif before is not None:
            origins.pass_on(out, row, before)
        return returned

    return handler
