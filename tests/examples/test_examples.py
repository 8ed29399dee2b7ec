"""The examples train, and their scores reach the database."""

from __future__ import annotations

import numpy as np
import pytest
from pandas import DataFrame

from intus import runs
from intus.cli import main
from intus.examples.python_source import LENGTH, read
from intus.examples.translation.analysis import sentences as told
from intus.examples.translation.analysis import summarize
from intus.examples.translation.grammar import BOTH, NAMES, SHARED, sentences
from intus.examples.translation.model import LAYERS
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


@pytest.mark.long
def test_lstm_and_mlp_examples(tmp_path, capsys):
    with Server(database=tmp_path / "x.db", port=0) as server:
        where = ["--host", server.host, "--port", str(server.port)]
        assert main(["examples", "lstm", "mlp", "--epochs", "1", *where]) == 0
    text = capsys.readouterr().out
    assert "LSTM, epoch 1: loss" in text
    assert f": http://{server.host}:{server.port}/?token=" in text.splitlines()[-1]
    with Database(tmp_path / "x.db") as database:
        runs = {run["model"]: run["run"] for run in database.runs()}
        assert len(set(runs.values())) == 1
        assert runs["MLP"].startswith("examples ")
        lstm = database.points(runs["LSTM"], "LSTM").where(score="linear_f1", kind="output")
        mlp = database.points(runs["MLP"], "MLP")
        assert [one for one in database.notices() if one["level"] != "info"] == []
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
        assert [one for one in database.notices() if one["level"] != "info"] == []
    assert set(points["target"].tolist()) == targets
    assert set(points["epoch"].tolist()) == {0, 1, 2}  # 0 is the untrained model
    (target,) = sorted(targets)[-1:]
    curve = points.where(address=last, target=target)
    assert len(curve["value"]) == 3
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


def test_translation_corpus_is_what_the_grammar_says():
    made = sentences(300, seed=5)
    assert len({tuple(sentence.words) for sentence in made}) == 300
    for sentence in made:
        assert len(sentence.words) == len(sentence.tags) == len(sentence.entities) == len(sentence.other)
        assert sorted(sentence.tags) == sorted(word.tag for word in sentence.other)
        assert sentence.other[-1].tag == "verb"
        for word, entity in zip(sentence.words, sentence.entities, strict=True):
            assert (entity == "none") == (word[0].islower())
            assert all(entity == kind for kind, names in NAMES.items() if word in names)
    meanings = {}
    for sentence in made:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            meanings.setdefault(word, set()).add((tag, sentence.topic if word in SHARED else ""))
    assert all(len(meanings[word]) == 2 for word in BOTH)  # a noun and a verb
    assert all(len(meanings[word]) >= 6 for word in SHARED)  # of each topic, mostly both


@pytest.mark.long
def test_translation_example(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("intus.examples.translation.TRAINED", 300)
    monkeypatch.setattr("intus.examples.translation.TESTED", 80)
    scores = "default,linear_selectivity"  # as docs/translation.md does: the example gives types
    with Server(database=tmp_path / "x.db", port=0, scores=scores) as server:
        where = ["--host", server.host, "--port", str(server.port)]
        assert main(["examples", "translation", "--epochs", "1", *where]) == 0
    text = capsys.readouterr().out
    (run,) = runs(tmp_path / "x.db").values()
    table = run.scores(score="linear_f1")
    layers = {target: set(rows.address) for target, rows in table.groupby("target")}
    sides = [{layer for layer in LAYERS if layer.startswith(side)} for side in (("so", "en"), ("ta", "de"))]
    assert layers["part of speech"] == layers["which name"] == sides[0]
    assert layers["next part of speech"] == layers["next entity"] == sides[1]
    assert layers["topic"] == set(LAYERS)
    speech = table[(table.target == "part of speech") & (table.address == "source")]
    assert set(speech.epoch) == {0, 1}
    assert f"{speech.value.iloc[-1]:.2f} [{speech.low.iloc[-1]:.2f}, {speech.high.iloc[-1]:.2f}]" in text
    with Database(tmp_path / "x.db") as database:
        assert [one for one in database.notices() if one["level"] != "info"] == []


def test_translation_report_says_no_more_than_the_intervals():
    """A layer that rises, one that does not, and one below its baseline."""

    def rows(layer, values, baseline=0.5, half=0.02):
        return [
            {"target": "t", "score": "linear_f1", "address": layer, "epoch": epoch, "value": value}
            | {"low": value - half, "high": value + half, "baseline": baseline}
            for epoch, value in enumerate(values)
        ]

    rising, flat = rows("rising", [0.5, 0.53, 0.6, 0.9]), rows("flat", [0.88, 0.88, 0.87, 0.89])
    said = " ".join(told(summarize(DataFrame(rising + flat), "t"), "t"))
    assert "`rising` has the highest value: 0.90 [0.88, 0.92]" in said
    assert "The intervals of `flat` overlap with it." in said
    assert "Training adds nothing that the intervals show in `flat`." in said
    assert "Learned from epoch 2: `rising`." in said
    nothing = " ".join(told(summarize(DataFrame(rows("low", [0.5, 0.51])), "t"), "t"))
    assert nothing == "No layer knows `t`: the best, `low`, has 0.51 [0.49, 0.53]."
