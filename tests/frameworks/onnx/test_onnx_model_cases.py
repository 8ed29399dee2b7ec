"""The models with inputs and outputs that the onnx package ships, most exported from PyTorch in 2018."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from intus.core.graph import OUTPUT
from intus.reading import read

CASES = [
    case
    for kind in ("pytorch-converted", "pytorch-operator", "simple")
    for case in load_model_tests(kind=kind)
]


def tensors(folder, stem):
    files = sorted(folder.glob(f"{stem}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))
    return [numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())) for path in files]


def test_there_are_cases():
    assert len(CASES) > 100


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_are_the_expected_ones(case):
    model = onnx.load(Path(case.model_dir, "model.onnx"))
    if any(
        value.type.WhichOneof("value") != "tensor_type" for value in (*model.graph.input, *model.graph.output)
    ):
        graph, *_ = read(Path(case.model_dir, "model.onnx"))
        assert len(graph)
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        inputs = tensors(folder, "input")
        graph, values, *_ = read(Path(case.model_dir, "model.onnx"), tuple(inputs))
        rows = graph.rows_of(OUTPUT)
        if not set(rows) <= set(values):  # operators of versions that onnxruntime has no kernel for
            assert not inputs or graph.facts["notes"][0].startswith("onnxruntime cannot run the operator")
            continue
        for row, expected in zip(rows, tensors(folder, "output"), strict=True):
            if expected.dtype.kind in "OUS":
                assert values[row].tolist() == expected.tolist()
            else:
                np.testing.assert_allclose(values[row], expected, rtol=case.rtol, atol=max(case.atol, 1e-5))
