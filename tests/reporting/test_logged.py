"""``Probe.log``: the user's own values, read back from the file, from a server and by SQL."""

from __future__ import annotations

import logging
import math
import socket
import sqlite3
import time

import numpy as np
import pytest
import torch

import intus
from intus.core.errors import InputError
from intus.serving.run import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("logged") / "runs.db"
    with Server(database=path, port=0, scores="mean") as server:
        server.database_path = path
        yield server


@pytest.fixture
def unused_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def linear():
    return torch.nn.Linear(2, 2)


def stored(path, run, columns="name, step, epoch, value, note"):
    with sqlite3.connect(path) as connection:
        query = (
            f"SELECT {columns} FROM log JOIN run ON run.id = log.run WHERE run.run = ? ORDER BY name, step"
        )
        return connection.execute(query, (run,)).fetchall()


def train(watch, model, losses):
    """Return what was logged: one loss per step, four steps an epoch."""
    logged = []
    for step, loss in enumerate(losses):
        watch.epoch = step // 4
        model(torch.ones(1, 2))
        watch.log(loss=loss)
        logged.append((step, step // 4, float(loss)))
    return logged


def test_values_read_back_equal_what_was_logged(server):
    model, losses = linear(), [0.1 * 0.7**step for step in range(10)]
    before = time.time()
    with intus.probe(model, server.host, server.port, run="losses") as watch:
        logged = train(watch, model, losses)
    after = time.time()
    assert intus.flush(server.host, server.port)
    assert stored(server.database_path, "losses", "step, epoch, value") == logged
    for where in (server.database_path, f"{server.host}:{server.port}"):
        run = intus.runs(where)["losses"]
        table = run.log("loss")
        assert run.logged == ["loss"]
        assert list(table[["step", "epoch", "value"]].itertuples(index=False, name=None)) == logged
        seconds = table["time"].map(lambda time: time.timestamp())
        assert seconds.is_monotonic_increasing
        assert before <= seconds.iloc[0] < seconds.iloc[-1] <= after + 1
        with pytest.raises(InputError, match=r"The run 'losses' has logged no 'los'. Did you mean 'loss'"):
            run.log("los")


def test_scalars_of_every_kind(server):
    kinds = {
        "python": 3,
        "flag": True,
        "numpy": np.float32(0.1),
        "array": np.array([[2.5]]),
        "tensor": torch.tensor(0.3, requires_grad=True),
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "nan": math.nan,
        "inf": np.float64("inf"),
        "minus": torch.tensor(-math.inf),
        "large": 1e308,
        "a name/with $igns ∆": 1,
    }
    with intus.probe(linear(), server.host, server.port, run="kinds") as watch:
        watch.log(kinds, step=7, epoch=2.5)
    assert intus.flush(server.host, server.port)
    for where in (server.database_path, f"{server.host}:{server.port}"):
        table = intus.runs(where)["kinds"].log().set_index("name")
        assert set(table["step"]) == {7}
        assert set(table["epoch"]) == {2.5}
        values = table["value"]
        assert set(values.index) == set(kinds)
        for name, value in kinds.items():
            np.testing.assert_equal(values[name], float(value.item() if hasattr(value, "item") else value))
    special = {
        name: (value, note) for name, _, _, value, note in stored(server.database_path, "kinds") if note
    }
    assert special == {"nan": (None, "nan"), "inf": (None, "inf"), "minus": (None, "-inf")}


def test_what_is_no_number_is_named_once_and_does_not_stop_the_training(server, caplog):
    with (
        caplog.at_level(logging.WARNING),
        intus.probe(linear(), server.host, server.port, run="odd") as watch,
    ):
        for _ in range(3):
            watch.log(
                {"text": "0.3", "vector": torch.ones(3), "none": None, "": 1, "\ud800": 1, 5: 1, "good": 1}
            )
    assert intus.flush(server.host, server.port)
    assert {name for name, *_ in stored(server.database_path, "odd")} == {"good"}
    assert watch.status()["troubles"] == 18
    lines = [record.getMessage() for record in caplog.records if "watch.log" in record.getMessage()]
    assert len(lines) == 6
    assert (
        "intus: watch.log does not record 'vector': it must be a number, got Tensor of shape (3,)." in lines
    )
    with pytest.raises(InputError, match="step must be a number"):
        watch.log(loss=1, step="3")
    with pytest.raises(InputError, match=r"watch.log takes numbers by name"):
        watch.log(0.3)


def test_values_of_one_step_are_all_kept(server):
    with intus.probe(linear(), server.host, server.port, run="one step") as watch:
        for value in range(100):
            watch.log(loss=value)
    assert intus.flush(server.host, server.port)
    assert [value for *_, value, _ in stored(server.database_path, "one step")] == list(
        map(float, range(100))
    )


@pytest.mark.long
def test_server_that_is_away_gets_all_values_later(tmp_path, unused_port):
    model = linear()
    with intus.probe(model, "127.0.0.1", unused_port, run="away", config={"seed": 1}) as watch:
        logged = train(watch, model, np.linspace(1, 0, 3000))
    deadline = time.monotonic() + 20  # the thread that sends has yet to try
    while watch.status()["server"] == "untried" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert watch.status()["server"] == "down"
    with Server(database=tmp_path / "away.db", port=unused_port, scores="mean"):
        assert intus.flush("127.0.0.1", unused_port)
    assert stored(tmp_path / "away.db", "away", "step, epoch, value") == logged
    assert intus.runs(tmp_path / "away.db")["away"].config == {"seed": 1}


def test_thousands_of_values_are_thinned_for_the_page_without_losing_extremes(server):
    values = np.random.default_rng(0).normal(size=5000).round(3)
    values[[4000, 4001]] = 50.0, math.nan
    with intus.probe(linear(), server.host, server.port, run="long") as watch:
        for step, value in enumerate(values):
            watch.log(step=step, noise=value)
    assert intus.flush(server.host, server.port)
    run = intus.runs(server.database_path)["long"]
    np.testing.assert_array_equal(run.log()["value"], values)
    client = intus.runs(f"{server.host}:{server.port}")._source
    thinned = client._get("/api/log", run="long", model="Linear", most="400")
    assert thinned["total"] == {"noise": 5000}
    assert len(thinned["step"]) <= 404
    shown = dict(zip(thinned["step"], map(float, thinned["value"]), strict=True))
    np.testing.assert_equal(list(shown.values()), values[list(shown)])
    assert (shown[0], shown[4000], shown[4999]) == (values[0], 50.0, values[4999])
    assert math.isnan(shown[4001])
    for start in range(0, 4975, 25):
        inside = [value for step, value in shown.items() if start <= step < start + 25]
        assert np.nanmax(inside) == np.nanmax(values[start : start + 25])
        assert np.nanmin(inside) == np.nanmin(values[start : start + 25])


@pytest.mark.long
def test_logging_is_cheap(server):
    """A call takes less than 0.1 ms, and no more than about one message a second is sent."""
    with intus.probe(linear(), server.host, server.port, run="cheap") as watch:
        sender = watch._tap.sender
        sent, send = [], sender.send_json
        sender.send_json = lambda *given, **more: sent.append(given) or send(*given, **more)
        began, clock = time.process_time(), time.monotonic()
        for step in range(2000):
            watch.log(loss=0.5, accuracy=0.9, step=step)
        took, passed = time.process_time() - began, time.monotonic() - clock
        del sender.send_json
    assert took / 2000 < 1e-4
    assert len(sent) <= 2 + passed + 2000 / 1000
