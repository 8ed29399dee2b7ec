"""The operations of a pass: the function that stands between Python and torch while it is recorded.

This is the hot path. It appends integers, interns what repeats, and formats nothing; ``assemble`` makes sense
of it afterwards. Everything that the handler needs is a local of its own: no attribute is looked up per
operation. What nearly every operation takes stands in it at length: to call a function of ours costs as much
as all that is done for an argument.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.nn import Parameter

from ...core.graph import CREATED, FAILED, INPLACE, OP
from .call_log import CallLog
from .containers import ATOMS, is_plain, tensors
from .decompose import Decomposer
from .functions import Function, describe, results, written
from .producers import Producers
from .recording import POSITIONS, Read, Recording
from .saving.values import Values
from .sites import Sites

#: Keywords that may make a function write into an argument; ``functions.written`` tells whether it does.
_WRITE_FLAGS = frozenset({"out", "inplace", "training", "use_input_stats", "max_norm"})

#: Gives the plain value of a tensor that has none: how it is asked (``"bool"`` …), and the tensor.
Answer = Callable[[str, Tensor], Any]


def make_handler(
    recording: Recording,
    producers: Producers,
    sites: Sites,
    values: Values,
    call_log: CallLog | None,
    *,
    most: int,
    answer: Answer | None,
    decomposer: Decomposer | None,
) -> Callable[..., Any]:
    """What ``Recorder`` runs for every torch function: it runs the function and notes what that made.

    ``most`` bounds the integers in ``recording.rows``, 0 for no bound; see ``Recorder`` for the others.
    """
    functions: dict[Any, tuple[Function, int, int, bool, bool]] = {}
    rows, stack, known, metas = recording.rows, recording.stack, producers.known, recording.meta_numbers
    extend_rows, extend_inputs, types = rows.extend, recording.inputs.extend, recording.types
    new_meta, find, site_number = recording.meta_number, producers.row, sites.number
    signatures, known_sites, getframe = recording.signatures, sites.numbers, sys._getframe
    gather, extra_producers, transformed = producers.gather, producers.extra_producers, producers.transformed
    offer, note_call = values.offer, None if call_log is None else call_log.before
    sources, keeping = recording.addresses.sources, values.wanted is not None
    returnable = (Tensor, tuple, list)

    def learn(func: Any) -> tuple[Function, int, int, bool, bool]:
        """Of a function met for the first time: what it is, its type's number (-1 where it makes no row), its
        own number, whether it may write into any call's arguments, whether these are an index."""
        about = describe(func)
        type_ = recording.type_number(about.type) if about.record else -1
        special = about.writes or bool(about.mutates) or about.type == "data"
        entry = functions[func] = (about, type_, len(functions), special, about.by_index)
        return entry

    def run_noticed(about: Function, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Run what makes no row and is worth knowing all the same."""
        if about.note == "read" and answer is not None and args and args[0].is_meta:
            out = answer(about.type, args[0])
        else:
            out = func(*args, **kwargs) if kwargs else func(*args)
        if args and isinstance(args[0], Tensor):
            with torch._C.DisableTorchFunction():
                if about.note == "read":
                    note_read(args[0], about.type, out, getframe(2))
                elif about.note == "host":
                    producers.to_host(args[0])
                elif about.note == "backward":
                    producers.differentiated(args[0])
                elif isinstance(out, Tensor):
                    producers.gradient(out, args[0])
                extra_producers.clear()
        return out

    def note_read(t: Tensor, how: str, out: Any, frame: Any) -> None:
        """Python has asked for a plain value; what torch asks for itself is not the model's choice."""
        row = find(t)
        if row >= 0 and sites.is_users(frame):
            value = out if isinstance(out, bool) else None
            recording.reads.append(Read(row, how, frame.f_code, frame.f_lasti, value, len(rows)))

    def before_writing(about: Function, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> list[Tensor]:
        """The tensors this very call writes into; what is about to be overwritten there is kept: saved
        activations, and what stood before the pass."""
        targets = written(about, args, kwargs or {})
        with torch._C.DisableTorchFunction():
            for target in targets:
                values.before_writing(target)
                recording.restorer.before_writing(target)
        if about.type == "data":
            producers.data_of(args[0])
        return targets

    def handler(
        mode: Any, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if most and len(rows) >= most:
            return func(*args, **(kwargs or {}))
        about, type_, function, special, by_index = functions.get(func) or learn(func)
        if type_ < 0:
            if about.note:
                return run_noticed(about, func, args, kwargs)
            return func(*args, **kwargs) if kwargs else func(*args)
        if decomposer is not None and (strategy := decomposer.strategy(func, args, kwargs)):
            return decomposer.run(strategy, func, args, kwargs)

        # What goes in: the rows of tensors, and of the rest what alike operations are told by.
        inputs: list[int] = []
        atoms: list[Any] = [function]
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
                gather(value, str(position), inputs, atoms)
        if kwargs:
            for name, value in kwargs.items():
                if type(value) in ATOMS:
                    atoms.append((name, value))
                else:
                    gather(value, name, inputs, atoms)
        call = None if note_call is None else note_call(func, args, kwargs, inputs)
        if extra_producers:
            producers.add_extra_producers(inputs)
        writes = None
        if special or (kwargs and not _WRITE_FLAGS.isdisjoint(kwargs)):
            writes = before_writing(about, args, kwargs)

        began = perf_counter_ns()
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException as error:  # in case it is the one that ends the pass
            line = site_number(getframe(1))
            row = recording.add(inputs, kind=OP, type=type_, meta=new_meta(None), site=line, flags=FAILED)
            recording.raised = (row, error)
            raise
        time = perf_counter_ns() - began

        # What came of it.
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

        # Its row, or rows.
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
        call_facts = (site, flags, signature, len(inputs))  # as ``recording.ROW`` has them
        row = len(rows)
        if call_log is not None and call is not None:
            call_log.after(row, call, out)
        if type(out) is Tensor:
            try:
                meta = metas[out.shape, out.dtype, out.device]
            except (KeyError, RuntimeError):  # met for the first time; or nested, which has no shape
                meta = new_meta(out)
            extend_rows((OP, type_, stack[-1], meta, row, -1, time))
            extend_rows(call_facts)
            extend_inputs(inputs)
            try:
                known[id(out)] = (ref(out), row, out._version)
            except RuntimeError:  # an inference tensor counts no writes
                known[id(out)] = (ref(out), row, None)
            if transformed:
                producers.note(out, row)
            if keeping:
                offer(row, OP, types[type_], out)
        else:
            producers.add_all(tensors(out), type_, inputs, call_facts, time)
        if writes:
            producers.wrote(writes, row, row)
        elif before is not None:
            producers.forward_alias(out, row, before)
        return returned

    return handler
