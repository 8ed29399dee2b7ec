"""``check_export`` of deep models whose files were edited where nothing is stated.

The judge is the edit: what depth may round by is more than it changes, so each step is judged by itself.
"""

import warnings

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import intus

DEPTH, SIZE, AT = 16, 96, 12


class Block(nn.Module):
    """A block with a constant that the exporters compute, so that the file has one that the model lacks."""

    def __init__(self, number):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(SIZE), nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.gate = np.linspace(0.5, 1.5, SIZE, dtype=np.float32) + np.float32(number / 64)

    def forward(self, x):
        gate = torch.from_numpy(self.gate).exp()
        y = self.up(self.norm(x))
        return x + self.down(torch.tanh(y * gate) / (1 + y.pow(2)).sqrt())


@pytest.fixture(scope="module", params=[True, False], ids=["dynamo", "older"])
def exported(request, tmp_path_factory):
    """Return a model, its input and its file."""
    torch.manual_seed(0)
    model, x = nn.Sequential(*map(Block, range(DEPTH))).eval(), torch.randn(4, 10, SIZE)
    path = tmp_path_factory.mktemp("deep") / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        torch.onnx.export(model, (x,), path, dynamo=request.param, verbose=False)
    return model, x, path


def near(one, other):
    return one.shape == other.shape and np.allclose(one, other)


def edited(model, path, factor):
    """Write a file whose constant of one block is another, and return its path."""
    file = onnx.load(path)
    own = np.exp(model[AT].gate)
    tensors = [*file.graph.initializer]
    tensors += [a.t for node in file.graph.node if node.op_type == "Constant" for a in node.attribute]
    [found] = [t for t in tensors if t.data_type == 1 and near(onnx.numpy_helper.to_array(t), own)]
    found.CopyFrom(onnx.numpy_helper.from_array(own * factor, found.name))
    changed = path.with_name("edited.onnx")
    onnx.save(file, changed)
    return changed


def test_deep_model_is_equal_to_its_file(exported):
    model, x, path = exported
    check = intus.check_export(model, path, x)
    assert check.verdict == "equal", str(check)


def test_constant_that_depth_excuses_is_named(exported):
    """The product differs by 3e-6: three times as much was allowed there."""
    model, x, path = exported
    check = intus.check_export(model, edited(model, path, np.float32(1 + 3e-6)), x)
    assert check.verdict == "differs", str(check)
    assert check.first["module"] == str(AT)
    row = check.table[check.table.a == check.first["a"]].iloc[0]
    assert row.verdict == "differs"
    assert 2e-6 < row.isolated_error < 4e-6 < row.rounding_error


class Folded(nn.Module):
    """A convolution with a batch norm of small variances, which an exporter folds into it."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.norm.running_var.uniform_(0.005, 0.02)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
def test_epsilon_of_a_folded_norm_in_half_precision(dynamo, tmp_path):
    torch.manual_seed(0)
    model, x = nn.Sequential(*(Folded() for _ in range(6))).eval().half(), torch.randn(2, 8, 8, 8).half()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        torch.onnx.export(model, (x,), tmp_path / "net.onnx", dynamo=dynamo, verbose=False)
    check = intus.check_export(model, tmp_path / "net.onnx", x)
    assert check.verdict == "equal", str(check)
    model[4].norm.eps = 1e-4
    check = intus.check_export(model, tmp_path / "net.onnx", x)
    assert check.verdict == "differs", str(check)
    assert check.first["module"] == "4.norm"


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.factors = nn.ModuleList(nn.Linear(32, 32) for _ in range(6)), [2.1, 3.3, 0.5]

    def forward(self, x):
        for layer in self.layers:
            y = layer(x)
            for factor in self.factors:
                y = y * factor
            x = x + torch.tanh(y)
        return x


@pytest.mark.parametrize("order", [[0.5, 3.3, 2.1], [3.3, 2.1, 0.5]])
def test_other_steps_to_the_same_result_are_no_difference(order, tmp_path):
    torch.manual_seed(0)
    model, x = Factors().eval(), torch.randn(4, 32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(model, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    model.factors = order
    check = intus.check_export(model, tmp_path / "net.onnx", x)
    assert check.verdict == "equal", str(check)  # one product, in whatever order
    model.factors = [*order[:2], order[2] * 1.001]
    assert intus.check_export(model, tmp_path / "net.onnx", x).verdict == "differs"


def judged_by_depth(check):
    return [note for note in check.notes if note.startswith("Judged by the rounding that may add up")]


def test_steps_that_cannot_be_run_are_said_to_be_judged_by_depth(exported, tmp_path):
    model, x, path = exported
    assert judged_by_depth(intus.check_export(model, path, x)) == []
    intus.trace(model, x).save(tmp_path / "net.trace")
    check = intus.check_export(intus.load(tmp_path / "net.trace"), path)
    [note] = judged_by_depth(check)
    assert "could not be run" in note
    assert note in str(check)
    assert note in str(check.table)


class Scaled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * (1 + 3e-6)


def test_last_operation_that_depth_excuses_is_named(exported):
    """No operation of the file corresponds to the product: only the output shows it."""
    model, x, path = exported
    check = intus.check_export(Scaled(model), path, x)
    assert check.verdict == "differs", str(check)
    assert any("mul_" in one for one in check.first["why"]), check.first
