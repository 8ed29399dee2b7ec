"""The sparse autoencoder: its features by torch and numpy, beside neurons and random features."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from intus import Dictionary
from intus.examples.inspecting.sae import ACTIVE, FEATURES, NAMES, Sparse, fit


@pytest.mark.long
def test_autoencoder_reconstructs_sparse_rows(capsys):
    torch.manual_seed(0)
    atoms = torch.nn.functional.normalize(torch.randn(40, 16), dim=1)
    rows = (torch.rand(3000, 40) * (torch.rand(3000, 40) < 0.05)) @ atoms + 3
    sae = fit(rows)
    with torch.no_grad():
        left = (sae(rows) - rows).square().mean() / rows.var(0).mean()
        codes = sae.encode(rows - sae.center)
    assert left < 0.1
    assert codes.shape == (3000, FEATURES)
    assert int((codes > 0).sum(1).max()) <= ACTIVE
    seen = Dictionary(sae, sae.decode.weight.T, center=sae.center).features(rows.numpy(), "layer")
    assert np.allclose(seen, codes.numpy(), atol=1e-5)  # the center is subtracted once
    assert "unexplained" in capsys.readouterr().out


def test_untrained_autoencoder_reconstructs_badly():
    torch.manual_seed(0)
    rows = torch.randn(500, 16)
    with torch.no_grad():
        left = (Sparse(rows)(rows) - rows).square().mean() / rows.var(0).mean()
    assert left > 0.5


@pytest.fixture(scope="module")
def sae(run_example):
    return run_example("sae")


@pytest.mark.slow
def test_features_beside_neurons_and_random_features(sae):
    table = sae.table("sae")
    assert set(table.address) == set(NAMES)
    assert table.groupby("address").unit.nunique().to_dict() == {
        "lstm": 128,
        "lstm (SAE)": FEATURES,
        "lstm (random SAE)": FEATURES,
    }
    best = sae.table("sae-summary").set_index(["score", "target"]).loc["correlation"]
    assert best.SAE["self"] > best.random["self"] + 0.05
    assert best.neurons["string"] > best.SAE["string"]  # a unit of the LSTM is the string detector
    assert table[table.address == "lstm (random SAE)"].q.isna().all()
    assert sae.pictures()["sae"] > 5000
