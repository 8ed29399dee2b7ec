"""Tests of saved values: each is what it was when it was computed, and only selected ones are saved."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from zoo_models import Cnn, make

import intus
from intus.core.errors import AddressError, CaptureError, CodecError, InputError
from intus.storage.codec import graph_parts
from intus.storage.tensors import array_entry, write_tensors
from intus.tracing.capture.saving.sample import is_unchanged, sample


class Clones(torch.overrides.TorchFunctionMode):
    """Clones what every call returned at once; the reference."""

    def __init__(self):
        super().__init__()
        self.values = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and getattr(func, "__name__", "") != "__get__":
            self.values.append(out.detach().clone())
        return out


def overwriting(x):
    a = x * 2
    a.relu_()
    b = a[0]
    b.mul_(3)
    c = a.clone()
    torch.add(c, 1, out=c)
    c = F.dropout(c, 0.5, False, True)
    c += 1
    return c.sub_(1)


def test_saved_values_before_later_inplace_writes():
    x = torch.randn(2, 3)
    with Clones() as clones:
        overwriting(x)
    trace = intus.trace(overwriting, x)
    assert len(trace.ops) == len(clones.values)
    for op, value in zip(trace.ops, clones.values, strict=True):
        assert torch.equal(op.value, value), op
        assert not op.maybe_modified


def test_maybe_modified_after_unrecorded_write():
    def model(x):
        z = x + 1
        with torch._C.DisableTorchFunction():
            z.add_(1)
        return z * 1

    trace = intus.trace(model, torch.ones(2))
    assert trace["add_1"].maybe_modified
    assert not trace["mul_1"].maybe_modified


class Tied(nn.Module):
    """A model with values that share memory with a parameter, a buffer, the input and the output."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x):
        return (x @ self.weight.t() + self.shift).relu()


def train(model, x):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    optimizer.step()
    model.shift.mul_(2)


def test_value_overwritten_after_the_pass_is_refused(tmp_path):
    model, x = Tied(), torch.randn(2, 3)
    t = intus.trace(model, x)
    before = {op.label: op.value.clone() for op in t.find(lambda op: True)}
    train(model, x)
    x.zero_()
    lost = {"t_1_1", "buffer_1", "input_1"}
    for label in lost:
        assert not t[label].saved
        with pytest.raises(
            AddressError, match=rf"'{label}' was not stored: it was overwritten after the pass"
        ):
            _ = t[label].value
    for label in before.keys() - lost:
        assert torch.equal(t[label].value, before[label])
    t.save(tmp_path / "t.trace")
    loaded = intus.load(tmp_path / "t.trace")
    assert not loaded["t_1_1"].saved
    assert torch.equal(loaded["relu"].value, before["relu_1_4"])
    report = t.validate()
    assert not report.failed
    assert {check.label for check in report.unproven} == {"t_1_1", "matmul_1_2", "add_1_3"}
    with pytest.raises(CaptureError, match="weight changed since the trace was taken"):
        t.rerun({"weight": 0})
    with pytest.raises(InputError, match="weight changed since the trace was taken"):
        t.value("weight")
    t.show()


def test_copied_values_outlive_training():
    model, x = Tied(), torch.randn(2, 3)
    t = intus.trace(model, x, copy=True)
    before = {op.label: op.value.clone() for op in t.find(lambda op: True)}
    train(model, x)
    for label, value in before.items():
        assert torch.equal(t[label].value, value)


def refill(array):
    array[:] = np.arange(array.size, dtype=array.dtype).reshape(array.shape)


def write_through_dlpack(x):
    torch.from_dlpack(x).zero_()


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.data.zero_(),
        lambda x: refill(x.numpy()),
        write_through_dlpack,
        lambda x: x.untyped_storage().fill_(0),
    ],
    ids=["data", "numpy", "dlpack", "storage"],
)
@pytest.mark.parametrize(
    "shape", [(3, 4), (300, 4), (4, 3), (3, 8)], ids=["small", "large", "transposed", "strided"]
)
def test_value_overwritten_without_a_version_is_refused(write, shape):
    """Writes after the pass that torch does not count, in an input and in a parameter."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    memory = torch.randn(shape)
    x = {(4, 3): memory.t(), (3, 8): memory[:, ::2]}.get(shape, memory)
    t = intus.trace(net, x)
    hidden = net[0](x).detach()
    write(memory)
    with pytest.raises(AddressError, match="'input_1' was not stored: it was overwritten after the pass"):
        _ = t["input_1"].value
    assert torch.equal(t["0"].value, hidden)
    report = t.validate()
    assert not report.failed
    assert [check.label for check in report.unproven] == ["linear_1_1"]
    write(net[2].weight.detach())
    with pytest.raises(InputError, match=r"2\.weight changed since the trace was taken"):
        t.value("2.weight")
    assert not t.validate().failed
    with pytest.raises(CaptureError, match=r"2\.weight changed since the trace was taken"):
        t.rerun({"relu": 0})


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW])
def test_parameters_after_a_fused_step_are_refused(optimizer):
    net, x = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 2)), torch.randn(3, 4)
    before = intus.trace(net, x)
    net(x).sum().backward()
    optimizer(net.parameters(), lr=0.1, fused=True).step()
    with pytest.raises(InputError, match=r"0\.weight changed since the trace was taken"):
        before.value("0.weight")
    report = before.validate()
    assert not report.failed
    assert [check.label for check in report.unproven] == ["linear_1_1", "linear_2_3"]
    table = intus.compare(before, intus.trace(net, x))
    assert "0.weight, 0.bias, 2.weight, 2.bias" in table.attrs["summary"].splitlines()[1]
    assert table.attrs["first"]["why"][0].startswith("0.weight of a changed since the trace was taken")


def test_refilled_array_of_an_output_is_refused():
    class Workspace(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = np.zeros((3, 4), "f4")

        def forward(self, x):
            np.copyto(self.out, (x * 2).numpy())
            return torch.from_numpy(self.out)

    net, x = Workspace(), torch.randn(3, 4)
    t = intus.trace(net, x)
    assert torch.equal(t["output_1"].value, x * 2)
    net(x * 5)
    with pytest.raises(AddressError, match="was overwritten after the pass"):
        _ = t["output_1"].value


def test_rerun_keeps_noticing_writes_to_what_it_did_not_change():
    net, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)
    changed = intus.trace(net, x).rerun({"relu": 0})
    x.data.zero_()
    assert not changed["input_1"].saved
    assert changed["linear_1"].saved


def test_inference_parameters_overwritten_after_the_pass():
    with torch.inference_mode():
        net, x = nn.Linear(4, 4), torch.randn(3, 4)
        t = intus.trace(net, x)
        net.weight.zero_()
        with pytest.raises(InputError, match="weight changed since the trace was taken"):
            t.value("weight")
        assert not t.validate().failed


def test_rerun_refuses_a_parameter_that_changed():
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)), torch.randn(2, 3)
    t = intus.trace(model, x)
    with torch.no_grad():
        model[0].weight.mul_(2)
    with pytest.raises(CaptureError, match=r"'linear_1_1' .* cannot be run again: 0\.weight changed"):
        t.rerun({"input_1": x * 2})
    changed = t.rerun({"relu": 0})  # what lies behind the change took no changed parameter
    assert torch.equal(changed["2"].value, model[2].bias.detach().expand(2, 2))
    t = intus.trace(model, x)
    model.double()
    with pytest.raises(CaptureError, match=r"0\.weight changed since the trace was taken"):
        t.rerun({"input_1": x * 2})


def test_maybe_modified_after_save_and_load(tmp_path):
    def model(x):
        y = x + 1
        with torch._C.DisableTorchFunction():
            y.add_(1)
        return y * 2

    trace = intus.trace(model, torch.ones(2))
    trace.save(tmp_path / "t")
    assert intus.load(tmp_path / "t")["add_1"].maybe_modified


def test_values_of_a_buffer_written_in_place():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count.add_(1)
            self.count[0].add_(x.sum())
            return self.count

    model = Counter()
    trace = intus.trace(model, torch.ones(2))
    assert trace["buffer_1"].value.tolist() == [0, 0, 0]
    assert trace["add_1"].value.tolist() == [1, 1, 1]
    assert trace.outputs[0].value.tolist() == [3, 1, 1]
    assert model.count.tolist() == [0, 0, 0]


def test_values_are_detached():
    model, x = make("mlp")
    for op in intus.trace(model, x.requires_grad_()).ops:
        assert not op.value.requires_grad


SELECTIONS = [
    ("conv2d_1_1", ["conv2d_1_1"]),
    ("relu_1:2", None),
    ("conv1", ["conv2d_1_1"]),
    ("relu:2", ["relu_2_5"]),
    ("conv2d", ["conv2d_1_1", "conv2d_2_4"]),
    ("conv*", ["conv2d_1_1", "conv2d_2_4"]),
    (["conv1", "linear_1"], ["conv2d_1_1", "linear_1_9"]),
    (-1, ["linear_1_9"]),
    (lambda op: op.type == "relu", ["relu_1_3", "relu_2_5"]),
    ("none", []),
    ("input_1", ["input_1"]),
    ("output_1", ["output_1"]),
    ("buffer_1", ["buffer_1"]),
    ("bn.running_mean", ["buffer_1"]),
    ([], []),
]


@pytest.mark.parametrize(("selection", "labels"), [s for s in SELECTIONS if s[1] is not None])
def test_selected_values(selection, labels):
    model, x = make("cnn")
    whole, trace = intus.trace(model, x), intus.trace(model, x, save=selection)
    assert [trace.graph.label(row) for row in trace.values] == labels
    for label in labels:
        assert torch.equal(trace[label].value, whole[label].value)
    if labels == ["linear_1_9"]:
        assert trace[0].label == "linear_1_9"  # ordinals count the saved ops


def test_selection_of_unknown_name_suggests_the_nearest():
    with pytest.raises(AddressError, match="Did you mean 'conv2d_2"):
        intus.trace(Cnn().eval(), torch.randn(1, 1, 8, 8), save="conv2d_9")


def test_value_that_was_not_saved_raises():
    model, x = make("mlp")
    trace = intus.trace(model, x, save="linear")
    with pytest.raises(AddressError, match="relu_1_2"):
        _ = trace["relu_1"].value
    assert "not saved" in repr(trace["relu_1"])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.bfloat16().sum(),
        lambda x: x.half() * 2,
        lambda x: torch.fft.fft(x).conj() * 2,
        lambda x: x > 0,
        lambda x: x.long().sum(),
        lambda x: x[:0],
        lambda x: x.T.expand(2, 3, 2),
        lambda x: x.to(torch.float8_e4m3fn),
    ],
)
def test_dtypes_and_shapes_after_save_and_load(function, tmp_path):
    trace = intus.trace(function, torch.arange(6.0).reshape(2, 3))
    trace.save(tmp_path / "t")
    back = intus.load(tmp_path / "t")
    for row, value in trace.values.items():
        assert back.values[row].dtype == value.dtype
        assert back.values[row].shape == value.shape
        if value.dtype != torch.float8_e4m3fn:
            assert torch.equal(back.values[row], value.resolve_conj())


def test_saving_a_sparse_value_raises(tmp_path):
    trace = intus.trace(lambda x: x.to_sparse() * 2, torch.ones(2, 2))
    with pytest.raises(InputError, match=r"to_sparse_1_1 is torch\.sparse_coo"):
        trace.save(tmp_path / "t")


def test_loading_an_invalid_file_raises(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(b"not a trace")
    with pytest.raises(CodecError):
        intus.load(path)
    trace = intus.trace(nn.ReLU(), torch.ones(2))
    for name in ("99", "-1", "x"):
        columns, meta = graph_parts(trace.graph)
        columns[f"value/{name}"] = trace[0].value.numpy()
        write_tensors(path, [array_entry(*pair) for pair in columns.items()], meta)
        with pytest.raises(CodecError, match="holds a value for row"):
            intus.load(path)


def test_saved_value_before_write_by_numpy():
    def model(x):
        y = x + 1
        y.numpy()[:] = 0
        return y * 2

    t = intus.trace(model, torch.ones(3))
    assert t["add_1"].value.tolist() == [2, 2, 2]


def test_model_exception_before_any_tensor():
    with pytest.raises(ZeroDivisionError):
        intus.trace(lambda x: x / 0, 3)


@pytest.mark.parametrize(
    "t",
    [
        torch.ones(3, device="meta"),
        torch.eye(3).to_sparse(),
        torch.nn.LazyLinear(3).weight,
        torch.ones(0, 3),
    ],
    ids=["meta", "sparse", "lazy", "empty"],
)
def test_sample_of_tensors_without_plain_elements(t):
    assert sample(t) is None


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_sample_of_strided_quantized_tensor():
    """Copying one below autograd is a segmentation fault."""
    assert sample(torch.quantize_per_tensor(torch.ones(8, 6), 0.1, 0, torch.qint8)[:, ::2]) is None


def test_sample_of_freed_memory():
    t = torch.ones(100)
    part = t[50:]
    before = sample(part)
    t.untyped_storage().resize_(240)
    assert sample(part) is None
    assert not is_unchanged(part, before)
