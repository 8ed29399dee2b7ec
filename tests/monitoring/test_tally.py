"""What the client says of its epochs."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from intus.monitoring import flush, probe
from intus.monitoring.sent_counts import REMEMBERED, EpochKey, SentCounts

SPAN = EpochKey("r", "m", 0)


def test_news_are_told_until_they_are_known():
    tallies = SentCounts()
    tallies.sent(SPAN)
    (news,) = tallies.news()
    assert (news["sent"], news["ended"]) == (1, False)
    tallies.sent(SPAN)
    tallies.told([news])
    assert [row["sent"] for row in tallies.news()] == [2]
    tallies.told(tallies.news())
    assert tallies.news() == []
    assert [row["sent"] for row in tallies.news({SPAN})] == [2]


def test_what_did_not_arrive_was_dropped():
    tallies = SentCounts()
    tallies.sent(SPAN)
    tallies.sent(SPAN)
    tallies.lost(SPAN)
    tallies.dropped(SPAN)
    assert [(row["sent"], row["dropped"]) for row in tallies.news()] == [(1, 2)]


def test_going_back_counts_anew():
    tallies = SentCounts()
    for epoch in range(3):
        tallies.sent(SPAN._replace(epoch=epoch))
        tallies.end(SPAN._replace(epoch=epoch))
    tallies.begin(SPAN._replace(epoch=1))
    assert [row["epoch"] for row in tallies.news()] == [0]


def test_old_epochs_are_forgotten():
    tallies = SentCounts()
    for epoch in range(100):
        tallies.sent(SPAN._replace(epoch=epoch))
        tallies.end(SPAN._replace(epoch=epoch))
        tallies.told(tallies.news())
    assert len(tallies._of) == REMEMBERED


def test_a_probe_says_when_an_epoch_ended_and_when_it_is_removed(server):
    model = nn.Linear(3, 2)
    with probe(model, "127.0.0.1", server.port, run="r", name="m", structure=False) as watch:
        for watch.epoch in range(2):
            for _ in range(3):
                model(torch.ones(4, 3))
        assert flush("127.0.0.1", server.port)
    assert flush("127.0.0.1", server.port)
    said = {}
    for _, envelope in server.batches():
        for row in envelope["epochs"]:
            said.setdefault(row["epoch"], []).append((row["sent"], row["ended"], row["left"]))
    assert [sent for sent, *_ in said[0]] == sorted(sent for sent, *_ in said[0])
    assert said[0][-1] == (3, True, True)
    assert said[1][-1] == (3, True, True)
    assert (3, True, False) in said[0]


def test_a_second_try_says_the_same_as_the_first(server):
    """The server may have heard the first: it would take the second for a repetition."""
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


def test_records_that_were_refused_count_as_dropped(server):
    server.answer = lambda path: 400
    model = nn.Linear(3, 2)
    with probe(model, "127.0.0.1", server.port, structure=False) as watch:
        model(torch.ones(4, 3))
        flush("127.0.0.1", server.port)
        server.answer = lambda path: 200
        watch.epoch = 1
        model(torch.from_numpy(np.ones((4, 3), np.float32)))
    assert flush("127.0.0.1", server.port)
    (row,) = [row for row in server.batches()[-1][1]["epochs"] if row["epoch"] == 0][-1:] or [None]
    assert (row["sent"], row["dropped"], row["ended"]) == (0, 1, True)
