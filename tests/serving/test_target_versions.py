"""Labels that are registered again while arrays wait: which of them count, as a property of any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from journal_help import FakeEvaluator
from serving_help import record, target_of

from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.journal import Journal
from intus.serving.aggregation.service import AggregatorService
from intus.serving.data_point import DataPoint
from intus.serving.decoding import decode, encode
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.evaluation.targets import KnownTargets, Target
from intus.serving.frontend import Frontend
from intus.serving.messages import PointEnvelope, TargetRequest
from intus.storage.database import Database

RUNS = "abc"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.sampled_from(["t", "u"])),
        st.tuples(st.just("send"), st.sampled_from(RUNS), st.integers(0, 3)),
        st.tuples(st.just("store"), st.integers(1, 4)),
        st.tuples(st.just("end"), st.sampled_from(RUNS), st.integers(0, 3)),
        st.just(("kill",)),
        st.just(("clock",)),
    ),
    max_size=25,
)


class Life:
    """A client, a server that may be killed, and the truth of which labels each epoch must be scored on."""

    def __init__(self, folder) -> None:
        self.folder, self.seq, self.registered = folder, 0, 0
        self.start = self.time = 1000.0
        self.expected: dict = {}  # of each arrival of an epoch: the numbers of the labels that were there
        self.labels: dict = {}  # the numbers of the labels by name, in order
        self.begin()

    def begin(self) -> None:
        self.database = Database(self.folder / "intus.db")
        self.known = KnownTargets(Frontend(self.database))
        self.evaluator, self.journal = FakeEvaluator(), Journal(self.folder / "journal")
        self.evaluator.put_target = self.known.put
        self.service = AggregatorService(self.evaluator, Aggregator(), self.journal, clock=lambda: self.time)

    def register(self, name) -> None:
        self.registered += 1
        labels = [f"{name} {self.registered}", "other", None]
        self.service.put_target(target_of({"name": name, "targets": labels, "client": "c"}))
        self.labels.setdefault(name, []).append(self.registered)

    def send(self, run, epoch) -> None:
        self.seq += 1
        block = record(3, run=run, epoch=epoch, items=np.arange(3))
        self.service.records([block], {"client": "c", "seq": self.seq})
        there = {name: numbers[-1] for name, numbers in self.labels.items()}
        self.expected.setdefault((run, epoch), []).append(there)

    def end(self, run, epoch) -> None:
        self.seq += 1
        ended = {"run": run, "model": "m", "epoch": epoch, "ended": True}
        self.service.records([], {"client": "c", "seq": self.seq, "epochs": [ended]})

    def store(self, most) -> None:
        self.check()
        self.evaluator.store(most)

    def kill(self) -> None:
        self.journal.close()
        self.database.close()
        self.start += 1000.0
        self.time = self.start  # whatever the clock was set to
        self.begin()

    def clock(self) -> None:
        self.time -= 300.0  # it was set back

    def check(self, *, is_whole: bool = False) -> None:
        """Check the labels of all data points that wait at the evaluator.

        Rows that come after the end of an epoch make another data point; the earlier one may still wait.

        Args:
            is_whole: All that arrived was passed on, so the last point of an epoch has the last labels.
        """
        waiting = [point for point, _ in self.evaluator.waiting]
        last = {(point.key.run, point.epoch): point for point in waiting}
        for point in waiting:
            found = {
                choice.name: int(choice.target.labels[0].split()[1])
                for choice in self.known.choices(point)
                if choice.target is not None
            }
            arrivals = self.expected[point.key.run, point.epoch]
            if is_whole and point is last[point.key.run, point.epoch]:
                arrivals = arrivals[-1:]
            afterwards = {name: numbers[0] for name, numbers in self.labels.items()}
            assert found in [afterwards | before for before in arrivals]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@example(steps=[("register", "u"), ("send", "b", 3), ("end", "b", 3), ("register", "u"), ("send", "b", 3)])
@given(steps=STEPS)
def test_epoch_is_scored_on_the_labels_that_were_registered_when_it_arrived(tmp_path_factory, steps):
    life = Life(tmp_path_factory.mktemp("life"))
    for name, *given_ in steps:
        getattr(life, name)(*given_)
    life.service.flush()
    life.check(is_whole=True)
    life.evaluator.store()
    life.service.flush()
    for name in "tu":
        life.register(name)  # now nothing waits, so that earlier ones are not kept
    assert len(life.database.targets()) == len(life.known._known()) == 2
    life.journal.close()
    life.database.close()


LABELS = [[f"{name} {number % 2}" for number in range(40)] for name in ("one", "two")]
BLOCK = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)


def classes(database, run):
    found = database.predictions(run, "m", "fc1", "y", ["linear_accuracy"], epoch=0)
    return None if found is None else found.classes


@pytest.mark.parametrize("registering", ["one client", "two clients that train nothing"])
def test_finished_run_keeps_its_labels_when_the_next_registers_its_own(tmp_path, registering):
    """As two folds in one script do, without flush between them."""
    with Database(tmp_path / "intus.db") as database:
        evaluator = Evaluator(Frontend(database), ["linear_accuracy"])
        with evaluator._storing:  # so that all of it waits
            service = AggregatorService(evaluator, journal=Journal(tmp_path / "journal"))
            for number, run in enumerate(("fold-0", "fold-1")):
                client = "c" if registering == "one client" else f"notebook {number}"
                service.put_target(target_of({"name": "y", "targets": LABELS[number], "client": client}))
                ended = {"run": run, "model": "m", "epoch": 0, "sent": 1, "ended": True}
                envelope = {"client": "c", "seq": number, "epochs": [ended]}
                service.records([record(array=BLOCK, run=run)], envelope)
        service.flush()
        assert classes(database, "fold-0") == ("one 0", "one 1")
        assert classes(database, "fold-1") == ("two 0", "two 1")
        service.close()


def test_another_role_gets_the_place_of_labels_among_the_arrays(tmp_path):
    evaluator = FakeEvaluator()
    got = []
    evaluator.put_target = got.append
    service = AggregatorService(evaluator)
    facts = {"name": "y", "targets": LABELS[0], "client": "c", "during": ["fold-0"]}
    service.records([record()], {"client": "c", "seq": 0})
    service.put_target(target_of(facts))
    service.flush()
    (target,), (point,) = got, evaluator.got
    received = Target.parse(decode(encode(target.request()), TargetRequest))
    places = [(one.registered, one.waiting, one.during) for one in (target, received)]
    assert places[0] == places[1] == (places[0][0], point.arrived, ("fold-0",))
    envelope = decode(encode(point.envelope(last=True)), PointEnvelope)
    assert DataPoint.read(point.records, envelope).arrived == point.arrived < received.registered


def test_labels_of_another_run_are_noted(tmp_path):
    with Database(tmp_path / "intus.db") as database:
        service = AggregatorService(Evaluator(Frontend(database), ["linear_accuracy"]))
        facts = {"name": "y", "targets": LABELS[0], "client": "c", "during": ["a"]}
        service.put_target(target_of(facts))
        for number, run in enumerate("ab"):
            block = record(array=BLOCK, run=run, items=np.arange(40))
            service.records([block], {"client": "c", "seq": number})
        service.flush()
        notes = [database.points(run, "m", score="linear_accuracy")["note"].tolist() for run in "ab"]
        assert notes == [[""], ["labels registered during 'a', perhaps of other data"]]
        service.close()


@pytest.mark.postgres
def test_labels_of_a_waiting_epoch_are_kept_in_postgresql(new_postgres, tmp_path):
    url = new_postgres()
    for number, run in enumerate(("fold-0", "fold-1")):
        with Database(url) as database:  # a server that is killed after each
            service = AggregatorService(FakeEvaluator(), journal=Journal(tmp_path / "journal"))
            service.evaluator.put_target = KnownTargets(Frontend(database)).put
            service.put_target(target_of({"name": "y", "targets": LABELS[number], "client": "c"}))
            service.records([record(array=BLOCK, run=run)], {"client": "c", "seq": number})
            service.journal.close()
    with Database(url) as database:
        service = AggregatorService(
            Evaluator(Frontend(database), ["linear_accuracy"]), journal=Journal(tmp_path / "journal")
        )
        service.flush()
        assert [classes(database, run)[0] for run in ("fold-0", "fold-1")] == ["one 0", "two 0"]
        service.close()


def test_of_many_registrations_those_are_kept_that_waiting_epochs_are_scored_on(tmp_path):
    """Before, all were kept that were registered while any epoch waited."""
    life = Life(tmp_path)
    for epoch in range(4):
        life.register("t")
        life.send("a", epoch)
        for _ in range(25):
            life.register("t")
    life.service.flush()
    assert len(life.known._known()) == len(life.database.targets()) == 5
    life.check()
    life.evaluator.store()
    life.service.flush()
    life.register("t")
    assert len(life.known._known()) == len(life.database.targets()) == 1
    life.journal.close()
    life.database.close()
