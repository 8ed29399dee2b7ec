"""Validation in training mode is scored apart from the training, if it has no gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

from intus.monitoring import flush, probe
from intus.serving.run import Server

HOST = "127.0.0.1"
# The first feature of a row is its number, and above 1000 in the other dataset.
ROWS, OTHERS = torch.randn(2, 48, 4, generator=torch.Generator().manual_seed(0))
ROWS[:, 0], OTHERS[:, 0] = torch.arange(48), torch.arange(48) + 1000
LABELS = torch.arange(48) % 2
DATA = TensorDataset(ROWS, LABELS)
VALIDATIONS = {"other": TensorDataset(OTHERS, LABELS), "subset": Subset(DATA, range(32, 48))}


def loader(data):
    return DataLoader(data, batch_size=16, shuffle=True)


def train(server, *, validation=None, gradients=torch.enable_grad, apart=torch.no_grad):
    """Train on the first rows in training mode only; return the records of the first layer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    training = loader(Subset(DATA, range(32)))
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for _ in range(3):
            for x, y in training:
                with gradients():
                    loss = F.cross_entropy(model(x), y)
                if loss.requires_grad:
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            with apart():
                for x, _ in loader(VALIDATIONS[validation]) if validation else ():
                    model(x)
    assert flush(HOST, server.port)
    return [one for one in server.records() if one.address == "0"], watch


def counts(records):
    out = {}
    for one in records:
        out[one.epoch, one.mode] = out.get((one.epoch, one.mode), 0) + one.rows
    return out


@pytest.mark.parametrize("apart", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(("validation", "rows"), [("other", 48), ("subset", 16)])
def test_validation_without_eval_is_of_another_mode(server, validation, rows, apart):
    """Before, its rows were in the training's scores, or took the labels from the training's rows."""
    records, watch = train(server, validation=validation, apart=apart)
    assert counts(records) == {
        (epoch, mode): count for epoch in (1, 2, 3) for mode, count in (("train", 32), ("eval", rows))
    }
    for one in records:
        if one.mode == "train" or validation == "subset":
            np.testing.assert_array_equal(one.items, one.array[:, 0].astype(np.int64))
        else:
            assert (one.items < 0).all()
    assert watch.status()["faults"] == []


def test_training_without_gradients_stays_a_training(server):
    records, _ = train(server, gradients=torch.no_grad)
    assert {one.mode for one in records} == {"train"}


def test_mode_that_the_script_names_is_kept(server):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        model(ROWS)
        watch.mode = "rollout"
        with torch.no_grad():
            model(ROWS)
        watch.mode = None
        with torch.no_grad():
            model(ROWS)
    assert flush(HOST, server.port)
    assert [one.mode for one in server.records() if one.address == "0"] == ["train", "rollout", "eval"]


def test_labels_that_cannot_be_matched_are_a_fault_of_the_probe(tmp_path):
    """Before, the server's log and page alone said it, and the probe's status had no fault."""
    with Server(database=tmp_path / "x.db", port=0, scores="mean,lda_f1") as server:
        model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
        for run in ("some", "all"):
            watch = probe(model, HOST, server.port, run=run, structure=False, block=True)
            assert watch.register_targets(name="y", targets=LABELS)
            with watch:
                for part in ROWS.split(24):
                    watch.items = part[:, 0].long() if run == "all" or part[0, 0] == 0 else None
                    model(part)
            assert flush(HOST, server.port)
            faults = [one for one in watch.status()["faults"] if "'y'" in one]
            assert [("cannot be matched" in one) for one in faults] == [True] * (run == "some")
