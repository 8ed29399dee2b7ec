"""Scoring on Ray's workers: bitwise the results of this process, even if workers die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import urllib.request

import numpy as np
import pytest
from serving_help import point, record, target_of
from sklearn.datasets import load_digits

from intus.engines import LocalEngine
from intus.scores import base
from intus.serving import worker
from intus.serving.aggregation.service import AggregatorService
from intus.serving.errors import AwayError
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend
from intus.serving.run import Server
from intus.storage.codec import encode_records
from intus.storage.database import Database

pytestmark = pytest.mark.ray

DIGITS = load_digits()
ROWS = np.arange(600)
LAYERS, EPOCHS = [f"layer{number}" for number in range(8)], 3


@pytest.fixture(scope="module")
def engine():
    from intus.engines.ray import RayEngine

    engine = RayEngine(workers=2)
    yield engine
    engine.close()


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "intus.db") as database:
        yield database


def train(service, epochs=EPOCHS):
    """Send layers that learn the digits: random projections with less noise each epoch; two are equal."""
    service.put_target(target_of({"name": "digit", "targets": DIGITS.target[:600].tolist()}))
    service.put_target(target_of({"name": "parity", "targets": [f"{d % 2}" for d in DIGITS.target[:600]]}))
    for epoch in range(epochs):
        for number, address in enumerate(LAYERS):
            rng = np.random.default_rng(min(number, 6))
            array = DIGITS.data[:600] @ rng.normal(size=(64, 12)) + rng.normal(size=(600, 12)) * 9 / (
                epoch + 1
            )
            for rows in np.array_split(ROWS, 3):
                block = array[rows].astype(np.float32)
                service.records([record(array=block, items=rows, address=address, epoch=epoch)], {})
        weights = np.random.default_rng(epoch).normal(size=(5, 5)).astype(np.float32)
        for kind in ("parameter", "update"):
            service.records([record(array=weights, kind=kind, epoch=epoch, batch_axis=None)], {})


def stored(database):
    """Return every stored point as exact text, without the time of writing."""
    points = database.points("r", "m")
    return sorted(repr(list((row | {"training": None}).items())) for row in points)  # when it began differs


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    with Database(tmp_path_factory.mktemp("local") / "intus.db") as database:
        service = AggregatorService(Evaluator(Frontend(database), engine=LocalEngine()))
        train(service)
        service.close()
        return stored(database)


def processes(engine):
    """Return the process ids of the workers."""
    import ray

    return ray.get([each.actor.__ray_call__.remote(lambda self: os.getpid()) for each in engine._workers])


def test_ray_scores_equal_local_scores_bitwise(engine, database, expected):
    evaluator = Evaluator(Frontend(database), engine=engine)
    service = AggregatorService(evaluator)
    train(service)
    service.flush()
    assert stored(database) == expected
    assert len(expected) > 500
    assert evaluator.status() == {"scored": 30, "failed": 0, "pending": 0}


def test_ray_scores_of_repeated_splits_equal_local_ones(engine, tmp_path):
    """``intus serve --splits 5``: the splits are made in the workers."""

    def scored(name, engine, splits):
        with Database(tmp_path / f"{name}.db") as database:
            service = AggregatorService(Evaluator(Frontend(database), engine=engine, splits=splits))
            train(service, epochs=1)
            service.flush()
            return stored(database)

    there, here = scored("ray", engine, 5), scored("local", LocalEngine(), 5)
    assert there == here
    assert sum("mean of 5 splits" in one for one in there) >= len(LAYERS)
    assert here != scored("one", LocalEngine(), 1)


def test_tasks_of_killed_worker_are_run_again(engine, database, expected):
    evaluator = Evaluator(Frontend(database), engine=engine)
    service = AggregatorService(evaluator)
    done, results = threading.Semaphore(0), evaluator.frontend.results

    def counted(*scored):
        results(*scored)
        done.release()

    evaluator.frontend.results = counted
    train(service)
    handed_on = threading.Thread(target=service.flush)
    handed_on.start()
    pids = processes(engine)
    for _ in range(3):
        assert done.acquire(timeout=120)
    os.kill(pids[0], signal.SIGKILL)  # a whole process, in the middle of an epoch
    for _ in range(8):
        assert done.acquire(timeout=120)
    engine._ray.kill(engine._workers[1].actor)  # an actor, by Ray itself
    handed_on.join()
    assert not set(processes(engine)) & set(pids)
    assert stored(database) == expected
    assert evaluator.status() == {"scored": 30, "failed": 0, "pending": 0}


def fatal(statistics):
    """End the process that scores a layer of four features."""
    if statistics.features == 4:
        os._exit(1)
    return [base.ScoreResult("fatal", 1.0)]


def test_data_point_that_kills_workers_is_kept(engine, database, monkeypatch):
    """A worker may be killed for want of memory, so its end says nothing about the data."""
    monkeypatch.setitem(base._SCORES, "fatal", base.Score("fatal", fatal, frozenset({"tally"})))
    monkeypatch.setattr(worker, "AWAY_S", 0.1)
    evaluator, settled = Evaluator(Frontend(database), ["fatal"], engine=engine), []
    blocks = [
        record(array=np.ones((3, 4 if number == 2 else 3)), address=f"fc{number}") for number in range(6)
    ]
    evaluator.points([point(block) for block in blocks], lambda point, scored: settled.append(point))
    with pytest.raises(AwayError, match="3 workers died while they ran the same task") as caught:
        evaluator.flush()
    assert "1 data point waits to be scored and is kept" in str(caught.value)
    assert sorted(database.points("r", "m")["address"]) == ["fc0", "fc1", "fc3", "fc4", "fc5"]
    (notice,) = database.notices()
    assert notice["text"].startswith("3 workers died while they ran the same task, as happens without")
    assert "First at 'fc2' (output in mode train)" in notice["text"]
    assert evaluator.status() == {"scored": 5, "failed": 0, "pending": 1}
    assert len(settled) == 5


def test_server_with_ray_scores_and_stops(tmp_path):
    with Server(no_token=True, database=tmp_path / "intus.db", port=0, engine="ray", workers=1) as server:
        url = f"http://{server.host}:{server.port}"
        for path, body in (("/records", encode_records([record(600)])), ("/flush", b"{}")):
            urllib.request.urlopen(urllib.request.Request(url + path, data=body)).close()
        with Database(tmp_path / "intus.db") as database:
            assert "mean" in database.points("r", "m")["score"].tolist()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0


def test_unreachable_cluster_is_refused(tmp_path):
    options = ["--engine=ray", "--ray-address=127.0.0.1:1", f"--database={tmp_path}/intus.db", "--port=0"]
    server = subprocess.run(
        [sys.executable, "-m", "intus.serving", *options], capture_output=True, text=True, timeout=120
    )
    assert server.returncode == 1
    assert "Ray cannot be used at 127.0.0.1:1" in server.stderr.splitlines()[-1]
