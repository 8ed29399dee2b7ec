"""Which activations are wanted, decided while the pass runs: what is not wanted is not held.

A part of a selection says of each tensor whether it may be wanted, too often at times, never no wrongly; what
it means exactly is known when the pass is over, and what was held in vain is let go then. How early each kind
of selection is sure stands in ``docs/values.md``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ....core.address import Address, is_pattern, matches, split_units, tokens
from ....core.errors import AddressError, InputError
from ....core.graph import BUFFER, OP, OP_KINDS, Graph
from ....core.selection import Selection, select, units_refused
from ..recording import CALL, Recording
from .live import LiveOp, NotYetError
from .progress import Bounds, Progress, Standing


class Chooser:
    """A selection as it is asked during one pass; ``everything`` and ``modules`` spare the asking.

    ``offered`` and ``returned`` tell whether to keep a tensor: the one an operation made, and the one a
    module's call returns; after each, ``dropped`` holds the rows that need not be held any more. ``rows``
    are those of the finished graph that were meant. Without ``all_passes`` a pass that did not happen is no
    error, and in ``missing``.
    """

    def __init__(self, selection: Selection, *, all_passes: bool = True) -> None:
        self._all_passes = all_passes
        self.missing: set[str] = set()
        flat = parts_of(selection)
        self.everything = "all" in [part for part in flat if isinstance(part, str)]
        self._exact = [part for part in flat if not callable(part)]
        self._predicates = [_Predicate(part) for part in flat if callable(part)]
        self._parts: list[_Name | _Ordinals | _Window | _Predicate] = [
            *(made for part in self._exact for made in _parts(part)),
            *self._predicates,
        ]
        self.modules = not self.everything and any(isinstance(part, _Name) for part in self._parts)
        self._numbered = any(part.numbered for part in self._parts)
        self._held: dict[int, int] = {}  # by row: how many parts want it
        self._passes: dict[int, list[int]] = {}  # by module: its calls so far
        self._calls = 0
        self.dropped: list[int] = []

    def begin(self, recording: Recording) -> None:
        """A pass begins, which ``recording`` notes."""
        self._recording = recording
        self._progress = Progress(recording)

    def offered(self, row: int, kind: int, type_: str, t: Tensor) -> bool:
        """Whether to hold what an operation has just returned."""
        if self.everything:
            return True
        standing = self._progress.advance() if self._numbered else None
        op = LiveOp(self._recording, self._progress, row, kind, type_, t)
        votes = 0
        for part in self._parts:
            wanted, dropped = part.offered(op, standing)
            votes += wanted
            for other in dropped:
                self._unhold(other)
        if votes:
            self._held[row] = votes
        return row in self._held  # a window of none has let it go already

    def returned(self, row: int, call: int) -> bool:
        """Whether to hold the tensor of ``row``, which a module's call returns."""
        module, passno = self._module(call)
        addresses, wanted = self._recording.addresses, False
        address = addresses.names[module]
        names, class_ = (address, f"{address}:{passno}"), type(addresses.modules[module]).__name__
        for part in self._parts:
            if isinstance(part, _Name):
                here, dropped = part.returned(row, names, class_)
                if here:
                    wanted, self._held[row] = True, self._held.get(row, 0) + 1
                for other in dropped:
                    self._unhold(other)
        return wanted

    def rows(self, graph: Graph, where: Callable[[int], int], handle: Callable[[int], Any]) -> set[int]:
        """The rows of the finished graph that the selection means; ``where`` places a recorded row there."""
        chosen = {row for part in self._exact for row in self._meant(graph, part)}
        for part in self._predicates:
            chosen |= part.rows(where, handle)
        return chosen

    def _meant(self, graph: Graph, part: Any) -> list[int]:
        try:
            return select(graph, part)
        except AddressError:
            if self._all_passes or not isinstance(part, str) or graph.rows(part.rpartition(":")[0]) is None:
                raise
            self.missing.add(part)
            return []

    def _unhold(self, row: int) -> None:
        left = self._held.get(row, 1) - 1
        if left > 0:
            self._held[row] = left
        else:
            self._held.pop(row, None)
            self.dropped.append(row)

    def _module(self, call: int) -> tuple[int, int]:
        """The number of a call's module, and which call of the module it is."""
        calls, width = self._recording.calls, len(CALL)
        for number in range(self._calls, len(calls) // width):
            self._passes.setdefault(calls[number * width], []).append(number)
        self._calls = len(calls) // width
        module = calls[call * width]
        return module, self._passes[module].index(call) + 1


def parts_of(selection: Selection) -> list[Any]:
    """The parts of a selection in one list; raises InputError for what can be none."""
    return list(_flat(selection))


def _flat(selection: Selection) -> Iterator[Any]:
    class_ = selection if isinstance(selection, type) else type(selection)
    if issubclass(class_, Module):
        raise InputError(
            f"A selection names modules, and {class_.__name__} is one: write {class_.__name__!r} for all of "
            "that class, or an address as in model.named_modules()."
        )
    if isinstance(selection, Address):
        yield str(selection)
    elif (isinstance(selection, str | int | slice) and not isinstance(selection, bool)) or callable(
        selection
    ):
        if selection != "none":
            yield selection
    elif isinstance(selection, Iterable) and not isinstance(selection, bytes):
        for part in selection:
            yield from _flat(part)
    else:
        raise InputError(
            "A selection is a name, an ordinal, a predicate or a list of these, got "
            f"{selection!r} of type {type(selection).__name__}."
        )


def _parts(part: Any) -> Iterator[_Name | _Ordinals | _Window]:
    if isinstance(part, str):
        if part != "all":
            yield _Name(part)
    elif isinstance(part, int):
        yield _Window(-part) if part < 0 else _Ordinals(slice(part, part + 1))
    elif (part.step or 1) > 0 and (part.start or 0) >= 0:
        yield _Ordinals(part)
    elif (part.step or 1) > 0 and part.start < 0:
        yield _Window(-part.start)
    else:
        yield _Ordinals(slice(0, None))


_Vote = tuple[bool, Iterable[int]]  # whether the row is wanted, and rows that no longer are


class _Name:
    """A label, module address, the name of an input or output, type, class, or a glob."""

    def __init__(self, text: str) -> None:
        place, units = split_units(text)
        if units:
            raise units_refused(text)
        self.glob = is_pattern(place)
        self.name = name = place if self.glob else Address.parse(place).place
        self.labels = list(_labels(name))
        self.numbered = bool(self.labels)
        self._is_module = False
        self._by_label: list[int] = []

    def offered(self, op: LiveOp, standing: Standing | None) -> _Vote:
        if self._is_module or not self._may_be(op, standing):
            return False, ()
        self._by_label.append(op.row)
        return True, ()

    def _may_be(self, op: LiveOp, standing: Standing | None) -> bool:
        stem = op.type if op.kind_number == OP else OP_KINDS[op.kind_number]
        if self.glob:
            address = op.kind_number == BUFFER and matches(self.name, op.type)
            return address or may_match(self.name, stem)
        if self.name in (op.type, op.end_name):
            return True
        return any(
            stem == name and (standing is None or _fits(standing, of_type, overall, passno))
            for name, of_type, overall, passno in self.labels
        )

    def returned(self, row: int, names: tuple[str, str], class_: str) -> _Vote:
        if self.glob:
            return any(matches(self.name, name) for name in names if name and not name.startswith(":")), ()
        if self.name not in names:
            return class_ == self.name, ()
        dropped, self._by_label, self._is_module = self._by_label, [], True
        return True, dropped  # a module's name goes before a label or type of that name


def _labels(name: str) -> Iterator[tuple[str, int, int | None, int | None]]:
    """What a name may say as a label: type, number of that type, number overall, and pass.

    >>> list(_labels("conv2d_3_7:2"))
    [('conv2d_3', 7, None, 2), ('conv2d', 3, 7, 2)]
    """
    found = re.fullmatch(r"(?P<stem>.+)_(?P<last>\d+)(?::(?P<passno>\d+))?", name, re.DOTALL)
    if found is None:
        return
    passno = int(found["passno"]) if found["passno"] else None
    yield found["stem"], int(found["last"]), None, passno
    stem, _, number = found["stem"].rpartition("_")
    if stem and number.isdecimal():
        yield stem, int(number), int(found["last"]), passno


def _fits(standing: Standing, of_type: int, overall: int | None, passno: int | None) -> bool:
    return (
        _within(standing.of_type, of_type)
        and (overall is None or _within(standing.overall, overall))
        and (passno is None or standing.passno is None or standing.passno == passno)
    )


def _within(bounds: Bounds, number: int) -> bool:
    return bounds[0] <= number <= bounds[1]


class _Ordinals:
    """Operations counted from the first."""

    numbered = True

    def __init__(self, span: slice) -> None:
        stop = None if span.stop is None or span.stop < 0 else span.stop
        self.start, self.stop, self.step = span.start or 0, stop, span.step or 1

    def offered(self, op: LiveOp, standing: Standing | None) -> _Vote:
        if standing is None:
            return False, ()
        low, high = max(standing.ordinal[0], self.start), standing.ordinal[1]
        if self.stop is not None:
            high = min(high, self.stop - 1)
        first = (
            self.start + -(-(low - self.start) // self.step) * self.step
        )  # the first meant from ``low`` on
        return first <= high, ()


class _Window:
    """The last operations, ``most`` of them."""

    numbered = True

    def __init__(self, most: int) -> None:
        self.most = most
        self._rows: deque[tuple[int, bool]] = deque()
        self._sure = 0

    def offered(self, op: LiveOp, standing: Standing | None) -> _Vote:
        if standing is None:
            return False, ()
        self._rows.append((op.row, standing.certain))
        self._sure += standing.certain
        dropped = []
        while self._sure - self._rows[0][1] >= self.most:
            row, sure = self._rows.popleft()
            self._sure -= sure
            dropped.append(row)
        return True, dropped


class _Predicate:
    """A function of an operation's record, asked while the pass runs, and again where it asked too early."""

    numbered = True

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self._yes: list[int] = []
        self._open: list[int] = []

    def offered(self, op: LiveOp, standing: Standing | None) -> _Vote:
        try:
            with torch._C.DisableTorchFunction():
                wanted = bool(self.function(op))
        except NotYetError:
            self._open.append(op.row)
            return True, ()
        if wanted:
            self._yes.append(op.row)
        return wanted, ()

    def rows(self, where: Callable[[int], int], handle: Callable[[int], Any]) -> set[int]:
        """The rows of the finished graph that it chose."""
        chosen = {where(row) for row in self._yes}
        chosen |= {where(row) for row in self._open if where(row) >= 0 and self.function(handle(where(row)))}
        return chosen - {-1}


@cache
def may_match(pattern: str, stem: str) -> bool:
    """Return whether a pattern matches any label of ``stem``: ``conv2d_3``, ``conv2d_3_7:2``.

    Both are regular languages; a walk over pairs of places, one in the pattern and one in the label, finds
    whether they share a word.

    >>> may_match("conv*", "conv2d"), may_match("*attn*", "linear"), may_match("linear_?_*:2", "linear")
    (True, False, True)
    """
    parts = tokens(pattern)
    label = [*stem, "_", "0+", "_?", "0*", ":?", "0*"]
    seen, todo = set[tuple[int, int]](), [(0, 0)]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        p, q = at
        if p == len(parts) and _may_end(label, q):
            return True
        if p == len(parts):
            continue
        many = parts[p] in ("*", "**")
        if many:
            todo.append((p + 1, q))
        for letters, after in _steps(label, q):
            if any(_takes(parts[p], letter) for letter in letters):
                todo.append((p if many else p + 1, after))
    return False


def _takes(token: str, letter: str) -> bool:
    """Return whether a token of a pattern stands for a character."""
    if token in ("*", "?"):
        return letter != "."
    return token == "**" or token[-1] == letter


def _may_end(label: list[str], q: int) -> bool:
    return all(step in ("_?", "0*", ":?") for step in label[q:])


def _steps(label: list[str], q: int) -> list[tuple[str, int]]:
    """The letters that may come next at a place of the label, and the place after each."""
    found = []
    while q < len(label):
        step = label[q]
        if step == "0*":
            found.append(("0123456789", q))
        elif step == "0+":
            found += [("0123456789", q), ("0123456789", q + 1)]
        else:
            found.append((step[0], q + 1))
        if step not in ("_?", "0*", ":?"):
            break
        q += 1
    return found
