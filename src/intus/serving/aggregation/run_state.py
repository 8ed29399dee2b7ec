"""The state of one (run, model) in the aggregator: its clients and its windows."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...core.address import without_call
from ...core.record import Record
from ..data_point import DataPoint, Key, Source, kind_label
from ..messages import EpochReport
from ..schedule import Moment
from .ledger import STORED, continued
from .window import Previous, RunKey, Window, WindowKey

#: Most ranges of sequence numbers that are kept per client; then the gap between the lowest two is closed,
#: and of the numbers up to there it is not known which were received.
MOST_RANGES = 500
#: Number of ended windows of one (run, model) that stay in memory, the newest ones.
KEPT_WINDOWS = 2
#: Seconds after a client's last request during which older records of others are late and not a restart.
LIVELY_S = 5.0
#: Most clients of a (run, model). No more are taken: one that is forgotten would be taken for a new one.
MOST_CLIENTS = 10_000
#: Most finished windows that are kept by key per (run, model). Of the others a bound is kept.
MOST_FINISHED = 1000
#: Most ended epochs that are kept per (run, model) because records of them are under way.
MOST_AWAITED = 100
#: Most layers, by kind and mode, of which the newest epoch is remembered.
MOST_LAYERS = 100_000
#: A moment before every other.
NEVER = Moment(-1, -math.inf)


class IntRanges:
    """A set of whole numbers, kept as at most MOST_RANGES ranges.

    Attributes:
        ranges: The first and the last number of each, in order.
        unsure: Of the numbers up to this one it is not known any more whether they are in the set, and they
            count as being in it; -1 if there are none.

    >>> seen = IntRanges()
    >>> [seen.add(number) for number in (1, 3, 2, 3)], seen.ranges
    ([True, True, True, False], [[1, 3]])
    """

    def __init__(self, ranges: Iterable[Iterable[int]] = (), unsure: int = -1) -> None:
        self.ranges, self.unsure = [list(each) for each in ranges], unsure

    def __contains__(self, number: int) -> bool:
        if number <= self.unsure:
            return True
        at = bisect_right(self.ranges, number, key=lambda each: each[0]) - 1
        return at >= 0 and number <= self.ranges[at][1]

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new."""
        if number in self:
            return False
        at = bisect_right(self.ranges, number, key=lambda each: each[0])
        self.ranges.insert(at, [number, number])
        for left in (at, at - 1):
            if 0 <= left < len(self.ranges) - 1 and self.ranges[left][1] + 1 == self.ranges[left + 1][0]:
                self.ranges[left : left + 2] = [[self.ranges[left][0], self.ranges[left + 1][1]]]
        if len(self.ranges) > MOST_RANGES:
            self.ranges[:2] = [[self.ranges[0][0], self.ranges[1][1]]]
            self.unsure = self.ranges[0][1]
        return True

    @property
    def newest(self) -> int:
        """The largest number, -1 if there is none."""
        return self.ranges[-1][1] if self.ranges else -1


@dataclass(slots=True)
class EpochProgress:
    """The progress of one client in one epoch.

    Attributes:
        received: Number of records that arrived.
        sent: Number of records that the client reported as sent.
        dropped: Number of records that the client reported as dropped.
        ended: Whether the client reported the end of the epoch.
        seq: The request number of the newest report, -1 before the first.
        failed: Number of records that the client reported as impossible to make.
        elsewhere: Number of records that a server before this one accepted, and did not leave in a journal.
        whole: Number of records that were sent when the client last said that these are all so far.
    """

    received: int = 0
    sent: int = 0
    dropped: int = 0
    ended: bool = False
    seq: int = -1
    failed: int = 0
    elsewhere: int = 0
    whole: int = 0

    @property
    def missing(self) -> int:
        """Number of records that were sent and have not arrived."""
        return max(self.sent - self.received, 0)

    @property
    def unknown(self) -> int:
        """Number of the missing records of which nothing more will come."""
        return min(self.elsewhere, self.missing)

    @property
    def known(self) -> int:
        """Number of records that are known to be sent: reported, or arrived before a report."""
        return max(self.sent, self.received)

    @property
    def is_said_whole(self) -> bool:
        """True if the client said that it has sent all of the epoch, by its end or as it asked for scores."""
        return self.ended or self.known <= self.whole

    @property
    def is_complete(self) -> bool:
        """True if the client has ended the epoch and all records that can come have arrived."""
        return self.ended and self.sent - self.received <= self.elsewhere


#: The fields of EpochProgress in the journal; the last three are missing in that of older versions.
_PROGRESS = "received", "sent", "dropped", "ended", "seq", "failed", "elsewhere", "whole"


@dataclass(slots=True)
class ClientState:
    """A client that sends to a (run, model).

    Attributes:
        seqs: The numbers of the requests received, also of those that had nothing of this (run, model).
        latest: The newest number of those that had something of it, -1 before the first.
        heard: The time of the last one, in seconds.
        left: Whether the client reported that it sends no more.
        reports: Whether the client reports how much it sends of an epoch.
        newest: The newest epoch it has reported.
        dropped: Records that it has dropped since it began.
        training: How many trainings it began before under the same names.
        attempt: The attempt of the run that it sends to, None before its first record.
        before: Records that a server before this one accepted, of epochs that it has not reported here.
        job: The name that it shares with the other processes of its training; "" if unknown.
        gone: Whether it has been silent for so long that what it sent and did not arrive counts as unknown.
        missed: Whether it was told that it is silent and something of it did not arrive.
    """

    seqs: IntRanges = field(default_factory=IntRanges)
    latest: int = -1
    heard: float = 0.0
    left: bool = False
    reports: bool = False
    newest: float = -math.inf
    dropped: int = 0
    training: int = 0
    attempt: int | None = None
    before: int = 0
    job: str = ""
    gone: bool = False
    missed: bool = False

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON. The names are those of the journal's format."""
        newest = self.newest if math.isfinite(self.newest) else None
        return {
            "seqs": self.seqs.ranges,
            "unsure": self.seqs.unsure,
            "latest": self.latest,
            "left": self.left,
            "states": self.reports,
            "newest": newest,
            "dropped": self.dropped,
            "heard": self.heard,
            "training": self.training,
            "attempt": self.attempt,
            "before": self.before,
            "job": self.job,
            "gone": self.gone,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore a snapshot; its sequence numbers are added to the present ones."""
        for low, high in snapshot["seqs"]:
            self.seqs = _joined(self.seqs, low, high)
        self.seqs.unsure = max(self.seqs.unsure, snapshot.get("unsure", -1))  # older ones did not store it
        self.latest = max(self.latest, snapshot.get("latest", self.seqs.newest))  # likewise
        self.left, self.reports, self.dropped = snapshot["left"], snapshot["states"], snapshot["dropped"]
        self.heard, self.before = snapshot["heard"], snapshot.get("before", 0)  # older ones did not store it
        self.job = snapshot.get("job", self.job)  # likewise
        self.gone = snapshot.get("gone", False)  # likewise
        self.newest = -math.inf if snapshot["newest"] is None else snapshot["newest"]
        self.training = snapshot.get("training", 0)  # older versions did not store it
        self.attempt = snapshot.get("attempt", self.attempt)  # likewise


def _joined(seen: IntRanges, low: int, high: int) -> IntRanges:
    apart = [each for each in seen.ranges if each[1] < low - 1 or each[0] > high + 1]
    near = [each for each in seen.ranges if not (each[1] < low - 1 or each[0] > high + 1)]
    whole = [min([low, *(each[0] for each in near)]), max([high, *(each[1] for each in near)])]
    return IntRanges(sorted([*apart, whole]), seen.unsure)


def missing(progress: list[EpochProgress], *, more_expected: bool = False) -> str:
    """Describe the missing records of an epoch by its clients' counts; "" if none are missing.

    With ``more_expected``, records that were sent and have not arrived are not missing yet.

    >>> missing([EpochProgress(received=8, sent=10, dropped=1), EpochProgress(received=10, sent=10)])
    '18 of 21 arrays came (1 dropped by the probe)'
    """
    sent, dropped = sum(each.sent for each in progress), sum(each.dropped for each in progress)
    failed = sum(each.failed for each in progress)
    lost = 0 if more_expected else sum(each.missing for each in progress)
    if not lost and not dropped and not failed:
        return ""
    reasons = [f"{dropped} dropped by the probe"] * bool(dropped)
    reasons += [f"{failed} that the probe could not record"] * bool(failed)
    of_all = f"{sent - lost} of {sent + dropped + failed} arrays came"
    return of_all + (f" ({', '.join(reasons)})" if reasons else "")


def unsaid(progress: list[EpochProgress]) -> str:
    """Describe which clients have not said that they sent all of an epoch; "" if all have.

    >>> unsaid([EpochProgress(sent=10, ended=True), EpochProgress(sent=8, whole=6)])
    '1 of 2 processes did not say that the epoch ended, so rows may be missing'
    """
    number = sum(not each.is_said_whole for each in progress)
    who = "the training" if len(progress) == 1 else f"{number} of {len(progress)} processes"
    return f"{who} did not say that the epoch ended, so rows may be missing" if number else ""


@dataclass(slots=True)
class RunState:
    """The state of one (run, model) in the aggregator.

    Attributes:
        run_key: The (run, model).
        began: The time of the first request, in seconds.
        trigger: The fields whose change ends a window.
        main_mode: The mode of the first record.
        clients: The clients, by id.
        epochs: The progress of each client in each epoch.
        windows: The windows in memory.
        leaving: Windows no longer in ``windows`` whose scores are not stored yet, by number.
        finished: The keys of the windows that are no longer in ``windows``, the newest MOST_FINISHED of them.
        finished_until: The newest (epoch, step) of those whose keys were forgotten, None for none. Up to
            there, a window that is not in ``windows`` counts as finished: a part must not replace a whole.
        counts: Counts of records and data points; see ``messages.RunLedger``.
        layers: The first epoch of each layer, by its kind of record and mode.
        declined: The layers that the clients did not record on purpose, by epoch.
        doubtful: How many of the windows that open next may lack records that a damaged journal lost.
        attempt: How often the training was started again under the same name.
        training: The number that the client that began this attempt gave its training.
        resumed: The time of the first request of this attempt, in seconds; None for the first one.
        newest: The newest epoch that was passed on of each data point.
        settled: The newest epoch with scores.
    """

    run_key: RunKey
    began: float
    trigger: tuple[str, ...] = ("epoch",)
    main_mode: str = ""
    clients: dict[str, ClientState] = field(default_factory=dict)
    epochs: dict[float | None, dict[str, EpochProgress]] = field(default_factory=dict)
    windows: dict[WindowKey, Window] = field(default_factory=dict)
    leaving: dict[int, Window] = field(default_factory=dict)
    finished: dict[WindowKey, None] = field(default_factory=dict)
    finished_until: tuple[float, float] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    layers: dict[Source, dict[str, float | None]] = field(default_factory=dict)
    declined: dict[float | None, set[str]] = field(default_factory=dict)
    doubtful: float = 0
    attempt: int = 0
    training: int = 0
    resumed: float | None = None
    newest: dict[Key, Moment] = field(default_factory=dict)
    settled: Moment = NEVER

    def hear(self, client_id: str | None, now: float) -> ClientState | None:
        """Return the client that sends a request at time ``now``; None for a client without an id."""
        if client_id is None:
            return None
        self.clients[client_id] = client = self.clients.pop(client_id, None) or ClientState()
        client.heard, client.gone, client.missed = now, False, False
        return client

    def progress(self, epoch: float | None, client_id: str) -> EpochProgress:
        """Return the progress of a client in an epoch."""
        return self.epochs.setdefault(epoch, {}).setdefault(client_id, EpochProgress())

    def arrived(self, epoch: float | None, client_id: str | None) -> None:
        """Count a record of a client that arrived, whether it is accepted or not."""
        if client_id is None or not self.has(self.clients[client_id]):
            self.counts["sent"] += 1
            return
        progress = self.progress(epoch, client_id)
        before = progress.known
        progress.received += 1
        self.counts["sent"] += progress.known - before

    def meet(self, reports: Sequence[EpochReport], client_id: str) -> int:
        """Count what a client sent before its first reports here, to a server without a trace; return it."""
        total = max((report.total or 0 for report in reports), default=0)
        if not total or self.clients[client_id].reports:
            return 0
        before = max(total - sum(report.sent for report in reports), 0)
        self.counts["unknown"] += before
        self.counts["sent"] += before
        return before

    def take_report(self, report: EpochReport, client_id: str, seq: int, came: int = 0) -> None:
        """Store a client's report, unless a newer one arrived before.

        Args:
            report: The report.
            client_id: The client.
            seq: The number of its request.
            came: Number of records of the epoch that came with it.
        """
        client = self.clients[client_id]
        client.reports = True
        if not self.has(client) or report.training < client.training:
            return
        progress = self.progress(report.epoch, client_id)
        if progress.seq < 0 and not progress.received and self.has_finished(report.epoch):
            progress.received = report.sent  # counted when the epoch ended; clients repeat it as they leave
        if (elsewhere := report.delivered - progress.received + came) > progress.elsewhere:
            counted = min(client.before, elsewhere - progress.elsewhere)  # when the client was met
            client.before -= counted
            self.counts["unknown"] -= counted
            self.counts["sent"] -= counted
            progress.elsewhere = elsewhere
        if seq >= progress.seq:
            before = progress.known
            progress.seq, progress.sent, progress.dropped = seq, report.sent, report.dropped
            progress.ended, progress.failed, progress.whole = report.ended, report.failed, report.whole
            self.counts["sent"] += progress.known - before
        if report.idle:
            self.declined.setdefault(report.epoch, set()).update(report.idle)
        if seq >= client.latest:
            client.left = report.left
        client.newest = max(client.newest, rank(report.epoch))

    def overdue(self, heard: float) -> tuple[set[str], int, list[float | None]]:
        """Return what clients that are silent since the time ``heard`` sent, and did not arrive.

        Returns:
            The ids of these clients; how many records; the epochs. Clients that were given up do not count.
        """
        silent = {
            client_id
            for client_id, client in self.clients.items()
            if client.reports and not client.gone and client.heard < heard
        }
        clients, lost, epochs = set(), 0, []
        for epoch, progress in self.epochs.items() if silent else ():
            awaited = {client_id: self._awaits(progress[client_id]) for client_id in silent & progress.keys()}
            if any(awaited.values()):
                clients |= {client_id for client_id, number in awaited.items() if number}
                lost += sum(awaited.values())
                epochs.append(epoch)
        return clients, lost, sorted(epochs, key=rank)

    def give_up(self, heard: float) -> tuple[int, int, list[float | None]]:
        """Count what clients that are silent since the time ``heard`` sent, and did not arrive, as unknown.

        If it comes all the same, it is accepted.

        Returns:
            How many clients with such records are newly given up; how many records; the epochs.
        """
        clients, lost, epochs = self.overdue(heard)
        for client in self.clients.values():
            client.gone |= client.reports and client.heard < heard
        return len(clients), lost, epochs

    # -- the end of windows --------------------------------------------------------------------------

    def has_reports(self, epoch: float | None) -> bool:
        """Return whether a client has reported how much it sent of an epoch, so that its end is known."""
        return any(progress.seq >= 0 for progress in self.epochs.get(epoch, {}).values())

    def is_complete(self, epoch: float | None, now: float, grace: float) -> bool:
        """Return whether all clients have ended an epoch and all records they sent of it have arrived.

        It is not complete while a client is in an older epoch, unless that client left or sent nothing for
        ``grace`` seconds.
        """
        progress = self.epochs.get(epoch, {})
        slower = (
            client.reports and not client.left and now - client.heard <= grace and client.newest < rank(epoch)
            for client_id, client in self.clients.items()
            if client_id not in progress and self.has(client)
        )
        return all(each.is_complete for each in progress.values()) and not any(slower)

    def silent(self, epoch: float | None, heard: float, grace: float) -> list[ClientState]:
        """Return the clients that an epoch waits for and that are silent since the time ``heard``.

        A client that has not begun the epoch is waited for if it sent something since the time ``grace``.
        """
        progress = self.epochs.get(epoch, {})
        return [
            client
            for client_id, client in self.clients.items()
            if client.reports and not client.left and client.heard < heard and self.has(client)
            if (
                not progress[client_id].is_complete
                if client_id in progress
                else client.newest < rank(epoch) and client.heard >= grace
            )
        ]

    def is_ahead_of_silent(self, epoch: float | None, heard: float, grace: float) -> bool:
        """Return whether another client ended the epoch, left, or sent something since the time ``heard``.

        If all are silent, they may just be slow.
        """
        progress, silent = self.epochs.get(epoch, {}), self.silent(epoch, heard, grace)
        return any(
            client.left or client.heard >= heard or (name in progress and progress[name].ended)
            for name, client in self.clients.items()
            if client.reports and not any(client is each for each in silent)
        )

    def more_to_come(self, epoch: float | None) -> bool:
        """Return whether a client that has not left reported that it has not ended an epoch."""
        return any(
            progress.seq >= 0 and not progress.ended and not self.clients[client_id].left
            for client_id, progress in self.epochs.get(epoch, {}).items()
            if client_id in self.clients
        )

    def has(self, client: ClientState) -> bool:
        """Return whether a client takes part in the present attempt, or may yet."""
        return client.attempt in (None, self.attempt)

    def _sends_with(self, client: ClientState, other: ClientState, now: float) -> bool:
        """Return whether two clients are processes of one training.

        Unless both know, they are if the other sends until now: a client that was killed sends no more.
        """
        if client.job and other.job:
            return client.job == other.job
        return not other.left and now - other.heard <= LIVELY_S

    def begin_training(self, client_id: str, training: int) -> None:
        """Note that a client begins another training, by its own count."""
        client = self.clients[client_id]
        client.training, client.attempt, client.newest, client.left = training, None, -math.inf, False

    def replaces(self, epoch: float | None, client_id: str | None, seq: int, now: float) -> bool:
        """Let a client that begins take part; return whether it begins another attempt.

        It does if epochs were sent before, unless it is another process of the present training. Whether it
        continues that one, if its first epoch is a later one, is not known. A client whose training was
        replaced by that of others follows them when its own epochs begin again.
        """
        client = self.clients.get(client_id) if client_id is not None else None
        if client is None or client.attempt == self.attempt:
            return False
        if client.attempt is not None:
            if rank(epoch) >= client.newest or seq < client.latest:
                return False
            client.newest = -math.inf
        together = client.training <= self.training and self._has_others(client, now)
        if (self.windows or self.finished) and not together:
            return True
        client.attempt = self.attempt
        return False

    def is_replaced(self, client_id: str | None) -> bool:
        """Return whether another training began since that of a client."""
        return client_id is not None and not self.has(self.clients[client_id])

    def is_restart(self, record: Record, client_id: str | None, seq: int, now: float) -> bool:
        """Return whether a record shows that the training was started again under the same name.

        An old record is late, not a restart, if it is of another process of the present training.
        """
        older = all(rank(record.epoch) < rank(window.epoch) for window in self.windows.values())
        if len(self.windows) < KEPT_WINDOWS or not older:
            return False
        client = self.clients.get(client_id) if client_id is not None else None
        if client is None:
            return True
        if client.newest > -math.inf:
            return rank(record.epoch) < client.newest and seq >= client.latest
        return not self._has_others(client, now)

    def _has_others(self, client: ClientState, now: float) -> bool:
        """Return whether the present attempt has other processes of a client's training."""
        others = (o for o in self.clients.values() if o is not client and o.attempt == self.attempt)
        return any(self._sends_with(client, other, now) for other in others)

    def restart(self, client_id: str | None, trigger: tuple[str, ...], now: float) -> None:
        """Retire the windows of the previous training, and wait for no client but the restarting one."""
        self.trigger = trigger
        self._retire(list(self.windows))
        self._forget_epochs(list(self.epochs))
        self.finished, self.layers, self.declined = {}, {}, {}
        self.finished_until = None
        self.attempt += 1
        self.resumed = now
        if client_id is not None:
            client = self.clients[client_id]
            client.newest, client.left, client.attempt = -math.inf, False, self.attempt
            self.training = client.training

    def hand_on(
        self,
        window: Window,
        *,
        close: bool,
        more_expected: bool = False,
        evicting: Sequence[Key] | None = None,
    ) -> list[DataPoint]:
        """Return the data points that a window passes on, with a note on missing records.

        Args:
            window: The window.
            close: Whether the window ends.
            more_expected: Whether more of its epoch is expected, though the window ends.
            evicting: Only these data points, which are about to be evicted.
        """
        progress = list(self.epochs[window.epoch].values()) if self.has_reports(window.epoch) else []
        if progress:
            window.lacks = missing(progress, more_expected=more_expected)
            # a step is whole, and so is what was ended by another mode, though its epoch goes on
            text = "" if "step" in self.trigger else unsaid(progress)
            if not text or not (window.closed or more_expected or evicting is not None):
                window.state_end(text)
        if close:
            window.absent = self._absent(window)
            window.end()
        if progress:  # which is forgotten while an epoch waits for its scores
            window.counted = all(each.is_complete for each in progress)
        return window.hand_on(
            self.main_mode,
            tuple(self.clients),
            self.began,
            evicting=evicting,
            before=partial(self._before, window),
        )

    def _before(self, window: Window, key: Key) -> Previous:
        """Return the (epoch, step) before this one of a data point in an earlier epoch; remember this one.

        One that comes after a later one has none: the later one is compared with what was there.
        """
        newest, moment = self.newest.get(key, NEVER), window.moment
        if moment > newest:
            known = newest.attempt == moment.attempt and -math.inf < newest.epoch < moment.epoch
            window.follow(key, (newest.epoch, newest.step) if known else None)
            self.newest.pop(key, None)
            self.newest[key] = moment
            if len(self.newest) > MOST_LAYERS:
                del self.newest[next(iter(self.newest))]
        elif key not in window.handed:
            window.follow(key, None)
        return window.previous(key)

    def _absent(self, window: Window) -> dict[Source, dict[str, str]]:
        """Return what ``Window.absent`` is to be, and remember the layers that the window has.

        Only outputs and inputs are compared, with those of the same mode: gradients may come and go.
        """
        if "step" in self.trigger:  # a step need not have what the step before had
            return {}
        present: dict[Source, set[str]] = {}
        for key in window.points.keys() | window.handed:
            if key.kind in ("output", "input"):
                present.setdefault(key.source, set()).add(without_call(key.address))
        sent, off = set().union(*present.values()), self.declined.get(window.epoch, set())
        lost: dict[Source, dict[str, str]] = {}
        for source, layers in present.items():
            known = self.layers.setdefault(source, {})
            earlier = [layer for layer, epoch in known.items() if rank(epoch) < rank(window.epoch)]
            gone = [layer for layer in earlier if layer not in layers and layer not in off]
            words = f"of the {kind_label('@'.join(source))}"
            if gone:
                lost[source] = {layer: words if layer in sent else "" for layer in gone}
            for layer in layers:
                known.setdefault(layer, window.epoch)
        return lost

    def trim(self) -> None:
        """Retire the windows that ended, except the newest KEPT_WINDOWS."""
        ordered = sorted(self.windows.items(), key=lambda item: (rank(item[1].epoch), item[1].number))
        old = ordered[:-KEPT_WINDOWS]
        self._retire([key for key, window in old if window.closed and not window.fresh])
        open_epochs = {window.epoch for window in self.windows.values()}
        ended = sorted(self.epochs.keys() - open_epochs, key=rank)[:-KEPT_WINDOWS]
        self._forget_epochs(
            epoch
            for place, epoch in enumerate(ended)
            if place < len(ended) - MOST_AWAITED or not self._awaited(epoch)
        )

    def _forget_epochs(self, epochs: Iterable[float | None]) -> None:
        for epoch in epochs:
            self.counts["unknown"] += self._missing(epoch)
            for client_id, progress in self.epochs[epoch].items():
                if client_id in self.clients:  # it may report the epoch again as it leaves
                    self.clients[client_id].before += progress.unknown
            del self.epochs[epoch]
            self.declined.pop(epoch, None)

    @staticmethod
    def _awaits(progress: EpochProgress) -> int:
        return progress.missing - progress.unknown

    def _awaited(self, epoch: float | None) -> int:
        return sum(map(self._awaits, self.epochs[epoch].values()))

    def _missing(self, epoch: float | None) -> int:
        return sum(progress.missing for progress in self.epochs[epoch].values())

    @property
    def _given_up(self) -> int:
        """Number of records that clients sent, that did not arrive, and whose clients have gone."""
        return sum(
            self._awaits(each)
            for progress in self.epochs.values()
            for client_id, each in progress.items()
            if client_id not in self.clients or self.clients[client_id].gone
        )

    def elsewhere(self, client_id: str) -> int:
        """Return how many records of a client an earlier server accepted, and did not leave in a journal."""
        unknown = (each[client_id].unknown for each in self.epochs.values() if client_id in each)
        return self.clients[client_id].before + sum(unknown)

    @property
    def _unknown(self) -> int:
        return sum(each.unknown for progress in self.epochs.values() for each in progress.values())

    @property
    def idle(self) -> bool:
        """True if there are no windows and no scores are awaited."""
        return not self.windows and not self.leaving

    def tidy(self, now: float, silence: float) -> None:
        """Retire the windows that are done and got no record for ``silence`` seconds."""
        self._retire(
            [
                key
                for key, window in self.windows.items()
                if window.is_done and not window.journaled and now - window.touched > silence
            ]
        )

    def _retire(self, keys: Iterable[WindowKey]) -> None:
        for key in keys:
            window = self.windows.pop(key)
            self.leaving[window.number] = window
            self.finished[key] = None
        self._limit_finished()

    def _limit_finished(self) -> None:
        """Forget the oldest keys of finished windows beyond MOST_FINISHED, and raise the bound to them."""
        excess = len(self.finished) - MOST_FINISHED
        for key in heapq.nsmallest(excess, self.finished, key=self._order) if excess > 0 else ():
            del self.finished[key]
            self.finished_until = max(self.finished_until or self._order(key), self._order(key))

    def _order(self, key: WindowKey) -> tuple[float, float]:
        """Return the (epoch, step) of a window's key; without a step, the oldest."""
        step = key[1 + self.trigger.index("step")] if "step" in self.trigger else None
        return rank(key[0]), rank(step)  # type: ignore[arg-type]

    def is_finished(self, key: WindowKey) -> bool:
        """Return whether a window that is not in memory was there before, or may have been."""
        until = self.finished_until
        return key in self.finished or (until is not None and self._order(key) <= until)

    def has_finished(self, epoch: float | None) -> bool:
        """Return whether an epoch had windows that are no longer in memory, or may have had."""
        until = self.finished_until
        return any(key[0] == epoch for key in self.finished) or (
            until is not None and rank(epoch) <= until[0]
        )

    def release(self) -> list[int]:
        """Return the numbers of the windows that the journal can delete, each once."""
        out = []
        for window in [*self.windows.values(), *self.leaving.values()]:
            if window.journaled and window.is_disposable:
                window.journaled = False
                out.append(window.number)
        self.leaving = {number: window for number, window in self.leaving.items() if not window.is_disposable}
        return out

    def unsettled(self) -> list[Window]:
        """Return the windows with arrays that wait to be scored."""
        windows = [*self.windows.values(), *self.leaving.values()]
        return [window for window in windows if window.fresh or window.awaited]

    def reopen(self) -> list[Window]:
        """Mark all data points as not passed on, after a restart; return the windows that had ended."""
        windows = [*self.leaving.values(), *self.windows.values()]
        for window in windows:
            window.reopen()
        waiting = sum(tally.waiting for window in windows for tally in window.tallies.values())
        counts = {
            name: max(self.counts[name], 0) for name in STORED
        }  # some older versions stored negative ones
        self.counts = Counter(counts | continued(counts, waiting))
        named = sum(map(self._missing, self.epochs)) + sum(
            self.counts[each] for each in ("unknown", "refused", "kept")
        )
        self.counts["sent"] = max(self.counts["sent"], named)  # the first versions did not store it
        return [window for window in windows if window.closed]

    def ledger(self) -> dict[str, Any]:
        """Return what became of every array; see ``messages.RunLedger``."""
        windows = [*self.windows.values(), *self.leaving.values()]
        settled = sum(self.counts[name] for name in ("scored", "failed", "lost"))
        given_up = self._given_up
        named = dict(zip(("run", "model"), self.run_key, strict=True))
        unsettled = [window.epoch for window in self.unsettled() if window.epoch is not None]
        return named | self.counts | {
            "since": self.began,
            "under_way": sum(map(self._awaited, self.epochs)) - given_up,
            "unknown": self.counts["unknown"] + self._unknown + given_up,
            "waiting": self.counts["kept"] - settled,
            "open": sum(window.open_arrays for window in windows),
            "queued": sum(len(window.awaited) for window in windows),
            "postponed": sum(len(window.awaited) for window in windows if window.moment < self.settled),
            "newest": self.settled.epoch if math.isfinite(self.settled.epoch) else None,
            "earliest": min(unsettled, default=None),
        }  # fmt: skip

    # -- the journal's format ------------------------------------------------------------------------

    def whole(self) -> tuple[dict[str, Any], list[Window]]:
        """Return a snapshot that needs no earlier frame, and the windows whose arrays must follow it."""
        unstored = [w for w in [*self.leaving.values(), *self.windows.values()] if not w.is_disposable]
        leaving = [window.snapshot() for window in self.leaving.values() if not window.is_disposable]
        snapshot = self.snapshot()
        return snapshot | {"windows": [*leaving, *snapshot["windows"]], "leaving": []}, unstored

    def snapshot(self) -> dict[str, Any]:
        """Return the state without the arrays, as JSON. The names are those of the journal's format."""
        return {
            "group": list(self.run_key),
            "began": self.began,
            "trigger": list(self.trigger),
            "main_mode": self.main_mode,
            "members": {client_id: client.snapshot() for client_id, client in self.clients.items()},
            "shares": [
                [epoch, client_id, *(getattr(each, name) for name in _PROGRESS)]
                for epoch, progress in self.epochs.items()
                for client_id, each in progress.items()
            ],
            "windows": [window.snapshot() for window in self.windows.values()],
            "leaving": [list(w.window_key) for w in self.leaving.values() if not w.is_disposable],
            "finished": [list(key) for key in self.finished],
            "finished_until": self.finished_until
            and [number if math.isfinite(number) else None for number in self.finished_until],
            "layers": [[*source, layers] for source, layers in self.layers.items()],
            "held": [[list(w.window_key), w.held, w.doubtful, w.attempt] for w in self._unstored()],
            "preceding": [
                [list(w.window_key), w.attempt, [[_named(key), previous] for key, previous in before.items()]]
                for w in self._unstored()
                if (before := w.preceding)
            ],
            "newest": self._newest_to_store(),
            "doubtful": self.doubtful,
            "attempt": self.attempt,
            "training": self.training,
            "resumed": self.resumed,
            "settled": list(self.settled) if math.isfinite(self.settled.epoch) else None,
            "counts": self._counts_to_store(),
        }

    def _newest_to_store(self) -> list[list[Any]]:
        """Return the newest epochs, each with its data points."""
        found: dict[Moment, list[Any]] = {}
        for key, moment in self.newest.items():
            if math.isfinite(moment.epoch):
                found.setdefault(moment, []).append(_named(key))
        return [[list(moment), keys] for moment, keys in found.items()]

    def _counts_to_store(self) -> dict[str, int]:
        """Return the counts without the outcomes of arrays that are scored again after a restart."""
        counts = Counter({name: self.counts[name] for name in STORED})
        for window in [*self.windows.values(), *self.leaving.values()]:
            scored, failed = window.outcomes_to_repeat()
            counts["scored"] -= scored
            counts["failed"] -= failed
        return dict(counts)

    def restore(self, snapshot: Mapping[str, Any], window: Callable[[Mapping[str, Any]], Window]) -> None:
        """Restore a snapshot; ``window`` creates a window that is not in memory."""
        self.began, self.main_mode = snapshot["began"], snapshot["main_mode"]
        self.trigger = tuple(snapshot.get("trigger", self.trigger))  # older versions did not store it
        for client_id, of_client in snapshot["members"].items():
            self.clients.setdefault(client_id, ClientState()).restore(of_client)
        self.epochs = {}
        for epoch, client_id, *numbers in snapshot["shares"]:
            self.epochs.setdefault(epoch, {})[client_id] = EpochProgress(*numbers)
        self.finished = {tuple(key): None for key in snapshot["finished"]}
        self.finished_until = self._restored_until(snapshot)
        self.counts = Counter(snapshot.get("counts", {}))  # older versions did not store them
        self.attempt, self.training = snapshot.get("attempt", 0), snapshot.get("training", 0)  # likewise
        self.resumed = snapshot.get("resumed")  # likewise
        settled = snapshot.get("settled")  # likewise; null if no epoch is known to have scores
        self.settled = NEVER if settled is None else Moment(*settled)
        for client_id, of_client in snapshot["members"].items():
            if "attempt" not in of_client:  # older versions told no attempts of clients apart
                self.clients[client_id].attempt = self.attempt
        self.layers = {(kind, mode): layers for kind, mode, layers in snapshot.get("layers", ())}
        before, self.windows = self.windows, {}
        for of_window in snapshot["windows"]:
            key = tuple(of_window["mark"])
            self.windows[key] = before.pop(key) if key in before else window(of_window)
            self.windows[key].restore(of_window)
            self.windows[key].attempt, self.windows[key].training = self.attempt, self.attempt_began
        unstored = {tuple(key) for key in snapshot["leaving"]}
        removed = [*self.leaving.values(), *before.values()]
        self.leaving = {each.number: each for each in removed if each.window_key in unstored}
        for each in self.leaving.values():
            each.closed = True  # also if the request that ended it is lost
        if "held" in snapshot:  # older versions did not store it
            held = {(tuple(key), *attempt): (n, doubt) for key, n, doubt, *attempt in snapshot["held"]}
            for each in [*self.windows.values(), *self.leaving.values()]:
                known = held.get((each.window_key, each.attempt)) or held.get((each.window_key,))
                each.compare(*known or (0, False))
            self.doubtful = snapshot["doubtful"]
        self._restore_order(snapshot)

    def _restore_order(self, snapshot: Mapping[str, Any]) -> None:
        """Restore which epoch came before which, of each data point; older versions did not store it."""
        key_of = partial(Key, *self.run_key)
        for moment, keys in snapshot.get("newest", ()):
            self.newest |= {key_of(*each): Moment(*moment) for each in keys}
        windows = {(w.window_key, w.attempt): w for w in [*self.windows.values(), *self.leaving.values()]}
        for window_key, attempt, preceding in snapshot.get("preceding", ()):
            window = windows.get((tuple(window_key), attempt))
            if window is not None:
                window.preceding = {
                    None if key is None else key_of(*key): None if previous is None else (*previous,)
                    for key, previous in preceding
                }

    def _restored_until(self, snapshot: Mapping[str, Any]) -> tuple[float, float] | None:
        if "finished_until" in snapshot:
            until = snapshot["finished_until"]
            return until and (rank(until[0]), rank(until[1]))
        # older versions forgot keys without a bound when they had a thousand
        return min(map(self._order, self.finished)) if len(self.finished) >= 1000 else None

    def doubt(self) -> None:
        """Note that a damaged journal lost requests, of any window that is open or opens next."""
        self.doubtful = math.inf
        for window in [*self.windows.values(), *self.leaving.values()]:
            window.doubtful = True

    def open(self, window: Window) -> None:
        """Add a window."""
        self.windows[window.window_key] = window
        window.attempt, window.training = self.attempt, self.attempt_began
        window.doubtful = self.doubtful > 0
        self.doubtful = max(self.doubtful - 1, 0)

    @property
    def attempt_began(self) -> float:
        """The time of the first request of the present attempt."""
        return self.began if self.resumed is None else self.resumed

    def _unstored(self) -> list[Window]:
        """Return the windows whose scores are not stored."""
        leaving = [each for each in self.leaving.values() if not each.is_disposable]
        return [each for each in [*self.windows.values(), *leaving] if not each.is_done]


def _named(key: Key | None) -> list[Any] | None:
    """Return what a key has beside its (run, model)."""
    return None if key is None else list(key[2:])


def rank(epoch: float | None) -> float:
    """Return an epoch as a number to sort by; unknown is the oldest."""
    return -math.inf if epoch is None else epoch


def run_keys_of(records: Sequence[Record], reports: Iterable[EpochReport]) -> list[RunKey]:
    """Return every (run, model) of the records and reports of a request."""
    of_records = ((record.run, record.model) for record in records)
    return list(dict.fromkeys([*of_records, *(report.run_key for report in reports)]))
