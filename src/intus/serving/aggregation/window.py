"""A window: the records of one (run, model) and one epoch, or one value of the other trigger fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from ...core.notes import joined, within
from ...core.record import PROBE_SET_MODE, Record
from ...scores.statistics.summed import are_sums, arrays_in, go_together, is_of_step, summed
from ..data_point import DataPoint, Key, Source, size_of
from ..schedule import Moment
from .ledger import Tally

#: (run, model).
RunKey = tuple[str, str]
#: The values of the trigger fields, the epoch first.
WindowKey = tuple[float | int | str | None, ...]
#: The (epoch, step) before that of a data point; None if there was none.
Previous = tuple[float, int] | None

EVICTED = (
    "arrays of this epoch were dropped from memory; send fewer layers, steps or rows (which=, when=, rows=)"
)
#: Of an epoch that was passed on before it ended, and evicted then.
CUT_SHORT = (
    "its arrays were dropped from memory before it ended, and later ones are refused; send fewer layers, "
    "steps or rows (which=, when=, rows=)"
)
DAMAGED = "lost in a damaged journal"
#: Most ids of items that a window remembers to find those that several processes send.
MOST_IDS = 100_000
_serials = count(1)


def absent(layers: Mapping[str, str]) -> str:
    """Describe layers that an epoch lacks though earlier ones have them; "" for none.

    >>> absent({"fc1": "", "fc2": "of the output in mode eval"})
    '2 layers of earlier epochs sent nothing (fc1, fc2: of the output in mode eval)'
    """
    if not layers:
        return ""
    shown = list(layers.items())[:5]
    named = ", ".join(
        (within(layer) or "the model itself") + (lacks and f": {within(lacks)}") for layer, lacks in shown
    )
    more = ", …" if len(layers) > 5 else ""
    return f"{len(layers)} layer{'s' * (len(layers) > 1)} of earlier epochs sent nothing ({named}{more})"


@dataclass(slots=True)
class Window:
    """The records of a window by data point, and the state of these data points.

    Attributes:
        number: The window's number in this process.
        run_key: Its (run, model).
        window_key: The values of its trigger fields.
        epoch: The epoch, None where unknown.
        step: The step, -1 unless windows are made per step.
        points: Records by data point, in order of arrival.
        fresh: Data points that were not passed on since their last record.
        handed: Data points that were passed on.
        awaited: Data points whose scores are not stored yet, with their serial numbers.
        lost: Data points that were evicted before they were passed on.
        scored: Data points that were evicted after they were passed on.
        noted: Data points that were passed on with a note.
        evicted: Records of those of them whose scores are not stored yet. The evaluator holds the arrays too.
        skipped: How many arrays of a data point in ``lost`` were evicted: those that came first.
        nbytes: Bytes of all records.
        lacks: What is missing of any data points, in words; empty if nothing is.
        unsaid: Who has not said that the epoch ended, in words; empty if all have.
        absent: Layers that earlier epochs have of a kind and mode and this one lacks, by these. Each is with
            of what it sent nothing, in words; "" if it sent nothing at all.
        closed: Whether nothing more is expected.
        touched: The time of the last record, in seconds, or of the restart of the server after it.
        arrived: The time of the last record, in seconds; 0 if unknown.
        journaled: Whether records of it are on disk.
        waits: Whether it was told that it waits for a silent client.
        short: Number of records that a damaged journal lost.
        doubtful: Whether a damaged journal may have lost records of it.
        counted: Whether the clients' counts showed, when it was last passed on, that all records arrived.
        tallies: How far the arrays of each data point are.
        has_outcomes: Whether arrays of some were scored or failed. A waiting epoch has none, and then the
            snapshots that are written meanwhile need not look at its layers.
        attempt: How often the training had been started again under the same name.
        training: The time of the first request of its training, in seconds; NaN if unknown.
        pooled: Whether several processes sent rows of the same items.
        ids: The items of one data point, the first that has any, by the client that sent them.
        ids_of: That data point.
        repeated_ids: How many of them came from another client before.
        numbers: The number of each data point by its first array, which is the network's order.
        preceding: The (epoch, step) before this one of each data point that was passed on, None for none: of
            most at the key None, of the others at theirs.
    """

    number: int
    run_key: RunKey
    window_key: WindowKey
    epoch: float | None
    step: int
    points: dict[Key, list[Record]] = field(default_factory=dict)
    fresh: dict[Key, None] = field(default_factory=dict)
    handed: set[Key] = field(default_factory=set)
    awaited: dict[Key, int] = field(default_factory=dict)
    lost: set[Key] = field(default_factory=set)
    scored: set[Key] = field(default_factory=set)
    noted: set[Key] = field(default_factory=set)
    evicted: dict[Key, list[Record]] = field(default_factory=dict)
    skipped: dict[Key, int] = field(default_factory=dict)
    nbytes: int = 0
    lacks: str = ""
    unsaid: str = ""
    absent: dict[Source, dict[str, str]] = field(default_factory=dict)
    closed: bool = False
    touched: float = 0.0
    arrived: float = 0.0
    journaled: bool = False
    waits: bool = False
    short: int = 0
    doubtful: bool = False
    counted: bool = False
    tallies: dict[Key, Tally] = field(default_factory=dict)
    has_outcomes: bool = False
    attempt: int = 0
    training: float = math.nan
    pooled: bool = False
    ids: dict[str, set[int]] = field(default_factory=dict)
    ids_of: Key | None = None
    repeated_ids: int = 0
    numbers: dict[Key, int] = field(default_factory=dict)
    preceding: dict[Key | None, Previous] = field(default_factory=dict)

    @property
    def moment(self) -> Moment:
        """Its place among the epochs of the run."""
        return Moment(self.attempt, -math.inf if self.epoch is None else self.epoch, self.step)

    @property
    def held(self) -> int:
        """Number of records that it would hold if no journal had been damaged."""
        if self.is_done:
            return 0
        return sum(map(arrays_in, [*self.points.values(), *self.evicted.values()])) + self.short

    @property
    def is_done(self) -> bool:
        """True if nothing more is expected and all scores are stored."""
        return self.closed and not self.fresh and not self.awaited

    @property
    def is_disposable(self) -> bool:
        """True if none of its arrays would be needed after a kill of the server."""
        return not self.awaited and (self.is_done or not self.points)

    def add(self, record: Record) -> None:
        """Add a record."""
        key = Key.of(record)
        self.numbers.setdefault(key, len(self.numbers))
        blocks = self.points.setdefault(key, [])
        arrays, taken = arrays_in([record]), list[Record]()
        if is_of_step(record):
            taken = [block for block in blocks if go_together(block, record)]
            record = summed(taken[0] if taken else None, record)
        elif record.batch_axis is None:  # a parameter has a state, not samples: the newest replaces it
            taken = list(blocks)
        for block in taken:
            blocks.remove(block)
        blocks.append(record)
        self.fresh[key] = None
        self.tallies.setdefault(key, Tally()).arrived += arrays
        self.nbytes += size_of(record) - sum(map(size_of, taken))
        self.journaled = True

    def repeats(self, record: Record) -> bool:
        """Return whether it has rows of a record of a probe set, whose items occur once in each layer.

        Statistics name their process, and there may be two of a layer: of items and of positions.
        """
        if record.mode != PROBE_SET_MODE or record.items is None or record.statistics is not None:
            return False
        blocks = self.points.get(Key.of(record), ())
        return any(b.items is not None and bool(np.isin(record.items, b.items).any()) for b in blocks)

    def begins_pooling(self, record: Record, client_id: str | None) -> bool:
        """Return whether this record is the first to show that several processes send the same items.

        The ranks of one training share the items out. A sampler that pads gives each rank one item again.
        """
        if self.pooled or client_id is None or record.items is None or record.mode == PROBE_SET_MODE:
            return False
        self.ids_of = self.ids_of or Key.of(record)
        if Key.of(record) != self.ids_of:
            return False
        items = {item for item in record.items.tolist() if item >= 0}  # others have no known place
        others = [ids for client, ids in self.ids.items() if client != client_id]
        self.repeated_ids += sum(any(item in ids for ids in others) for item in items)
        known = sum(map(len, self.ids.values()))
        own = self.ids.setdefault(client_id, set())
        if known < MOST_IDS:
            own |= items
        self.pooled = self.repeated_ids > max(len(self.ids), known // 100)
        return self.pooled

    def hand_on(
        self,
        main_mode: str,
        clients: tuple[str, ...],
        began: float,
        *,
        evicting: Sequence[Key] | None = None,
        before: Callable[[Key], Previous] = lambda key: None,
    ) -> list[DataPoint]:
        """Return the fresh data points. They stay in the window, so that late rows can join them.

        Args:
            main_mode: The mode of the run's first record.
            clients: The ids of the run's clients.
            began: The time of the run's first request, in seconds.
            evicting: Data points to return in place of the fresh ones, as they are about to be evicted.
            before: Returns the (epoch, step) before this one of a data point in an earlier epoch.
        """
        out = []
        damaged = f"{self.short} arrays {DAMAGED}" if self.short else ""
        if self.doubtful and not self.short and not self.counted:
            damaged = f"arrays may have been {DAMAGED}"
        cut_short = CUT_SHORT if evicting is not None and not self.closed else ""
        passed_on = list(self.fresh) if evicting is None else evicting
        for key in passed_on:
            kind, blocks = key.shown_kind(main_mode), tuple(self.points[key])
            lacks = joined(self._missing(key), damaged, cut_short) or (EVICTED if key in self.lost else "")
            unsaid = self.unsaid if _needs_end(key) and not cut_short else ""
            (self.noted.add if lacks else self.noted.discard)(key)
            serial = self.awaited[key] = next(_serials)
            tally = self.tallies.setdefault(key, Tally())
            tally.handed = tally.arrived
            of_run = clients, began, self.attempt, before(key)
            pooled = self.pooled and key.mode == (self.ids_of or key).mode and blocks[0].items is not None
            facts = (*of_run, pooled, self.training, self.arrived or math.inf, self.numbers[key])
            lacks = joined(lacks, unsaid)
            out.append(DataPoint(key, kind, self.epoch, self.step, blocks, lacks, serial, *facts))
        self.handed.update(passed_on)
        for key in passed_on:
            self.fresh.pop(key, None)
        return out

    def _missing(self, key: Key) -> str:
        """Return what is missing of a data point, or of all of its kind and mode, in words; "" if nothing."""
        return joined(self.lacks, absent(self.absent.get(key.source, {})))

    def follow(self, key: Key, previous: Previous) -> None:
        """Note the (epoch, step) before this one of a data point that is passed on for the first time."""
        if self.preceding.setdefault(None, previous) != previous:
            self.preceding[key] = previous

    def previous(self, key: Key) -> Previous:
        """Return the (epoch, step) before this one of a data point that was passed on."""
        return self.preceding.get(key, self.preceding.get(None))

    def touch(self, now: float) -> None:
        """Note the time of a record."""
        self.arrived = self.touched = now

    def reload(self, records: list[Record], head: Mapping[str, Any]) -> None:
        """Replace the contents by these records, as they were when the journal got them.

        Args:
            records: The records.
            head: What ``reload_head`` returned then; of a window that was done, empty.
        """
        self.points, self.fresh, self.nbytes, self.evicted = {}, {}, 0, {}
        self.short = head.get("short", 0)
        for record in records:
            self.add(record)
        self.scored -= self.points.keys()
        # of a window that was done, the arrays were counted before
        self.tallies = {Key(*key): Tally(arrived=arrived) for key, arrived in head.get("arrived", ())}
        self.has_outcomes = False

    def reload_head(self) -> dict[str, Any]:
        """Return what ``reload`` needs beside the records, as JSON."""
        held = self.points.keys() | self.evicted.keys()
        arrived = [[list(key), tally.arrived] for key, tally in self.tallies.items() if key in held]
        return {"again": True, "short": self.short, "arrived": arrived}

    def records(self) -> Iterator[Record]:
        """Yield all records in memory, also evicted ones whose scores are not stored yet."""
        for blocks in (self.evicted | self.points).values():
            yield from blocks

    def end(self) -> None:
        """Note that nothing more is expected; what was passed on as whole and is not is passed on again."""
        if not self.closed:
            whole = self.handed - self.noted
            self.fresh |= dict.fromkeys(key for key in self.points if key in whole and self._missing(key))
        self.closed = True

    def state_end(self, unsaid: str) -> None:
        """Note who has not said that the epoch ended; what was passed on with another note is again."""
        if unsaid != self.unsaid:
            self.fresh |= dict.fromkeys(key for key in self.points if key in self.handed and _needs_end(key))
            self.unsaid = unsaid

    def doubted_by_eviction(self) -> list[Key]:
        """Return the data points that were passed on before, and must be once more before an eviction.

        Those that got more arrays since are scored as the part that they were then, and those of an epoch
        that goes on would be taken for whole.
        """
        doubted = self.handed & self.fresh.keys()
        if not self.closed:
            doubted |= self._batched() & (self.handed - self.noted)
        return [key for key in self.points if key in doubted]

    def evict(self) -> int:
        """Free the arrays; return the number of those that were not passed on."""
        batched = self._batched()
        self.scored |= batched & self.handed
        self.lost |= batched - self.handed
        for key in batched - self.handed:
            self.skipped[key] = self.skipped.get(key, 0) + arrays_in(self.points[key])
        unscored = sum(self.tallies[key].drop() for key in self.fresh if key in self.tallies)
        for key in self.points.keys() & self.awaited.keys():
            handed = self.tallies[key].handed if key in batched else None
            self.evicted[key] = self.points[key][:handed]
        self.points, self.fresh, self.nbytes = {}, {}, 0
        return unscored

    @property
    def open_arrays(self) -> int:
        """Number of arrays that were not passed on yet."""
        return sum(tally.arrived - tally.handed for tally in map(self.tallies.get, self.fresh) if tally)

    def settle(self, key: Key, arrays: int, *, scored: bool) -> tuple[int, int]:
        """Note the outcome of a data point's first arrays; return by how much (scored, failed) changed."""
        if key not in self.tallies:
            return 0, 0
        self.has_outcomes = True
        return self.tallies[key].settle(arrays, scored=scored)

    def outcomes_to_repeat(self) -> tuple[int, int]:
        """Return how many scored and failed arrays a server that starts from the journal scores again."""
        if not self.has_outcomes or self.is_disposable:
            return 0, 0
        done = self.scored - self.awaited.keys()
        outcomes = [tally.outcome for key, tally in self.tallies.items() if key not in done]
        return sum(scored for scored, _ in outcomes), sum(failed for _, failed in outcomes)

    def snapshot(self) -> dict[str, Any]:
        """Return the state without the arrays, as JSON. The names are those of the journal's format."""
        scored = self.scored | (self._batched() if self.is_done else set())
        return {
            "mark": list(self.window_key),
            "epoch": self.epoch,
            "step": self.step,
            "lacks": self.lacks,
            "unsaid": self.unsaid,
            "pooled": self.pooled,
            "closed": self.closed,
            "counted": self.counted,
            "over": self.is_done,
            "arrived": self.arrived,
            "lost": [list(key) for key in self.lost],
            "scored": [list(key) for key in scored - self.awaited.keys()],
            "left": [[list(key), *range_] for key, range_ in self._left().items()],
        }

    def _left(self) -> dict[Key, tuple[int, int]]:
        """Return, for each data point that was evicted, which of its arrays are left: the first, how many.

        The journal has the others too: those that came before an eviction, and those that were refused
        because the data point was passed on.
        """
        keys = dict.fromkeys([*self.lost, *(self.evicted.keys() & self.scored)])
        held = self.evicted | self.points
        return {key: (self.skipped.get(key, 0), arrays_in(held.get(key, ()))) for key in keys}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restore a snapshot, and free the arrays of data points that it newly marks as scored or lost."""
        self.lacks, self.closed = snapshot["lacks"], snapshot["closed"]
        self.pooled = snapshot.get("pooled", False)  # older versions did not store it
        self.counted = snapshot.get("counted", False)  # likewise
        self.unsaid = snapshot.get("unsaid", "")  # likewise
        arrived = snapshot.get("arrived", snapshot.get("times", (0.0,))[-1])  # and then with the first time
        self.arrived = max(arrived, self.arrived)
        lost, scored = ({Key(*key) for key in snapshot[name]} for name in ("lost", "scored"))
        left = {Key(*key): range_ for key, *range_ in snapshot.get("left", ())}  # older ones did not store it
        newly_lost = lost - self.lost - left.keys()
        freed = set(self.points) if snapshot["over"] else newly_lost | (scored - self.scored)
        kept = self.evicted.keys() - scored if not snapshot["over"] else set()
        self.evicted = {key: self.evicted[key] for key in kept}
        self.lost, self.scored = lost, scored | kept
        for key in freed & self.points.keys():
            self.nbytes -= sum(map(size_of, self.points.pop(key)))
            self.fresh.pop(key, None)
            self.tallies.pop(key, None)
        for key, (first, number) in left.items():
            self._keep(key, first, number)

    def _keep(self, key: Key, first: int, number: int) -> None:
        """Free the arrays of a data point but ``number``, from the one that came as number ``first``.

        Of sums of steps none can be taken out: they then have more steps than they had, of the same epoch.
        """
        before = self.skipped.get(key, 0)
        self.skipped[key] = max(first, before)
        for held in (self.points, self.evicted):
            blocks = held.get(key, [])
            if number and any(map(are_sums, blocks)):
                if key in self.tallies:
                    self.tallies[key].arrived = number
                continue
            kept = blocks[max(first - before, 0) : max(first + number - before, 0)]
            if len(kept) == len(blocks):
                continue
            held[key] = kept
            if key in self.tallies:
                self.tallies[key].arrived -= arrays_in(blocks) - arrays_in(kept)
            if held is self.points:
                self.nbytes -= sum(map(size_of, blocks)) - sum(map(size_of, kept))
        if not self.points.get(key, True):
            del self.points[key]
            self.fresh.pop(key, None)
        if not self.evicted.get(key, True):
            del self.evicted[key]

    def stored(self, key: Key) -> None:
        """Note that the scores of a data point are stored."""
        del self.awaited[key]
        self.evicted.pop(key, None)

    def reopen(self) -> None:
        """Mark all data points as not passed on, after a restart."""
        self.points, self.scored = self.evicted | self.points, self.scored - self.evicted.keys()
        self.nbytes = sum(map(size_of, self.records()))
        self.evicted, self.awaited = {}, {}
        self.fresh = dict.fromkeys(self.points)
        self.handed |= self.points.keys()  # before the restart there may have been scores of a part of them
        for tally in self.tallies.values():
            tally.handed = 0

    def compare(self, held: int, doubtful: bool) -> None:
        """Compare the records with what a snapshot says of them, after the frames before it were read."""
        self.short, self.doubtful = 0, doubtful
        self.short = max(held - self.held, 0)

    def _batched(self) -> set[Key]:
        """Return the data points of which every array counts, not the newest alone as of a parameter."""
        return {
            key
            for key, blocks in self.points.items()
            if blocks[0].batch_axis is not None or are_sums(blocks[0])
        }


def _needs_end(key: Key) -> bool:
    """Return whether a data point is whole only when its epoch ended; a pass of a probe set is by itself."""
    return key.mode != PROBE_SET_MODE
