"""A damaged ONNX file is read or refused in one sentence, never with another exception."""

import itertools
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from damaged_files import outcomes
from onnx import TensorProto, helper, numpy_helper

import intus
from intus.core.errors import CodecError


@pytest.mark.parametrize("inputs", [(), (np.ones((1, 3, 4), np.float32),)], ids=["graph", "values"])
def test_damaged_model(tmp_path, inputs):
    draw = np.random.default_rng(0)
    branch = helper.make_graph(
        [helper.make_node("Sin", ["r"], ["s"])], "then", [], [helper.make_empty_tensor_value_info("s")]
    )
    nodes = [
        helper.make_node("MatMul", ["x", "fc.weight"], ["m"], name="/fc/MatMul"),
        helper.make_node("Add", ["m", "fc.bias"], ["a"], name="/fc/Add"),
        helper.make_node("LayerNormalization", ["a", "norm.weight"], ["n"], name="/norm/Norm", epsilon=1e-3),
        helper.make_node("Reshape", ["n", "shape"], ["r"]),
        helper.make_node("ReduceMax", ["r"], ["max"], keepdims=0),
        helper.make_node("Cast", ["max"], ["is"], to=TensorProto.BOOL),
        helper.make_node("If", ["is"], ["y"], then_branch=branch, else_branch=branch),
    ]
    weights = {"fc.weight": (4, 5), "fc.bias": (5,), "norm.weight": (5,)}
    tensors = [numpy_helper.from_array(draw.random(s, np.float32), name) for name, s in weights.items()]
    tensors.append(numpy_helper.from_array(np.array([3, 5]), "shape"))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    model = helper.make_model(helper.make_graph(nodes, "net", [x], [y], tensors), ir_version=10)
    done, refused = outcomes(tmp_path / "net.onnx", model.SerializeToString(), 400, inputs)
    assert min(done, refused) > 50


def test_zeros_after_a_model_are_refused_at_once(tmp_path):
    """They are what a file has whose end was never written: 4 GB of them must not be read field by field."""
    path = tmp_path / "net.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Sin", ["x"], ["y"])], "net", [x], [y])
    path.write_bytes(helper.make_model(graph, ir_version=10).SerializeToString())
    size = path.stat().st_size
    os.truncate(path, 4 << 30)
    began = time.process_time()
    with pytest.raises(CodecError, match=f"byte {size} begins a field without a number"):
        intus.read(path)
    assert time.process_time() - began < 30


def network(initializers=(), nodes=(), inputs="x"):
    """Return a model that adds what it is given."""
    nodes = nodes or [helper.make_node("Add", ["x", initializers[0].name], ["y"])]
    takes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in inputs]
    gives = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "net", takes, gives, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("inputs", [(), ([[1.0, 1.0, 1.0]],)], ids=["graph", "values"])
@pytest.mark.parametrize(
    ("dims", "dtype", "data", "message"),
    [
        ([-3], 1, bytes(12), r"'w' has the shape \(-3,\)"),
        ([3], 1, bytes(5), "'w' .* takes 12 bytes, but has 5"),
        ([3], 1, bytes(16), "'w' .* takes 12 bytes, but has 16"),
        ([2**50], 1, b"", "'w' .* has 0 numbers"),
        ([3], 99, bytes(12), "'w' has the unknown data type 99"),
        ([3], 0, bytes(12), "'w' has the unknown data type 0"),
        ([3000], 1, bytes(11996), "'w' .* takes 12,000 bytes, but has 11,996"),
        ([2**40], 1, bytes(12000), "'w' .* takes 4,398,046,511,104 bytes, but has 12,000"),
    ],
)
def test_tensors_with_other_data_than_their_shape_says(dims, dtype, data, message, inputs, tmp_path):
    path = tmp_path / "net.onnx"
    tensor = TensorProto(name="w", dims=dims, data_type=dtype, raw_data=data)
    path.write_bytes(network([tensor]).SerializeToString())
    with pytest.raises(CodecError, match=message):
        intus.read(path, *inputs)


@pytest.mark.parametrize("length", [True, False])
def test_tensor_in_another_file_that_is_too_short(length, tmp_path):
    path = tmp_path / "net.onnx"
    (tmp_path / "w.bin").write_bytes(bytes(12))
    tensor = TensorProto(name="w", dims=[2**40], data_type=1, data_location=TensorProto.EXTERNAL)
    entries = {"location": "w.bin", **({"length": "12"} if length else {})}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(network([tensor]).SerializeToString())
    with pytest.raises(CodecError, match=r"'w' .* but 12 are in the other file"):
        intus.read(path)


@pytest.mark.parametrize("size", [3, 3000])
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dtype", sorted(set(TensorProto.DataType.values()) - {0, TensorProto.STRING}))
def test_tensors_of_all_dtypes_that_onnx_makes_are_read(dtype, raw, size, tmp_path):
    path = tmp_path / "net.onnx"
    try:
        zeros = np.zeros(size, helper.tensor_dtype_to_np_dtype(dtype))
        if raw:
            tensor = numpy_helper.from_array(zeros, "w")
        else:
            tensor = helper.make_tensor("w", dtype, [size], zeros.tolist())
    except (ValueError, TypeError, KeyError, AssertionError) as error:
        pytest.skip(f"onnx does not make it: {error}")
    nodes = [helper.make_node("Identity", ["w"], ["y"])]
    path.write_bytes(network([tensor], nodes).SerializeToString())
    assert intus.read(path).num_params in (0, size)


def laughs(path, levels, times, name="", constant=b""):
    """Write functions of which each calls the next so many times."""
    functions = []
    for level in range(levels):
        nodes = [
            helper.make_node(
                f"f{level + 1}" if level < levels - 1 else "Relu",
                ["x" if n == 0 else f"h{n - 1}"],
                ["y" if n == times - 1 else f"h{n}"],
                name=name,
                domain="local" if level < levels - 1 else "",
            )
            for n in range(times)
        ]
        if constant:
            nodes.append(
                helper.make_node(
                    "Constant",
                    [],
                    ["c"],
                    value=TensorProto(data_type=2, dims=[len(constant)], raw_data=constant),
                )
            )
        functions.append(
            helper.make_function(
                "local", f"f{level}", ["x"], ["y"], nodes,
                [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
            )
        )  # fmt: skip
    model = network(nodes=[helper.make_node("f0", ["x"], ["y"], domain="local")])
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.extend(functions)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("levels", "times", "name", "constant", "message"),
    [
        (10, 10, "", b"", "has 11,111,111,111 nodes, more than 1,000,000"),
        (4, 20, "n" * 50_000, b"", "bytes, more than 20 times its own"),
        (4, 12, "", b"c" * 400_000, "bytes, more than 20 times its own"),
    ],
    ids=["nodes", "names", "constants"],
)
def test_functions_that_grow_as_powers_are_refused_at_once(levels, times, name, constant, message, tmp_path):
    path = laughs(tmp_path / "laughs.onnx", levels, times, name, constant)
    began = time.process_time()
    with pytest.raises(CodecError, match=message):
        intus.read(path, np.ones((1, 3), np.float32))
    assert time.process_time() - began < 20


def test_functions_that_call_functions_are_read(tmp_path):
    path = laughs(tmp_path / "few.onnx", 3, 3)
    trace = intus.read(path, np.ones((1, 3), np.float32))
    assert sum(op.type == "relu" for op in trace.ops) == 27


def test_name_in_too_many_modules(tmp_path):
    path = tmp_path / "net.onnx"
    node = helper.make_node("Relu", ["x"], ["y"], name="a/" * 20_000 + "Relu")
    path.write_bytes(network(nodes=[node]).SerializeToString())
    began = time.process_time()
    with pytest.raises(CodecError, match="is inside of 20,000 modules, more than 200"):
        intus.read(path)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("given", [({},), ((),)], ids=["mapping", "tuple"])
def test_model_without_inputs_has_values(given, tmp_path):
    path = tmp_path / "net.onnx"
    w = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    path.write_bytes(network([w], [helper.make_node("Neg", ["w"], ["y"])], inputs="").SerializeToString())
    assert not intus.read(path).outputs[0].saved
    assert np.array_equal(intus.read(path, *given).outputs[0].value, [0, -1, -2])


DAMAGED = {
    "more outputs than parts": helper.make_node("Split", ["x"], ["y", "z"], num_outputs=1),
    "no input": helper.make_node("LabelEncoder", [""], ["y"], domain="ai.onnx.ml", keys_int64s=[1]),
    "no second input": helper.make_node("Range", ["x"], ["y"]),
    "no output": helper.make_node("LabelEncoder", ["x"], [], domain="ai.onnx.ml", keys_int64s=[1]),
    "an attribute of another type": helper.make_node("Concat", ["x", "x"], ["y"], axis=[0, 1]),
    "no attribute": helper.make_node("Concat", ["x", "x"], ["y"]),
    "no pattern": helper.make_node("RegexFullMatch", ["", "x"], ["y"]),
    "no splits": helper.make_node("TreeEnsemble", [""], ["y"], domain="ai.onnx.ml", tree_roots=[0]),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_node_that_its_operator_does_not_allow_does_not_end_the_process(name, tmp_path):
    """onnx takes such nodes for sound where it infers shapes, which ends the whole process of some."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([DAMAGED[name]], "net", [x], [y] if DAMAGED[name].output else [])
    versions = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 5)]
    path = tmp_path / "net.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=versions, ir_version=10).SerializeToString())
    code = (
        "import intus, numpy, sys\n"
        "for inputs in ((), (numpy.ones(4, 'float32'),)):\n"
        "    try:\n        intus.read(sys.argv[1], *inputs)\n"
        "    except intus.core.errors.IntusError as error:\n        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def looped(trips, nodes, carried="x", ends=""):
    """Return a Loop that carries one value and returns each, as ``z`` and ``every``."""
    kind = TensorProto.FLOAT
    nodes = [*nodes, helper.make_node("Identity", [ends or "on"], ["go"])]
    go, on = (helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go", "on"))
    made = helper.make_tensor_value_info("made", kind, None)
    every = helper.make_tensor_value_info("made_too", kind, None)
    nodes.append(helper.make_node("Identity", ["made"], ["made_too"]))
    count = helper.make_tensor_value_info("count", TensorProto.INT64, [])
    body = helper.make_graph(
        nodes, "body", [count, on, helper.make_tensor_value_info("old", kind, None)], [go, made, every]
    )
    return helper.make_node("Loop", [trips, "", carried], ["z", "every"], name="loop", body=body)


def doubled(count):
    """Return nodes each of which makes a tensor 8 times as long as the one before."""
    names = ["flat", *(f"k{n}" for n in range(count - 1)), "z"]
    flat = helper.make_node("Flatten", ["x"], ["flat"], axis=0)
    return [flat, *(helper.make_node("Concat", [a] * 8, [b], axis=1) for a, b in itertools.pairwise(names))]


CREATED = {
    "concat": doubled(10),
    "outer products": [
        helper.make_node("Expand", ["x", "some"], ["row"]),
        helper.make_node("Transpose", ["row"], ["column"]),
        helper.make_node("MatMul", ["column", "row"], ["z"]),
    ],
    "results of a loop": [
        helper.make_node("Expand", ["x", "side"], ["wide"]),
        looped("many", [helper.make_node("Abs", ["wide"], ["made"])], carried="wide"),
    ],
    "constant": [helper.make_node("ConstantOfShape", ["large"], ["z"])],
    "expand": [helper.make_node("Expand", ["x", "large"], ["z"])],
    "computed": [
        helper.make_node("Mul", ["large", "two"], ["more"]),
        helper.make_node("Expand", ["x", "more"], ["z"]),
    ],
    "tile": [helper.make_node("Tile", ["x", "large"], ["z"])],
    "pad": [helper.make_node("Pad", ["x", "pads"], ["z"])],
    "range": [helper.make_node("Range", ["zero", "end", "one"], ["z"])],
}


@pytest.mark.parametrize("name", CREATED)
def test_model_that_asks_for_far_more_than_its_bytes_is_not_run(name, tmp_path):
    numbers = {"some": [1, 1 << 15], "side": [1 << 8, 1 << 8], "many": 1 << 14}
    numbers |= {"large": [1 << 16, 1 << 16], "two": [2, 2], "pads": [0, 0, 1 << 17, 1 << 17]}
    tensors = [numpy_helper.from_array(np.array(some), key) for key, some in numbers.items()]
    scalars = {"zero": 0.0, "end": 3e9, "one": 1.0}
    tensors += [numpy_helper.from_array(np.float32(some), key) for key, some in scalars.items()]
    nodes = [*CREATED[name], helper.make_node("ReduceSum", ["z"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "net", [x], [y], tensors)
    path = tmp_path / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    assert len(intus.read(path).graph.ops)
    with pytest.raises(CodecError, match=r"make tensors of [\d,]+ bytes"):
        intus.read(path, np.ones((1, 1), np.float32))


def saved(nodes, path, **numbers):
    """Write a model of nodes that compute ``z`` from ``x``."""
    tensors = [numpy_helper.from_array(np.array(some), key) for key, some in numbers.items()]
    x, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xz")
    graph = helper.make_graph(nodes, "net", [x], [z], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


ADD = helper.make_node("Add", ["old", "old"], ["made"])
ENDS = [
    helper.make_node("ReduceSum", ["old"], ["sum"], keepdims=0),
    helper.make_node("Less", ["sum", "hundred"], ["less"]),
]


def test_vectors_that_are_joined_again_and_again(tmp_path):
    """onnx infers each of their numbers if it is asked to, which takes hundreds of times their bytes."""
    names = ["x", *(f"k{n}" for n in range(9)), "z"]
    nodes = [helper.make_node("Concat", [a] * 8, [b], axis=0) for a, b in itertools.pairwise(names)]
    path = saved(nodes, tmp_path / "net.onnx")
    start = time.perf_counter()
    with pytest.raises(CodecError, match=r"make tensors of [\d,]+ bytes of 16"):
        intus.read(path, np.ones(4, np.float32))
    assert time.perf_counter() - start < 5


def test_loop_that_runs_too_often_is_not_run(tmp_path):
    path = saved([looped("trips", [ADD])], tmp_path / "net.onnx", trips=1 << 40)
    assert len(intus.read(path).graph.ops)
    with pytest.raises(CodecError, match=r"loop 'loop' runs 1,099,511,627,776 times, more than 10,000,000"):
        intus.read(path, np.ones(1, np.float32))
    with pytest.raises(CodecError, match="loop 'loop' runs without end"):
        intus.read(saved([looped("", [ADD])], tmp_path / "net.onnx"), np.ones(1, np.float32))


def test_loop_that_ends_itself_is_run_however_often_it_may(tmp_path):
    loop = looped("trips", [ADD, *ENDS], ends="less")
    path = saved([loop], tmp_path / "net.onnx", trips=(1 << 63) - 1, hundred=np.float32(100))
    assert intus.read(path, np.ones(1, np.float32)).outputs[0].value == [256]


def test_loop_whose_tensors_grow_is_stopped(tmp_path):
    """Nothing tells before it runs how large they become."""
    grows = helper.make_node("Concat", ["old"] * 2, ["made"], axis=0)
    loop = looped("trips", [grows, helper.make_node("Abs", ["made"], ["unused"])])
    path = saved([loop], tmp_path / "net.onnx", trips=40)
    code = (
        "import intus, numpy, sys\n"
        "from intus.reading import bounds\n"
        "bounds._FEW = 1 << 26\n"
        "try:\n    intus.read(sys.argv[1], numpy.ones((1 << 10), 'float32'))\n"
        "except intus.core.errors.CodecError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert "was stopped: its operations took" in done.stdout, done.stderr


def test_run_is_interrupted(tmp_path):
    ready = helper.make_node("Greater", ["sum", "hundred"], ["less"])
    loop = looped("trips", [helper.make_node("Abs", ["old"], ["made"]), ENDS[0], ready], ends="less")
    path = saved([loop], tmp_path / "net.onnx", trips=(1 << 63) - 1, hundred=np.float32(0))
    code = (
        "import intus, numpy, signal, sys\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 1)\n"
        "try:\n    intus.read(sys.argv[1], numpy.ones(1, 'float32'))\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "interrupted\n", done.stderr
