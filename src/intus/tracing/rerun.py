"""A finished pass with something changed: only what lies downstream runs again; see ``Trace.rerun``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core.address import Address
from ..core.errors import AddressError, CaptureError, InputError
from ..core.graph import OUTPUT
from ..core.selection import resolve
from .given import Parents, WrongError, calls_of
from .invocation import Invocation, Slot
from .replay import Replays, UnprovenError, run, same, unwatched
from .store import to_run

if TYPE_CHECKING:
    from .trace import Trace

Change = Tensor | float | Callable[[Tensor], Any]


def rerun(
    trace: Trace,
    changes: Mapping[str | int, Change],
    swap: Mapping[str | int, Callable[..., Any]],
) -> Trace:
    """The trace with ``changes`` done to values and with the functions in ``swap`` instead of its own."""
    if trace._replays is None:
        raise InputError(
            "This trace has no calls to run again: it was taken with save='none', copied, or read from a "
            "file. Trace the model again with save='all'."
        )
    edits: dict[int, list[Callable[[Tensor], Tensor]]] = {}
    for key, change in changes.items():
        rows, unit = _rows(trace, key)
        for row in rows:
            edits.setdefault(row, []).append(_edit(key, change, unit))
    functions = {row: function for key, function in swap.items() for row in _rows(trace, key)[0]}
    values = _Rerun(trace, trace._replays, edits, functions).values()
    labels = sorted({trace.graph.label(row) for row in (*edits, *functions)})
    graph = dataclasses.replace(trace.graph, facts={**trace.graph.facts, "changed": labels})
    return type(trace)(graph, values, trace.unverified, trace._replays)


class _Rerun:
    """One rerun: ``new`` are the values so far, ``fresh`` the rows whose value is another than it was."""

    def __init__(
        self,
        trace: Trace,
        replays: Replays,
        edits: Mapping[int, list[Callable[[Tensor], Tensor]]],
        functions: Mapping[int, Callable[..., Any]],
    ) -> None:
        self.trace, self.graph, self.replays = trace, trace.graph, replays
        self.edits, self.functions = edits, functions
        self.new, self.fresh = to_run(trace.values), set[int]()
        self.parents = Parents(self.graph, replays, self.new)

    def values(self) -> MutableMapping[int, Tensor]:
        """All values after the change."""
        calls = calls_of(self.graph)
        in_calls = {row for rows in calls.values() for row in rows}
        with unwatched():
            for row in sorted(set(self.edits) - in_calls):  # inputs, buffers and constants come before all
                self._put(row, self._value(row))
            for event, rows in calls.items():
                self._call(event, rows)
            self._same_way()
        return self.new

    def _call(self, event: int, rows: list[int]) -> None:
        if self.graph.metas[int(self.graph.ops.meta[rows[0]])].dtype == "":
            return  # it raised, and returned nothing that could change
        swapped = next((self.functions[row] for row in rows if row in self.functions), None)
        if swapped is not None or self._touched(event, rows):
            out = self._run(event, rows, swapped)
            for row in rows:
                self._put(row, out[max(int(self.graph.ops.output[row]), 0)])
        else:
            for row in rows:
                if row in self.edits:
                    self._put(row, self._value(row))

    def _touched(self, event: int, rows: list[int]) -> bool:
        """Whether anything that went into the call has changed."""
        if not self.fresh:
            return False
        if any(parent in self.fresh for row in rows for parent in self.parents.into.get(row, {}).values()):
            return True
        call, end = self.replays.call(event), self.replays.outputs.get(rows[0])
        patches = [hole.patch for hole in (*(call.holes if call else ()), end) if hole and hole.patch]
        return any(row in self.fresh for p in patches for row in (p.base, *(row for row, _ in p.writes)))

    def _run(self, event: int, rows: list[int], swapped: Callable[..., Any] | None) -> list[Tensor]:
        label = self.graph.label(rows[0])
        try:
            if int(self.graph.ops.kind[rows[0]]) == OUTPUT:
                return [self.parents.returned(rows[0])]
            call = self.replays.call(event)
            if call is None:
                raise UnprovenError("its call was not noted: it ran out of sight, or raised")
            given = [self.parents.given(hole, rows[0]) for hole in call.holes]
        except (UnprovenError, WrongError) as error:
            raise CaptureError(f"{label!r} lies downstream and cannot be run again: {error}.") from None
        return run(call if swapped is None else _with_function(call, swapped), given)

    def _put(self, row: int, value: Tensor) -> None:
        """Set a row's value, changed as was asked, if it is of the shape and dtype the graph says."""
        for edit in self.edits.get(row, ()):
            value = edit(value)
        meta, label = self.graph.metas[int(self.graph.ops.meta[row])], self.graph.label(row)
        if tuple(value.shape) != meta.shape or str(value.dtype).removeprefix("torch.") != meta.dtype:
            raise InputError(
                f"After the change {label!r} is {tuple(value.shape)} {value.dtype}, and was {meta.shape} "
                f"{meta.dtype}. A rerun keeps shapes and dtypes; to change these, trace the changed model."
            )
        self.new[row] = value
        self.fresh.add(row)

    def _same_way(self) -> None:
        """The model's own decisions must fall as they did: Python is not run again."""
        for branch in self.graph.branches:
            if branch.row in self.fresh and branch.row in self.trace.values:
                was, now = self.trace.values[branch.row], self.new[branch.row]
                if bool(was) != bool(now) if branch.how == "bool" else not same(was, now):
                    raise CaptureError(
                        f"The model asked for the value of {self.graph.label(branch.row)!r} ({branch.how}), "
                        "which is another after the change: it might have gone another way. Trace the "
                        "changed model instead."
                    )

    def _value(self, row: int) -> Tensor:
        try:
            return self.parents.value(row)
        except UnprovenError as error:
            raise CaptureError(
                f"Its value is needed for the change: {error}. Trace with save='all'."
            ) from None


def _rows(trace: Trace, key: str | int) -> tuple[list[int], int | None]:
    """The rows and the unit that an address means."""
    unit = None
    if isinstance(key, str) and key not in trace:
        address = Address.parse(key)
        key, unit = str(dataclasses.replace(address, unit=None)), address.unit
    return resolve(trace.graph, key, ordinals=trace._ordinals), unit


def _edit(key: str | int, change: Change, unit: int | None) -> Callable[[Tensor], Tensor]:
    """The change of one value, or of one unit of it, as a function from the old value to the new."""

    def edited(old: Tensor) -> Tensor:
        new = old.clone()
        part = new if unit is None else _unit(new, unit, key)
        value = change(part.clone()) if callable(change) else change
        if not isinstance(value, Tensor | int | float | complex):
            raise InputError(f"The change of {key!r} gave {value!r}; it must give a tensor or a number.")
        if isinstance(value, Tensor) and value.dim() and value.shape != part.shape:
            raise InputError(
                f"The change of {key!r} is of shape {tuple(value.shape)}, and what it changes is "
                f"{tuple(part.shape)}."
            )
        with torch.no_grad():
            part.copy_(value.detach()) if isinstance(value, Tensor) else part.fill_(value)
        return new

    return edited


def _unit(t: Tensor, unit: int, key: str | int) -> Tensor:
    """One unit of a value: a channel of (batch, channels, height, width …), else one of the last axis."""
    axis = 1 if t.dim() >= 4 else -1
    count = t.shape[axis] if t.dim() else 0
    if unit >= count:
        raise AddressError(f"{str(key)!r} is out of range: there are {count} units, counted from 0.")
    return t.select(axis, unit)


def _with_function(call: Invocation, function: Callable[..., Any]) -> Invocation:
    """The call with another function, which takes the tensors alone, in their order."""
    slots = tuple(Slot(number) for number in range(len(call.holes)))
    return call._replace(func=function, args=slots, kwargs={}, picks=None)
