"""The options of a server: stated once, and the same for ``serve``, ``Server`` and the command line."""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_help import Served
from serving_help import record, target_of

from intus.core.errors import InputError, ServeError
from intus.serving.options import ServerOptions, add_options, choose
from intus.serving.run import Server, _make_roles, serve
from intus.storage.codec import encode_records
from intus.storage.database import Database

NAMES = [option.name for option in fields(ServerOptions)]


def parsed(*arguments: str) -> ServerOptions:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    return choose(None, vars(parser.parse_args(arguments)))


def test_empty_command_line_gives_defaults():
    assert parsed() == ServerOptions()
    assert ServerOptions().arguments() == []


VALUES = {
    "role": st.sampled_from(["all", "aggregator", "evaluator", "frontend"]),
    "host": st.sampled_from(["127.0.0.1", "::1", "0.0.0.0"]),
    "port": st.none() | st.integers(0, 65535),
    "database": st.sampled_from(["x.db", "postgresql://user@host/name"]),
    "token": st.text("abcXYZ019-_=+/", min_size=1).filter(lambda token: token != "--"),
    "evaluator_url": st.none() | st.just("http://elsewhere:8081"),
    "max_bytes": st.integers(1, 1 << 40),
    "trigger": st.sampled_from(["epoch", "epoch,step", "mode"]),
    "grace": st.floats(0.001, 1e9),
    "journal": st.none() | st.just("/some where/journal"),
    "fsync": st.booleans(),
    "no_token": st.just(False),
    "splits": st.integers(1, 50),
    "scores": st.none() | st.sampled_from(["linear_f1", "default, svm_f1"]),
}


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_server_process_gets_all_options(changes):
    options = ServerOptions(**{"token": "t"} | changes)
    assert parsed(*options.arguments()) == options


@pytest.mark.parametrize("function", [serve, Server])
def test_signature_contains_every_option_and_default(function):
    named = inspect.signature(function).parameters
    assert [name for name in named if name not in ("self", "options")] == NAMES
    for option in fields(ServerOptions):
        assert named[option.name].default == option.default
        assert named[option.name].kind is inspect.Parameter.KEYWORD_ONLY


def test_serve_docstring_documents_every_option():
    for name in NAMES:
        assert f"\n    {name}: " in serve.__doc__
    assert "{options}" not in serve.__doc__


def test_keyword_arguments_override_options():
    options = ServerOptions(port=0, grace=5)
    assert choose(options, {"grace": 6}) == ServerOptions(port=0, grace=6)
    assert options.grace == 5


def test_unknown_option_error_suggests_nearest():
    with pytest.raises(InputError, match=r"There is no option 'journal_byte'\. Did you mean 'journal_bytes'"):
        Server(journal_byte=3)


def test_token_is_not_printed():
    assert "s3cret" not in repr(ServerOptions(token="s3cret"))
    with pytest.raises(InputError) as caught:
        ServerOptions(token="s3cret\n")
    assert "s3cret" not in str(caught.value)


def test_token_that_ends_a_command_line_is_refused():
    with pytest.raises(InputError, match="not --"):
        ServerOptions(token="--")


@pytest.mark.parametrize(
    ("changes", "error", "complaint"),
    [
        ({"port": "8080"}, InputError, "port must be a whole number from 0 to 65535, got '8080'"),
        ({"aggregator_port": None}, InputError, "aggregator_port must be a whole number .*, got None"),
        ({"grace": True}, InputError, "grace must be a positive number of seconds, got True"),
        ({"database": 3}, InputError, "database must be text, got 3"),
        ({"trigger": ""}, InputError, "trigger must be some of epoch, step, mode"),
        ({"engine": "ray", "workers": 1.5}, InputError, "workers must be a positive whole number, got 1.5"),
        ({"scores": "mean,"}, InputError, "scores must be names of scores, separated by commas, got 'mean,'"),
        ({"splits": 0}, InputError, "splits must be a positive whole number, got 0"),
        ({"host": "example.org"}, ServeError, "A token is required to listen on example.org"),
    ],
)
def test_invalid_option_error_names_option_and_value(changes, error, complaint):
    with pytest.raises(error, match=complaint):
        ServerOptions(**changes)


def test_no_token_contradicts_token_of_environment(monkeypatch):
    monkeypatch.setenv("INTUS_TOKEN", "abc")
    command = [sys.executable, "-m", "intus", "serve", "--no-token", "--port", "0", "--database", "no/x.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "no_token (--no-token) and the environment variable INTUS_TOKEN contradict" in done.stderr


def test_default_journal_folder_is_beside_database():
    assert str(ServerOptions(database="a/x.db").journal_folder) == "a/x.db.journal"
    assert str(ServerOptions(database="postgresql://h/n").journal_folder) == "intus.journal"
    assert str(ServerOptions(journal="j").journal_folder) == "j"


def test_server_computes_the_chosen_scores_alone(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 100)
    rows = (rng.normal(size=(200, 3)) + labels[:, None]).astype(np.float32)
    options = ServerOptions(database=tmp_path / "x.db", journal="memory", scores="linear_f1, mean")
    roles = _make_roles(options)
    try:
        roles.aggregator.put_target(target_of({"name": "half", "targets": labels.tolist()}))
        for epoch in range(2):
            block = record(array=rows, epoch=epoch, items=np.arange(200))
            roles.aggregator.records([block], {"client": "c", "seq": epoch})
        roles.aggregator.flush()
        found = roles.frontend.database.points("r", "m")
    finally:
        roles.aggregator.close()
    assert sorted(set(found["score"].tolist())) == ["linear_f1", "linear_f1.majority", "mean"]
    assert found.where(score="mean")["value"] == pytest.approx([rows.mean(dtype=np.float64)] * 2)


@pytest.mark.long
def test_named_scores_are_computed_beside_the_default_ones(tmp_path):
    """Compare servers in processes, as users start them: one with the default scores, one with more."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 50)
    rows = (rng.normal(size=(100, 3)) + labels[:, None]).astype(np.float32)
    target = {"name": "half", "targets": labels.tolist(), "client": "c"}
    blocks = [
        record(array=rows * (1 + layer), address=f"l{layer}", epoch=epoch, items=np.arange(100))
        for epoch in (0, 1)
        for layer in (0, 1)
    ]
    tables = []
    for scores in (None, "svm_f1, default,svm_f1,linear_f1"):
        path = tmp_path / f"{scores}.db"
        with Served(tmp_path, database=path, scores=scores) as server:
            assert server.ask("/targets", json.dumps(target).encode())[0] == 200
            assert server.ask("/records", encode_records(blocks, {"client": "c", "seq": 0}))[0] == 200
            assert server.flush() == (200, "")
        with Database(path) as database:
            found = database.points("r", "m")
        keys = zip(*(found[key].tolist() for key in ("score", "address", "epoch", "target")), strict=True)
        tables.append(list(zip(keys, found["value"].tolist(), strict=True)))
    default, more = map(dict, tables)
    assert [len(default), len(more)] == [len(table) for table in tables]  # each once
    assert {"linear_f1", "cka_layer", "cka_epoch", "kmeans_mi"} <= {score for score, *_ in default}
    assert default == pytest.approx({key: more[key] for key in default}, nan_ok=True)
    assert [score for score, *_ in more.keys() - default.keys()] == ["svm_f1"] * 4


@pytest.mark.parametrize("scores", [None, "linear_f1", "default,linear_selectivity"])
def test_unused_types_of_a_script_are_told_of_once(tmp_path, scores):
    roles = _make_roles(ServerOptions(database=tmp_path / "x.db", journal="memory", scores=scores))
    facts = {"targets": [0, 1, 1], "types": [5, 6, 7]}
    try:
        roles.aggregator.put_target(target_of({"name": "ids", "client": "x", **facts}))  # token ids of inputs
        for client, name in (("a", "tag"), ("a", "kind"), ("a", "tag"), ("b", "kind"), ("b", "tag")):
            target = {"name": name, "client": client, "typed": True, **facts}
            roles.aggregator.put_target(target_of(target))
        notices = roles.frontend.database.notices()
    finally:
        roles.aggregator.close()
    texts = [one["text"] for one in notices if one["code"] == "types_unused"]
    if scores == "default,linear_selectivity":
        assert not texts
    else:
        assert ["target 'tag'" in text for text in texts] == [
            False,
            True,
        ]  # one for each script, newest first
        assert all("--scores default,linear_selectivity" in text for text in texts)


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        ("default,linear_f2", r"There is no score 'linear_f2'\. Did you mean .*'linear_f1'"),
        ("defaults", r"There is no score 'defaults'\. Did you mean 'default'"),
        ("default,correlation", "'correlation' is one of single units, which inspect computes"),
        ("linear_f2", r"There is no score 'linear_f2'\. Did you mean .*'linear_f1'"),
        ("mean,correlation", "'correlation' is one of single units, which inspect computes"),
        ("svcca", "'svcca' compares layers of one model, which inspect does"),
        ("cka_epoch", "'cka_epoch' .* which only servers have, beside their default scores"),
    ],
)
def test_scores_that_a_server_cannot_compute_are_refused_at_the_start(tmp_path, names, complaint):
    with pytest.raises(InputError, match=complaint):
        _make_roles(ServerOptions(database=tmp_path / "x.db", scores=names))
