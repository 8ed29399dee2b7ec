"""The times at which the scores of runs are looked through for findings."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from serving_help import point, record

import intus
from intus.core.results import COLUMNS, Results
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.findings_of_runs import PAUSE, FindingsOfRuns
from intus.serving.frontend import Frontend
from intus.serving.schedule import Moment
from intus.storage.database import Database


class Slow(Database):
    """A database in which reading the scores of a run takes a while."""

    seconds = 0.02

    def points(self, run, model, **options):
        if options["score"] == "linear_f1":
            self.looks.append((run, time.monotonic(), threading.current_thread().name))
            time.sleep(self.seconds)
        return super().points(run, model, **options)


@pytest.fixture
def database(tmp_path):
    with Slow(tmp_path / "x.db") as opened:
        opened.looks = []
        yield opened


def learned(run, epochs):
    """Return scores of a layer that knows nothing in the first two of these epochs, and much later."""
    values = np.array([0.1 if epoch < 2 else 0.9 for epoch in epochs])
    facts = {"run": run, "model": "m", "address": "fc1", "target": "digit", "score": "linear_f1"}
    columns = {name: [value] * len(values) for name, value in facts.items()}
    numbers = {"value": values, "low": values - 0.05, "high": values + 0.05, "baseline": values * 0 + 0.1}
    return Results(columns | numbers | {"epoch": np.array(epochs, float)})


def texts(database, run):
    return [notice["text"] for notice in database.notices(run) if notice["code"] == "finding"]


def test_findings_name_the_model(database, tmp_path, caplog):
    """A run with two models, of which each has a layer of the same name."""
    caplog.set_level("INFO")
    findings = FindingsOfRuns(database)
    for run, models in {"r": ("teacher", "student"), "alone": ("net",)}.items():
        for model in models:
            results = learned(run, range(5))
            database.add(Results({name: results[name] for name in COLUMNS} | {"model": [model] * 5}))
        for model in models:
            findings.scored([(run, model)])
        findings.update()
    assert {each.model for each in findings.of("r", "student")} == {"student"}
    assert "finding in r (teacher): digit is learned" in caplog.text
    assert "finding in r (student): digit is learned" in caplog.text
    assert "finding in alone: digit is learned" in caplog.text
    assert {each.model for each in intus.runs(tmp_path / "x.db")["r"].findings()} == {"student", "teacher"}


def test_long_run_is_looked_at_rarely_and_in_the_end_by_a_timer(database):
    findings = FindingsOfRuns(database)
    began = time.monotonic()
    for epoch in range(40):  # each ends while the scores of the one before were just looked through
        database.add(learned("r", [epoch]))
        findings.scored([("r", "m")])
        findings.update()
    assert len(database.looks) <= 2 + (time.monotonic() - began) / (PAUSE * Slow.seconds)
    ends = time.monotonic() + 30
    while not texts(database, "r") and time.monotonic() < ends:
        time.sleep(0.05)
    assert any("digit is learned in fc1 from epoch 2" in text for text in texts(database, "r"))
    assert database.looks[-1][2].startswith("Thread")  # of the timer
    assert [each.kind for each in findings.of("r", "m")][:1] == ["learned"]
    findings.close()


def test_flush_looks_at_once_and_at_the_run_alone(database):
    findings = FindingsOfRuns(database)
    for run in ("a", "b"):
        database.add(learned(run, range(5)))
        findings.scored([(run, "m")])
    findings.flush("a", "m")
    assert [run for run, *_ in database.looks] == ["a"]
    assert texts(database, "a")
    assert not texts(database, "b")
    findings.flush()
    assert [run for run, *_ in database.looks] == ["a", "b"]
    findings.flush()
    assert len(database.looks) == 2
    findings.close()


@pytest.mark.parametrize(("seconds", "looks"), [(0.0, 2), (0.6, 1)])
def test_end_looks_at_what_takes_little_time(database, seconds, looks):
    findings = FindingsOfRuns(database)
    Slow.seconds, before = seconds, Slow.seconds
    try:
        for _ in range(2):
            database.add(learned("r", range(5)))
            findings.scored([("r", "m")])
            if not database.looks:
                findings.flush()
        findings.close()
    finally:
        Slow.seconds = before
    assert len(database.looks) == looks


def test_deleted_run_is_not_looked_at(database):
    findings = FindingsOfRuns(database)
    database.add(learned("r", range(5)))
    findings.flush()
    findings.scored([("r", "m")])
    database.remove(run="r")
    findings.forget("r")
    findings.flush()
    assert database.looks == []
    assert findings.of("r", "m") == []
    findings.close()


def test_age_tells_that_scores_came_since_they_were_looked_through(database):
    findings = FindingsOfRuns(database)
    assert findings.age("r", "m") == (None, False)
    database.add(learned("r", range(3)))
    findings.scored([("r", "m")])
    assert findings.age("r", "m") == (None, True)
    before = time.time()
    findings.update()
    first, behind = findings.age("r", "m")
    assert (before <= first <= time.time(), behind) == (True, False)
    findings.scored([("r", "m")])
    findings.update()  # too soon
    assert findings.age("r", "m") == (first, True)
    findings.flush("r")
    again, behind = findings.age("r", "m")
    assert (again > first, behind) == (True, False)
    findings.close()


def test_nothing_is_found_in_epochs_after_one_that_is_not_scored(database):
    findings = FindingsOfRuns(database)
    database.add(learned("r", [0, 3, 4, 5]))  # the newest are scored first
    findings.scored([("r", "m")], Moment(0, 1.0))
    findings.update()
    assert texts(database, "r") == []
    assert findings.age("r", "m")[1]
    database.add(learned("r", [1, 2]))
    findings.scored([("r", "m")], None)
    findings.close()
    (text,) = texts(database, "r")
    assert "digit is learned in fc1 from epoch 2" in text


def test_flush_looks_at_all_scores(database):
    findings = FindingsOfRuns(database)
    database.add(learned("r", [0, 3, 4, 5]))
    findings.scored([("r", "m")], Moment(0, 1.0))
    findings.update()
    findings.flush()  # what was to be scored, is
    assert "from epoch 3" in texts(database, "r")[0]
    assert not findings.age("r", "m")[1]


class Blocked(Frontend):
    """A frontend that stores the first results when it is told to, and notes what is not scored in full."""

    def __init__(self, database):
        super().__init__(database)
        self.go, self.calls = threading.Event(), []

    def results(self, results, infos=(), predicted=(), unscored=None):
        assert self.go.wait(20)
        self.calls.append((float(results["epoch"][0]), unscored))
        super().results(results, infos, predicted, unscored)


@pytest.mark.parametrize("elsewhere", [None, Moment(0, 0.0)])
def test_evaluator_tells_the_earliest_epoch_that_is_not_scored_in_full(database, elsewhere):
    frontend = Blocked(database)
    evaluator = Evaluator(frontend, ["nonfinite"])
    with evaluator._storing:  # so that all are given before the first is stored
        for epoch in range(1, 6):
            for number, address in enumerate(("a", "b")):
                of_epoch = point(record(address=address, epoch=float(epoch)))
                of_epoch = replace(of_epoch, serial=2 * epoch + number)
                evaluator.point(of_epoch, last=address == "b", waiting=elsewhere)
    frontend.go.set()
    evaluator.flush(timeout=30)
    evaluator.close()
    scored = [0] * 6
    order = []
    for epoch, unscored in frontend.calls:
        scored[int(epoch)] += 1
        left = [each for each in range(1, 6) if scored[each] < 2]
        own = Moment(0, float(left[0])) if left else None
        assert unscored == (own if elsewhere is None else elsewhere)
        order.append(epoch)
    assert len(order) == 10
    assert order != sorted(order)  # newer epochs came before older ones


def test_first_notice_of_nan_does_not_name_where_it_began(database):
    """The newest epoch is scored first, and the layers of it in any order."""
    told = []
    frontend = Blocked(database)
    frontend.notices = told.extend
    frontend.go.set()
    evaluator = Evaluator(frontend, ["nonfinite"])
    array = np.full((20, 2), np.nan, np.float32)
    evaluator.point(point(record(array=array, address="late", epoch=4.0)), last=True)
    evaluator.flush(timeout=30)
    evaluator.close()
    (text,) = [each.text for each in told if each.code == "nonfinite"]
    assert text.startswith(
        "NaN or infinite values, found first at 'late' (output in mode train) in epoch 4. Where they began"
    )
