"""ONNX files that torch exported: names, parameters and values are those of torch's model."""

import warnings

import numpy as np
import pytest
import torch
from residual_block import Block
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import intus
from backends.counted_net import IN, MIDDLE, OUT, assert_counted
from intus.core.analysis.flops import flops, products
from intus.core.errors import InputError
from intus.core.units import UnitAxes
from intus.reading import read


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.out = nn.Sequential(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), nn.Linear(4, 3))

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x))).mean((2, 3))
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def model():
    torch.manual_seed(0)
    net = Net().eval()
    for param in [*net.parameters(), net.bn.running_mean]:  # equal parameters would become one in the file
        nn.init.normal_(param)
    return net, torch.randn(2, 3, 8, 8)


@pytest.fixture(scope="module", params=[True, False], ids=["dynamo", "torchscript"])
def exported(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "net.onnx"
    net, x = model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        torch.onnx.export(net, (x,), path, dynamo=request.param, verbose=False)
    return net, x, path


def test_values_of_modules_are_those_of_torch(exported):
    net, x, path = exported
    theirs = intus.trace(net, x)
    graph, values, *_ = read(path, (x,))
    assert set(values) == set(range(len(graph.ops)))
    compared = set()
    for address in theirs.modules:
        rows = graph.rows(address)
        if address and rows and address not in ("conv", "bn"):
            ours, value = values[rows[0]], theirs.value(address).detach().numpy()
            np.testing.assert_allclose(ours, value, atol=1e-5)
            assert graph.metas[graph.ops.meta[rows[0]]].shape == ours.shape
            compared.add(address)
    assert compared >= {"blocks.0", "blocks.1.norm", "out", "out.0", "out.0.0", "out.1"}


def test_folded_batch_norm_is_stated(exported):
    net, x, path = exported
    theirs = intus.trace(net, x)
    graph, values, *_ = read(path, (x,))
    row = next(row for row in range(len(graph.ops)) if graph.type_of(row) == "conv")
    np.testing.assert_allclose(values[row], theirs.value("bn").detach().numpy(), atol=1e-4)
    setting = graph.setting(row)
    assert "rewritten='FuseBatchNormIntoConv'" in setting or "weights='computed at export'" in setting


def test_graph_without_inputs(exported):
    net, _, path = exported
    graph, values, *_ = read(path)
    assert values == {}
    folded = {"bn.weight", "bn.bias"}
    assert sum(np.prod(param.shape) for param in graph.params) == sum(
        param.numel() for name, param in net.named_parameters() if name not in folded
    )
    assert "axes=[2, 3]" in " ".join(graph.settings)


def test_inputs_that_do_not_fit(exported):
    _, x, path = exported
    for inputs, named, message in (
        ((x.double(),), {}, r"must be float32, 2×3×8×8, got float64. Convert it to float32"),
        ((x[:, :2],), {}, r"must be float32, 2×3×8×8, got the shape \(2, 2, 8, 8\)"),
        ((x, x), {}, "takes 1 input, got 2"),
        ((), {"y": x}, "has no input 'y'"),
    ):
        with pytest.raises(InputError, match=message):
            read(path, inputs, named)


def test_floating_point_operations_of_products_are_those_that_torch_counts(exported):
    net, x, path = exported
    with FlopCounterMode(display=False) as counter:
        net(x)
    graph, *_ = read(path, (x,))
    assert flops(graph)[products(graph)].sum() == counter.get_total_flops()
    assert flops(graph).min() >= 0


def test_floating_point_operations_of_lstm(tmp_path):
    net, x = nn.LSTM(4, 3, bidirectional=True), torch.randn(5, 2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(net, (x,), tmp_path / "net.onnx", dynamo=False, verbose=False)
    graph, *_ = read(tmp_path / "net.onnx", (x,))
    weights = sum(param.numel() for name, param in net.named_parameters() if name.startswith("weight"))
    assert flops(graph)[products(graph)].sum() == 2 * 5 * 2 * weights


def test_units_are_channels_and_features(exported):
    _, x, path = exported
    graph, *_ = read(path, (x,))
    axes = UnitAxes(graph)
    for type_, axis in (("conv", 1), ("relu", 1), ("gemm", 1), ("layer_normalization", 1)):
        rows = [row for row in graph.rows_of(0) if graph.type_of(row) == type_]
        assert [axes.find(row) for row in rows] == [axis] * len(rows), type_


@pytest.mark.parametrize("settings", [{"dynamo": True, "optimize": False}, {"dynamo": False}], ids=str)
def test_running_statistics_are_no_parameters(settings, tmp_path):
    net = nn.Sequential(nn.Linear(IN, MIDDLE), nn.BatchNorm1d(MIDDLE), nn.Linear(MIDDLE, OUT)).eval()
    for tensor in (*net.parameters(), net[1].running_mean):  # equal ones would become one in the file
        nn.init.normal_(tensor)
    nn.init.uniform_(net[1].running_var)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (torch.ones(5, IN),), tmp_path / "net.onnx", **settings)
    assert_counted(intus.read(tmp_path / "net.onnx"))


class Recurrent(nn.Module):
    def __init__(self, kind, **settings):
        super().__init__()
        self.layer = kind(3, 4, batch_first=True, **settings)
        self.out = nn.Linear(8 if self.layer.bidirectional else 4, 2)

    def forward(self, x):
        return self.out(self.layer(x)[0])


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x):
        state = torch.zeros(2, 4), torch.zeros(2, 4)
        for at in range(5):
            state = self.cell(x[:, at], state)
        return state[0]


class Constants(nn.Module):
    """A scale of which the exporter computes another shape, buffers, a constant, and tensors made anew."""

    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(3, 3), nn.Parameter(torch.ones(5))
        self.register_buffer("place", torch.randn(5, 3))
        self.register_buffer("short", torch.randn(5, 1), persistent=False)
        self.table = torch.randn(5, 3)

    def forward(self, x):
        made = torch.arange(30.0).reshape(2, 5, 3) + torch.zeros(2, 5, 3)
        return (
            self.fc(x) * self.scale.view(1, 5, 1) + self.place + self.short.expand(5, 3) + self.table + made
        )


NETS = {
    "LSTM": lambda: Recurrent(nn.LSTM),
    "LSTM without bias": lambda: Recurrent(nn.LSTM, bias=False),
    "GRU": lambda: Recurrent(nn.GRU),
    "GRU without bias": lambda: Recurrent(nn.GRU, bias=False),
    "deep GRU": lambda: Recurrent(nn.GRU, bidirectional=True, num_layers=2),
    "RNN": lambda: Recurrent(nn.RNN, bias=False),
    "cell": Cell,
    "constants": Constants,
    "attention": lambda: nn.TransformerEncoderLayer(3, 3, 8, batch_first=True),
}


@pytest.mark.parametrize("make", NETS.values(), ids=NETS)
@pytest.mark.parametrize("optimize", [True, False])
def test_constants_of_the_exporter_are_no_parameters(make, optimize, tmp_path):
    net, x = make().eval(), torch.randn(2, 5, 3)
    for tensor in net.parameters():  # equal ones would become one in the file
        nn.init.normal_(tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x,), tmp_path / "net.onnx", dynamo=True, optimize=optimize)
    assert intus.read(tmp_path / "net.onnx").num_params == sum(tensor.numel() for tensor in net.parameters())
