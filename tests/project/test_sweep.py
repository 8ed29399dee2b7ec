"""A dozen architectures of the sweep; what it says of a trace that is wrong; how it survives a bad one."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2]))
from sweep import run as running
from sweep.__main__ import _extent
from sweep.architecture import Architecture, NotPlainError
from sweep.check import Outcome, check, difference, state_of, tensors
from sweep.families import by_hand
from sweep.table import summary, table

BY_HAND = {one.name: one for one in by_hand.architectures()}
FAST = (
    *("LSTM on packed sequences", "echo state network", "adaptive computation time", "tree LSTM", "capsules"),
    *("mixture of experts", "normalizing flow", "hypernetwork", "pruned", "lazy layers"),
    *("stochastic depth and dropout, in training", "Fourier neural operator"),
)


def outcome_of(one):
    reports = []
    check(one, reports.append)
    return Outcome(**reports[-1])


@pytest.mark.parametrize("name", FAST)
def test_check_of_handwritten_models(name):
    outcome = outcome_of(BY_HAND[name])
    assert (outcome.plain, outcome.traced, outcome.validated, outcome.saved) == (True,) * 4, outcome.reasons


@pytest.mark.parametrize("kind", ["bert", "mixtral", "t5", "vit", "rwkv"])
def test_check_of_transformers_models(kind):
    pytest.importorskip("transformers")
    from sweep.families import hugging_face

    outcome = outcome_of(next(one for one in hugging_face.architectures() if one.name == kind))
    assert (outcome.plain, outcome.traced, outcome.validated, outcome.saved) == (True,) * 4, outcome.reasons


class Remembers(nn.Module):
    """A model whose forward changes an attribute."""

    def __init__(self):
        super().__init__()
        self.box = type("Box", (), {})()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        self.box.count = getattr(self.box, "count", 0) + 1
        return self.fc(x)


def test_difference_detects_changes_of_the_model():
    model = Remembers()
    before = state_of(model)
    with torch.no_grad():
        model.fc.weight.add_(1)
    model.extra = 1
    assert difference(before, state_of(model)) == "fc.weight, .extra"


def test_check_refuses_nondeterministic_models():
    def build():
        rows = iter(range(100))
        return (lambda x: x + next(rows)), torch.ones(2)

    outcome = outcome_of(Architecture("x", "counts", build))
    assert not outcome.plain
    assert "two runs without intus with the same seed differ" in outcome.reasons[0]


def test_check_detects_a_wrong_trace(monkeypatch):
    import intus

    real = intus.trace

    def wrong(*args, **kwargs):
        trace = real(*args, **kwargs)
        trace.values[trace["output_1"].row] = torch.zeros(())
        return trace

    monkeypatch.setattr(intus, "trace", wrong)
    outcome = outcome_of(BY_HAND["RNN"])
    assert outcome.plain
    assert not outcome.traced
    assert "outputs differ" in outcome.reasons[0]


def hangs():
    time.sleep(60)


def dies():
    os.kill(os.getpid(), 9)


def computes():
    while True:
        pass


def refuses():
    raise NotPlainError("as it must")


@pytest.mark.long
def test_run_survives_crashes_and_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "WALL", 15)
    monkeypatch.setattr(running, "SECONDS", 1)
    names = (dies, hangs, refuses, computes)
    catalogue = [Architecture("x", one.__name__, one) for one in names] + [BY_HAND["RNN"]]
    log = []
    found, _ = running.run(catalogue, tmp_path / "found.jsonl", 2, log.append)
    assert [one.name for one in found] == ["dies", "hangs", "refuses", "computes", "RNN"]
    assert found[0].reasons == ["its process ended with code -9"]
    assert found[1].reasons == ["it took more than 15 s"]
    assert "as it must" in found[2].reasons[0]
    assert found[3].reasons == ["it took more than 1 s of CPU"]
    assert found[4].validated
    again, others = running.run(catalogue, tmp_path / "found.jsonl", 1, log.append)
    assert (again, others) == (found, 0)
    assert log[-1] == "5 of 5 have results of an earlier run"
    text = table(found)
    assert "1 architectures run: 1 traced, 1 validated, 1 saved and loaded" in summary(found)
    assert "| RNN |" in text
    assert "dies (its process ended with code -9), hangs (it took more than 15 s)" in text
    assert "computes (it took more than 1 s of CPU)" in text
    assert "x, 1: refuses" in text


def test_interrupted_run_continues(tmp_path):
    """A run that was killed while it wrote a result checks that subject again, and no other."""
    catalogue, path, log = [BY_HAND["RNN"], BY_HAND["GRU"]], tmp_path / "found.jsonl", []
    found, _ = running.run(catalogue, path, 1, log.append)
    text = path.read_text(encoding="utf-8")
    path.write_text(text[:-20], encoding="utf-8")
    again, _ = running.run(catalogue, path, 1, log.append)
    assert [one.name for one in again] == ["RNN", "GRU"]
    assert again[0] == found[0]
    assert "1 of 2 have results of an earlier run" in log
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2


def test_time_limit_returns_the_results_so_far(tmp_path):
    catalogue, path = [BY_HAND["RNN"], BY_HAND["GRU"]], tmp_path / "found.jsonl"
    running.run(catalogue[:1], path, 1, str)
    found, _ = running.run(catalogue, path, 1, str, minutes=0)
    assert [one.name for one in found] == ["RNN"]


def test_only_failed_keeps_good_results_of_other_sources(tmp_path, monkeypatch):
    catalogue, path = [BY_HAND["RNN"], BY_HAND["GRU"]], tmp_path / "found.jsonl"
    running.run(catalogue, path, 1, str)
    rows = [json.loads(row) for row in path.read_text(encoding="utf-8").splitlines()]
    rows[1]["validated"] = False
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    monkeypatch.setattr(running, "fingerprint", lambda: "other sources")
    log = []
    found, others = running.run(catalogue, path, 1, log.append, only_failed=True)
    assert all(one.validated for one in found)
    assert others == 1
    assert len([text for text in log if text.startswith("[")]) == 1
    found, others = running.run(catalogue, path, 1, log.append)
    assert others == 0


def test_extent_says_what_was_not_checked():
    assert _extent(10, 10, 1, 0) == ""
    assert _extent(4, 10, 3, 0) == " 4 of 10 were checked (every 3rd)."
    assert _extent(7, 10, 1, 0) == " 7 of 10 were checked (as many as the time allowed)."
    assert "2 results are of an earlier state of the sources" in _extent(10, 10, 1, 2)


def test_check_detects_changed_inputs(monkeypatch):
    import intus

    real = intus.trace

    def wrong(model, given, **options):
        trace = real(model, given, **options)
        given.add_(1)
        return trace

    monkeypatch.setattr(intus, "trace", wrong)
    outcome = outcome_of(BY_HAND["CORnet-Z"])
    assert outcome.reasons == ["trace: AssertionError: the trace changed the inputs"]


@pytest.mark.parametrize("name", ["CORnet-Z", "CORnet-R", "CORnet-RT", "CORnet-S"])
def test_cornet(name):
    outcome = outcome_of(BY_HAND[name])
    assert not outcome.failed, outcome.reasons


def test_tensors_in_nested_containers():
    a, b = torch.ones(1), torch.zeros(1)
    assert [id(t) for t in tensors({"x": (a, [b]), "y": None})] == [id(a), id(b)]
