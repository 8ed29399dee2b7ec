"""The last state of a model is shown also if the model dies first, and its memory is let go."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import intus
from intus.monitoring import flush, probe
from intus.serving.run import Server

HOST = "127.0.0.1"
ROWS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(ROWS, (ROWS[:, 0] > 0).long())
PROBE_SET = ROWS[:8] + 1
EPOCHS, BATCHES = 3, 6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(6, 5), nn.Dropout(), nn.ReLU()), nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.body(x))


class Cyclic(Net):
    """A model that refers to itself, as through a trainer."""

    def __init__(self):
        super().__init__()
        self.me = [self]


class Closing(Net):
    """A model whose class does something when an object of it dies, which must not happen twice."""

    deaths = 0

    def __del__(self):
        type(self).deaths += 1


class Script:
    """A training in a function, at whose end its model dies; and how the model was at that time."""

    def __init__(self, watched, how, kind=Net, rate=0.1):
        self.watched, self.how, self.kind, self.rate = watched, how, kind, rate

    def train(self):
        """Train, and return the probe."""
        torch.manual_seed(0)
        model = self.kind()
        options = {"every": 4} if self.how == "every" else {}
        watch = self.watched(model, probe_set=(PROBE_SET, {"y": torch.arange(8) % 2}), **options)
        optimizer = torch.optim.SGD(model.parameters(), self.rate)
        for epoch in range(1, EPOCHS + 1):
            if self.how == "named":
                watch.epoch = epoch
            for x, y in DataLoader(DATA, 10, shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        if self.how == "further":
            model(ROWS).sum().backward()
            optimizer.step()
        with torch.no_grad():
            self.last = model.eval()(PROBE_SET).numpy()
        self.parts = [weakref.ref(one) for one in (model, model.body, model.head.weight)]
        return watch

    @property
    def epochs(self):
        if self.how == "every":
            return [*range(0, EPOCHS * BATCHES, 4), EPOCHS * BATCHES + 1]
        return list(range(EPOCHS + 1 + (self.how == "further")))


HOWS = ["every", "named", "found", "further"]


@pytest.fixture
def watched(unused_port):
    """Return a function that probes a model, once the first optimizer was made.

    That imports parts of torch, by which the frame that makes it refers to itself, with all that it has.
    """
    torch.optim.SGD(nn.Linear(1, 1).parameters())
    return partial(probe, host=HOST, port=unused_port)


def shown(records):
    return {one.epoch: one.array for one in records if one.address == "head"}


def check(records, script):
    found = shown(records)
    assert sorted(found) == script.epochs
    np.testing.assert_allclose(found[script.epochs[-1]], script.last, atol=1e-6)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("rate", [0.1, 0.0])
@pytest.mark.parametrize("keeps_probe", [True, False])
def test_last_state_of_a_model_that_dies_is_shown_and_its_memory_let_go(
    watched, unsent, how, rate, keeps_probe
):
    """Before, the model after its last calls was missing without a word."""
    unsent.clear()
    if how == "further" and not rate:
        pytest.skip("it is the same model")
    script = Script(watched, how, rate=rate)
    gc.collect()
    gc.disable()
    try:
        watch = script.train()
        watch = watch if keeps_probe else None
        assert [one() for one in script.parts] == [None] * 3
    finally:
        gc.enable()
    check(unsent, script)
    if watch is not None:
        watch.remove()
        assert watch.status()["faults"] == []
    check(unsent, script)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("ends", ["remove", pytest.param("flush", marks=pytest.mark.long)])
def test_model_that_refers_to_itself_is_shown_at_the_end(watched, unsent, how, ends):
    """It lives until the garbage collector finds it, which a probe that is removed does not hinder."""
    unsent.clear()
    script = Script(watched, how, kind=Cyclic)
    watch = script.train()
    gc.collect()
    if ends == "flush":
        flush(HOST, watch._tap.sender.port, timeout=0.1)
    watch.remove()
    check(unsent, script)
    gc.collect()
    assert [one() for one in script.parts] == [None] * 3


def test_model_that_the_garbage_collector_finds_is_shown_at_the_end(watched, unsent):
    """No code of a model runs inside of a garbage collection."""
    unsent.clear()
    script = Script(watched, "every")
    made = []

    def kind():
        made.append(Net())
        return made[0]

    script.kind = kind
    watch = script.train()
    made.append(made)  # the list holds itself, and the model
    script.kind = kind = made = None
    gc.collect()
    assert script.parts[0]() is None
    assert max(shown(unsent)) < EPOCHS * BATCHES
    watch.remove()
    check(unsent, script)
    assert script.parts[2]() is None


@pytest.mark.parametrize("how", HOWS)
def test_last_state_that_cannot_be_shown_is_said(watched, unsent, caplog, how):
    unsent.clear()
    Closing.deaths = 0
    script = Script(watched, how, kind=Closing)
    watch = script.train()
    assert Closing.deaths == 1
    watch.remove()
    is_shown = sorted(shown(unsent)) == script.epochs
    faults = [one for one in watch.status()["faults"] if "last state of Closing is not recorded" in one]
    assert len(faults) == (not is_shown) == ("the last state of Closing" in caplog.text)
    assert is_shown == (how == "found")


def test_model_that_was_shown_runs_no_more_when_it_dies(watched, unsent):
    """Its calls are counted by a module inside of it."""
    unsent.clear()
    calls = []

    class Counted(Net):
        def forward(self, x):
            calls.append(len(x))
            return super().forward(x)

    script = Script(watched, "found", kind=Counted)
    original = script.watched

    def watched_and_kept(model, **options):
        script.watch = original(model, **options)
        return script.watch

    script.watched = watched_and_kept
    watch = script.train()
    watch.remove()
    assert calls.count(len(PROBE_SET)) >= EPOCHS + 1
    assert shown(unsent).keys() == set(script.epochs)


def trained_in_a_cycle(script):
    """Train, and let the garbage collector find the model after its probe; return the server's host and port.

    In the first training of a process, the frame that makes an optimizer refers to itself.
    """
    frame = []

    def kind():
        model = script_kind()
        frame[:] = [model, frame]
        return model

    script_kind, script.kind = script.kind, kind
    sender = script.train()._tap.sender
    script.kind = kind = frame = None
    gc.collect()
    assert script.parts[0]() is None
    return sender.host, sender.port


def test_model_that_the_garbage_collector_finds_after_its_probe_is_shown_at_the_next_look(watched, unsent):
    unsent.clear()
    script = Script(watched, "every")
    trained_in_a_cycle(script)
    assert max(shown(unsent)) < EPOCHS * BATCHES
    watched(nn.Linear(6, 2), run="next").remove()
    check(unsent, script)
    assert script.parts[2]() is None


def test_next_probe_of_another_database_shows_and_frees_a_model_that_the_garbage_collector_found(tmp_path):
    """Before, a dead model was looked for only among the probes of the new one's server."""
    torch.optim.SGD(nn.Linear(1, 1).parameters())
    with (
        Server(database=tmp_path / "a.db", port=0, scores="mean") as one,
        Server(database=tmp_path / "b.db", port=0, scores="mean") as two,
    ):
        script = Script(partial(probe, host=HOST, port=one.port, run="r", block=True), "every")
        trained_in_a_cycle(script)
        assert script.parts[2]() is not None
        with probe(nn.Linear(6, 2), HOST, two.port, run="next"):
            assert script.parts[2]() is None
        assert flush(HOST, one.port)
    scores = intus.runs(tmp_path / "a.db")["r"].scores(address="head", score="mean")
    assert sorted(scores["epoch"]) == script.epochs
    np.testing.assert_allclose(scores["value"][scores["epoch"].idxmax()], script.last.mean(), atol=1e-6)


def test_last_state_of_a_model_that_the_garbage_collector_found_is_said_to_be_missing(
    watched, unsent, caplog
):
    """Before, nothing was said: such a model has no twin, and died where no code of a model runs."""
    unsent.clear()
    script = Script(watched, "every", kind=Closing)
    trained_in_a_cycle(script)
    assert "the last state" not in caplog.text
    watched(nn.Linear(6, 2), run="next").remove()
    watched(nn.Linear(6, 2), run="last").remove()
    assert caplog.text.count("the last state of Closing is not recorded") == 1


def test_few_models_that_refer_to_themselves_are_kept(watched, unsent):
    """Those of probes that nobody has any more, and that were not removed."""
    scripts = [Script(watched, "every", kind=Cyclic) for _ in range(8)]
    for number, script in enumerate(scripts):
        script.watched = partial(watched, run=f"run {number}")
        sender = script.train()._tap.sender
    gc.collect()
    alive = [one.parts[0]() is not None for one in scripts]
    assert alive == [False] * 4 + [True] * 4
    for tap in list(sender.taps):
        tap.end()


def test_models_of_a_search_are_let_go_one_after_the_other(watched, unsent):
    """Each of many models that are trained in a function dies before the next is made."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            unsent.clear()
            script = Script(watched, "every")
            script.train()
            assert script.parts[2]() is None
            check(unsent, script)
    finally:
        gc.enable()


def test_request_of_a_model_that_died_after_it_was_shown_is_not_said_to_have_run_nothing(watched, unsent):
    watch = watched(Net(), probe_set=(PROBE_SET, {"y": torch.arange(8) % 2}))
    watch.run_probe_set()
    watch.remove()
    assert list(shown(unsent)) == [0]
    assert watch.status()["faults"] == []
