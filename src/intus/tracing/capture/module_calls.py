"""The calls of a pass's modules: which module ran in which, from where to where, and what it returned."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ...core.graph import CREATED
from .call_log import CallLog
from .containers import tensors
from .producers import Producers
from .recording import CALL, Recording
from .saving.values import Values
from .sites import Sites

_WIDTH = len(CALL)
_STOP = CALL.index("stop")


class ModuleCalls:
    """Notes each call as it begins, as it returns, and as it is left; ``interpose`` tells of all three."""

    __slots__ = ("_call_log", "_producers", "_recording", "_sites", "values")

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

    def begin(self, module: Module) -> int:
        """A module is being called from the caller's caller; returns the call's number."""
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
        """A call has returned ``out``."""
        row = self._producers.row_as_made(out)
        if row >= 0:
            self._returned(call, row, out)
            return
        with torch._C.DisableTorchFunction():  # our own look at the tensors is no part of the pass
            returned = tensors(out)
            unseen = [t for t in returned if not self._producers.is_known(t)]
            if unseen:
                picks = tuple(n for n, t in enumerate(returned) if any(t is other for other in unseen))
                self._add_unseen(call, module, (args, kwargs), unseen, picks)
            for t in returned:
                row = self._producers.row(t)
                if row >= 0:
                    self._returned(call, row, t)
            self._producers.extra_producers.clear()

    def leave(self, call: int) -> None:
        """A call is over, whether it returned or raised."""
        recording = self._recording
        recording.calls[call * _WIDTH + _STOP] = len(recording.rows)
        recording.stack.pop()
        if call in self._producers.forwarded_aliases:
            self._producers.end_aliases(call)

    def _returned(self, call: int, row: int, t: Tensor) -> None:
        self._recording.exits.extend((row, call))
        if self.values.modules:
            self.values.returned(row, call, t)

    def _add_unseen(
        self,
        call: int,
        module: Module,
        arguments: tuple[Any, Any],
        unseen: list[Tensor],
        picks: tuple[int, ...],
    ) -> None:
        """What ran out of Python's sight (a ScriptModule) is one operation with its edges kept; ``picks`` are
        the places of ``unseen`` among the tensors that it returned."""
        args, kwargs = arguments
        named = {**{str(number): value for number, value in enumerate(args)}, **(kwargs or {})}
        inputs: list[int] = []
        for name, value in named.items():
            self._producers.gather(value, name, inputs, [])
        recording, given = self._recording, list(inputs)
        self._producers.add_extra_producers(inputs)
        if self._call_log is not None:
            self._call_log.whole(len(recording.rows), module, (args, kwargs, given), picks, unseen)
        type_ = recording.type_number(type(module).__name__.lower())
        flags = 0 if inputs else CREATED
        facts = recording.call_facts(inputs, site=recording.site_of(call), flags=flags)
        self._producers.add_all(unseen, type_, inputs, facts, 0)
