"""``check_export`` names the module that a file cuts off, not the one after it."""

import copy
from types import MethodType

import onnx
import pytest
import torch
from torch import nn

import intus


class Residual(nn.Module):
    """Two blocks of an MLP, each added to what it is given."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(2)
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


LAYERS = ["blocks.0.0", "blocks.0.2", "blocks.1.0", "blocks.1.2"]
#: What a linear layer returns in the file.
CUTS = {
    "bias": lambda layer, x: layer.bias,
    "bias of each row": lambda layer, x: layer.bias.expand(*x.shape[:-1], -1),
    "product times 0": lambda layer, x: (x @ layer.weight.T) * 0 + layer.bias,
    "zeros": lambda layer, x: torch.zeros_like(x),
}


def cut(net, address, what):
    other = copy.deepcopy(net)
    layer = other.get_submodule(address)
    layer.forward = MethodType(CUTS[what], layer)
    return other


def exported(net, x, path):
    torch.onnx.export(net.eval(), (x,), path, dynamo=True, verbose=False)
    return path


@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8), (1, 8)], ids=str)
@pytest.mark.parametrize("what", CUTS)
@pytest.mark.parametrize("address", LAYERS)
def test_layer_that_is_cut_is_named_by_compare(address, what, shape):
    net, x = Residual().eval(), torch.randn(shape)
    table = intus.compare(intus.trace(net, x), intus.trace(cut(net, address, what), x))
    assert table.attrs["first"]["module"] == address, str(table)
    reverse = intus.compare(intus.trace(cut(net, address, what), x), intus.trace(net, x))
    assert reverse.attrs["first"]["module"] == address, str(reverse)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", ["bias", "bias of each row"])
@pytest.mark.parametrize("address", LAYERS)
def test_layer_that_is_cut_to_its_bias_is_named(address, what, tmp_path):
    net, x = Residual().eval(), torch.randn(5, 8)
    check = intus.check_export(net, exported(cut(net, address, what), x, tmp_path / "net.onnx"), x)
    assert check.verdict == "differs"
    assert check.first["module"] == address, str(check)


class Folded(nn.Module):
    """A ReLU outside of a block whose norm a file folds into the convolution."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6))

    def forward(self, x):
        return self.block(torch.relu(self.stem(x)))


@pytest.mark.filterwarnings("ignore")
def test_step_of_the_file_before_a_folded_norm_is_named(tmp_path):
    net, x = Folded().eval(), torch.randn(2, 3, 8, 8)
    net.block[1].running_mean.normal_()
    model = onnx.load(exported(net, x, tmp_path / "net.onnx"))
    number, relu = next((n, node) for n, node in enumerate(model.graph.node) if node.op_type == "Relu")
    result, relu.output[0] = relu.output[0], "positive"
    model.graph.node.insert(number + 1, onnx.helper.make_node("Neg", ["positive"], [result]))
    onnx.save(model, tmp_path / "net.onnx")
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == "differs"
    assert (check.first["module"], check.first["b"]) == ("", "neg_1_3"), str(check)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.down = nn.RMSNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return x + self.down(self.norm(x))


@pytest.mark.filterwarnings("ignore")
def test_dropped_residual_is_named_at_its_module(tmp_path):
    torch.manual_seed(3)
    net, x = nn.Sequential(Layer(), Layer(), nn.Linear(8, 4)).eval(), torch.randn(3, 4, 8)
    model = onnx.load(exported(net, x, tmp_path / "net.onnx"))
    given = model.graph.input[0].name
    add = next(node for node in model.graph.node if node.op_type == "Add" and given in node.input)
    (kept,) = [name for name in add.input if name != given]
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name == add.output[0]:
                node.input[place] = kept
    model.graph.node.remove(add)
    onnx.save(model, tmp_path / "net.onnx")
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == "differs"
    assert check.first["module"] == "0", str(check)
