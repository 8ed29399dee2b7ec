"""Record module calls: their nesting, the rows recorded during each, and the tensors each returned."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import _get_current_function_mode_stack

from ...core.graph import CREATED
from .call_log import CallLog
from .containers import tensors
from .producers import Producers
from .recording import CALL, Recording
from .saving.values import Values
from .sites import Sites

#: How many nodes of autograd are searched for the arguments of a call.
_MAX_NODES = 256
_WIDTH = len(CALL)
_STOP = CALL.index("stop")


class ModuleCalls:
    """Records when each module call begins, returns and is left; ``interpose`` calls all three methods.

    Args:
        recording: Where the calls are stored.
        producers: The producers of the tensors met so far.
        sites: The numbers of source instructions.
        values: Saves activations.
        call_log: Logs calls so that they can be replayed; None to log none.

    Attributes:
        values: Saves activations.
        thread: The identifier of the thread that the pass runs in.
    """

    __slots__ = ("_call_log", "_producers", "_recording", "_sites", "thread", "values")

    def __init__(
        self,
        recording: Recording,
        producers: Producers,
        sites: Sites,
        values: Values,
        call_log: CallLog | None,
    ) -> None:
        self._recording, self._producers, self._sites = recording, producers, sites
        self.values, self._call_log = values, call_log
        self.thread = get_ident()

    def ignores(self) -> bool:
        """Return whether a module call that begins now is not part of the pass.

        It is not if a ``save=`` or ``transform=`` function or a replay runs it, or another thread that has
        inherited the context of this one.
        """
        return self.values.busy or self.thread != get_ident()

    def begin(self, module: Module) -> int:
        """Record that a module is called.

        The call site is two frames up: the caller of the function that calls this method.

        Returns:
            The number of the call.
        """
        recording = self._recording
        stack, calls = recording.stack, recording.calls
        parent, call = stack[-1], len(calls) // _WIDTH
        number = recording.addresses.numbers.get(id(module))
        if number is None:
            number = recording.addresses.add(module, recording.module_of(parent))
        frame = sys._getframe(2)
        site = self._sites.numbers.get((id(frame.f_code), frame.f_lasti))
        if site is None:
            site = self._sites.number(frame)
        calls += (number, parent, len(recording.rows), -1, site)
        stack.append(call)
        return call

    def end(self, call: int, module: Module, args: Any, kwargs: Any, out: Any) -> None:
        """Record that a call returned.

        Args:
            call: The number of the call.
            module: The module.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            out: What it returned.
        """
        offset = self._producers.unmodified_producer(out)
        if offset >= 0:
            self._add_exit(call, offset, out)
            return
        with torch._C.DisableTorchFunction():  # the recorder's own calls are not part of the pass
            returned = tensors(out)
            unknown = [t for t in returned if not self._producers.is_known(t)]
            unknown = [t for t in unknown if _is_computed_unseen(t, module, (args, kwargs))]
            if (
                unknown and not self._is_recording()
            ):  # part of a torch function, which is one operation itself
                returned = [t for t in returned if all(t is not other for other in unknown)]
            elif unknown:
                picks = tuple(n for n, t in enumerate(returned) if any(t is other for other in unknown))
                self._add_opaque(call, module, (args, kwargs), unknown, picks)
            for t in returned:
                offset = self._producers.producer_of(t)
                if offset < 0:
                    offset = self._producers.add_returned_parameter(t, offset)
                self._add_exit(call, offset, t)
            self._producers.extra_producers.clear()

    def _is_recording(self) -> bool:
        """Return whether operations are recorded now: a torch function runs without its recorder."""
        modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        return any(getattr(mode, "module_calls", None) is self for mode in modes)

    def leave(self, call: int) -> None:
        """Record that a call is over, whether it returned or raised."""
        recording = self._recording
        recording.calls[call * _WIDTH + _STOP] = len(recording.rows)
        recording.stack.pop()
        if call in self._producers.forwarded_aliases:
            self._producers.end_aliases(call)

    def _add_exit(self, call: int, offset: int, t: Tensor) -> None:
        self._recording.exits.extend((offset, call))
        if self.values.by_module:
            self.values.on_module_output(offset, call, t)

    def _add_opaque(
        self,
        call: int,
        module: Module,
        arguments: tuple[Any, Any],
        unknown: list[Tensor],
        picks: tuple[int, ...],
    ) -> None:
        """Record a module that computed tensors outside Python (a ScriptModule) as one operation.

        ``picks`` are the positions of ``unknown`` among the tensors that the module returned.
        """
        args, kwargs = arguments
        named = {**{str(number): value for number, value in enumerate(args)}, **(kwargs or {})}
        inputs: list[int] = []
        for name, value in named.items():
            self._producers.gather(value, name, inputs, [])
        recording, call_arguments = self._recording, (args, kwargs, list(inputs))
        self._producers.add_extra_producers(inputs)
        if self._call_log is not None:
            self._call_log.add_module(len(recording.rows), module, call_arguments, picks, unknown)
        type_ = recording.type_number(type(module).__name__.lower())
        flags = 0 if inputs else CREATED
        facts = recording.call_facts(inputs, site=recording.call_site(call), flags=flags)
        self._producers.add_all(unknown, type_, inputs, facts, 0)


def _is_computed_unseen(t: Tensor, module: Module, arguments: Any) -> bool:
    """Return whether a module call computed the tensor ``t``, which no recorded operation returned.

    A ScriptModule computes outside Python. Any other module may return a tensor that existed before (a
    table, a mask, what a hook puts in its place). So there must be evidence: its autograd history leads to
    an argument of the call.
    """
    if isinstance(module, torch.jit.ScriptModule):
        return True
    if t.grad_fn is None:
        return False
    given = {id(one) for one in tensors(arguments) if one.is_leaf}
    nodes = {one.grad_fn for one in tensors(arguments)} - {None}
    todo, visited = [t.grad_fn], {t.grad_fn}
    while todo and len(visited) < _MAX_NODES:
        node = todo.pop()
        if node in nodes or id(getattr(node, "variable", None)) in given:
            return True
        new = {one for one, _ in node.next_functions if one is not None} - visited
        visited |= new
        todo += new
    return False
