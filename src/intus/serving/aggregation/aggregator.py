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
from typing import Any

from ...core.errors import InputError
from ...core.record import Record
from ..data_point import DataPoint, Key, Notice
from . import notices as told
from .gathering import GRACE_S, MOST_TRAININGS, PATIENCE, TRAININGS, Gathering, Outcome, Part
from .run_state import Training, groups_of, rank
from .tally import COUNTED, Member, Statement
from .window import Group, Window

__all__ = ["GRACE_S", "Aggregator", "Outcome"]


class Aggregator(Gathering):
    """Gathers records into windows; not thread-safe, its owner holds a lock.

    ``trigger`` are the fields whose change completes a window: the epoch always, or also "step" or "mode".
    ``max_bytes`` bounds the arrays held: what was handed on is let go first, then the oldest window is
    refused and a notice says so. ``grace`` is how many seconds an epoch that should be whole is waited for.
    """

    # -- requests ------------------------------------------------------------------------------------

    def knows(self, group: Group, client: str | None, seq: int | None) -> bool:
        """Whether that request of a client came before, for this (run, model)."""
        training = self._trainings.get(group)
        member = training.members.get(client) if training and client is not None else None
        return member is not None and seq is not None and seq in member.seqs

    def accept(
        self,
        records: Sequence[Record],
        client: str | None = None,
        seq: int | None = None,
        dropped: int = 0,
        unusable: Sequence[Notice] = (),
        statements: Sequence[Statement] = (),
        discarded: Sequence[Record] = (),
        now: float = 0.0,
    ) -> Outcome:
        """Take one request's records. The same (client, seq) again changes nothing.

        ``dropped`` is how many records that client has dropped since it began; ``discarded`` are those of its
        records that were refused before they came here, ``unusable`` their notices; ``statements`` is what
        the client says of its epochs; ``now`` the time in seconds.
        """
        out, repeated = Outcome(notices=list(unusable)), 0
        groups = groups_of(records, statements)
        for group in groups:
            of_group = [record for record in records if (record.run, record.model) == group]
            said = [statement for statement in statements if statement[:2] == group]
            if self.knows(group, client, seq):
                repeated += 1
                continue
            self._accept(group, of_group, said, (client, seq, dropped), now, out)
            for record in discarded:
                if client is not None and (record.run, record.model) == group:
                    self._trainings[group].share(record.epoch, client).received += 1
        if groups and repeated == len(groups):
            self._counts["duplicates"] += 1
            return Outcome(duplicate=True)
        self._counts["refused"] += len(unusable)
        for notice in unusable:
            if training := self._trainings.get((notice.run, notice.model)):
                training.counts["refused"] += 1
        out.notices = list(dict.fromkeys(out.notices))
        return out

    def _accept(
        self,
        group: Group,
        records: Sequence[Record],
        statements: Sequence[Statement],
        sender: tuple[str | None, int | None, int],
        now: float,
        out: Outcome,
    ) -> None:
        client, seq, dropped = sender
        training = self._training(group, now)
        member = training.member(client, now)
        part = Part(training, client, -1 if seq is None else seq, now, out)
        if records:
            training.main_mode = training.main_mode or records[0].mode
        lost = max(0, dropped - member.dropped) if member and not statements else 0
        if lost:  # it is missing from a window that stands, or from one that this request opens
            self._mark_incomplete(training)
        for record in records:
            accepted = self._place(record, part)
            self._count(training, "received", accepted)
            out.accepted += accepted
            if client is not None:
                training.share(record.epoch, client).received += 1
        if member is None or client is None:
            return
        if lost:
            self._mark_incomplete(training)
            self._count(training, "dropped", lost)
            out.notices.append(told.dropped(group))
        member.dropped = max(member.dropped, dropped)
        self._hear(statements, part, member)
        if seq is not None:
            member.seqs.add(seq)
        out.ready += self._whole(training, now)

    def _hear(self, statements: Sequence[Statement], part: Part, member: Member) -> None:
        for statement in statements:
            share = part.training.share(statement.epoch, part.client or "")
            before = share.dropped
            part.training.state_of(statement, part.client or "", part.seq)
            if share.dropped > before:
                self._count(part.training, "dropped", share.dropped - before)
                part.out.notices.append(told.dropped(part.training.group))

    def stored(self, point: DataPoint) -> Group | None:
        """A data point's scores are stored. Returns its (run, model), None where that is forgotten."""
        if point.serial not in self._handed:
            return None
        training, window, key = self._handed.pop(point.serial)
        if window.awaited.get(key) == point.serial:
            del window.awaited[key]
        return training.group

    def settle(self, group: Group) -> list[int]:
        """Numbers of the windows of a (run, model) whose records need no longer be kept on disk."""
        training = self._trainings.get(group)
        return training.settle() if training else []

    def late(self, records: Sequence[Record]) -> list[Window]:
        """The windows that are over and that these records would open again."""
        out = {}
        for record in records:
            training = self._trainings.get((record.run, record.model))
            window = training.windows.get(self._mark(record)) if training else None
            if window is not None and window.over and window.points and Key.of(record) not in window.scored:
                out[window.number] = window
        return list(out.values())

    # -- time ----------------------------------------------------------------------------------------

    def tick(self, now: float) -> Outcome:
        """End the windows that nothing came for in the grace time."""
        out = Outcome()
        for training in self._trainings.values():
            newest = max((rank(window.epoch) for window in training.windows.values()), default=0.0)
            for window in training.windows.values():
                silent = now - window.touched
                followed = rank(window.epoch) < newest
                if window.closed or silent <= self.grace * (1 if followed else PATIENCE):
                    continue
                ready = self._take(training, window, close=True)
                out.ready += ready
                if window.lacks and ready:
                    out.notices.append(told.incomplete(window, window.lacks))
            training.trim()
            training.tidy(now, self.grace * PATIENCE)
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
        own = [group for group, training in self._trainings.items() if client in training.members]
        ready = []
        for window in self._all():
            training = self._trainings[window.group]
            foreign = own and window.group not in own and training.counts_on(window.epoch)
            if run in (None, window.group[0]) and model in (None, window.group[1]) and not foreign:
                ends = close and not self._more_to_come(training, window)
                ready += self._take(training, window, close=ends)
        return ready

    def _more_to_come(self, training: Training, window: Window) -> bool:
        shares = training.shares.get(window.epoch, {}).items()
        return any(
            share.seq >= 0 and not share.ended and not training.members[client].left
            for client, share in shares
            if client in training.members
        )

    # -- forgetting, and what others should know -----------------------------------------------------

    def remove(self, model: str) -> list[Group]:
        """Forget what a model sent; returns each (run, model) forgotten."""
        gone = [group for group in self._trainings if group[1] == model]
        for group in gone:
            del self._trainings[group]
        return gone

    def clear(self) -> None:
        """Forget all that was sent; clients' sequence numbers are kept, for requests sent twice."""
        for group, old in self._trainings.items():
            self._trainings[group] = Training(group, old.began, self.trigger, members=old.members)
        self._handed = {}
        self._counts = Counter(dict.fromkeys(self._counts, 0))

    def forget(self) -> list[Group]:
        """Forget those (run, model) that were silent for longest, of more than can be remembered; returns
        them."""
        idle = [group for group, training in self._trainings.items() if training.idle]
        gone = idle[: max(0, len(self._trainings) - TRAININGS)]
        for group in gone:
            del self._trainings[group]
        return gone

    def groups(self) -> list[Group]:
        """Every (run, model) known."""
        return list(self._trainings)

    def check_group(self, group: Group) -> None:
        """Raise InputError for a new (run, model) where there are too many."""
        if group not in self._trainings and len(self._trainings) >= MOST_TRAININGS:
            raise InputError(
                f"Run {group[0]!r} of {group[1]!r} is refused: {MOST_TRAININGS:,} runs have sent records in "
                "the last minutes, and that is the most."
            )

    def status(self) -> dict[str, int]:
        """Counts: records received, duplicates (requests), dropped by clients, refused, late; data points
        handed on incomplete, and pending; bytes held."""
        pending = sum(len(window.fresh) for window in self._all())
        return dict(self._counts) | {"pending": pending, "bytes": self.nbytes}

    def by_run(self) -> list[dict[str, Any]]:
        """The counts of each (run, model) for itself, of the newest of them."""
        newest = list(self._trainings.values())[-COUNTED:]
        return [
            dict(zip(("run", "model"), training.group, strict=True)) | training.counts
            | {"pending": sum(len(window.fresh) for window in training.windows.values())}
            for training in newest
        ]  # fmt: skip

    # -- back from the journal -----------------------------------------------------------------------

    def state(self, group: Group, now: float) -> dict[str, Any]:
        """All that is known of a (run, model) but its arrays, as JSON."""
        return self._training(group, now).state()

    def opens(self, records: Sequence[Record]) -> bool:
        """Whether some of the records begin a window."""
        for record in records:
            training = self._trainings.get((record.run, record.model))
            if training is None or self._mark(record) not in training.windows:
                return True
        return False

    def held(self, group: Group) -> set[int]:
        """Numbers of the windows of a (run, model) that have something to keep."""
        training = self._training(group, 0.0)
        windows = [*training.windows.values(), *training.leaving.values()]
        return {window.number for window in windows if window.points}

    def restore(self, group: Group, state: Mapping[str, Any]) -> None:
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
        for training in self._trainings.values():
            training.counts.clear()
            for member in training.members.values():
                member.heard = now
            for window in training.windows.values():
                window.touched = now
            for window in training.reopen():
                ready += self._take(training, window, close=True)
        return ready
