"""``intus examples --framework`` in the main environment; the others are tested in their own."""

from __future__ import annotations

import pytest

from intus.cli import main
from intus.serving.run import Server
from intus.storage.database import Database


@pytest.mark.long
def test_all_runs_what_is_installed_and_names_the_rest(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with Server(database=tmp_path / "x.db", port=0) as server:
        where = ["--host", server.host, "--port", str(server.port), "--epochs", "1"]
        assert main(["examples", "--framework", "all", *where]) == 0
        printed = capfd.readouterr().out
        assert main(["examples", "--framework", "gluon", *where]) != 0
        assert "gluon needs .venvs/mxnet/bin/python, which does not exist" in capfd.readouterr().err
    assert "torch, epoch 1: loss" in printed
    for name, target in (
        ("session", "tensorflow"),
        ("keras", "tensorflow"),
        ("gluon", "mxnet"),
        ("nnx", "jax"),
    ):
        assert f"{name} needs .venvs/{target}/bin/python, which does not exist. Make it with" in printed
        assert f"make test-{target}" in printed
    with Database(tmp_path / "x.db") as database:
        (run,) = database.runs()
        scores = database.points(run["run"], "torch").where(score="linear_f1", target="digit")
    assert run["run"].startswith("frameworks ")
    assert set(scores["address"].tolist()) == {"", "hidden", "act", "head"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--framework", "theano"], "no example for the framework 'theano'"),
        (["--framework", "torch", "mlp"], "Leave out 'mlp'"),
    ],
)
def test_what_is_not_possible_is_said(given, text, capsys):
    assert main(["examples", *given]) != 0
    assert text in capsys.readouterr().err
