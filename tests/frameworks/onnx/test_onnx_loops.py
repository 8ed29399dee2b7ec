"""Values inside of Loop and Scan: those of the last iteration, by onnx's reference evaluator."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import intus

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name, type_, shape=None):
    return helper.make_tensor_value_info(name, type_, shape)


def saved(tmp_path, nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, "net", inputs, outputs, list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    return path


def loop(tmp_path, growing=False):
    """A Loop that doubles, adds a tensor from outside and collects; ``growing`` changes the shapes."""
    made = [
        helper.make_node("Identity", ["going"], ["goes_on"]),
        helper.make_node("Mul", ["v", "two"], ["doubled"], "inner_mul"),
        helper.make_node("Add", ["doubled", "x"], ["summed"], "inner_add")
        if not growing
        else helper.make_node("Concat", ["doubled", "x"], ["summed"], "inner_add", axis=0),
        helper.make_node("ReduceSum", ["summed"], ["total"], "inner_sum", keepdims=0),
    ]
    body = helper.make_graph(
        made,
        "body",
        [value("i", INT64, []), value("going", BOOL, []), value("v", FLOAT, ["a"])],
        [value("goes_on", BOOL, []), value("summed", FLOAT, ["b"]), value("total", FLOAT, [])],
    )
    nodes = [helper.make_node("Loop", ["n", "always", "x"], ["end", "totals"], "loop", body=body)]
    two = helper.make_tensor("two", FLOAT, [], [2.0])
    return saved(
        tmp_path,
        nodes,
        [value("n", INT64, []), value("x", FLOAT, [3])],
        [value("end", FLOAT, ["c"]), value("totals", FLOAT, ["d"])],
        [two, helper.make_tensor("always", BOOL, [], [True])],
    )


def of_type(trace, type_):
    return next(op for op in trace.ops if op.type == type_)


@pytest.mark.parametrize("count", [1, 4])
def test_loop(tmp_path, count):
    path, x = loop(tmp_path), np.array([1, 2, 3], np.float32)
    trace = intus.read(path, n=np.array(count), x=x)
    end, totals = ReferenceEvaluator(str(path)).run(None, {"n": np.array(count), "x": x})
    before = (end - x) / 2
    np.testing.assert_allclose(of_type(trace, "mul").value, before * 2)
    np.testing.assert_allclose(of_type(trace, "add").value, end)
    np.testing.assert_allclose(of_type(trace, "reduce_sum").value, totals[-1])
    assert all(op.saved for op in trace.ops)
    assert f"values are those of the last of {count} iterations" in trace.summary()
    np.testing.assert_allclose(trace.outputs[1].value, np.ravel(totals))


def test_loop_whose_shapes_change(tmp_path):
    path, x = loop(tmp_path, growing=True), np.array([1, 2, 3], np.float32)
    trace = intus.read(path, n=np.array(3), x=x)
    end, totals = ReferenceEvaluator(str(path)).run(None, {"n": np.array(3), "x": x})
    np.testing.assert_allclose(of_type(trace, "concat").value, end)
    np.testing.assert_allclose(of_type(trace, "mul").value, end[:-3])
    np.testing.assert_allclose(of_type(trace, "reduce_sum").value, totals[-1])


def test_loop_without_iterations(tmp_path):
    trace = intus.read(loop(tmp_path), n=np.array(0), x=np.ones(3, np.float32))
    assert not of_type(trace, "mul").saved
    assert "ran no iteration" in trace.summary()


def test_scan(tmp_path):
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "item"], ["next"], "inner_add"),
            helper.make_node("Tanh", ["next"], ["out"], "inner_tanh"),
        ],
        "body",
        [value("state", FLOAT, [2]), value("item", FLOAT, [2])],
        [value("next", FLOAT, [2]), value("out", FLOAT, [2])],
    )
    node = helper.make_node("Scan", ["start", "items"], ["end", "outs"], "scan", body=body, num_scan_inputs=1)
    path = saved(
        tmp_path,
        [node],
        [value("start", FLOAT, [2]), value("items", FLOAT, [5, 2])],
        [value("end", FLOAT, [2]), value("outs", FLOAT, [5, 2])],
    )
    start, items = np.zeros(2, np.float32), np.arange(10, dtype=np.float32).reshape(5, 2)
    trace = intus.read(path, start, items)
    end, outs = ReferenceEvaluator(str(path)).run(None, {"start": start, "items": items})
    np.testing.assert_allclose(of_type(trace, "add").value, end)
    np.testing.assert_allclose(of_type(trace, "tanh").value, outs[-1], rtol=1e-6)
    assert "last of 5 iterations" in trace.summary()


def test_random_loop_has_values_of_the_same_pass(tmp_path):
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("RandomNormalLike", ["v"], ["noise"], "inner_noise"),
            helper.make_node("Add", ["v", "noise"], ["sum"], "inner_add"),
        ],
        "body",
        [value("i", INT64, []), value("going", BOOL, []), value("v", FLOAT, [3])],
        [value("goes_on", BOOL, []), value("sum", FLOAT, [3])],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["end"], "loop", body=body)
    path = saved(
        tmp_path, [node], [value("n", INT64, []), value("x", FLOAT, [3])], [value("end", FLOAT, [3])]
    )
    trace = intus.read(path, n=np.array(3), x=np.zeros(3, np.float32))
    assert "last of 3 iterations" in trace.summary() or "each time" in trace.summary()
    if of_type(trace, "add").saved:  # onnxruntime drew the same numbers again
        np.testing.assert_array_equal(of_type(trace, "add").value, trace.outputs[0].value)
