"""A training script with the real server, also across a restart of the server."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import intus
from intus import inspect, trace
from intus.monitoring import clear, flush, probe, register_targets, remove
from intus.serving.run import Server
from intus.storage.database import Database
from intus.storage.token_file import read_token, remove_token, token_path, write_token

DIGITS = load_digits()
IMAGES = torch.tensor(DIGITS.data, dtype=torch.float32)[:600] / 16
LABELS = torch.tensor(DIGITS.target)[:600]


def read(server, path):
    url, _, token = server.page_url.partition("?token=")
    request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def train(watch, model, epochs, shuffled=False):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in epochs:
        watch.epoch = epoch
        order = torch.randperm(600) if shuffled else torch.arange(600)
        for rows in order.split(100):
            if shuffled:
                watch.items = rows
            optimizer.zero_grad()
            F.cross_entropy(model(IMAGES[rows]), LABELS[rows]).backward()
            optimizer.step()


def points(server, run, **equal):
    query = "&".join(
        f"{name}={value}" for name, value in {"run": run, "model": "Sequential", **equal}.items()
    )
    return read(server, f"api/points?{query}")


@pytest.mark.long
@pytest.mark.parametrize("shuffled", [False, True])
def test_layers_are_scored_against_targets(tmp_path, shuffled):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    with Server(database=tmp_path / "x.db", port=0) as server:
        assert register_targets(server.host, server.port, name="digit", targets=LABELS)
        with probe(model, server.host, server.port, run="r", budget=float("inf")) as watch:
            train(watch, model, range(3), shuffled)
        assert flush(server.host, server.port)
        assert watch.status()["sent"] == 3 * 6 * 4
        ledger = {"sent": 72, "kept": 72, "scored": 72, "waiting": 0, "under_way": 0, "failed": 0, "lost": 0}
        assert ledger.items() <= watch.status()["ledger"].items()
        (run,) = read(server, "api/runs")["runs"]
        assert run["epochs"] == [0, 1, 2]
        assert set(run["addresses"]) == {"", "0", "1", "2"}
        assert run["targets"] == ["digit"]
        f1 = points(server, "r", score="linear_f1", target="digit", address="2")
        assert f1["epoch"] == [0, 1, 2]
        assert f1["value"][-1] > max(0.7, f1["baseline"][-1] + 0.4)  # rows and labels are aligned
        assert points(server, "r", score="mean", address="2")["n"] == [600, 600, 600]
        mean = points(server, "r", score="mean", address="")
        assert len(mean["value"]) == 3
        assert np.isfinite(mean["value"]).all()
        assert read(server, "api/status")["aggregator"]["received"] == 72
        assert remove(server.host, server.port, "Sequential")
        assert clear(server.host, server.port)
        assert read(server, "api/runs")["runs"] == []


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.long
def test_server_killed_and_restarted_during_training(tmp_path):
    torch.manual_seed(0)
    port = free_port()
    model = nn.Sequential(nn.Linear(64, 16))
    server = Server(database=tmp_path / "x.db", port=port, scores="mean")
    with probe(model, "127.0.0.1", port, run="r", which=lambda m, op: op.address == "0") as watch:
        train(watch, model, range(1))
        assert flush("127.0.0.1", port)
        server.process.kill()
        server.process.wait()
        train(watch, model, range(1, 3))
        status = watch.status()
        assert (status["sent"], status["ledger"]) == (6, None)
        with Server(database=tmp_path / "x.db", port=port, scores="mean") as again:
            assert again.page_url != server.page_url  # a new token
            train(watch, model, range(3, 4))
            assert flush("127.0.0.1", port)
            assert {"recorded": 24, "sent": 24, "dropped": 0, "waiting": 0}.items() <= watch.status().items()
            mean = points(again, "r", score="mean")
            assert mean["epoch"] == [0, 1, 2, 3]
            assert mean["n"] == [600] * 4


def test_client_of_other_user_needs_token(tmp_path, monkeypatch, caplog):
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        assert register_targets(server.host, server.port, name="digit", targets=[1, 2])
        file = token_path(server.port)
        token = file.read_text()
        assert server.page_url.endswith(f"/?token={token}")
        assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
        assert token not in Path(f"/proc/{server.process.pid}/cmdline").read_text()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # another user's files are elsewhere
        assert not register_targets(server.host, server.port, name="digit", targets=[1, 2])
        assert "refused /targets: This server answers only who knows its token" in caplog.text
        monkeypatch.setenv("INTUS_TOKEN", token)
        assert register_targets(server.host, server.port, name="digit", targets=[1, 2])
        assert flush(server.host, server.port)
    assert not file.exists()


@pytest.mark.long
def test_labels_for_another_run_do_not_replace_those_that_still_wait(tmp_path):
    """Trainings one after the other in one process, each with its own labels of the same name."""
    runs = {f"run {number}": (IMAGES[:, 20 + number] > 0.3).tolist() for number in range(3)}
    with Server(database=tmp_path / "x.db", port=0, scores="lda_accuracy") as server:
        for run, labels in runs.items():
            register_targets("127.0.0.1", server.port, name="ink", targets=labels, run_pattern=f"^{run}$")
            model = nn.Identity()
            with probe(model, "127.0.0.1", server.port, run=run) as watch:
                watch.items = range(600)
                model(IMAGES)
        assert flush("127.0.0.1", server.port)
        with Database(tmp_path / "x.db") as database:
            assert "target_replaced" not in {notice["code"] for notice in database.notices()}
            assert len(database.targets()) == 3
            for run in runs:
                scores = database.points(run, "Identity").where(score="lda_accuracy", target="ink")
                assert scores["value"].tolist() == [pytest.approx(1, abs=0.1)]
        assert clear("127.0.0.1", server.port)
        with Database(tmp_path / "x.db") as database:
            assert database.targets() == []


@pytest.mark.long
def test_layer_pattern_that_matches_no_layer_is_named_at_once(tmp_path):
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        at = server.host, server.port
        model = nn.Sequential(OrderedDict(encoder=nn.Linear(64, 10), head=nn.Linear(10, 3)))
        for layers, faults in (({"digit": "encodr"}, 1), ({"digit": "^enc.*$"}, 0)):
            with probe(model, *at, probe_set=(IMAGES, {"digit": LABELS}, {"layers": layers})) as watch:
                told = watch.status()["faults"]
                assert len(told) == faults
                assert register_targets(*at, name="tag", targets=[0, 1], layer_pattern="haed")
                found = watch.status()["faults"][faults:]
            if faults:
                start = "The pattern layers['digit'], 'encodr', matches none of the 3 layers of Sequential"
                assert told[0].startswith(start)
                assert told[0].endswith("Did you mean 'encoder'?")
            assert len(found) == 1
            assert found[0].startswith("The pattern layer_pattern of the target 'tag', 'haed', matches none")


@pytest.mark.long
def test_removal_of_what_does_not_exist(tmp_path, caplog):
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        at = server.host, server.port
        for run in ("one", "two"):
            model = nn.Sequential(nn.Linear(64, 10))
            with probe(model, *at, run=run) as watch:
                train(watch, model, range(1))
        assert flush(*at)
        assert not remove(*at, "Sequential", run="onee")
        assert "the server has no run 'onee'. Did you mean 'one'?" in caplog.text
        assert not remove(*at, "Sequental", run="two")
        assert "the run 'two' has no model 'Sequental'. Did you mean 'Sequential'?" in caplog.text
        assert not clear(*at, run="three")
        assert "the server has no run 'three'" in caplog.text
        assert {run["run"] for run in read(server, "api/runs")["runs"]} == {"one", "two"}
        assert remove(*at, "Sequential", run="one")
        assert {run["run"] for run in read(server, "api/runs")["runs"]} == {"two"}
        assert not remove(*at, "Sequential", run="one")
        assert clear(*at, run="two")
        assert read(server, "api/runs")["runs"] == []


def test_wrong_token_ends_waiting_and_is_named(tmp_path, monkeypatch, caplog):
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        monkeypatch.setenv("INTUS_TOKEN", "bad")
        began = time.monotonic()
        sets = (IMAGES, {"digit": LABELS})
        with probe(nn.Linear(64, 10), server.host, server.port, run="r", probe_set=sets) as watch:
            watch.run_probe_set()
        assert not watch.flush(timeout=100)
        assert time.monotonic() - began < 20
        while watch.status()["waiting"]:  # the first refusal ends the flush, and what waits is refused soon
            assert time.monotonic() - began < 60
        status = watch.status()
        assert (status["server"], status["sent"]) == ("refused", 0)
        assert "answers only who knows its token" in status["faults"][-1]
        assert len([line for line in caplog.messages if "token" in line]) == 1
        monkeypatch.delenv("INTUS_TOKEN")
        watch.log(loss=0.5)
        assert watch.flush()
        assert watch.status()["server"] == "up"
        assert not any("token" in fault for fault in watch.status()["faults"])


def test_token_file_that_others_can_read_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = write_token(8082, "t0ken").path
    assert [read_token(host, 8082) for host in ("127.0.0.1", "example.org")] == ["t0ken", None]
    path.chmod(0o644)
    assert read_token("127.0.0.1", 8082) is None


def test_token_file_of_a_newer_server_stays(tmp_path, monkeypatch):
    """Both may have the same token, of INTUS_TOKEN, and the earlier one may take long to end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ended, newer = write_token(8082, "t0ken"), write_token(8082, "t0ken")
    remove_token(ended)
    assert read_token("127.0.0.1", 8082) == "t0ken"
    remove_token(newer)
    remove_token(newer)
    assert not newer.path.exists()


def test_refusal_names_token_file_that_is_ignored(tmp_path, caplog):
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        file = token_path(server.port)
        file.chmod(0o644)
        assert not register_targets(server.host, server.port, name="digit", targets=[1, 2])
        assert f"The file {file} is ignored because others can read it; chmod 600." in caplog.text
        assert "by themselves" not in caplog.text
        file.chmod(0o600)
        assert register_targets(server.host, server.port, name="digit", targets=[1, 2])


def test_chosen_token_is_not_in_command_line(tmp_path):
    with Server(database=tmp_path / "x.db", port=0, token="open sesame", scores="mean") as server:
        assert "sesame" not in Path(f"/proc/{server.process.pid}/cmdline").read_text()
        assert server.page_url.endswith("/?token=open%20sesame")
        assert flush(server.host, server.port)


def test_trace_and_inspect_of_probed_model_are_not_recorded():
    model = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    with probe(model, "127.0.0.1", 9) as watch:
        trace(model, IMAGES[:5])
        ink = lambda image: float(image.sum() > 0)  # noqa: E731
        inspect(model, [ink], ["correlation"], IMAGES[:20].numpy(), [("1", "*")])
        assert watch.status()["passes"] == 0
        model(IMAGES[:5])
        assert watch.status()["passes"] == 1


class Wide(nn.Module):
    """Fifteen layers of the same size, whose outputs are all different."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Identity() for _ in range(15))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + 1
        return x[:, :2]


def means(server, run):
    """Return the epochs, numbers of rows, means and notes of each layer of a ``Wide``."""
    found = {}
    for number in range(15):
        answer = points(server, run, model="Wide", score="mean", address=f"layers.{number}")
        found[number] = answer["epoch"], answer["n"], answer["value"], answer["note"]
    return found


@pytest.mark.long
def test_probe_set_waits_for_room_in_queue(tmp_path):
    """A pass has 6 MB, the queue 4 MB; without waiting, the last layers would be lost in each epoch."""
    x, model = torch.randn(200, 512), Wide()
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        labels = {"y": [row % 2 for row in range(200)]}
        with probe(model, server.host, server.port, run="r", queue_mb=4, probe_set=(x, labels)) as watch:
            for watch.epoch in range(2):
                watch.run_probe_set()
            status = watch.status()
        assert (status["dropped"], status["recorded"]) == (0, 32)
        assert flush(server.host, server.port)
        for number, (epochs, rows, values, notes) in means(server, "r").items():
            assert (epochs, rows, notes) == ([0, 1], [200, 200], ["", ""])
            assert np.allclose(values, float(x.mean()) + number, atol=1e-5)


@pytest.mark.long
def test_pass_larger_than_queue_is_cut_alike_in_all_layers(tmp_path, caplog):
    """The passes of a training do not wait: the first loses layers, later ones have fewer rows of each."""
    x, model = torch.randn(200, 512), Wide()
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        with probe(model, server.host, server.port, run="r", queue_mb=4, budget=np.inf) as watch:
            for watch.epoch in range(3):
                watch.items = range(200)
                model(x)
                assert watch._tap.sender.drain(20)
            lost = watch.status()["dropped"]
        assert lost > 0
        assert "so only the first" in caplog.text
        assert flush(server.host, server.port)
        found = means(server, "r")
        rows = {
            epoch: {n for one in found.values() for e, n in zip(*one[:2], strict=True) if e == epoch}
            for epoch in range(3)
        }
        assert all({1, 2} <= set(epochs) for epochs, *_ in found.values())
        assert rows[1] == rows[2]
        (kept,) = rows[1]
        assert 50 <= kept < 200
        for number, (epochs, _, values, notes) in found.items():
            assert notes[epochs.index(1)] == f"the first {kept} of 200 rows: a pass exceeds the queue"
            assert values[epochs.index(1)] == pytest.approx(float(x[:kept].mean()) + number, abs=1e-5)


@pytest.mark.long
def test_layer_larger_than_queue_is_cut(tmp_path, caplog):
    x, model = torch.randn(200, 1024), Wide()
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        labels = {"y": [row % 2 for row in range(200)]}
        with probe(
            model, server.host, server.port, run="r", queue_mb=0.5, probe_set=(x, labels), statistics=False
        ) as watch:
            watch.run_probe_set()
            status = watch.status()
        assert status["dropped"] == 0
        assert "so only the first 115 rows" in caplog.text
        assert flush(server.host, server.port)
        found = means(server, "r")
        assert {tuple(rows) for _, rows, *_ in found.values()} == {(115,)}
        note = "the first 115 of 200 rows: a pass exceeds the queue"
        assert all(notes == [note] for *_, notes in found.values())


def test_values_logged_after_removal_are_stored(tmp_path, caplog):
    """They are sent as before, also after a flush, and nothing is said."""
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        model = torch.nn.Linear(4, 2)
        with probe(model, server.host, server.port, run="r") as watch:
            watch.epoch = 1
            model(torch.randn(3, 4))
        watch.log(removed=1.0)
        assert flush(server.host, server.port)
        watch.log({"flushed": 2.0}, step=7)
        assert flush(server.host, server.port)
        assert watch.status()["log_waiting"] == 0
    log = intus.runs(tmp_path / "x.db")["r"].log()
    stored = zip(log["name"], log["value"], log["epoch"], log["step"], strict=True)
    assert sorted(stored) == [("flushed", 2.0, 1, 7), ("removed", 1.0, 1, 0)]
    assert not caplog.messages


REMOVED = """
import torch, intus
with intus.probe(torch.nn.Linear(4, 2), to="runs.db", run="r") as watch:
    pass
watch.log(removed=1.0)
assert watch.flush()
watch.log(flushed=2.0)
"""


def test_values_logged_at_the_end_of_a_script_are_in_its_database(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", REMOVED], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    log = intus.runs(tmp_path / "runs.db")["r"].log()
    assert sorted(zip(log["name"], log["value"], strict=True)) == [("flushed", 2.0), ("removed", 1.0)]
