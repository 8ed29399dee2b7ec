"""Validation of a request to ``/records``: its valid records and the envelope of the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...core.errors import InputError
from ...core.record import Record
from ...scores.statistics.sent import check_sent
from ...storage.codec import encode_records
from ..decoding import read
from ..messages import Notice, RecordFacts, RecordsEnvelope, RunQuery
from .run_state import run_keys_of
from .window import RunKey

_MOST_AXES = 8


class IngestRequest(NamedTuple):
    """A request to ``/records``.

    Attributes:
        records: The valid records.
        discarded: The invalid records.
        unusable: A notice for each invalid record.
        envelope: The client's id, sequence number and reports.
        body: The body of the request, empty if it had another format.
    """

    records: list[Record]
    discarded: list[Record]
    unusable: list[Notice]
    envelope: RecordsEnvelope
    body: bytes = b""

    @classmethod
    def read(cls, records: Sequence[Record], envelope: Mapping[str, Any], body: bytes = b"") -> IngestRequest:
        """Validate a request; raises InputError if the envelope or every record is invalid."""
        usable, discarded, unusable = _sift(records)
        checked = read(envelope, RecordsEnvelope, "The envelope of the records: ")
        return cls(usable, discarded, unusable, checked, body)

    @property
    def run_keys(self) -> list[RunKey]:
        """Every (run, model) that it has records or reports of."""
        return run_keys_of(self.records, self.envelope.epochs)

    def of(self, run_key: RunKey) -> list[Record]:
        """Return the records of one (run, model)."""
        return [record for record in self.records if (record.run, record.model) == run_key]

    def part(self, run_key: RunKey) -> bytes:
        """Return the part of one (run, model) as the body of a separate request."""
        if self.body and len(self.run_keys) == 1:
            return self.body
        return encode_records(self.of(run_key), self.envelope.part(run_key))


def check_record(record: Record) -> None:
    """Raise InputError for a record that cannot be scored or stored."""
    read(record, RecordFacts, f"The record at {record.address[:100]!r}: ")
    if record.array.ndim > _MOST_AXES:
        raise InputError(
            f"The array at {record.address!r} has {record.array.ndim} axes; it may have at most {_MOST_AXES}."
        )
    check_sent(record)


def _sift(records: Sequence[Record]) -> tuple[list[Record], list[Record], list[Notice]]:
    """Return the valid records, the invalid ones, and a notice for each invalid one.

    Raises InputError if all are invalid.
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
