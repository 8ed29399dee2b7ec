"""The number of parameters of an ONNX file, judged by the model of PyTorch that it was exported from."""

import contextlib
import io
import logging
import warnings

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import intus

IMAGE, ROWS = torch.ones(1, 3, 8, 8), torch.ones(4, 6)


class Net(nn.Module):
    def __init__(self, step, *layers):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.step = nn.ModuleList(layers), step

    def forward(self, x):
        return self.step(self.layers, x)


def conv():
    return nn.Conv2d(3, 4, 1)


def dense():
    return nn.Linear(6, 6)


CASES = {
    "nearest": (lambda m, x: F.interpolate(x, scale_factor=2.0), (), IMAGE),
    "bilinear": (lambda m, x: F.interpolate(m[0](x), scale_factor=2, mode="bilinear"), (conv(),), IMAGE),
    "bicubic": (lambda m, x: F.interpolate(m[0](x), scale_factor=(1.5, 2), mode="bicubic"), (conv(),), IMAGE),
    "size": (lambda m, x: F.interpolate(m[0](x), size=(5, 7), mode="bilinear"), (conv(),), IMAGE),
    "pad": (lambda m, x: F.pad(m[0](x), (1, 1), value=0.5), (conv(),), IMAGE),
    "clamp": (lambda m, x: m[0](x).clamp(-0.5, 0.5), (dense(),), ROWS),
    "bounds": (lambda m, x: m[0](x).clamp(torch.full((6,), -0.5), torch.full((6,), 0.5)), (dense(),), ROWS),
    "one hot": (lambda m, x: m[0](F.one_hot(x.argmax(-1), 6).float()), (dense(),), ROWS),
    "topk": (lambda m, x: m[0](x).topk(2)[0], (dense(),), ROWS),
    "range": (lambda m, x: m[0](x) + torch.arange(6) * 0.1, (dense(),), ROWS),
    "matrix": (lambda m, x: m[0](x) @ torch.eye(6)[:, :4], (dense(),), ROWS),
    "grid": (lambda m, x: F.grid_sample(x, torch.zeros(1, 2, 2, 2), align_corners=False), (), IMAGE),
    "group norm": (lambda m, x: m[0](x), (nn.GroupNorm(3, 3),), IMAGE),
    "plain layer norm": (lambda m, x: m[0](x), (nn.LayerNorm(6, elementwise_affine=False),), ROWS),
    "batch norm": (lambda m, x: m[0](x), (nn.BatchNorm1d(6),), ROWS),
    "lstm": (lambda m, x: m[0](x[None])[0], (nn.LSTM(6, 5),), ROWS),
    "embedding": (lambda m, x: m[0](x.long()), (nn.Embedding(6, 4),), ROWS),
    "prelu": (lambda m, x: m[0](x), (nn.PReLU(6),), ROWS),
    "scalar": (lambda m, x: x * m[0][0], (nn.ParameterList([nn.Parameter(torch.tensor(2.0))]),), ROWS),
}
HOW = {
    "new": {"dynamo": True, "verbose": False},
    "as inputs": {"dynamo": True, "verbose": False, "keep_initializers_as_inputs": True},
    "old": {"dynamo": False},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", CASES)
def test_parameters_of_an_export_are_those_of_the_model(case, how, tmp_path):
    step, layers, x = CASES[case]
    net, path = Net(step, *layers).eval(), tmp_path / "net.onnx"
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        logging.disable(logging.WARNING)
        try:
            torch.onnx.export(net, (x,), path, **HOW[how])
        finally:
            logging.disable(logging.NOTSET)
    trace = intus.read(path)
    expected = sum(one.numel() for one in net.parameters())
    assert (trace.num_params, trace.num_trainable) == (expected, expected)
    with torch.no_grad():
        np.testing.assert_allclose(intus.read(path, x).outputs[0].value, net(x), rtol=1e-4, atol=1e-6)


#: Graphs that no exporter of torch wrote, with the number of their weights: settings are none.
GRAPHS = {
    "scales": """(float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] scales={1.0,1.0,2.0,2.0}>
        { y = Resize(x, , scales) }""",
    "one hot": """(int64[3] x) => (float[3,2] y) <int64[1] depth={2}, float[2] values={0.5,2.0}>
        { y = OneHot(x, depth, values) }""",
    "bounds beside a weight": """(float[2] x) => (float[2] y) <float low={-1.0}, float[2] w={1.0,2.0}>
        { z = Mul(x, w) y = Clip(z, low) }""",
}
WEIGHTS = {"scales": 0, "one hot": 0, "bounds beside a weight": 2}


@pytest.mark.parametrize("graph", GRAPHS)
def test_settings_are_no_parameters(graph, tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> g {GRAPHS[graph]}'), path)
    assert intus.read(path).num_params == WEIGHTS[graph]
