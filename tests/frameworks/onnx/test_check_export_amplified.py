"""``check_export`` of right and wrong files on inputs of which operations amplify the rounding.

What is left of nearly equal numbers after their mean is subtracted is mostly rounding, which a norm then
divides by. The judge of the right files is the exporter, that of the wrong ones the edit.
"""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import intus


class Function(nn.Module):
    """A function, with the modules that it calls."""

    def __init__(self, function, *modules):
        super().__init__()
        self.function, self.inner = function, nn.ModuleList(modules)

    def forward(self, x):
        return self.function(*self.inner, x)


def centered(x):
    return x - x.mean(-1, keepdim=True)


NORMS = {
    "layer_norm": lambda: nn.LayerNorm(16),
    "layer_norm then linear": lambda: nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 8), nn.GELU()),
    "group_norm": lambda: Function(lambda norm, x: norm(x[..., None]), nn.GroupNorm(2, 16)),
    "instance_norm": lambda: Function(lambda norm, x: norm(x[:, None]), nn.InstanceNorm1d(1, affine=True)),
    "batch_norm of the batch": lambda: Function(
        lambda linear, x: functional.batch_norm(linear(x), None, None, training=True), nn.Linear(16, 8)
    ),
}
FUNCTIONS = {
    "std": lambda: Function(lambda x: x.std(-1)),
    "var": lambda: Function(lambda x: x.var(-1)),
    "centered": lambda: Function(centered),
    "by variance": lambda: Function(
        lambda x: centered(x) * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-6)
    ),
    "normalize": lambda: Function(lambda x: functional.normalize(centered(x), dim=-1)),
    "near zero": lambda: Function(lambda linear, x: x / (centered(linear(x)) + 1e-3), nn.Linear(16, 16)),
    "softmax": lambda: Function(lambda linear, x: torch.softmax(100 * linear(x), -1), nn.Linear(16, 16)),
}
INPUTS = {
    "nearly constant": lambda: 1000 + 1e-3 * torch.randn(4, 16),
    "constant": lambda: torch.full((4, 16), 3.3),
    "one row of four": lambda: torch.cat([1000 + 1e-3 * torch.randn(1, 16), torch.randn(3, 16)]),
}


def exported(model, x, path, dynamo):
    """Write a file, and return its path."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        torch.onnx.export(model, (x,), path, dynamo=dynamo, verbose=False)
    return path


def made(make, inputs):
    torch.manual_seed(0)
    return make().eval(), INPUTS[inputs]()


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("make", [*NORMS.values(), *FUNCTIONS.values()], ids=[*NORMS, *FUNCTIONS])
def test_right_export_does_not_differ_where_rounding_is_amplified(make, inputs, dynamo, tmp_path):
    model, x = made(make, inputs)
    check = intus.check_export(model, exported(model, x, tmp_path / "net.onnx", dynamo), x)
    assert check.verdict != "differs", str(check)
    assert check or check.unproven


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
def test_operation_that_amplifies_rounding_is_named(dynamo, tmp_path):
    """The means differ by rounding, of which the difference is made: each step by itself is right."""
    model, x = made(FUNCTIONS["centered"], "nearly constant")
    check = intus.check_export(model, exported(model, x, tmp_path / "net.onnx", dynamo), x)
    assert check.verdict == "not proven", str(check)
    [reason] = check.unproven
    assert reason.startswith("output_1 differs by")
    assert reason.endswith("rounding, amplified at sub_1_2")


def test_norm_that_loses_its_digits_is_not_proven(tmp_path):
    model, x = made(NORMS["layer_norm then linear"], "nearly constant")
    check = intus.check_export(model, exported(model, x, tmp_path / "net.onnx", True), x)
    assert check.verdict == "not proven", str(check)
    assert any("rounding takes" in one and "layer_norm_1_1 in 0" in one for one in check.unproven)
    assert "rounding takes much of what they compute" in str(check)
    assert not check.table.agree


@pytest.mark.parametrize("inputs", ["nearly constant", "one row of four"])  # 1.001 * 0 is 0
@pytest.mark.parametrize("make", [*NORMS.values(), *FUNCTIONS.values()], ids=[*NORMS, *FUNCTIONS])
def test_wrong_export_is_not_equal_where_rounding_is_amplified(make, inputs, tmp_path):
    model, x = made(make, inputs)
    path = exported(model, x, tmp_path / "net.onnx", True)
    other = Function(lambda inner, x: inner(x) * 1.001, model)
    assert intus.check_export(other, path, x).verdict != "equal"


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("make", list(NORMS.values())[:4], ids=list(NORMS)[:4])
def test_other_epsilon_is_named_where_rounding_is_amplified(make, inputs, tmp_path):
    model, x = made(make, inputs)
    path = exported(model, x, tmp_path / "net.onnx", True)
    other = copy.deepcopy(model)
    for module in other.modules():
        if hasattr(module, "eps"):
            module.eps = 2e-5
    check = intus.check_export(other, path, x)
    assert check.verdict == "differs", str(check)
    assert "eps" in str(check.first["why"])
