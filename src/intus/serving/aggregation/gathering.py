"""The inner half of the aggregator: records into windows, and windows that end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...core.errors import InputError
from ...core.record import Record
from ..data_point import DataPoint, Key, Notice, size_of
from . import notices as told
from .run_state import Training, rank
from .window import Group, Mark, Window

TRIGGERS = ("epoch", "step", "mode")
GRACE_S = 60.0
#: A window that no newer one follows ends after so many times the grace time without a record.
PATIENCE = 10
#: How many (run, model) are remembered, how many there may be at once, and how many layers and kinds a window
#: may have.
TRAININGS, MOST_TRAININGS, KEYS = 1000, 10_000, 50_000


@dataclass(slots=True)
class Outcome:
    """What a request led to: how many records were kept, what became complete, what to tell a person, and
    the windows that its records are in, by (run, model)."""

    accepted: int = 0
    duplicate: bool = False
    ready: list[DataPoint] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    placed: dict[Group, set[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """One (run, model)'s part of a request."""

    training: Training
    client: str | None
    seq: int
    now: float
    out: Outcome


class Gathering:
    """All windows, and what becomes of a record that joins them."""

    def __init__(
        self, trigger: Sequence[str] = ("epoch",), max_bytes: int = 1 << 30, grace: float = GRACE_S
    ) -> None:
        self.set_trigger(trigger)
        self.max_bytes, self.grace = max_bytes, grace
        self._trainings: dict[Group, Training] = {}
        self._handed: dict[int, tuple[Training, Window, Key]] = {}
        self._opened = 0
        self._at_most = 0  # bytes held are no more than this, which is quicker to know than how many they are
        self._counts = Counter(received=0, duplicates=0, dropped=0, refused=0, incomplete=0, late=0)

    def set_trigger(self, trigger: Sequence[str]) -> None:
        """Let these fields, and the epoch, complete the windows of whatever begins from now on; raises
        InputError. "state" is what Vivisect called the mode."""
        names = ["mode" if name == "state" else name for name in trigger]
        if not names or not set(names) <= set(TRIGGERS):
            raise InputError(f"trigger={list(trigger)!r} must name some of {', '.join(TRIGGERS)}.")
        self.trigger = tuple(names)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays held."""
        return sum(window.nbytes for window in self._all())

    def _all(self) -> list[Window]:
        """Every window, oldest first."""
        windows = [window for training in self._trainings.values() for window in training.windows.values()]
        return sorted(windows, key=lambda window: window.number)

    def _training(self, group: Group, now: float) -> Training:
        if group not in self._trainings:
            self._trainings[group] = Training(group, now, self.trigger)
        return self._trainings[group]

    def _mark(self, record: Record) -> Mark:
        training = self._trainings.get((record.run, record.model))
        trigger = self.trigger if training is None else training.trigger
        return (record.epoch, *(getattr(record, name) for name in trigger))

    def _place(self, record: Record, part: Part) -> bool:
        """Put a record where it belongs, making room; False where there is none."""
        complaint = None
        if size_of(record) > self.max_bytes:
            complaint = told.too_big(record, self.max_bytes)
        else:
            self._make_room(size_of(record), part.out.notices)
            window = self._window(record, part)
            key = Key.of(record)
            if window is None or key in window.scored:
                complaint = told.too_late(record)
            elif key not in window.points and len(window.points) >= KEYS:
                complaint = told.too_many(record, KEYS)
        if complaint is not None or window is None:
            self._count(part.training, "refused")
            part.out.notices += [complaint] if complaint else []
            return False
        self._count(part.training, "late", bool(window.handed))
        window.add(record)
        window.touched = part.now
        part.out.placed.setdefault(part.training.group, set()).add(window.number)
        return True

    def _window(self, record: Record, part: Part) -> Window | None:
        """The window a record belongs to, None where that is held no more; opening a newer one hands those
        on that nobody counts."""
        training = part.training
        if self._mark(record) not in training.windows:
            self._make_way(record, part)
            mark = self._mark(record)
            if mark in training.finished:
                return None
            self._opened += 1
            step = record.step if "step" in training.trigger and record.step is not None else -1
            training.windows[mark] = Window(self._opened, training.group, mark, record.epoch, step)
            training.trim()
        return training.windows[self._mark(record)]

    def _make_way(self, record: Record, part: Part) -> None:
        """Hand the windows on that end because this record's begins; a late one ends none."""
        training, ready = part.training, part.out.ready
        anew = training.begins_anew(record, part.client, part.seq, part.now)
        older = any(rank(record.epoch) < rank(window.epoch) for window in training.windows.values())
        for window in training.windows.values():
            counted = window.epoch != record.epoch and training.counts_on(window.epoch)
            if anew or not (older or counted):
                same = window.epoch == record.epoch  # it is a step that ended, or a mode
                ready += self._take(training, window, close=True, on_its_way=same)
        if anew:
            newest = max((window.epoch for window in training.windows.values()), key=rank)
            part.out.notices.append(told.restarted(record, newest))
            training.begin_anew(part.client, self.trigger)

    def _whole(self, training: Training, now: float) -> list[DataPoint]:
        """What ended because all that was sent of it has come."""
        ready = []
        for window in training.windows.values():
            due = window.fresh or not window.closed
            if due and training.counts_on(window.epoch) and training.is_whole(window.epoch, now, self.grace):
                ready += self._take(training, window, close=True)
        training.trim()
        return ready

    def _take(
        self, training: Training, window: Window, *, close: bool, on_its_way: bool = False
    ) -> list[DataPoint]:
        ready = training.take(window, close=close, on_its_way=on_its_way)
        self._count(training, "incomplete", sum(not point.complete for point in ready))
        self._handed |= {point.serial: (training, window, point.key) for point in ready}
        return ready

    def _make_room(self, nbytes: int, notices: list[Notice]) -> None:
        """Let windows go, those handed on before the others, until ``nbytes`` more fit."""
        self._at_most += nbytes
        if self._at_most <= self.max_bytes:
            return
        excess = self.nbytes + nbytes - self.max_bytes
        self._at_most = self.max_bytes + min(excess, 0)
        if excess <= 0:
            return
        for window in sorted(self._all(), key=lambda window: bool(window.fresh)):
            excess -= window.nbytes
            unscored = window.let_go()
            if unscored:
                self._count(self._trainings[window.group], "refused", unscored)
                notices.append(told.evicted(window, unscored, self.max_bytes))
            if excess <= 0:
                return

    def _count(self, training: Training, name: str, number: int = 1) -> None:
        self._counts[name] += number
        training.counts[name] += number

    def _mark_incomplete(self, training: Training) -> None:
        for window in training.windows.values():
            window.lacks = told.DROPPED
