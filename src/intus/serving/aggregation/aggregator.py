"""The aggregator: records in, complete data points out. A state machine without clock, thread or network.

A *window* holds what one (run, model) sent in one epoch, or for one value of the other trigger fields.
Clients say how much they sent of an epoch: it ends when all of that has come, or when nothing more came for
a grace time, and is then incomplete. Of clients that do not say, it ends when a newer one opens. The last
windows are held after they ended, so that an array that comes late joins the rows it belongs to, and that
data point is handed on again, whole.

A window let go for memory stays as an empty shell that remembers what it held: what comes after is scored
as incomplete, or, where the whole was scored already, refused, for a part must not replace the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import InputError
from ...core.record import Record
from ..data_point import DataPoint, Key, Notice, size_of
from . import notices as told
from .run_state import COUNTED, ClientState, EpochReport, RunState, groups_of, rank
from .window import RunKey, Window, WindowKey

TRIGGERS = ("epoch", "step", "mode")
GRACE_S = 60.0
#: A window that no newer one follows ends after so many times the grace time without a record.
PATIENCE = 10
#: How many (run, model) are remembered, how many there may be at once, and how many layers and kinds a window
#: may have.
RUNS, MAX_RUNS, KEYS = 1000, 10_000, 50_000


@dataclass(slots=True)
class IngestResult:
    """What a request led to: how many records were kept, what became complete, what to tell a person, and
    the windows that its records are in, by (run, model)."""

    accepted: int = 0
    duplicate: bool = False
    ready: list[DataPoint] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    placed: dict[RunKey, set[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestPart:
    """One (run, model)'s part of a request."""

    state: RunState
    client: str | None
    seq: int
    now: float
    out: IngestResult


class Aggregator:
    """Gathers records into windows; not thread-safe, its owner holds a lock.

    ``trigger`` are the fields whose change completes a window: the epoch always, or also "step" or "mode".
    ``max_bytes`` bounds the arrays held: what was handed on is let go first, then the oldest window is
    refused and a notice says so. ``grace`` is how many seconds an epoch that should be whole is waited for.
    """

    def __init__(
        self, trigger: Sequence[str] = ("epoch",), max_bytes: int = 1 << 30, grace: float = GRACE_S
    ) -> None:
        self.set_trigger(trigger)
        self.max_bytes, self.grace = max_bytes, grace
        self._runs: dict[RunKey, RunState] = {}
        self._handed: dict[int, tuple[RunState, Window, Key]] = {}
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

    # -- requests ------------------------------------------------------------------------------------

    def knows(self, group: RunKey, client: str | None, seq: int | None) -> bool:
        """Whether that request of a client came before, for this (run, model)."""
        state = self._runs.get(group)
        member = state.members.get(client) if state and client is not None else None
        return member is not None and seq is not None and seq in member.seqs

    def accept(
        self,
        records: Sequence[Record],
        client: str | None = None,
        seq: int | None = None,
        dropped: int = 0,
        unusable: Sequence[Notice] = (),
        reports: Sequence[EpochReport] = (),
        discarded: Sequence[Record] = (),
        now: float = 0.0,
    ) -> IngestResult:
        """Take one request's records. The same (client, seq) again changes nothing.

        ``dropped`` is how many records that client has dropped since it began; ``discarded`` are those of its
        records that were refused before they came here, ``unusable`` their notices; ``reports`` is what
        the client says of its epochs; ``now`` the time in seconds.
        """
        out, repeated = IngestResult(notices=list(unusable)), 0
        groups = groups_of(records, reports)
        for group in groups:
            of_group = [record for record in records if (record.run, record.model) == group]
            said = [report for report in reports if report[:2] == group]
            if self.knows(group, client, seq):
                repeated += 1
                continue
            self._accept(group, of_group, said, (client, seq, dropped), now, out)
            for record in discarded:
                if client is not None and (record.run, record.model) == group:
                    self._runs[group].share(record.epoch, client).received += 1
        if groups and repeated == len(groups):
            self._counts["duplicates"] += 1
            return IngestResult(duplicate=True)
        self._counts["refused"] += len(unusable)
        for notice in unusable:
            if state := self._runs.get((notice.run, notice.model)):
                state.counts["refused"] += 1
        out.notices = list(dict.fromkeys(out.notices))
        return out

    def _accept(
        self,
        group: RunKey,
        records: Sequence[Record],
        reports: Sequence[EpochReport],
        sender: tuple[str | None, int | None, int],
        now: float,
        out: IngestResult,
    ) -> None:
        client, seq, dropped = sender
        state = self._training(group, now)
        member = state.member(client, now)
        part = RequestPart(state, client, -1 if seq is None else seq, now, out)
        if records:
            state.main_mode = state.main_mode or records[0].mode
        lost = max(0, dropped - member.dropped) if member and not reports else 0
        if lost:  # it is missing from a window that stands, or from one that this request opens
            self._mark_incomplete(state)
        for record in records:
            accepted = self._place(record, part)
            self._count(state, "received", accepted)
            out.accepted += accepted
            if client is not None:
                state.share(record.epoch, client).received += 1
        if member is None or client is None:
            return
        if lost:
            self._mark_incomplete(state)
            self._count(state, "dropped", lost)
            out.notices.append(told.dropped(group))
        member.dropped = max(member.dropped, dropped)
        self._hear(reports, part, member)
        if seq is not None:
            member.seqs.add(seq)
        out.ready += self._whole(state, now)

    def _hear(self, reports: Sequence[EpochReport], part: RequestPart, member: ClientState) -> None:
        for report in reports:
            share = part.state.share(report.epoch, part.client or "")
            before = share.dropped
            part.state.state_of(report, part.client or "", part.seq)
            if share.dropped > before:
                self._count(part.state, "dropped", share.dropped - before)
                part.out.notices.append(told.dropped(part.state.group))

    def stored(self, point: DataPoint) -> RunKey | None:
        """A data point's scores are stored. Returns its (run, model), None where that is forgotten."""
        if point.serial not in self._handed:
            return None
        state, window, key = self._handed.pop(point.serial)
        if window.awaited.get(key) == point.serial:
            del window.awaited[key]
        return state.group

    def settle(self, group: RunKey) -> list[int]:
        """Numbers of the windows of a (run, model) whose records need no longer be kept on disk."""
        state = self._runs.get(group)
        return state.settle() if state else []

    def late(self, records: Sequence[Record]) -> list[Window]:
        """The windows that are over and that these records would open again."""
        out = {}
        for record in records:
            state = self._runs.get((record.run, record.model))
            window = state.windows.get(self._mark(record)) if state else None
            if window is not None and window.over and window.points and Key.of(record) not in window.scored:
                out[window.number] = window
        return list(out.values())

    # -- time ----------------------------------------------------------------------------------------

    def tick(self, now: float) -> IngestResult:
        """End the windows that nothing came for in the grace time."""
        out = IngestResult()
        for state in self._runs.values():
            newest = max((rank(window.epoch) for window in state.windows.values()), default=0.0)
            for window in state.windows.values():
                silent = now - window.touched
                followed = rank(window.epoch) < newest
                if window.closed or silent <= self.grace * (1 if followed else PATIENCE):
                    continue
                ready = self._take(state, window, close=True)
                out.ready += ready
                if window.lacks and ready:
                    out.notices.append(told.incomplete(window, window.lacks))
            state.trim()
            state.tidy(now, self.grace * PATIENCE)
        return out

    def flush(
        self,
        run: str | None = None,
        model: str | None = None,
        *,
        client: str | None = None,
        close: bool = True,
    ) -> list[DataPoint]:
        """Everything not handed on yet, of all runs and models or of those named; a ``client`` that sends
        records means its own. With ``close`` the windows end, but for those of which clients said that more
        will come."""
        own = [group for group, state in self._runs.items() if client in state.members]
        ready = []
        for window in self._all():
            state = self._runs[window.group]
            foreign = own and window.group not in own and state.counts_on(window.epoch)
            if run in (None, window.group[0]) and model in (None, window.group[1]) and not foreign:
                ends = close and not self._more_to_come(state, window)
                ready += self._take(state, window, close=ends)
        return ready

    def _more_to_come(self, state: RunState, window: Window) -> bool:
        shares = state.shares.get(window.epoch, {}).items()
        return any(
            share.seq >= 0 and not share.ended and not state.members[client].left
            for client, share in shares
            if client in state.members
        )

    # -- forgetting, and what others should know -----------------------------------------------------

    def remove(self, model: str) -> list[RunKey]:
        """Forget what a model sent; returns each (run, model) forgotten."""
        gone = [group for group in self._runs if group[1] == model]
        for group in gone:
            del self._runs[group]
        return gone

    def clear(self) -> None:
        """Forget all that was sent; clients' sequence numbers are kept, for requests sent twice."""
        for group, old in self._runs.items():
            self._runs[group] = RunState(group, old.began, self.trigger, members=old.members)
        self._handed = {}
        self._counts = Counter(dict.fromkeys(self._counts, 0))

    def forget(self) -> list[RunKey]:
        """Forget those (run, model) that were silent for longest, of more than can be remembered; returns
        them."""
        idle = [group for group, state in self._runs.items() if state.idle]
        gone = idle[: max(0, len(self._runs) - RUNS)]
        for group in gone:
            del self._runs[group]
        return gone

    def groups(self) -> list[RunKey]:
        """Every (run, model) known."""
        return list(self._runs)

    def check_group(self, group: RunKey) -> None:
        """Raise InputError for a new (run, model) where there are too many."""
        if group not in self._runs and len(self._runs) >= MAX_RUNS:
            raise InputError(
                f"Run {group[0]!r} of {group[1]!r} is refused: {MAX_RUNS:,} runs have sent records in "
                "the last minutes, and that is the most."
            )

    def status(self) -> dict[str, int]:
        """Counts: records received, duplicates (requests), dropped by clients, refused, late; data points
        handed on incomplete, and pending; bytes held."""
        pending = sum(len(window.fresh) for window in self._all())
        return dict(self._counts) | {"pending": pending, "bytes": self.nbytes}

    def by_run(self) -> list[dict[str, Any]]:
        """The counts of each (run, model) for itself, of the newest of them."""
        newest = list(self._runs.values())[-COUNTED:]
        return [
            dict(zip(("run", "model"), state.group, strict=True)) | state.counts
            | {"pending": sum(len(window.fresh) for window in state.windows.values())}
            for state in newest
        ]  # fmt: skip

    # -- back from the journal -----------------------------------------------------------------------

    def state(self, group: RunKey, now: float) -> dict[str, Any]:
        """All that is known of a (run, model) but its arrays, as JSON."""
        return self._training(group, now).state()

    def opens(self, records: Sequence[Record]) -> bool:
        """Whether some of the records begin a window."""
        for record in records:
            state = self._runs.get((record.run, record.model))
            if state is None or self._mark(record) not in state.windows:
                return True
        return False

    def held(self, group: RunKey) -> set[int]:
        """Numbers of the windows of a (run, model) that have something to keep."""
        state = self._training(group, 0.0)
        windows = [*state.windows.values(), *state.leaving.values()]
        return {window.number for window in windows if window.points}

    def restore(self, group: RunKey, state: Mapping[str, Any]) -> None:
        """Be as ``state`` says."""

        def window(facts: Mapping[str, Any]) -> Window:
            self._opened += 1
            return Window(self._opened, group, tuple(facts["mark"]), facts["epoch"], facts["step"])

        self._training(group, 0.0).restore(state, window)

    def again(self, records: Sequence[Record]) -> set[int]:
        """Hold these records, and no others, in their windows, which were over; returns the numbers."""
        found: dict[int, tuple[Window, list[Record]]] = {}
        for record in records:
            window = self._training((record.run, record.model), 0.0).windows.get(self._mark(record))
            if window is not None:
                found.setdefault(window.number, (window, []))[1].append(record)
        for window, held in found.values():
            window.again(held)
            self._at_most += window.nbytes
        return set(found)

    def resume(self, now: float) -> list[DataPoint]:
        """Once all is back: what ended and has no scores yet."""
        ready = []
        self._handed = {}
        self._counts = Counter(dict.fromkeys(self._counts, 0))
        for state in self._runs.values():
            state.counts.clear()
            for member in state.members.values():
                member.heard = now
            for window in state.windows.values():
                window.touched = now
            for window in state.reopen():
                ready += self._take(state, window, close=True)
        return ready

    # -- records into windows, and windows that end --------------------------------------------------

    def _all(self) -> list[Window]:
        """Every window, oldest first."""
        windows = [window for state in self._runs.values() for window in state.windows.values()]
        return sorted(windows, key=lambda window: window.number)

    def _training(self, group: RunKey, now: float) -> RunState:
        if group not in self._runs:
            self._runs[group] = RunState(group, now, self.trigger)
        return self._runs[group]

    def _mark(self, record: Record) -> WindowKey:
        state = self._runs.get((record.run, record.model))
        trigger = self.trigger if state is None else state.trigger
        return (record.epoch, *(getattr(record, name) for name in trigger))

    def _place(self, record: Record, part: RequestPart) -> bool:
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
            self._count(part.state, "refused")
            part.out.notices += [complaint] if complaint else []
            return False
        self._count(part.state, "late", bool(window.handed))
        window.add(record)
        window.touched = part.now
        part.out.placed.setdefault(part.state.group, set()).add(window.number)
        return True

    def _window(self, record: Record, part: RequestPart) -> Window | None:
        """The window a record belongs to, None where that is held no more; opening a newer one hands those
        on that nobody counts."""
        state = part.state
        if self._mark(record) not in state.windows:
            self._make_way(record, part)
            mark = self._mark(record)
            if mark in state.finished:
                return None
            self._opened += 1
            step = record.step if "step" in state.trigger and record.step is not None else -1
            state.windows[mark] = Window(self._opened, state.group, mark, record.epoch, step)
            state.trim()
        return state.windows[self._mark(record)]

    def _make_way(self, record: Record, part: RequestPart) -> None:
        """Hand the windows on that end because this record's begins; a late one ends none."""
        state, ready = part.state, part.out.ready
        anew = state.begins_anew(record, part.client, part.seq, part.now)
        older = any(rank(record.epoch) < rank(window.epoch) for window in state.windows.values())
        for window in state.windows.values():
            counted = window.epoch != record.epoch and state.counts_on(window.epoch)
            if anew or not (older or counted):
                same = window.epoch == record.epoch  # it is a step that ended, or a mode
                ready += self._take(state, window, close=True, on_its_way=same)
        if anew:
            newest = max((window.epoch for window in state.windows.values()), key=rank)
            part.out.notices.append(told.restarted(record, newest))
            state.begin_anew(part.client, self.trigger)

    def _whole(self, state: RunState, now: float) -> list[DataPoint]:
        """What ended because all that was sent of it has come."""
        ready = []
        for window in state.windows.values():
            due = window.fresh or not window.closed
            if due and state.counts_on(window.epoch) and state.is_whole(window.epoch, now, self.grace):
                ready += self._take(state, window, close=True)
        state.trim()
        return ready

    def _take(
        self, state: RunState, window: Window, *, close: bool, on_its_way: bool = False
    ) -> list[DataPoint]:
        ready = state.take(window, close=close, on_its_way=on_its_way)
        self._count(state, "incomplete", sum(not point.complete for point in ready))
        self._handed |= {point.serial: (state, window, point.key) for point in ready}
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
                self._count(self._runs[window.group], "refused", unscored)
                notices.append(told.evicted(window, unscored, self.max_bytes))
            if excess <= 0:
                return

    def _count(self, state: RunState, name: str, number: int = 1) -> None:
        self._counts[name] += number
        state.counts[name] += number

    def _mark_incomplete(self, state: RunState) -> None:
        for window in state.windows.values():
            window.lacks = told.DROPPED


__all__ = ["GRACE_S", "Aggregator", "IngestResult"]
