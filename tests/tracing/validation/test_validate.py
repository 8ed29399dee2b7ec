"""Trace.validate: every model of the zoo is valid, and every kind of error is detected."""

import contextlib
import copy
import gc
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from transformer_models import bert, gpt2, llama, mamba, t5, vit
from zoo_models import ZOO, make

import intus
from intus.core.errors import CaptureError
from intus.tracing.validation.perturb import Noise, has_domain


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", list(ZOO))
def test_zoo_is_valid(name, training):
    model, x = make(name, training)
    trace = intus.trace(model, x)
    report = trace.validate()
    assert report, str(report)
    assert [check.label for check in report] == [
        op.label for op in map(trace.__getitem__, trace.graph.labels) if op.kind in ("op", "output")
    ]
    assert len(report.proven) >= 0.8 * len(report)


@pytest.mark.long
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("build", [gpt2, bert, vit, llama, t5, mamba], ids=lambda build: build.__name__)
def test_transformers_are_valid(build, training, grad):
    torch.manual_seed(0)
    model, inputs = build()
    with torch.set_grad_enabled(grad):
        report = intus.validate(model.train(training), inputs)
    assert report, str(report)
    assert len(report.proven) > 0.75 * len(report)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = torch.relu(self.a(x))
        return torch.sub(self.b(y), y)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return intus.trace(Net(), torch.randn(3, 4))


def labels(checks):
    return [check.label for check in checks]


def with_edges(trace, change):
    """Return the trace after ``change`` was applied to its edges, a list of [src, dst, arg]."""
    edges = trace.graph.edges
    rows = change([list(edge) for edge in zip(edges.src, edges.dst, edges.arg, strict=True)])
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    trace.graph = copy.copy(trace.graph)
    object.__setattr__(trace.graph, "edges", type(edges)(*columns))
    return trace


def test_net_is_valid(net):
    assert labels(net.validate().proven) == ["linear_1_1", "relu_1_2", "linear_2_3", "sub_1_4", "output_1"]


@pytest.mark.parametrize("label", ["linear_1_1", "relu_1_2", "linear_2_3", "sub_1_4"])
def test_corrupted_activation_fails(net, label):
    row = net[label].row
    net.values[row] = net.values[row].clone()
    net.values[row][0, 0] = torch.nextafter(net.values[row][0, 0], torch.tensor(9.0))  # one bit
    report = net.validate()
    assert not report
    assert report.failed[0].label == label
    assert "run again on its parents, it differs by up to" in report[label].reasons[0]
    assert f"failed    {label}" in str(report)


def test_corrupted_input_or_output_fails(net):
    net.values[net.outputs[0].row] = torch.zeros(3, 4)
    assert labels(net.validate().failed) == ["output_1"]
    net.values[net.inputs[0].row] = torch.zeros(3, 4)
    assert labels(net.validate().failed) == ["linear_1_1", "output_1"]


def test_wrong_parent_fails(net):
    sub, wrong = net["sub_1_4"].row, net["linear_1_1"].row
    with_edges(net, lambda edges: [[wrong if d == sub and a == 0 else s, d, a] for s, d, a in edges])
    assert labels(net.validate().failed) == ["sub_1_4"]


def test_swapped_arguments_fail(net):
    sub = net["sub_1_4"].row
    with_edges(net, lambda edges: [[s, d, 1 - a if d == sub else a] for s, d, a in edges])
    assert labels(net.validate().failed) == ["sub_1_4"]


@pytest.mark.parametrize("label", ["linear_2_3", "sub_1_4", "output_1"])
def test_lost_edge_fails(net, label):
    row = net[label].row
    at = next(n for n, dst in enumerate(net.graph.edges.dst) if dst == row)
    with_edges(net, lambda edges: edges[:at] + edges[at + 1 :])
    report = net.validate()
    assert labels(report.failed) == [label]


def test_additional_edge_fails(net):
    relu = net["relu_1_2"].row
    with_edges(net, lambda edges: sorted([*edges, [net.inputs[0].row, relu, 1]], key=lambda edge: edge[1]))
    (check,) = net.validate().failed
    assert check.label == "relu_1_2"
    assert "argument '1', which took no tensor" in check.reasons[0]


def test_additional_edge_into_a_taken_argument_fails(net):
    sub = net["sub_1_4"].row
    with_edges(net, lambda edges: sorted([*edges, [net.inputs[0].row, sub, 1]], key=lambda edge: edge[1]))
    (check,) = net.validate().failed
    assert check.label == "sub_1_4"
    assert "argument '1': it did not come from input_1" in check.reasons[0]


def clamped(x, y):
    return torch.minimum(x * 1, y * 1)


#: Calls whose argument "0" or "1" has no effect on these values: they were reported as failed once.
WITHOUT_EFFECT = {
    "clamped": (lambda a, b: torch.minimum(a, b), torch.rand(3) - 1e9, torch.full((3,), 1e9)),
    "power 0": (lambda a, b: torch.linalg.matrix_power(a, 0) + b, torch.rand(3, 3), torch.rand(3, 3)),
    "overwritten": (
        lambda a, b: a.index_put((torch.arange(3),), b),
        torch.rand(3),
        torch.rand(3),
    ),
    "slice of all": (lambda a, b: torch.slice_scatter(a, b), torch.rand(3), torch.rand(3)),
    "slope of positive values": (lambda a, b: F.prelu(b.abs(), a), torch.rand(3), torch.rand(2, 3)),
    "cropped": (lambda a, b: torch.cat([a, b])[3:], torch.rand(3), torch.rand(3)),
    "weight 0": (lambda a, b: torch.lerp(b, a, 0.0), torch.rand(3), torch.rand(3)),
    "satisfied margin": (
        lambda a, b: F.hinge_embedding_loss(a * 0 + 1e9, torch.full((3,), -1.0)) + b,
        torch.rand(3),
        torch.rand(3),
    ),
    "one key": (
        lambda a, b: F.scaled_dot_product_attention(a, b, b),
        torch.rand(1, 1, 3),
        torch.rand(1, 1, 3),
    ),
    "outside": (
        lambda a, b: F.grid_sample(a, torch.full((1, 2, 2, 2), 9.0), align_corners=False) + b,
        torch.rand(1, 1, 3, 3),
        torch.rand(1, 1, 2, 2),
    ),
}


@pytest.mark.parametrize("name", list(WITHOUT_EFFECT))
def test_argument_without_effect_is_exempt(name):
    function, *given = WITHOUT_EFFECT[name]

    def forward(a, b):
        return function(a * 1, b * 1)

    trace = intus.trace(forward, tuple(given))
    for report in (trace.validate(), intus.validate(forward, tuple(given))):
        assert report, str(report)
        assert not report.failed


@pytest.mark.parametrize("name", list(WITHOUT_EFFECT))
@pytest.mark.parametrize("change", ["wrong", "swapped", "lost"])
def test_wrong_edge_without_effect_fails(name, change):
    function, *given = WITHOUT_EFFECT[name]
    trace = intus.trace(lambda a, b: function(a * 1, b * 1), tuple(given))
    first, second = trace["mul_1"].row, trace["mul_2"].row
    edges = trace.graph.edges
    index = edges.src.tolist().index(first)
    target = int(edges.dst[index])

    def alter(edges):
        if change == "lost":
            return edges[:index] + edges[index + 1 :]
        other = {first: trace.inputs[0].row} if change == "wrong" else {first: second, second: first}
        return [[other.get(s, s) if d == target else s, d, a] for s, d, a in edges]

    report = with_edges(trace, alter).validate()
    assert labels(report.failed) == [trace.graph.label(target)], str(report)


def test_corrupted_value_of_a_call_without_effect_fails():
    trace = intus.trace(clamped, (torch.rand(3) - 1e9, torch.full((3,), 1e9)))
    trace.values[trace["minimum_1"].row] = torch.zeros(3)
    assert labels(trace.validate().failed) == ["minimum_1_3", "output_1"]


def test_lost_parameter_fails(net):
    net.graph = copy.copy(net.graph)
    object.__setattr__(net.graph, "op_params", net.graph.op_params[1:])
    (check,) = net.validate().failed
    assert check.label == "linear_1_1"
    assert "a.weight" in check.reasons[0]


def test_ignored_argument_fails():
    """A function that ignores what the graph says it reads."""
    trace = intus.trace(lambda x, y: torch.add(x, y, alpha=1), (torch.ones(3), torch.ones(3)))
    trace._replays._call_log._functions[:] = [lambda x, y, alpha: x + 1]
    (check,) = trace.validate().failed
    assert (check.label, check.reasons) == ("add_1_1", ("the call was of '<lambda>', the graph has 'add'",))


def test_parameters_changed_after_the_trace():
    model = Net()
    trace = intus.trace(model, torch.randn(3, 4))
    with torch.no_grad():
        model.a.weight.add_(1)
    report = trace.validate()
    assert not report.failed
    (check,) = report.unproven
    assert (check.label, check.reasons) == ("linear_1_1", ("a.weight changed since the trace was taken",))


# -- writes and views ------------------------------------------------------------------------------------


def through_a_view(x):
    y = x * 2
    y[:2].mul_(10)
    return y + 1


def returned_after_a_write_through_a_view(x):
    y = x * 2
    y[:2].mul_(10)
    return y, torch.sin(y)


def through_two_views_in_turn(x):
    y = x * 2
    y[:2].mul_(10)
    y[1:].sub_(1)
    return (y + 1) * y[1:3].sum()


def onto_itself(x):
    y = x * 2
    y.add_(y)
    y += x
    return y.T if y.dim() > 1 else y


def by_assignment(x):
    y = torch.zeros(4)
    y[1:3] = x[1:3]
    y[0], y[:] = x[0], y * 2
    return y


def transposed(x):
    y = x.reshape(2, 2).clone()
    y.t()[0].fill_(x.sum().item())
    y.diagonal().copy_(x[:2])
    return y.t() @ y


def out_argument(x):
    y = torch.empty(4)
    torch.mul(x, 3, out=y)
    F.relu(y, inplace=True)
    return y


def in_the_input(x):
    x[:2].mul_(10)
    return x.add_(1).sum()


@pytest.mark.parametrize(
    "function",
    [
        through_a_view,
        returned_after_a_write_through_a_view,
        through_two_views_in_turn,
        onto_itself,
        by_assignment,
        transposed,
        out_argument,
        in_the_input,
    ],
)
def test_in_place_writes_are_valid(function):
    trace = intus.trace(function, torch.arange(1.0, 5))
    for report in (trace.validate(), intus.validate(function, torch.arange(1.0, 5))):
        assert report, str(report)
    assert not trace.maybe_modified


def test_corrupted_write_through_view_fails():
    trace = intus.trace(through_a_view, torch.arange(1.0, 5))
    trace.values[trace["mul_2"].row] = torch.zeros(2)
    assert labels(trace.validate().failed) == ["mul_2_3", "add_1_4"]


def test_write_by_numpy_is_unproven():
    def forward(x):
        y = x * 2
        y.numpy()[0] = 7
        return torch.from_numpy(y.numpy()[:2]) + 1

    (check,) = intus.validate(forward, torch.ones(3)).unproven
    assert (check.label, check.reasons) == (
        "add_1_2",
        ("its memory was written to by something that was not recorded",),
    )


def test_two_views_written_are_both_parents():
    """The base depends on both writes, although neither depends on the other."""

    def forward(x):
        y = x.clone()
        first, second = y[0], y[1]
        first.mul_(2)
        second.add_(1)
        return y.sum()

    trace = intus.trace(forward, torch.ones(2, 2))
    assert {parent.type for parent in trace["sum_1"].parents} == {"mul", "add"}
    for report in (trace.validate(), intus.validate(forward, torch.ones(2, 2))):
        assert report, str(report)
        assert report[trace["sum_1"].label].status == "proven"


def scaled_rows(x):
    return torch.func.vmap(lambda row: (row / row.sum()).sin(), in_dims=1, out_dims=1)(x) + 1


def per_sample_gradients(x):
    return torch.func.vmap(torch.func.grad(lambda row: (row.sin() * row).sum()))(x) * 2


def dropout_in_vmap(x):
    return torch.func.vmap(lambda row: F.dropout(row), randomness="different")(x) + 1


def in_place_in_vmap(x):
    return torch.func.vmap(lambda row: row.clone().mul_(2).add_(row))(x)


def jacobian(x):
    return torch.func.jacrev(lambda x: x.sin())(x).sum() * x


def gradient_inside(x):
    x = x.detach().requires_grad_()
    energy = (x.sin() * x).sum()
    (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
    (second,) = torch.autograd.grad(gradient, x, torch.ones_like(gradient) * 2, True)
    return gradient + second


@pytest.mark.parametrize(
    "function",
    [scaled_rows, per_sample_gradients, dropout_in_vmap, in_place_in_vmap, jacobian, gradient_inside],
)
def test_transforms_and_gradients_inside_are_proven(function):
    torch.manual_seed(0)
    report = intus.validate(function, torch.rand(3, 2))
    assert report, str(report)
    assert len(report.proven) >= len(report) - 4


def test_second_gradient_after_the_history_was_checked():
    """The model frees the history itself, after the check ran through it."""
    x = torch.ones(3, requires_grad=True)
    report = intus.validate(lambda x: torch.autograd.grad((x * x).sum(), x)[0], x)
    assert labels(report.proven) == ["mul_1_1", "sum_1_2", "grad_1_3", "output_1"]


def test_transforms_and_gradients_are_unproven_from_saved_values():
    x = torch.ones(3, 2, requires_grad=True)
    report = intus.trace(lambda x: torch.func.vmap(lambda a: a * 2)(x), x).validate()
    assert labels(report.unproven) == ["mul_1_1", "output_1"]
    report = intus.trace(lambda x: torch.autograd.grad((x * x).sum(), x)[0], x).validate()
    assert labels(report.unproven) == ["grad_1_3"]
    assert "validate(model, …) checks it" in report.unproven[0].reasons[0]


def test_meta_report():
    assert str(intus.trace(lambda x: x * 2, torch.ones(2, device="meta")).validate()) == (
        "unproven: 0 of 2 ops proven, 2 unproven\n"
        "  unproven  mul_1_1, output_1  it is on the meta device, which has no values to compare"
    )


def test_sparse_tensors_are_compared():
    report = intus.validate(lambda x: torch.sparse.mm(x.to_sparse(), x.T), torch.ones(3, 2))
    assert report, str(report)


# -- random state and context state ----------------------------------------------------------------------


def noisy(x):
    own = torch.Generator().manual_seed(4)
    y = F.dropout(x, 0.5) + torch.rand(64) + torch.randn_like(x)
    y.normal_(generator=own)
    return y * torch.rand(64, generator=own) + torch.bernoulli(torch.full((64,), 0.5))


def test_random_operations_are_valid():
    trace = intus.trace(noisy, torch.ones(64))
    state = torch.get_rng_state()
    report = trace.validate()
    assert report, str(report)
    assert torch.equal(torch.get_rng_state(), state)
    drawn = [op.type for op in trace.ops if trace._replays.call(int(trace.graph.ops.event[op.row])).states]
    assert drawn == ["dropout", "rand", "randn_like", "normal", "rand", "bernoulli"]


@pytest.mark.parametrize(
    "around",
    [
        torch.no_grad,
        torch.inference_mode,
        contextlib.nullcontext,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    ],
)
def test_original_context_is_restored(around):
    model, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.randn(2, 5, 8)
    with around():
        trace = intus.trace(model, x)
    with torch.no_grad():
        report = trace.validate()
        assert not torch.is_grad_enabled()
    assert report, str(report)
    assert torch.is_grad_enabled()


def test_original_default_dtype_is_restored():
    torch.set_default_dtype(torch.float64)
    try:
        trace = intus.trace(lambda x: x + torch.ones(3), torch.randn(3))
    finally:
        torch.set_default_dtype(torch.float32)
    assert trace.validate()
    assert torch.get_default_dtype() == torch.float32


# -- exemptions ------------------------------------------------------------------------------------------

EXEMPT = {
    "multiplied by zero": lambda x: x * 0,
    "only the argument's shape": torch.zeros_like,
    "uninitialized": lambda x: torch.empty_like(x).fill_(1) * x,
    "integers or booleans": lambda x: x.reshape(1, 4).argmax(0),
    "dropout zeroed all of it": lambda x: F.dropout(x, 1.0),
    "all of it is overwritten": lambda x: (x * 2).copy_(torch.ones(4)),
    "the result is written into it": lambda x: torch.mul(x, 2, out=x.clone()),
    "one element": lambda x: torch.softmax(x.reshape(4, 1), 1),
    "the mask selects none": lambda x: torch.where(torch.zeros(4, dtype=torch.bool), x, 1.0),
    "NaN or infinite": lambda x: x * float("nan"),
    "integers, indices and masks": lambda x: x[torch.tensor([0, 2])],
    "it is empty": lambda x: torch.cat([x[:0], x]),
    "statistics of the batch": lambda x: F.batch_norm(
        x.reshape(4, 1), torch.zeros(1), torch.ones(1), training=True
    ),
    "clamping": lambda x: x.clamp(5.0, 5.0),
}


@pytest.mark.parametrize("reason", list(EXEMPT))
def test_exempt_with_reason(reason):
    report = intus.validate(EXEMPT[reason], torch.tensor([1.0, -2, 3, 4]))
    assert report, str(report)
    assert any(reason in why for check in report.exempt for why in check.reasons), str(report)
    assert reason in str(report)


def test_nan_is_compared_bit_for_bit():
    assert intus.validate(lambda x: torch.log(x), torch.tensor([-1.0, 2.0]))


def test_functions_with_limited_domain():
    spd = torch.eye(3) * 2 + 0.1
    report = intus.validate(lambda x: torch.linalg.cholesky(x) + torch.multinomial(x[0].abs(), 3), spd)
    assert report, str(report)
    assert "linalg_cholesky_1_1" in labels(report.proven)


def test_several_outputs_of_one_call():
    report = intus.validate(lambda x: sum(torch.chunk(x, 2)) + x.max(0)[0], torch.randn(4))
    assert report, str(report)


def test_complex_and_half_precision():
    assert intus.validate(lambda x: torch.fft.ifft(torch.fft.fft(x) * 2j).real, torch.randn(8))
    assert intus.validate(nn.Linear(4, 4).half(), torch.randn(2, 4).half())
    assert intus.validate(nn.Linear(4, 4).bfloat16(), torch.randn(2, 4).bfloat16())


# -- incomplete traces -----------------------------------------------------------------------------------


def test_trace_without_calls_is_refused(net, tmp_path):
    net.save(tmp_path / "a.trace")
    for trace in (
        intus.trace(Net(), torch.ones(1, 4), save="none"),
        intus.load(tmp_path / "a.trace"),
        copy.deepcopy(net),
    ):
        with pytest.raises(intus.IntusError, match="Trace the model again with save='all'"):
            trace.validate()


def test_unsaved_values_are_unproven():
    report = intus.trace(Net(), torch.ones(1, 4), save="relu_1").validate()
    assert not report
    assert "was not saved" in report["sub_1_4"].reasons[0]


def test_pass_that_raised_is_validated_up_to_there():
    def forward(x):
        return (x * 2) @ torch.ones(3)

    report = intus.trace(forward, torch.ones(2), on_error="keep").validate()
    assert labels(report.proven) == ["mul_1_1", "ones_1_2"]
    assert labels(report.unproven) == ["matmul_1_3"]


def test_caught_exception_is_exempt():
    def forward(x):
        with contextlib.suppress(RuntimeError):
            x @ torch.ones(3)
        return x + 1

    report = intus.validate(forward, torch.ones(2))
    assert report, str(report)
    assert [(check.label, check.reasons) for check in report.exempt] == [
        ("matmul_1_2", ("it raised, and the model caught the exception",))
    ]
    assert labels(report.proven) == ["ones_1_1", "add_1_3", "output_1"]


def test_fake_tensors_are_unproven():
    with torch._subclasses.FakeTensorMode():
        report = intus.validate(lambda x: x * 2, torch.ones(2))
    (check,) = report.unproven
    assert (check.label, "FakeTensor has no plain memory" in check.reasons[0]) == ("mul_1_1", True)


class Tripled(torch.Tensor):
    """A tensor whose sums are three times what they should be."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out * 3 if func is torch.sum else out


def test_tensor_subclass_is_valid():
    trace = intus.trace(lambda x: torch.sum(x * 2) + 1, torch.ones(3).as_subclass(Tripled))
    assert float(trace["output_1"].value) == 19
    report = trace.validate()
    assert report, str(report)


def test_validation_inside_a_trace_is_not_recorded():
    inner = intus.trace(Net(), torch.ones(1, 4))

    def forward(x):
        assert inner.validate()
        inner.rerun({"relu_1": 0})
        return x + 1

    assert [op.type for op in intus.trace(forward, torch.ones(2)).ops] == ["add"]


def test_meta_tensors_are_unproven():
    report = intus.validate(lambda x: x * 2, torch.ones(2, device="meta"))
    assert labels(report.unproven) == ["mul_1_1", "output_1"]


class Gates(nn.Module):
    """A hand-written LSTM step, whose gates are parts of one tensor and written in place."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(5, 4 * 17)

    def forward(self, x):
        i, f, g, o = self.mix(x).chunk(4, -1)
        c = i.sigmoid_() * g.tanh_() + f.sigmoid_()
        return o.sigmoid_() * c.tanh()


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8])
@torch.no_grad()
def test_replay_keeps_memory_layout(rows):
    torch.manual_seed(0)  # rounding in kernels depends on the memory layout
    report = intus.trace(Gates(), torch.randn(rows, 5)).validate()
    assert report, str(report)
    report = intus.trace(nn.GRU(8, 17), torch.randn(5, rows, 8), decompose=True).validate()
    assert report, str(report)


def test_op_func_and_args():
    trace = intus.trace(lambda x: torch.cat([x, F.linear(x, x, bias=None)], dim=1), torch.ones(2, 2))
    cat = trace["cat_1"]
    assert (cat.func, cat.args, cat.kwargs) == (torch.cat, (["input_1", "linear_1_1"],), {"dim": 1})
    linear = trace["linear_1"]
    assert (linear.args, linear.kwargs) == (("input_1", "input_1"), {"bias": None})
    assert (trace.inputs[0].func, trace.inputs[0].args) == (None, ())
    assert intus.trace(Net(), torch.ones(1, 4))["linear_1"].args == ("input_1", "a.weight", "a.bias")


def test_validate_has_no_side_effects(net):
    model = make("cnn", training=True)[0]
    x = torch.randn(2, 1, 8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trace = intus.trace(model, x)
    values = {row: value.clone() for row, value in trace.values.items()}
    state = torch.get_rng_state()
    assert trace.validate()
    assert trace.validate()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, values[row]) for row, value in trace.values.items())
    assert all(p.grad is None for p in model.parameters())


def test_validated_trace_is_freed_without_gc():
    gc.collect()
    gc.disable()
    try:
        trace = intus.trace(Net(), torch.ones(1, 4))
        report = trace.validate()
        refs = [weakref.ref(trace), weakref.ref(trace["sub_1"].value)]
        del trace
        assert [ref() for ref in refs] == [None, None]
        assert report
    finally:
        gc.enable()


def test_expanded_view_of_memory_that_is_written_later():
    """Elements of an expanded view share memory; the writes before it is read are combined all the same."""

    def model(x):
        w = x.clone()
        v = w[1:2].expand(3, 4)
        w[:, 1:].mul_(2)
        return v.sum(0)

    x = torch.randn(3, 4)
    trace = intus.trace(model, x)
    report = trace.validate()
    assert report, str(report)
    assert torch.equal(trace.rerun({"input_1": x + 1}).outputs[0].value, model(x + 1))


# -- what is not the same again for a reason -----------------------------------------------------------------


def test_least_squares_that_differ_are_unproven():
    """LAPACK's gelsy does not repeat itself, here even without a trace; another driver does."""

    def forward(x, driver):
        return sum(torch.linalg.lstsq(x, x, driver=driver).solution for _ in range(20))

    torch.manual_seed(0)
    x = torch.randn(3, 4)
    for report in (intus.trace(forward, x, None).validate(), intus.validate(forward, x, None)):
        assert report.failed == []
        assert all("gelsy" in check.reasons[0] for check in report.unproven)
    report = intus.trace(forward, x, "gelsd").validate()
    assert report, str(report)


class LargerRelu(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 1.5 if func is torch.relu else out


def test_mode_around_the_trace_leaves_a_difference_unproven():
    x = torch.ones(3)
    with LargerRelu():
        trace = intus.trace(lambda x: torch.relu(x) + 1, x)
        online = intus.validate(lambda x: torch.relu(x) + 1, x)
    assert trace["output_1"].value.tolist() == [2.5] * 3
    for report in (trace.validate(), online):
        assert report.failed == []
        (check,) = report.unproven
        assert check.label == "relu_1_1"
        assert "LargerRelu" in check.reasons[0]
    with pytest.raises(CaptureError, match=r"'relu_1_1' depends on the change.* LargerRelu"):
        trace.rerun({"input_1": 2.0})


def test_mode_inside_the_model_is_proven():
    def forward(x):
        with LargerRelu():
            return torch.relu(x) + 1

    x = torch.randn(5)
    assert intus.trace(forward, x).validate()
    assert intus.validate(forward, x)


@pytest.mark.parametrize(
    ("build", "type_"), [(lambda: nn.Linear(3, 3), "linear"), (lambda: nn.BatchNorm1d(3), "batch_norm")]
)
def test_trace_inside_a_trace_is_valid(build, type_):
    """The outer trace keeps what the inner one restores, and follows the values that it returns."""
    model, x = build(), torch.randn(4, 3)

    def forward(x):
        return intus.trace(model, x)["output_1"].value * 2

    trace = intus.trace(forward, x)
    (parent,) = trace["mul"].parents
    assert parent.type == type_
    assert trace["output_1"].has_input_ancestor
    for report in (trace.validate(), intus.validate(forward, x)):
        assert report, str(report)


@torch.library.custom_op("intus_tests::drifts", mutates_args=())
def drifts(x: torch.Tensor) -> torch.Tensor:
    """Add the number of calls so far, as a kernel that adds atomically rounds differently each time."""
    drifts.calls = getattr(drifts, "calls", 0) + 1
    return x + drifts.calls


def test_functions_that_do_not_repeat_themselves_are_unproven():
    t = intus.trace(lambda x: torch.ops.intus_tests.drifts(x) * 2, torch.ones(3))
    report = t.validate()
    assert not report
    assert not report.failed
    assert "does not repeat itself" in str(report)


def test_wrong_values_of_functions_that_repeat_themselves_fail():
    t = intus.trace(lambda x: x.exp() * 2, torch.ones(3))
    t.values[t["exp_1"].row] = torch.zeros(3)
    assert t.validate().failed[0].label == "exp_1_1"


def test_values_in_place_of_probabilities_are_probabilities():
    p = torch.rand(5, 7)
    values = list(Noise().smaller(p))
    assert len(values) == 2
    assert all(((value >= 0) & (value <= p)).all() for value in values)
    assert has_domain(torch.Tensor.bernoulli_)
    assert has_domain(F.binary_cross_entropy)
    assert has_domain(lambda x: x)
    assert not has_domain(F.relu)
