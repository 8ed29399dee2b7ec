"""The ledger: what became of every array that a client sent, at every moment and after restarts."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from journal_help import Machine, check_sums
from serving_help import record
from test_server import Apart, ask

from intus.monitoring.sent_counts import EpochKey, SentCounts
from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.journal import Journal
from intus.serving.aggregation.ledger import Tally
from intus.serving.aggregation.run_state import RunState
from intus.serving.aggregation.service import AggregatorService
from intus.serving.aggregation.window import Window
from intus.serving.messages import EpochReport
from intus.serving.run import Server
from intus.storage.codec import encode_records

LAYERS = "ab"


class CountingClient:
    """Sends numbered arrays to a machine, and counts them as the probe does.

    A request is delivered at once, later, twice or never, as the steps of a test say.
    """

    def __init__(self, machine, run="r") -> None:
        self.machine, self.run = machine, run
        self.counts, self.seq, self.epoch = SentCounts(), 0, 0
        self.under_way, self.delivered = [], []
        self.accepted, self.reported = set(), 0
        self.arrays = self.arrived = 0

    @property
    def key(self) -> EpochKey:
        return EpochKey(self.run, "m", self.epoch)

    def make(self, addresses) -> None:
        """Queue a request with an array of each layer."""
        self.seq += 1
        arrays = []
        for address in addresses:
            self.arrays += 1
            arrays.append((self.arrays, address, self.key))
            self.counts.sent(self.key)
        self.under_way.append((self.seq, arrays, self.counts.unacknowledged({self.key}), self.own_total))

    def end_epoch(self) -> None:
        self.counts.end(self.key)
        self.make([])
        self.deliver()
        self.epoch += 1

    def deliver(self, place=0) -> None:
        """Deliver a request that is under way."""
        if self.under_way:
            request = self.under_way.pop(place % len(self.under_way))
            assert not self._post(request)
            if request[2]:
                self.delivered.append(request)
            self.arrived += len(request[1])
            for _, _, key in request[1]:
                self.counts.delivered(key)
            self.counts.acknowledge(request[2])
            self.reported = max(self.reported, request[3])

    def repeat(self, place) -> None:
        """Deliver a request again whose reply was lost."""
        if self.delivered:
            assert self._post(self.delivered[place % len(self.delivered)])

    def lose(self) -> None:
        """Give the oldest request up, as after errors of the server."""
        if self.under_way:
            for _, _, key in self.under_way.pop(0)[1]:
                self.counts.lost(key)

    @property
    def own_total(self) -> int:
        return self.arrays

    def _post(self, request) -> bool:
        seq, arrays, reports, _ = request
        records = [
            record(array=np.full((2, 3), number, np.float32), address=address, epoch=key.epoch, run=self.run)
            for number, address, key in arrays
        ]
        envelope = {"client": f"client of {self.run}", "seq": seq, "dropped": 0, "epochs": reports}
        return self.machine.service.records(records, envelope).duplicate


def ledger_of(machine, run="r"):
    rows = [row for row in machine.service.counts().runs if row.run == run]
    return rows[0] if rows else None


def numbers_of(points):
    return {int(r.array.flat[0]) for point in points for r in point.records}


PLACES = st.integers(0, 5)
STEP = st.one_of(
    st.tuples(st.just("make"), st.lists(st.sampled_from(LAYERS), min_size=1, max_size=3)),
    st.tuples(st.just("deliver"), PLACES),
    st.tuples(st.just("deliver"), PLACES),
    st.tuples(st.just("repeat"), PLACES),
    st.tuples(st.just("lose")),
    st.tuples(st.just("next")),
    st.tuples(st.just("settle"), PLACES, st.booleans()),
    st.tuples(st.just("settle"), PLACES, st.booleans()),
    st.tuples(st.just("flush")),
    st.tuples(st.just("tick"), st.sampled_from([1, 1000])),
)
KILL = st.tuples(st.just("kill"))


class Outcomes:
    """The arrays that were scored and those that failed, by the data points that were settled."""

    def __init__(self) -> None:
        self.scored, self.failed = set(), set()

    def settle(self, machine, place, scored) -> None:
        waiting = machine.evaluator.waiting
        if waiting:
            point, done = waiting.pop(place % len(waiting))
            (self.scored if scored else self.failed).update(numbers_of([point]))
            done(point, scored)


def take(step, machine, client, outcomes) -> None:
    match step:
        case ("make", addresses):
            client.make(addresses)
        case ("deliver", place):
            client.deliver(place)
        case ("repeat", place):
            client.repeat(place)
        case ("lose",):
            client.lose()
        case ("next",):
            client.end_epoch()
        case ("settle", place, scored):
            outcomes.settle(machine, place, scored)
        case ("flush",):
            machine.service.flush()
        case ("tick", seconds):
            machine.time += seconds
            machine.service.tick()
        case ("kill",):
            machine.kill()


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=40), st.sampled_from([1 << 20, 120]))
def test_ledger_adds_up_at_every_moment_of_an_ingest(tmp_path_factory, steps, max_bytes):
    """Arrays come in any order, twice, late or never; data points fail; memory may be for five arrays."""
    machine = Machine(tmp_path_factory.mktemp("journal"), max_bytes=max_bytes)
    client, outcomes = CountingClient(machine), Outcomes()
    for step in steps:
        take(step, machine, client, outcomes)
        if (row := ledger_of(machine)) is None:
            continue
        check_sums(row)
        assert row.scored == len(outcomes.scored)
        assert row.failed == len(outcomes.failed - outcomes.scored)
        if max_bytes > 1000:
            assert row.lost == 0
        if not any(made == ("lose",) for made in steps):
            assert row.sent == client.reported
    machine.stop()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(STEP, KILL), max_size=40), st.sampled_from([1 << 20, 120]))
def test_ledger_adds_up_after_kills(tmp_path_factory, steps, max_bytes):
    """A server that was killed knows from its journal what it acknowledged, and what of it is scored."""
    machine = Machine(tmp_path_factory.mktemp("journal"), max_bytes=max_bytes)
    client, outcomes = CountingClient(machine), Outcomes()
    for step in steps:
        before = ledger_of(machine)
        take(step, machine, client, outcomes)
        row = ledger_of(machine)
        if before is not None:
            assert row is not None
            assert row.kept >= before.kept
        if row is not None:
            check_sums(row)
            assert row.lost == 0 or max_bytes < 1000
    while client.under_way:
        client.deliver()
    machine.service.flush()
    machine.evaluator.store()
    if (row := ledger_of(machine)) is not None:
        check_sums(row)
        assert (row.waiting, row.queued) == (0, 0)
    machine.stop()


#: Three arrays that are passed on and then evicted from a memory for five, and another of their layer.
REFUSED = [("make", ["a"] * 3), ("deliver", 0), ("flush",), ("make", ["b"] * 3), ("deliver", 0)]
REFUSED += [("make", ["a"]), ("deliver", 0)]


@settings(max_examples=150, deadline=None)
@example(REFUSED, 120, ["held", "counts"])
@example([("make", ["a"]), ("deliver", 0), ("next",)], 1 << 20, [])
@given(
    st.lists(st.one_of(STEP, KILL), max_size=30),
    st.sampled_from([1 << 20, 120]),
    st.lists(st.sampled_from(["left", "held", "counts"]), unique=True),
)
def test_ledger_of_a_journal_of_an_older_version_has_no_negative_number(
    tmp_path_factory, steps, max_bytes, stored
):
    """Older versions left arrays in journals that they had refused, or counted none: a start failed."""
    machine = Machine(tmp_path_factory.mktemp("journal"), max_bytes=max_bytes)
    client, outcomes = CountingClient(machine), Outcomes()
    of_window, of_run = Window.snapshot, RunState.snapshot
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Window, "snapshot", lambda self: without(of_window(self), {"left"} - {*stored}))
        patch.setattr(
            RunState, "snapshot", lambda self: without(of_run(self), {"held", "counts"} - {*stored})
        )
        for step in steps:
            take(step, machine, client, outcomes)
    machine.kill()
    if (row := ledger_of(machine)) is not None:
        check_sums(row)
    machine.service.flush()
    machine.evaluator.store()
    if row is not None:
        after = ledger_of(machine)
        check_sums(after)
        assert (after.waiting, after.kept) == (0, row.kept)
    machine.stop()


def test_wrong_count_refuses_no_record_and_keeps_no_server_from_starting(tmp_path, monkeypatch, caplog):
    machine = Machine(tmp_path / "journal")
    ledger = RunState.ledger
    with monkeypatch.context() as patch:
        patch.setattr(RunState, "ledger", lambda self: ledger(self) | {"lost": -1})
        client = CountingClient(machine)
        client.make("ab")
        client.deliver()
        client.end_epoch()
        machine.service.tick()
        again = AggregatorService(
            machine.evaluator, Aggregator(), Journal(shutil.copytree(machine.folder, tmp_path / "copy"))
        )
        again.close()
    assert "The counts cannot be reported: runs[0].lost must be" in caplog.text
    assert (ledger_of(machine).kept, len(machine.evaluator.got)) == (2, 4)
    machine.stop()


def without(facts, names):
    return {name: value for name, value in facts.items() if name not in names}


def test_server_without_a_journal_says_what_it_does_not_know(tmp_path):
    """Arrays that an earlier server took are unknown to this one, and not 0."""
    machine = Machine(tmp_path / "first")
    client = CountingClient(machine)
    for _ in range(3):
        client.make("ab")
        client.deliver()
        client.end_epoch()
    machine.stop()
    client.machine = Machine(tmp_path / "second")
    client.make("ab")
    client.deliver()
    row = ledger_of(client.machine)
    check_sums(row)
    assert (row.sent, row.unknown, row.kept) == (8, 6, 2)
    client.machine.stop()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(STEP, st.just(("replace",))), max_size=40))
def test_ledger_adds_up_after_servers_that_left_no_journal(tmp_path_factory, steps):
    """Arrays that an earlier server took were "under way" for ever, or counted twice."""
    machine = Machine(tmp_path_factory.mktemp("journal"))
    client, outcomes, earlier = CountingClient(machine), Outcomes(), 0
    for step in steps:
        if step == ("replace",):
            machine.stop()
            client.machine = machine = Machine(tmp_path_factory.mktemp("journal"))
            outcomes, client.delivered, earlier = Outcomes(), [], client.arrived
        else:
            take(step, machine, client, outcomes)
        if (row := ledger_of(machine)) is not None:
            check_sums(row)
    while client.under_way:
        client.deliver()
    client.end_epoch()
    client.counts.close()
    client.make([])
    client.deliver()
    if (row := ledger_of(machine)) is not None:
        check_sums(row)
        if ("lose",) not in steps:
            assert (row.sent, row.unknown, row.under_way) == (client.arrays, earlier, 0)
    machine.stop()


def test_arrays_that_an_earlier_server_took_are_told(tmp_path):
    machine = Machine(tmp_path / "first")
    client = CountingClient(machine)
    for addresses in ("ab", "ab", "a"):
        client.make(addresses)
        client.deliver()
        if addresses == "ab":
            client.end_epoch()
    machine.stop()
    client.machine = machine = Machine(tmp_path / "second")
    client.make("b")
    client.deliver()
    client.end_epoch()
    row = ledger_of(machine)
    assert (row.sent, row.unknown, row.under_way, row.kept) == (6, 5, 0, 1)
    (point,) = [point for point, _ in machine.evaluator.waiting]
    assert point.lacks.startswith("1 of 2 arrays came")
    (text,) = [each.text for each in machine.evaluator.received_notices if each.code == "taken_before"]
    assert "had taken 5 arrays of this run, up to epoch 2.0" in text
    client.counts.close()
    client.make([])
    client.deliver()
    row = ledger_of(machine)
    assert (row.sent, row.unknown, row.under_way) == (6, 5, 0)
    machine.stop()


def arrays(number, epoch=0, run="r"):
    chance = np.random.default_rng(0)
    return [
        record(array=chance.normal(size=(32, 4)).astype(np.float32), address=f"l{i}", run=run, epoch=epoch)
        for i in range(number)
    ]


def body(number, seq=1, sent=None, run="r", epoch=0, ended=True):
    facts = {"sent": number if sent is None else sent, "dropped": 0, "ended": ended, "left": ended}
    reports = [{"run": run, "model": "m", "epoch": epoch, **facts}]
    return encode_records(arrays(number, epoch, run), {"client": f"c-{run}", "seq": seq, "epochs": reports})


@pytest.mark.long
def test_backlog_is_waiting_and_not_zero(tmp_path):
    """It was "0 pending" while thousands of layers waited for the evaluator."""
    with Server(no_token=True, database=tmp_path / "x.db", port=0, engine="local") as server:
        assert ask(server.page_url, "/records", body(300))[0] == 200
        seen = []
        while not seen or seen[-1]["waiting"]:
            (row,) = ask(server.page_url, "/api/status?run=r&model=m")[1]["runs"]
            assert row["waiting"] + row["scored"] == row["kept"] == row["sent"] == 300
            seen.append(row)
        assert len(seen) > 2
        known = [row["seconds_left"] for row in seen if row["waiting"] and row["seconds_left"] is not None]
        assert known
        assert known[-1] < known[0] + 60
        assert seen[-1]["scored"] == 300
        assert ask(server.page_url, "/api/status?run=other")[1]["runs"] == []


@pytest.mark.long
def test_ledger_of_roles_that_run_apart(tmp_path):
    apart = Apart(tmp_path)
    try:
        apart.start("frontend", "evaluator", "aggregator")
        assert apart.ask("aggregator", "/records", body(100))[0] == 200
        assert apart.ask("aggregator", "/records", body(3, run="other", sent=5, ended=False))[0] == 200
        waiting = []
        while not waiting or waiting[-1]:
            rows = {row["run"]: row for row in apart.ask("frontend", "/api/status")[1]["runs"]}
            if "r" in rows:
                assert rows["r"]["waiting"] + rows["r"]["scored"] == rows["r"]["sent"] == 100
                waiting.append(rows["r"]["waiting"])
        assert waiting[0] > 0
        (row,) = apart.ask("frontend", "/api/status?run=other")[1]["runs"]
        assert (row["sent"], row["under_way"], row["kept"], row["open"], row["waiting"]) == (5, 2, 3, 3, 3)
    finally:
        apart.kill(*apart.running)


@pytest.mark.long
@pytest.mark.parametrize("journal", [None, "memory"])
def test_ledger_after_a_kill_of_the_server(tmp_path, journal):
    options = {"no_token": True, "database": tmp_path / "x.db", "port": 0, "journal": journal}
    server = Server(**options)
    assert ask(server.page_url, "/records", body(20, seq=1))[0] == 200
    assert ask(server.page_url, "/flush", {})[0] == 200
    assert ask(server.page_url, "/records", body(10, seq=2, epoch=1, sent=12, ended=False))[0] == 200
    server.process.kill()
    server.process.wait()
    with Server(**options) as again:
        rows = ask(again.page_url, "/api/status")[1]["runs"]
        if journal == "memory":
            assert rows == []  # not known, which is not 0
            return
        (row,) = rows
        told = {
            name: row[name] for name in ("sent", "under_way", "kept", "scored", "waiting", "failed", "lost")
        }
        assert told == {
            "sent": 32, "under_way": 2, "kept": 30, "scored": 20, "waiting": 10, "failed": 0, "lost": 0
        }  # fmt: skip


def test_snapshot_looks_at_the_arrays_of_epochs_that_have_outcomes_alone(monkeypatch):
    """One is written for each epoch: it must not cost more for each array that waits."""
    aggregator, points = Aggregator(), []
    for epoch in range(20):
        records = [record(address=f"l{layer}", epoch=epoch) for layer in range(5)]
        report = EpochReport("r", "m", float(epoch), sent=5, ended=True)
        points += aggregator.accept(records, "c", epoch, reports=[report]).ready
    asked, outcome = [], Tally.outcome
    monkeypatch.setattr(Tally, "outcome", property(lambda self: asked.append(self) or outcome.fget(self)))
    before = aggregator.snapshot(("r", "m"), 0.0)["counts"]
    assert not asked
    aggregator.settled(points[0], scored=True)
    aggregator.settled(points[1], scored=False)
    asked.clear()
    # a start from the journal scores them again, since their epoch is not done
    assert aggregator.snapshot(("r", "m"), 0.0)["counts"] == before
    assert len(asked) == 5
    for point in points[2:5]:
        aggregator.settled(point, scored=True)
    after = aggregator.snapshot(("r", "m"), 0.0)["counts"]
    assert (after["scored"], after["failed"]) == (4, 1)


def test_arrays_that_a_killed_process_had_queued_are_not_under_way_for_ever(tmp_path):
    """The ledger said so for ever, and nothing told of the epochs of which nothing came."""
    machine = Machine(tmp_path / "journal", grace=2)
    client = CountingClient(machine)
    for epoch in range(6):
        client.epoch = epoch
        for _ in range(4):
            client.make(LAYERS)
        client.counts.end(client.key)
        client.make([])
    for _ in range(
        3
    ):  # of 4 with arrays, of the first epoch; they report all epochs, as when the queue is full
        client.under_way[0] = (*client.under_way[0][:2], client.counts.unacknowledged(), client.own_total)
        client.deliver()

    def after(seconds):
        machine.time += seconds
        machine.service.tick()
        check_sums(row := ledger_of(machine))
        return row.under_way, row.unknown, row.kept

    def told():
        return [each.text for each in machine.evaluator.received_notices if each.code == "gone"]

    assert after(19) == (42, 0, 6)
    assert (after(2), told()) == (
        (0, 42, 6),
        [
            "A process of this training has sent nothing for 20 s. 42 arrays of 6 epochs (0 to 5) that "
            "were recorded did not come, and the status counts them as unknown: what a process had not sent "
            "when it was killed, or a damaged journal had, is lost. Of 5 epochs (1 to 5) nothing came. What "
            "still comes is scored."
        ],
    )
    machine.kill()
    assert (after(1), told()) == ((0, 42, 6), [])
    assert (after(100), told()) == ((0, 42, 6), [])
    client.deliver()  # a process that was suspended, not killed
    assert after(1) == (40, 0, 8)
    while client.under_way:
        client.deliver()
    assert after(100) == (0, 0, 48)
    machine.stop()


def test_acknowledged_arrays_that_a_damaged_journal_lost_are_not_under_way_for_ever(tmp_path):
    machine = Machine(tmp_path / "journal", grace=2)
    client = CountingClient(machine)
    for _ in range(3):
        client.make(LAYERS)
    client.under_way[0] = (*client.under_way[0][:2], client.counts.unacknowledged(), client.own_total)
    while client.under_way:
        client.deliver()
    machine.journal.close()
    (log,) = (path for path in machine.folder.rglob("*.log") if b'"F32"' in path.read_bytes())
    os.truncate(log, log.stat().st_size * 2 // 3)
    machine.start()
    machine.service.flush()
    row = ledger_of(machine)
    check_sums(row)
    assert row.under_way > 0
    machine.time += 21
    machine.service.tick()
    after = ledger_of(machine)
    check_sums(after)
    assert (after.under_way, after.unknown) == (0, row.under_way)
    machine.stop()


def test_ledger_that_goes_back_at_a_start_is_told(tmp_path):
    """A layer with scores counted as waiting after a kill, without a word."""
    machine = Machine(tmp_path)
    report = {"run": "r", "model": "m", "epoch": 0, "sent": 3, "ended": True}
    for seq, address in enumerate("abc"):
        machine.send(1, seq=seq, address=address, epochs=[report])
    machine.evaluator.store(most=2)
    (row,) = machine.service.counts().runs
    assert (row.scored, row.waiting) == (2, 1)
    machine.kill()
    (row,) = machine.service.counts().runs
    assert (row.scored, row.waiting) == (0, 3)
    (notice,) = machine.evaluator.received_notices
    assert "continues from its journal: 3 arrays of 1 run wait to be scored" in notice.text
    assert "counts as waiting again" in notice.text
    machine.evaluator.store()
    machine.kill()
    (row,) = machine.service.counts().runs
    assert (row.scored, row.waiting, machine.evaluator.received_notices) == (3, 0, [])
    machine.stop()
