"""The counts of records that the client reports for each epoch."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from intus.monitoring import flush, probe
from intus.monitoring.sent_counts import REMEMBERED, EpochKey, SentCounts

KEY = EpochKey("r", "m", 0)


def test_counts_are_reported_until_acknowledged():
    counts = SentCounts()
    counts.sent(KEY)
    (news,) = counts.unacknowledged()
    assert (news["sent"], news["ended"]) == (1, False)
    counts.sent(KEY)
    counts.acknowledge([news])
    assert [row["sent"] for row in counts.unacknowledged()] == [2]
    counts.acknowledge(counts.unacknowledged())
    assert counts.unacknowledged() == []
    assert [row["sent"] for row in counts.unacknowledged({KEY})] == [2]


def test_lost_records_count_as_dropped():
    counts = SentCounts()
    counts.sent(KEY)
    counts.sent(KEY)
    counts.lost(KEY)
    counts.dropped(KEY)
    assert [(row["sent"], row["dropped"]) for row in counts.unacknowledged()] == [(1, 2)]


def test_restarted_epoch_resets_counts():
    counts = SentCounts()
    for epoch in range(3):
        counts.sent(KEY._replace(epoch=epoch))
        counts.end(KEY._replace(epoch=epoch))
    counts.begin(KEY._replace(epoch=1))
    counts.sent(KEY._replace(epoch=1))
    rows = [(row["training"], row["epoch"], row["sent"], row["total"]) for row in counts.unacknowledged()]
    assert rows == [(0, 0, 1, 3), (0, 1, 1, 3), (0, 2, 1, 3), (1, 1, 1, 4)]


def test_acknowledged_epochs_are_pruned():
    counts = SentCounts()
    for epoch in range(100):
        counts.sent(KEY._replace(epoch=epoch))
        counts.end(KEY._replace(epoch=epoch))
        counts.acknowledge(counts.unacknowledged())
    assert len(counts._counts) == REMEMBERED


def test_probe_reports_end_of_epoch_and_removal(server):
    model = nn.Linear(3, 2)
    with probe(model, "127.0.0.1", server.port, run="r", name="m", structure=False) as watch:
        for watch.epoch in range(2):
            for _ in range(3):
                model(torch.ones(4, 3))
        assert flush("127.0.0.1", server.port)
    assert flush("127.0.0.1", server.port)
    reported = {}
    for _, envelope in server.batches():
        for row in envelope["epochs"]:
            reported.setdefault(row["epoch"], []).append((row["sent"], row["ended"], row["left"]))
    assert [sent for sent, *_ in reported[0]] == sorted(sent for sent, *_ in reported[0])
    assert reported[0][-1] == (3, True, True)
    assert reported[1][-1] == (3, True, True)
    assert (3, True, False) in reported[0]


def test_retry_is_identical(server):
    """The first attempt may have arrived, so the server takes the second for a repetition."""
    server.cut = iter([True, False] + [False] * 50).__next__
    model = nn.Linear(3, 2)
    with probe(model, "127.0.0.1", server.port, structure=False) as watch:
        for watch.epoch in range(3):
            model(torch.ones(4, 3))
        assert flush("127.0.0.1", server.port)
    by_seq = {}
    for _, envelope in server.batches():
        by_seq.setdefault(envelope["seq"], []).append(envelope)
    assert len(by_seq[1]) == 2
    assert all(again == first for first, *others in by_seq.values() for again in others)


def test_refused_records_count_as_dropped(server):
    server.answer = lambda path: 400
    model = nn.Linear(3, 2)
    with probe(model, "127.0.0.1", server.port, structure=False) as watch:
        model(torch.ones(4, 3))
        flush("127.0.0.1", server.port)
        server.answer = lambda path: 200
        watch.epoch = 1
        model(torch.from_numpy(np.ones((4, 3), np.float32)))
    assert not flush("127.0.0.1", server.port)  # what was refused is never scored
    (row,) = [row for row in server.batches()[-1][1]["epochs"] if row["epoch"] == 0][-1:] or [None]
    assert (row["sent"], row["dropped"], row["ended"]) == (0, 1, True)
    assert row["reasons"] == ["the server refused them: no thanks"]
