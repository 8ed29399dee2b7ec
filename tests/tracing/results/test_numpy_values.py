"""A trace whose values are numpy arrays, as those of other frameworks and of model files are."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import intus
from intus.core.building import GraphBuilder, Scope
from intus.core.errors import CodecError, InputError, MissingExtraError
from intus.core.graph import OP
from intus.tracing.results.trace import Trace
from intus.tracing.results.value_summary import compute_summary, thumbnail

VALUES = {
    "halves": np.random.default_rng(0).normal(size=(2, 3, 40, 50)).astype(np.float16),
    "picture": np.random.default_rng(1).normal(size=(1, 3, 20, 20)).astype(np.float32),
    "channels": np.random.default_rng(2).normal(size=(1, 7, 5, 5)),
    "attention": np.random.default_rng(3).normal(size=(1, 2, 100, 100)).astype(np.float32),
    "row": np.array([[1.0, np.nan, np.inf, -2.0, 0.0]]),
    "integers": np.arange(40),
    "mask": np.array([[True, False], [True, True]]),
    "complex": np.array([[1 + 1j, 2], [3j, -4]], np.complex64),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(2.5),
    "large": np.linspace(-3, 5, 100_000),
}


@pytest.mark.parametrize("name", VALUES)
def test_summary_and_picture_equal_those_of_torch(name):
    array, tensor = VALUES[name], torch.from_numpy(VALUES[name])
    ours, theirs = compute_summary(array), compute_summary(tensor)
    assert ours[:-1] == theirs[:-1]
    assert np.array_equal(ours[-1], theirs[-1], equal_nan=True) if ours[-1] is not None else not theirs[-1]
    assert thumbnail(array) == thumbnail(tensor)


def test_values_without_numbers_are_left_out():
    words = np.array(["a", "b"], object)
    assert compute_summary(words) is thumbnail(words) is None


def net(values=None, framework="numpy"):
    """Return a trace of ``relu(fc(x))`` with numpy values."""
    x, weight = np.arange(6, dtype=np.float32).reshape(2, 3) - 3, np.eye(3, 4, dtype=np.float32)
    builder = GraphBuilder("Net")
    builder.param("fc.weight", weight.shape, "float32")
    rows = [builder.input("x", x.shape, "float32")]
    fc = [Scope("fc", "Dense")]
    rows.append(
        builder.op("matmul", (2, 4), "float32", scope=fc, parents=[(rows[-1], "0")], params=["fc.weight"])
    )
    rows.append(builder.op("relu", (2, 4), "float32", parents=[(rows[-1], "0")]))
    rows.append(builder.output("y", rows[-1]))
    graph, row_of = builder.graph({"framework": framework})
    arrays = [x, x @ weight, np.maximum(x @ weight, 0), np.maximum(x @ weight, 0)]
    return Trace(graph, values or {int(row_of[row]): array for row, array in zip(rows, arrays, strict=True)})


def test_names_tables_and_values():
    t = net()
    assert repr(t) == "<Trace of Net: 2 operations, 4 values saved>"
    assert t.framework == "numpy"
    assert np.array_equal(np.asarray(t["fc"]), t["fc"].value)
    assert t["fc"].value is t.modules["fc"].value
    assert [op.label for op in t.find(after="fc")] == ["relu_1_2"]
    assert t.value("matmul_1[1]").tolist() == t["fc"].value[:, 1].tolist()
    assert t.value("matmul_1[0,2:4]").tolist() == t["fc"].value[:, [0, 2, 3]].tolist()
    assert t.value("matmul_1[-1@0]").tolist() == t["fc"].value[-1].tolist()
    assert t.to_pandas().saved.all()
    assert "relu" in t.summary()
    assert "mean" in str(t["relu_1"])


def test_page_has_statistics_of_values(tmp_path):
    t = net()
    t.show(overlay="mean").save(tmp_path / "net.json")
    values = json.loads((tmp_path / "net.json").read_text())["values"]
    assert values["row"] == [0, 1, 2, 3]
    assert values["mean"] == pytest.approx([float(t.values[row].mean()) for row in range(4)], abs=1e-6)


def test_file_of_numpy_values(tmp_path):
    t = net()
    t.save(tmp_path / "net.trace")
    loaded = intus.load(tmp_path / "net.trace")
    assert loaded.framework == "numpy"
    for op, again in zip(t, loaded, strict=True):
        assert isinstance(again.value, np.ndarray)
        assert again.value.dtype == op.value.dtype
        assert np.array_equal(again.value, op.value)


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint16", "bool", "complex64"])
def test_dtypes_in_files(tmp_path, dtype):
    t = net()
    t.values[1] = np.array([[0, 1], [1, 0]]).astype(dtype)
    t.save(tmp_path / "net.trace")
    again = intus.load(tmp_path / "net.trace").values[1]
    assert again.dtype == dtype
    assert again.tolist() == t.values[1].tolist()


def test_unstorable_dtype_is_refused(tmp_path):
    t = net()
    t.values[1] = np.array(["a"], object)
    with pytest.raises(InputError, match=r"The value of matmul_1_1 is object, which safetensors files lack"):
        t.save(tmp_path / "net.trace")


def test_damaged_value_is_refused(tmp_path):
    path = tmp_path / "net.trace"
    net().save(path)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CodecError, match="is damaged: the value of output_1 is not as it was written"):
        _ = intus.load(path)["output_1"].value


@pytest.mark.parametrize(
    "call",
    [lambda t: t.rerun({"fc": 0}), lambda t: t.validate(), lambda t: t.first_nan()],
    ids=["rerun", "validate", "first_nan"],
)
def test_what_needs_torch_is_refused(call):
    with pytest.raises(InputError, match=r"it is of numpy, and only a trace of PyTorch can"):
        call(net())


def child(code, folder):
    """Run code where torch cannot be imported."""
    script = f"import sys; sys.modules['torch'] = None\nimport numpy as np, intus\n{code}"
    done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_trace_of_torch_is_read_without_torch(tmp_path):
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.ones(2, 3)
    t = intus.trace(model, x, grads=True)
    t.output.sum().backward()
    t.save(tmp_path / "net.trace")
    intus.trace(model, x, store=tmp_path / "folder")
    np.save(tmp_path / "0.npy", t["0"].value.numpy())
    np.save(tmp_path / "grad.npy", t["0"].grad.numpy())
    child(
        """
folder = sys.argv[1]
t = intus.load(folder + "/net.trace")
for one in (t, intus.load(folder + "/folder")):
    assert np.array_equal(one["0"].value, np.load(folder + "/0.npy"))
assert np.array_equal(t["0"].grad, np.load(folder + "/grad.npy"))
assert "ReLU" in t.summary() and "mean" in str(t["relu_1"])
assert t.modules["0"].num_params == 16
for overlay in ("gradient", "mean"):
    t.show(overlay=overlay).save(folder + "/net.html")
t.save(folder + "/again.trace")
try:
    t.rerun({"0": 0})
except intus.IntusError as error:
    assert "torch is needed to run operations of a trace again" in str(error), error
""",
        tmp_path,
    )
    again = intus.load(tmp_path / "again.trace")
    assert torch.equal(again["0"].value, t["0"].value)
    assert again["0"].saved_bytes == t["0"].saved_bytes


def test_bfloat16_of_a_file_needs_ml_dtypes_without_torch(tmp_path):
    intus.trace(lambda x: x * 2, torch.ones(2, dtype=torch.bfloat16)).save(tmp_path / "net.trace")
    child(
        """
try:
    value = intus.load(sys.argv[1] + "/net.trace")["mul_1"].value
    assert value.dtype.name == "bfloat16" and value.astype(float).tolist() == [2, 2]
except intus.IntusError as error:
    assert "numpy has only with the package ml_dtypes" in str(error), error
""",
        tmp_path,
    )


def test_missing_torch_is_a_missing_extra():
    t = net(framework="torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)
        with pytest.raises(MissingExtraError, match="torch is needed"):
            t.validate()


def test_number_of_operations_is_that_of_the_graph():
    assert len(net()) == len(net().graph.rows_of(OP)) == 2
