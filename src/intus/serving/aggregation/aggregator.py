"""The aggregator groups records into complete data points. A state machine without clock, thread or network.

A *window* contains the records that one (run, model) sent in one epoch, or for one value of the other trigger
fields. Clients report how many records they sent in an epoch. The epoch ends when all of them have arrived,
or when none arrived for a grace time; then it is incomplete. If clients do not report, it ends when a newer
window opens. The last windows stay in memory after they ended, so that a late record joins its data point,
which is then passed on again.

If memory is short, a window's arrays are evicted, but the window remembers which data points it had. A later
record of one that was not passed on gives an incomplete data point. A later record of one that was passed on
is refused, since a part must not replace the whole. If the window was open, the data point is passed on once
more before, as incomplete.

What bounded memory forgets is never taken for new: of finished windows a bound is kept, of request numbers
too, and clients are not forgotten.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import InputError
from ...core.record import Record
from ..data_point import DataPoint, Key, size_of
from ..messages import COUNTED_RUNS, DoubtRequest, EpochReport, EpochWait, Notice
from ..options import TRIGGERS, ServerOptions
from . import notices
from .run_state import LIVELY_S, MOST_CLIENTS, RunState, rank, run_keys_of
from .window import RunKey, Window, WindowKey

#: Number of grace times without a record after which the newest window of a run ends.
PATIENCE = 10
#: Most seconds without a request until the status says that an epoch waits for a client.
SILENCE_S = 30.0
#: Most (run, model) pairs that are kept when idle; most pairs at once; most layers and kinds of a window.
RUNS, MAX_RUNS, KEYS = 1000, 10_000, 50_000


@dataclass(slots=True)
class IngestResult:
    """The result of a request.

    Attributes:
        accepted: Number of accepted records.
        duplicate: Whether the request was received before.
        ready: Data points to pass on.
        notices: Notices to store.
        placed: Numbers of the windows that got records, by (run, model).
        given_up: Every (run, model) with records of which it is given up that they arrive.
    """

    accepted: int = 0
    duplicate: bool = False
    ready: list[DataPoint] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    placed: dict[RunKey, set[int]] = field(default_factory=dict)
    given_up: list[RunKey] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RequestPart:
    """The part of a request that belongs to one (run, model)."""

    run: RunState
    client_id: str | None
    seq: int
    now: float
    out: IngestResult


class Aggregator:
    """Groups records into windows. Not thread-safe: the caller must hold a lock.

    Args:
        trigger: The fields whose change ends a window: the epoch always, also "step" or "mode" if named.
        max_bytes: Most bytes of arrays in memory. Windows that were passed on are evicted first, then the
            oldest ones, with a notice.
        grace: Seconds to wait for the missing records of an epoch.

    Attributes:
        replaying: Whether the journal is read. Then twice as many bytes may be in memory: what was in the
            evaluator's queue is in the windows.
    """

    def __init__(
        self,
        trigger: Sequence[str] = (ServerOptions.trigger,),
        max_bytes: int = ServerOptions.max_bytes,
        grace: float = ServerOptions.grace,
    ) -> None:
        self.set_trigger(trigger)
        self.max_bytes, self.grace, self.replaying = max_bytes, grace, False
        self._runs: dict[RunKey, RunState] = {}
        self._handed: dict[int, tuple[RunState, Window, Key, int, float]] = {}
        self._news: list[Notice] = []  # raised outside of a request
        self._opened = 0
        self._runs_of: dict[str, dict[RunKey, None]] = {}  # of each client, as far as known
        self._refused = -math.inf  # when a request was refused, of which the client is not known
        self._at_most = 0  # an upper bound of the bytes in memory, which is cheaper than their sum
        self._counts = Counter(received=0, duplicates=0, dropped=0, refused=0, lost=0, incomplete=0, late=0)

    def set_trigger(self, trigger: Sequence[str]) -> None:
        """Set the fields whose change ends a window, for runs that begin from now on; raises InputError.

        Vivisect's name for the mode, "state", is accepted too.
        """
        names = ["mode" if name == "state" else name for name in trigger]
        if not names or not set(names) <= set(TRIGGERS):
            raise InputError(
                f"The trigger fields must be some of {', '.join(TRIGGERS)}, got {list(trigger)!r}."
            )
        self.trigger = tuple(names)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in memory."""
        return sum(window.nbytes for window in self._windows())

    # -- requests ------------------------------------------------------------------------------------

    def knows(self, run_key: RunKey, client_id: str | None, seq: int | None) -> bool:
        """Return whether this (run, model) received that request of a client before, or may have."""
        run = self._runs.get(run_key)
        client = run.clients.get(client_id) if run and client_id is not None else None
        return client is not None and seq is not None and seq in client.seqs

    def accept(
        self,
        records: Sequence[Record],
        client_id: str | None = None,
        seq: int | None = None,
        dropped: int = 0,
        unusable: Sequence[Notice] = (),
        reports: Sequence[EpochReport] = (),
        discarded: Sequence[Record] = (),
        now: float = 0.0,
    ) -> IngestResult:
        """Add the records of a request. A repeated (client_id, seq) has no effect.

        Args:
            records: The valid records.
            client_id: The client, if it has an id.
            seq: The number of the client's request.
            dropped: Number of records that the client has dropped since it began.
            unusable: Notices about the invalid records of the request.
            reports: The client's reports of its epochs.
            discarded: The invalid records.
            now: The time in seconds.
        """
        out, repeated, doubted = IngestResult(notices=list(unusable)), 0, 0
        run_keys = run_keys_of(records, reports)
        for run_key in run_keys:
            own_records = [record for record in records if (record.run, record.model) == run_key]
            own_reports = [report for report in reports if report.run_key == run_key]
            if self.knows(run_key, client_id, seq):
                repeated += 1
                if seq is not None and client_id is not None:
                    doubted += self._doubt_request(run_key, client_id, seq, len(own_records), out)
                continue
            self._accept_part(run_key, own_records, own_reports, (client_id, seq, dropped), now, out)
            for record in discarded:
                if (record.run, record.model) == run_key:
                    self._runs[run_key].arrived(record.epoch, client_id)
        if run_keys and repeated == len(run_keys):
            self._counts["duplicates"] += not doubted
            return IngestResult(duplicate=not doubted, notices=out.notices[len(unusable) :])
        if client_id is not None and seq is not None and not self.replaying:
            self._pass_over(client_id, seq, run_keys)
        self._counts["refused"] += len(unusable)
        for notice in unusable:
            if run := self._runs.get((notice.run, notice.model)):
                run.counts["refused"] += 1
        out.notices = list(dict.fromkeys([*out.notices, *self.take_notices()]))
        return out

    def _doubt_request(
        self, run_key: RunKey, client_id: str, seq: int, number: int, out: IngestResult
    ) -> bool:
        """Return whether it is not known any more if a request was received before, with a notice if so.

        Its records stay uncounted: if they never came before, they remain among those that are missing.
        """
        if seq > self._runs[run_key].clients[client_id].seqs.unsure:
            return False
        if number:
            out.notices.append(notices.doubted(run_key))
        return True

    def _pass_over(self, client_id: str, seq: int, run_keys: Sequence[RunKey]) -> None:
        """Note in the client's other runs that this request has nothing of them, which leaves no gaps there.

        Not while the journal is read, whose frames have one run's part of a request.
        """
        known = self._runs_of[client_id] = self._runs_of.pop(client_id, {}) | dict.fromkeys(run_keys)
        if len(self._runs_of) > MOST_CLIENTS:
            del self._runs_of[next(iter(self._runs_of))]  # what it sends next leaves gaps
        for run_key in known.keys() - set(run_keys) if len(known) > 1 else ():
            run = self._runs.get(run_key)
            if run is not None and client_id in run.clients:
                run.clients[client_id].seqs.add(seq)

    def began(self, doubt: DoubtRequest) -> tuple[bool, float | None]:
        """Return whether a doubt is of the present training, and when that began; None if it is not known.

        Without a trace of the run, which a server without its journal has not, it is of the newest.
        """
        run = self._runs.get((doubt.run, doubt.model))
        if run is None:
            return True, None
        client = run.clients.get(doubt.client or "")
        is_present = client is None or (client.training == doubt.training and run.has(client))
        return is_present, run.attempt_began

    def take_notices(self) -> list[Notice]:
        """Return the notices since the last call, for ``flush`` and ``resume``."""
        news, self._news = self._news, []
        return news

    def _accept_part(
        self,
        run_key: RunKey,
        records: Sequence[Record],
        reports: Sequence[EpochReport],
        sender: tuple[str | None, int | None, int],
        now: float,
        out: IngestResult,
    ) -> None:
        client_id, seq, dropped = sender
        run = self._run(run_key, now)
        client = run.hear(client_id, now)
        part = RequestPart(run, client_id, -1 if seq is None else seq, now, out)
        if records:
            run.main_mode = run.main_mode or records[0].mode
        lost = max(0, dropped - client.dropped) if client and not reports else 0
        if lost:  # missing from an open window, or from one that this request opens
            self._mark_incomplete(run)
        if client is not None and client_id is not None:
            self._begin_training(reports, part, client_id)
        for record in records:
            accepted = self._place(record, part)
            self._counts["received"] += accepted
            run.counts["kept"] += accepted
            out.accepted += accepted
            run.arrived(record.epoch, client_id)
        if client is None or client_id is None:
            return
        if lost:
            self._mark_incomplete(run)
            self._count(run, "dropped", lost)
            out.notices.append(notices.dropped(run_key))
        client.dropped = max(client.dropped, dropped)
        self._take_reports(reports, part, client_id, Counter(record.epoch for record in records))
        if seq is not None:
            client.seqs.add(seq)
            client.latest = max(client.latest, seq)
        out.ready += self._complete(run, now)

    def _begin_training(self, reports: Sequence[EpochReport], part: RequestPart, client_id: str) -> None:
        """Begin another training of a client if its reports name a newer one, that of its records."""
        run, client = part.run, part.run.clients[client_id]
        client.job = next((report.job for report in reports if report.job), client.job)
        newest = max((report.training for report in reports), default=client.training)
        if newest <= client.training:
            return
        earlier = [report for report in reports if report.training < newest]
        if client.reports:
            self._take_reports(earlier, part, client_id, {})
            part.out.ready += self._complete(run, part.now)
        run.begin_training(client_id, newest)
        present = [report for report in reports if report.training == newest]
        sent = [
            report.epoch for report in present if report.sent
        ]  # a probe begins with an epoch 0 of nothing
        first = min(sent, key=rank) if sent else None
        self._begin_attempt(min((report.epoch for report in present), key=rank), part, first)

    def _begin_attempt(self, epoch: float | None, part: RequestPart, first: float | None) -> None:
        """Pass on what an earlier training sent, if another begins with this epoch.

        Args:
            epoch: The epoch.
            part: The request.
            first: The first epoch of which there are records, for the notice; None if there are none.
        """
        run = part.run
        if not run.replaces(epoch, part.client_id, part.seq, part.now):
            return
        for window in run.windows.values():
            part.out.ready += self._hand_on(run, window, close=True)
        newest = max((key[0] for key in [*run.windows, *run.finished]), key=rank)  # type: ignore[arg-type]
        told = notices.restarted if rank(epoch) <= rank(newest) else notices.resumed  # type: ignore[arg-type]
        part.out.notices.append(told(run.run_key, first, newest))  # type: ignore[arg-type]
        run.restart(part.client_id, self.trigger, part.now)

    def _take_reports(
        self,
        reports: Sequence[EpochReport],
        part: RequestPart,
        client_id: str,
        came: Mapping[float | None, int],
    ) -> None:
        elsewhere = part.run.elsewhere(client_id)
        unreported = part.run.meet(reports, client_id)
        for report in reports:
            progress = part.run.progress(report.epoch, client_id)
            before, failed = progress.dropped, progress.failed
            part.run.take_report(report, client_id, part.seq, came.get(report.epoch, 0))
            known = bool(part.run.windows or part.run.finished or part.run.leaving)
            part.out.notices += [
                notices.from_client(part.run.run_key, note, known=known) for note in report.notes
            ]
            if progress.failed > failed == 0:
                part.out.notices.append(notices.failed(part.run.run_key, report.epoch))
            if progress.dropped > before:
                self._count(part.run, "dropped", progress.dropped - before)
                part.out.notices.append(notices.dropped(part.run.run_key, report.reasons))
        part.run.clients[client_id].before += unreported
        if (more := part.run.elsewhere(client_id) - elsewhere) > 0:
            last = max((report.epoch for report in reports), key=rank)
            part.out.notices.append(notices.taken_before(part.run.run_key, more, last))

    def settled(self, point: DataPoint, scored: bool) -> RunKey | None:
        """Mark a data point as done; return its (run, model), None if it is not known.

        Args:
            point: The data point.
            scored: Whether its scores are stored; False if it could not be scored.
        """
        if point.serial not in self._handed:
            return None
        run, window, key, arrays, _ = self._handed.pop(point.serial)
        newly_scored, newly_failed = window.settle(key, arrays, scored=scored)
        run.counts["scored"] += newly_scored
        run.counts["failed"] += newly_failed
        if scored:
            run.settled = max(run.settled, window.moment)
        if window.awaited.get(key) == point.serial:
            window.stored(key)
        return run.run_key

    def moments(self) -> list[float]:
        """Return when the last array of each epoch came that waits to be scored, or of a part passed on."""
        windows = {each.arrived for run in self._runs.values() for each in run.unsettled() if each.arrived}
        return sorted(windows | {time for *_, time in self._handed.values() if math.isfinite(time)})

    @property
    def queued(self) -> int:
        """Number of data points that were passed on and are not done."""
        return len(self._handed)

    def release(self, run_key: RunKey) -> list[int]:
        """Return the numbers of the windows of a (run, model) that the journal can delete, each once."""
        run = self._runs.get(run_key)
        return run.release() if run else []

    def reopened_by(self, records: Sequence[Record]) -> list[Window]:
        """Return the windows that are done and that these records would reopen."""
        out = {}
        for record in records:
            run = self._runs.get((record.run, record.model))
            window = run.windows.get(self._window_key(record)) if run else None
            if window is None or not window.is_done or not window.points:
                continue
            if Key.of(record) not in window.scored:
                out[window.number] = window
        return list(out.values())

    # -- time ----------------------------------------------------------------------------------------

    def tick(self, now: float) -> IngestResult:
        """End the windows that got no record for the grace time, and give up clients that have gone."""
        out = IngestResult()
        for run in self._runs.values():
            for window in run.windows.values():
                if window.closed or now <= self._ends(run, window):
                    out.notices += self._tell_of_silence(run, window, now)
                    continue
                ready = self._hand_on(run, window, close=True)
                out.ready += ready
                lacks = window.lacks or next((point.lacks for point in ready if point.lacks), "")
                if lacks and ready:
                    out.notices.append(notices.incomplete(window, lacks))
            run.trim()
            run.tidy(now, self.grace * PATIENCE)
            if now - self._refused > SILENCE_S:  # clients try again within that time
                out.notices += self._tell_of_overdue(run, now)
                silence = self.grace * PATIENCE
                clients, lost, epochs = run.give_up(now - silence)
                if lost:
                    out.given_up.append(run.run_key)
                    begun = {key[0] for key in run.windows}
                    unseen = [epoch for epoch in epochs if epoch not in begun and not run.has_finished(epoch)]
                    out.notices.append(notices.gone(run.run_key, clients, silence, lost, epochs, unseen))
        out.notices += self.take_notices()
        return out

    def waits(self, now: float) -> list[EpochWait]:
        """Return the epochs that wait for clients that have sent nothing for some time."""
        found = ((run, window) for run in self._runs.values() for window in run.windows.values())
        waits = (self._wait(run, window, now) for run, window in found if not window.closed)
        return [wait for wait in waits if wait is not None]

    def refused(self, now: float) -> None:
        """Note that records were refused: clients that seem silent may be those that sent them."""
        self._refused = max(self._refused, now)

    def _wait(self, run: RunState, window: Window, now: float) -> EpochWait | None:
        if now - self._refused <= SILENCE_S:  # clients try again within that time
            return None
        silent = run.silent(window.epoch, now - self._silence, now - self.grace)
        if not silent:
            return None
        return EpochWait(
            *run.run_key,
            window.epoch,
            silent=len(silent),
            processes=sum(client.reports for client in run.clients.values()),
            silent_s=round(now - max(client.heard for client in silent)),
            left_s=max(round(self._ends(run, window) - now), 0),
        )

    def _tell_of_silence(self, run: RunState, window: Window, now: float) -> list[Notice]:
        """Return the notice that a window waits for clients behind the others, once for each window."""
        wait = None if window.waits or window.closed else self._wait(run, window, now)
        if wait is None or not run.is_ahead_of_silent(window.epoch, now - self._silence, now - self.grace):
            return []
        window.waits = True
        return [notices.silent(wait)]

    def _tell_of_overdue(self, run: RunState, now: float) -> list[Notice]:
        """Return the notice that silent clients sent what did not arrive, once until they are heard."""
        names, number, epochs = run.overdue(now - self._silence)
        clients = [run.clients[name] for name in names]
        if all(client.missed for client in clients):
            return []
        for client in clients:
            client.missed = True
        heard = max(client.heard for client in clients)
        left = heard + self.grace * PATIENCE - now
        return (
            [notices.overdue(run.run_key, len(clients), now - heard, number, epochs, left)]
            if left > 0
            else []
        )

    @property
    def _silence(self) -> float:
        """Seconds without a request after which a client is silent."""
        return min(SILENCE_S, max(self.grace / 2, LIVELY_S))

    def _ends(self, run: RunState, window: Window) -> float:
        """Return the time at which a window ends if nothing more comes."""
        newest = max(rank(each.epoch) for each in run.windows.values())
        return window.touched + self.grace * (1 if rank(window.epoch) < newest else PATIENCE)

    def flush(
        self,
        run: str | None = None,
        model: str | None = None,
        *,
        client_id: str | None = None,
        close: bool = True,
    ) -> list[DataPoint]:
        """Return all data points that were not passed on yet.

        Args:
            run: Only those of this run.
            model: Only those of this model.
            client_id: Only those of the runs this client sends to, if it sends to any.
            close: Whether to end the windows, except those for which clients report that more will come.
        """
        own = [run_key for run_key, state in self._runs.items() if client_id in state.clients]
        ready = []
        for window in self._windows():
            state = self._runs[window.run_key]
            foreign = own and window.run_key not in own and state.has_reports(window.epoch)
            if run in (None, window.run_key[0]) and model in (None, window.run_key[1]) and not foreign:
                ends = close and not state.more_to_come(window.epoch)
                ready += self._hand_on(state, window, close=ends)
        return ready

    # -- removal and status --------------------------------------------------------------------------

    def runs_of(self, client_id: str | None, model: str | None = None) -> list[RunKey]:
        """Return each (run, model) of a client, of one model or of all.

        Args:
            client_id: The client; None for runs that no client with an id sends to.
            model: The model.
        """
        return [
            run_key
            for run_key, state in self._runs.items()
            if (client_id in state.clients if client_id is not None else not state.clients)
            and model in (None, run_key[1])
        ]

    def remove(self, run: str, model: str | None = None) -> list[RunKey]:
        """Remove the records of a run, or of one model of it, and return each (run, model).

        Sequence numbers of clients are kept, to recognize repeated requests.
        """
        removed = [each for each in self._runs if each[0] == run and model in (None, each[1])]
        for run_key in removed:
            old = self._runs.pop(run_key)
            if old.clients:
                self._runs[run_key] = RunState(run_key, old.began, self.trigger, clients=old.clients)
        gone = set(removed)
        self._handed = {serial: each for serial, each in self._handed.items() if each[0].run_key not in gone}
        return removed

    def forget(self) -> list[RunKey]:
        """Remove the (run, model) that were idle longest, if there are more than RUNS; return them."""
        idle = [run_key for run_key, run in self._runs.items() if run.idle]
        removed = idle[: max(0, len(self._runs) - RUNS)]
        for run_key in removed:
            del self._runs[run_key]
        return removed

    def run_keys(self) -> list[RunKey]:
        """Return every (run, model) known."""
        return list(self._runs)

    def active(self) -> set[RunKey]:
        """Return every (run, model) with records of an epoch, or whose scores are awaited."""
        return {run_key for run_key, run in self._runs.items() if not run.idle}

    def check_run(self, run_key: RunKey, client_id: str | None = None) -> None:
        """Raise InputError for a new (run, model), or a new client of one, if there are too many."""
        clients = self._runs[run_key].clients if run_key in self._runs else {}
        if client_id is not None and client_id not in clients and len(clients) >= MOST_CLIENTS:
            raise InputError(
                f"A process is refused: {MOST_CLIENTS:,} others have sent to run {run_key[0]!r} of model "
                f"{run_key[1]!r}, and no more are taken. Give this training its own name (run=)."
            )
        if run_key not in self._runs and len(self._runs) >= MAX_RUNS:
            raise InputError(
                f"Run {run_key[0]!r} of model {run_key[1]!r} is refused: {MAX_RUNS:,} runs have sent records "
                "in the last minutes, and no more are taken. Try again later."
            )

    def status(self) -> dict[str, int]:
        """Return the counts; see ``messages.AggregatorCounts``."""
        pending = sum(len(window.fresh) for window in self._windows())
        return dict(self._counts) | {"pending": pending, "bytes": self.nbytes}

    def by_run(self) -> list[dict[str, Any]]:
        """Return the ledger of each (run, model), for the newest COUNTED_RUNS; see ``messages.RunLedger``."""
        return [run.ledger() for run in list(self._runs.values())[-COUNTED_RUNS:]]

    def waiting(self, run: str) -> int:
        """Return the number of arrays of a run that wait to be scored."""
        return sum(state.ledger()["waiting"] for run_key, state in self._runs.items() if run_key[0] == run)

    # -- the journal ---------------------------------------------------------------------------------

    def snapshot(self, run_key: RunKey, now: float) -> dict[str, Any]:
        """Return the state of a (run, model) without its arrays, as JSON."""
        return self._run(run_key, now).snapshot()

    def whole(
        self, run_key: RunKey, now: float
    ) -> tuple[dict[str, Any], Iterator[tuple[int, dict[str, Any], list[Record]]]]:
        """Return all that a new journal of a (run, model) needs.

        Returns:
            A snapshot; and for each window that is not done its number, what ``reload`` needs, its records.
        """
        snapshot, windows = self._run(run_key, now).whole()
        return snapshot, ((each.number, each.reload_head(), list(each.records())) for each in windows)

    def opens_window(self, records: Sequence[Record]) -> bool:
        """Return whether any of the records would open a window."""
        for record in records:
            run = self._runs.get((record.run, record.model))
            if run is None or self._window_key(record) not in run.windows:
                return True
        return False

    def held(self, run_key: RunKey) -> set[int]:
        """Return the numbers of the windows of a (run, model) that have arrays."""
        run = self._run(run_key, 0.0)
        windows = [*run.windows.values(), *run.leaving.values()]
        return {window.number for window in windows if window.points}

    def restore(self, run_key: RunKey, snapshot: Mapping[str, Any]) -> None:
        """Restore a snapshot of a (run, model)."""

        def window(of_window: Mapping[str, Any]) -> Window:
            self._opened += 1
            key = tuple(of_window["mark"])
            return Window(self._opened, run_key, key, of_window["epoch"], of_window["step"])

        self._run(run_key, 0.0).restore(snapshot, window)

    def doubt(self, run_key: RunKey) -> None:
        """Note that requests of a (run, model) were lost at this place of the journal."""
        self._run(run_key, 0.0).doubt()

    def reload(self, records: Sequence[Record], head: Mapping[str, Any]) -> set[int]:
        """Put records back into their windows; return the numbers of the windows.

        Args:
            records: All records of a window.
            head: What ``whole`` returned for it; of a window that was done, empty.
        """
        found: dict[int, tuple[Window, list[Record]]] = {}
        for record in records:
            window = self._run((record.run, record.model), 0.0).windows.get(self._window_key(record))
            if window is not None:
                found.setdefault(window.number, (window, []))[1].append(record)
        for window, held in found.values():
            window.reload(held, head)
            self._at_most += window.nbytes
        return set(found)

    def resume(self, now: float) -> list[DataPoint]:
        """Return the ended data points without scores; to be called when the journal is read."""
        ready = []
        self.replaying = False
        self._handed = {}
        self._counts = Counter(dict.fromkeys(self._counts, 0))
        for run in self._runs.values():
            run.doubtful = min(run.doubtful, 1)  # the lost request may have been the first of the next epoch
            for client in run.clients.values():
                client.heard = now
            for window in run.windows.values():
                window.touched = now
            for window in run.reopen():
                ready += self._hand_on(run, window, close=True)
        self._at_most = self.nbytes
        return ready

    # -- windows --------------------------------------------------------------------------------------

    def _windows(self) -> list[Window]:
        """Return every window in memory, the oldest first."""
        windows = [window for run in self._runs.values() for window in run.windows.values()]
        return sorted(windows, key=lambda window: window.number)

    def _run(self, run_key: RunKey, now: float) -> RunState:
        if run_key not in self._runs:
            self._runs[run_key] = RunState(run_key, now, self.trigger)
        return self._runs[run_key]

    def _window_key(self, record: Record) -> WindowKey:
        run = self._runs.get((record.run, record.model))
        trigger = self.trigger if run is None else run.trigger
        return (record.epoch, *(getattr(record, name) for name in trigger))

    def _place(self, record: Record, part: RequestPart) -> bool:
        """Add a record to its window, evicting others if necessary; return False if it was refused."""
        refusal, window = None, None
        self._begin_attempt(record.epoch, part, record.epoch)
        if part.run.is_replaced(part.client_id):
            refusal = notices.superseded(record)
        elif size_of(record) > self.max_bytes:
            refusal = notices.too_big(record, self.max_bytes)
        else:
            self._make_room(size_of(record), part.out)
            window = self._window(record, part)
            key = Key.of(record)
            if window is None or key in window.scored:
                refusal = notices.too_late(record)
            elif key not in window.points and len(window.points) >= KEYS:
                refusal = notices.too_many(record, KEYS)
        if refusal is not None or window is None:
            self._count(part.run, "refused")
            part.out.notices += [refusal] if refusal else []
            return False
        if window.repeats(record):
            part.out.notices.append(notices.repeated(record))
            self._count(part.run, "refused")
            return False
        self._count(part.run, "late", bool(window.handed))
        window.add(record)
        if window.begins_pooling(record, part.client_id):
            part.out.notices.append(notices.pooled(record))
        window.touch(part.now)
        part.out.placed.setdefault(part.run.run_key, set()).add(window.number)
        return True

    def _window(self, record: Record, part: RequestPart) -> Window | None:
        """Return the window of a record, None if it is finished. Opening a window may end older ones."""
        run = part.run
        if self._window_key(record) not in run.windows:
            self._close_older(record, part)
            key = self._window_key(record)
            if run.is_finished(key):
                return None
            self._opened += 1
            step = record.step if "step" in run.trigger and record.step is not None else -1
            run.open(Window(self._opened, run.run_key, key, record.epoch, step))
            run.trim()
        return run.windows[self._window_key(record)]

    def _close_older(self, record: Record, part: RequestPart) -> None:
        """End the windows that are older than the one that this record opens; a late record ends none."""
        run, ready = part.run, part.out.ready
        restart = run.is_restart(record, part.client_id, part.seq, part.now)
        late = any(rank(record.epoch) < rank(window.epoch) for window in run.windows.values())
        for window in run.windows.values():
            reported = window.epoch != record.epoch and run.has_reports(window.epoch)
            if restart or not (late or reported):
                same_epoch = window.epoch == record.epoch  # only a step or a mode ended
                ready += self._hand_on(run, window, close=True, more_expected=same_epoch)
        if restart:
            newest = max((window.epoch for window in run.windows.values()), key=rank)
            part.out.notices.append(notices.restarted(run.run_key, record.epoch, newest))
            run.restart(part.client_id, self.trigger, part.now)

    def _complete(self, run: RunState, now: float) -> list[DataPoint]:
        """End the windows whose records have all arrived."""
        ready = []
        for window in run.windows.values():
            due = window.fresh or not window.closed or window.unsaid
            if due and run.has_reports(window.epoch) and run.is_complete(window.epoch, now, self.grace):
                ready += self._hand_on(run, window, close=True)
        run.trim()
        return ready

    def _hand_on(
        self,
        run: RunState,
        window: Window,
        *,
        close: bool,
        more_expected: bool = False,
        evicting: Sequence[Key] | None = None,
    ) -> list[DataPoint]:
        before = dict(window.absent)
        ready = run.hand_on(window, close=close, more_expected=more_expected, evicting=evicting)
        if window.absent and window.absent != before:
            self._news.append(notices.absent(window))
        self._count(run, "incomplete", sum(not point.complete for point in ready))
        for point in ready:
            arrays = window.tallies[point.key].arrived
            self._handed[point.serial] = run, window, point.key, arrays, point.arrived
        return ready

    def _make_room(self, nbytes: int, out: IngestResult) -> None:
        """Evict windows, first those that were passed on, until ``nbytes`` more fit.

        What was passed on of an epoch that goes on, or got more arrays since, is passed on once more before:
        its scores would be those of a part, without a word.
        """
        limit = self.max_bytes * (2 if self.replaying else 1)
        self._at_most += nbytes
        if self._at_most <= limit:
            return
        excess = self.nbytes + nbytes - limit
        self._at_most = limit + min(excess, 0)
        if excess <= 0:
            return
        for window in sorted(self._windows(), key=lambda window: bool(window.fresh)):
            excess -= window.nbytes
            run = self._runs[window.run_key]
            if doubted := window.doubted_by_eviction():
                out.ready += self._hand_on(run, window, close=window.closed, evicting=doubted)
            unscored = window.evict()
            if unscored:
                self._count(run, "lost", unscored)
                out.notices.append(notices.evicted(window, unscored, self.max_bytes))
            if excess <= 0:
                return

    def _count(self, run: RunState, name: str, number: int = 1) -> None:
        self._counts[name] += number
        run.counts[name] += number

    def _mark_incomplete(self, run: RunState) -> None:
        for window in run.windows.values():
            window.lacks = notices.DROPPED
