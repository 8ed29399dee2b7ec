"""The examples train, and their scores reach the database."""

from __future__ import annotations

import numpy as np
import pytest

from intus.cli import main
from intus.examples.python_source import LENGTH, read
from intus.serving.run import Server
from intus.storage.database import Database


def test_python_source_labels():
    codes, kinds, brackets = read()
    assert codes.shape == (len(kinds), LENGTH)
    assert {len(window) for window in (*kinds, *brackets)} == {LENGTH}
    flat = [kind for window in kinds for kind in window]
    shares = {kind: flat.count(kind) / len(flat) for kind in set(flat)}
    assert set(shares) == {"space", "name", "keyword", "op", "string", "comment", "number"}
    assert 0.2 < shares["name"] < 0.5


def test_lstm_and_mlp_examples(tmp_path, capsys):
    with Server(database=tmp_path / "x.db", port=0) as server:
        where = ["--host", server.host, "--port", str(server.port)]
        assert main(["examples", "lstm", "mlp", "--epochs", "1", *where]) == 0
    text = capsys.readouterr().out
    assert "LSTM, epoch 1: loss" in text
    assert text.rstrip().endswith(f": http://{server.host}:{server.port}/")
    with Database(tmp_path / "x.db") as database:
        runs = {run["model"]: run["run"] for run in database.runs()}
        assert len(set(runs.values())) == 1
        assert runs["MLP"].startswith("examples ")
        lstm = database.points(runs["LSTM"], "LSTM").where(score="linear_f1", kind="output")
        mlp = database.points(runs["MLP"], "MLP")
        assert database.notices() == []
    assert set(lstm["target"].tolist()) == {"digit", "ink so far", "ink in this row"}
    assert set(lstm["epoch"].tolist()) == {0, 1}
    at_the_end = lstm.where(address="head", target="digit")["value"]
    assert at_the_end[1] != at_the_end[0]
    assert set(mlp.where(score="linear_f1", kind="output")["n"].tolist()) == {455}  # every image was seen
    ratio = mlp.where(score="update_ratio")["value"]
    assert len(ratio) == 8
    assert np.all((ratio > 0) & (ratio < 1))


@pytest.mark.loops
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("name", "model", "targets", "last"),
    [
        ("trainer", "GPT-2 (Trainer)", {"kind of word", "brackets"}, "lm_head"),
        ("lightning", "CNN (Lightning)", {"digit", "even"}, "head"),
    ],
)
def test_trainer_and_lightning_examples(tmp_path, name, model, targets, last):
    with Server(database=tmp_path / "x.db", port=0) as server:
        where = ["--host", server.host, "--port", str(server.port)]
        assert main(["examples", name, "--epochs", "2", *where]) == 0
    with Database(tmp_path / "x.db") as database:
        (run,) = database.runs()
        points = database.points(run["run"], model).where(score="linear_f1", kind="output")
        assert run["model"] == model
        assert run["has_graph"]
        assert database.notices() == []
    assert set(points["target"].tolist()) == targets
    assert set(points["epoch"].tolist()) == {0, 1}
    (target,) = sorted(targets)[-1:]
    curve = points.where(address=last, target=target)
    assert len(curve["value"]) == 2
    assert curve["value"][-1] > curve["baseline"][-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lstn"], "mean 'lstm'"),
        (["--epochs", "0"], "--epochs 0"),
        (["--port", "1"], "No server answers"),
    ],
)
def test_example_errors(arguments, message, capsys):
    assert main(["examples", *arguments]) == 1
    assert message in capsys.readouterr().err
