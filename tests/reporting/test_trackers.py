"""``probe(model, to="wandb")`` and the other trackers: each value once, read by the tracker's own reader."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import chain, cycle, product, repeat
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from process_help import wait_for_end
from sklearn.datasets import load_digits
from starlette.testclient import TestClient

import intus
from intus.core.doubt import Doubt
from intus.core.errors import MissingExtraError
from intus.core.results import Results
from intus.monitoring.follower import Follower, Held, _NewScores
from intus.monitoring.trackers import Place, Point
from intus.monitoring.warn_once import WarningLog
from intus.serving.evaluation.arrival_order import UNVERIFIED
from intus.serving.frontend import Frontend
from intus.serving.http.app import build
from intus.serving.messages import AggregatorCounts, RunLedger, StatusReport
from intus.serving.roles import Roles
from intus.serving.run import Server
from intus.storage.database import Database

NAMES = ("mlflow", "tensorboard", "wandb")

SCRIPT = """
import sys, torch, intus
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
images, labels = torch.tensor(images[:200] / 16).float(), torch.tensor(labels[:200])

def network(width):
    layers = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU())
    return torch.nn.ModuleDict({"body": layers, "head": torch.nn.Linear(width, 10)})

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = network(12)

    def forward(self, images):
        return self.parts["head"](self.parts["body"](images))

class Other(Net):
    pass

torch.manual_seed(0)
model, other = Net(), Other()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
probe_set = images, {"digit": labels}

def step():
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""
#: No flush: the end of the process writes what is left.
NEW_RUNS = """
places = ["runs.db", "wandb:digits", "tensorboard:board", "mlflow:digits"]
with intus.probe(
    model, to=places, run="r", probe_set=probe_set, config={"lr": 0.01}, tags=["plain"]
) as watch:
    for watch.epoch in range(4):
        for _ in range(3):
            watch.log({"train/loss": step()})
"""
ACTIVE_RUNS = """
import mlflow, wandb, time
mlflow.start_run(run_name="of the script")
mine = wandb.init(project="p")
watch = intus.probe(model, to=["runs.db", "wandb", "mlflow"], run="r", probe_set=probe_set)
beside = intus.probe(other, to=["runs.db", "wandb", "mlflow"], run="r", probe_set=probe_set)
for number in range(6):
    watch.epoch = beside.epoch = number
    other(images)
    loss = step()
    mlflow.log_metric("loss", float(loss), step=number)
    mine.log({"loss": float(loss)}, step=10 * number)
    time.sleep(0.7)
watch.remove()
beside.remove()
assert watch.flush()
assert mlflow.active_run() is not None and wandb.run is mine
mine.finish()
mlflow.end_run()
"""


def ran(folder, script):
    """Run a training in a folder of its own, and return what it prints."""
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    command = [sys.executable, "-c", SCRIPT + script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def scores(folder, model="Net", prefix="intus"):
    """Return the scores of the database by name and epoch."""
    table = intus.runs(folder / "runs.db")["r"].scores(model=model)
    table = table[table["value"].notna()]
    assert set(table["epoch"]) >= {0, 1, 2, 3}
    assert set(table["kind"]) == {"output"}
    names = [
        "/".join(filter(None, (prefix, target, score, address or "model")))
        for target, score, address in zip(table["target"], table["score"], table["address"], strict=True)
    ]
    return dict(zip(zip(names, table["epoch"], strict=True), table["value"], strict=True))


def history(folder):
    """Return the rows of the history of each offline run of W&B, by its own reader."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    found = []
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        store, rows, summary = DataStore(), [], {}
        store.open_for_scan(str(path))
        while (data := store.scan_data()) is not None:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            for item in record.summary.update:
                summary[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append({i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items})
        store.close()
        found.append((rows, summary))
    return found


def of_wandb(rows):
    """Return how often each (name, epoch, value) of intus is in the rows."""
    return Counter(
        (name, row["intus/epoch"], value)
        for row in rows
        for name, value in row.items()
        if name.startswith("intus/") and not name.startswith(("intus/log", "intus/epoch", "intus/step"))
    )


def of_mlflow(folder, run):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    return Counter(
        (key, each.step, each.value)
        for key in client.get_run(run).data.metrics
        if key.startswith("intus/") and not key.startswith("intus/log")
        for each in client.get_metric_history(run, key)
    )


def once(expected):
    return Counter((name, epoch, value) for (name, epoch), value in expected.items())


@pytest.fixture(scope="module")
def new_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("new")
    ran(folder, NEW_RUNS)
    return folder


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
def test_scores_in_tensorboard(new_runs):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(new_runs / "board"), size_guidance={"scalars": 0, "tensors": 0})
    board.Reload()
    found = Counter(
        (name, event.step, np.float32(event.value))
        for name in board.Tags()["scalars"]
        for event in board.Scalars(name)
        if not name.startswith("intus/log")
    )
    assert found == once({key: np.float32(value) for key, value in scores(new_runs).items()})
    losses = intus.runs(new_runs / "runs.db")["r"].log()
    logged = [(event.step, np.float32(event.value)) for event in board.Scalars("intus/log/train/loss")]
    assert logged == list(zip(losses["step"], losses["value"].astype(np.float32), strict=True))
    (*_, last) = board.Tensors("intus/findings")
    for finding in intus.runs(new_runs / "runs.db")["r"].findings():
        assert finding.text.encode() in last.tensor_proto.string_val[0]


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
def test_scores_in_mlflow(new_runs):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{new_runs / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("digits")
    (run,) = client.search_runs([experiment.experiment_id])
    assert of_mlflow(new_runs, run.info.run_id) == once(scores(new_runs))
    assert (run.info.run_name, run.info.status, run.data.params) == ("r", "FINISHED", {"lr": "0.01"})
    losses = intus.runs(new_runs / "runs.db")["r"].log()
    logged = client.get_metric_history(run.info.run_id, "intus/log/train/loss")
    assert [(each.step, each.value) for each in logged] == list(
        zip(losses["step"], losses["value"], strict=True)
    )
    (path,) = (new_runs / "mlruns").rglob("findings.txt")
    assert path.read_text().splitlines() == list(map(str, intus.runs(new_runs / "runs.db")["r"].findings()))


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
def test_scores_in_wandb(new_runs):
    ((rows, summary),) = history(new_runs)
    assert of_wandb(rows) == once(scores(new_runs))
    losses = intus.runs(new_runs / "runs.db")["r"].log()
    name = "intus/log/train/loss"
    logged = [(row["intus/step"], row[name]) for row in rows if name in row]
    assert logged == list(zip(losses["step"], losses["value"], strict=True))
    findings = [each.text for each in intus.runs(new_runs / "runs.db")["r"].findings()]
    assert summary["intus/findings"].splitlines() == findings


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
def test_active_runs_of_the_script_are_used_and_keep_their_own_values(tmp_path):
    """The script logs to W&B at steps of its own, which must all stand; two models share each run."""
    ran(tmp_path, ACTIVE_RUNS)
    expected = once(scores(tmp_path)) + once(scores(tmp_path, "Other", "intus/Other"))
    ((rows, _),) = history(tmp_path)
    assert of_wandb(rows) == expected
    assert [row["_step"] for row in rows if "loss" in row] == [0, 10, 20, 30, 40, 50]
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = client.search_runs(["0"])
    assert run.info.run_name == "of the script"
    assert len(client.get_metric_history(run.info.run_id, "loss")) == 6
    assert of_mlflow(tmp_path, run.info.run_id) == expected


# -- without any tracker installed ------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_tracker_that_is_not_installed_is_refused(name, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda what: None if what == name else find(what))
    model = torch.nn.Linear(1, 1)
    sentence = f"{name} is needed for to={name!r}. Install it with: pip install {name}"
    with pytest.raises(MissingExtraError) as error:
        intus.probe(model, to=f"{name}:mine")
    assert str(error.value) == sentence
    assert not model._forward_hooks


def test_folder_with_the_name_of_a_tracker_is_no_package(tmp_path, monkeypatch):
    if importlib.util.find_spec("wandb") is not None:
        pytest.skip("wandb is installed")
    (tmp_path / "wandb").mkdir()  # W&B keeps its runs in such a folder
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match="Install it with: pip install wandb"):
        intus.probe(torch.nn.Linear(1, 1), to="wandb")


TWO_MODELS = """
import wandb
from intus.monitoring.trackers.base import Point, TrackedRun
from intus.monitoring.trackers.wandb import Wandb

mine = wandb.init(project="p")
one, other = (Wandb("", TrackedRun("r", model, {}, ())) for model in ("Net", "Other"))
for number in range(3):
    mine.log({"loss": 0.5}, step=10 * number)
    one.write([Point("intus/x", "epoch", number, 0.0, 1.0)])
    other.write([Point("intus/Other/x", "epoch", 5 - number, 0.0, 2.0)])
one.close()
other.close()
mine.finish()
"""


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
def test_epochs_of_two_models_do_not_share_a_row_of_the_script(tmp_path):
    """W&B has one value of the axis in a row, which would be that of both."""
    ran(tmp_path, TWO_MODELS)
    ((rows, _),) = history(tmp_path)
    found = [(row["intus/epoch"], name) for row in rows for name in row if name.endswith("/x")]
    expected = [(epoch, "intus/x") for epoch in range(3)] + [(epoch, "intus/Other/x") for epoch in (3, 4, 5)]
    assert sorted(found) == sorted(expected)


class Collected:
    """A tracker that keeps what it is given, and fails as often as it is told to."""

    has_fractions, takes_log, run = False, True, "here"

    def __init__(self, fails):
        self.fails, self.points, self.told, self.closed = fails, [], [], False

    def write(self, points):
        if points and self.fails:
            self.fails -= 1
            raise ConnectionError("the tracker is away")
        self.points += points

    def tell(self, findings):
        self.told = findings

    def close(self):
        self.closed = True


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 3),
                st.sampled_from("ab"),
                st.sampled_from([None, 1.0, 2.0]),
                st.sampled_from([1.0, 2.0]),
            )
        ),
        max_size=8,
    )
)
def test_each_score_is_found_once_in_any_order_of_epochs(rounds):
    """A reply has all scores of the epochs that changed, and perhaps of others.

    A tracker gets each value of a training, and not again if only its note is another, such as "verified".
    """
    stored, scores, found, wanted, given_, taken_back = {}, _NewScores(), [], [], {}, 0
    for number, written in enumerate(rounds):
        last = {(epoch, score): (value, training) for epoch, score, value, training in written}
        stored |= last
        for key, (value, training) in last.items():
            was = given_.get(key, (None, None))
            taken_back += value is None and was[0] is not None
            if value is not None and was != (value, training):
                wanted.append((key[1], key[0], value))
        given_ |= last
        changed = {epoch for epoch, *_ in written}
        rows = [
            (epoch, -1, "", "output", "", score, *each, f"round {number}" if each[0] else "withdrawn: why")
            for (epoch, score), each in stored.items()
            if epoch in changed or not epoch
        ]
        names = ("epoch", "step", "address", "kind", "target", "score", "value", "training", "note")
        columns = {name: [row[n] for row in rows] for n, name in enumerate(names)}
        found += [(point.name.removesuffix("/model"), point.x, point.value) for point in scores.take(columns)]
    assert Counter(found) == Counter(wanted)
    assert sum(scores.taken_back.values()) == taken_back
    assert scores.corrections() == [
        f"{taken_back} of the scores here are withdrawn since they were written: why"
    ] * bool(taken_back)


def test_tracker_is_told_of_scores_that_it_has_and_that_no_longer_hold(tmp_path):
    """Before, nothing said that it keeps scores that the page no longer shows."""
    images = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    collected, doubted = Collected(fails=0), "labels are perhaps of other rows: the order changed"
    with Server(database=tmp_path / "x.db", port=0) as server:
        model = torch.nn.Sequential(torch.nn.Linear(6, 4))
        held_out = images, {"digit": torch.arange(60) % 2}
        with intus.probe(model, server.host, server.port, run="r", probe_set=held_out) as watch:
            tap, places = watch._tap, [(Place("list", ""), collected)]
            follower = Follower(tap.sender, tap.run, tap.name, places, tap.troubles)
            for watch.epoch in (1, 2):
                watch.run_probe_set()
            assert watch.flush()
            written = [one for one in collected.points if "/digit/" in one.name]
            tap.doubt(Doubt("withdrawn: they were of others", True, until=1.0))
            tap.doubt(Doubt(doubted, after=1.0))
            watch.run_probe_set()
            tap._tell(2)
            assert watch.flush()
            follower.end()
        faults = watch.status()["faults"]
    said = [f"Scores that the tracker list has got {what}" for what in ("are withdrawn", "are in doubt")]
    assert [sum(one.startswith(words) for one in faults) for words in said] == [1, 1]
    withdrawn, doubtful = (int(one.split()[0]) for one in collected.told[-2:])
    assert written
    assert "are withdrawn since they were written: they were of others" in collected.told[-2]
    assert doubted in collected.told[-1]
    assert max(Counter((one.name, one.x) for one in collected.points).values()) == 1, "none is written again"
    assert withdrawn >= len([one for one in written if one.x == 1])
    assert doubtful >= len([one for one in written if one.x == 2])


@given(st.permutations(range(6)), st.lists(st.integers(1, 3), min_size=6, max_size=6))
def test_scores_wait_for_those_of_earlier_epochs(order, sizes):
    """A reply has scores of some epochs, and the server says which epoch is the earliest that it lacks."""
    held, written, stored = Held(), [], set()
    while order:
        now, order = order[: sizes[0]], order[sizes[0] :]
        sizes = [*sizes[1:], sizes[0]]
        stored |= set(now)
        held.add(Point(name, "epoch", epoch, 0.0, 1.0) for epoch in now for name in "ab")
        whole = min(set(range(7)) - stored)
        written += held.take(whole)
        assert {point.x for point in written} == set(range(whole))
    assert not held
    for name in "ab":
        assert [point.x for point in written if point.name == name] == list(range(6))


def test_scores_of_a_slow_server_are_written_in_order_of_epochs(tmp_path, monkeypatch):
    """The server begins with the newest epoch, and is asked while others wait."""
    monkeypatch.setattr("intus.monitoring.follower.POLL_S", 0.01)
    images = torch.randn(80, 6, generator=torch.Generator().manual_seed(0))
    held_out = images, {"digit": torch.arange(80) % 2}
    collected = Collected(fails=0)
    with Server(database=tmp_path / "x.db", port=0) as server:
        model = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(4)))
        with intus.probe(model, server.host, server.port, run="r", probe_set=held_out) as watch:
            tap = watch._tap
            follower = Follower(tap.sender, tap.run, tap.name, [(Place("list", ""), collected)], tap.troubles)
            for watch.epoch in range(9):
                model(images)
        deadline = time.monotonic() + 60
        while not collected.points and time.monotonic() < deadline:
            time.sleep(0.01)
        first = len(collected.points)
        assert watch.flush()
        follower.end()
    assert 0 < first < len(collected.points), "some are written before all are scored"
    for name in {point.name for point in collected.points}:
        found = [point.x for point in collected.points if point.name == name]
        assert found == sorted(set(found)), name
    assert {point.x for point in collected.points} == set(range(9))


class Planted:
    """The page's own routes over a database, of which a test knows which scores are still to come.

    Args:
        database: The database.
        to_come: The (epoch, layer) of the scores, in the order in which they are stored.
        stored: How many of them are stored after each reply.
        lost: The numbers of the replies that do not arrive.
    """

    run = model = "r"

    def __init__(self, database, to_come, stored, lost):
        self.frontend = Frontend(database)
        self.page = TestClient(build(Roles(frontend=self.frontend)))
        self.to_come, self.stored, self.lost = list(to_come), stored, lost
        self.newest, self.replies, self.is_over = None, 0, threading.Event()
        self.report()

    def report(self):
        earliest = min((epoch for epoch, _ in self.to_come), default=None)
        row = RunLedger(self.run, self.model, newest=self.newest, earliest=earliest)
        self.frontend.report(StatusReport(AggregatorCounts(), runs=[row]))

    def store(self, number):
        now, self.to_come = self.to_come[:number], self.to_come[number:]
        for epoch, layer in now:
            self.newest = epoch if self.newest is None else max(epoch, self.newest)
            facts = {"run": self.run, "model": self.model, "address": layer, "epoch": epoch, "value": epoch}
            self.frontend.results(Results.from_rows([facts | {"score": "norm", "note": UNVERIFIED}]))
        self.report()

    def get(self, path, **query):
        """Return a reply as the follower gets it; then store what comes next."""
        reply = self.page.get(path, params={"run": self.run, "model": self.model} | query).json()
        number, is_last = self.replies, not self.to_come
        self.replies += 1
        self.store(next(self.stored))
        if is_last and path == "/api/findings":
            self.is_over.set()
        return None if number in self.lost else reply


def followed(planted, collected, monkeypatch):
    """Return a follower of a planted server, which writes to a list."""
    monkeypatch.setattr(Follower, "_get", lambda follower, path, **query: planted.get(path, **query))
    sender = SimpleNamespace(host="", port=0, followers=[], count_busy=lambda seconds: None)
    return Follower(sender, planted.run, planted.model, [(Place("list", ""), collected)], WarningLog())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.permutations(list(product(range(4), "ab"))),
    st.lists(st.integers(0, 3), min_size=1, max_size=7).filter(any),
    st.sets(st.integers(0, 30), max_size=5),
    st.booleans(),
)
@example([*product((3, 2, 1, 0), "ab")], [1, 0, 0, 0, 0, 0], set(), False)  # one after each second round
@example([*product(range(4), "ab")], [8], set(), True)
def test_scores_stored_between_any_two_questions_are_written_once_in_order_of_epochs(
    tmp_path, monkeypatch, to_come, stored, lost, is_verified
):
    """Before, a later epoch came first if an earlier one became whole while it was asked which are.

    And the first epochs were written again when their labels were verified.
    """
    monkeypatch.setattr("intus.monitoring.follower.POLL_S", 0.0)
    monkeypatch.setattr("intus.monitoring.follower.AWAY_S", 0.0)
    collected = Collected(fails=0)
    with Database(tmp_path / f"{time.monotonic_ns()}.db") as database:
        planted = Planted(database, to_come, cycle(stored), lost)
        follower = followed(planted, collected, monkeypatch)
        assert planted.is_over.wait(30)
        if is_verified:
            planted.frontend.arrival_order("r", "r", "")
        planted.lost = set()
        follower.end()
    for layer in "ab":
        found = [(point.x, point.value) for point in collected.points if point.name.endswith(layer)]
        assert found == [(epoch, epoch) for epoch in range(4)], layer


def test_flush_does_not_write_later_epochs_first_if_it_gets_no_reply(tmp_path, monkeypatch):
    """Before, it wrote what waited for an epoch whose scores it could not read."""
    monkeypatch.setattr("intus.monitoring.follower.POLL_S", 0.01)
    monkeypatch.setattr("intus.monitoring.follower.AWAY_S", 0.01)
    collected = Collected(fails=0)
    with Database(tmp_path / "x.db") as database:
        planted = Planted(database, product((3, 2, 1, 0), "a"), chain([3], repeat(0)), ())
        follower = followed(planted, collected, monkeypatch)
        while planted.replies < 12:  # some rounds
            time.sleep(0.01)
        planted.lost = range(10**6)
        planted.store(1)
        follower.catch_up(30)
        assert collected.points == []
        planted.lost = ()
        follower.end()
    assert [point.x for point in collected.points] == [0, 1, 2, 3]


QUICK_EPOCHS = """
import wandb
from torch.utils.data import DataLoader, TensorDataset
mine = wandb.init(project="p")
places = ["runs.db", "wandb", "tensorboard:board", "mlflow:digits"]
watch = intus.probe(model, to=places, run="r", probe_set=probe_set)
for _ in range(8):
    for rows, digits in DataLoader(TensorDataset(images, labels), 20, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(rows), digits).backward()
        optimizer.step()
watch.remove()
assert watch.flush()
mine.finish()
"""


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
def test_last_value_that_trackers_have_is_that_of_the_newest_epoch(tmp_path):
    """Before, W&B's summary was of epoch 5 of 8, and TensorBoard's series went 0, 1, 8, 2, 3, 4, 6, 7, 5."""
    from mlflow import MlflowClient
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    ran(tmp_path, QUICK_EPOCHS)
    found, newest = scores(tmp_path), {}
    for (name, epoch), value in sorted(found.items(), key=lambda item: item[0][1]):
        newest[name] = epoch, value
    assert {epoch for epoch, _ in newest.values()} == {8}
    board = EventAccumulator(str(tmp_path / "board"), size_guidance={"scalars": 0}).Reload()
    for name in newest:
        assert [event.step for event in board.Scalars(name)] == sorted(
            epoch for of, epoch in found if of == name
        )
    ((_, summary),) = history(tmp_path)
    assert {name: (summary["intus/epoch"], summary[name]) for name in newest} == newest
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    assert {name: run.data.metrics[name] for name in newest} == {
        name: each[1] for name, each in newest.items()
    }


LATE = """
import wandb
from intus.monitoring.trackers.base import Point, TrackedRun
from intus.monitoring.trackers.wandb import Wandb

mine = wandb.init(project="p")
tracker = Wandb("", TrackedRun("r", "Net", {}, ()))
for epoch in (0, 3, 1):
    tracker.write([Point("intus/x", "epoch", epoch, 0.0, 10.0 + epoch)])
    mine.log({"loss": 0.5})
tracker.close()
mine.finish()
"""


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
def test_summary_of_wandb_is_of_the_newest_epoch_where_an_earlier_one_came_late(tmp_path):
    ran(tmp_path, LATE)
    ((rows, summary),) = history(tmp_path)
    assert [row["intus/epoch"] for row in rows if "intus/x" in row] == [0, 3, 1]
    assert (summary["intus/epoch"], summary["intus/x"]) == (3, 13)


#: Rows that come before the end of the run, and the finding that holds after each round; "" for none.
ENDS = list(product([1, 3], [["a", "a"], ["a", "b", "a"], ["a", "b"], ["", "b"], ["a", ""]]))
FINISHED = """
import json, sys, wandb
from intus.monitoring.follower import _Outlet
from intus.monitoring.trackers.base import Point, TrackedRun
from intus.monitoring.trackers.wandb import Wandb
from intus.monitoring.warn_once import WarningLog

faults = []
for number, (rows, findings) in enumerate(ENDS):
    mine = wandb.init(project="p", id=f"run{number}")
    outlet = _Outlet("wandb", Wandb("", TrackedRun("r", "Net", {}, ())), "intus/", troubles := WarningLog())
    outlet.add([Point("x", "epoch", epoch, 0.0, 10.0 + epoch) for epoch in range(rows)])
    outlet.findings = [findings[0]] * bool(findings[0])
    outlet.write()
    mine.log({"loss": 0.5})
    mine.finish()
    if rows > 1:
        outlet.add([Point("x", "epoch", 3, 0.0, 13.0)])
    for each in findings[1:]:
        outlet.findings = [each] * bool(each)
        outlet.write()
    outlet.close()
    faults.append(troubles.faults())
print(json.dumps(faults))
"""


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
def test_run_of_wandb_that_was_finished_too_early_is_said_to_lack_rows_and_findings(tmp_path):
    """Before, findings that came after the end were left out without a word."""
    out = ran(tmp_path, f"ENDS = {ENDS}" + FINISHED)
    told, runs = json.loads(out.splitlines()[-1]), history(tmp_path)
    for (rows, findings), faults, (found, summary) in zip(ENDS, told, runs, strict=True):
        assert [row["intus/epoch"] for row in found if "intus/x" in row] == [0]
        lacks = ["3 rows wait"] * (rows > 1)  # of four, of which a step of the script completed one
        lacks += ["findings are others"] * (summary.get("intus/findings", "") != findings[-1])
        assert len(faults) == bool(lacks), (rows, findings)
        text = "".join(faults)
        assert [words for words in ("3 rows wait", "findings are others") if words in text] == lacks
        assert ("before wandb.finish()" in text) == bool(lacks)


#: Values that are logged when the probe is removed, before and after the flush that closes the trackers.
LOG_AFTER_REMOVAL = """
import logging, sys
logging.basicConfig(level="WARNING", stream=sys.stdout)
places = ["runs.db", "tensorboard:board", "wandb:digits"]
watch = intus.probe(model, to=places, run="r", probe_set=probe_set)
watch.epoch = 0
watch.log(loss=step())
watch.remove()
watch.log(removed=1.0)
assert watch.flush()
watch.log(flushed=2.0)
watch.log(flushed=3.0)
"""


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
def test_values_logged_after_removal_are_recorded_or_said_to_be_missing_in_trackers(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    said = ran(tmp_path, LOG_AFTER_REMOVAL)
    log = intus.runs(tmp_path / "runs.db")["r"].log()
    assert sorted(zip(log["name"], log["value"], strict=True))[:2] == [("flushed", 2.0), ("flushed", 3.0)]
    assert set(log["name"]) == {"loss", "removed", "flushed"}
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    logged = {name for name in board.Tags()["scalars"] if name.startswith("intus/log")}
    assert logged == {"intus/log/loss", "intus/log/removed"}
    ((rows, _),) = history(tmp_path)
    assert {name for row in rows for name in row if name.startswith("intus/log")} == logged
    (sentence,) = [line for line in said.splitlines() if "watch.log" in line]
    assert "no longer written to tensorboard:board and wandb:digits, which flush closed" in sentence


AFTER_THE_END = """
import mlflow
from intus.monitoring.trackers.base import Point, TrackedRun
from intus.monitoring.trackers.mlflow import Mlflow

mlflow.start_run(run_name="of the script")
tracker = Mlflow("", TrackedRun("r", "Net", {}, ()))
tracker.tell(["first"])
mlflow.end_run()
tracker.write([Point("intus/x", "epoch", 1, 0.0, 0.5)])
tracker.tell(["last"])
tracker.close()
print(mlflow.artifacts.load_text(mlflow.get_run(tracker.run).info.artifact_uri + "/intus/findings.txt"))
print(mlflow.get_run(tracker.run).data.metrics["intus/x"])
"""


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
def test_run_of_mlflow_takes_what_comes_after_its_end(tmp_path):
    """There is no fault to tell."""
    assert ran(tmp_path, AFTER_THE_END).split()[-2:] == ["last", "0.5"]


@pytest.mark.long
def test_each_score_is_written_once_also_after_failures_and_when_a_run_continues(tmp_path):
    """The database has the scores of an earlier part of the run, which are not written again."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data[:200] / 16).float(), digits.target[:200]
    collected, path = Collected(fails=2), tmp_path / "runs.db"
    for epochs in (range(2), range(2, 5)):
        with Server(database=path, port=0) as server:
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.ReLU())
            where = server.host, server.port
            with intus.probe(model, *where, run="r", probe_set=(images, {"digit": labels})) as watch:
                tap = watch._tap
                if epochs[0]:
                    places = [(Place("list", ""), collected)]
                    follower = Follower(tap.sender, tap.run, tap.name, places, tap.troubles)
                    follower.log({"step": 3, "epoch": 0, "time": 1.0, "values": {"loss": "nan"}})
                for watch.epoch in epochs:
                    model(images)
                    if epochs[0]:
                        assert watch.flush()
            if epochs[0]:
                follower.removed = True
            assert watch.flush()
    (fault,) = watch.status()["faults"]
    assert fault.startswith(
        "The tracker list could not be written to, and is tried again with what follows: Connection"
    )
    assert collected.closed
    table = intus.runs(path)["r"].scores()
    table = table[(table["value"].notna()) & (table["epoch"] > 0)]
    loss, *points = collected.points
    assert (loss.name, loss.axis, loss.x, math.isnan(loss.value)) == ("intus/log/loss", "step", 3, True)
    assert {point.x for point in points} == {2, 3, 4}
    late = table[table["epoch"] > 1]
    assert Counter((point.x, point.value) for point in points) == Counter(
        zip(late["epoch"], late["value"], strict=True)
    )
    assert len({(point.name, point.x) for point in points}) == len(points) == len(late)
    assert collected.told == [each.text for each in intus.runs(path)["r"].findings()]


@pytest.mark.long
def test_temporary_database_leaves_nothing(tmp_path):
    """Without a database, the folder of the scores ends with the server, also if the training is killed."""
    code = (
        "import os, signal, sys, torch, intus.monitoring.private_server as p\n"
        "p.private_server(None)\n"
        "print(p._SERVERS[None].process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    ) as script:
        server = int(script.stdout.readline())
    wait_for_end([server])
    assert list(tmp_path.glob("intus-*")) == []


ADDED_GRAPHS = """
import sys
from torch.utils.tensorboard import SummaryWriter
for folder in ("plain", "probed"):
    torch.manual_seed(0)
    model = Net()
    if folder == "probed":
        watch = intus.probe(model, to="runs.db", run="r")
    with SummaryWriter(folder) as writer:
        writer.add_graph(model, images[:5])
assert watch.status()["passes"] == 0
watch.remove()
"""


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
def test_graph_that_tensorboard_draws_is_that_of_the_model_alone(tmp_path):
    """Before, ``SummaryWriter.add_graph`` of a probed model failed with an internal assertion of torch."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    ran(tmp_path, ADDED_GRAPHS)
    plain, probed = (EventAccumulator(str(tmp_path / folder)).Reload() for folder in ("plain", "probed"))
    assert plain.Graph().node
    assert plain.Graph() == probed.Graph()
