"""What is known of a pass while it still runs: bounds on the numbers its operations will bear.

The final numbers leave out orphans and count passes of one layer once, which is known when the pass is over.
What descends from an input is never an orphan, and what has parameters of its own is a pass of nothing but
those with the same parameters; for these the bounds meet.
"""

from __future__ import annotations

from typing import NamedTuple

from ....core.graph import INPUT, OP
from ..recording import ROW, Recording

_WIDTH = len(ROW)
_TYPE, _SIGNATURE, _OUTPUT, _INPUTS = map(ROW.index, ("type", "signature", "output", "inputs"))

#: The least and the greatest that a number may turn out to be.
Bounds = tuple[int, int]


class Standing(NamedTuple):
    """What is known of one operation: ``ordinal`` counts operations from 0; ``of_type`` and ``overall`` are
    the two numbers of its label; ``passno`` is None where it may be a pass of anything; ``certain`` whether
    it is sure to be in the graph."""

    ordinal: Bounds
    of_type: Bounds
    overall: Bounds
    passno: int | None
    certain: bool


class _Layers:
    """Bounds on how many layers there are so far."""

    def __init__(self) -> None:
        self.low = self.high = 0

    def next(self, fresh: bool, sure: bool) -> Bounds:
        """The bounds of the number of one more that may be (``fresh``) and is sure to be a new layer."""
        self.high += fresh
        bounds = (self.low + 1 if sure else 1, self.high)
        self.low += sure
        return bounds


class _Shared:
    """A layer known by its parameters."""

    def __init__(self, of_type: Bounds, overall: Bounds, sure: bool) -> None:
        self.of_type, self.overall, self.sure, self.passes = of_type, overall, sure, 0


class Progress:
    """Follows a recording row by row; ``inputs_at`` is where each row's inputs begin."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.certain = bytearray()
        self.inputs_at: list[int] = [0]
        self._ordinal = [0, 0]
        self._overall, self._of_type = _Layers(), dict[int, _Layers]()
        self._shared: dict[tuple[int, ...], _Shared] = {}

    def advance(self) -> Standing | None:
        """ValueSummary at the rows that are new; what is known of the last, None if it is no operation."""
        standing = None
        for row in range(len(self.certain) * _WIDTH, len(self._recording.rows), _WIDTH):
            standing = self._see(row)
        return standing

    def _see(self, row: int) -> Standing | None:
        rows, start = self._recording.rows, self.inputs_at[-1]
        stop = start + rows[row + _INPUTS]
        self.inputs_at.append(stop)
        sources = self._recording.inputs[start:stop:2]
        sure = rows[row] == INPUT or any(s >= 0 and self.certain[s // _WIDTH] for s in sources)
        self.certain.append(sure)
        if rows[row] != OP:
            return None
        ordinal = (self._ordinal[0], self._ordinal[1])
        self._ordinal[0] += sure
        self._ordinal[1] += 1
        params = sorted({s for s in sources if s < 0})
        if params and rows[row + _SIGNATURE] != -1:
            key = (rows[row + _TYPE], rows[row + _SIGNATURE], rows[row + _OUTPUT], *params)
            return self._with_parameters(key, ordinal, sure)
        of_type, overall = self._number(rows[row + _TYPE], fresh=True, sure=bool(params) and sure)
        return Standing(ordinal, of_type, overall, None, sure)

    def _with_parameters(self, key: tuple[int, ...], ordinal: Bounds, sure: bool) -> Standing:
        shared = self._shared.get(key)
        if shared is None or not shared.sure:  # the first pass that is sure to be there may be the first
            of_type, overall = self._number(key[0], fresh=shared is None, sure=sure)
            least = shared or _Shared(of_type, overall, sure)
            shared = self._shared[key] = _Shared(
                (least.of_type[0], of_type[1]), (least.overall[0], overall[1]), sure
            )
            shared.passes = least.passes if least.passes == 0 else -(1 << 62)  # how many stay is not known
        shared.passes += 1
        passno = shared.passes if shared.passes > 0 and sure else None
        return Standing(ordinal, shared.of_type, shared.overall, passno, sure)

    def _number(self, type_: int, *, fresh: bool, sure: bool) -> tuple[Bounds, Bounds]:
        of_type = self._of_type.setdefault(type_, _Layers())
        return of_type.next(fresh, sure), self._overall.next(fresh, sure)
