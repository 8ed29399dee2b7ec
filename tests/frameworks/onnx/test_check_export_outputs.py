"""The places of outputs: a file that returns more, less or in another order is not the model.

The judges are PyTorch, which says what the model returns, and onnxruntime, which says what the file does.
"""

from __future__ import annotations

import random
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import intus

X = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))


class Returns(nn.Module):
    """Returns what a function makes of the module and of its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.tensor([1.5, -2.0, 0.5]))
        self.register_buffer("b", torch.tensor([4.0, 5.0]))

    def forward(self, x):
        return self.function(self, x)


def plain(value):
    """Return the tensors that a model returned as arrays, in its order."""
    if isinstance(value, torch.Tensor):
        return [value.detach().numpy()]
    if isinstance(value, dict):
        value = list(value.values())
    return [] if value is None else [array for part in value for array in plain(part)]


def run(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {one.name: X.numpy() for one in session.get_inputs()})


def are_equal(some, others):
    return len(some) == len(others) and all(
        one.shape == other.shape and np.allclose(one, other, rtol=1e-5)
        for one, other in zip(some, others, strict=True)
    )


def exported(model, path, how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how == "pt2":
            torch.export.save(torch.export.export(model, (X,)), path)
        else:
            torch.onnx.export(model, (X,), path, dynamo=how == "dynamo", verbose=False)
    return path


RETURNS = {
    "none among others": lambda model, x: (None, x * model.w, None, x.exp()),
    "nested": lambda model, x: {"late": (x * model.w, [x.exp()]), "early": {"x": x + 1, "y": None}},
    "repeated": lambda model, x: ((y := x * model.w), x.exp(), [y, y]),
    "an input": lambda model, x: (x * model.w, x, x.exp()),
    "constants": lambda model, x: (torch.ones(2), x * model.w, torch.zeros_like(x)),
    "parameters": lambda model, x: (model.w, x * model.w, model.b),
}


@pytest.mark.parametrize("how", ["dynamo", "older exporter", "pt2"])
@pytest.mark.parametrize("name", RETURNS)
def test_outputs_of_exported_models(name, how, tmp_path):
    model = Returns(RETURNS[name]).eval()
    path = exported(model, tmp_path / ("net.pt2" if how == "pt2" else "net.onnx"), how)
    if how != "pt2":
        assert are_equal(plain(model(X)), run(path))
    check = intus.check_export(model, path, X)
    assert check, str(check)
    one, two = intus.trace(model, X), intus.read(path, X)
    assert intus.compare(one, two).agree
    assert intus.compare(two, one).agree


def file_of(outputs, path):
    """Write a file that computes the double of an input, its exponential and its ReLU, and returns some."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["double"]),
        helper.make_node("Exp", ["double"], ["exp"]),
        helper.make_node("Relu", ["double"], ["relu"]),
    ]
    ends = [helper.make_tensor_value_info(one, TensorProto.FLOAT, [2, 3]) for one in outputs]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph(nodes, "net", given, ends)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


SOME = ["double", "relu", "double exp", "exp double", "double relu", "relu double", "relu exp double"]


class Some(nn.Module):
    def __init__(self, names, keys=None):
        super().__init__()
        self.names, self.keys = names, keys

    def forward(self, x):
        y = x + x
        made = {"double": y, "exp": y.exp(), "relu": y.relu()}
        found = [made[name] for name in self.names]
        return tuple(found) if self.keys is None else dict(zip(self.keys, found, strict=True))


@pytest.mark.parametrize("x", [X, X.abs()], ids=["any", "positive"])
@pytest.mark.parametrize("outputs", SOME)
def test_some_outputs_of_a_file(outputs, x, tmp_path):
    """On positive inputs the ReLU returns what it is given, and is another output nevertheless."""
    path = file_of(outputs.split(), tmp_path / "net.onnx")
    file, returned = intus.read(path, x), run(path)
    for names in map(str.split, SOME):
        one = intus.trace(Some(names), x)
        is_same = are_equal(plain(Some(names)(X)), returned)
        assert intus.compare(one, file).agree == intus.compare(file, one).agree == is_same, names


@pytest.mark.parametrize("outputs", SOME)
def test_check_of_some_outputs_of_a_file(outputs, tmp_path):
    path, names = file_of(outputs.split(), tmp_path / "net.onnx"), ["double", "relu"]
    check = intus.check_export(Some(names), path, X)
    is_same = are_equal(plain(Some(names)(X)), run(path))
    assert check.verdict == ("equal" if is_same else "differs")
    count = len(outputs.split())
    if count != 2:
        listed = ", ".join(f"output_{n + 1} ({name})" for n, name in enumerate(outputs.split()))
        words = f"{count} output{'s' if count > 1 else ''} ({listed})"
        assert f"Some (a) has 2 outputs (output_1, output_2), net.onnx (b) has {words}." in str(check)


def test_outputs_by_name(tmp_path):
    """The outputs of a dict are those of a file that names them so, in whatever order."""
    path = file_of(["double", "exp"], tmp_path / "net.onnx")
    right, turned = Some(["exp", "double"], ["exp", "double"]), Some(["exp", "double"], ["double", "exp"])
    check = intus.check_export(right, path, X)
    assert check, str(check)
    assert check.others > 0
    check = intus.check_export(turned, path, X)
    assert not check
    assert "Output 'double' of Some is output 'exp' of net.onnx." in str(check)
    partly = intus.check_export(Some(["double", "exp"], ["y", "double"]), path, X)
    assert not partly
    assert "Output 2 of Some is output 1 of net.onnx." in str(partly)
    assert intus.check_export(Some(["double", "exp"], ["y", "z"]), path, X)
    moved = intus.read(file_of(["exp", "double"], tmp_path / "moved.onnx"), X)
    table = intus.compare(intus.read(path, X), moved)  # two files: each has an order besides its names
    assert not table.agree
    assert "Output 1 of net.onnx is output 2 of moved.onnx." in str(table)


@pytest.mark.parametrize("seed", range(6))
def test_outputs_of_generated_models(seed, tmp_path):
    """Of nested results, inputs, constants and repeated tensors, a file returns all, or one more or moved."""
    draw = random.Random(seed)

    def nested(made, depth):
        kind = draw.choice(["tensor", tuple, list, dict]) if depth else "tensor"
        if kind == "tensor":
            return draw.choice(made)
        parts = [nested(made, depth - 1) for _ in range(draw.randint(1, 3))]
        return (
            kind(zip(draw.sample("uvwxyz", len(parts)), parts, strict=True)) if kind is dict else kind(parts)
        )

    def returned(model, x):
        draw.seed(seed)
        y = x * model.w
        return [nested([x, y, y.exp(), y.sum(), torch.full((2,), 3.0), None], 3), y.sin()]

    model = Returns(returned).eval()
    path = exported(model, tmp_path / "net.onnx", "dynamo")
    expected = plain(model(X))
    assert are_equal(expected, run(path))
    check = intus.check_export(model, path, X)
    assert check, str(check)
    file = onnx.load(path)
    ends = list(file.graph.output)
    for changed in ([*ends[::-1]], ends[1:], [*ends[-1:], *ends[:-1]]):
        del file.graph.output[:]
        file.graph.output.extend(changed)
        onnx.save(file, path)
        is_same = are_equal(expected, run(path))
        check = intus.check_export(model, path, X)
        assert bool(check) == is_same, str(check)
        one, two = intus.trace(model, X), intus.read(path, X)
        assert intus.compare(one, two).agree == intus.compare(two, one).agree == is_same
