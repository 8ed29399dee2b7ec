"""Labels of other shapes than one per row: a column, one-hot, and those of a part of the dataset."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from intus import flush, probe, register_targets
from intus.monitoring.targets import doubt_of_shape, plain_ids, plain_labels

HOST = "127.0.0.1"
X = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Identity(), nn.Linear(6, 2))


@pytest.mark.parametrize("given", [Y[:, None], Y[:, None].numpy(), pd.DataFrame({"y": Y.numpy()})])
def test_column_is_one_label_per_row(given):
    assert plain_labels("y", given) == Y.tolist()
    assert plain_ids("groups", given, Y.tolist()) == Y.tolist()


def test_lists_of_one_label_stay_labels_of_positions():
    assert plain_labels("y", [["N"], ["V"]]) == [["N"], ["V"]]


@pytest.mark.parametrize(
    ("labels", "doubted"),
    [
        (nn.functional.one_hot(Y, 2), True),
        (np.eye(3)[np.arange(300) % 3], True),
        (np.eye(3, dtype=bool)[np.arange(300) % 3], True),
        (Y, False),
        (np.arange(600).reshape(300, 2) % 5, False),
        (np.ones((300, 2), int), False),
        ([[0, 1], [1]], False),
        ([["N", "V"]] * 4, False),
        (np.eye(4), False),  # as many positions as rows
    ],
)
def test_one_hot_labels_are_recognized(labels, doubted):
    text = doubt_of_shape("y", plain_labels("y", labels))
    assert bool(text) == doubted
    assert not doubted or "pass labels.argmax(1)" in text


def faults(watch, words):
    return [one for one in watch.status()["faults"] if words in one]


def train(net, loader):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()


@pytest.mark.parametrize("when", ["before the probe", "after the probe", "probe set"])
def test_one_hot_labels_are_told_of_at_once(server, when):
    labels = nn.functional.one_hot(Y, 2)
    if when == "before the probe":
        register_targets(HOST, server.port, name="y", targets=labels)
    given = {"probe_set": (X, {"y": labels})} if when == "probe set" else {}
    with probe(model(), HOST, server.port, run="r", **given) as watch:
        if when == "after the probe":
            register_targets(HOST, server.port, name="y", targets=labels)
        (told,) = faults(watch, "one-hot")
    assert told.startswith("Labels of 'y' of shape (300, 2) look one-hot")


@pytest.mark.parametrize("whole", [True, False])
def test_labels_of_a_part_of_the_dataset_are_told_of_while_it_trains(server, whole):
    part, _ = random_split(TensorDataset(X, Y), [200, 100], torch.Generator().manual_seed(0))
    net = model()
    with probe(net, HOST, server.port, run="r", budget=float("inf")) as watch:
        watch.register_targets(name="100 % y", targets=Y if whole else Y[list(part.indices)])
        train(net, DataLoader(part, 50, shuffle=True))
        told = faults(watch, "has 200 labels")
    assert len(told) == (not whole)
    assert whole or "the target '100 % y' has 200 labels" in told[0].lower()


def test_registration_names_the_runs_that_are_recorded(server):
    net = model()
    with probe(net, HOST, server.port, run="one"):
        register_targets(HOST, server.port, name="y", targets=Y)
    register_targets(HOST, server.port, name="z", targets=Y)
    sent = [json.loads(body) for path, body in server.got if path == "/targets"]
    assert [(each["name"], each.get("during", [])) for each in sent] == [("y", ["one"]), ("z", [])]


def test_registration_that_waits_is_not_replaced_if_records_came_in_between(server, monkeypatch):
    monkeypatch.setattr("intus.monitoring.commands.ANSWER_S", 0.05)
    server.answer = lambda path: 503
    net = model()
    with probe(net, HOST, server.port, run="r", budget=float("inf")) as watch:
        for labels in (Y, 1 - Y):
            watch.register_targets(name="y", targets=labels.numpy())
            watch.register_targets(name="y", targets=labels)  # replaces the one before
            train(net, DataLoader(TensorDataset(X, Y), 150))
        server.answer = lambda path: 200
    flush(HOST, server.port, timeout=20)
    order = [path.split("?")[0] for path, _ in server.got if path in ("/targets", "/records")]
    last = len(order) - order[::-1].index("/targets")
    assert "/records" in order[:last]
    assert order.count("/targets") < 4
