"""``check_export`` of ONNX files: constants that both state are compared, whatever the values show."""

import copy
import logging
import warnings

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import intus
from intus.tracing.comparison.values.settings import _DEFAULTS, stated_arguments


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


class Small(nn.Module):
    """A GELU of small numbers."""

    def __init__(self, **given):
        super().__init__()
        self.up, self.down, self.given = nn.Linear(8, 16), nn.Linear(16, 8), given
        self.up.weight.data *= 0.1
        self.up.bias.data *= 0.1

    def forward(self, x):
        return self.down(F.gelu(self.up(x), **self.given))


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_that_leaves_out_the_default(approximate, dynamo, tmp_path):
    torch.manual_seed(0)
    model, other = Small().eval(), Small(approximate=approximate).eval()
    other.load_state_dict(model.state_dict())
    x, path = torch.randn(3, 8), tmp_path / "net.onnx"
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(other, (x,), path, dynamo=dynamo, verbose=False, opset_version=20)
    logging.disable(logging.NOTSET)
    check = intus.check_export(model, path, x)
    if approximate == "none":
        assert check.verdict == "equal", str(check)
    else:
        assert check.verdict == "differs"
        assert check.constants == ["approximate of gelu_1_2 is 'none' in a, 'tanh' in b"]


SCHEMAS = [one for one in onnx.defs.get_all_schemas() if not one.domain]


def test_defaults_are_those_of_onnx():
    by_type = {one.name.replace("RMS", "Rms"): one for one in SCHEMAS}
    for kind, defaults in _DEFAULTS["ONNX"].items():
        schema = by_type["".join(word.capitalize() for word in kind.split("_"))]
        for name, text in defaults.items():
            default = onnx.helper.get_attribute_value(schema.attributes[name].default_value)
            default = default.decode() if isinstance(default, bytes) else default
            assert text == repr(round(default, 9) if isinstance(default, float) else default)


@pytest.mark.parametrize("opset", [11, 12, 13, 17])
def test_axis_of_a_softmax_by_default_is_that_of_the_version(opset, tmp_path):
    shape, path = [2, 3, 4], tmp_path / "net.onnx"
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Softmax", ["x"], ["y"])], "g", [x], [y])
    version = onnx.helper.make_opsetid("", opset)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[version], ir_version=7), path)
    trace = intus.read(path, np.zeros(shape, np.float32))
    default = onnx.defs.get_schema("Softmax", opset).attributes["axis"].default_value.i
    assert stated_arguments(trace.graph, trace["softmax_1"].row)["dim"] == str(default)
