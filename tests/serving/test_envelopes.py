"""Envelopes of records, which report the epochs of all runs of a client."""

from __future__ import annotations

import pytest
from serving_help import record

from intus.core.errors import InputError
from intus.serving.aggregation.ingest import IngestRequest
from intus.storage.codec import decode_records, encode_records

GOOD = {"run": "r", "model": "m", "epoch": 0, "sent": 1, "ended": True}


@pytest.mark.parametrize("name", ["a\0b", "\ud800x", "L" * 1001, 3])
def test_report_that_is_invalid_is_left_out_alone(name):
    reports = [GOOD | {"run": name}, GOOD, {"model": "m"}]
    body = encode_records([record()], {"client": "c", "seq": 1, "epochs": reports})
    request = IngestRequest.read(*decode_records(body), body)
    assert [report.run_key for report in request.envelope.epochs] == [("r", "m")]
    assert len(request.records) == 1
    first, last = request.unread
    assert "epochs[0]: run must be a string of at most 1,000 characters" in first.text
    assert "epochs[2]: run is missing" in last.text
    first.text.encode()
    assert (first.run, first.model) == ("", "")


@pytest.mark.parametrize("epochs", [None, 3, {"run": "r"}])
def test_reports_that_are_no_list_are_refused(epochs):
    with pytest.raises(InputError, match="epochs must be a list"):
        IngestRequest.read([record()], {"epochs": epochs})
