"""Inputs of an ONNX file that have a default: an initializer of the same name."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

import intus
from intus.core.errors import InputError

X = np.array([[1, 2], [3, 5]], np.float32)
GIVEN = np.array([9, 8], np.float32)
GRAPHS = {
    "last": "(float[N,2] x, float[2] b) => (float[N,2] y) <float[2] b={3.0,4.0}> { y = Sub(x, b) }",
    "first": "(float[2] b, float[N,2] x) => (float[N,2] y) <float[2] b={3.0,4.0}> { y = Sub(x, b) }",
    "returned": "(float[N,2] x, float[2] b) => (float[2] y) <float[2] b={3.0,4.0}> { y = Identity(b) }",
    "in a branch": """(float[N,2] x, float[2] b) => (float[N,2] y) <float[2] b={3.0,4.0}> {
        total = ReduceSum<keepdims=0>(x)
        zero = Constant<value_float=0.0>()
        is_above = Greater(total, zero)
        y = If(is_above) <
            then_branch = g1 () => (t) { t = Sub(x, b) },
            else_branch = g2 () => (e) { e = Add(x, b) }
        >
    }""",
    "beside another": """(float[2] c, float[N,2] x, float[2] b) => (float[N,2] y)
        <float[2] b={3.0,4.0}, float[2] c={0.5,2.0}> { z = Sub(x, b) y = Mul(z, c) }""",
}


def saved(graph, path, version=8):
    onnx.save(onnx.parser.parse_model(f'<ir_version: {version}, opset_import: ["": 13]> g {graph}'), path)
    return path


def returned(path, **given):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options).run(None, given)[0]


@pytest.mark.parametrize("graph", GRAPHS)
def test_default_is_replaced_by_what_is_given(graph, tmp_path):
    path = saved(GRAPHS[graph], tmp_path / "net.onnx")
    for given in ({}, {"b": GIVEN}):
        wanted = returned(path, x=X, **given)
        for found in (intus.read(path, x=X, **given), intus.read(path, {"x": X, **given})):
            np.testing.assert_array_equal(found.outputs[0].value, wanted)
            names = found.graph.facts["inputs"]
            assert names == ["x", *given]
            assert [one.value.tolist() for one in found.inputs] == [
                X.tolist(),
                *(b.tolist() for b in given.values()),
            ]
    if graph != "beside another":
        np.testing.assert_array_equal(intus.read(path, X, GIVEN).outputs[0].value, wanted)
    assert intus.read(path).graph.facts["inputs"] == ["x"]


def test_default_of_an_old_file_is_replaced(tmp_path):
    """Judged by the evaluator of the onnx package: onnxruntime does not take such an input of version 3."""
    path = saved(GRAPHS["first"], tmp_path / "net.onnx", version=3)
    for given in ({}, {"b": GIVEN}):
        (wanted,) = ReferenceEvaluator(onnx.load(path)).run(None, {"x": X, **given})
        np.testing.assert_array_equal(intus.read(path, x=X, **given).outputs[0].value, wanted)


@pytest.mark.parametrize("given", [False, True])
def test_only_input_has_a_default(given, tmp_path):
    path = saved("(float[2] b) => (float[2] y) <float[2] b={3.0,4.0}> { y = Neg(b) }", tmp_path / "net.onnx")
    trace = intus.read(path, GIVEN) if given else intus.read(path, ())
    np.testing.assert_array_equal(trace.outputs[0].value, returned(path, **({"b": GIVEN} if given else {})))


def test_wrong_default_is_refused(tmp_path):
    path = saved(GRAPHS["first"], tmp_path / "net.onnx")
    with pytest.raises(InputError, match=r"'b' of net\.onnx must be float32, 2"):
        intus.read(path, X, np.ones(7, np.float32))


class Difference(nn.Module):
    def forward(self, x, b):
        return x - b


class Bounded(nn.Module):
    def forward(self, x, b):
        return x - b.clamp(-20, 20)


class OtherNames(nn.Module):
    def forward(self, left, right):
        return left - right


class Fixed(nn.Module):
    def forward(self, x):
        return x - torch.tensor([3.0, 4.0])


@pytest.mark.parametrize("version", [3, 8])
@pytest.mark.parametrize("graph", ["last", "first"])
@pytest.mark.parametrize("numbers", [(3.0, 4.0), (9.0, 8.0)])
def test_check_gives_the_file_what_the_model_is_given(numbers, graph, version, tmp_path):
    path = saved(GRAPHS[graph], tmp_path / "net.onnx", version)
    x, b = torch.from_numpy(X), torch.tensor(numbers)
    for model in (Difference(), OtherNames()):
        check = intus.check_export(model, path, x, b)
        assert check, str(check)
        assert check.others
    assert intus.check_export(Bounded(), path, x, b).verdict == "not proven"
    same = intus.check_export(Fixed(), path, x)
    assert same, str(same)


def test_check_of_one_tensor_given_twice(tmp_path):
    path = saved(GRAPHS["last"].replace("N,2", "2"), tmp_path / "net.onnx")
    x = torch.tensor([1.0, 2.0])
    check = intus.check_export(Difference(), path, x, x)
    assert check, str(check)


@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_weights_among_the_inputs_are_no_inputs_of_the_model(tmp_path):
    """A model with as many unused inputs as the file has weights gives it none of them."""

    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 3)

        def forward(self, x, other, more):
            return self.layer(x)

    model, path = Unused().eval(), tmp_path / "net.onnx"
    x = torch.from_numpy(X)
    torch.onnx.export(
        model, (x, x[0], x[1]), path, dynamo=True, verbose=False, keep_initializers_as_inputs=True
    )
    assert len(onnx.load(path).graph.input) > 3
    check = intus.check_export(model, path, x, x[0], x[1])
    assert check, str(check)


@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_check_of_a_file_without_defaults_looks_for_them_once(tmp_path, monkeypatch):
    read_again = []
    monkeypatch.setattr("intus.reading.onnx.declared", lambda *args: read_again.append(args))
    net, x = nn.Linear(3, 2).eval(), torch.randn(4, 3)
    torch.onnx.export(net, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    assert intus.check_export(net, tmp_path / "net.onnx", x).verdict == "equal"
    assert read_again == []
