"""ONNX's own test cases: a model for every operator, with inputs and the outputs that it must have."""

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.backend.test.case.node import collect_testcases

from intus.core.errors import InputError
from intus.core.graph import OUTPUT
from intus.reading import read
from intus.reading.onnx.running import as_numpy

#: Cases that onnxruntime refuses to compute when it runs them.
REFUSED = {
    "test_attention_4d_diff_heads_mask4d_padded_kv",
    "test_convinteger_with_padding",
    "test_reduce_max_empty_set_bool",
}


@pytest.fixture(scope="module")
def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cases' own arithmetic
        return collect_testcases(None)


def arrays(values):
    return [onnx.numpy_helper.to_array(one) if isinstance(one, onnx.TensorProto) else one for one in values]


def plain(case, inputs):
    """Return the outputs that onnxruntime computes on its own."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), options)
    return session.run(
        None, {value.name: one for value, one in zip(case.model.graph.input, inputs, strict=False)}
    )


def is_close(case, ours, expected):
    expected = as_numpy(np.asarray(expected))
    if ours.shape != expected.shape or ours.dtype.kind not in "fc":
        return np.array_equal(ours, expected)
    atol = 2e-3 if ours.dtype == np.float16 else max(case.atol, 1e-6)
    return np.allclose(ours, expected, rtol=case.rtol, atol=atol, equal_nan=True)


@pytest.mark.long
def test_all_cases_are_read_and_have_the_expected_values(cases, tmp_path):
    wrong, unexplained, refused = [], [], set()
    equal = without_value = 0
    path = tmp_path / "case.onnx"
    for case in cases:
        path.write_bytes(case.model.SerializeToString())
        graph, *_ = read(path)
        ends = graph.rows_of(OUTPUT)
        assert len(ends) == len(case.model.graph.output), case.name
        inputs, expected = map(arrays, case.data_sets[0])
        if not inputs:
            continue
        try:
            graph, values, *_ = read(path, tuple(inputs))
        except InputError:
            refused.add(case.name)
            continue
        rows = graph.rows_of(OUTPUT)
        if any(row not in values for row in range(len(graph.ops))) and not graph.facts.get("notes"):
            unexplained.append(case.name)
        if not all(row in values for row in rows):
            without_value += 1
        elif all(is_close(case, values[row], one) for row, one in zip(rows, expected, strict=True)):
            equal += 1
        elif "training_dropout" not in case.name:  # drawn at random
            theirs = plain(case, inputs)
            if not all(np.array_equal(values[row], one) for row, one in zip(rows, theirs, strict=True)):
                wrong.append(case.name)
    assert not wrong
    assert not unexplained
    assert refused == REFUSED
    assert equal > 1700
    assert without_value < 150
