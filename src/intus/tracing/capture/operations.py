"""The recording of operations: the handler that runs for every torch function during a pass.

This is the hot path. It appends integers, interns values that repeat, and formats nothing; ``assemble``
interprets the result afterwards. Everything the handler needs is a local of its closure, so that no attribute
is looked up per operation. What nearly every operation needs is written out inline: a call of a Python
function costs as much as everything the handler does for one argument.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from ...core.graph import CREATED, FAILED, INPLACE, OP
from .call_log import CallLog
from .containers import ATOMS, is_plain, tensors
from .decompose import Decomposer
from .functions import Function, describe, results, written
from .producers import Producers
from .recording import POSITIONS, Read, Recording
from .saving.values import Values
from .sites import Sites

#: Keywords that may make a function write into an argument; ``functions.written`` finds out whether it does.
_WRITE_FLAGS = frozenset({"out", "inplace", "training", "use_input_stats", "max_norm"})

#: The effects of functions that return values to Python; see ``Function.effect``.
_READS = frozenset({"read", "content", "host"})
#: The files of torch's functions by which Python code reads a tensor, and that call the handler for it.
_READERS = frozenset(map(inspect.getfile, (torch._tensor, torch.overrides, torch.serialization)))
#: Tensors of lazy modules, which have no shape. A call that gives one its memory (``data``) has no row: the
#: tensor is met afterwards, as the parameter or buffer that it became.
_UNINITIALIZED = frozenset({UninitializedParameter, UninitializedBuffer})

#: Returns the plain value to use for a tensor on ``meta``, given how Python reads it (``"bool"``, ``"item"``)
#: and the tensor.
MetaValue = Callable[[str, Tensor], Any]


def make_handler(
    recording: Recording,
    producers: Producers,
    sites: Sites,
    values: Values,
    call_log: CallLog | None,
    *,
    max_length: int,
    meta_value: MetaValue | None,
    decomposer: Decomposer | None,
) -> Callable[..., Any]:
    """Return the function that ``Recorder`` runs for every torch function: it runs and records the call.

    Args:
        recording: Where the rows are appended.
        producers: The producers of the tensors met so far.
        sites: The numbers of source instructions.
        values: Saves activations.
        call_log: Logs calls so that they can be replayed; None to log none.
        max_length: No rows are appended once ``recording.rows`` has this many integers; 0 for no limit.
        meta_value: Returns the plain values of tensors on ``meta``; None to let torch raise.
        decomposer: Records composite functions by what they call; None to record them as one operation.
    """
    functions: dict[Any, tuple[Function, int, int, bool, bool]] = {}
    rows, stack, known, metas = recording.rows, recording.stack, producers.known, recording.meta_numbers
    all_inputs, types = recording.inputs, recording.types
    new_meta, producer_of, site_number = recording.meta_number, producers.producer_of, sites.number
    signatures, known_sites, getframe = recording.signatures, sites.numbers, sys._getframe
    gather, extra_producers, transformed = producers.gather, producers.extra_producers, producers.transformed
    on_tensor, log_before = values.on_tensor, None if call_log is None else call_log.before
    sources, saving = recording.addresses.sources, values.chooser is not None
    returnable, add_allocated = (Tensor, tuple, list), recording.restorer.add_allocated

    def register(func: Any) -> tuple[Function, int, int, bool, bool]:
        """Describe a function on its first call.

        Returns:
            The description, the number of its type (-1 if its calls have no rows), its own number, whether
            any call of it may write into its arguments, and whether its arguments are an index.
        """
        about = describe(func)
        type_ = recording.type_number(about.type) if about.record else -1
        if about.record:
            recording.functions.setdefault(about.type, []).append(func)
        special = about.writes or bool(about.mutates or about.statistics) or about.unversioned
        special = special or about.type.startswith("new_") or about.type.endswith("_like")
        entry = functions[func] = (about, type_, len(functions), special, about.by_index)
        return entry

    def run_without_row(
        about: Function, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Any:
        """Run a function that has no row but changes what the recorder knows; see ``Function.effect``."""
        if about.effect == "copy" and type(args[0]) is Tensor:
            return run_copy(func, args, kwargs)
        if about.effect == "backward":
            with torch._C.DisableTorchFunction():
                recording.restorer.before_backward()
        if about.effect == "flag" and args:
            with torch._C.DisableTorchFunction():
                recording.restorer.before_flagging(args[0])
        if about.effect == "read" and meta_value is not None and args and args[0].is_meta:
            out = meta_value(about.type, args[0])
        else:
            out = func(*args, **kwargs) if kwargs else func(*args)
        if about.effect in _READS:
            with torch._C.DisableTorchFunction():
                caller: Any = getframe(2)
                while caller.f_code.co_filename in _READERS:
                    caller = caller.f_back
                read = tensors((*args, *(kwargs or {}).values()))
                for t in {id(t): t for t in read}.values():
                    add_read(t, about.type, out, caller)
                    if about.effect == "host":
                        producers.add_host_export(t)
                extra_producers.clear()
        elif args and isinstance(args[0], Tensor):
            with torch._C.DisableTorchFunction():
                if about.effect == "backward":
                    producers.add_loss(args[0])
                elif about.effect == "grad" and isinstance(out, Tensor):
                    producers.add_gradient(out, args[0])
                extra_producers.clear()
        return out

    def run_copy(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Run ``Tensor.__deepcopy__`` and record it as a call of ``copy.deepcopy`` on the tensor alone.

        Its other argument holds the copies made before.
        """
        with torch._C.DisableTorchFunction():
            inputs = [producer_of(args[0]), 0]
            call = None if log_before is None else log_before(copy.deepcopy, args[:1], None, inputs)
            producers.add_extra_producers(inputs)
        began = perf_counter_ns()
        out = func(*args, **(kwargs or {}))
        time = perf_counter_ns() - began
        with torch._C.DisableTorchFunction():
            if call_log is not None and call is not None:
                call_log.after(len(rows), call, out)
            facts = recording.call_facts(inputs, site=site_number(getframe(2)))
            producers.add_all([out], recording.type_number("deepcopy"), inputs, facts, time)
        return out

    def add_read(t: Tensor, how: str, out: Any, frame: Any) -> None:
        """Record that user code read a plain value; reads by torch's own code decide nothing in the model."""
        offset = producer_of(t)
        if not sites.is_user_code(frame):
            return
        offsets = dict.fromkeys([offset])
        patch = None if call_log is None else call_log.patches.get((id(t), offset))
        if patch is not None:  # what was written through views was read, and what they left as it was
            offsets |= dict.fromkeys((patch.base, *(writer for writer, _ in patch.writes)))
        value = out if isinstance(out, bool) else None
        for one in offsets:
            if one < 0:
                recording.param_reads[-1 - one] = how
            else:
                recording.reads.append(Read(one, how, frame.f_code, frame.f_lasti, value, len(rows)))

    def prepare_writes(about: Function, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> list[Tensor]:
        """Return the tensors that this call writes into, after copying what it is about to overwrite.

        Copied are saved activations and memory that existed before the pass.
        """
        targets = written(about, args, kwargs or {})
        with torch._C.DisableTorchFunction():
            for target in targets:
                values.before_writing(target)
                recording.restorer.before_writing(target)
        if about.unversioned:
            for target in targets or args[:1]:
                producers.mark_unversioned(target)
        return targets

    def handler(
        mode: Any, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        nonlocal rows, all_inputs
        if max_length and len(rows) >= max_length:
            return func(*args, **(kwargs or {}))
        about, type_, function, special, by_index = functions.get(func) or register(func)
        if type_ < 0:
            if about.effect:
                return run_without_row(about, func, args, kwargs)
            return func(*args, **kwargs) if kwargs else func(*args)
        if special and args and type(args[0]) in _UNINITIALIZED:
            return func(*args, **(kwargs or {}))
        if decomposer is not None and (strategy := decomposer.strategy(func, args, kwargs)):
            return decomposer.run(strategy, func, args, kwargs)

        # The arguments: producers of tensors go to ``inputs``. Other values go to ``atoms``, by which
        # ``assemble`` recognizes operations with equal arguments.
        inputs: list[int] = []
        atoms: list[Any] = [function]
        position = -1
        for value in args:
            position += 1
            cls = type(value)
            if (cls is Tensor or cls is Parameter) and position < POSITIONS:
                entry = known.get(id(value))
                if (
                    entry is not None
                    and entry[0]()
                    is value  # checked first: an inference tensor may have reused the id, and has no _version
                    and entry[2] is not None
                    and entry[2] == value._version  # type: ignore[union-attr]
                ):
                    inputs += (entry[1], position)
                else:
                    inputs += (producer_of(value), position)
            elif cls in ATOMS:
                atoms.append(value)
            elif not by_index or not is_plain(value):  # plain indices are compared by source line instead
                gather(value, str(position), inputs, atoms)
        if kwargs:
            for name, value in kwargs.items():
                if type(value) in ATOMS:
                    atoms.append((name, value))
                else:
                    gather(value, name, inputs, atoms)
        call = None if log_before is None else log_before(func, args, kwargs, inputs)
        if extra_producers:
            producers.add_extra_producers(inputs)
        writes = None
        if special or (kwargs and not _WRITE_FLAGS.isdisjoint(kwargs)):
            writes = prepare_writes(about, args, kwargs)

        began = perf_counter_ns()
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException as error:  # it may be the exception that ends the pass
            line = site_number(getframe(1))
            offset = recording.add(inputs, kind=OP, type=type_, meta=new_meta(None), site=line, flags=FAILED)
            recording.raised = (offset, error)
            raise
        time = perf_counter_ns() - began

        # The results.
        returned = out
        if writes and (out is None or about.mutates):
            made = results(about, out, writes)
            out = made[0] if len(made) == 1 else made
        if type(out) is not Tensor and not isinstance(out, returnable):
            return returned
        flags = (INPLACE if writes and special and about.statistics is None else 0) if inputs else CREATED
        before = None  # the earlier entry in ``known`` of an argument that is returned unchanged
        if args and out is args[0]:
            if writes:  # F.relu(x, inplace=True)
                flags = INPLACE
            elif id(out) in sources:
                return out  # an unchanged parameter or buffer: a row would hide where it comes from
            else:
                before = known.get(id(out))
        elif writes and kwargs is not None and kwargs.get("out") is not None:
            flags = INPLACE
        if (special or not inputs) and not writes and type(out) is Tensor:
            with torch._C.DisableTorchFunction():
                add_allocated(out)

        # The row, or one row per returned tensor.
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
        call_facts = (site, flags, signature, len(inputs))  # in the order of ``recording.ROW``
        offset = len(rows)
        if call_log is not None and call is not None:
            call_log.after(offset, call, out)
        if type(out) is Tensor:
            try:
                meta = metas[out.shape, out.dtype, out.device]
            except (KeyError, RuntimeError):  # a new combination; or a nested tensor, which has no shape
                meta = new_meta(out)
            # Written so that no signal is handled in between: an interrupt leaves no incomplete row.
            rows += (OP, type_, stack[-1], meta, offset, -1, time, *call_facts)
            all_inputs += inputs
            try:
                known[id(out)] = (ref(out), offset, out._version)
            except RuntimeError:  # inference tensors have no version
                known[id(out)] = (ref(out), offset, None)
            if transformed:
                producers.set_producer(out, offset)
            if saving:
                on_tensor(offset, OP, types[type_], out)
        else:
            producers.add_all(tensors(out), type_, inputs, call_facts, time)
        if writes:
            producers.add_writes(writes, offset, offset)
        elif before is not None:
            producers.forward_alias(out, offset, before)
        return returned

    return handler
