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


def test_loop_is_recurrent(tmp_path):
    assert intus.read(loop(tmp_path)).is_recurrent
    doubled = saved(
        tmp_path,
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [value("x", FLOAT, [3])],
        [value("y", FLOAT, [3])],
    )
    assert not intus.read(doubled).is_recurrent


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


@pytest.mark.parametrize("out_directions", [None, [1, 0]])
@pytest.mark.parametrize("out_axes", [None, [1, 0], [-1, 1]])
@pytest.mark.parametrize("in_directions", [None, [1, 0], [1, 1]])
@pytest.mark.parametrize("in_axes", [None, [1, -1]])
def test_scan_with_directions_and_axes(tmp_path, in_axes, in_directions, out_axes, out_directions):
    """The reference evaluator runs the body on what the standard gives to it."""
    names, outs = ["state", "a", "b"], ["next", "wave", "difference"]
    body = helper.make_graph(
        [
            helper.make_node("Add", ["a", "b"], ["both"], "inner_add"),
            helper.make_node("Mul", ["state", "half"], ["less"], "inner_mul"),
            helper.make_node("Sub", ["both", "less"], ["next"], "inner_sub"),
            helper.make_node("Sin", ["next"], ["wave"], "inner_sin"),
            helper.make_node("Div", ["a", "two"], ["difference"], "inner_div"),
        ],
        "body",
        [value(name, FLOAT, [2]) for name in names],
        [value(name, FLOAT, [2]) for name in outs],
        [helper.make_tensor("half", FLOAT, [], [0.5]), helper.make_tensor("two", FLOAT, [], [2.0])],
    )
    settings = {
        "scan_input_axes": in_axes,
        "scan_input_directions": in_directions,
        "scan_output_axes": out_axes,
        "scan_output_directions": out_directions,
    }
    settings = {name: one for name, one in settings.items() if one is not None}
    node = helper.make_node(
        "Scan", ["start", "as", "bs"], ["end", "waves", "differences"], "scan",
        body=body, num_scan_inputs=2, **settings,
    )  # fmt: skip
    shape = [4, 2] if in_axes is None else [2, 4]
    path = saved(
        tmp_path,
        [node],
        [value("start", FLOAT, [2]), value("as", FLOAT, shape), value("bs", FLOAT, shape)],
        [
            value("end", FLOAT, [2]),
            value("waves", FLOAT, [None, None]),
            value("differences", FLOAT, [None, None]),
        ],
    )
    draw = np.random.default_rng(0)
    start, *given = (draw.random(one, np.float32) for one in ([2], shape, shape))
    opset = [helper.make_opsetid("", 17)]
    step = ReferenceEvaluator(helper.make_model(body, opset_imports=opset, ir_version=8))
    state, collected = start, ([], [])
    for number in range(4):
        slices = [
            np.take(
                one,
                3 - number if in_directions and in_directions[place] else number,
                (in_axes or [0, 0])[place],
            )
            for place, one in enumerate(given)
        ]
        state, *results = step.run(None, dict(zip(names, [state, *slices], strict=True)))
        for place, result in enumerate(results):
            collected[place].insert(0 if out_directions and out_directions[place] else number, result)
    trace = intus.read(path, start, *given)
    expected = [state, *(np.stack(one, (out_axes or [0, 0])[place]) for place, one in enumerate(collected))]
    for one, true in zip(trace.outputs, expected, strict=True):
        np.testing.assert_allclose(one.value, true, rtol=1e-6)
    inside = {"add": sum(slices), "sub": state, "sin": results[0], "div": results[1]}
    for type_, true in inside.items():
        np.testing.assert_allclose(of_type(trace, type_).value, true, rtol=1e-6)
    assert "last of 4 iterations" in trace.summary()


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


@pytest.mark.parametrize("sign", [1, -1])
def test_flops_of_the_branch_that_ran(tmp_path, sign):
    def branch(result, weights):
        node = helper.make_node("MatMul", ["x", weights], [result], f"product_{result}")
        return helper.make_graph([node], result, [], [value(result, FLOAT, [2, None])])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], "sum", keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"], "greater"),
        helper.make_node(
            "If", ["c"], ["y"], "if", then_branch=branch("a", "W"), else_branch=branch("b", "K")
        ),
    ]
    arrays = {"W": np.zeros((2, 1000)), "K": np.ones((2, 1)), "zero": np.zeros(())}
    weights = [onnx.numpy_helper.from_array(one.astype(np.float32), name) for name, one in arrays.items()]
    path = saved(tmp_path, nodes, [value("x", FLOAT, [2, 2])], [value("y", FLOAT, [2, None])], weights)
    trace = intus.read(path, np.full((2, 2), sign, np.float32))
    columns = 1000 if sign > 0 else 1
    assert trace.flops == 4 + 1 + 2 * 2 * 2 * columns
    products = {len(op.value[0]) if op.saved else 0: op.flops for op in trace.ops if op.type == "matmul"}
    assert products == {columns: 8 * columns, 0: 0}
    assert intus.read(path).flops == 5
    assert intus.read(path).flops_unknown["matmul"] == 2


@pytest.mark.parametrize("count", [0, 1, 4])
def test_flops_of_a_loop(tmp_path, count):
    trace = intus.read(loop(tmp_path), np.array(count), np.array([1, 2, 3], np.float32))
    by_type = {op.type: op.flops for op in trace.ops}
    assert [by_type[name] for name in ("mul", "add", "reduce_sum")] == [3 * count] * 3
    assert intus.read(loop(tmp_path)).flops_unknown["mul"] == 1
