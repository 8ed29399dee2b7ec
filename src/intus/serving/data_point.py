"""A complete data point: what the aggregator hands to the evaluator, and what is scored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core.errors import InputError
from ..core.record import KIND_LABELS, Record
from .messages import PointEnvelope


class Key(NamedTuple):
    """Which arrays belong together. ``output`` distinguishes a module's first output from its second."""

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

    def shown_kind(self, main_mode: str) -> str:
        """Return the kind as results name it, with the output and the mode where they are not the usual ones.

        >>> Key("", "m", "fc1", "output", 0, "train").shown_kind("train")
        'output'
        >>> Key("", "m", "lstm", "output", 1, "eval").shown_kind("train")
        'output.1@eval'
        """
        index = f".{self.output}" if self.output else ""
        mode = f"@{self.mode}" if self.mode != main_mode else ""
        return self.kind + index + mode


def kind_label(kind: str) -> str:
    """Return how people call a kind that ``Key.shown_kind`` returned.

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
    """All the arrays that one layer gave in one window, usually an epoch.

    Attributes:
        key: Which arrays they are.
        kind: The kind as results name it.
        epoch: The epoch, None where unknown.
        step: The step, -1 unless windows are made per step.
        records: The arrays, in order of arrival.
        lacks: Why some of the window's arrays are missing; empty if none are.
        serial: Its number among all that were handed on.
        clients: The ids of all clients that sent to its (run, model).
        began: When the first record of its (run, model) came, in seconds since 1970.
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

    @classmethod
    def read(cls, records: Sequence[Record], envelope: PointEnvelope) -> DataPoint:
        """Return the data point that was sent; raises InputError for records that do not belong together."""
        keys = {Key.of(record) for record in records}
        if len(keys) != 1:
            raise InputError(
                f"The records of a data point must have one address, kind, mode and output, got {len(keys)}."
            )
        said = envelope
        return cls(
            keys.pop(),
            said.kind,
            records[0].epoch,
            said.step,
            tuple(records),
            said.lacks,
            clients=tuple(said.clients),
            began=said.began,
        )

    def envelope(self, *, last: bool) -> PointEnvelope:
        """Return what travels beside the records; ``last`` if it is the last of its batch."""
        clients = list(self.clients)
        return PointEnvelope(self.kind, self.step, self.lacks, last, clients, self.began)

    @property
    def mode_shown(self) -> str:
        """The mode as results name it, "" for the main mode of the run."""
        return self.kind.partition("@")[2]

    @property
    def complete(self) -> bool:
        """Whether none of the window's arrays are missing."""
        return not self.lacks

    @property
    def rows(self) -> int:
        """Number of items in all arrays together."""
        return sum(record.rows for record in self.records)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(size_of(record) for record in self.records)

    def digest(self) -> bytes:
        """Return a hash of all that its scores depend on: arrays, ids of the rows, what is missing."""
        sha = hashlib.blake2b(self.lacks.encode(), digest_size=16)
        for record in self.records:
            facts = record.array.dtype, record.array.shape, record.batch_axis, record.projected_from
            sha.update(repr(facts).encode())
            for part in (record.array, record.items, record.summary):
                if part is not None:
                    sha.update(np.ascontiguousarray(part).data)
        return sha.digest()


def size_of(record: Record) -> int:
    """Return the bytes of a record: its array, the ids of its rows and what was measured of them."""
    beside = (part.nbytes for part in (record.items, record.summary) if part is not None)
    return record.array.nbytes + sum(beside)
