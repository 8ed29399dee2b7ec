"""``intus.runs``: scores of recorded trainings as DataFrames, from a database and from a server."""

from __future__ import annotations

import json
import math
import sqlite3
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

import intus
from intus.cli import main
from intus.core.errors import InputError, ServeError
from intus.core.results import Results
from intus.reporting import Runs
from intus.serving.run import Server

DIGITS = load_digits()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Return a server with two recorded trainings on digits."""
    path = tmp_path_factory.mktemp("runs") / "runs.db"
    images, labels = torch.tensor(DIGITS.data[:400] / 16).float(), DIGITS.target[:400]
    with Server(database=path, port=0) as server:
        for run in ("first", "second"):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
            probe_set = images, {"digit": labels, "even": labels % 2}
            with intus.probe(model, server.host, server.port, run=run, probe_set=probe_set) as watch:
                for watch.epoch in range(2):
                    model(images)
        assert intus.flush(server.host, server.port)
        server.database_path = path
        yield server


@pytest.fixture(params=["file", "server", "url"])
def runs(server, request):
    address = f"{server.host}:{server.port}"
    return intus.runs(
        {"file": server.database_path, "server": address, "url": f"http://{address}"}[request.param]
    )


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


def stored(path, query):
    with sqlite3.connect(path) as connection:
        return connection.execute(query).fetchall()


def test_runs_are_a_mapping_with_the_newest_first(runs):
    assert list(runs) == ["second", "first"]
    assert len(runs) == 2
    assert "first" in runs
    assert "third" not in runs
    first = runs["first"]
    assert (first.models, first.epochs, first.targets) == (["Sequential"], [0.0, 1.0], ["digit", "even"])
    assert first.addresses == ["0", "1", "2", ""]
    assert first.started <= first.updated
    assert "'first': Sequential, epochs 0 to 1, 4 layers, targets digit, even" in repr(runs)


class Counting:
    """A source of many runs that counts how often their list is read."""

    where = "here"

    def __init__(self, count):
        self.read, self.names = 0, [f"run {number}" for number in range(count)]

    def runs(self):
        self.read += 1
        shared = {"model": "Net", "epochs": [1.0], "addresses": ["fc"], "targets": ["y"], "scores": ["r2"]}
        more = {"kinds": ["output"], "logged": [], "tags": [], "started": 0.0, "updated": 1.0}
        configs = [{"lr": number % 2, "seed": number} for number in range(len(self.names))]
        return [
            {"run": name, "config": config} | shared | more
            for name, config in zip(self.names, configs, strict=True)
        ]

    def scores(self):
        return {}

    def points(self, run, model, level, equal):
        value = float(self.names.index(run))
        row = {"run": run, "model": model, "epoch": 1.0, "address": "fc", "kind": "output", "value": value}
        row |= {"target": "y", "score": "r2", "mode": "train"}
        return Results({name: [cell] for name, cell in row.items()})


@pytest.mark.parametrize("use", [Runs.items, Runs.values, Runs.grouped, Runs.scores, repr])
def test_list_of_runs_is_read_once_for_all_of_them(use):
    """Before, it was read again for each run: the groups of 309 runs of a server took more than a minute."""
    source = Counting(300)
    found = Runs(source)
    source.read = 0
    use(found)
    assert source.read == 1


def test_means_of_many_runs_are_those_of_each_group():
    found = Runs(Counting(300)).grouped(target="y")
    assert dict(zip(found["run"], found["value"], strict=True)) == {
        "lr=0": np.mean(range(0, 300, 2)),
        "lr=1": np.mean(range(1, 300, 2)),
    }
    assert set(found["n"]) == {150}


def test_scores_equal_the_rows_of_the_database(runs, server):
    """The judge is SQL on the file itself."""
    table = runs["first"].scores()
    rows = stored(
        server.database_path,
        "SELECT point.epoch, address, target, score, value, low, high, baseline, n FROM point "
        "JOIN series ON series.id = point.series JOIN run ON run.id = series.run "
        "WHERE run.run = 'first' AND unit < 0",
    )
    names = ["epoch", "address", "target", "score", "value", "low", "high", "baseline", "n"]
    keys = names[:4]
    expected = pd.DataFrame(rows, columns=names).astype({"value": float, "low": float, "high": float})
    pd.testing.assert_frame_equal(
        table[names].sort_values(keys, ignore_index=True),
        expected.astype({"baseline": float}).sort_values(keys, ignore_index=True),
        check_dtype=False,
    )
    assert set(table["run"]) == {"first"}
    assert len(table) > 100


def test_scores_are_selected_by_column(runs):
    table = runs["first"].scores(target="digit", score="linear_f1", address="0")
    assert table["epoch"].tolist() == [0.0, 1.0]
    assert (table["value"] > 0.5).all()
    both = runs.scores(target="digit", score="linear_f1")
    wide = both.pivot_table("value", "epoch", ["run", "address"])
    assert wide.shape == (2, 8)
    np.testing.assert_array_equal(wide["first"], wide["second"])  # the same seed


def test_what_does_not_exist_is_named(runs):
    with pytest.raises(KeyError, match=r"has no run 'fist'.*'first'"):
        runs["fist"]
    with pytest.raises(InputError, match=r"The run 'first' has no score 'linear'.*linear_f1"):
        runs["first"].scores(score="linear")
    with pytest.raises(InputError, match=r"The run 'first' has no target 'digits'.*'digit'"):
        runs["first"].scores(target="digits")
    with pytest.raises(InputError, match=r"has no score 'linear_f2'.*linear_f1"):
        runs.scores(score="linear_f2")
    with pytest.raises(InputError, match=r"not selected by 'layer'"):
        runs["first"].scores(layer="0")
    with pytest.raises(InputError, match=r"address must be a string, got 0\."):
        runs["first"].scores(address=0)
    with pytest.raises(InputError, match=r"target must be a string, got None\. Leave it out"):
        runs["first"].scores(target=None)
    with pytest.raises(InputError, match=r"epoch must be a number, got '1'"):
        runs["first"].scores(epoch="1")
    with pytest.raises(InputError, match=r"The run 'first' has no epoch 7\. Its epochs: 0, 1\."):
        runs["first"].scores(epoch=7)


def test_scores_are_selected_by_epoch_and_step(runs):
    run, same = runs["first"], {"target": "digit", "score": "linear_f1"}
    table = run.scores(**same)
    last = table[table["epoch"] == 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(run.scores(epoch=1, **same), last)
    step = int(last["step"][0])
    expected = table[table["step"] == step].reset_index(drop=True)
    pd.testing.assert_frame_equal(run.scores(step=step, **same), expected)
    assert run.scores(step=10**6).empty
    assert set(runs.scores(epoch=np.int64(0))["epoch"]) == {0.0}


def test_scores_are_selected_by_ranges_of_epochs(runs):
    run = runs["first"]
    table = run.scores(score="linear_f1")
    for epochs, kept in [
        (slice(0, 1), [0]),
        (slice(1, None), [1]),
        (slice(None, 1), [0]),
        (slice(0, 1.5), [0, 1]),
    ]:
        expected = table[table["epoch"].isin(kept)].reset_index(drop=True)
        pd.testing.assert_frame_equal(run.scores(score="linear_f1", epoch=epochs), expected)
    with pytest.raises(InputError, match=r"The run 'first' has no epoch in 2:9\. Its epochs: 0 to 1\."):
        run.scores(epoch=slice(2, 9))
    for wrong in (slice(3, 2), slice(0, 4, 2), slice("0", "1")):
        with pytest.raises(
            InputError, match=r"epoch=slice\(.*\) must be a slice from a number up to a larger"
        ):
            run.scores(epoch=wrong)


def test_sources_that_do_not_exist(tmp_path, server):
    missing = tmp_path / "none.db"
    with pytest.raises(InputError, match=r"There is no file .*none.db"):
        intus.runs(missing)
    assert not missing.exists()
    (tmp_path / "notes.db").write_bytes(b"no database")
    with pytest.raises(InputError, match=r"Could not open the database .*notes.db"):
        intus.runs(tmp_path / "notes.db")
    with pytest.raises(ServeError, match=r"127.0.0.1:1 does not answer"):
        intus.runs("127.0.0.1:1")
    with pytest.raises(InputError, match="https"):
        intus.runs("https://127.0.0.1:8082")


@pytest.mark.long
def test_reading_runs_imports_no_framework(server):
    code = "import sys, intus; intus.runs(sys.argv[1]).scores(); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, server.database_path],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "False"


@pytest.mark.long
def test_export_writes_the_same_table(server, tmp_path):
    expected = intus.runs(server.database_path)["first"].scores(target="digit")
    chosen = ["-m", "intus", "export", server.database_path, "--run", "first", "--target", "digit"]
    for ending, read in {".csv": pd.read_csv, ".json": pd.read_json}.items():
        path = tmp_path / f"scores{ending}"
        assert run(*chosen, "--out", path).returncode == 0
        table = read(path, **({"keep_default_na": True} if ending == ".csv" else {}))
        numbers = ["epoch", "value", "low", "high", "baseline", "n"]
        pd.testing.assert_frame_equal(table[numbers], expected[numbers], check_dtype=False)
        assert table["score"].tolist() == expected["score"].tolist()
    assert run(*chosen).stdout == (tmp_path / "scores.csv").read_text()


@pytest.mark.long
def test_probe_registers_targets_for_its_own_run(tmp_path):
    path, labels = tmp_path / "own.db", np.arange(200) % 2
    with Server(database=path, port=0) as own:
        for run, registers in (("one+", True), ("other", False)):
            model = torch.nn.Linear(4, 4)
            with intus.probe(model, own.host, own.port, run=run, budget=math.inf) as watch:
                if registers:
                    assert watch.register_targets(name="half", targets=labels)
                watch.items = np.arange(200)
                model(torch.randn(200, 4))
        assert intus.flush(own.host, own.port)
    scores = intus.runs(path).scores()
    assert set(scores["run"]) == {"one+", "other"}
    assert set(scores[scores["target"] == "half"]["run"]) == {"one+"}


@pytest.mark.long
def test_export_as_json_has_every_digit(server, tmp_path):
    """Python's own JSON reader is the judge; a value may be as small as those of gradients are."""
    path, out = tmp_path / "small.db", tmp_path / "small.json"
    model = torch.nn.Linear(4, 4)
    with (
        Server(database=path, port=0) as own,
        intus.probe(model, own.host, own.port, run="small", kinds=("grad_output",), budget=math.inf),
    ):
        (model(torch.randn(50, 4)).mean() * 1e-9).backward()
        assert intus.flush(own.host, own.port)
    for where in (path, server.database_path):
        expected = intus.runs(where).scores()
        assert main(["export", str(where), "--out", str(out)]) == 0
        rows = json.loads(out.read_text(), parse_constant=pytest.fail)
        assert list(rows[0]) == list(expected)
        for name in expected:
            column = expected[name].tolist()
            assert [row[name] for row in rows] == [None if one != one else one for one in column], name
        assert expected["low"].isna().any()
        assert (expected["value"] > 0).any()
    assert (intus.runs(path).scores(score="mean_abs")["value"] < 1e-9).all()


def test_help_of_export_names_the_columns_of_the_file(server, capsys):
    assert main(["export", str(server.database_path), "--run", "first", "--score", "mean"]) == 0
    header = capsys.readouterr().out.splitlines()[0].split(",")
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    assert ", ".join(header) in " ".join(capsys.readouterr().out.split())


def test_export_of_some_epochs(server, tmp_path, capsys):
    path, out = str(server.database_path), str(tmp_path / "some.csv")
    expected = intus.runs(path)["first"].scores(score="linear_f1")
    for epochs, kept in {"1": [1], "0:1": [0], ":1": [0], "1:": [1], "0:2": [0, 1]}.items():
        chosen = ["--run", "first", "--score", "linear_f1", "--epoch", epochs, "--out", out]
        assert main(["export", path, *chosen]) == 0
        some = expected[expected["epoch"].isin(kept)]["value"]
        np.testing.assert_allclose(pd.read_csv(out)["value"], some)
    for option, sentence in {
        ("--epoch", "last"): "--epoch 'last' is neither a number, counted from 0, nor a range such as 3:10",
        ("--epoch", "3:1"): "--epoch '3:1' is neither a number",
        ("--epoch", "0:1:1"): "--epoch '0:1:1' is neither a number",
        ("--epoch", ""): "--epoch '' is neither a number",
        ("--step", "-1"): "--step '-1' is neither a number",
        ("--step", "nan"): "--step 'nan' is neither a number",
        ("--epoch", "5:9"): "has no epoch in 5:9. Its epochs: 0 to 1.",
        ("--epoch", "7"): "has no epoch 7. Its epochs: 0, 1.",
        ("--step", "0:99"): "no such scores at --step 0:99. Scores of whole epochs have no step.",
    }.items():
        assert main(["export", path, *option]) == 1
        assert sentence in capsys.readouterr().err


@pytest.mark.long
def test_export_names_what_is_wrong(server, tmp_path):
    path = server.database_path
    for arguments, sentence in {
        ("none.db",): "There is no file 'none.db'",
        (path, "--run", "fist"): "has no run 'fist'. Did you mean 'first'?",
        (path, "--out", tmp_path / "scores.xls"): "must end in .csv or .json",
        (path, "--score", "linear"): "has no score 'linear'",
        (path, "--out", tmp_path / "none" / "x.csv"): "x.csv' cannot be written: ",
    }.items():
        done = run("-m", "intus", "export", *arguments)
        assert done.returncode == 1
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
