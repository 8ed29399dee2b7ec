"""``check_export`` of files that another tool wrote, with the sums of a model in another order."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import intus

SUMS = {
    "grouping": (lambda x, a, m: (x + a) + m, [("Add", "a", "m", "t"), ("Add", "x", "t", "s")], ""),
    "one operation": (lambda x, a, m: (x + a) + m, [("Sum", "a", "m", "x", "s")], ""),
    "difference": (
        lambda x, a, m: a * 3 - a * 2 - m,
        [("Mul", "a", 3.0, "u"), ("Mul", "a", 2.0, "v"), ("Add", "v", "m", "t"), ("Sub", "u", "t", "s")],
        "",
    ),
    "scale": (
        lambda x, a, m: 0.5 * (x + a),
        [("Mul", "a", 0.5, "u"), ("Mul", "x", 0.5, "v"), ("Add", "v", "u", "s")],
        "",
    ),
    "sign": (lambda x, a, m: (x + a) + m, [("Sub", "a", "m", "t"), ("Add", "x", "t", "s")], "sub_1_"),
    "missing": (lambda x, a, m: (x + a) + m, [("Add", "a", "x", "s")], "ran only in a"),
    "factor": (
        lambda x, a, m: 0.5 * (x + a),
        [("Mul", "a", 0.6, "u"), ("Mul", "x", 0.5, "v"), ("Add", "v", "u", "s")],
        "the factor of linear_1_1 is 0.5 in a, 0.6 in b",
    ),
}


class Net(nn.Module):
    def __init__(self, total):
        super().__init__()
        torch.manual_seed(0)
        self.total, self.attn, self.mlp, self.head = total, nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.total(x, self.attn(x), self.mlp(x).relu()))


def write(net, steps, path):
    """Write the model as another tool might, with these steps for its sum."""
    nodes, constants = [], []

    def linear(name, layer, given, out):
        for part, array in (("w", layer.weight.T), ("b", layer.bias)):
            constants.append(numpy_helper.from_array(array.detach().numpy().copy(), f"{name}.{part}"))
        nodes.append(helper.make_node("MatMul", [given, f"{name}.w"], [f"{name}.product"]))
        nodes.append(helper.make_node("Add", [f"{name}.product", f"{name}.b"], [out]))

    linear("attn", net.attn, "x", "a")
    linear("mlp", net.mlp, "x", "before")
    nodes.append(helper.make_node("Relu", ["before"], ["m"]))
    for kind, *given, out in steps:
        for at, one in enumerate(given):
            if isinstance(one, float):
                constants.append(numpy_helper.from_array(np.array(one, np.float32), f"{out}.number"))
                given[at] = f"{out}.number"
        nodes.append(helper.make_node(kind, given, [out]))
    linear("head", net.head, "s", "y")
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, size])]
        for name, size in (("x", 8), ("y", 3))
    ]
    graph = helper.make_graph(nodes, "net", *ends, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, path)


@pytest.mark.parametrize("case", SUMS)
def test_sums_in_another_order_agree_and_other_sums_do_not(case, tmp_path):
    total, steps, why = SUMS[case]
    net, path, x = Net(total).eval(), tmp_path / "net.onnx", torch.randn(4, 8)
    write(net, steps, path)
    check = intus.check_export(net, path, x)
    assert bool(check) == (not why), str(check)
    if why:
        assert any(why in reason for reason in check.first["why"]), check.first
    a, b = intus.trace(net, x), intus.read(path, x)
    assert [intus.compare(*some).agree for some in ((a, b), (b, a))] == [not why] * 2
