"""Configurations, tags and groups of runs; runs are renamed and removed in a file and on a server."""

from __future__ import annotations

import contextlib
import math
import sqlite3

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_digits

import intus
from intus.core.errors import InputError
from intus.core.results import Results
from intus.core.score_info import ScoreInfo
from intus.monitoring.client import Client
from intus.serving.run import Server
from intus.storage.database import Database

DIGITS = load_digits()
IMAGES, LABELS = torch.tensor(DIGITS.data[:300] / 16).float(), DIGITS.target[:300]
SEEDS = (0, 1, 2)


def record(server, run, config, tags=None, seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, config.get("width", 8)), torch.nn.ReLU())
    options = {"probe_set": (IMAGES, {"digit": LABELS}), "config": config, "tags": tags}
    with intus.probe(model, server.host, server.port, run=run, **options) as watch:
        for watch.epoch in range(2):
            model(IMAGES)
            watch.log(loss=1.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("facts") / "runs.db"
    with Server(database=path, port=0) as server:
        server.database_path = path
        for seed in SEEDS:
            record(server, f"wide {seed}", {"width": 16, "seed": seed}, ["wide", "seeds"], seed)
        record(server, "narrow", {"width": 4, "seed": 0, "note": {"why": ["a", None]}})
        assert intus.flush(server.host, server.port)
        yield server


@pytest.fixture(params=["file", "server"])
def runs(server, request):
    return intus.runs(server.database_path if request.param == "file" else f"{server.host}:{server.port}")


def test_config_and_tags_are_as_they_were_given(runs):
    assert runs["wide 1"].config == {"width": 16, "seed": 1}
    assert runs["wide 1"].tags == ["wide", "seeds"]
    assert runs["narrow"].config == {"width": 4, "seed": 0, "note": {"why": ["a", None]}}
    assert runs["narrow"].tags == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"config": {"lr": torch.tensor(0.1)}},
            r"config must have values that JSON can hold: 'lr' is tensor",
        ),
        ({"config": {"lr": float("nan")}}, r"'lr' is nan"),
        ({"config": {1: 2}}, "its name is a int, not a string"),
        ({"config": [1]}, r"config must be a dict such as \{'lr': 0.1, 'seed': 3\}, got a list"),
        ({"tags": "wide"}, "tags must be a list of non-empty strings"),
        ({"tags": [1]}, "tags must be a list of non-empty strings"),
    ],
)
def test_facts_that_cannot_be_stored_are_refused(server, given, sentence):
    with pytest.raises(InputError, match=sentence):
        intus.probe(torch.nn.Linear(1, 1), server.host, server.port, **given)


def test_mean_over_seeds_has_the_interval_of_a_t_test(runs):
    """The judge is scipy's one-sample t interval of the runs' own values."""
    selected = {"target": "digit", "score": "linear_f1"}
    mean = runs.grouped(**selected)
    assert set(mean["run"]) == {"width=16", 'note={"why": ["a", null]}, width=4'}
    wide = mean[mean["run"] == "width=16"].set_index(["epoch", "address"])
    assert set(wide["n"]) == {3}
    tables = [runs[f"wide {seed}"].scores(**selected).set_index(["epoch", "address"]) for seed in SEEDS]
    assert set(wide.index) == set(tables[0].index)
    for key, row in wide.iterrows():
        values = [table["value"][key] for table in tables]
        low, high = np.clip(stats.t.interval(0.95, 2, np.mean(values), stats.sem(values)), 0, 1)
        np.testing.assert_allclose([row["value"], row["low"], row["high"]], [np.mean(values), low, high])
        assert row["baseline"] == pytest.approx(np.mean([table["baseline"][key] for table in tables]))
    assert len({float(table["value"].iloc[0]) for table in tables}) > 1
    single = mean[mean["run"] != "width=16"]
    assert single["low"].isna().all()
    assert single["value"].notna().all()


def test_interval_over_seeds_stays_within_the_range_of_the_score(tmp_path):
    """Test two seeds with F1 .6 and .9, whose interval was [-1.16, 2.66], and a mean, which has no range."""
    infos = [ScoreInfo(name="linear_f1", low=0.0, high=1.0), ScoreInfo(name="mean")]
    with Database(tmp_path / "x.db") as database:
        for run, value in {"a": 0.6, "b": 0.9}.items():
            facts = {"run": run, "model": "m", "epoch": 0, "address": "fc1", "value": value}
            database.add(Results.from_rows([facts | {"score": info.name} for info in infos]), infos)
            database.put_run(run, "m", config={"lr": 1, "seed": run})
    table = intus.runs(tmp_path / "x.db").grouped().set_index("score")
    assert table.loc["linear_f1", ["low", "high"]].tolist() == [0, 1]
    expected = stats.t.interval(0.95, 1, 0.75, stats.sem([0.6, 0.9]))
    assert table.loc["mean", ["low", "high"]].tolist() == pytest.approx(list(expected))


def test_groups_by_chosen_entries(runs):
    by_seed = runs.grouped(by="seed", target="digit", score="linear_f1")
    assert by_seed.groupby("run")["n"].max().to_dict() == {"seed=0": 2, "seed=1": 1, "seed=2": 1}
    assert set(runs.grouped(by=["note", "width"], score="mean")["run"]) == {
        'note={"why": ["a", null]}, width=4'
    }
    with pytest.raises(InputError, match=r"configuration with lr. Known entries: note, seed, width"):
        runs.grouped(by="lr")


def test_runs_whose_configuration_is_a_seed_alone_are_a_group(tmp_path):
    """Before, they had none, and ``grouped`` said that no run has a configuration."""
    with Database(tmp_path / "x.db") as database:
        for run, value in {"a": 0.6, "b": 0.9, "other": 0.3}.items():
            facts = {"run": run, "model": "m", "epoch": 0, "address": "fc1", "value": value, "score": "mean"}
            database.add(Results.from_rows([facts]), [ScoreInfo(name="mean")])
            database.put_run(run, "m", config={} if run == "other" else {"seed": run})
    runs = intus.runs(tmp_path / "x.db")
    assert runs.grouped()[["run", "value", "n"]].to_numpy().tolist() == [["seed=*", 0.75, 2]]
    assert runs.grouped(by=[])[["run", "value", "n"]].to_numpy().tolist() == [["all runs", 0.6, 3]]


def test_mean_of_a_group_on_the_server(server):
    """The page's request gives the table of ``grouped``."""
    where = intus.runs(f"{server.host}:{server.port}")
    query = {"run": "wide 2", "model": "Sequential", "score": "linear_f1", "target": "digit", "group": "true"}
    reply = where._source._get("/api/points", **query)
    expected = where.grouped(target="digit", score="linear_f1")
    expected = expected[expected["run"] == "width=16"]
    for column in ("epoch", "address", "value", "low", "high", "n"):
        assert reply[column] == expected[column].tolist()


@pytest.mark.long
def test_run_is_renamed_tagged_and_removed(tmp_path):
    path = tmp_path / "runs.db"
    with Server(database=path, port=0) as server:
        for run in ("a", "b", "c", "d"):
            record(server, run, {"width": 4})
        assert intus.flush(server.host, server.port)
        for where, first, second in ((path, "a", "b"), (f"{server.host}:{server.port}", "c", "d")):
            runs = intus.runs(where)
            before = runs[first].scores().drop(columns="run")
            run = runs[first]
            run.tags = ["good"]
            run.rename(f"new {first}")
            assert run.name == f"new {first}"
            assert first not in runs
            assert runs[f"new {first}"].tags == ["good"]
            assert runs[f"new {first}"].scores().drop(columns="run").equals(before)
            assert len(run.log()) == 2
            with pytest.raises(
                InputError, match=rf"'new {first}' cannot be renamed to '{second}': there is a run"
            ):
                run.rename(second)
            runs[second].remove()
            assert second not in runs
        assert set(intus.runs(path)) == {"new a", "new c"}
    with sqlite3.connect(path) as connection:
        left = {
            table: connection.execute(f"SELECT count(DISTINCT run) FROM {table}").fetchone()
            for table in ("series", "log", "graph", "epoch")
        }
    assert left == dict.fromkeys(left, (2,))


@pytest.mark.long
def test_findings_of_a_training_are_read_stored_and_logged(tmp_path):
    """A model that learns digits; the sentence has the numbers of the score that is read back."""
    path = tmp_path / "runs.db"
    images, labels = torch.tensor(DIGITS.data / 16).float(), torch.tensor(DIGITS.target)
    even = labels % 2
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    with Server(database=path, port=0) as server:
        probe_set = images[:1000], {"even": even[:1000].numpy()}
        with intus.probe(model, server.host, server.port, run="digits", probe_set=probe_set) as watch:
            for watch.epoch in range(4):
                for _ in range(10 * (watch.epoch > 0)):
                    loss = torch.nn.functional.cross_entropy(model(images), even)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                model(images)
                watch.log(loss=loss if watch.epoch else float("nan"))
        assert intus.flush(server.host, server.port)
        found = intus.runs(f"{server.host}:{server.port}")["digits"].findings()
    assert intus.runs(path)["digits"].findings() == found
    (learned,) = (each for each in found if each.kind == "learned")
    scores = intus.runs(path)["digits"].scores(target="even", score="linear_f1", address=learned.address)
    row = scores[scores["epoch"] == learned.epoch].iloc[0]
    assert f"linear_f1 {row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" in learned.text
    assert row["low"] > row["baseline"]
    assert "loss is NaN at step 0." in [each.text for each in found]
    with sqlite3.connect(path) as connection:
        stored = [text for (text,) in connection.execute("SELECT text FROM notice WHERE code = 'finding'")]
    assert sorted(stored) == sorted(each.text for each in found)
    assert f"INFO intus.serving: finding in digits: {learned.text}\n" in server.log


@pytest.mark.long
@pytest.mark.parametrize("where", ["database", "server"])
def test_mean_over_runs_never_mixes_modes(tmp_path, where):
    """A layer that has the label in evaluation only; one of the runs begins with a pass of evaluation."""
    rows, labels = torch.randn(200, 4), torch.arange(200) % 2

    class Hiding(torch.nn.Module):
        def forward(self, rows):
            return torch.randn_like(rows) if self.training else rows + 9 * labels[:, None]

    with Server(database=tmp_path / "x.db", port=0) as server:
        for run, modes in {"a": (True, False), "b": (False, True)}.items():
            model = torch.nn.Sequential(Hiding())
            with intus.probe(
                model, server.host, server.port, run=run, config={"lr": 1, "seed": run}, budget=math.inf
            ) as watch:
                watch.register_targets(name="half", targets=labels)
                for watch.epoch in (1, 2):
                    for is_training in modes:
                        watch.items = np.arange(200)
                        model.train(is_training)(rows)
            assert intus.flush(server.host, server.port)
        runs = intus.runs(f"{server.host}:{server.port}" if where == "server" else tmp_path / "x.db")
        chosen = {"address": "0", "target": "half", "score": "linear_f1"}
        assert set(runs["a"].scores(**chosen, mode="train")["kind"]) == {"output"}
        assert set(runs["b"].scores(**chosen, mode="train")["kind"]) == {"output@train"}
        for table in (runs.grouped(**chosen), runs.grouped(**chosen, kind="output")):
            assert set(table["kind"]) == {"output"}
            assert table.groupby("mode")["n"].agg(list).to_dict() == {"eval": [2, 2], "train": [2, 2]}
            assert (table[table["mode"] == "eval"]["value"] > 0.95).all()
            assert (table[table["mode"] == "train"]["value"] < 0.75).all()
        assert set(runs.grouped(**chosen, kind="output@eval")["mode"]) == {"eval"}
        assert set(runs.scores(**chosen, mode="eval")["run"]) == {"a", "b"}
        with pytest.raises(InputError, match="no mode 'evl'"):
            runs.scores(mode="evl")
        query = "/api/points?group=1&model=Sequential&score=linear_f1&target=half&address=0&kind=output&run="
        for run, mode in (("a", "train"), ("b", "eval")):
            with contextlib.closing(Client(server.host, server.port)) as client:
                found = client.get(query + run).reply
            assert (set(found["mode"]), set(found["n"])) == ({mode}, {2})
