"""The order of nodes in ONNX files: any order is read alike, and a file whose nodes have none is refused."""

import random

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import intus
from intus.core.errors import CodecError

FLOAT = TensorProto.FLOAT


def value(name, shape=None, type_=FLOAT):
    return helper.make_tensor_value_info(name, type_, shape)


def nodes():
    """A chain with a branch whose graphs read names from outside."""
    then = helper.make_graph(
        [helper.make_node("Mul", ["half", "b"], ["t"]), helper.make_node("Relu", ["b"], ["half"])][::-1],
        "then", [], [value("t")],
    )  # fmt: skip
    other = helper.make_graph([helper.make_node("Neg", ["c"], ["e"])], "else", [], [value("e")])
    return [
        helper.make_node("Sin", ["x"], ["a"], "first"),
        helper.make_node("Cos", ["a"], ["b"], "second"),
        helper.make_node("Add", ["a", "w"], ["c"], "third"),
        helper.make_node("ReduceSum", ["c"], ["s"], "sum", keepdims=0),
        helper.make_node("Cast", ["s"], ["is"], "cast", to=TensorProto.BOOL),
        helper.make_node("If", ["is"], ["y"], "if", then_branch=then, else_branch=other),
    ]


def saved(path, nodes):
    graph = helper.make_graph(
        nodes, "net", [value("x", [3])], [value("y")], [helper.make_tensor("w", FLOAT, [3], [1.0, 2.0, 3.0])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("seed", range(5))
def test_any_order_is_read_alike(tmp_path, seed):
    right = saved(tmp_path / "right.onnx", nodes())
    x = np.array([0.1, 0.2, 0.3], np.float32)
    (expected,) = ReferenceEvaluator(str(right)).run(None, {"x": x})
    mixed = nodes()
    random.Random(seed).shuffle(mixed)
    inner = mixed[[one.name for one in mixed].index("if")].attribute[0].g
    inner.node.reverse()
    trace = intus.read(saved(tmp_path / "mixed.onnx", mixed), x)
    np.testing.assert_allclose(trace.outputs[0].value, expected, rtol=1e-6)
    edges = [
        {(op.type, parent.type) for op in one.ops for parent in op.parents}
        for one in (trace, intus.read(right))
    ]
    assert edges[0] == edges[1]


def test_nodes_without_an_order_are_refused(tmp_path):
    circle = [
        helper.make_node("Add", ["x", "b"], ["a"], "one"),
        helper.make_node("Neg", ["a"], ["b"], "two"),
        helper.make_node("Sin", ["b"], ["y"], "three"),
    ]
    expected = r"its nodes form a circle, in which Add 'one' reads from Neg 'two' reads from Add 'one'\.$"
    with pytest.raises(CodecError, match=expected):
        intus.read(saved(tmp_path / "net.onnx", circle))
    itself = [helper.make_node("Add", ["x", "y"], ["y"], "self")]
    with pytest.raises(CodecError, match="in which Add 'self' reads from Add 'self'"):
        intus.read(saved(tmp_path / "net.onnx", itself))


def test_names_that_nothing_makes_are_refused(tmp_path):
    lost = [helper.make_node("Add", ["x", "lost"], ["y"], "sum")]
    with pytest.raises(CodecError, match="Add 'sum' reads 'lost', which is no input and no weight"):
        intus.read(saved(tmp_path / "net.onnx", lost))
    inside = nodes()
    inside[-1].attribute[1].g.node[0].input[0] = "lost"
    with pytest.raises(CodecError, match="If 'if' reads 'lost', which is no input"):
        intus.read(saved(tmp_path / "net.onnx", inside))
    with pytest.raises(CodecError, match="it returns 'y', which no node makes"):
        intus.read(saved(tmp_path / "net.onnx", [helper.make_node("Neg", ["x"], ["z"])]))
    twice = [helper.make_node(kind, ["x"], ["y"], kind.lower()) for kind in ("Neg", "Sin")]
    with pytest.raises(CodecError, match="Neg 'neg' and Sin 'sin' both make 'y'"):
        intus.read(saved(tmp_path / "net.onnx", twice))


def test_a_function_in_any_order(tmp_path):
    opset = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Cos", ["b"], ["c"]), helper.make_node("Sin", ["a"], ["b"])]
    function = helper.make_function("own", "Wave", ["a"], ["c"], body, opset)
    graph = helper.make_graph(
        [helper.make_node("Wave", ["x"], ["y"], "wave", domain="own")], "net", [value("x", [3])], [value("y")]
    )
    model = helper.make_model(
        graph, functions=[function], opset_imports=[*opset, helper.make_opsetid("own", 1)], ir_version=8
    )
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    x = np.array([0.1, 0.2, 0.3], np.float32)
    trace = intus.read(tmp_path / "net.onnx", x)
    np.testing.assert_allclose(trace.outputs[0].value, np.cos(np.sin(x)), rtol=1e-6)
    assert [op.type for op in trace.ops] == ["sin", "cos"]
