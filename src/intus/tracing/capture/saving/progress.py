"""Compute bounds, while a pass still runs, on the numbers that its operations will have in the graph.

The final numbers leave out orphans (rows not connected to an input or output) and count the passes of one
layer once. Both are known only when the pass is over. An operation that descends from an input is never an
orphan, and one with parameters can only share a layer with operations that have the same parameters, so for
these the bounds are exact.
"""

from __future__ import annotations

from typing import NamedTuple

from ....core.graph import INPUT, OP
from ..recording import ROW, Recording

_WIDTH = len(ROW)
_TYPE, _SIGNATURE, _OUTPUT, _INPUTS = map(ROW.index, ("type", "signature", "output", "inputs"))

#: The lowest and the highest value that a number may turn out to have.
Bounds = tuple[int, int]


class OpBounds(NamedTuple):
    """Bounds on the numbers of one operation.

    Attributes:
        ordinal: Its number among all operations, from 0.
        of_type: The number in its label that counts layers of its type.
        overall: The number in its label that counts all layers.
        passno: Which pass of its layer it is, from 1; None if that is not known yet.
        certain: Whether it is certain to be in the graph.
    """

    ordinal: Bounds
    of_type: Bounds
    overall: Bounds
    passno: int | None
    certain: bool


class _Layers:
    """Bounds on the number of layers so far."""

    def __init__(self) -> None:
        self.low = self.high = 0

    def next(self, possible: bool, certain: bool) -> Bounds:
        """Count one operation and return the bounds on the number of its layer.

        Args:
            possible: Whether it may be the first pass of a new layer.
            certain: Whether it is certain to be.
        """
        self.high += possible
        bounds = (self.low + 1 if certain else 1, self.high)
        self.low += certain
        return bounds


class _Shared:
    """A layer that is identified by its parameters."""

    def __init__(self, of_type: Bounds, overall: Bounds, certain: bool) -> None:
        self.of_type, self.overall, self.certain, self.passes = of_type, overall, certain, 0


class Progress:
    """Follows a recording row by row.

    Args:
        recording: The recording.

    Attributes:
        certain: By recorded row, whether it is certain to be in the graph.
        inputs_at: By recorded row, where its inputs begin in ``Recording.inputs``.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.certain = bytearray()
        self.inputs_at: list[int] = [0]
        self._ordinal = [0, 0]
        self._overall, self._of_type = _Layers(), dict[int, _Layers]()
        self._shared: dict[tuple[int, ...], _Shared] = {}

    def advance(self) -> OpBounds | None:
        """Process new rows; return the bounds for the last one, or None if it is not an operation."""
        bounds = None
        for offset in range(len(self.certain) * _WIDTH, len(self._recording.rows), _WIDTH):
            bounds = self._add(offset)
        return bounds

    def _add(self, offset: int) -> OpBounds | None:
        rows, start = self._recording.rows, self.inputs_at[-1]
        stop = start + rows[offset + _INPUTS]
        self.inputs_at.append(stop)
        sources = self._recording.inputs[start:stop:2]
        certain = rows[offset] == INPUT or any(s >= 0 and self.certain[s // _WIDTH] for s in sources)
        self.certain.append(certain)
        if rows[offset] != OP:
            return None
        ordinal = (self._ordinal[0], self._ordinal[1])
        self._ordinal[0] += certain
        self._ordinal[1] += 1
        params = sorted({s for s in sources if s < 0})
        if params and rows[offset + _SIGNATURE] != -1:
            key = (rows[offset + _TYPE], rows[offset + _SIGNATURE], rows[offset + _OUTPUT], *params)
            return self._with_parameters(key, ordinal, certain)
        of_type, overall = self._number(rows[offset + _TYPE], possible=True, certain=bool(params) and certain)
        return OpBounds(ordinal, of_type, overall, None, certain)

    def _with_parameters(self, key: tuple[int, ...], ordinal: Bounds, certain: bool) -> OpBounds:
        shared = self._shared.get(key)
        if shared is None or not shared.certain:  # this pass may be the first one that stays in the graph
            of_type, overall = self._number(key[0], possible=shared is None, certain=certain)
            first = shared or _Shared(of_type, overall, certain)
            shared = self._shared[key] = _Shared(
                (first.of_type[0], of_type[1]), (first.overall[0], overall[1]), certain
            )
            # After an uncertain pass it is not known how many passes stay, so none gets a number.
            shared.passes = first.passes if first.passes == 0 else -(1 << 62)
        shared.passes += 1
        passno = shared.passes if shared.passes > 0 and certain else None
        return OpBounds(ordinal, shared.of_type, shared.overall, passno, certain)

    def _number(self, type_: int, *, possible: bool, certain: bool) -> tuple[Bounds, Bounds]:
        of_type = self._of_type.setdefault(type_, _Layers())
        return of_type.next(possible, certain), self._overall.next(possible, certain)
