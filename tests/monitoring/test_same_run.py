"""The same ``run=`` used again: no score is of the rows of two trainings."""

from __future__ import annotations

import math
import multiprocessing
import re

import numpy as np
import pytest
import torch
from test_with_server import points, read
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from intus.core.errors import InputError
from intus.core.results import EARLIER
from intus.monitoring import flush, probe
from intus.serving.run import Server

ROWS = 40


class Planted(nn.Module):
    """A model whose output is its weight, so that the mean of a score says which training it is of."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)

    def forward(self, rows):
        return self.layer(rows)


def train(server, value, epochs, *, own=True, end=True, kept=(), **options):
    """Train a model whose outputs in each epoch are ``value`` plus the number of the epoch, from 0 on.

    A probe set shows the untrained model, as epoch 0.
    """
    model, rows = Planted(), torch.ones(ROWS, 1)
    nn.init.constant_(model.layer.weight, value)
    given = {} if own else {"probe_set": (rows, {"label": np.arange(ROWS) % 2})}
    watch = probe(
        model, *server, run="r", name="Sequential", budget=math.inf, statistics=not own and "auto", **given
    )
    for epoch in epochs:
        watch.epoch = epoch
        with torch.no_grad():
            model.layer.weight.fill_(value + epoch)
        for _ in range(2):
            model(rows)
    if end:
        watch.remove()
    return watch, model


def check(server, watch, expected, own=True):
    assert flush(server.host, server.port)
    found = points(server, "r", score="mean", address="layer")
    assert dict(zip(found["epoch"], found["value"], strict=True)) == pytest.approx(expected)
    assert found["n"] == [ROWS * (2 if own else 1)] * len(expected)
    ledger = watch.status()["ledger"]
    assert ledger["sent"] == sum(ledger[name] for name in ("under_way", "unknown", "refused", "kept"))
    assert ledger["kept"] == sum(ledger[name] for name in ("waiting", "scored", "failed", "lost"))
    assert (ledger["under_way"], ledger["unknown"], ledger["waiting"]) == (0, 0, 0)
    return ledger


def codes(server):
    return [notice["code"] for notice in read(server, "api/notices")["notices"] if notice["run"] == "r"]


@pytest.mark.long
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 1), (3, 1), (2, 3)])
def test_training_begun_anew_in_one_process_replaces_the_earlier_one(tmp_path, first, second, own):
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        at = server.host, server.port
        train(at, 100, range(1, first + 1), own=own)
        watch, _ = train(at, 200, range(1, second + 1), own=own)
        expected = {epoch: 100 + epoch for epoch in range(1, first + 1)}
        expected |= {epoch: 200 + epoch for epoch in range(1 if own else 0, second + 1)}
        ledger = check(server, watch, expected, own)
        assert ledger["sent"] == ledger["scored"] == 2 * (2 * (first + second) if own else first + second + 2)
        assert "restarted" in codes(server)
        assert "incomplete" not in codes(server)


@pytest.mark.long
def test_cell_that_is_run_again_without_remove_replaces_the_earlier_training(tmp_path, caplog):
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        at = server.host, server.port
        earlier, model = train(at, 100, [1, 2], end=False)
        watch, _ = train(at, 200, [1])
        earlier.epoch = 1  # the earlier model goes on beside it
        model(torch.ones(ROWS, 1))
        check(server, watch, {1: 201, 2: 102})
        assert "probed anew" in " ".join(earlier.status()["faults"])
        assert "probed anew" in caplog.text


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Run a server for all tests whose runs have names of their own."""
    with Server(database=tmp_path_factory.mktemp("same") / "runs.db", port=0, scores="mean") as server:
        yield server


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_cell_with_a_probe_that_is_run_again_before_the_training_counts_once(server, times, own, named):
    """Before, each probe recorded the rows, in epochs of its own."""
    model, data = Planted(), TensorDataset(torch.ones(ROWS, 1), torch.arange(ROWS) % 2)
    nn.init.constant_(model.layer.weight, 5.0)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    given = {} if own else {"probe_set": (data.tensors[0], {"label": data.tensors[1].numpy()})}
    run = f"{times}-{own}-{named}"
    for _ in range(times):
        watch = probe(
            model,
            server.host,
            server.port,
            run=run,
            name="Sequential",
            budget=math.inf,
            statistics=False,
            **given,
        )
    for epoch in (1, 2):
        if named:
            watch.epoch = epoch
        for rows, _ in DataLoader(data, ROWS, shuffle=True):
            optimizer.zero_grad()
            model(rows).mean().backward()  # the weight falls by 1 in each step
            optimizer.step()
    watch.remove()
    assert flush(server.host, server.port)
    found = points(server, run, score="mean", address="layer")
    assert {one["level"] for one in read(server, f"api/notices?run={run}")["notices"]} <= {"info"}
    expected = {1: 5, 2: 4} if own else {0: 5, 1: 4, 2: 3}
    assert dict(zip(found["epoch"], found["value"], strict=True)) == pytest.approx(expected)
    assert found["n"] == [ROWS] * len(expected)
    assert watch.status()["faults"] == []


def test_probe_of_other_kinds_ends_the_earlier_one_and_says_so(tmp_path, caplog):
    caplog.set_level("INFO", "intus")
    model = Planted()
    with Server(database=tmp_path / "runs.db", port=0, scores="mean") as server:
        for kinds in (("parameter",), ("output",)):
            watch = probe(
                model, server.host, server.port, run="r", name="Sequential", budget=math.inf, kinds=kinds
            )
        model(torch.ones(ROWS, 1))
        watch.remove()
        assert flush(server.host, server.port)
        assert not points(server, "r", score="mean", address="layer.weight")["n"]
        assert points(server, "r", score="mean", address="layer")["n"] == [ROWS]
    assert "Sequential was probed before under the same run= and name" in caplog.text


@pytest.mark.long
@pytest.mark.parametrize("apart", [False, True])
def test_training_that_begins_after_another_is_one_curve_of_two_trainings(tmp_path, apart):
    """Before, the findings of an unrelated model began with the epochs of the one before, without a word."""
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        at = server.host, server.port
        if apart:
            other = multiprocessing.get_context("spawn").Process(
                target=in_other_process, args=(at, 100, [1, 2])
            )
            other.start()
            other.join(120)
        else:
            train(at, 100, [1, 2])
        watch, _ = train(at, 100, [3, 4])
        check(server, watch, {epoch: 100 + epoch for epoch in range(1, 5)})
        found = points(server, "r", score="mean", address="layer")
        assert found["note"] == [EARLIER, EARLIER, "", ""]
        assert "resumed" in codes(server)
        assert "restarted" not in codes(server)


def in_other_process(*arguments, **options):
    train(*arguments, **options)
    assert flush(*arguments[0])


@pytest.mark.long
@pytest.mark.parametrize("own", [True, False])
def test_training_begun_anew_in_another_process_replaces_the_earlier_one(tmp_path, own):
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        at = server.host, server.port
        other = multiprocessing.get_context("spawn").Process(
            target=in_other_process, args=(at, 100, [1, 2]), kwargs={"own": own}
        )
        other.start()
        other.join(120)
        assert other.exitcode == 0
        watch, _ = train(at, 200, [1], own=own)
        check(server, watch, {1: 201, 2: 102} | ({} if own else {0: 200}), own)
        assert "restarted" in codes(server)


@pytest.mark.long
def test_notices_of_epochs_that_come_again_name_whose_they_are(tmp_path):
    """Before, "Epoch 1.0 came after epoch 2 of an earlier training" was of one process and one training."""
    with Server(database=tmp_path / "x.db", port=0, scores="mean") as server:
        at = server.host, server.port
        model = nn.Linear(2, 2)
        with probe(model, *at, run="r", block=True) as watch:
            for watch.epoch in (1, 2, 1):
                model(torch.ones(8, 2))
        assert flush(*at)
        (text,) = [
            one["text"] for one in read(server, "api/notices")["notices"] if one["code"] == "restarted"
        ]
        assert re.match(r"(Epoch 1|An epoch) came after epoch 2 under the same run=: another training", text)
        for run, last in (("s", 2), ("s", 1)):
            model = nn.Linear(2, 2)
            with probe(model, *at, run=run, block=True) as watch:
                for watch.epoch in range(1, last + 1):
                    model(torch.ones(8, 2))
            assert flush(*at)
        notices = [one for one in read(server, "api/notices")["notices"] if one["code"] == "restarted"]
        (text,) = [one["text"] for one in notices if one["run"] == "s"]
        assert re.match(r"(Epoch 1|An epoch) came after epoch 2 under the same run=: another training", text)


@pytest.mark.parametrize("setting", ["epoch", "step"])
def test_negative_epoch_is_refused(setting):
    with probe(nn.Linear(2, 2), "127.0.0.1", 9) as watch:
        with pytest.raises(InputError, match=f"{setting} must be a number, counted from 0, got -1"):
            setattr(watch, setting, -1)
        setattr(watch, setting, 0)
