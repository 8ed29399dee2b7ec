"""One (run, model) as the aggregator knows it: who sends to it, and the windows that are held."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...core.errors import InputError
from ...core.record import Record
from ..checks import check_count, check_epoch, check_text
from ..data_point import DataPoint
from .window import RunKey, Window, WindowKey

#: Ranges of sequence numbers that are remembered of a client; the gaps below count as seen.
RANGES = 500
#: Of how many (run, model) a role tells the counts, the newest.
COUNTED = 100


class EpochReport(NamedTuple):
    """What a client says of one epoch: records sent and dropped so far, whether it has ended the epoch, and
    whether it has left the (run, model)."""

    run: str
    model: str
    epoch: float | None
    sent: int = 0
    dropped: int = 0
    ended: bool = False
    left: bool = False


def read_epoch_reports(envelope: Mapping[str, Any]) -> list[EpochReport]:
    """The reports of a request's envelope; raises InputError for what is none.

    >>> read_epoch_reports({"epochs": [{"run": "r", "model": "m", "epoch": 0, "sent": 3}]})[0].sent
    3
    """
    rows = envelope.get("epochs", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError("The envelope's epochs must be a list of objects.")
    return [_report(row) for row in rows]


def _report(row: Mapping[str, Any]) -> EpochReport:
    flags = [row.get(name, False) for name in ("ended", "left")]
    if not all(isinstance(flag, bool) for flag in flags):
        raise InputError(f"The envelope's epochs have ended and left, true or false, got {flags}.")
    return EpochReport(
        check_text(row.get("run"), "A run in the envelope's epochs"),
        check_text(row.get("model"), "A model in the envelope's epochs"),
        check_epoch(row.get("epoch"), "The envelope's epochs"),
        check_count(row.get("sent", 0), "sent in the envelope's epochs"),
        check_count(row.get("dropped", 0), "dropped in the envelope's epochs"),
        *flags,
    )


class IntRanges:
    """Whole numbers, as ranges.

    >>> seen = IntRanges()
    >>> [seen.add(number) for number in (1, 3, 2, 3)], seen.ranges
    ([True, True, True, False], [[1, 3]])
    """

    def __init__(self, ranges: Iterable[Iterable[int]] = ()) -> None:
        self.ranges = [list(each) for each in ranges]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.ranges, number, key=lambda each: each[0]) - 1
        return at >= 0 and number <= self.ranges[at][1]

    def add(self, number: int) -> bool:
        """Whether it is new."""
        if number in self:
            return False
        at = bisect_right(self.ranges, number, key=lambda each: each[0])
        self.ranges.insert(at, [number, number])
        for left in (at, at - 1):
            if 0 <= left < len(self.ranges) - 1 and self.ranges[left][1] + 1 == self.ranges[left + 1][0]:
                self.ranges[left : left + 2] = [[self.ranges[left][0], self.ranges[left + 1][1]]]
        if len(self.ranges) > RANGES:
            self.ranges[:2] = [[self.ranges[0][0], self.ranges[1][1]]]
        return True

    @property
    def newest(self) -> int:
        """The largest of them, -1 where there is none."""
        return self.ranges[-1][1] if self.ranges else -1


@dataclass(slots=True)
class EpochProgress:
    """One client's part of an epoch: what came, and what the newest of its reports says."""

    received: int = 0
    sent: int = 0
    dropped: int = 0
    ended: bool = False
    seq: int = -1

    @property
    def missing(self) -> int:
        """Records that are still on their way, or lost there."""
        return max(self.sent - self.received, 0)

    @property
    def whole(self) -> bool:
        """Whether all has come."""
        return self.ended and not self.missing


@dataclass(slots=True)
class ClientState:
    """A client that sends to a (run, model): ``seqs`` are its requests that came, ``heard`` when the last
    did, ``newest`` the newest epoch it has begun, ``states`` whether it says what it sends."""

    seqs: IntRanges = field(default_factory=IntRanges)
    heard: float = 0.0
    left: bool = False
    states: bool = False
    newest: float = -math.inf
    dropped: int = 0

    def state(self) -> dict[str, Any]:
        """All of it as JSON."""
        newest = self.newest if math.isfinite(self.newest) else None
        return {
            "seqs": self.seqs.ranges,
            "left": self.left,
            "states": self.states,
            "newest": newest,
            "dropped": self.dropped,
            "heard": self.heard,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Be as ``state`` says, and know what was known before."""
        for low, high in state["seqs"]:
            self.seqs = _joined(self.seqs, low, high)
        self.left, self.states, self.dropped = state["left"], state["states"], state["dropped"]
        self.heard = state["heard"]
        self.newest = -math.inf if state["newest"] is None else state["newest"]


def _joined(seen: IntRanges, low: int, high: int) -> IntRanges:
    apart = [each for each in seen.ranges if each[1] < low - 1 or each[0] > high + 1]
    near = [each for each in seen.ranges if not (each[1] < low - 1 or each[0] > high + 1)]
    whole = [min([low, *(each[0] for each in near)]), max([high, *(each[1] for each in near)])]
    return IntRanges(sorted([*apart, whole]))


def missing(shares: list[EpochProgress], *, on_its_way: bool = False) -> str:
    """What an epoch lacks, by its clients' own counts; nothing where they agree with what came, or where what
    is missing may be ``on_its_way``.

    >>> missing([EpochProgress(received=8, sent=10, dropped=1), EpochProgress(received=10, sent=10)])
    '18 of 21 arrays came (1 dropped by the probe)'
    """
    sent, dropped = sum(share.sent for share in shares), sum(share.dropped for share in shares)
    lost = 0 if on_its_way else sum(share.missing for share in shares)
    if not lost and not dropped:
        return ""
    return f"{sent - lost} of {sent + dropped} arrays came" + (
        f" ({dropped} dropped by the probe)" if dropped else ""
    )


#: Windows of one (run, model) that are held after they ended, the newest among them.
HELD = 2
#: A worker that was not heard of for so many seconds does not make another one late.
LIVELY_S = 5.0
#: How many of a (run, model)'s clients, and of its windows that are over, are remembered.
MEMBERS, FINISHED = 100, 1000


@dataclass(slots=True)
class RunState:
    """``trigger`` are the fields whose change completes a window. ``windows`` are held for what comes late;
    ``leaving`` those held no more whose scores are not stored yet, by number, and ``finished`` the marks of
    all that are held no more. ``shares`` is, by epoch, what each client sent of it; ``began`` is when the
    first record came; ``counts`` what became of the records."""

    group: RunKey
    began: float
    trigger: tuple[str, ...] = ("epoch",)
    main_mode: str = ""
    members: dict[str, ClientState] = field(default_factory=dict)
    shares: dict[float | None, dict[str, EpochProgress]] = field(default_factory=dict)
    windows: dict[WindowKey, Window] = field(default_factory=dict)
    leaving: dict[int, Window] = field(default_factory=dict)
    finished: dict[WindowKey, None] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def member(self, client: str | None, now: float) -> ClientState | None:
        """The client of that id, which has just been heard."""
        if client is None:
            return None
        self.members[client] = member = self.members.pop(client, None) or ClientState()
        while len(self.members) > MEMBERS:
            del self.members[next(iter(self.members))]
        member.heard = now
        return member

    def share(self, epoch: float | None, client: str) -> EpochProgress:
        """What that client sent of an epoch."""
        return self.shares.setdefault(epoch, {}).setdefault(client, EpochProgress())

    def state_of(self, report: EpochReport, client: str, seq: int) -> None:
        """Take a client's word; an older one, that comes late, does not undo a newer."""
        member, share = self.members[client], self.share(report.epoch, client)
        member.states = True
        if seq >= share.seq:
            share.seq, share.sent, share.dropped = seq, report.sent, report.dropped
            share.ended = report.ended
        if seq >= member.seqs.newest:
            member.left = report.left
        member.newest = max(member.newest, rank(report.epoch))

    # -- windows that end ----------------------------------------------------------------------------

    def counts_on(self, epoch: float | None) -> bool:
        """Whether clients say what they send of an epoch, so that its end is known."""
        return any(share.seq >= 0 for share in self.shares.get(epoch, {}).values())

    def is_whole(self, epoch: float | None, now: float, grace: float) -> bool:
        """Whether all clients have ended an epoch, and all that they sent of it has come. Who is at an older
        epoch is waited for, unless it left or was silent for ``grace`` seconds."""
        shares = self.shares.get(epoch, {})
        slower = (
            member.states and not member.left and now - member.heard <= grace and member.newest < rank(epoch)
            for client, member in self.members.items()
            if client not in shares
        )
        return all(share.whole for share in shares.values()) and not any(slower)

    def begins_anew(self, record: Record, client: str | None, seq: int, now: float) -> bool:
        """Whether a record is too old to be late: the training began anew under its old name. A worker that
        lags behind others is late, as long as those are heard of; who was killed is not."""
        older = all(rank(record.epoch) < rank(window.epoch) for window in self.windows.values())
        if len(self.windows) < HELD or not older:
            return False
        member = self.members.get(client) if client is not None else None
        if member is None:
            return True
        if member.newest > -math.inf:
            return rank(record.epoch) < member.newest and seq >= member.seqs.newest
        others = (other for other in self.members.values() if other is not member)
        return not any(other.states and not other.left and now - other.heard <= LIVELY_S for other in others)

    def begin_anew(self, client: str | None, trigger: tuple[str, ...]) -> None:
        """Hold nothing of the training before, and wait for nobody but who begins it."""
        self.trigger = trigger
        self._leave(list(self.windows))
        self.finished, self.shares = {}, {}
        for name, member in self.members.items():
            member.newest, member.left = -math.inf, name != client

    def take(self, window: Window, *, close: bool, on_its_way: bool = False) -> list[DataPoint]:
        """What a window has to hand on, with what its clients say is missing; ``close`` where it ends, though
        more of its epoch may be ``on_its_way``."""
        if self.counts_on(window.epoch):
            shares = list(self.shares[window.epoch].values())
            window.lacks = missing(shares, on_its_way=on_its_way)
        window.closed |= close
        return window.take(self.main_mode, tuple(self.members), self.began)

    def trim(self) -> None:
        """Of the windows that ended, hold the newest."""
        ordered = sorted(self.windows.items(), key=lambda item: (rank(item[1].epoch), item[1].number))
        self._leave([mark for mark, window in ordered[:-HELD] if window.closed and not window.fresh])
        held = {window.epoch for window in self.windows.values()}
        for epoch in sorted(self.shares.keys() - held, key=rank)[:-HELD]:
            del self.shares[epoch]

    @property
    def idle(self) -> bool:
        """Whether nothing is held, and no score awaited."""
        return not self.windows and not self.leaving

    def tidy(self, now: float, silence: float) -> None:
        """Hold nothing that is over where nothing came for so many seconds."""
        windows = self.windows.items()
        self._leave([mark for mark, w in windows if w.over and not w.kept and now - w.touched > silence])

    def _leave(self, marks: Iterable[WindowKey]) -> None:
        for mark in marks:
            window = self.windows.pop(mark)
            self.leaving[window.number] = window
            self.finished[mark] = None
        while len(self.finished) > FINISHED:
            del self.finished[next(iter(self.finished))]

    def settle(self) -> list[int]:
        """The numbers of the windows of which nothing needs to be kept on disk any more, each once."""
        out = []
        for window in [*self.windows.values(), *self.leaving.values()]:
            if window.kept and window.spent:
                window.kept = False
                out.append(window.number)
        self.leaving = {number: window for number, window in self.leaving.items() if not window.spent}
        return out

    def reopen(self) -> list[Window]:
        """After all was read from disk: nothing is handed on yet; returns the windows that had ended."""
        windows = [*self.leaving.values(), *self.windows.values()]
        for window in windows:
            window.fresh, window.awaited = dict.fromkeys(window.points), {}
        return [window for window in windows if window.closed]

    # -- as JSON -------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All but the arrays, as JSON."""
        return {
            "group": list(self.group),
            "began": self.began,
            "trigger": list(self.trigger),
            "main_mode": self.main_mode,
            "members": {client: member.state() for client, member in self.members.items()},
            "shares": [
                [epoch, client, share.received, share.sent, share.dropped, share.ended, share.seq]
                for epoch, of_epoch in self.shares.items()
                for client, share in of_epoch.items()
            ],
            "windows": [window.state() for window in self.windows.values()],
            "leaving": [list(window.mark) for window in self.leaving.values() if not window.spent],
            "finished": [list(mark) for mark in self.finished],
        }

    def restore(self, state: Mapping[str, Any], window: Callable[[Mapping[str, Any]], Window]) -> None:
        """Be as ``state`` says; ``window`` makes one that is not held yet."""
        self.began, self.main_mode = state["began"], state["main_mode"]
        self.trigger = tuple(state.get("trigger", self.trigger))  # an older intus wrote none
        for client, facts in state["members"].items():
            self.members.setdefault(client, ClientState()).restore(facts)
        self.shares = {}
        for epoch, client, *numbers in state["shares"]:
            self.shares.setdefault(epoch, {})[client] = EpochProgress(*numbers)
        self.finished = {tuple(mark): None for mark in state["finished"]}
        held, self.windows = self.windows, {}
        for facts in state["windows"]:
            mark = tuple(facts["mark"])
            self.windows[mark] = held.pop(mark) if mark in held else window(facts)
            self.windows[mark].restore(facts)
        unstored = {tuple(mark) for mark in state["leaving"]}
        gone = [*self.leaving.values(), *held.values()]
        self.leaving = {each.number: each for each in gone if each.mark in unstored}


def rank(epoch: float | None) -> float:
    """An epoch as a number to sort by; unknown is the oldest."""
    return -math.inf if epoch is None else epoch


def groups_of(records: Sequence[Record], reports: Iterable[EpochReport]) -> list[RunKey]:
    """Every (run, model) that a request is about."""
    of_records = ((record.run, record.model) for record in records)
    return list(dict.fromkeys([*of_records, *((s.run, s.model) for s in reports)]))
