"""The roles as objects: concurrent calls, and the calls that they pass on."""

from __future__ import annotations

import re
import threading
import time

import numpy as np
import pytest
from serving_help import point, record, target_of

from intus.core.errors import InputError
from intus.serving import last_minute, worker
from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.journal import Journal
from intus.serving.aggregation.service import AggregatorService
from intus.serving.errors import AwayError
from intus.serving.evaluation import evaluator as module
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.evaluation.targets import Target
from intus.serving.frontend import Frontend
from intus.serving.messages import IngestReply, Notice
from intus.storage.database import Database


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "intus.db") as database:
        yield database


@pytest.fixture
def service(database):
    service = AggregatorService(Evaluator(Frontend(database), ["mean", "linear_f1"]))
    yield service
    service.close()


def elsewhere(work, timeout=None):
    """Call a function in another thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout)
    return thread


def test_target_registered_while_targets_are_read(service, monkeypatch):
    applies, names = Target.applies, iter("abcdefgh")

    def slow(self, point):
        elsewhere(lambda: service.put_target(target_of({"name": next(names), "targets": [1, 2]})), 1)
        return applies(self, point)

    service.put_target(target_of({"name": "first", "targets": [1, 2]}))
    service.put_target(target_of({"name": "second", "targets": [1, 2]}))
    monkeypatch.setattr(Target, "applies", slow)
    service.records([record()], {})
    service.flush()
    assert service.evaluator.status() == {"scored": 1, "failed": 0, "pending": 0}


def test_target_registered_while_stored_targets_are_loaded(database):
    class Slow(Frontend):
        putting = None

        def targets(self):
            found = super().targets()
            if self.putting is None:
                self.putting = threading.current_thread()
                self.putting = elsewhere(lambda: evaluator.put_target(target_of(facts)), 0.3)
            return found

    facts = {"name": "new", "targets": [0, 1] * 10}
    evaluator = Evaluator(Slow(database), ["linear_f1"])
    block = record(20, array=np.random.default_rng(0).normal(size=(20, 2)))
    evaluator.points([point(block)])
    evaluator.flush()
    evaluator.frontend.putting.join()
    evaluator.points([point(block)])
    evaluator.close()
    assert "new" in database.points("r", "m")["target"].tolist()


def test_stored_targets_apply_to_runs_with_scores_of_them(service, database):
    block = np.random.default_rng(0).normal(size=(20, 2))
    service.put_target(target_of({"name": "digit", "targets": [0, 1] * 10}))
    service.records([record(20, array=block)], {})
    service.flush()
    later = AggregatorService(Evaluator(Frontend(database), ["linear_f1"]))
    for run, epoch in (("r", 1), ("new", 0), ("new", 1)):
        later.records([record(20, array=block, run=run, epoch=epoch)], {})
    later.flush()
    assert database.points("r", "m", score="linear_f1")["epoch"].tolist() == [0, 1]
    assert len(database.points("new", "m", score="linear_f1")) == 0
    (notice,) = database.notices()
    assert (notice["code"], notice["run"], notice["count"]) == ("target_kept", "new", 1)
    assert "(digit) are not used for this run" in notice["text"]
    later.put_target(target_of({"name": "digit", "targets": [1, 0] * 10}))
    later.records([record(20, array=block, run="new", epoch=2)], {})
    later.close()
    assert database.points("new", "m", score="linear_f1")["epoch"].tolist() == [2]


def test_unreadable_stored_targets_are_skipped(database, caplog):
    database.put_target("old", [0, 1], layer_pattern="(?=fc)")
    service = AggregatorService(Evaluator(Frontend(database), ["mean"]))
    service.records([record()], {})
    service.close()
    assert database.points("r", "m")["score"].tolist() == ["mean"]
    assert "A stored target is not used: layer_pattern='(?=fc)' of target 'old'" in caplog.text


def test_clock_change_does_not_affect_waiting(database, monkeypatch):
    aggregator = Aggregator(grace=60)
    service = AggregatorService(Evaluator(Frontend(database), ["mean"]), aggregator)
    said = {"run": "r", "model": "m", "epoch": 0, "sent": 2}
    service.records([record()], {"client": "c", "seq": 0, "epochs": [said]})
    for leap in (-1e6, 1e6):
        monkeypatch.setattr(time, "time", lambda leap=leap: 1.8e9 + leap)
        service.tick()
        assert aggregator.status()["incomplete"] == 0
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 700)
    service.tick()
    monkeypatch.undo()
    assert aggregator.status()["incomplete"] == 1
    service.close()


class TrainingProcess:
    """A training process that registers labels and sends records."""

    def __init__(self, service, name) -> None:
        self.service, self.name, self.seq = service, name, 0

    def register(self, labels, **facts) -> None:
        self.service.put_target(target_of({"name": "digit", "targets": labels, "client": self.name} | facts))

    def send(self, epoch, **facts) -> None:
        self.seq += 1
        block = np.random.default_rng(epoch).normal(size=(20, 2))
        batch = [record(20, array=block, epoch=epoch, run=self.name, **facts)]
        self.service.records(batch, {"client": self.name, "seq": self.seq})


def scored(database, run):
    """Return the epochs of a run with a score, and the fraction of the most frequent label in each."""
    points = database.points(run, "m", score="linear_accuracy", target="digit")
    return points["epoch"].tolist(), points["baseline"].round(2).tolist()


def test_concurrent_runs_are_scored_on_own_labels(service, database):
    service.evaluator.scores = ["linear_accuracy"]
    a, b, c = (TrainingProcess(service, name) for name in "abc")
    a.register([0, 1] * 10)
    b.register([0, 0, 0, 1] * 5)
    for epoch in range(2):
        for one in (a, b, c):
            one.send(epoch)
    service.flush()
    assert scored(database, "a") != scored(database, "b")
    assert scored(database, "a")[0] == scored(database, "b")[0] == [0, 1]
    assert scored(database, "c")[0] == []  # it has no labels, and those of others are not for it
    assert database.notices() == []


def test_labels_of_idle_client_apply_to_runs_without_own_labels(service, database):
    service.evaluator.scores = ["linear_accuracy"]
    a, b, notebook = (TrainingProcess(service, name) for name in ("a", "b", "notebook"))
    a.register([0, 1] * 10)
    notebook.register([0, 0, 0, 1] * 5, run_pattern="^[ab]")
    other = TrainingProcess(service, "other")
    for one in (a, b, other):
        one.send(0)
    service.flush()
    assert scored(database, "a") != scored(database, "b")
    assert scored(database, "b")[0] == [0]
    assert scored(database, "other")[0] == []


def test_labels_of_run_apply_after_server_restart(database, tmp_path):
    def server():
        evaluator = Evaluator(Frontend(database), ["linear_accuracy"])
        return AggregatorService(evaluator, journal=Journal(tmp_path / "journal"))

    first = server()
    a, old = TrainingProcess(first, "a"), TrainingProcess(first, "old")
    a.register([0, 1] * 10)
    first.put_target(target_of({"name": "digit", "targets": [0, 0, 0, 1] * 5}))  # by nobody in particular
    old.send(0)
    first.journal.close()  # and nobody scored anything
    first.evaluator.close()
    second = server()
    a.service = old.service = second
    new = TrainingProcess(second, "new")
    for one in (a, old, new):
        one.send(1)
    second.flush()
    second.close()
    assert [scored(database, run)[0] for run in ("a", "old", "new")] == [[1], [0, 1], []]
    assert [(n["code"], n["run"]) for n in database.notices()] == [("target_kept", "new")]


LABELS = {name: [f"{name} {number % 2}" for number in range(20)] for name in ("one", "two", "three")}


def register(service, labels, client="", **patterns):
    """Register labels, as a client that trains nothing."""
    service.put_target(target_of({"name": "digit", "targets": LABELS[labels], "client": client} | patterns))


def scored_on(database, run, address="fc1"):
    """Return the names of the labels that a layer of a run was scored on, by epoch."""
    return {
        epoch: database.predictions(run, "m", address, "digit", ["linear_accuracy"], epoch=epoch)
        .classes[0]
        .split()[0]
        for epoch in database.points(run, "m", target="digit", address=address)["epoch"].tolist()
    }


def codes(database):
    return [(notice["code"], notice["run"]) for notice in database.notices()]


@pytest.mark.parametrize("clients", [("", ""), ("x", "x"), ("x", "y")])
@pytest.mark.parametrize("restarted", [False, True])
def test_targets_of_one_name_with_other_patterns_do_not_replace_each_other(
    database, tmp_path, clients, restarted
):
    def server():
        return AggregatorService(
            Evaluator(Frontend(database), ["linear_accuracy"]), journal=Journal(tmp_path / "j")
        )

    service = server()
    for run, labels, client in zip("ab", ("one", "two"), clients, strict=True):
        register(service, labels, client, run_pattern=f"^{run}$")
    for run in "ab":
        TrainingProcess(service, run).send(0)
    if restarted:
        service.close()
        service = server()
    for run in "ab":
        trained = TrainingProcess(service, run)
        trained.seq = 1
        trained.send(1)
    service.flush()
    service.close()
    assert scored_on(database, "a") == {0: "one", 1: "one"}
    assert scored_on(database, "b") == {0: "two", 1: "two"}
    assert codes(database) == []


@pytest.mark.parametrize("order", [1, -1])
def test_target_with_more_patterns_comes_first(service, database, order):
    service.evaluator.scores = ["linear_accuracy"]
    given = [
        ("one", {}),
        ("two", {"run_pattern": "^a"}),
        ("three", {"run_pattern": "^a", "layer_pattern": "2"}),
    ]
    for labels, patterns in given[::order]:
        register(service, labels, **patterns)
    for run in "ab":
        one = TrainingProcess(service, run)
        one.send(0)
        one.send(0, address="fc2")
    service.flush()
    assert [scored_on(database, run, layer)[0] for run in "ab" for layer in ("fc1", "fc2")] == [
        "two", "three", "one", "one",
    ]  # fmt: skip
    assert codes(database) == []


def test_same_patterns_replace_and_it_is_said(service, database):
    service.evaluator.scores = ["linear_accuracy"]
    register(service, "one", "x", run_pattern="a")
    a = TrainingProcess(service, "a")
    a.send(0)
    service.flush()
    register(service, "two", "x", run_pattern="a")
    (notice,) = database.notices()
    assert (notice["code"], notice["run"]) == ("target_replaced", "")
    assert "the runs that it is for are now scored" in notice["text"]  # any run with an "a" in its name
    a.send(1)
    service.flush()
    register(service, "three", "y", run_pattern="a")
    a.send(2)
    service.flush()
    assert scored_on(database, "a") == {0: "one", 1: "two", 2: "three"}
    (notice,) = database.notices()
    assert (notice["code"], notice["count"]) == ("target_replaced", 2)


def test_labels_that_replace_those_of_one_run_are_told_of_that_run(service, database):
    for labels in ("one", "two"):
        register(service, labels, run_pattern="^" + re.escape("lr=0.1 (b)\n\\d") + "$")
    (notice,) = database.notices()
    assert (notice["code"], notice["run"]) == ("target_replaced", "lr=0.1 (b)\n\\d")
    assert "the run 'lr=0.1 (b)" in notice["text"]


@pytest.mark.parametrize("epochs", [(0, 1), (1, 0)])  # the evaluator does not score epochs in their order
def test_target_registered_after_data_points_were_scored_is_told(service, database, epochs):
    a = TrainingProcess(service, "a")
    for epoch in epochs:
        a.send(epoch)
        service.flush()
    a.register(LABELS["one"])
    (notice,) = database.notices()
    assert (notice["code"], notice["run"], notice["model"]) == ("target_late", "a", "m")
    assert (
        "'digit' was registered after 2 data points of this run began to be scored, the last of epoch 1"
        in (notice["text"])
    )
    a.send(2)
    service.flush()
    a.register(LABELS["one"])
    assert database.points("a", "m", score="linear_f1", target="digit")["epoch"].tolist() == [2]
    assert len(database.notices()) == 1


def test_late_target_is_told_of_a_run_with_labels_once_it_is_scored_there(service, database):
    a, b = TrainingProcess(service, "a"), TrainingProcess(service, "b")
    a.register(LABELS["one"])
    a.send(0)
    service.flush()
    for process in (a, b):
        process.register(LABELS["two"], name="parity")
    b.send(0)
    service.flush()
    assert codes(database) == []
    a.send(1)
    service.flush()
    assert codes(database) == [("target_late", "a")]


def test_late_target_is_not_told_of_a_run_that_was_removed(service, database):
    TrainingProcess(service, "a").send(0)
    service.flush()
    service.evaluator.remove("a")
    TrainingProcess(service, "b").register(LABELS["one"])
    assert codes(database) == []


def test_target_that_a_client_registers_again_with_a_new_server_is_not_late(database):
    for epoch in (0, 1):
        service = AggregatorService(Evaluator(Frontend(database), ["mean", "linear_f1"]))
        a = TrainingProcess(service, "a")
        if epoch:  # the records wait before the client registers again
            a.send(epoch)
            service.flush()
        a.register(LABELS["one"])
        a.send(epoch + 1)
        service.flush()
        service.close()
    assert codes(database) == []


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_notice_of_nan_names_the_epoch_in_which_it_began(service, database, order):
    service.evaluator.scores = ["nonfinite"]
    array = np.ones((20, 2), np.float32)
    for number, epoch in enumerate(order):
        array[0, 0] = np.nan if epoch >= 2 else 1.0
        facts = {"address": "fc1", "epoch": epoch, "run": "r"}
        service.evaluator.points([point(record(20, array=array.copy(), **facts))])
        service.flush()
        told = [each["text"] for each in database.notices() if each["code"] == "nonfinite"]
        known = [each for each in order[: number + 1] if each >= 2]
        assert len(told) == bool(known)
        assert all(f"began in fc1 at epoch {min(known)}" in text for text in told)
    assert {each["level"] for each in database.notices() if each["code"] == "nonfinite"} == {"warning"}


def test_run_of_two_targets_has_no_scores_of_them_and_it_is_said(service, database):
    service.evaluator.scores = ["linear_accuracy"]
    old = TrainingProcess(service, "ab old")
    register(service, "one", "x", run_pattern="a")
    old.send(0)
    service.flush()
    register(service, "two", "y", run_pattern="b")
    new = TrainingProcess(service, "ab new")
    for epoch in range(1, 3):
        for one in (old, new, TrainingProcess(service, f"a {epoch}"), TrainingProcess(service, f"b {epoch}")):
            one.send(epoch)
    service.flush()
    assert scored_on(database, "ab old") == {0: "one", 1: "one", 2: "one"}
    assert scored_on(database, "ab new") == {}
    assert (scored_on(database, "a 1"), scored_on(database, "b 1")) == ({1: "one"}, {1: "two"})
    told = {notice["run"]: notice for notice in database.notices()}
    assert set(told) == {"ab old", "ab new"}
    assert {notice["code"] for notice in told.values()} == {"target_disputed"}
    assert "'digit' was registered with run_pattern='a' and with run_pattern='b'" in told["ab new"]["text"]
    assert "the run has no scores of it" in told["ab new"]["text"]
    assert "the run stays with the one registered first" in told["ab old"]["text"]
    register(service, "one", "y", run_pattern="b")  # the same labels leave no doubt
    new.send(3)
    service.flush()
    assert scored_on(database, "ab new") == {3: "one"}


def test_last_registration_of_a_process_counts_where_it_applies(service, database):
    service.evaluator.scores = ["linear_accuracy"]
    a = TrainingProcess(service, "a")
    a.register(LABELS["one"])
    a.register(LABELS["two"], layer_pattern="2")
    for address in ("fc1", "fc2"):
        a.send(0, address=address)
    service.flush()
    a.register(LABELS["three"], layer_pattern="fc")
    for address in ("fc1", "fc2"):
        a.send(1, address=address)
    service.flush()
    assert scored_on(database, "a", "fc1") == {0: "one", 1: "three"}
    assert scored_on(database, "a", "fc2") == {0: "two", 1: "three"}
    assert codes(database) == []


@pytest.mark.parametrize("facts", [{"array": np.zeros((1,) * 9, np.float32)}, {"run": "a\0b"}, {"step": -5}])
def test_one_invalid_record_does_not_refuse_others(service, database, facts):
    odd = record(**({"address": "odd"} | facts))
    envelope = {"client": "c", "seq": 1}
    assert service.records([odd, record()], envelope).accepted == 1
    assert service.records([odd, record()], envelope) == IngestReply(0, True)
    service.flush()
    assert set(database.points("r", "m")["address"]) == {"fc1"}
    assert service.status()["refused"] == 1
    (notice,) = database.notices()
    assert (notice["code"], notice["count"]) == ("refused", 1)
    assert notice["run"] == ("" if "run" in facts else "r")
    with pytest.raises(InputError):
        service.records([odd, odd], {})


def test_status_waits_for_request_in_progress(database):
    class Slow(Aggregator):
        inside, seen = False, ()

        def accept(self, *args, **facts):
            self.inside = True
            time.sleep(0.1)
            self.inside = False
            return super().accept(*args, **facts)

        def status(self):
            self.seen = (*self.seen, self.inside)
            return super().status()

    service = AggregatorService(Evaluator(Frontend(database), ["mean"]), Slow())
    thread = threading.Thread(target=service.records, args=([record()], {}))
    thread.start()
    while thread.is_alive():
        service.status()
        time.sleep(0.01)
    service.close()
    assert service.aggregator.seen
    assert not any(service.aggregator.seen)


class Full(Frontend):
    """A frontend whose disk is full for a while."""

    away = 3

    def results(self, results, infos, predicted=(), unscored=None):
        if self.away:
            self.away -= 1
            raise AwayError("The database cannot be written now: disk full.")
        super().results(results, infos)


def test_scores_are_retried_while_disk_is_full(database, monkeypatch):
    monkeypatch.setattr(worker, "FIRST_PAUSE_S", 0.01)
    stored = []
    evaluator = Evaluator(Full(database), ["mean"])
    evaluator.points([point(record())], lambda done, scored: stored.append((done, scored)))
    evaluator.flush(timeout=10)
    assert len(stored) == 1
    assert evaluator.status() == {"scored": 1, "failed": 0, "pending": 0}
    assert len(database.points("r", "m")) == 1
    evaluator.close()


def test_flush_error_names_the_cause(database, monkeypatch):
    monkeypatch.setattr(worker, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(worker, "AWAY_S", 0.2)
    frontend = Full(database)
    frontend.away = 10**9
    evaluator, stored = Evaluator(frontend, ["mean"]), []
    evaluator.points([point(record())], lambda done, scored: stored.append((done, scored)))
    with pytest.raises(AwayError, match=r"disk full\. 1 data point waits to be scored and is kept"):
        evaluator.flush()
    evaluator.close()
    assert stored == []


def test_flush_ends_after_timeout(database, monkeypatch):
    go = threading.Event()
    monkeypatch.setattr(module, "measure", lambda *rest: go.wait(10) and 1 / 0)
    evaluator, stored = Evaluator(Frontend(database), ["mean"]), []
    evaluator.points([point(record())], lambda done, scored: stored.append((done, scored)))
    with pytest.raises(AwayError, match="The time ran out: 1 data point waits"):
        evaluator.flush(timeout=0.05)
    go.set()
    evaluator.flush()
    assert [scored for _, scored in stored] == [False]  # it will not be better another time
    evaluator.close()


def test_evaluator_closes_at_once_if_frontend_is_away(database):
    class Away(Full):
        tries = 0

        def results(self, results, infos, predicted=(), unscored=None):
            self.tries += 1
            time.sleep(0.05)
            raise AwayError("away")

    frontend, stored = Away(database), []
    evaluator = Evaluator(frontend, ["mean"])
    evaluator.points(
        [point(record(address=str(number))) for number in range(100)],
        lambda done, scored: stored.append((done, scored)),
    )
    began = time.monotonic()
    evaluator.close()
    assert time.monotonic() - began < 2
    assert stored == []


def test_target_whose_layer_pattern_matches_no_layer(service, database):
    labels = {"targets": [0, 1] * 10}
    service.put_target(target_of({"name": "typo", "layer_pattern": "fv1", **labels}))
    service.put_target(target_of({"name": "one layer", "layer_pattern": "fc2", **labels}))
    service.put_target(
        target_of({"name": "other run", "layer_pattern": "fv1", "run_pattern": "other", **labels})
    )
    for epoch in range(2):
        for address in ("fc1", "fc2"):
            service.records([record(20, address=address, epoch=epoch)], {})
        service.flush()
    notices = [notice for notice in database.notices() if notice["code"] == "target_unused"]
    [notice] = notices
    assert (notice["run"], notice["model"], notice["level"], notice["count"]) == ("r", "m", "warning", 1)
    assert notice["text"].startswith(
        "The target 'typo' has layer_pattern 'fv1', which matches none of the 2 layers"
    )
    assert "Did you mean 'fc1'" in notice["text"]


def test_notice_that_comes_with_every_request_is_logged_once_a_minute(database, monkeypatch, caplog):
    frontend, now = Frontend(database), [1000.0]
    monkeypatch.setattr(last_minute.time, "monotonic", lambda: now[0])
    often, other = (
        Notice("dropped", "Arrays were dropped.", run="r"),
        Notice("late", "Rows came late.", run="r"),
    )
    for _ in range(100):
        frontend.notices([often, other])
    assert sorted(caplog.messages) == ["dropped in r: Arrays were dropped.", "late in r: Rows came late."]
    now[0] += 61
    frontend.notices([often])
    assert caplog.messages[2:] == ["dropped in r: Arrays were dropped."]
    assert sorted(one["count"] for one in database.notices("r")) == [100, 101]
