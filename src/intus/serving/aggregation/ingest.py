"""A request to ``/records``, checked: the records that can be used, and what the client says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...core.errors import InputError
from ...core.record import Record
from ...storage.codec import encode_records
from ..decoding import read
from ..messages import Notice, RecordFacts, RecordsEnvelope, RunQuery
from .run_state import run_keys_of
from .window import RunKey

_MOST_AXES = 8


class IngestRequest(NamedTuple):
    """A request to ``/records``.

    Attributes:
        records: The records that can be used.
        discarded: The records that cannot.
        unusable: A notice for each of these.
        envelope: What the client says.
        body: The request as it came, empty if it came otherwise.
    """

    records: list[Record]
    discarded: list[Record]
    unusable: list[Notice]
    envelope: RecordsEnvelope
    body: bytes = b""

    @classmethod
    def read(cls, records: Sequence[Record], envelope: Mapping[str, Any], body: bytes = b"") -> IngestRequest:
        """Check a request; raises InputError if the envelope or none of its records can be used."""
        usable, discarded, unusable = _sift(records)
        said = read(envelope, RecordsEnvelope, "The envelope of the records: ")
        return cls(usable, discarded, unusable, said, body)

    @property
    def run_keys(self) -> list[RunKey]:
        """Every (run, model) that it has records or reports of."""
        return run_keys_of(self.records, self.envelope.epochs)

    def of(self, run_key: RunKey) -> list[Record]:
        """Return the records of one (run, model)."""
        return [record for record in self.records if (record.run, record.model) == run_key]

    def part(self, run_key: RunKey) -> bytes:
        """Return the part of one (run, model), as a request of its own."""
        if self.body and len(self.run_keys) == 1:
            return self.body
        return encode_records(self.of(run_key), self.envelope.part(run_key))


def check_record(record: Record) -> None:
    """Raise InputError for a record that later steps could not work with."""
    read(record, RecordFacts, f"The record at {record.address[:100]!r}: ")
    if record.array.ndim > _MOST_AXES:
        raise InputError(
            f"The array at {record.address!r} has {record.array.ndim} axes; it may have at most {_MOST_AXES}."
        )


def _sift(records: Sequence[Record]) -> tuple[list[Record], list[Record], list[Notice]]:
    """Return the records that can be used, the others, and a notice for each of the others.

    Raises InputError if none can be used.
    """
    usable: list[Record] = []
    discarded: list[Record] = []
    unusable: list[Notice] = []
    for record in records:
        try:
            check_record(record)
            usable.append(record)
        except InputError as error:
            if len(records) == len(unusable) + 1:
                raise
            discarded.append(record)
            unusable.append(Notice("refused", f"Refused: {error}", "warning", *_origin(record)))
    return usable, discarded, unusable


def _origin(record: Record) -> RunKey:
    """Return the record's run and model, or empty names if they cannot be stored."""
    try:
        origin = read(record, RunQuery)
    except InputError:
        return "", ""
    return origin.run, origin.model
