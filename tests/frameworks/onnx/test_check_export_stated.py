"""``check_export`` of ONNX files: constants that both state are compared, whatever the values show."""

import copy
import logging
import warnings

import pytest
import torch
from torch import nn

import intus


class Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm(32)
        self.up, self.act, self.down = nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class OwnNorm(nn.Module):
    """A root mean square norm in the way of transformers."""

    def __init__(self, size):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.rand(size)), 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def export(model, x, path, dynamo):
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(model, (x,), path, dynamo=dynamo, verbose=False)
    logging.disable(logging.NOTSET)


NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "own": OwnNorm}


@pytest.mark.parametrize(
    ("kind", "dynamo"), [("layer", True), ("layer", False), ("rms", True), ("own", True), ("own", False)]
)
def test_epsilon_behind_many_layers(kind, dynamo, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(NORMS[kind]) for _ in range(12)), NORMS[kind](32)).eval()
    x, path = torch.randn(4, 32), tmp_path / "net.onnx"
    export(model, x, path, dynamo)
    clean = intus.check_export(model, path, x)
    assert clean.verdict == "equal", str(clean)
    assert clean.constants == []
    for eps in (1e-12, 2e-5):
        other = copy.deepcopy(model)
        other[-1].eps = eps
        check = intus.check_export(other, path, x)
        assert not check
        assert f"{eps:.6g}" in str(check)
        if kind == "own":  # to add a number need not be an epsilon
            assert "12" in str(check)
            assert check.verdict == "differs" or any("the constant is" in one for one in check.unproven)
            continue
        assert check.verdict == "differs", (eps, str(check))
        assert check.first["module"] == "12"
        assert f"{eps:.6g}" in " ".join(check.first["why"])
        assert "Constants differ" in str(check)


def test_file_in_half_precision_has_the_epsilon_of_the_model(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(Block(OwnNorm), nn.LayerNorm(32)).eval().half()
    x, path = torch.randn(4, 32).half(), tmp_path / "net.onnx"
    export(model, x, path, True)
    assert intus.check_export(model, path, x).constants == []
