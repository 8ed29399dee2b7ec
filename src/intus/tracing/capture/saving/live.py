"""The op that a predicate of ``save=`` is given while the pass runs."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ....core.graph import BUFFER, CREATED, INPLACE, OP_KINDS, PARAMETER, Meta, Param, Source
from ..addresses import param_of
from ..recording import CALL, ROW, Recording
from ..sites import source_of
from .has_meta import HasMeta
from .progress import Progress

_WIDTH = len(ROW)
_CALL_OF, _META, _SITE, _TIME, _FLAGS, _INPUTS = map(
    ROW.index, ("call", "meta", "site", "time", "flags", "inputs")
)


class NotYetError(Exception):
    """Raised by facts about an op that are known only when the pass is over."""


class LiveOp(HasMeta):
    """The properties of ``Op`` that are known while the pass runs.

    All other properties of ``Op`` raise NotYetError. The predicate is then called again with the ``Op`` of
    the finished trace.

    Args:
        recording: The recording.
        progress: The positions of the inputs of its rows.
        offset: The offset of the row.
        kind: Index into ``OP_KINDS``.
        type_: The name of the row's type; the address of a buffer.
        value: The activation; None if it is not available.

    Attributes:
        offset: The offset of the row.
        kind_number: Index into ``OP_KINDS``.
        type: As ``Op.type``.
        buffer_address: As ``Op.buffer_address``.
    """

    __slots__ = ("_progress", "_recording", "_value", "buffer_address", "kind_number", "offset", "type")

    def __init__(
        self,
        recording: Recording,
        progress: Progress,
        offset: int,
        kind: int,
        type_: str,
        value: Tensor | None,
    ) -> None:
        self._recording, self._progress, self._value = recording, progress, value
        self.offset, self.kind_number = offset, kind
        self.buffer_address = type_ if kind == BUFFER else None
        self.type = OP_KINDS[kind] if kind in (BUFFER, PARAMETER) else type_

    def __getattr__(self, name: str) -> Any:
        from ...results.op import Op  # imported late, because it imports this module

        if hasattr(Op, name):
            raise NotYetError(name)
        raise AttributeError(f"an Op has no {name!r}")

    @property
    def end_name(self) -> str | None:
        """The name of an input or output in the model's code; valid only for the last one recorded."""
        names = self._recording.end_names.get(f"{self.kind}s")
        return names[-1] if names else None

    def _at(self, column: int) -> int:
        return self._recording.rows[self.offset + column]

    @property
    def kind(self) -> str:
        """As ``Op.kind``."""
        return OP_KINDS[self.kind_number]

    @property
    def value(self) -> Tensor:
        """The activation, detached; available only for the op that the predicate is called with."""
        if self._value is None:
            raise NotYetError("value")
        return self._value.detach()

    @property
    def meta(self) -> Meta:
        """As ``Op.meta``."""
        return self._recording.metas[self._at(_META)]

    @property
    def seconds(self) -> float:
        """As ``Op.seconds``."""
        return self._at(_TIME) / 1e9

    @property
    def in_place(self) -> bool:
        """As ``Op.in_place``."""
        return bool(self._at(_FLAGS) & INPLACE)

    @property
    def is_factory(self) -> bool:
        """As ``Op.is_factory``."""
        return bool(self._at(_FLAGS) & CREATED)

    @property
    def failed(self) -> bool:
        """As ``Op.failed``; False, because predicates are not called for operations that raised."""
        return False

    @property
    def source(self) -> Source | None:
        """As ``Op.source``."""
        site = self._at(_SITE)
        return source_of(*self._recording.sites[site]) if site >= 0 else None

    @property
    def _inputs(self) -> list[int]:
        start = self._progress.inputs_at[self.offset // _WIDTH]
        return list(dict.fromkeys(self._recording.inputs[start : start + self._at(_INPUTS) : 2]))

    @property
    def parents(self) -> list[LiveOp]:
        """As ``Op.parents``, without their values."""
        recording = self._recording
        return [
            LiveOp(recording, self._progress, source, recording.rows[source], recording.type_of(source), None)
            for source in self._inputs
            if source >= 0
        ]

    @property
    def params(self) -> list[Param]:
        """As ``Op.params``."""
        return [
            param_of(*self._recording.addresses.params[-1 - source]) for source in self._inputs if source < 0
        ]

    @property
    def modules(self) -> list[str]:
        """As ``Op.modules``, but the first call of a module has no number."""
        found, call, calls = [], self._at(_CALL_OF), self._recording.calls
        while call >= 0:
            module = calls[call * len(CALL)]
            passno = calls[0 : (call + 1) * len(CALL) : len(CALL)].count(module)
            address = self._recording.addresses.names[module]
            found.append(f"{address}:{passno}" if passno > 1 else address)
            call = calls[call * len(CALL) + 1]
        return found[::-1]

    @property
    def module(self) -> str | None:
        """As ``Op.module``, but the first call of a module has no number."""
        return self.modules[-1] if self._at(_CALL_OF) >= 0 else None
