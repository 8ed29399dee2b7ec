"""The roles as objects: what several threads may do to them at once, and what they pass on."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from serving_help import point, record

from intus.core.errors import InputError
from intus.serving.aggregator import Aggregator
from intus.serving.roles import Collector, Evaluator, Frontend
from intus.serving.targets import Target
from intus.storage.database import Database


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "intus.db") as database:
        yield database


@pytest.fixture
def collector(database):
    collector = Collector(Evaluator(Frontend(database), ["mean", "linear_f1"]))
    yield collector
    collector.close()


def elsewhere(work, timeout=None):
    """Call it in another thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout)
    return thread


def test_a_target_may_arrive_while_the_targets_are_gone_through(collector, monkeypatch):
    applies, names = Target.applies, iter("abcdefgh")

    def slow(self, point):
        elsewhere(lambda: collector.put_target({"name": next(names), "targets": [1, 2]}), 5)
        return applies(self, point)

    collector.put_target({"name": "first", "targets": [1, 2]})
    collector.put_target({"name": "second", "targets": [1, 2]})
    monkeypatch.setattr(Target, "applies", slow)
    collector.records([record()], {})
    collector.flush()
    assert collector.evaluator.status() == {"scored": 1, "failed": 0, "pending": 0}


def test_a_target_that_arrives_while_the_stored_ones_are_fetched_is_kept(database):
    class Slow(Frontend):
        putting = None

        def targets(self):
            found = super().targets()
            if self.putting is None:
                self.putting = threading.current_thread()
                self.putting = elsewhere(lambda: evaluator.put_target(facts), 0.3)
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


def test_labels_of_an_earlier_life_are_for_the_runs_that_have_scores_of_them(collector, database):
    block = np.random.default_rng(0).normal(size=(20, 2))
    collector.put_target({"name": "digit", "targets": [0, 1] * 10})
    collector.records([record(20, array=block)], {})
    collector.flush()
    later = Collector(Evaluator(Frontend(database), ["linear_f1"]))
    for run, epoch in (("r", 1), ("new", 0), ("new", 1)):
        later.records([record(20, array=block, run=run, epoch=epoch)], {})
    later.flush()
    assert database.points("r", "m", score="linear_f1")["epoch"].tolist() == [0, 1]
    assert len(database.points("new", "m", score="linear_f1")) == 0
    (notice,) = database.notices()
    assert (notice["code"], notice["run"], notice["count"]) == ("target_kept", "new", 1)
    assert "(digit) are not used for this run" in notice["text"]
    later.put_target({"name": "digit", "targets": [1, 0] * 10})
    later.records([record(20, array=block, run="new", epoch=2)], {})
    later.close()
    assert database.points("new", "m", score="linear_f1")["epoch"].tolist() == [2]


@pytest.mark.parametrize("facts", [{"array": np.zeros((1,) * 9, np.float32)}, {"run": "a\0b"}, {"step": -5}])
def test_one_odd_record_does_not_take_the_others_with_it(collector, database, facts):
    odd = record(**({"address": "odd"} | facts))
    envelope = {"client": "c", "seq": 1}
    assert collector.records([odd, record()], envelope)["accepted"] == 1
    assert collector.records([odd, record()], envelope) == {"accepted": 0, "duplicate": True}
    collector.flush()
    assert set(database.points("r", "m")["address"]) == {"fc1"}
    assert collector.status()["refused"] == 1
    (notice,) = database.notices()
    assert (notice["code"], notice["count"]) == ("refused", 1)
    assert notice["run"] == ("" if "run" in facts else "r")
    with pytest.raises(InputError):
        collector.records([odd, odd], {})


def test_the_status_waits_until_a_request_is_placed(database):
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

    collector = Collector(Evaluator(Frontend(database), ["mean"]), Slow())
    thread = threading.Thread(target=collector.records, args=([record()], {}))
    thread.start()
    while thread.is_alive():
        collector.status()
        time.sleep(0.01)
    collector.close()
    assert collector.aggregator.seen
    assert not any(collector.aggregator.seen)
