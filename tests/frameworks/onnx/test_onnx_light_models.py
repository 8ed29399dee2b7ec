"""The architectures that the onnx package ships: known networks whose weights are left out."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import backend

from intus.core.graph import OP, OUTPUT
from intus.reading import read
from intus.viewing.scene import scene

MODELS = sorted(Path(backend.__path__[0], "test", "data", "light").glob("*.onnx"))


def test_there_are_models():
    assert len(MODELS) > 5


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_all_operations_and_values(path):
    model = onnx.load(path)
    graph, *_ = read(path)
    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    events = {int(event) for event in graph.ops.event[graph.rows_of(OP)]}
    assert len(events) == len(nodes)
    assert scene(graph)
    constants = {tensor.name for tensor in model.graph.initializer}
    (value,) = (one for one in model.graph.input if one.name not in constants)
    shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
    x = np.random.default_rng(0).random(shape, np.float32)
    graph, values, *_ = read(path, (x,))
    assert set(values) == set(range(len(graph.ops)))
    session = onnxruntime.InferenceSession(path)
    for row, expected in zip(graph.rows_of(OUTPUT), session.run(None, {value.name: x}), strict=True):
        np.testing.assert_allclose(values[row], expected, rtol=1e-3, atol=1e-5)
