"""The recorder: a TorchFunctionMode that notes every operation of one forward pass and changes nothing.

This is the hot path, the only code that touches live tensors. It appends integers to flat lists (one list
per table, a fixed number of integers per row: Python's garbage collector never has to walk them), interns
what repeats, and formats nothing; ``assemble`` makes sense of it afterwards. The closure in ``_handler`` is
bound to the instance so that no attribute is looked up per operation.

Tensors are known by identity: ``known[id(t)] = (weak reference, row, version)``. A version that moved means
that something wrote to the tensor's memory; the last writer of that memory is then the parent.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from types import CodeType, MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from ..core.graph import BUFFER, CONSTANT, CREATED, FAILED, INPLACE, INPUT, OP, OUTPUT, Meta
from .functions import Function, describe, written
from .places import Places
from .values import Values

#: Integers per row of each flat list.
ROW = ("kind", "type", "call", "meta", "site", "event", "output", "time", "flags", "signature")
CALL = ("module", "parent", "start", "stop", "site")
EDGE = ("src", "dst", "arg")

#: Whose lines are never the user's: torch's, and ours where one trace runs inside another.
_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<__array_function__")
_ATOMS = frozenset(
    {int, float, bool, str, bytes, complex, type(None), type(...), torch.dtype, torch.device, torch.layout,
     torch.memory_format, torch.Size, torch.Generator}
)  # fmt: skip
#: Keywords that may make a function write into an argument; ``functions.written`` tells whether it does.
_WRITE_FLAGS = frozenset({"out", "inplace", "training", "use_input_stats"})
_USER, _LIBRARY, _ENTRY = range(3)
#: The version of a tensor that keeps none: equal to nothing, so its memory is asked every time.
_UNKNOWN = float("nan")
#: Positional arguments whose place is known without looking its name up.
_POSITIONS = 32


@dataclass(slots=True)
class Recording:
    """What one pass left behind: flat tables and what their integers mean."""

    rows: list[int] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    op_params: list[int] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    metas: list[Meta] = field(default_factory=list)
    sites: list[tuple[CodeType, int]] = field(default_factory=list)
    args: list[str] = field(default_factory=lambda: [str(i) for i in range(_POSITIONS)])
    places: Places = field(default_factory=Places)
    failure: BaseException | None = None
    raised: tuple[int, BaseException] | None = None


class Recorder(TorchFunctionMode):
    """Records what runs while it is entered, on this thread; see ``intus.tracing.interpose`` for its use.

    ``model`` gives parameters, buffers and modules their addresses (None for a plain function); ``values``
    decides which activations are kept.
    """

    def __init__(self, model: torch.nn.Module | None, values: Values) -> None:
        super().__init__()
        self.recording = Recording()
        self.values = values
        if model is not None:
            self.recording.places.learn(model)
        self._bind()

    def __enter__(self) -> Recorder:
        # Bound for the time of the pass alone: a mode that held itself would wait for the garbage collector.
        self.__torch_function__ = MethodType(self._handler, self)  # type: ignore[method-assign]
        self.values.nested = torch._C._len_torch_function_stack() > 0
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        del self.__torch_function__

    # -- the hot path --------------------------------------------------------------------------------

    def _bind(self) -> None:
        recording, values, places = self.recording, self.values, self.recording.places
        rows, edges, op_params = recording.rows, recording.edges, recording.op_params
        args_seen = {name: number for number, name in enumerate(recording.args)}
        functions: dict[Any, tuple[Function, int, int]] = {}
        types_seen: dict[str, int] = {}
        metas_seen: dict[Any, int] = {}
        sites_seen: dict[tuple[int, int], int] = {}
        code_kinds: dict[int, int] = {}
        signatures: dict[Any, int] = {}
        known: dict[int, tuple[weakref.ref[Tensor], int, float]] = {}
        writers: dict[int, int] = {}
        stack: list[int] = []  # rows of the calls table, innermost last
        passed_on: dict[int, list[tuple[int, int, Any]]] = {}  # by module call; see ``pass_on``
        sources, buffers = places.sources, places.buffers
        held: list[CodeType] = []
        ref = weakref.ref
        row_count = events = 0
        current = -1  # row of the calls table under way

        def type_number(name: str) -> int:
            number = types_seen.get(name)
            if number is None:
                number = types_seen[name] = len(recording.types)
                recording.types.append(name)
            return number

        def learn(func: Any) -> tuple[Function, int, int]:
            about = describe(func)
            type_ = type_number(about.type) if about.record else -1
            entry = functions[func] = (about, type_, len(functions))
            return entry

        def new_meta(t: Tensor) -> int:
            number = metas_seen[(t.shape, t.dtype, t.device)] = len(recording.metas)
            recording.metas.append(_meta(t))
            return number

        def site_number(frame: Any) -> int:
            """The nearest frame outside torch: what torch's own modules run counts as their caller's."""
            while frame is not None:
                code = frame.f_code
                kind = code_kinds.get(id(code))
                if kind is None:
                    kind = code_kinds[id(code)] = _code_kind(code)
                    held.append(code)  # so that its id stays its own
                if kind == _USER:
                    key = (id(code), frame.f_lasti)
                    number = sites_seen.get(key)
                    if number is None:
                        number = sites_seen[key] = len(recording.sites)
                        recording.sites.append((code, frame.f_lasti))
                    return number
                if kind == _ENTRY and current >= 0:
                    return recording.calls[current * len(CALL) + 4]
                frame = frame.f_back
            return -1

        def version_of(t: Tensor) -> float:
            try:
                return t._version
            except RuntimeError:  # inference tensors keep no version
                return _UNKNOWN

        def arg_number(name: str) -> int:
            number = args_seen.get(name)
            if number is None:
                number = args_seen[name] = len(recording.args)
                recording.args.append(name)
            return number

        def add_row(
            t: Tensor,
            kind: int,
            type_: int,
            site: int,
            event: int,
            output: int,
            time: int,
            flags: int,
            signature: int,
        ) -> int:
            nonlocal row_count
            row = row_count
            row_count = row + 1
            meta = metas_seen.get((t.shape, t.dtype, t.device))
            if meta is None:
                meta = new_meta(t)
            rows.extend((kind, type_, current, meta, site, event, output, time, flags, signature))
            known[id(t)] = (ref(t), row, version_of(t))
            if values.wanted is not None:
                values.offer(row, kind, recording.types[type_], t, stack)
            return row

        def source_row(t: Tensor) -> int:
            """The row a tensor comes from, when it is not simply what an operation returned."""
            entry = known.get(id(t))
            if entry is not None and entry[0]() is t:  # its memory was written to since
                row = max(writers.get(t.untyped_storage()._cdata, -1), entry[1])
                known[id(t)] = (entry[0], row, version_of(t))
                return row
            kind, number = sources.get(id(t), ("", -1))
            if kind == "param":
                return -1 - number
            if kind == "buffer":
                return add_row(t, BUFFER, type_number(buffers[number][0]), -1, -1, -1, 0, 0, -1)
            twin = storage_twin(t)
            if twin >= 0:
                known[id(t)] = (ref(t), twin, version_of(t))
                return twin
            places.outside(t)
            return add_row(t, CONSTANT, type_number("constant"), -1, -1, -1, 0, 0, -1)

        def storage_twin(t: Tensor) -> int:
            """A tensor made out of our sight may share memory with one we know: ``from_numpy(x.numpy())``."""
            try:
                pointer = t.untyped_storage().data_ptr()
            except (RuntimeError, NotImplementedError):
                return -1
            if pointer == 0:
                return -1
            for reference, row, _ in reversed(list(known.values())):
                other: Tensor | None = reference()
                if other is not None and other.device == t.device and other.layout == t.layout:
                    try:
                        if other.untyped_storage().data_ptr() == pointer:
                            return row
                    except (RuntimeError, NotImplementedError):
                        continue
            return -1

        def gather(value: Any, name: str, inputs: list[int], atoms: list[Any]) -> None:
            """Find the tensors in one argument, and what is to be compared of the rest."""
            for t, path in _walk(value, name, atoms):
                inputs += (current_row(t), arg_number(path))

        def before_writing(targets: list[Tensor]) -> None:
            """Keep what is about to be overwritten: saved activations, and what was there before the pass."""
            with torch._C.DisableTorchFunction():
                for target in targets:
                    values.before_writing(target)
                    places.before_writing(target)

        def note_writes(targets: list[Tensor], first: int) -> None:
            """Who wrote a memory last; ``first`` is the first row of the call that did."""
            for target in targets:
                entry = known.get(id(target))
                if entry is not None and entry[0]() is target and entry[1] >= first:
                    writers[target.untyped_storage()._cdata] = entry[1]
                elif id(target) not in sources:  # running statistics feed nothing of this pass
                    writers[target.untyped_storage()._cdata] = row_count - 1
                    known[id(target)] = (ref(target), row_count - 1, version_of(target))

        def pass_on(t: Tensor, before: Any) -> None:
            """A call returned its own argument (dropout in eval, ``to`` of the same dtype). What reads that
            tensor from here on reads it after the call, but only within the module the call ran in, and
            wherever that module hands it to: to others it is still what it was before."""
            passed_on.setdefault(current, []).append((id(t), row_count - 1, before))

        def settle(call: int) -> None:
            """Take back what was passed on in a module call that did not return it."""
            parent = stack[-1] if stack else -1
            exits, returned = recording.exits, set()
            for i in range(len(exits) - 2, -1, -2):  # what a call returned was noted just before it ended
                if exits[i + 1] != call:
                    break
                returned.add(exits[i])
            for key, row, before in reversed(passed_on.pop(call)):
                entry = known.get(key)
                if entry is None or entry[1] != row:
                    continue
                if row in returned:
                    passed_on.setdefault(parent, []).append((key, row, before))
                elif before is not None:
                    known[key] = before

        def handler(
            mode: Any,
            func: Any,
            _types: Any,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            nonlocal events, row_count
            about, type_, function = functions.get(func) or learn(func)
            if not about.record:
                return func(*args, **kwargs) if kwargs else func(*args)
            inputs: list[int] = []  # row, argument number, row, argument number …
            atoms: list[Any] = [function]  # what is not a tensor, to tell alike operations by
            position = -1
            for value in args:
                position += 1
                cls = type(value)
                if (cls is Tensor or cls is Parameter) and position < _POSITIONS:
                    seen = known.get(id(value))
                    if seen is not None and seen[2] == version_of(value) and seen[0]() is value:
                        inputs += (seen[1], position)
                    else:
                        inputs += (source_row(value), position)
                elif cls in _ATOMS:
                    atoms.append(value)
                else:
                    gather(value, str(position), inputs, atoms)
            if kwargs:
                for name, value in kwargs.items():
                    if type(value) in _ATOMS:
                        atoms.append(value)
                    else:
                        gather(value, name, inputs, atoms)
            writes = None  # the tensors this very call writes into
            if about.writes or (kwargs and not _WRITE_FLAGS.isdisjoint(kwargs)):
                writes = written(about, args, kwargs or {})
                before_writing(writes)
            began = perf_counter_ns()
            try:
                out = func(*args, **kwargs) if kwargs else func(*args)
            except BaseException as error:
                fail(type_, inputs, sys._getframe(1), error)
                raise
            time = perf_counter_ns() - began
            returned, first = out, row_count
            if out is None and about.writes:
                out = args[0]
            elif not isinstance(out, Tensor | tuple | list):
                return out
            before, in_place = None, INPLACE if about.writes else 0
            if args and out is args[0]:
                if writes:  # F.relu(x, inplace=True)
                    in_place = INPLACE
                elif id(out) in sources:
                    return out  # a parameter as it is: no operation that anyone could see
                else:
                    before = known.get(id(out))
            elif writes and kwargs is not None and kwargs.get("out") is not None:
                in_place = INPLACE
            site = site_number(sys._getframe(1))
            if about.by_index:
                signature = -2 - site
            else:
                signature = signatures.setdefault(tuple(atoms), len(signatures))
            if type(out) is Tensor:
                flags = (0 if inputs else CREATED) | in_place
                connect(add_row(out, OP, type_, site, events, -1, time, flags, signature), inputs)
                events += 1
            else:
                add_outputs(out, type_, site, time, in_place, signature, inputs)
            if writes:
                note_writes(writes, first)
            elif before is not None:
                pass_on(out, before)
            return returned

        def add_outputs(
            out: Any, type_: int, site: int, time: int, flags: int, signature: int, inputs: list[int]
        ) -> None:
            """Note the tensors one call returned together, or a single one of a subclass."""
            nonlocal events
            tensors = _tensors(out)
            single = isinstance(out, Tensor)
            if not inputs:
                flags |= CREATED
            for number, t in enumerate(tensors):
                row = add_row(
                    t,
                    OP,
                    type_,
                    site,
                    events,
                    -1 if single else number,
                    0 if number else time,
                    flags,
                    signature,
                )
                connect(row, inputs)
            events += bool(tensors)

        def connect(row: int, inputs: list[int]) -> None:
            """Edges from a call's arguments to a row; parameters, numbered below zero, are no rows."""
            for i in range(0, len(inputs), 2):
                src = inputs[i]
                if src >= 0:
                    edges.extend((src, row, inputs[i + 1]))
                else:
                    op_params.extend((row, -1 - src))

        def fail(type_: int, inputs: list[int], frame: Any, error: BaseException) -> None:
            """Note an operation that raised, in case its exception is the one that ends the pass."""
            nonlocal events, row_count
            rows.extend((OP, type_, current, nothing(), site_number(frame), events, -1, 0, FAILED, -1))
            connect(row_count, inputs)
            recording.raised = (row_count, error)
            row_count += 1
            events += 1

        def nothing() -> int:
            if None not in metas_seen:
                metas_seen[None] = len(recording.metas)
                recording.metas.append(Meta((), "", "", 0))
            return metas_seen[None]

        def begin_call(module: Any) -> int:
            nonlocal current
            parent = places.names[recording.calls[current * len(CALL)]] if current >= 0 else ""
            number = places.number(module, parent)
            call = len(recording.calls) // len(CALL)
            recording.calls.extend((number, current, row_count, -1, site_number(sys._getframe(2))))
            stack.append(call)
            current = call
            return call

        def end_call(call: int, module: Any, args: Any, kwargs: Any, out: Any) -> None:
            with torch._C.DisableTorchFunction():  # our own look at the tensors is no part of the pass
                returned = _tensors(out)
                unseen = [t for t in returned if not is_known(t)]
                if unseen:
                    opaque(module, args, kwargs, unseen)
                for t in returned:
                    row = current_row(t)
                    if row >= 0:
                        recording.exits.extend((row, call))

        def opaque(module: Any, args: Any, kwargs: Any, unseen: list[Tensor]) -> None:
            """What ran out of Python's sight (a ScriptModule) is one operation with its edges kept."""
            inputs: list[int] = []
            for number, value in enumerate(args):
                gather(value, str(number), inputs, [])
            for name, value in (kwargs or {}).items():
                gather(value, name, inputs, [])
            type_ = type_number(type(module).__name__.lower())
            out = unseen[0] if len(unseen) == 1 else tuple(unseen)
            add_outputs(out, type_, recording.calls[current * len(CALL) + 4], 0, 0, -1, inputs)

        def leave_call(call: int) -> None:
            nonlocal current
            recording.calls[call * len(CALL) + 3] = row_count
            stack.pop()
            current = stack[-1] if stack else -1
            if call in passed_on:
                settle(call)

        def is_known(t: Tensor) -> bool:
            seen = known.get(id(t))
            return (seen is not None and seen[0]() is t) or id(t) in sources

        def current_row(t: Tensor) -> int:
            seen = known.get(id(t))
            if seen is not None and seen[0]() is t and version_of(t) == seen[2]:
                return seen[1]
            return source_row(t)

        def add_input(t: Tensor) -> None:
            if is_known(t):  # one tensor given twice is one input
                return
            places.outside(t)
            add_row(t, INPUT, type_number("input"), -1, -1, -1, 0, 0, -1)

        def add_output(t: Tensor, name: str) -> None:
            nonlocal row_count
            src, row = current_row(t), row_count
            row_count += 1
            meta = metas_seen.get((t.shape, t.dtype, t.device))
            if meta is None:
                meta = new_meta(t)
            rows.extend((OUTPUT, type_number("output"), -1, meta, -1, -1, -1, 0, 0, -1))
            connect(row, [src, arg_number(name)])
            if values.wanted is not None:
                values.offer(row, OUTPUT, "output", t, stack)

        def mark_entry(code: CodeType) -> None:
            """Name the code through which modules are called: what lies beyond is its caller's."""
            code_kinds[id(code)] = _ENTRY

        self.add_input, self.add_output = add_input, add_output
        self.begin_call, self.end_call, self.leave_call = begin_call, end_call, leave_call
        self.mark_entry = mark_entry
        self._handler = handler


def _code_kind(code: CodeType) -> int:
    return _LIBRARY if code.co_filename.startswith(_LIBRARIES) else _USER


def _walk(value: Any, name: str, atoms: list[Any], depth: int = 0) -> Iterator[tuple[Tensor, str]]:
    """The tensors in one argument with their paths; foreign objects are never looked into."""
    if isinstance(value, Tensor):
        yield value, name
    elif isinstance(value, tuple | list) and depth < 8:
        atoms.append(len(value))
        for number, part in enumerate(value):
            yield from _walk(part, f"{name}.{number}", atoms, depth + 1)
    elif isinstance(value, dict) and depth < 8:
        for key, part in value.items():
            yield from _walk(part, f"{name}.{key}", atoms, depth + 1)
    elif isinstance(value, slice):
        yield from _walk((value.start, value.stop, value.step), name, atoms, depth + 1)
    elif type(value) in _ATOMS:
        atoms.append(value)
    else:
        atoms.append(type(value).__name__)


def _meta(t: Tensor) -> Meta:
    shape = tuple(t.shape)
    size = 1
    for length in shape:
        size *= length
    return Meta(shape, str(t.dtype).removeprefix("torch."), str(t.device), size * t.dtype.itemsize)


def _tensors(value: Any, depth: int = 0) -> list[Tensor]:
    """The tensors in what a function or module returned, in order; foreign objects are never iterated."""
    if isinstance(value, Tensor):
        return [value]
    if depth > 8:
        return []
    if isinstance(value, tuple | list):
        parts: Any = value
    elif isinstance(value, dict):
        parts = value.values()
    elif hasattr(value, "__dataclass_fields__"):
        parts = [getattr(value, name, None) for name in value.__dataclass_fields__]
    else:
        return []
    return [t for part in parts for t in _tensors(part, depth + 1)]
