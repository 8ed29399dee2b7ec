"""A damaged ONNX file is read or refused in one sentence, never with another exception."""

import os
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
