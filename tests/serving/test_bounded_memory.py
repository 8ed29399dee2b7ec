"""The aggregator's memory is bounded; what it forgets is never taken for new, for received or for whole."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from journal_help import Machine, check_sums, numbered
from serving_help import record

from intus.core.errors import InputError
from intus.serving.aggregation import run_state
from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.messages import EpochReport


class Training:
    """Processes of one training that record two models, with a network between them and a server."""

    def __init__(self, machine) -> None:
        self.machine, self.epoch = machine, 0
        self.seqs, self.sent = Counter(), Counter()
        self.made = {}  # the numbers of the arrays of each data point
        self.accepted = {}  # the numbers of the arrays of each data point that the server accepted
        self.held, self.delivered, self.turned_away = [], [], set()
        self.stored, self.number = {}, 0

    def make(self, client, model, address="fc1"):
        """Return a request of one array."""
        self.number += 1
        self.seqs[client] += 1
        self.sent[client, model, self.epoch] += 1
        facts = {"epoch": self.epoch, "model": model, "address": address}
        self.made.setdefault((model, self.epoch, address), set()).add(self.number)
        return client, model, self.seqs[client], [self.number], self.reports(client, model), facts

    def reports(self, client, model, *, left=False):
        return [
            {
                "run": "r",
                "model": model,
                "epoch": epoch,
                "sent": sent,
                "ended": epoch < self.epoch or left,
                "left": left,
                "job": "j",
            }
            for (of_client, of_model, epoch), sent in self.sent.items()
            if (of_client, of_model) == (client, model)
        ]

    def deliver(self, request):
        client, model, seq, numbers, reports, facts = request
        try:
            reply = self.machine.send(*numbers, seq=seq, client=client, epochs=reports, **facts)
        except InputError:
            self.turned_away.add((client, model))
            return
        assert (client, model) not in self.turned_away
        if request in self.delivered:
            assert not reply.accepted, "a request that came before is taken for new"
        else:
            assert not reply.duplicate, "a request that never came is taken for one that came before"
        if reply.accepted:
            self.accepted.setdefault((model, facts["epoch"], facts["address"]), []).extend(numbers)
        self.delivered.append(request)

    def store(self):
        for point, _ in self.machine.evaluator.waiting:
            rows = sorted(int(record.array.flat[0]) for record in point.records)
            self.stored[point.key.model, point.epoch, point.key.address] = rows, point.lacks
        self.machine.evaluator.store()

    def end(self):
        for client, model in dict.fromkeys((client, model) for client, model, _ in self.sent):
            self.seqs[client] += 1
            reports = self.reports(client, model, left=True)
            self.deliver((client, model, self.seqs[client], [], reports, {}))
        for _ in range(3):
            self.machine.time += 700
            self.machine.service.tick()
        self.machine.service.flush()
        self.store()

    def check(self):
        """A data point without a note has every array of it that was accepted, once.

        It may have one more that was refused, because its window had been dropped from memory: the journal
        has the whole request, and after a restart there may be room.
        """
        for row in self.machine.service.counts().runs:
            check_sums(row)
        for place, (rows, lacks) in self.stored.items():
            assert len(set(rows)) == len(rows)
            assert lacks or set(self.accepted[place]) <= set(rows) <= self.made[place], place


CLIENTS, MODELS = st.sampled_from(["c0", "c1", "c2"]), st.sampled_from(["m", "n"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["send", "send", "hold"]), CLIENTS, MODELS),
        st.tuples(st.sampled_from(["late", "again"]), st.integers(0, 40)),
        st.tuples(st.sampled_from(["next", "next", "flush", "wait", "store", "kill"])),
    ),
    min_size=12,
    max_size=60,
)
REST = [("send", "c0", "m"), ("next",), ("store",), ("kill",), ("send", "c0", "m")]


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([120, 1 << 20]), st.sampled_from([2, 3]))
@example([*[("send", "c0", "m")] * 4, ("flush",), *REST], 120, 2)  # scored in part, stopped, and evicted
def test_data_point_without_a_note_is_whole_whatever_memory_forgot(tmp_path_factory, steps, limit, clients):
    with pytest.MonkeyPatch.context() as patch:
        bounds = {"MOST_RANGES": 2, "MOST_FINISHED": 1, "MOST_CLIENTS": clients, "MOST_AWAITED": 1}
        for module in ("run_state", "aggregator"):
            for name, most in bounds.items():
                patch.setattr(f"intus.serving.aggregation.{module}.{name}", most, raising=False)
        machine = Machine(tmp_path_factory.mktemp("journal"), max_bytes=limit)
        training = Training(machine)
        for step in [*steps, ("end",)]:
            match step:
                case ("send", client, model):
                    training.deliver(training.make(client, model))
                case ("hold", client, model):
                    training.held.append(training.make(client, model))
                case ("late", place) if training.held:
                    training.deliver(training.held.pop(place % len(training.held)))
                case ("again", place) if training.delivered:
                    training.deliver(training.delivered[place % len(training.delivered)])
                case ("next",):
                    training.epoch += 1
                case ("flush",):
                    machine.service.flush()
                case ("wait",):
                    machine.time += 61
                    machine.service.tick()
                case ("store",):
                    training.store()
                case ("kill",):
                    machine.kill()
                case ("end",):
                    training.end()
        training.check()
        machine.stop()


def report(epoch, sent, *, ended=False, job="", whole=0):
    return EpochReport("r", "m", epoch, sent, ended=ended, job=job, whole=whole)


def accept(aggregator, *numbers, seq, client="c", reports=(), **facts):
    return aggregator.accept(
        [numbered(number, **facts) for number in numbers], client, seq, reports=reports, now=0.0
    )


@pytest.mark.parametrize("trigger", [("epoch",), ("step",), ("epoch", "mode")])
@pytest.mark.parametrize("kill", [False, True])
def test_array_of_a_window_that_ended_long_ago_is_refused(trigger, kill):
    """It opened a new window, whose scores replaced those of the whole epoch."""
    aggregator, count = Aggregator(trigger), run_state.MOST_FINISHED + 10
    for number in range(count):
        place = {"step": number, "epoch": 0} if trigger == ("step",) else {"epoch": number}
        reports = [] if trigger == ("step",) else [report(number, 1, ended=True)]
        accept(aggregator, number, seq=number + 10, reports=reports, **place)
    if kill:
        snapshot = json.loads(json.dumps(aggregator.snapshot(("r", "m"), 0.0)))
        aggregator = Aggregator(trigger)
        aggregator.restore(("r", "m"), snapshot)
    late = accept(aggregator, 7, seq=1, epoch=0, step=0)
    assert late.accepted == 0
    assert not any(point.epoch == 0 and point.step < 1 for point in late.ready)
    assert [notice.code for notice in late.notices] == ["too_late"]
    assert aggregator.by_run()[0]["refused"] == 1


def test_journal_of_an_older_version_that_forgot_windows_has_a_bound():
    aggregator = Aggregator()
    for number in range(1003):
        reports = [report(number + 10, 1, ended=True)]
        accept(aggregator, number, seq=number + 10, reports=reports, epoch=number + 10)
    snapshot = aggregator.snapshot(("r", "m"), 0.0)
    del snapshot["finished_until"]
    again = Aggregator()
    again.restore(("r", "m"), snapshot)
    assert accept(again, 7, seq=1, epoch=5).accepted == 0


def test_repeated_request_of_one_of_a_thousand_processes_counts_once():
    """After a hundred others it was taken for a new one."""
    aggregator = Aggregator()
    for rank in range(1000):
        accept(aggregator, rank, seq=1, client=f"c{rank}", reports=[report(0, 1, ended=True, job="j")])
    assert accept(aggregator, 0, seq=1, client="c0", reports=[report(0, 1, ended=True, job="j")]).duplicate
    row = aggregator.by_run()[0]
    assert (row["sent"], row["kept"], row.get("refused", 0)) == (1000, 1000, 0)


def test_more_processes_than_are_remembered_are_refused_with_a_word(tmp_path, monkeypatch):
    monkeypatch.setattr("intus.serving.aggregation.aggregator.MOST_CLIENTS", 2)
    machine = Machine(tmp_path / "journal")
    for client in ("a", "b"):
        machine.send(1, seq=1, client=client)
    with pytest.raises(
        InputError, match=r"^A process is refused: 2 others have sent to run 'r' of model 'm'"
    ):
        machine.send(1, seq=1, client="c")
    assert machine.send(2, seq=2, client="a").accepted == 1
    machine.stop()


def test_request_that_may_have_come_before_is_refused_and_not_called_a_duplicate():
    """Beyond 500 gaps in the numbers of its requests, one that never came was called a duplicate."""
    aggregator = Aggregator()
    for place in range(run_state.MOST_RANGES + 100):
        accept(aggregator, place, seq=5 + 2 * place)
    late = accept(aggregator, 1, seq=6)
    assert (late.accepted, late.duplicate) == (0, False)
    assert [notice.code for notice in late.notices] == ["doubted"]
    last = 5 + 2 * (run_state.MOST_RANGES + 99)
    assert accept(aggregator, 2, seq=last).duplicate
    assert accept(aggregator, 3, seq=last - 1).accepted == 1
    restored = Aggregator()
    restored.restore(("r", "m"), json.loads(json.dumps(aggregator.snapshot(("r", "m"), 0.0))))
    assert not accept(restored, 1, seq=6).duplicate


def test_process_that_records_two_models_leaves_no_gaps():
    aggregator = Aggregator()
    for seq in range(1, 2 * run_state.MOST_RANGES + 100):
        if seq != 3:
            accept(aggregator, seq, seq=seq, model="mn"[seq % 2])
    assert accept(aggregator, 3, seq=3, model="n").accepted == 1
    assert accept(aggregator, 3, seq=3, model="n").duplicate


def test_epoch_that_was_flushed_midway_and_evicted_is_incomplete():
    """Its scores of the first rows were shown as those of the whole epoch."""
    aggregator = Aggregator(max_bytes=3 * 24)
    accept(aggregator, 1, seq=1, reports=[report(0, 1, whole=1)])
    (first,) = aggregator.flush()
    assert first.complete
    accept(aggregator, 2, seq=2, reports=[report(0, 2)])
    ready = [accept(aggregator, 9, seq=seq, client="other", run="other").ready for seq in (1, 2)]
    ((again,),) = filter(None, ready)
    assert [int(made.array.flat[0]) for made in again.records] == [1, 2]
    assert "dropped from memory before it ended" in again.lacks
    last = accept(aggregator, 3, seq=3, reports=[report(0, 3, ended=True)])
    assert (last.accepted, [notice.code for notice in last.notices]) == (0, ["too_late"])
    row = next(row for row in aggregator.by_run() if row["run"] == "r")
    assert (row["kept"], row.get("lost", 0), row["refused"]) == (2, 0, 1)


def test_late_array_of_an_ended_epoch_is_passed_on_before_it_is_evicted():
    aggregator = Aggregator(max_bytes=3 * 24)
    aggregator.accept([numbered(1, epoch=0)])
    (whole,) = aggregator.accept([numbered(2, epoch=1)]).ready
    aggregator.accept([numbered(3, epoch=0)])
    ready = aggregator.accept([record(array=np.zeros((4, 3), np.float32), run="other")]).ready
    assert whole.complete
    assert [[int(made.array.flat[0]) for made in point.records] for point in ready] == [[1, 3]]


def test_epoch_that_was_flushed_midway_is_passed_on_again_if_arrays_do_not_come():
    """A request was lost, and the last one had nothing but the counts: the part kept its place as whole."""
    aggregator = Aggregator(grace=60)
    accept(aggregator, 1, seq=1, reports=[report(0, 1, whole=1)])
    (first,) = aggregator.flush()
    assert first.complete
    accept(aggregator, seq=3, reports=[report(0, 2, ended=True)])
    (again,) = aggregator.tick(now=1000.0).ready
    assert again.lacks == "1 of 2 arrays came"
    assert aggregator.tick(now=2000.0).ready == []
