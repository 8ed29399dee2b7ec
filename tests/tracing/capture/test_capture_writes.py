"""Tests of in-place writes by observers, embeddings, custom ops, ``.data`` and views, and of undoing them."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import FakeQuantize, FusedMovingAvgObsFakeQuantize, HistogramObserver
from torch.ao.quantization.observer import MovingAverageMinMaxObserver, PerChannelMinMaxObserver

import intus

pytestmark = pytest.mark.filterwarnings("ignore")  # torch deprecates its own quantization


@torch.library.custom_op("intus_tests::double_", mutates_args=("x",))
def double_(x: torch.Tensor) -> None:
    x.mul_(2)


@torch.library.custom_op("intus_tests::count", mutates_args=("total",))
def count(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    total.add_(x.sum())
    return x + 1


def tensors_of(model):
    found = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: (id(t), t._version, t.shape, t.data_ptr(), t.tolist()) for name, t in found.items()}


class Short(nn.Module):
    """Embeddings whose vectors are renormalized on lookup."""

    def __init__(self):
        super().__init__()
        self.one = nn.Embedding(5, 3, max_norm=0.1)
        self.bag = nn.EmbeddingBag(5, 3, max_norm=0.1)

    def forward(self, ids):
        return self.one(ids) + self.bag(ids)[:, None]


class SetsData(nn.Module):
    """Assigns ``data`` of a parameter, and writes through it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        self.fc.weight.data = self.fc.weight.data * 2
        self.fc.bias.data.add_(1)
        return self.fc(x)


QUANTIZERS = {
    "fused": FusedMovingAvgObsFakeQuantize,
    "in steps": lambda: FakeQuantize(MovingAverageMinMaxObserver, quant_min=0, quant_max=255),
    "minimum and maximum per channel": lambda: PerChannelMinMaxObserver(ch_axis=0),
    "histogram": HistogramObserver,
}


@pytest.mark.parametrize("name", list(QUANTIZERS))
def test_observer_buffers_are_restored(name):
    model = nn.Sequential(nn.Linear(3, 3), QUANTIZERS[name]())
    x = torch.randn(4, 3)
    before = tensors_of(model)
    trace = intus.trace(model, x)
    assert tensors_of(model) == before
    assert torch.equal(trace["output_1"].value, intus.trace(model, x)["output_1"].value)
    assert torch.equal(trace["output_1"].value, model(x))
    assert not trace.maybe_modified


def test_embedding_max_norm_weights_are_restored():
    model, ids = Short(), torch.tensor([[1, 2], [3, 4]])
    before = tensors_of(model)
    trace = intus.trace(model, ids)
    assert tensors_of(model) == before
    assert trace.validate(), str(trace.validate())
    assert intus.validate(model, ids)
    assert tensors_of(model) == before
    assert torch.equal(trace["output_1"].value, model(ids))
    assert tensors_of(model) != before  # a plain pass does change them


def test_parameter_data_assignment_is_undone():
    model, x = SetsData(), torch.randn(2, 3)
    before = tensors_of(model)
    trace = intus.trace(model, x)
    assert tensors_of(model) == before
    assert torch.equal(trace["output_1"].value, model(x))


def test_custom_op_that_returns_none_is_an_inplace_write():
    def forward(x):
        y = x * 1
        double_(y[0])
        return y + 1

    trace = intus.trace(forward, torch.ones(2, 2))
    (op,) = trace.find(type="double")
    assert op.in_place
    assert trace["add_1"].parents == [op]
    assert op.value.tolist() == [2, 2]
    assert trace["mul_1"].value.tolist() == [[1, 1], [1, 1]]
    for report in (trace.validate(), intus.validate(forward, torch.ones(2, 2))):
        assert report, str(report)
    assert trace.rerun({"mul_1": 3})["output_1"].value.tolist() == [[7, 7], [4, 4]]


def test_custom_op_that_returns_and_writes_has_two_results():
    total = torch.zeros(())

    def forward(x):
        sums = total + 0
        y = count(x, sums)
        return y, sums * 2

    trace = intus.trace(forward, torch.ones(2))
    returned, written = trace.find(type="count")
    assert (returned.value.tolist(), written.value.item()) == ([2, 2], 2)
    assert trace["mul_1"].parents == [written]
    assert trace["add_1"].value.item() == 0
    for report in (trace.validate(), intus.validate(forward, torch.ones(2))):
        assert report, str(report)


def test_custom_op_write_into_buffer_is_restored():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(()))

        def forward(self, x):
            return count(x, self.total) * self.total

    model = Counts()
    trace = intus.trace(model, torch.ones(2))
    assert model.total.item() == 0
    assert model.total._version == 0
    assert trace["output_1"].value.tolist() == [4, 4]
    assert trace.validate()


def test_custom_op_called_by_overload_packet():
    trace = intus.trace(lambda x: torch.ops.intus_tests.double_(x), torch.ones(2))
    assert [op.type for op in trace] == ["double"]
    trace = intus.trace(lambda x: torch.ops.aten.mul_(x * 1, 3), torch.ones(2))
    assert trace["mul_2"].in_place
    assert trace["mul_1"].value.tolist() == [1, 1]


def through_data(x):
    y = torch.zeros(4)
    y.data[:2].copy_(x)
    return y * 2


def through_data_twice(x):
    y, z = torch.zeros(4), x + 1
    half = y.data[:2]
    a = y + 1
    half.add_(z)
    b = y + 1
    half.mul_(2)
    return a + b + y


def columns(x):
    y = torch.zeros(3, 2)
    for n in range(3):
        y[n].copy_(x * n)
    return y


def views_ahead(x):
    y = torch.zeros(6)
    a, b, c = y[:2], y[2:4], y[3:]
    a.add_(x)
    b.copy_(x * 2)
    c[:1].sub_(1)
    return y, y.reshape(2, 3), a * 2


@pytest.mark.parametrize("forward", [through_data, through_data_twice, columns, views_ahead])
def test_read_descends_from_all_writes_to_its_memory(forward):
    x = torch.tensor([1.0, 2.0])
    trace = intus.trace(forward, x)
    for report in (trace.validate(), intus.validate(forward, x)):
        assert report, str(report)
    changed = trace.rerun({"input_1": torch.tensor([5.0, 7.0])})
    expected = forward(torch.tensor([5.0, 7.0]))
    for op, value in zip(
        changed.outputs, expected if isinstance(expected, tuple) else [expected], strict=True
    ):
        assert torch.equal(op.value, value)


def test_loop_of_writes_adds_no_redundant_edges():
    def forward(x):
        y = torch.zeros(50, 2)
        for n in range(50):
            y[n].copy_(x * n)
        return y + 1

    trace = intus.trace(forward, torch.ones(2))
    assert len(trace["add_1"].parents) == 1
    assert len(trace.graph.edges.src) <= 4 * len(trace)
    assert trace.validate()


def test_parameter_read_after_write_through_data():
    weight = nn.Parameter(torch.ones(2, 2))

    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            self.weight.data.mul_(x.sum())
            return F.linear(x, self.weight)

    trace = intus.trace(Writes(), torch.ones(1, 2))
    assert weight.tolist() == [[1, 1], [1, 1]]
    assert trace["mul_1"] in trace["linear_1"].parents
    assert trace["output_1"].value.tolist() == [[4, 4]]


class Redrawn(torch.nn.Module):
    """A buffer drawn in each pass by ``torch.nn.init``, which passes it to torch by keyword."""

    def __init__(self):
        super().__init__()
        self.register_buffer("noise", torch.zeros(2, 3))

    def forward(self, x):
        shifted = x + 1
        torch.relu_(input=shifted.sub_(1))
        return shifted + torch.nn.init.normal_(self.noise)


def test_inplace_write_through_keyword_argument():
    torch.manual_seed(0)
    model, x = Redrawn(), torch.randn(2, 3)
    t = intus.trace(model, x)
    assert not model.noise.any()
    assert torch.equal(t["add_1"].value, x + 1)
    assert torch.equal(t["sub_1"].value, x + 1 - 1)
    assert t["normal_1"].value.any()
    assert t.validate(), str(t.validate())


class Average(nn.Module):
    """Keeps a running mean of its activations, and of the first unit, without disabling autograd."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("first", torch.zeros(2))

    def forward(self, x):
        h = self.fc(x)
        self.mean.mul_(0.9).add_(h.mean(0) * 0.1)
        self.first[0] += h[0, 0]
        return h + self.mean + self.first.sum()


@pytest.mark.parametrize("grads", [False, True])
def test_buffer_has_no_autograd_history_after_a_trace(grads):
    torch.manual_seed(0)
    model, x = Average(), torch.randn(4, 3)
    plain = copy.deepcopy(model)
    t = intus.trace(model, x, grads=grads)
    assert [b.grad_fn for b in model.buffers()] == [None, None]
    assert not any(b.requires_grad or b.any() for b in model.buffers())
    expected = plain(x)
    assert torch.equal(copy.deepcopy(model)(x), expected)
    if grads:
        t.output.sum().backward()
        expected.sum().backward()
        assert torch.equal(model.fc.weight.grad, plain.fc.weight.grad)
