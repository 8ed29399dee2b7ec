"""What passes between the servers: a complete data point, and a notice for a person."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core.record import Record


class Key(NamedTuple):
    """Whose arrays these are. ``output`` tells a module's first output from its second."""

    run: str
    model: str
    address: str
    kind: str
    output: int
    mode: str

    @classmethod
    def of(cls, record: Record) -> Key:
        """The key of a record."""
        return cls(record.run, record.model, record.address, record.kind, record.index, record.mode)

    def shown_kind(self, main_mode: str) -> str:
        """The kind as results name it: what is not of the run's main mode, or a second output, is another
        line of the plot.

        >>> Key("", "m", "fc1", "output", 0, "train").shown_kind("train")
        'output'
        >>> Key("", "m", "lstm", "output", 1, "eval").shown_kind("train")
        'output.1@eval'
        """
        index = f".{self.output}" if self.output else ""
        mode = f"@{self.mode}" if self.mode != main_mode else ""
        return self.kind + index + mode


@dataclass(frozen=True, slots=True, eq=False)
class DataPoint:
    """All the arrays one layer gave in one window, usually an epoch, as blocks in order of arrival.

    ``kind`` is what results call it. ``step`` is -1 unless windows are made per step; ``lacks`` says why
    some of the window's arrays are not in it. ``serial`` is its number among all that were handed on;
    ``clients`` are the ids of all who sent to its (run, model), whose first record came at ``began``, in
    seconds since 1970.
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

    @property
    def mode_shown(self) -> str:
        """The mode as results name it, "" for the run's main one."""
        return self.kind.partition("@")[2]

    @property
    def complete(self) -> bool:
        """Whether all the window's arrays are in it."""
        return not self.lacks

    @property
    def rows(self) -> int:
        """How many items the blocks hold together."""
        return sum(record.rows for record in self.records)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(size_of(record) for record in self.records)

    def digest(self) -> bytes:
        """A hash of all that scores depend on: arrays, rows' ids, what is missing."""
        sha = hashlib.blake2b(self.lacks.encode(), digest_size=16)
        for record in self.records:
            facts = record.array.dtype, record.array.shape, record.batch_axis, record.projected_from
            sha.update(repr(facts).encode())
            for part in (record.array, record.items, record.summary):
                if part is not None:
                    sha.update(np.ascontiguousarray(part).data)
        return sha.digest()


class Notice(NamedTuple):
    """Something a person should see: ``level`` is "info", "warning" or "error"."""

    code: str
    text: str
    level: str = "warning"
    run: str = ""
    model: str = ""


def size_of(record: Record) -> int:
    """Bytes a record holds: its array, the ids of its rows and what was measured of them."""
    beside = (part.nbytes for part in (record.items, record.summary) if part is not None)
    return record.array.nbytes + sum(beside)
