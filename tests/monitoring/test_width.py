"""Projection of wide layers: labels stay decodable, and other statistics are computed before."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from intus.core.errors import InputError
from intus.core.projection import PROJECTED
from intus.core.record import OF_PROBE_SET
from intus.monitoring import flush, probe
from intus.serving.data_point import DataPoint, Key
from intus.serving.evaluation.scoring import evaluate
from intus.serving.evaluation.targets import Target
from intus.serving.messages import TargetRequest

HOST = "127.0.0.1"
DIGITS = load_digits()
LABELS = torch.tensor(DIGITS.target)
CORRECTED = ("participation_ratio", "dead")
ENTRIES = ("mean", "mean_abs", "norm", "sparsity", "variance", "std", "min", "max", "nonfinite")


def images():
    """Return digits of 16 x 16 with noise, so that the scores of layers differ."""
    torch.manual_seed(0)
    rows = torch.tensor(DIGITS.data / 16).float().reshape(-1, 1, 8, 8)
    rows = functional.interpolate(rows, size=(16, 16), mode="bilinear")
    return rows + 0.6 * torch.randn(rows.shape)


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2048, 64), nn.ReLU(), nn.Linear(64, 2)),
    )


def test_only_wide_rows_are_projected(server):
    model = net()
    kinds = ("output", "input", "grad_output", "parameter", "parameter_grad")
    with probe(model, HOST, server.port, kinds=kinds, rows=3) as watch:
        watch.items = range(5)
        model(images()[:5]).sum().backward()
    assert flush(HOST, server.port)
    records = server.records()
    wide = [one for one in records if one.projected_from is not None]
    assert {(one.address, one.kind) for one in wide} == {
        *((str(number), "output") for number in range(4)),
        *((str(number), "grad_output") for number in range(4)),
        *((str(number), "input") for number in range(1, 5)),
    }
    for one in wide:
        assert (one.projected_from, one.array.shape, one.items.tolist()) == (8192, (3, PROJECTED), [0, 1, 2])
    assert all(one.summary is None for one in records if one.projected_from is None)


def test_a_vocabulary_is_projected_position_by_position(server):
    model = nn.Sequential(nn.Linear(4, 7000))
    with probe(model, HOST, server.port, width=5000):
        model(torch.randn(2, 7, 4))
    with probe(model, HOST, server.port, width=math.inf):
        model(torch.randn(2, 7, 4))
    assert flush(HOST, server.port)
    shapes = [(one.array.shape, one.projected_from) for one in server.records() if one.address == "0"]
    assert shapes == [((2, 7, PROJECTED), 7000), ((2, 7, 7000), None)]


@pytest.mark.parametrize("width", [0, 1023, "4096", True, float("nan"), None])
def test_invalid_width_is_refused(unused_port, width):
    with pytest.raises(InputError, match="width must be"):
        probe(net(), HOST, unused_port, width=width)


def scored(server):
    """Return the readings of layers sent projected and in full: (address, epoch) -> score -> reading."""
    rows, model = images(), net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    layers = ("0", "3", "4", "7", "8")
    watches = [
        probe(
            model,
            HOST,
            server.port,
            run=run,
            width=width,
            structure=False,
            probe_set=(rows[:700], {}),
            which=lambda model, op: op.address in layers,
        )
        for run, width in (("projected", 4096), ("whole", math.inf))
    ]
    for watch in watches:
        watch.run_probe_set()
    for epoch in (1, 2):
        for watch in watches:
            watch.epoch = epoch
        for batch in torch.arange(700, 1797).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(model(rows[batch]), LABELS[batch] % 2).backward()
            optimizer.step()
    for watch in watches:
        watch.epoch = 3
    assert flush(HOST, server.port)
    target = Target.parse(TargetRequest(name="digit", targets=LABELS[:700].tolist(), client=OF_PROBE_SET))
    found = {"projected": {}, "whole": {}}
    for record in (one for one in server.records() if one.epoch < 3):
        point = DataPoint(Key.of(record), "output", record.epoch, -1, (record,))
        results = evaluate(point, [target], ("linear_f1", *CORRECTED, *ENTRIES)).results
        readings = zip(*(results[name].tolist() for name in ("score", "value", "n", "note")), strict=True)
        found[record.run][record.address, record.epoch] = {score: facts for score, *facts in readings}
    return found


@pytest.mark.slow
def test_projection_keeps_ranking_of_layers_and_scores(server):
    found = scored(server)
    cells = sorted(found["whole"])
    assert len(cells) == len(found["projected"]) == 15
    projected_f1, whole_f1 = ([found[run][cell]["linear_f1"][0] for cell in cells] for run in found)
    assert spearmanr(projected_f1, whole_f1)[0] >= 0.9
    assert np.abs(np.subtract(projected_f1, whole_f1)).mean() < 0.03
    for cell in cells:
        projected, whole = (found[run][cell] for run in found)
        for name in ENTRIES:  # computed before projection
            assert projected[name][0] == pytest.approx(whole[name][0], rel=1e-4, abs=1e-6), (cell, name)
            assert projected[name][1] == whole[name][1] == 700
        if cell[0] in ("0", "3"):  # corrected or omitted, with a note
            ratio, note = projected["participation_ratio"][0], projected["participation_ratio"][2]
            assert ratio == pytest.approx(whole["participation_ratio"][0], rel=0.1)
            assert "8192 features projected to 1024" in note
            assert math.isnan(projected["dead"][0])
            assert "probe(width=)" in projected["dead"][2]
        else:
            assert projected == whole
