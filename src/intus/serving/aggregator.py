"""The aggregator: records in, complete data points out. A state machine without clock, thread or network.

A *window* holds what one (run, model) sent in one epoch, or for one value of the other trigger fields.
It is complete when a newer window opens, or when someone asks for a flush. The last windows are kept after
they were handed on, so that an array that comes late (from the slower of two workers, say) joins the rows
it belongs to, and that data point is handed on again, whole.

A window let go for memory stays as an empty shell that remembers what it held: what comes after is scored
as incomplete, or, where the whole was scored already, refused, for a part must not replace the whole.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..core.errors import InputError
from ..core.record import Record
from .point import DataPoint, Key, Notice, size_of

TRIGGERS = ("epoch", "step", "mode")
#: Windows of one (run, model) that are held, the newest among them.
HELD = 2
#: How many clients, and how many of each one's sequence numbers, are remembered.
CLIENTS, SEQUENCES = 1000, 4096

Group = tuple[str, str]
Mark = tuple[float | int | str | None, ...]

_DROPPED = "the client dropped arrays of this epoch"
_LET_GO = (
    "arrays of this epoch were let go for memory; send fewer layers, steps or rows (which=, when=, rows=)"
)


@dataclass(slots=True)
class _Window:
    """``fresh`` are the data points not handed on yet, or not since they grew; ``handed`` those handed on.

    ``lacks`` says what is missing of the window. Of the data points let go, ``lost`` were never handed on
    and ``closed`` were.
    """

    number: int
    group: Group
    epoch: float | None
    step: int
    points: dict[Key, list[Record]] = field(default_factory=dict)
    fresh: dict[Key, None] = field(default_factory=dict)
    handed: set[Key] = field(default_factory=set)
    lost: set[Key] = field(default_factory=set)
    closed: set[Key] = field(default_factory=set)
    nbytes: int = 0
    lacks: str = ""

    def add(self, record: Record) -> None:
        key = Key.of(record)
        blocks = self.points.setdefault(key, [])
        if record.batch_axis is None:  # a parameter has a state, not samples: the newest stands for it
            self.nbytes -= sum(map(size_of, blocks))
            blocks.clear()
        blocks.append(record)
        self.fresh[key] = None
        self.nbytes += size_of(record)

    def take(self, main_mode: str) -> list[DataPoint]:
        """The data points to hand on; they stay in the window for rows that come late."""
        out = []
        for key in self.fresh:
            kind, blocks = key.shown_kind(main_mode), tuple(self.points[key])
            lacks = self.lacks or (_LET_GO if key in self.lost else "")
            out.append(DataPoint(key, kind, self.epoch, self.step, blocks, lacks))
        self.handed.update(self.fresh)
        self.fresh = {}
        return out

    def let_go(self) -> int:
        """Free the arrays, and return how many of them were never handed on."""
        rows = {key for key, blocks in self.points.items() if blocks[0].batch_axis is not None}
        self.closed |= rows & self.handed
        self.lost |= rows - self.handed
        unscored = sum(len(self.points[key]) for key in self.fresh)
        self.points, self.fresh, self.nbytes = {}, {}, 0
        return unscored


@dataclass(slots=True)
class _Client:
    """Sequence numbers seen: all up to ``floor``, and those in ``above``."""

    floor: int = -1
    above: set[int] = field(default_factory=set)
    dropped: int = 0

    def first_time(self, seq: int) -> bool:
        if seq <= self.floor or seq in self.above:
            return False
        self.above.add(seq)
        if len(self.above) > SEQUENCES:
            self.floor = max(self.floor, max(self.above) - SEQUENCES)
            self.above = {number for number in self.above if number > self.floor}
        return True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request led to: how many records were kept, what became complete, what to tell a person."""

    accepted: int
    duplicate: bool
    ready: list[DataPoint]
    notices: list[Notice]


class Aggregator:
    """Gathers records into windows; not thread-safe, its owner holds a lock.

    ``trigger`` are the fields whose change completes a window: the epoch always, or also "step" or "mode".
    ``max_bytes`` bounds the arrays held: what was handed on is let go first, then the oldest window is
    refused and a notice says so.
    """

    def __init__(self, trigger: Sequence[str] = ("epoch",), max_bytes: int = 1 << 30) -> None:
        unknown = [name for name in trigger if name not in TRIGGERS]
        if unknown or not trigger:
            raise InputError(f"trigger={list(trigger)!r} must name some of {', '.join(TRIGGERS)}.")
        self.trigger, self.max_bytes = tuple(trigger), max_bytes
        self._windows: dict[Group, dict[Mark, _Window]] = {}
        self._main_modes: dict[Group, str] = {}  # the mode that each (run, model) was first seen in
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._opened = 0
        self._counts = {"received": 0, "duplicates": 0, "dropped": 0, "refused": 0, "incomplete": 0}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays held."""
        return sum(window.nbytes for held in self._windows.values() for window in held.values())

    def accept(
        self,
        records: Sequence[Record],
        client: str | None = None,
        seq: int | None = None,
        dropped: int = 0,
        unusable: Sequence[Notice] = (),
    ) -> Outcome:
        """Take one request's records. The same (client, seq) again changes nothing.

        ``dropped`` is how many records that client has dropped since it began; ``unusable`` are the notices
        of those of its records that were refused before they came here.
        """
        sender = self._client(client)
        if sender is not None and seq is not None and not sender.first_time(seq):
            self._counts["duplicates"] += 1
            return Outcome(0, True, [], [])
        ready: list[DataPoint] = []
        notices = list(unusable)
        kept = 0
        lost = max(0, dropped - sender.dropped) if sender is not None else 0
        if lost:  # it is missing from a window that stands, or from one that this request opens
            self._mark_incomplete(records)
        for record in records:
            kept += self._place(record, ready, notices)
        if sender is not None and lost:
            self._mark_incomplete(records)
            sender.dropped = dropped
            notices += [_dropped(*group) for group in {(record.run, record.model) for record in records}]
        self._counts["received"] += kept
        self._counts["dropped"] += lost
        self._counts["refused"] += len(unusable)
        return Outcome(kept, False, ready, list(dict.fromkeys(notices)))

    def flush(self, run: str | None = None, model: str | None = None) -> list[DataPoint]:
        """Everything not handed on yet, of all runs and models or of those named."""
        ready = []
        for window in self._all():
            if run in (None, window.group[0]) and model in (None, window.group[1]):
                ready += self._take(window)
        return ready

    def remove(self, model: str) -> None:
        """Forget what a model sent."""
        for group in [group for group in self._windows if group[1] == model]:
            del self._windows[group], self._main_modes[group]

    def clear(self) -> None:
        """Forget all that was sent; clients' sequence numbers are kept, for requests sent twice."""
        self._windows, self._main_modes = {}, {}
        self._counts = dict.fromkeys(self._counts, 0)

    def status(self) -> dict[str, int]:
        """Counts: records received, duplicates (requests), dropped by clients, refused; data points handed
        on incomplete, and pending; bytes held."""
        pending = sum(len(window.fresh) for window in self._all())
        return self._counts | {"pending": pending, "bytes": self.nbytes}

    # -- windows -------------------------------------------------------------------------------------

    def _all(self) -> list[_Window]:
        """Every window, oldest first."""
        windows = [window for held in self._windows.values() for window in held.values()]
        return sorted(windows, key=lambda window: window.number)

    def _place(self, record: Record, ready: list[DataPoint], notices: list[Notice]) -> bool:
        """Put a record where it belongs, making room; False where there is none."""
        if size_of(record) > self.max_bytes:
            self._counts["refused"] += 1
            notices.append(_too_big(record, self.max_bytes))
            return False
        self._make_room(size_of(record), notices)
        window = self._window(record, ready, notices)
        if Key.of(record) in window.closed:
            self._counts["refused"] += 1
            notices.append(_too_late(record))
            return False
        window.add(record)
        return True

    def _window(self, record: Record, ready: list[DataPoint], notices: list[Notice]) -> _Window:
        """The window a record belongs to; opening a newer one hands the older ones on."""
        group = (record.run, record.model)
        held = self._windows.setdefault(group, {})
        self._main_modes.setdefault(group, record.mode)
        mark = (record.epoch, *(getattr(record, name) for name in self.trigger))
        if mark not in held:
            self._make_way(held, record, ready, notices)
            self._opened += 1
            step = record.step if "step" in self.trigger and record.step is not None else -1
            held[mark] = _Window(self._opened, group, record.epoch, step)
            for old in sorted(held, key=lambda mark: (_rank(held[mark].epoch), held[mark].number))[:-HELD]:
                ready += self._take(held.pop(old))
        return held[mark]

    def _make_way(
        self, held: dict[Mark, _Window], record: Record, ready: list[DataPoint], notices: list[Notice]
    ) -> None:
        """Hand the windows on that end because this record's begins; a late one ends none."""
        older = [_rank(record.epoch) < _rank(window.epoch) for window in held.values()]
        anew = len(held) >= HELD and all(older)  # too old to be late: the training began anew
        if anew or not any(older):
            for window in held.values():
                ready += self._take(window)
        if anew:
            newest = max((window.epoch for window in held.values()), key=_rank)
            notices.append(_restarted(record, newest))
            held.clear()

    def _take(self, window: _Window) -> list[DataPoint]:
        ready = window.take(self._main_modes[window.group])
        self._counts["incomplete"] += sum(not point.complete for point in ready)
        return ready

    def _make_room(self, nbytes: int, notices: list[Notice]) -> None:
        """Let windows go, those handed on before the others, until ``nbytes`` more fit."""
        excess = self.nbytes + nbytes - self.max_bytes
        if excess <= 0:
            return
        for window in sorted(self._all(), key=lambda window: bool(window.fresh)):
            excess -= window.nbytes
            unscored = window.let_go()
            if unscored:
                self._counts["refused"] += unscored
                notices.append(_evicted(window, unscored, self.max_bytes))
            if excess <= 0:
                return

    # -- senders -------------------------------------------------------------------------------------

    def _client(self, name: str | None) -> _Client | None:
        if name is None:
            return None
        self._clients[name] = client = self._clients.pop(name, None) or _Client()
        if len(self._clients) > CLIENTS:
            self._clients.popitem(last=False)
        return client

    def _mark_incomplete(self, records: Iterable[Record]) -> None:
        for group in {(record.run, record.model) for record in records}:
            for window in self._windows.get(group, {}).values():
                window.lacks = _DROPPED


def _rank(epoch: float | None) -> float:
    return -math.inf if epoch is None else epoch


def _dropped(run: str, model: str) -> Notice:
    text = (
        "The probe dropped arrays: its queue was full because the server or the network was slower than the "
        "training. Record fewer layers or steps (which=, when=); the status counts how many were dropped."
    )
    return Notice("dropped", text, "warning", run, model)


def _too_big(record: Record, limit: int) -> Notice:
    text = (
        f"An array of {size_of(record):,} bytes at {record.address!r} was refused: the aggregator holds at "
        f"most {limit:,}. Send fewer rows, or give it more memory (--max-bytes)."
    )
    return Notice("too_big", text, "warning", record.run, record.model)


def _evicted(window: _Window, lost: int, limit: int) -> Notice:
    text = (
        f"{lost} arrays of epoch {window.epoch} were let go unscored: the aggregator holds at most {limit:,} "
        "bytes. Send fewer layers, steps or rows (which=, when=, rows=), or give it more memory "
        "(--max-bytes)."
    )
    return Notice("memory", text, "warning", *window.group)


def _too_late(record: Record) -> Notice:
    text = (
        f"Arrays of epoch {record.epoch} were refused: they came after that epoch was scored and its rows "
        "let go for memory. Its scores stand for the rows before. Give the aggregator more memory "
        "(--max-bytes), and each run its own name."
    )
    return Notice("too_late", text, "warning", record.run, record.model)


def _restarted(record: Record, newest: float | None) -> Notice:
    text = (
        f"Epoch {record.epoch} came after epoch {newest}: taken as a training begun anew under one name. "
        "Give each run its own name to keep them apart."
    )
    return Notice("restarted", text, "info", record.run, record.model)
