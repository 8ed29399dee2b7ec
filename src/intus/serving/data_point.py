"""A complete data point, which the aggregator sends to the evaluator to be scored."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..core.errors import InputError
from ..core.notes import joined
from ..core.record import KIND_LABELS, Record
from ..scores.statistics.summed import are_sums
from .messages import MomentMessage, PointEnvelope
from .schedule import Moment, Place

#: The note on scores of the rest of an epoch.
PART = "a part of the epoch: the training was resumed inside of it"
#: The words for data of which some rows of a data point are, if it is known of others.
_UNKNOWN_DATA = "unknown data"


#: The kind and the mode of records: a layer may have some of one and none of another.
Source = tuple[str, str]


class Key(NamedTuple):
    """The key of a data point: records with equal keys belong together.

    Attributes:
        run: The run.
        model: The model.
        address: The layer.
        kind: The kind of record.
        output: The number of the module's output, from 0.
        mode: The mode, such as "train".
    """

    run: str
    model: str
    address: str
    kind: str
    output: int
    mode: str

    @classmethod
    def of(cls, record: Record) -> Key:
        """Return the key of a record."""
        return cls(record.run, record.model, record.address, record.kind, record.index, record.mode)

    @property
    def source(self) -> Source:
        """The kind and the mode."""
        return self.kind, self.mode

    def shown_kind(self, main_mode: str) -> str:
        """Return the kind in results, with the output unless it is the first and the mode unless it is main.

        >>> Key("", "m", "fc1", "output", 0, "train").shown_kind("train")
        'output'
        >>> Key("", "m", "lstm", "output", 1, "eval").shown_kind("train")
        'output.1@eval'
        """
        index = f".{self.output}" if self.output else ""
        mode = f"@{self.mode}" if self.mode != main_mode else ""
        return self.kind + index + mode

    @property
    def series(self) -> str:
        """The kind and the mode in words: a layer may have scores of one and none of another.

        >>> Key("", "m", "fc1", "output", 0, "train").series
        'output in mode train'
        """
        return kind_label(self.shown_kind(""))

    @property
    def layer(self) -> str:
        """The layer with the kind and the mode, for sentences that hold for these alone.

        >>> Key("", "m", "fc1", "grad_output", 0, "train").layer
        "'fc1' (gradient of the output in mode train)"
        """
        return f"{self.address!r} ({self.series})"

    @property
    def layer_of_model(self) -> str:
        """The same with the model.

        >>> Key("", "m", "fc1", "output", 0, "eval").layer_of_model
        "'fc1' of 'm' (output in mode eval)"
        """
        return f"{self.address!r} of {self.model!r} ({self.series})"


def kind_label(kind: str) -> str:
    """Return the name, for people, of a kind that ``Key.shown_kind`` returned.

    >>> kind_label("grad_output@eval")
    'gradient of the output in mode eval'
    >>> kind_label("output.1")
    'output no. 2'
    """
    rest, _, mode = kind.partition("@")
    name, _, index = rest.partition(".")
    number = f" no. {int(index) + 1}" if index.isdecimal() else ""
    return KIND_LABELS.get(name, name) + number + (f" in mode {mode}" if mode else "")


@dataclass(frozen=True, slots=True, eq=False)
class DataPoint:
    """All records of one key in one window, usually an epoch.

    Attributes:
        key: The key of the records.
        kind: The kind in results.
        epoch: The epoch, None if unknown.
        step: The step, -1 unless windows are per step.
        records: The records, in order of arrival.
        lacks: The reason why records of the window are missing; empty if none are.
        serial: Its number among all data points that were passed on.
        clients: The ids of all clients of its (run, model).
        began: The time of the first request of its (run, model), in seconds since 1970.
        attempt: How often the training had been started again under the same name.
        previous: The (epoch, step) before it of the same key in an earlier epoch; None if there was none.
        pooled: Whether several processes sent rows of the same items.
        training: The time of the first request of its training, in seconds since 1970; NaN if unknown.
        arrived: The time of the last array of its window, in seconds since 1970; infinite if unknown. It is
            scored on the labels that were registered then.
        number: Its number among the data points of its window, by the first array: the network's order.
    """

    key: Key
    kind: str
    epoch: float | None
    step: int
    records: tuple[Record, ...]
    lacks: str = ""
    serial: int = 0
    clients: tuple[str, ...] = ()
    began: float = 0.0
    attempt: int = 0
    previous: tuple[float, int] | None = None
    pooled: bool = False
    training: float = math.nan
    arrived: float = math.inf
    number: int = 0

    @classmethod
    def read(cls, records: Sequence[Record], envelope: PointEnvelope) -> DataPoint:
        """Create a data point from a request; raises InputError if the records have different keys."""
        keys = {Key.of(record) for record in records}
        if len(keys) != 1:
            raise InputError(
                f"The records of a data point must have one address, kind, mode and output, got {len(keys)}."
            )
        return cls(
            keys.pop(),
            envelope.kind,
            records[0].epoch,
            envelope.step,
            tuple(records),
            envelope.lacks,
            clients=tuple(envelope.clients),
            began=envelope.began,
            attempt=envelope.attempt,
            previous=envelope.previous,
            pooled=envelope.pooled,
            training=envelope.training or math.nan,
            arrived=envelope.arrived or math.inf,
            number=envelope.number,
        )

    def envelope(self, *, last: bool, waiting: Moment | None = None) -> PointEnvelope:
        """Return the envelope to send with the records.

        Args:
            last: Whether it is the last of its batch.
            waiting: The earliest epoch of its run of which others wait at the sender.
        """
        return PointEnvelope(
            self.kind,
            self.step,
            self.lacks,
            last,
            clients=list(self.clients),
            began=self.began,
            attempt=self.attempt,
            previous=self.previous,
            pooled=self.pooled,
            number=self.number,
            arrived=self.arrived if math.isfinite(self.arrived) else 0.0,
            training=self.training if math.isfinite(self.training) else 0.0,
            waiting=MomentMessage.of(waiting),
        )

    @property
    def place(self) -> Place:
        """Its place in the order of scoring."""
        epoch = -math.inf if self.epoch is None else self.epoch
        return Place(self.key.run, self.key.model, Moment(self.attempt, epoch, self.step), self.key.address)

    @property
    def identity(self) -> tuple[Key, float | None, int]:
        """Key that its scores are stored under: a data point of the same key replaces them."""
        return self.key, self.epoch, self.step

    @property
    def mode_shown(self) -> str:
        """The mode in results, "" for the main mode of the run."""
        return self.kind.partition("@")[2]

    @property
    def doubt(self) -> str:
        """A note on all of its scores: what is missing, and what was put together that may differ."""
        notes = [f"incomplete: {self.lacks}"] if self.lacks else []
        if self.pooled:
            notes.append("several processes sent rows of the same items, and each row counts")
        cut = [(record.rows, record.cut_from) for record in self.records if record.cut_from is not None]
        if cut:
            rows, of = min(cut)
            notes.append(f"the first {rows} of {of} rows: a pass exceeds the queue")
        if any(record.of_pass.is_part for record in self.records):
            notes.append(PART)
        if of_several := _of_several(self.records):
            notes.append(of_several)
        if (turns := len({record.of_pass.turn for record in self.records})) > 1:
            notes.append(f"of {turns} evaluations in one epoch, between which the model changed")
        return joined(*notes)

    @property
    def has_copies(self) -> bool:
        """True if many items of its dataset are known to be exact copies of others."""
        return any(record.of_pass.has_copies for record in self.records)

    @property
    def complete(self) -> bool:
        """True if no records of the window are missing."""
        return not self.lacks

    @property
    def of_statistics(self) -> bool:
        """True if statistics of rows were sent, and not the rows.

        Raises:
            InputError: If some records have statistics and others have not.
        """
        found = {record.statistics is not None and not are_sums(record) for record in self.records}
        if len(found) > 1:
            raise InputError(
                f"Rows of {self.key.address!r} were sent by some processes or passes, statistics by others, "
                "which cannot be put together. Give all processes the same statistics= and ranks=, and all "
                "passes item ids and labels that fit; or leave statistics out."
            )
        return found == {True}

    @property
    def rows(self) -> int:
        """Number of items in all arrays together."""
        return sum(record.rows for record in self.records)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(size_of(record) for record in self.records)

    def digest(self) -> bytes:
        """Return a hash of all that its scores and what is said of them depend on, but for its layer.

        The mode counts, since the epoch before that scores compare it with is one of the same mode.
        """
        about = f"{self.key.series}; {self.lacks}{'; pooled' * self.pooled}"
        sha = hashlib.blake2b(about.encode(), digest_size=16)
        for record in self.records:
            array = record.array
            of_pass = record.step, record.cut_from, record.of_pass, record.channels_first
            facts = array.dtype, array.shape, record.batch_axis, record.projected_from, of_pass
            sha.update(repr(facts).encode())
            for part in (array, record.items, record.summary):
                if part is not None:
                    sha.update(np.ascontiguousarray(part).data)
            if record.statistics is not None:
                sha.update(repr(record.statistics.facts).encode())
                for name, part in sorted(record.statistics.arrays.items()):
                    sha.update(name.encode() + np.ascontiguousarray(part).data)
        return sha.digest()

    def of_rows(self) -> DataPoint | None:
        """Return it with arrays of (rows, features), from which all scores follow that know no positions.

        It is None if the axes of its arrays count: blocks of other lengths, or no rows along the first axis.
        It is the data point itself if its arrays have this shape.
        """
        records = self.records
        if self.of_statistics or any(record.batch_axis != 0 for record in records):
            return None
        if len({record.array.shape[1:] for record in records}) > 1:
            return None
        if all(record.array.ndim == 2 for record in records):
            return self
        flat = tuple(replace(record, array=record.features()) for record in records)
        return replace(self, records=flat)


def _of_several(records: Sequence[Record]) -> str:
    """Return a note that says of which data records are, and how many rows of each; "" if of one.

    Processes of one training number their data alike, also if their words differ, as of shards.
    """
    words: dict[int, str] = {}
    passes: dict[tuple[int, int], int] = {}
    for place, record in enumerate(records):
        data, sent = record.of_pass.data, record.statistics
        words.setdefault(data, record.of_pass.rows_of or "unknown data")
        # statistics of a pass may come twice, by item and by position
        which = place if sent is None or record.step is None else -1 - record.step
        rows = record.rows if sent is None else sent.facts["rows"]
        passes[data, which] = max(passes.get((data, which), 0), rows)
    if len(words) <= 1:
        is_unsure = any(record.of_pass.is_unsure for record in records)
        return f"perhaps of several data: of {words.popitem()[1]}" if is_unsure else ""
    counts = {each: sum(rows for (data, _), rows in passes.items() if data == each) for each in words}
    return f"of {' and '.join(f'{rows:,} rows of {words[data]}' for data, rows in counts.items())}"


def with_last(batch: Sequence[DataPoint]) -> list[tuple[DataPoint, bool]]:
    """Return the data points, each with whether it is the last one of its epoch of its run among them."""
    last = {point.place[:3]: number for number, point in enumerate(batch)}
    return [(point, last[point.place[:3]] == number) for number, point in enumerate(batch)]


def size_of(record: Record) -> int:
    """Return the bytes of a record: its array, item ids, summary and statistics."""
    parts = record.items, record.summary, record.statistics
    beside = (part.nbytes for part in parts if part is not None)
    return record.array.nbytes + sum(beside)
