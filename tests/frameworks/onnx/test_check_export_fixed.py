"""``check_export`` says "not proven" of a file in which a tensor is fixed that depends on an input."""

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import intus
from intus.core.errors import InputError


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.scale = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.mean(x), self.scale(x)


class Time(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 3)
        self.register_buffer("rates", torch.exp(torch.linspace(0, -4, 4)))

    def forward(self, x, t):
        angles = t[:, None].float() * self.rates
        return x + self.last(torch.cat([angles.sin(), angles.cos()], -1))


class Shapes(nn.Module):
    """Takes the shape of an input, and none of its values, besides a tensor that depends on another."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x, y):
        zeros = torch.zeros_like(y).scatter(1, torch.zeros(2, 1, dtype=torch.long), 1.0)
        return self.last(x + zeros + x[:1].expand_as(y)), y


def fixed(model, inputs, at, path):
    """Write the export of a model in which the output of a node is the value that it has on some inputs."""
    torch.onnx.export(model, inputs, path, dynamo=True, verbose=False)
    found = onnx.load(path)
    (node,) = (one for one in found.graph.node if at(one))
    names = [one.name for one in found.graph.input]
    trace = intus.read(path, **dict(zip(names, (t.numpy() for t in inputs), strict=True)))
    (row,) = (n for n in trace.values if trace.graph.label(n).startswith(f"{node.op_type.lower()}_"))
    value = numpy_helper.from_array(trace.values[row])
    node.CopyFrom(helper.make_node("Constant", [], [node.output[0]], value=value, name=node.name))
    onnx.save(found, path)
    return path


@pytest.mark.filterwarnings("ignore")
def test_fixed_intermediate_is_not_proven(tmp_path):
    torch.manual_seed(0)
    model, inputs = Time().eval(), (torch.randn(2, 3), torch.tensor([3, 500]))
    path = fixed(model, inputs, lambda node: node.op_type == "Sin", tmp_path / "net.onnx")
    check = intus.check_export(model, path, *inputs)
    assert check.verdict == "not proven"
    assert any(
        one.endswith("depends on t in the model, and not in the file") and one.startswith("sin_")
        for one in check.unproven
    )


@pytest.mark.filterwarnings("ignore")
def test_fixed_output_is_not_proven(tmp_path):
    torch.manual_seed(0)
    model, x, path = Heads().eval(), torch.randn(2, 4), tmp_path / "net.onnx"
    torch.onnx.export(model, (x,), path, dynamo=True, verbose=False)
    found = onnx.load(path)
    (node,) = (one for one in found.graph.node if one.output[0] == found.graph.output[1].name)
    value = numpy_helper.from_array(model(x)[1].detach().numpy())
    node.CopyFrom(helper.make_node("Constant", [], [node.output[0]], value=value, name=node.name))
    onnx.save(found, path)
    check = intus.check_export(model, path, x)
    assert check.verdict == "not proven"
    assert any("in scale depends on x in the model, and not in the file" in one for one in check.unproven)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_shape_of_an_input_is_no_dependence(dynamo, tmp_path):
    torch.manual_seed(0)
    model, inputs, path = Shapes().eval(), (torch.randn(2, 4), torch.randn(2, 4)), tmp_path / "net.onnx"
    torch.onnx.export(model, inputs, path, dynamo=dynamo, **({"verbose": False} if dynamo else {}))
    check = intus.check_export(model, path, *inputs)
    assert check.verdict == "equal", check


class Outside(nn.Module):
    """Computes outside of torch, so that an exporter takes the result for a constant."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(3, 3)

    def forward(self, x):
        return self.last(torch.from_numpy(np.abs(x.detach().numpy())))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("nodes", ["constant and product", "constant", "none"])
def test_file_that_is_a_constant_as_a_whole(nodes, tmp_path):
    net, x, path = Outside().eval(), torch.randn(2, 3), tmp_path / "net.onnx"
    torch.onnx.export(net, (x,), path, dynamo=False)
    if nodes != "constant and product":
        model = onnx.load(path)
        del model.graph.node[:], model.graph.initializer[:]
        result = numpy_helper.from_array(net(x).detach().numpy(), model.graph.output[0].name)
        if nodes == "constant":
            name = model.graph.output[0].name
            model.graph.node.append(helper.make_node("Constant", [], [name], value=result))
        else:
            model.graph.initializer.append(result)
        onnx.save(model, path)
    check = intus.check_export(net, path, x)
    assert check.verdict == "not proven"
    assert "x (input_1) is an input that the model computes with and the file does not have" in str(check)


class Times(torch.nn.Module):
    def __init__(self, reads):
        super().__init__()
        self.layer, self.reads = torch.nn.Linear(4, 4), reads

    def forward(self, x, n):
        for _ in range(int(n) if self.reads else 3):
            x = torch.tanh(self.layer(x))
        return x


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("names", [None, ["x", "n"]])
@pytest.mark.parametrize(("reads", "verdict"), [(True, "not proven"), (False, "equal")])
def test_input_that_the_exporter_dropped_is_named_if_the_model_reads_it(tmp_path, reads, verdict, names):
    model, given = Times(reads).eval(), (torch.rand(2, 4), torch.tensor(3))
    torch.onnx.export(model, given, tmp_path / "net.onnx", dynamo=False, input_names=names)
    check = intus.check_export(model, tmp_path / "net.onnx", *given)
    assert check.verdict == verdict, check
    said = "n (input_2) is an input that the model computes with and the file does not have"
    assert (said in check.unproven) == reads


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_input_is_not_guessed_where_two_fit(tmp_path):
    class First(torch.nn.Module):
        def forward(self, x, y):
            return x + x.sum() * len(y)

    given = torch.rand(2, 4), torch.rand(2, 4)
    torch.onnx.export(First(), given, tmp_path / "net.onnx", dynamo=False, input_names=["other"])
    with pytest.raises(InputError, match="do not tell by name, dtype and shape which of them"):
        intus.check_export(First(), tmp_path / "net.onnx", *given)
