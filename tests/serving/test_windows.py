"""The end of epochs: complete by their clients' reports, or incomplete after the grace time."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_help import record

from intus.core.errors import InputError
from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.run_state import IntRanges
from intus.serving.decoding import read
from intus.serving.messages import EpochReport, RecordsEnvelope


def numbered(number, **facts):
    return record(array=np.full((2, 3), number, dtype=np.float32), **facts)


def said(epoch, sent=0, dropped=0, ended=False, left=False):
    return EpochReport("r", "m", epoch, sent, dropped, ended, left)


class Client:
    """A client that counts and reports as the real one does."""

    def __init__(self, aggregator, name="c") -> None:
        self.aggregator, self.name, self.seq, self.counts = aggregator, name, 0, Counter()

    def request(self, epoch, *numbers, ended=False, left=False, dropped=0):
        """Return a request, to be delivered later."""
        self.seq += 1
        self.counts[epoch] += len(numbers)
        report = said(epoch, self.counts[epoch], dropped, ended, left)
        return [numbered(n, epoch=epoch) for n in numbers], self.seq, report

    def deliver(self, request, now=0.0):
        records, seq, report = request
        return self.aggregator.accept(records, self.name, seq, 0, reports=[report], now=now)

    def send(self, epoch, *numbers, now=0.0, **facts):
        return self.deliver(self.request(epoch, *numbers, **facts), now)


def rows(points):
    return {p.epoch: sorted(int(r.array.flat[0]) for r in p.records) for p in points}


@pytest.fixture
def aggregator():
    return Aggregator(grace=60)


@pytest.fixture
def client(aggregator):
    return Client(aggregator)


def test_epoch_ends_at_client_report(client):
    assert client.send(0, 1, 2).ready == []
    assert rows(client.send(0, 3, ended=True).ready) == {0: [1, 2, 3]}
    assert client.aggregator.flush() == []


SOURCES = list(product(["output", "input"], ["train", "eval"]))


def sends(client, epoch, layers, *, ended):
    """Return the data points that are passed on when an epoch has these (layer, kind, mode)."""
    made = [numbered(1, epoch=epoch, address=at, kind=kind, mode=mode) for at, kind, mode in layers]
    client.counts[epoch] += len(made)
    client.seq += 1
    return client.deliver((made, client.seq, said(epoch, client.counts[epoch], ended=ended))).ready


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("source", SOURCES)
def test_absent_layer_marks_points_of_its_kind_and_mode_alone(client, source, is_flushed):
    """Before, all points of the epoch were marked, also those of which nothing is missing."""
    every = [(layer, *one) for one in SOURCES for layer in ("a", "b")]
    sends(client, 0, every, ended=True)
    points = sends(client, 1, [one for one in every if one != ("b", *source)], ended=not is_flushed)
    if is_flushed:
        client.aggregator.flush()
        points = sends(client, 1, [], ended=True)
    found = {(point.key.address, *point.key.source) for point in points if "sent nothing (b" in point.lacks}
    assert found == {("a", *source)}
    assert is_flushed or len(points) == len(every) - 1


def test_epoch_waits_for_all_reported_records(client):
    missing = client.request(0, 1)
    assert client.send(0, 2, ended=True).ready == []
    assert client.send(1, 3).ready == []  # a newer epoch does not end it
    (point,) = client.deliver(missing).ready
    assert rows([point]) == {0: [1, 2]}
    assert point.complete


def test_epoch_is_incomplete_after_grace_time_then_revised(client):
    missing = client.request(0, 1)
    client.send(0, 2, ended=True, now=10)
    client.send(1, 3, now=10)
    assert client.aggregator.tick(now=69).ready == []
    outcome = client.aggregator.tick(now=71)
    (point,) = outcome.ready
    assert (rows([point]), point.lacks) == ({0: [2]}, "1 of 2 arrays came")
    assert [(n.code, n.run) for n in outcome.notices] == [("incomplete", "r")]
    assert client.aggregator.tick(now=80).ready == []
    (point,) = client.deliver(missing, now=90).ready
    assert (rows([point]), point.lacks) == ({0: [1, 2]}, "")
    assert client.aggregator.status()["late"] == 1


def test_dropped_records_do_not_delay_epoch(client):
    outcome = client.send(0, 1, 2, ended=True, dropped=3)
    (point,) = outcome.ready
    assert point.lacks == "2 of 5 arrays came (3 dropped by the probe)"
    assert [n.code for n in outcome.notices] == ["dropped"]
    assert client.aggregator.status()["dropped"] == 3
    assert client.send(1, 3, ended=True).ready[0].complete  # the next epoch is whole


def test_last_epoch_of_dead_training_is_scored(client):
    client.send(0, 1, now=0)
    assert client.aggregator.tick(now=599).ready == []
    assert rows(client.aggregator.tick(now=601).ready) == {0: [1]}


def test_process_is_not_called_silent_after_a_second():
    """With a grace time of two seconds it was."""
    aggregator = Aggregator(grace=2)
    one = Client(aggregator, "one")
    one.send(0, 1, now=0)
    assert aggregator.waits(now=4) == []
    (wait,) = aggregator.waits(now=6)
    assert wait.text == "The only process has sent nothing for 6 s; epoch 0 waits 14 s more"


def test_epoch_that_waits_for_a_dead_process_is_told_with_the_time_left(aggregator):
    alive, dead = Client(aggregator, "alive"), Client(aggregator, "dead")
    for epoch in range(2):
        alive.send(epoch, epoch, now=epoch * 10, ended=epoch == 0)
        dead.send(epoch, epoch + 10, now=epoch * 10, ended=epoch == 0)
    alive.send(1, 2, now=20, ended=True)  # the other died
    assert aggregator.tick(now=39).notices == aggregator.waits(39) == []
    (notice,) = aggregator.tick(now=41).notices
    told = "1 of 2 processes has sent nothing for 31 s; epoch 1 waits 9 min 39 s more"
    assert (notice.code, notice.run, notice.text.partition(". ")[0]) == ("silent", "r", told)
    assert aggregator.tick(now=42).notices == []  # once
    (wait,) = aggregator.waits(now=320)
    assert wait.text == "1 of 2 processes has sent nothing for 5 min 10 s; epoch 1 waits 5 min more"
    outcome = aggregator.tick(now=621)
    assert rows(outcome.ready) == {1: [1, 2, 11]}
    assert aggregator.waits(now=621) == []


@pytest.mark.parametrize(
    ("came", "reports", "number", "epochs"),
    [
        ([0, 0, 0], {0: 10}, 7, "epoch 0"),
        ([0, 0], {0: 2, 1: 8}, 8, "epoch 1"),
        ([0, 0, 1, 1], {0: 10, 1: 2}, 8, "epoch 0"),
        ([], {0: 5, 1: 5}, 10, "2 epochs (0 to 1)"),
    ],
)
def test_arrays_of_a_killed_process_that_do_not_come_are_told_early(came, reports, number, epochs):
    """They were "under way" for ten minutes without a word."""
    aggregator = Aggregator(grace=60)
    records = [record(address=f"fc{place}", epoch=epoch) for place, epoch in enumerate(came)]
    sent = [EpochReport(run="r", model="m", epoch=epoch, sent=number) for epoch, number in reports.items()]
    aggregator.accept(records, "c", 0, reports=sent, now=0.0)
    assert aggregator.tick(now=29).notices == []
    (notice,) = aggregator.tick(now=32).notices
    assert notice.text == (
        f"A process of this training has sent nothing for 32 s, and {number} arrays of {epochs} that were "
        "recorded have not come: killed, or cut off from the server. What still comes is scored. In 9 min "
        "28 s the status counts them as unknown."
    )
    assert (aggregator.by_run()[0]["under_way"], aggregator.tick(now=40).notices) == (number, [])  # once
    aggregator.accept([], "c", 1, reports=sent, now=50.0)
    assert "silent" in [each.code for each in aggregator.tick(now=90).notices]  # it was heard between
    assert "gone" in [each.code for each in aggregator.tick(now=700).notices]
    assert aggregator.by_run()[0]["unknown"] == number


def test_process_that_left_is_not_waited_for(aggregator):
    alive, left = Client(aggregator, "alive"), Client(aggregator, "left")
    alive.send(0, 2)
    left.send(0, 1, ended=True, left=True)
    (wait,) = aggregator.waits(now=100)
    assert (wait.silent, wait.processes) == (1, 2)
    alive.send(0, 3, now=100, ended=True)
    assert aggregator.waits(now=200) == []


def test_processes_that_are_all_slow_give_no_notice(aggregator):
    for name in ("a", "b"):
        Client(aggregator, name).send(0, 1)
    assert aggregator.tick(now=100).notices == []
    assert [wait.silent for wait in aggregator.waits(now=100)] == [2]  # the status has it


def test_process_that_comes_again_ends_the_wait(aggregator):
    alive, slow = Client(aggregator, "alive"), Client(aggregator, "slow")
    slow.send(0, 1)
    alive.send(0, 2, ended=True)
    assert [notice.code for notice in aggregator.tick(now=40).notices] == ["silent"]
    (point,) = slow.send(0, 3, now=50, ended=True).ready
    assert point.complete
    assert aggregator.waits(now=100) == []


def test_clients_at_different_epochs_fill_same_windows(aggregator):
    fast, slow = Client(aggregator, "fast"), Client(aggregator, "slow")
    fast.send(0, 1)
    slow.send(0, 2)
    for epoch in range(3):
        assert fast.send(epoch, 10 + epoch, ended=True).ready == []
    outcome = fast.send(3, 13)
    assert (outcome.ready, outcome.notices) == ([], [])
    outcome = slow.send(0, 20, ended=True)
    assert (rows(outcome.ready), outcome.notices) == ({0: [1, 2, 10, 20]}, [])
    outcome = slow.send(1, 21, ended=True)
    assert (rows(outcome.ready), outcome.notices) == ({1: [11, 21]}, [])


def test_late_starting_client_is_no_restart(aggregator):
    fast, slow = Client(aggregator, "fast"), Client(aggregator, "slow")
    for epoch in range(2):
        fast.send(epoch, epoch, ended=True)
    fast.send(2, 2)
    outcome = slow.send(0, 30, ended=True)  # that epoch was scored and is held no more
    assert [n.code for n in outcome.notices] == ["too_late"]
    outcome = slow.send(1, 31, ended=True)
    assert (rows(outcome.ready), outcome.notices) == ({1: [1, 31]}, [])


def test_left_or_silent_client_does_not_delay_epoch(aggregator):
    fast, slow = Client(aggregator, "fast"), Client(aggregator, "slow")
    fast.send(0, 2)
    slow.send(0, 1, ended=True, left=True)
    assert rows(fast.send(0, ended=True).ready) == {0: [1, 2]}
    assert rows(fast.send(1, 3, ended=True).ready) == {1: [3]}
    again = Client(aggregator, "again")
    again.send(2, 4, ended=True)
    assert fast.send(2, 5, ended=True).ready
    assert fast.send(3, 6, ended=True, now=10).ready == []  # waits for "again"
    assert rows(fast.send(4, 7, ended=True, now=100).ready) == {3: [6], 4: [7]}


def test_restart_of_killed_client_is_not_lag(aggregator):
    first, second = Client(aggregator, "first"), Client(aggregator, "second")
    for epoch in range(3):
        first.send(epoch, epoch, ended=True, now=epoch)
    outcome = second.send(0, 10, ended=True, now=9)
    assert (rows(outcome.ready), [n.code for n in outcome.notices]) == ({0: [10]}, ["restarted"])


@pytest.mark.parametrize("same", [True, False])
def test_restarted_client_is_recognized(aggregator, same):
    first = Client(aggregator)
    for epoch in range(3):
        first.send(epoch, epoch, ended=True, left=epoch == 2)
    second = first if same else Client(aggregator, "second")
    second.counts.clear()
    outcome = second.send(0, 10)
    assert [n.code for n in outcome.notices] == ["restarted"]
    assert rows(second.send(0, 11, ended=True).ready) == {0: [10, 11]}


@pytest.mark.parametrize("left", [True, False])
def test_training_that_begins_again_in_another_process_replaces_the_earlier_one(aggregator, left):
    """It counts from the first epoch again, while the windows are still in memory."""
    first, second = Client(aggregator, "first"), Client(aggregator, "second")
    for epoch in (1, 2):
        first.send(epoch, epoch, ended=True, left=left and epoch == 2)
    codes = [[n.code for n in second.send(1, number, now=1).notices] for number in (10, 11)]
    assert codes == ([["restarted"], []] if left else [[], []])  # the other may be a slower rank
    (point,) = second.send(1, ended=True, now=2).ready
    assert rows([point]) == {1: [10, 11] if left else [1, 10, 11]}


def test_records_after_flush_join_data_point(client):
    client.send(0, 1)
    assert rows(client.aggregator.flush()) == {0: [1]}
    assert rows(client.send(0, 2, ended=True).ready) == {0: [1, 2]}


def test_flush_of_client_leaves_epochs_of_others_open(aggregator):
    Client(aggregator, "mine").send(0, 1)
    report = EpochReport("s", "m", 0, 1)
    aggregator.accept([numbered(2, run="s")], "other", 1, 0, reports=[report])
    aggregator.accept([numbered(3, run="2018")])
    assert {p.key.run for p in aggregator.flush(client_id="mine")} == {"r", "2018"}
    assert {p.key.run for p in aggregator.flush(client_id="a notebook")} == {"s"}


def test_ended_step_is_complete_while_later_steps_arrive():
    aggregator = Aggregator(trigger=("epoch", "step"))
    ready = []
    for step in range(3):
        report = said(0, 3, ended=step == 2)
        records = [numbered(step, step=step)]
        ready += aggregator.accept(records, "c", step, 0, reports=[report]).ready
    assert [(p.step, p.lacks) for p in ready] == [(0, ""), (1, ""), (2, "")]


@settings(max_examples=200)
@given(st.data())
def test_last_data_point_is_complete_for_any_order_of_requests(data):
    """Two clients send three epochs; requests are reordered and repeated; no notice is repeated."""
    aggregator = Aggregator(grace=1e9)
    clients = [Client(aggregator, name) for name in "ab"]
    number, requests, sent = 0, [], {}
    for client in clients:
        for epoch in range(3):
            parts = data.draw(st.integers(1, 3))
            for part in range(parts):
                number += 1
                sent.setdefault(epoch, []).append(number)
                requests.append((client, client.request(epoch, number, ended=part == parts - 1)))
    order = data.draw(st.permutations(requests))
    repeats = data.draw(st.lists(st.sampled_from(requests), max_size=6))
    last = {}
    for client, request in [*order, *repeats]:
        for point in client.deliver(request).ready:
            last[point.epoch] = point
    refused = aggregator.status()["refused"]
    if not refused:  # a client whose first request is of an epoch that is held no more comes too late
        assert rows(last.values()) == {epoch: sorted(numbers) for epoch, numbers in sent.items()}
        assert all(point.complete for point in last.values())
        assert aggregator.flush() == []
    assert aggregator.status()["received"] + refused == number
    assert aggregator.status()["duplicates"] == len(repeats)


# -- what clients say, and what is no such thing -----------------------------------------------------


def test_epoch_reports_are_validated():
    row = {"run": "r", "model": "m", "epoch": 0.5, "sent": 3, "dropped": 1, "ended": True}
    assert read({"epochs": [row]}, RecordsEnvelope).epochs == [EpochReport("r", "m", 0.5, 3, 1, True, False)]
    assert read({}, RecordsEnvelope) == RecordsEnvelope(None, None, None, [])
    for bad, complaint in [
        ("all", r"^epochs must be a list, each entry an object with the fields run, model.*, got 'all'\.$"),
        ([[1]], r"^epochs\[0\] must be an object with the fields run, .*, got a list of 1\.$"),
        ([row | {"sent": -1}], r"^epochs\[0\]\.sent must be a whole number of at least 0 .*, got -1\.$"),
        ([row | {"ended": 1}], r"^epochs\[0\]\.ended must be true or false .*, got 1\.$"),
        ([row | {"epoch": 10**400}], r"^epochs\[0\]\.epoch must be a number from -1e\+15 to 1e\+15 or null"),
        ([row | {"epoch": "x"}], r"epoch must be a number .*, got 'x'\.$"),
        ([row | {"run": None}], r"run must be a string of at most 1,000 characters .*, got null\.$"),
        ([{"run": "r"}], r"^epochs\[0\]\.model is missing; it must be a string"),
    ]:
        with pytest.raises(InputError, match=complaint):
            read({"epochs": bad}, RecordsEnvelope)


@given(st.lists(st.integers(0, 60), max_size=60))
def test_int_ranges_equal_set(numbers):
    seen, known = IntRanges(), set()
    for number in numbers:
        assert seen.add(number) == (number not in known)
        known.add(number)
    assert {n for n in range(70) if n in seen} == known
    assert seen.newest == max(known, default=-1)
    assert all(a[1] + 1 < b[0] for a, b in zip(seen.ranges, seen.ranges[1:], strict=False))


def notes(points):
    return {p.key.mode: p.doubt for p in points}


UNSAID = "incomplete: the training did not say that the epoch ended, so rows may be missing"


def test_epoch_that_others_flush_before_its_end_says_so_until_it_ended(client):
    """Its scores of a part were those of the whole epoch, also if its process was killed."""
    client.send(0, 1)
    assert notes(client.aggregator.flush()) == {"train": UNSAID}
    assert client.aggregator.flush() == []
    assert notes(client.send(0, ended=True).ready) == {"train": ""}


def test_epoch_of_a_silent_client_says_after_the_grace_time_that_it_did_not_end(client):
    client.send(0, 1)
    out = client.aggregator.tick(now=10_000.0)
    assert notes(out.ready) == {"train": UNSAID}
    assert "did not say that the epoch ended" in out.notices[0].text
    assert notes(client.send(0, ended=True, now=10_001.0).ready) == {"train": ""}  # it was only slow


def test_epoch_that_one_of_two_processes_did_not_end_says_so(aggregator):
    first, second = Client(aggregator, "a"), Client(aggregator, "b")
    first.send(0, 1)
    second.send(0, 2)
    first.send(0, ended=True)
    assert "1 of 2 processes did not say" in notes(aggregator.flush())["train"]


def test_pass_of_a_probe_set_is_whole_before_its_epoch_ends(aggregator):
    records = [numbered(1, epoch=0, mode="probe"), numbered(2, epoch=0)]
    aggregator.accept(records, "c", 1, 0, reports=[said(0, 2)], now=0.0)
    assert notes(aggregator.flush()) == {"probe": "", "train": UNSAID}


@pytest.mark.parametrize("trigger", ["step", "mode"])
def test_window_within_an_epoch_that_ended_by_itself_has_no_note(trigger):
    aggregator = Aggregator(trigger=[trigger], grace=60)
    ready = []
    for seq, mode in enumerate(["train", "eval"]):
        one = numbered(seq, epoch=0, mode=mode, step=seq)
        ready += aggregator.accept([one], "c", seq, 0, reports=[said(0, seq + 1)], now=0.0).ready
    assert notes(ready) == {"train": ""}
    assert notes(aggregator.flush()) == {"eval": UNSAID if trigger == "mode" else ""}


def test_client_that_flushes_within_an_epoch_and_is_killed_later_did_not_end_it(aggregator):
    whole = [EpochReport("r", "m", 0, sent, whole=1) for sent in (1, 2)]
    aggregator.accept([numbered(1, epoch=0)], "c", 1, 0, reports=whole[:1], now=0.0)
    assert notes(aggregator.flush()) == {"train": ""}
    aggregator.accept([numbered(2, epoch=0)], "c", 2, 0, reports=whole[1:], now=0.0)
    assert notes(aggregator.flush()) == {"train": UNSAID}


@pytest.mark.parametrize("closed", [False, True])
def test_what_was_said_of_the_end_is_known_after_a_restart(client, closed):
    client.send(0, 1)
    if closed:
        client.aggregator.tick(now=10_000.0)
    restarted = Aggregator(grace=60)
    restarted.replaying = True
    records = [record for window in client.aggregator._windows() for record in window.records()]
    restarted.accept(records, "c", 1, 0, reports=[said(0, 1)], now=0.0)
    restarted.restore(("r", "m"), client.aggregator.snapshot(("r", "m"), 0.0))
    ready = restarted.resume(now=20_000.0) or restarted.flush()
    assert notes(ready) == {"train": UNSAID}
    client.aggregator = restarted
    assert notes(client.send(0, ended=True).ready) == {"train": ""}
