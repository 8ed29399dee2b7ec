"""Inspecting models on a GPU: the table of the same model on the CPU, but for rounding."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from cuda_models import DEVICE, Decoder, Residual, images, tokens

from intus import inspect

pytestmark = pytest.mark.cuda


def ink(image):
    return image[0]


def is_even(ids):
    return np.asarray(ids) % 2


@pytest.mark.parametrize("kind", ["cnn", "transformer"])
def test_tables_are_those_of_the_cpu(kind):
    torch.manual_seed(0)
    model = Residual().eval() if kind == "cnn" else Decoder().eval()
    data = images(40).numpy() if kind == "cnn" else tokens(60).numpy()
    hypotheses = {"ink": ink} if kind == "cnn" else {"even": is_even}
    units = [("one", "*"), ("two", "*")] if kind == "cnn" else [("blocks.0", "*"), ("blocks.1.up", "*")]
    given = hypotheses, ["correlation", "mutual_information"], data, units
    on_cpu = inspect(copy.deepcopy(model), *given)
    on_gpu = inspect(model.to(DEVICE), *given)
    assert list(on_cpu.address) == list(on_gpu.address)
    assert len(on_cpu) > 30
    for name in ("value", "low", "high"):
        np.testing.assert_allclose(on_gpu[name], on_cpu[name], atol=2e-3)
