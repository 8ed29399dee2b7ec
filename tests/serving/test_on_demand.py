"""Processes that are started while there is much to score, and end when there is not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from serving_help import point, record, target_of

from intus.core.errors import InputError
from intus.core.results import COLUMNS
from intus.engines import LocalEngine, Task, make_engine, on_demand
from intus.engines.on_demand import OnDemandEngine
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend
from intus.storage.database import Database

HERE = os.getpid()


def wait_for(condition, seconds=120.0):
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.02)
    assert condition()


class Held(LocalEngine):
    """An engine of processes whose first task is done when the test says so."""

    made: list

    def __init__(self, workers):
        self.ready, self.closed, self.tasks = threading.Event(), False, 0
        Held.made.append(self)

    def submit(self, task):
        self.tasks += 1

        def answer():
            self.ready.wait(60)
            return task.function(*task.arguments)

        return answer

    def close(self):
        self.closed = True
        self.ready.set()


@pytest.fixture
def made():
    Held.made = []
    return Held.made


def test_processes_start_after_work_without_a_pause_and_end_when_idle(made):
    engine = OnDemandEngine(1, Held, after=0.2, idle=0.3)
    assert engine.submit(Task(max, (1, 2)))() == 2
    time.sleep(0.3)
    engine.submit(Task(max, (1, 2)))()  # there was a pause
    assert made == []
    waiting = [engine.submit(Task(max, (1, 3)))]
    time.sleep(0.3)
    waiting.append(engine.submit(Task(max, (1, 4))))
    wait_for(lambda: made and made[0].tasks == 1)
    assert not engine.running  # until they are ready, tasks run here
    assert engine.submit(Task(max, (1, 5)))() == 5
    made[0].ready.set()
    wait_for(lambda: engine.running)
    assert [engine.submit(Task(max, (1, 6)))(), *(answer() for answer in waiting)] == [6, 3, 4]
    assert made[0].tasks == 2
    time.sleep(0.6)
    assert engine.running  # as long as an answer is awaited
    waiting.clear()
    wait_for(lambda: made[0].closed)
    assert not engine.running
    assert engine.submit(Task(max, (1, 7)))() == 7
    engine.close()


def test_closed_engine_ends_processes_that_are_starting(made):
    engine = OnDemandEngine(1, Held, after=0.0)
    answer = engine.submit(Task(max, (1, 2)))
    engine.close()
    assert made[0].closed
    assert answer() == 2


class Refusing(LocalEngine):
    def __init__(self, workers):
        pass

    def submit(self, task):
        raise InputError("What the workers need cannot be pickled.")


def test_tasks_that_processes_cannot_take_run_here(caplog):
    engine = OnDemandEngine(1, Refusing, after=0.0)
    assert [engine.submit(Task(max, (1, number)))() for number in range(3)] == [1, 1, 2]
    wait_for(lambda: not engine._thread.is_alive())
    assert "cannot be pickled" in caplog.text
    assert not engine.running
    engine.close()


def where(number):
    return os.getpid()


def test_real_processes_take_over_and_leave_nothing_running():
    engine = make_engine("on demand", 1)
    engine._after = 0.0
    held = engine.submit(Task(where, (0,)))
    wait_for(lambda: engine.running)
    worker = engine.submit(Task(where, (1,)))()
    assert worker != HERE
    assert held() == HERE
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="a process that has no parent any more keeps its number")
def test_workers_end_with_a_process_that_is_killed(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(
        "import os\nfrom intus.engines import Task, make_engine\n"
        "if __name__ == '__main__':\n"
        "    engine = make_engine('processes', 1)\n"
        "    assert engine.submit(Task(max, (3,), shared=(4,)))() == 4\n"
        "    print(engine.submit(Task(os.getpid))(), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    (tmp_path / "files").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "files")}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    worker = int(done.stdout)

    def ended():
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return True
        return False

    wait_for(ended, 30)
    assert not list(tmp_path.glob("files/intus-engine-*"))


def test_default_is_half_of_the_cores(monkeypatch):
    for cores, workers in ((1, 0), (2, 1), (3, 1), (8, 4), (64, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, n=cores: set(range(n)), raising=False)
        assert on_demand.default_workers() == workers


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_scores_of_processes_equal_those_of_this_process(tmp_path, workers):
    rng, found = np.random.default_rng(0), []
    points = [
        point(record(array=rng.normal(size=(50, 6)).astype(np.float32), address=f"l{n}", items=np.arange(50)))
        for n in range(4)
    ]
    for name in ("local", "processes"):
        engine = make_engine(name, workers)
        with Database(tmp_path / f"{name}.db") as database:
            evaluator = Evaluator(Frontend(database), engine=engine)
            evaluator.put_target(target_of({"name": "t", "targets": [n % 3 for n in range(50)]}))
            evaluator.points(points)
            evaluator.close()
            table = database.points("r", "m")
        found.append(sorted(map(repr, zip(*(table[name].tolist() for name in COLUMNS), strict=True))))
    assert found[1] == found[0]
    assert len(found[0]) > 40


class Ended(LocalEngine):
    """An engine whose task under way fails when it is closed, as with workers that are killed."""

    def __init__(self):
        self.begun, self.closed = threading.Event(), threading.Event()

    def submit(self, task):
        def answer():
            self.begun.set()
            self.closed.wait(60)
            raise RuntimeError("The workers were ended.")

        return answer

    def close(self):
        self.closed.set()


def test_data_point_whose_worker_is_ended_by_a_stop_is_kept(tmp_path):
    engine, done = Ended(), []
    with Database(tmp_path / "x.db") as database:
        evaluator = Evaluator(Frontend(database), engine=engine)
        evaluator.points([point(record())], lambda point, scored: done.append(scored))
        engine.begun.wait(60)
        assert evaluator.close(patience=0.1) is False
        evaluator._worker._thread.join(60)
        assert done == []
        assert evaluator.status()["failed"] == 0
        assert not database.notices()
