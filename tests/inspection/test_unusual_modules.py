"""Scripted modules, and layers that run for some records only."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from intus import inspect
from intus.core.errors import AddressError, CaptureError, InputError

X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
Y = {"y": np.arange(60) % 2}


@pytest.fixture
def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))


def test_scripted_model_is_refused(scripted):
    with pytest.raises(
        InputError, match=r"RecursiveScriptModule of torch.jit.*Pass the model that it was made of"
    ):
        inspect(scripted, Y, "correlation", X, "0")


def test_eager_layers_around_a_scripted_module(scripted):
    head = nn.Linear(3, 2)
    table = inspect(nn.Sequential(scripted, head), Y, "mean_difference", X, "1")
    out = head(scripted(X)).detach().numpy()
    expected = [out[Y["y"] == 1, unit].mean() - out[Y["y"] == 0, unit].mean() for unit in (0, 1)]
    assert table.value.tolist() == pytest.approx(expected, abs=1e-5)
    for inside in ("0", "0.0"):
        with pytest.raises(
            CaptureError, match=r"inside torch.compile, torch.jit or a CUDA graph are|did not run"
        ):
            inspect(nn.Sequential(scripted, head), Y, "mean_difference", X, inside)


def test_second_name_of_a_module():
    """``named_modules`` gives a module once, under its first name."""
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    for written in ("2", "2[0]", "2:1"):
        with pytest.raises(
            AddressError, match="another name of the module '0', whose calls are '0:1', '0:2'"
        ):
            inspect(model, Y, "mean_difference", X, written)
    table = inspect(model, Y, "mean_difference", X, "0:2")
    out = model(X).detach().numpy()
    expected = out[Y["y"] == 1].mean(0) - out[Y["y"] == 0].mean(0)
    assert table.value.tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    with pytest.raises(AddressError, match=r"no layer 2\. Its layers with parameters are 1 \('0'\)\."):
        inspect(model, Y, "mean_difference", X, 2)


class Expert(nn.Module):
    """Runs its second layer for some records of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.expert = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, chosen = self.first(x), x[:, 0] > 0
        out = h.clone()
        out[chosen] = self.expert(h[chosen])
        return out


def test_layer_that_runs_for_some_records_of_a_block():
    with pytest.raises(
        InputError, match="If it ran for some of the records only, as in a mixture of experts"
    ):
        inspect(Expert(), Y, "correlation", X, "expert", batch=20)


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        return self.second(h) if x.sum() < 1000 else h


def test_layer_that_runs_for_some_blocks():
    x = X.clone()
    x[40:] += 1000
    with pytest.raises(CaptureError, match="'second' did not run for record 40"):
        inspect(Branch(), Y, "correlation", x, "second", batch=20)
