"""``check_export`` does not say "equal" of what the inputs leave without effect.

Every case is two models that differ, and that return the same on the inputs of the check. The judge is that
each is equal to its own export, and that the two differ on other inputs.
"""

import contextlib
import io
import logging
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import intus
from intus.core.errors import InputError


class Net(nn.Module):
    def __init__(self, step):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        nn.init.normal_(self.norm.weight)
        self.table, self.step = nn.Embedding(9, 4), step

    def forward(self, *x):
        return self.step(self, *x)


def export(net, x, path):
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        logging.disable(logging.WARNING)
        try:
            if path.suffix == ".onnx":
                torch.onnx.export(net, x, path, dynamo=True, verbose=False)
            else:
                torch.export.save(torch.export.export(net, x), path)
        finally:
            logging.disable(logging.NOTSET)
    return path


FLOATS = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0))
SMALL = torch.tensor([[3, 1, 2]])
#: The inputs, two steps, other inputs on which they differ, and what is said.
CASES = {
    "masked number": (
        FLOATS,
        lambda s, x: s.linear(x).masked_fill(x > 9, 0.0),
        lambda s, x: s.linear(x).masked_fill(x > 9, 5.0),
        FLOATS * 40,
        "the constants are 5 in the model, 0 in the file|value is 5.0 in the model, 0.0 in the file",
    ),
    "bound of a mask": (
        FLOATS,
        lambda s, x: s.linear(x).masked_fill(x > 9, 0.0),
        lambda s, x: s.linear(x).masked_fill(x > 18, 0.0),
        FLOATS * 18,
        "the constants are 18 in the model, 9 in the file|other is 18 in the model, 9 in the file",
    ),
    "remainder": (
        SMALL,
        lambda s, i: s.table(i % 4),
        lambda s, i: s.table(i % 8),
        SMALL + 3,
        "the constants are 8 in the model, 4 in the file|other is 8 in the model, 4 in the file",
    ),
    "epsilon of normalize": (
        FLOATS,
        lambda s, x: F.normalize(x, dim=-1),
        lambda s, x: F.normalize(x, dim=-1, eps=1e-2),
        FLOATS * 1e-4,
        "the constants are 0.01 in the model, 1e-12 in the file",
    ),
    "epsilon of a cosine": (
        FLOATS,
        lambda s, x: F.cosine_similarity(s.linear(x), x, -1, eps=1e-8),
        lambda s, x: F.cosine_similarity(s.linear(x), x, -1, eps=1e-3),
        FLOATS * 1e-6,
        "0.001 in the model, 1e-08 in the file, at cosine_similarity",
    ),
    "least norm": (
        FLOATS,
        lambda s, x: x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12),
        lambda s, x: x / x.norm(dim=-1, keepdim=True).clamp_min(1e-2),
        FLOATS * 1e-4,
        "ran only in|the constants are",
    ),
    "comparison of equals": (
        FLOATS,
        lambda s, x: (s.linear(x) > 0).float(),
        lambda s, x: (s.linear(x) >= 0).float(),
        None,
        "gt_1_2 is|ge_1_2 is",
    ),
    "rounded up": (
        torch.tensor([[0, 2, 4, 6]]),
        lambda s, i: s.table(i // 2),
        lambda s, i: s.table((i + 1) // 2),
        torch.tensor([[1, 3, 5, 7]]),
        "add_1_1 is computed only in the model, and floordiv_1_2 hides it",
    ),
    "activation before argmax": (
        FLOATS,
        lambda s, x: s.linear(x).argmax(-1),
        lambda s, x: s.linear(x).relu().argmax(-1),
        None,
        "relu_1_2 is computed only in the model, and argmax_1_3 hides it",
    ),
    "norm before argmax": (
        FLOATS[:1, :1],
        lambda s, x: x.argmax(-1),
        lambda s, x: (x * 1.5 - 4).argmax(-1),
        None,
        "sub_1_2 is computed only in the model, and argmax_1_3 hides it",
    ),
    "whole numbers": (
        torch.arange(16.0).reshape(2, 8),
        lambda s, x: s.linear(x),
        lambda s, x: s.linear(x.long().float()),
        FLOATS,
        "long_1_1 ran only in the model, and has no effect on these inputs",
    ),
}


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
@pytest.mark.parametrize("name", CASES)
def test_difference_that_the_inputs_hide_is_not_proven(name, suffix, tmp_path):
    x, one, two, elsewhere, said = CASES[name]
    nets = Net(one).eval(), Net(two).eval()
    files = [export(net, (x,), tmp_path / f"{number}{suffix}") for number, net in enumerate(nets)]
    torch.testing.assert_close(nets[0](x), nets[1](x))
    if elsewhere is not None:
        assert not torch.allclose(nets[0](elsewhere), nets[1](elsewhere))
    for net, file in zip(nets, files, strict=True):
        check = intus.check_export(net, file, x)
        assert check.verdict == "equal", str(check)
    check = intus.check_export(nets[1], files[0], x)
    assert check.verdict == "not proven", str(check)
    assert any(part in sentence for part in said.split("|") for sentence in check.unproven), check.unproven
    assert not intus.compare(intus.trace(nets[0], x), intus.trace(nets[1], x)).agree


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_inputs_of_equal_values(suffix, tmp_path):
    net = Net(lambda s, x, y: s.linear(x) + s.norm(y)).eval()
    other = Net(lambda s, x, y: s.linear(y) + s.norm(x)).eval()
    file = export(net, (FLOATS, FLOATS.clone()), tmp_path / f"net{suffix}")
    check = intus.check_export(net, file, FLOATS, FLOATS.clone())
    assert check.verdict == "equal", str(check)
    assert any("have equal values, so the values do not tell them apart" in note for note in check.notes)
    check = intus.check_export(other, file, FLOATS, FLOATS.clone())
    assert check.verdict == "not proven", str(check)
    assert any("is computed from input_2 in the model, from input_1 in the file" in s for s in check.unproven)
    assert intus.check_export(other, file, FLOATS, FLOATS + 1).verdict == "differs"


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_names_of_the_same_interpolation(mode, suffix, tmp_path):
    net = Net(lambda s, x, grid: F.grid_sample(x, grid, mode, align_corners=False)).eval()
    x = torch.randn(1, 2, 5, 5), torch.rand(1, 4, 4, 2) - 0.5
    check = intus.check_export(net, export(net, x, tmp_path / f"net{suffix}"), *x)
    assert check.verdict == "equal", str(check)


def test_keyword_arguments_of_the_model(tmp_path):
    class Sum(nn.Module):
        def forward(self, x, scale):
            return x * scale

    x = torch.randn(3), torch.randn(3)
    file = export(Sum(), x, tmp_path / "sum.onnx")
    assert intus.check_export(Sum(), file, x[0], scale=x[1]).verdict == "equal"
    assert intus.check_export(Sum(), file, x=x[0], kwargs={"scale": x[1]}).verdict == "equal"
    with pytest.raises(InputError, match="scal"):
        intus.check_export(Sum(), file, x[0], scal=x[1])


def test_reason_names_no_numbers_that_both_state(tmp_path):
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1)).eval()
    x = torch.randn(1, 1, 5, 5)
    file = export(net, (x,), tmp_path / "net.onnx")
    other = nn.Sequential(nn.Conv2d(1, 2, 3, padding=2, dilation=2)).eval()
    other.load_state_dict(net.state_dict())
    why = " ".join(intus.check_export(other, file, x).first["why"])
    assert "dilation" in why
    assert "stride" not in why
    assert "kernel_size" not in why
