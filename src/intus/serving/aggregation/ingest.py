"""Validation of a request to ``/records``: its valid records and the envelope of the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...core.errors import InputError
from ...core.record import Record
from ...scores.statistics.sent import check_sent
from ...storage.codec import encode_records
from ..decoding import read
from ..messages import EpochReport, Notice, RecordFacts, RecordsEnvelope, RunQuery
from .run_state import run_keys_of
from .window import RunKey

_MOST_AXES = 8


class IngestRequest(NamedTuple):
    """A request to ``/records``.

    Attributes:
        records: The valid records.
        discarded: The invalid records.
        unusable: A notice for each invalid record.
        unread: A notice for each invalid report.
        envelope: The client's id, sequence number and valid reports.
        body: The body of the request, empty if it had another format.
    """

    records: list[Record]
    discarded: list[Record]
    unusable: list[Notice]
    unread: list[Notice]
    envelope: RecordsEnvelope
    body: bytes = b""

    @classmethod
    def read(cls, records: Sequence[Record], envelope: Mapping[str, Any], body: bytes = b"") -> IngestRequest:
        """Validate a request; raises InputError if the envelope or every record is invalid.

        A client reports the epochs of all its runs in each request, so one that is invalid is left out alone.
        """
        usable, discarded, unusable = _sift(records)
        reports, unread = _sift_reports(envelope.get("epochs", []))
        checked = read({**envelope, "epochs": reports}, RecordsEnvelope, "The envelope of the records: ")
        return cls(usable, discarded, unusable, unread, checked, body)

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


def _sift_reports(reports: Any) -> tuple[Any, list[Notice]]:
    """Return the valid reports of an envelope, and a notice for each invalid one."""
    if not isinstance(reports, list):
        return reports, []
    usable: list[EpochReport] = []
    unread: list[Notice] = []
    for number, report in enumerate(reports):
        try:
            usable.append(read(report, EpochReport, f"The envelope of the records: epochs[{number}]: "))
        except InputError as error:
            unread.append(Notice("refused", f"Refused: {error}", "warning", *_origin(report)))
    return usable, unread


def _origin(of: Any) -> RunKey:
    """Return the run and model of a record or a report, or empty names if they cannot be stored."""
    try:
        origin = read(of, RunQuery)
    except InputError:
        return "", ""
    return origin.run, origin.model
