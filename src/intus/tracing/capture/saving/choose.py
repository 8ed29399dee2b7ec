"""Decide during the pass which activations are saved, so that others are not kept in memory.

Each part of a selection votes on each tensor. It may vote for a tensor that turns out not to be selected, but
never against one that is. When the pass is over the selection is resolved exactly on the graph, and values
that were kept unnecessarily are discarded. ``docs/values.md`` lists how early each kind of selection is
exact.
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
from ....core.graph import OP, OP_KINDS, Graph
from ....core.selection import Selection, select, units_refused
from ..recording import CALL, Recording
from .live import LiveOp, NotYetError
from .progress import Bounds, OpBounds, Progress


class Chooser:
    """Applies a selection to the tensors of one pass as they are computed.

    ``wants_tensor`` and ``wants_module_output`` decide whether to keep a tensor, and ``rows`` finds the rows
    of the finished graph that are selected.

    Args:
        selection: The selection.
        all_passes: Whether to raise for an address with a pass that did not happen (``"cell:3"``). Otherwise
            it is added to ``missing``.

    Attributes:
        everything: Whether the selection contains ``"all"``.
        by_module: Whether ``wants_module_output`` must be called.
        dropped: Offsets of tensors that no longer need to be kept. The caller empties it after each decision.
        missing: The addresses whose pass did not happen.
    """

    def __init__(self, selection: Selection, *, all_passes: bool = True) -> None:
        self._all_passes = all_passes
        self.missing: set[str] = set()
        parts = parts_of(selection)
        self.everything = "all" in [part for part in parts if isinstance(part, str)]
        self._exact = [part for part in parts if not callable(part)]
        self._predicates = [_Predicate(part) for part in parts if callable(part)]
        self._voters: list[_Name | _Ordinals | _Window | _Predicate] = [
            *(voter for part in self._exact for voter in _voters(part)),
            *self._predicates,
        ]
        self.by_module = not self.everything and any(isinstance(voter, _Name) for voter in self._voters)
        self._needs_bounds = any(voter.needs_bounds for voter in self._voters)
        self._votes: dict[int, int] = {}  # by offset: how many voters want the tensor
        self._passes: dict[int, list[int]] = {}  # by module: its calls so far
        self._calls = 0  # how many calls are in ``_passes``
        self.dropped: list[int] = []

    def begin(self, recording: Recording) -> None:
        """Begin a pass that ``recording`` records."""
        self._recording = recording
        self._progress = Progress(recording)

    def wants_tensor(self, offset: int, kind: int, type_: str, t: Tensor) -> bool:
        """Return whether to keep the tensor of a new row.

        Args:
            offset: The offset of the row.
            kind: Index into ``OP_KINDS``.
            type_: The name of the row's type.
            t: The tensor.
        """
        if self.everything:
            return True
        bounds = self._progress.advance() if self._needs_bounds else None
        op = LiveOp(self._recording, self._progress, offset, kind, type_, t)
        votes = 0
        for voter in self._voters:
            wanted, dropped = voter.vote(op, bounds)
            votes += wanted
            for other in dropped:
                self._release(other)
        if votes:
            self._votes[offset] = votes
        return offset in self._votes  # a window of size 0 has dropped it already

    def wants_module_output(self, offset: int, call: int) -> bool:
        """Return whether to keep a tensor that a module call returns.

        Args:
            offset: The producer of the tensor.
            call: The number of the call.
        """
        module, passno = self._module(call)
        addresses, wanted = self._recording.addresses, False
        address = addresses.names[module]
        names, class_ = (address, f"{address}:{passno}"), type(addresses.modules[module]).__name__
        for voter in self._voters:
            if isinstance(voter, _Name):
                matched, dropped = voter.vote_module_output(names, class_)
                if matched:
                    wanted, self._votes[offset] = True, self._votes.get(offset, 0) + 1
                for other in dropped:
                    self._release(other)
        return wanted

    def rows(self, graph: Graph, graph_row: Callable[[int], int], handle: Callable[[int], Any]) -> set[int]:
        """Return the rows of the finished graph that are selected.

        Args:
            graph: The graph.
            graph_row: Returns the row in the graph of an offset, -1 if it has none.
            handle: Makes the ``Op`` of a row of the graph, to be passed to predicates.
        """
        chosen = {row for part in self._exact for row in self._select(graph, part)}
        for predicate in self._predicates:
            chosen |= predicate.rows(graph_row, handle)
        return chosen

    def _select(self, graph: Graph, part: Any) -> list[int]:
        try:
            return select(graph, part)
        except AddressError:
            if self._all_passes or not isinstance(part, str) or graph.rows(part.rpartition(":")[0]) is None:
                raise
            self.missing.add(part)
            return []

    def _release(self, offset: int) -> None:
        """Withdraw one vote for a tensor."""
        votes = self._votes.get(offset, 1) - 1
        if votes > 0:
            self._votes[offset] = votes
        else:
            self._votes.pop(offset, None)
            self.dropped.append(offset)

    def _module(self, call: int) -> tuple[int, int]:
        """Return the number of a call's module, and which call of the module it is, from 1."""
        calls, width = self._recording.calls, len(CALL)
        for number in range(self._calls, len(calls) // width):
            self._passes.setdefault(calls[number * width], []).append(number)
        self._calls = len(calls) // width
        module = calls[call * width]
        return module, self._passes[module].index(call) + 1


def parts_of(selection: Selection) -> list[Any]:
    """Return the parts of a selection as one flat list, without ``"none"``.

    Raises:
        InputError: If a part is not a name, an ordinal, a slice or a predicate.
    """
    return list(_flat(selection))


def _flat(selection: Selection) -> Iterator[Any]:
    class_ = selection if isinstance(selection, type) else type(selection)
    if issubclass(class_, Module):
        raise InputError(
            f"A selection must name modules by strings, got {class_.__name__}. Write {class_.__name__!r} for "
            "all modules of that class, or an address from model.named_modules()."
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
            "A selection must be a name, an ordinal, a slice, a predicate or a list of these, got "
            f"{selection!r} of type {type(selection).__name__}."
        )


def _voters(part: Any) -> Iterator[_Name | _Ordinals | _Window]:
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


#: Whether a tensor is wanted, and the offsets of tensors that no longer are.
_Vote = tuple[bool, Iterable[int]]


class _Name:
    """Votes for a label, module address, name of an input or output, type, module class or glob."""

    def __init__(self, text: str) -> None:
        place, units = split_units(text)
        if units:
            raise units_refused(text)
        self.glob = is_pattern(place)
        self.name = name = place if self.glob else Address.parse(place).place
        self.labels = list(_labels(name))
        self.needs_bounds = bool(self.labels)
        self._is_module = False
        self._by_label: list[int] = []

    def vote(self, op: LiveOp, bounds: OpBounds | None) -> _Vote:
        if self._is_module or not self._may_match(op, bounds):
            return False, ()
        self._by_label.append(op.offset)
        return True, ()

    def _may_match(self, op: LiveOp, bounds: OpBounds | None) -> bool:
        stem = op.type if op.kind_number == OP else OP_KINDS[op.kind_number]
        if self.glob:
            address = op.buffer_address is not None and matches(self.name, op.buffer_address)
            return address or may_match(self.name, stem)
        if self.name in (op.type, op.buffer_address, op.end_name):
            return True
        return any(
            stem == name and (bounds is None or _fits(bounds, of_type, overall, passno))
            for name, of_type, overall, passno in self.labels
        )

    def vote_module_output(self, names: tuple[str, str], class_: str) -> _Vote:
        if self.glob:
            return any(matches(self.name, name) for name in names if name and not name.startswith(":")), ()
        if self.name not in names:
            return class_ == self.name, ()
        dropped, self._by_label, self._is_module = self._by_label, [], True
        return True, dropped  # a module address takes precedence over a label or type of that name


def _labels(name: str) -> Iterator[tuple[str, int, int | None, int | None]]:
    """Yield the readings of a name as a label: type, number of that type, number overall, and pass.

    Example:
        >>> list(_labels("conv2d_3_7:2"))
        [('conv2d_3', 7, None, 2), ('conv2d', 3, 7, 2)]
    """
    match = re.fullmatch(r"(?P<stem>.+)_(?P<last>\d+)(?::(?P<passno>\d+))?", name, re.DOTALL)
    if match is None:
        return
    passno = int(match["passno"]) if match["passno"] else None
    yield match["stem"], int(match["last"]), None, passno
    stem, _, number = match["stem"].rpartition("_")
    if stem and number.isdecimal():
        yield stem, int(number), int(match["last"]), passno


def _fits(bounds: OpBounds, of_type: int, overall: int | None, passno: int | None) -> bool:
    return (
        _within(bounds.of_type, of_type)
        and (overall is None or _within(bounds.overall, overall))
        and (passno is None or bounds.passno is None or bounds.passno == passno)
    )


def _within(bounds: Bounds, number: int) -> bool:
    return bounds[0] <= number <= bounds[1]


class _Ordinals:
    """Votes for operations by ordinal, counted from the first."""

    needs_bounds = True

    def __init__(self, span: slice) -> None:
        stop = None if span.stop is None or span.stop < 0 else span.stop
        self.start, self.stop, self.step = span.start or 0, stop, span.step or 1

    def vote(self, op: LiveOp, bounds: OpBounds | None) -> _Vote:
        if bounds is None:
            return False, ()
        low, high = max(bounds.ordinal[0], self.start), bounds.ordinal[1]
        if self.stop is not None:
            high = min(high, self.stop - 1)
        first = (
            self.start + -(-(low - self.start) // self.step) * self.step
        )  # the first selected from ``low``
        return first <= high, ()


class _Window:
    """Votes for the last ``size`` operations."""

    needs_bounds = True

    def __init__(self, size: int) -> None:
        self.size = size
        self._ops: deque[tuple[int, bool]] = (
            deque()
        )  # offsets, and whether the op is certain to be in the graph
        self._certain = 0

    def vote(self, op: LiveOp, bounds: OpBounds | None) -> _Vote:
        if bounds is None:
            return False, ()
        self._ops.append((op.offset, bounds.certain))
        self._certain += bounds.certain
        dropped = []
        while self._certain - self._ops[0][1] >= self.size:
            offset, certain = self._ops.popleft()
            self._certain -= certain
            dropped.append(offset)
        return True, dropped


class _Predicate:
    """Votes as a function of the op decides.

    The function is called during the pass. If it needs facts that are not known yet, it is called again when
    the pass is over.
    """

    needs_bounds = True

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self._chosen: list[int] = []
        self._undecided: list[int] = []

    def vote(self, op: LiveOp, bounds: OpBounds | None) -> _Vote:
        try:
            with torch._C.DisableTorchFunction():
                wanted = bool(self.function(op))
        except NotYetError:
            self._undecided.append(op.offset)
            return True, ()
        if wanted:
            self._chosen.append(op.offset)
        return wanted, ()

    def rows(self, graph_row: Callable[[int], int], handle: Callable[[int], Any]) -> set[int]:
        """Return the rows of the finished graph that the function chooses; see ``Chooser.rows``."""
        chosen = {graph_row(offset) for offset in self._chosen}
        undecided = [row for row in map(graph_row, self._undecided) if row >= 0]
        chosen |= {row for row in undecided if self.function(handle(row))}
        return chosen - {-1}


@cache
def may_match(pattern: str, stem: str) -> bool:
    """Return whether a glob matches any label of operations of type ``stem``: ``conv2d_3``, ``conv2d_3_7:2``.

    The glob and the labels are both regular languages. A search over pairs of a position in the glob and a
    position in the label finds out whether they have a word in common.

    Args:
        pattern: The glob.
        stem: The type.

    Example:
        >>> may_match("conv*", "conv2d"), may_match("*attn*", "linear"), may_match("linear_?_*:2", "linear")
        (True, False, True)
    """
    parts = tokens(pattern)
    nothing = [token for token in parts if token != "**."]
    dotted = [part for token in parts for part in (("**", ".") if token == "**." else (token,))]
    return _may_match(nothing, stem) or (dotted != nothing and _may_match(dotted, stem))


def _may_match(parts: list[str], stem: str) -> bool:
    label = [*stem, "_", "0+", "_?", "0*", ":?", "0*"]
    visited, todo = set[tuple[int, int]](), [(0, 0)]
    while todo:
        pair = todo.pop()
        if pair in visited:
            continue
        visited.add(pair)
        p, q = pair
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
    """Return whether a token of a glob matches a character."""
    if token in ("*", "?"):
        return letter != "."
    return token == "**" or token[-1] == letter


def _may_end(label: list[str], q: int) -> bool:
    return all(step in ("_?", "0*", ":?") for step in label[q:])


def _steps(label: list[str], q: int) -> list[tuple[str, int]]:
    """Return the characters that may come next at a position of the label, with the position after them."""
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
