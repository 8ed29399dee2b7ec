"""TorchScript files: the graph with modules and parameters, without running anything."""

import warnings

import numpy as np
import pytest
import torch
from residual_block import Block
from torch import nn

import intus
from intus.core.errors import CodecError, InputError
from intus.reading import read
from intus.reading.torchscript import structure
from intus.viewing.html import View


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.block = Block()

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x))).mean((2, 3))
        left, right = x.chunk(2, dim=1)
        return self.block(self.block(torch.cat([right, left], 1)))


class Control(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.lstm = Net(), nn.LSTM(8, 3, batch_first=True)

    def forward(self, x):
        y = self.net(x)
        if bool(y.sum() > 0):
            y = y * 2
        else:
            y = y - 1
        for i in range(3):
            y = y + float(i)
        out, (h, _) = self.lstm(y[:, None])
        return out, h


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.ones(2)

    @torch.jit.export
    def __getstate__(self):
        return self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        self.weight, self.training = state[0] * 2, state[1]

    def forward(self, x):
        return x * self.weight


@pytest.fixture(autouse=True)
def _deprecated():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit as a whole
        yield


def saved(tmp_path, script):
    path = tmp_path / "net.pt"
    script.save(str(path))
    return path


@pytest.mark.parametrize("make", [torch.jit.script, lambda net: torch.jit.trace(net, torch.ones(2, 3, 8, 8))])
def test_modules_parameters_and_operations(tmp_path, make):
    net = Net().eval()
    graph, values, *_ = read(saved(tmp_path, make(net)))
    assert values == {}
    assert {m.address: m.type for m in graph.modules} == {
        name: type(module).__name__ if name else graph.modules[0].type for name, module in net.named_modules()
    }
    assert {p.address: (p.shape, p.trainable) for p in graph.params} == {
        name: (tuple(p.shape), p.requires_grad) for name, p in net.named_parameters()
    }
    theirs = intus.trace(net, torch.ones(2, 3, 8, 8)).graph
    ours = [graph.type_of(row).replace("convolution", "conv2d") for row in graph.rows_of(0)]
    unpacked = [theirs.type_of(row) for row in theirs.rows_of(0)]
    unpacked.remove("chunk")  # two rows there, one here
    assert ours == unpacked
    assert [graph.call_address(call) for call in range(len(graph.calls))] == [
        theirs.call_address(call) for call in range(len(theirs.calls))
    ]
    norm = next(row for row in graph.rows_of(0) if graph.type_of(row) == "layer_norm")
    assert "1e-05" in graph.setting(norm)


def test_control_flow(tmp_path):
    graph, *_ = read(saved(tmp_path, torch.jit.script(Control().eval())))
    modules = {module.address: module.type for module in graph.modules}
    assert {"if", "loop", "then", "else", "body"} <= set(modules.values())
    branch = next(address for address, type_ in modules.items() if type_ == "if")
    assert [graph.type_of(row) for row in graph.rows(f"{branch}.then")] == ["mul"]
    assert [graph.type_of(row) for row in graph.rows(f"{branch}.else")] == ["sub"]
    assert {"sum", "gt", "lstm"} <= {graph.type_of(row) for row in graph.rows_of(0)}
    lstm = next(row for row in graph.rows_of(0) if graph.type_of(row) == "lstm")
    assert [graph.params[number].address for number in graph.row_params[lstm]] == [
        f"lstm.{name}_l0" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    decided = next(row for row in graph.rows_of(0) if graph.type_of(row) == "gt")
    assert [graph.type_of(row) for row in graph.children(decided)] == ["if"]
    assert "num_batches_tracked" not in graph.types  # the branch for training is left out
    View(graph, depth="all").save(tmp_path / "net.svg")
    assert "scalar" not in (tmp_path / "net.svg").read_text()  # shapes are not known


def test_live_module():
    script = torch.jit.trace(Net().eval(), torch.ones(2, 3, 8, 8))
    graph = structure(script._c, "Net")
    assert graph.metas[graph.ops.meta[graph.rows("conv")[0]]].shape == (2, 8, 6, 6)


def test_code_that_runs_when_loaded_is_refused(tmp_path):
    path = saved(tmp_path, torch.jit.script(Stateful()))
    with pytest.raises(CodecError, match="contains code that runs when it is loaded"):
        read(path)


def test_inputs_are_refused(tmp_path):
    path = saved(tmp_path, torch.jit.script(nn.ReLU()))
    with pytest.raises(
        InputError, match=r"net.pt is TorchScript, of which intus reads the graph but computes no"
    ):
        read(path, (np.ones(2),))


def test_truncated(tmp_path):
    path = saved(tmp_path, torch.jit.script(nn.ReLU()))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CodecError, match="damaged or truncated"):
        read(path)
