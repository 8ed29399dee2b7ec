"""What one request to ``/records`` brings: records that can be used, and what its sender says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...core.errors import InputError
from ...core.record import Record
from ...storage.codec import encode_records
from ..checks import check_count, check_record, check_text
from ..data_point import Notice
from .run_state import EpochReport, groups_of, read_epoch_reports
from .window import RunKey


class IngestRequest(NamedTuple):
    """A request, checked. ``body`` is how it came, empty where it came otherwise; records that cannot be used
    are ``discarded``, each with a notice in ``unusable``."""

    records: list[Record]
    discarded: list[Record]
    unusable: list[Notice]
    reports: list[EpochReport]
    envelope: Mapping[str, Any]
    body: bytes

    @classmethod
    def read(cls, records: Sequence[Record], envelope: Mapping[str, Any], body: bytes = b"") -> IngestRequest:
        """Check a request; raises InputError where none of its records can be used, or the envelope."""
        usable, discarded, unusable = _sift(records)
        if envelope.get("client") is not None:
            check_text(envelope["client"], "The envelope's client")
        for name in ("seq", "dropped"):
            if envelope.get(name) is not None:
                check_count(envelope[name], f"The envelope's {name}")
        return cls(usable, discarded, unusable, read_epoch_reports(envelope), envelope, body)

    @property
    def groups(self) -> list[RunKey]:
        """Every (run, model) that it has records of, or reports."""
        return groups_of(self.records, self.reports)

    @property
    def sender(self) -> tuple[str | None, int | None]:
        """The client, and the number of its request."""
        return self.envelope.get("client"), self.envelope.get("seq")

    def of(self, group: RunKey) -> list[Record]:
        """One (run, model)'s records."""
        return [record for record in self.records if (record.run, record.model) == group]

    def part(self, group: RunKey) -> bytes:
        """One (run, model)'s part, as a request of its own."""
        if self.body and len(self.groups) == 1:
            return self.body
        epochs = [row for row in self.envelope.get("epochs", []) if (row["run"], row["model"]) == group]
        return encode_records(self.of(group), dict(self.envelope) | {"epochs": epochs})


def _sift(records: Sequence[Record]) -> tuple[list[Record], list[Record], list[Notice]]:
    """The records that can be used, the others, and a notice for each of those; raises InputError when there
    are only others."""
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
    """The record's run and model, where they can be stored."""
    try:
        return check_text(record.run, "run"), check_text(record.model, "model")
    except InputError:
        return "", ""
