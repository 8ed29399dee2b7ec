"""ONNX models with nested graphs, functions, unknown operators and external data."""

import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intus.core.errors import CodecError, InputError
from intus.reading import read
from intus.viewing.html import View


def vector(name, shape=(2,)):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def save(path, nodes, inputs, outputs, *, opsets=(("", 20),), functions=(), **more):
    graph = helper.make_graph(nodes, "net", inputs, outputs, **more)
    imports = [helper.make_opsetid(*one) for one in opsets]
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


def save_with_functions(folder, nodes, functions):
    """Write a model of one input and output whose functions are of the domain "my"."""
    opsets = (("", 20), ("my", 1))
    ends = [vector("x")], [vector("y")]
    return save(folder / "net.onnx", nodes, *ends, opsets=opsets, functions=functions)


def branch(name, op):
    # Both branches use the same names, as they may.
    nodes = [helper.make_node(op, ["x"], ["inner"]), helper.make_node("Neg", ["inner"], ["out"])]
    return helper.make_graph(nodes, name, [], [vector("out")])


def types(graph, rows):
    return [graph.type_of(row) for row in rows]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_if(tmp_path, sign):
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.float32(0))),
        helper.make_node("Greater", ["total", "zero"], ["positive"]),
        helper.make_node(
            "If",
            ["positive"],
            ["y"],
            name="choice",
            then_branch=branch("a", "Sin"),
            else_branch=branch("b", "Cos"),
        ),
    ]
    path = save(tmp_path / "net.onnx", nodes, [vector("x")], [vector("y")])
    x = np.full(2, sign, np.float32)
    graph, values, *_ = read(path, (x,))
    assert [(m.address, m.type) for m in graph.modules] == [
        ("", "net.onnx"),
        ("choice", "If"),
        ("choice.else_branch", "else_branch"),
        ("choice.then_branch", "then_branch"),
    ]
    taken, other = ("then_branch", "else_branch")[:: 1 if sign > 0 else -1]
    (end,) = graph.rows(f"choice.{taken}")
    np.testing.assert_allclose(values[end], -np.sin(x) if sign > 0 else -np.cos(x), rtol=1e-6)
    np.testing.assert_allclose(values[graph.rows_of(2)[0]], values[end])
    assert graph.rows(f"choice.{other}")[0] not in values
    assert graph.facts["notes"] == [
        "Of an If, the operations of the branch that was not taken have no value."
    ]
    assert "B=0.0" in graph.settings
    View(graph, depth="all").save(tmp_path / "net.html")


def test_loop(tmp_path):
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "x"], ["next"]),
            helper.make_node("Identity", ["going"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, ()),
            helper.make_tensor_value_info("going", TensorProto.BOOL, ()),
            vector("state"),
        ],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, ()), vector("next")],
    )
    nodes = [
        helper.make_node("Constant", [], ["times"], value_int=3),
        helper.make_node("Loop", ["times", "", "x"], ["y"], name="loop", body=body),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    path = save(tmp_path / "net.onnx", nodes, [vector("x")], [vector("z")])
    x = np.array([1, -2], np.float32)
    graph, values, *_ = read(path, (x,))
    assert np.array_equal(values[graph.rows("relu_1")[0]], np.maximum(4 * x, 0))
    assert np.array_equal(values[graph.rows("loop")[0]], 4 * x)
    inside = [
        row
        for row in range(len(graph.ops))
        if "loop.body" in map(graph.call_address, graph.enclosing_calls(row))
    ]
    assert types(graph, inside) == ["loop_input", "loop_input", "loop_input", "add", "identity"]
    assert [values[row].tolist() for row in inside] == [2, True, (3 * x).tolist(), (4 * x).tolist(), True]
    assert graph.facts["notes"] == ["Inside of 'loop', values are those of the last of 3 iterations."]


def test_functions_are_modules(tmp_path):
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    inner = helper.make_function(
        "my",
        "Scaled",
        ["a"],
        ["b"],
        [
            onnx.parser.parse_node("alpha = Constant<value_float: float = @alpha>()"),
            helper.make_node("Mul", ["a", "alpha"], ["b"]),
        ],
        opsets,
        ["alpha"],
    )
    outer = helper.make_function(
        "my",
        "Twice",
        ["a"],
        ["c"],
        [
            helper.make_node("Scaled", ["a"], ["b"], domain="my", name="first", alpha=2.0),
            helper.make_node("Scaled", ["b"], ["c"], domain="my", name="second", alpha=3.0),
        ],
        opsets,
    )
    nodes = [helper.make_node("Twice", ["x"], ["y"], domain="my", name="both")]
    path = save_with_functions(tmp_path, nodes, [inner, outer])
    graph, values, *_ = read(path, (np.ones(2, np.float32),))
    assert [(m.address, m.type) for m in graph.modules][1:] == [
        ("both", "Twice"),
        ("both.first", "Scaled"),
        ("both.second", "Scaled"),
    ]
    assert [values[graph.rows(name)[0]][0] for name in ("both.first", "both.second", "both")] == [2, 6, 6]


def test_function_is_what_it_returns_in_the_order_of_its_outputs(tmp_path):
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    body = [helper.make_node("Neg", ["a"], ["late"]), helper.make_node("Exp", ["a"], ["first"])]
    inner = helper.make_function("my", "Pair", ["a"], ["first", "late"], body, opsets)
    body = [helper.make_node("Pair", ["a"], ["b", "c"], domain="my", name="pair")]
    outer = helper.make_function("my", "Around", ["a"], ["b", "c"], body, opsets)
    nodes = [
        helper.make_node("Around", ["x"], ["p", "q"], domain="my", name="around"),
        helper.make_node("Mul", ["q", "p"], ["y"]),
    ]
    path = save_with_functions(tmp_path, nodes, [inner, outer])
    x = np.array([1, -2], np.float32)
    graph, values, *_ = read(path, (x,))
    for name in ("around", "around.pair"):
        first, late = (values[row] for row in graph.rows(name))
        assert np.allclose(first, np.exp(x))
        assert np.array_equal(late, -x)


def test_functions_that_call_each_other(tmp_path):
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    circle = [
        helper.make_function(
            "my", one, ["a"], ["b"], [helper.make_node(other, ["a"], ["b"], domain="my")], opsets
        )
        for one, other in (("F", "G"), ("G", "F"))
    ]
    nodes = [helper.make_node("F", ["x"], ["y"], domain="my")]
    path = save_with_functions(tmp_path, nodes, circle)
    with pytest.raises(CodecError, match="nests functions or graphs more than 50 deep"):
        read(path)


def test_unknown_operator_is_drawn_without_values(tmp_path):
    nodes = [
        helper.make_node("Sin", ["x"], ["a"]),
        helper.make_node("Strange", ["a"], ["b"], domain="my", name="one", knob=3),
        helper.make_node("Cos", ["x"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    opsets = (("", 20), ("my", 1))
    path = save(tmp_path / "net.onnx", nodes, [vector("x")], [vector("y")], opsets=opsets)
    graph, values, *_ = read(path, (np.ones(2, np.float32),))
    assert types(graph, range(len(graph.ops))) == ["input", "sin", "strange", "cos", "add", "output"]
    assert sorted(values) == [0, 1, 3]
    assert graph.setting(2) == "knob=3"
    (note,) = graph.facts["notes"]
    assert note.startswith(
        "onnxruntime cannot run the operator my:Strange of 'one', so that what depends on it"
    )


def external(path, tmp_path, location, content=None):
    weight = numpy_helper.from_array(np.arange(2000, dtype=np.float32), "w")
    data = weight.raw_data
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    if content is None:
        (tmp_path / location).write_bytes(data)
    elif content:
        (tmp_path / location).write_bytes(content)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return save(path, [node], [vector("x", (2000,))], [vector("y", (2000,))], initializer=[weight])


def test_external_data(tmp_path):
    path = external(tmp_path / "net.onnx", tmp_path, "net.data")
    graph, values, *_ = read(path, (np.ones(2000, np.float32),))
    assert np.array_equal(values[graph.rows_of(2)[0]], np.arange(2000) + 1)
    assert graph.params[0].shape == (2000,)


@pytest.mark.parametrize(
    ("location", "content", "message"),
    [
        ("net.data", b"", "there is no such file beside it. Copy it there"),
        ("../net.data", b"", "which is not in its folder, so it is not read"),
        ("/etc/hostname", b"", "which is not in its folder, so it is not read"),
    ],
)
def test_external_data_elsewhere(tmp_path, location, content, message):
    path = external(tmp_path / "net.onnx", tmp_path, location, content)
    with pytest.raises(CodecError, match=message):
        read(path)


def test_external_data_behind_a_link(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(8000))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "net.data").symlink_to(tmp_path / "secret")
    path = external(folder / "net.onnx", tmp_path, "net.data", b"")
    with pytest.raises(CodecError, match="which is not in its folder"):
        read(path)


def test_large_weights_are_not_read(tmp_path):
    # A gigabyte of zeros inside of the file, which has no blocks on the disk.
    size = 2**30
    node = helper.make_node("Add", ["x", "w"], ["y"])
    small = helper.make_graph([node], "net", [vector("x", (1,))], [vector("y", (size // 4,))])
    model = helper.make_model(small, ir_version=10)

    def field(number, length):
        return bytes([number << 3 | 2]) + _varint(length)

    tensor = TensorProto(dims=[size // 4], data_type=TensorProto.FLOAT, name="w").SerializeToString()
    head = tensor + field(9, size)
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    inside = graph + field(5, len(head) + size) + head
    path = tmp_path / "net.onnx"
    with path.open("wb") as file:
        file.write(model.SerializeToString() + field(7, len(inside) + size) + inside)
        file.truncate(file.tell() + size)
    before = time.process_time()
    graph = read(path).graph
    assert time.process_time() - before < 0.5
    assert graph.params[0].nbytes == size


def _varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def test_other_versions_and_damage(tmp_path):
    path = save(tmp_path / "net.onnx", [helper.make_node("Sin", ["x"], ["y"])], [vector("x")], [vector("y")])
    data = path.read_bytes()
    model = onnx.ModelProto.FromString(data)
    model.ir_version = 99
    for content, message in (
        (model.SerializeToString(), "has version 99 of ONNX's format"),
        (data[:-3], "no ONNX model, or is damaged or truncated"),
        (b"not a model, only some text", "no ONNX model, or is damaged"),
        (b"\x08\x0a", "it has no graph or no version"),
        (b"", "is empty"),
    ):
        path.write_bytes(content)
        with pytest.raises(CodecError, match=message):
            read(path)


def test_run_that_fails(tmp_path):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], name="view")]
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, (1,))
    path = save(tmp_path / "net.onnx", nodes, [vector("x"), shape], [vector("y", None)])
    with pytest.raises(InputError, match=r"net.onnx cannot run on these inputs: .*Reshape"):
        read(path, (np.ones(2, np.float32), [5]))


#: A number as someone writes it, in a dtype of constants, and its text.
CONSTANTS = [
    *((number, np.float32, str(number)) for number in (0.3, 1e-5, 0.1, -65504.0)),
    *((number, np.float16, str(number)) for number in (0.3, 0.1, -65504.0)),
    *((number, np.float64, repr(number)) for number in (0.3, 0.1, 1e-5, float(np.float32(0.3)))),
]


@pytest.mark.parametrize(("number", "dtype", "text"), CONSTANTS)
@pytest.mark.parametrize("stored", ["attribute", "initializer"])
def test_constants_have_the_shortest_text_of_their_dtype(number, dtype, text, stored, tmp_path):
    constant = numpy_helper.from_array(np.array(number, dtype), "c")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("Mul", ["x", "c"], ["y"])]
    if stored == "attribute":
        nodes.insert(0, helper.make_node("Constant", [], ["c"], value=constant))
    ends = [[helper.make_tensor_value_info(name, kind, (2,))] for name in "xy"]
    weights = [constant] if stored == "initializer" else []
    graph = read(save(tmp_path / "net.onnx", nodes, *ends, initializer=weights)).graph
    assert f"B={text}" in [graph.setting(row) for row in range(len(graph.ops))]


@pytest.mark.parametrize(("kind", "text"), [("value_float", "0.3"), ("value_floats", "[0.3, 0.1]")])
def test_constants_of_attributes_are_float32(kind, text, tmp_path):
    given = 0.3 if kind == "value_float" else [0.3, 0.1]
    nodes = [
        helper.make_node("Constant", [], ["c"], **{kind: given}),
        helper.make_node("LeakyRelu", ["x"], ["h"], alpha=0.3),
        helper.make_node("Mul", ["h", "c"], ["y"]),
    ]
    outputs = [vector("y"), vector("c", ()) if kind == "value_float" else vector("c")]
    path = save(tmp_path / "net.onnx", nodes, [vector("x")], outputs)
    graph = read(path, (np.ones(2, np.float32),)).graph
    settings = [graph.setting(row) for row in range(len(graph.ops))]
    assert f"B={text}" in settings
    assert "alpha=0.3" in settings
    assert {graph.dtype_of(row) for row in range(len(graph.ops))} == {"float32"}
    assert {graph.dtype_of(row) for row in range(len(read(path).graph.ops))} == {"float32"}
