"""Exemption rules: each applies where mathematics says so, and nowhere else."""

import pytest
import torch
import torch.nn.functional as F

import intus
from intus.tracing.validation.exemptions import Case, reason

X, W, ZERO = torch.randn(2, 3), torch.randn(3, 3), torch.zeros(3, 3)
IMAGE, KERNEL = torch.randn(1, 2, 5, 5), torch.randn(2, 2, 3, 3)
CELL = (torch.randn(6, 3), torch.randn(6, 2), torch.randn(6), torch.randn(6))
EVERY, SOME = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 1, 0])

#: function of one input, the argument that need not matter, a word of the reason
EXEMPT = {
    "linear by zeros": (lambda x: F.linear(x, ZERO), "0", "zero"),
    "conv of zeros": (lambda x: F.conv2d(torch.zeros_like(IMAGE), KERNEL * x.sum()), "1", "zero"),
    "times 0": (lambda x: x * 0, "0", "zero"),
    "to the power of 0": (lambda x: x**0, "0", "zero"),
    "plus 0 times": (lambda x: torch.add(X, x, alpha=0), "1", "zero"),
    "beta 0": (lambda x: torch.addmm(x, X, W, beta=0), "0", "zero"),
    "all of one": (lambda x: torch.lerp(x, X, 1.0), "0", "zero"),
    "none of the other": (lambda x: torch.lerp(X, x, 0.0), "1", "zero"),
    "a cell's first state": (lambda x: torch.gru_cell(x, torch.zeros(2, 2), *CELL), "3", "zero"),
    "batch norm, weight 0": (
        lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3), torch.zeros(3), torch.ones(3)),
        "0",
        "zero",
    ),
    "its mean": (lambda x: F.batch_norm(X, x[0], torch.ones(3), torch.zeros(3), None), "1", "zero"),
    "group norm, weight 0": (lambda x: F.group_norm(x, 1, torch.zeros(3), torch.ones(3)), "0", "zero"),
    "layer norm, weight 0": (lambda x: F.layer_norm(x, (3,), torch.zeros(3), None), "0", "zero"),
    "layer norm of zeros": (
        lambda x: F.layer_norm(x * 0, (3,), W[0] + x.sum() * 0, W[1]),
        "weight",
        "multiplies",
    ),
    "reduce over all": (
        lambda x: x.flatten()[:3].scatter_reduce(0, EVERY, torch.ones(4), "amax", include_self=False),
        "0",
        "overwritten",
    ),
    "initialised": (lambda x: torch.nn.init.kaiming_uniform_(x * 1), "tensor", "overwritten"),
    "set to a number": (lambda x: torch.nn.init.constant_(x * 1, 2.0), "tensor", "overwritten"),
    "drawn anew": (lambda x: torch.nn.init.uniform_(x * 1), "tensor", "overwritten"),
    "a key for no query": (
        lambda x: F.scaled_dot_product_attention(torch.zeros(1, 2, 3), x[None], X[None]),
        "1",
        "zero",
    ),
    "a query for tiny keys": (
        lambda x: F.scaled_dot_product_attention(x[None], X[None] * 1e-15, X[None]),
        "0",
        "too small",
    ),
    "less what is huge": (lambda x: x - 1e30, "0", "rounding"),
    "plus what is huge": (lambda x: x + torch.full((2, 3), -1e30), "0", "rounding"),
    "values all alike": (
        lambda x: F.scaled_dot_product_attention(x[None], X[None], torch.zeros(1, 2, 3)),
        "0",
        "same value",
    ),
}
#: the same functions where the argument does matter
NOT_EXEMPT = {
    "linear": (lambda x: F.linear(x, W, torch.zeros(3)), "0"),
    "conv, no padding": (lambda x: F.conv2d(IMAGE * x.sum(), KERNEL, torch.zeros(2), 1, 0), "0"),
    "times 1": (lambda x: x * 1, "0"),
    "plus zeros": (lambda x: x + torch.zeros(2, 3), "0"),
    "to the power of 2": (lambda x: x**2, "0"),
    "none of the other": (lambda x: torch.lerp(x, X, 0.0), "0"),
    "alpha 1": (lambda x: torch.add(X, x), "1"),
    "a bias of zeros": (lambda x: torch.addmm(x, X, ZERO), "0"),
    "a cell's input": (lambda x: torch.gru_cell(x, torch.zeros(2, 2), *CELL), "0"),
    "a cell's state": (lambda x: torch.gru_cell(X, x[:, :2], *CELL), "1"),
    "batch norm": (lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3), None, torch.zeros(3)), "0"),
    "the bias, weight 0": (lambda x: F.layer_norm(X, (3,), torch.zeros(3), x[0]), "bias"),
    "layer norm": (lambda x: F.layer_norm(X, (3,), x[0], torch.zeros(3)), "weight"),
    "reduce over some": (
        lambda x: x.flatten()[:3].scatter_reduce(0, SOME, torch.ones(4), "amax", include_self=False),
        "0",
    ),
    "reduce over all and itself": (
        lambda x: x.flatten()[:3].scatter_reduce(0, EVERY, torch.ones(4), "amax", include_self=True),
        "0",
    ),
    "less what is large": (lambda x: x - 1e6, "0"),
    "what is huge itself": (lambda x: 1.0 - x * 1e30, "0"),
    "a query for small keys": (
        lambda x: F.scaled_dot_product_attention(x[None], X[None] * 1e-6, X[None]),
        "0",
    ),
    "attention": (lambda x: F.scaled_dot_product_attention(x[None], X[None], W[None, :2]), "0"),
    "its values": (lambda x: F.scaled_dot_product_attention(X[None], X[None], x[None]), "2"),
}


def case_of(function, arg):
    """Return the Case of the last call of a function, as ``validate`` makes it."""
    trace = intus.trace(function, torch.randn(2, 3))
    op = trace[-1]
    call = trace._replays.call(int(trace.graph.ops.event[op.row]))
    number = next(
        n for n, tensor_arg in enumerate(call.tensor_args) if trace.graph.args[tensor_arg.arg] == arg
    )
    given = [trace.values[tensor_arg.source] for tensor_arg in call.tensor_args]
    return trace, op, Case(op.type, call, given, number, arg, [op.value])


@pytest.mark.parametrize("name", list(EXEMPT))
def test_argument_that_cannot_matter_is_exempt(name):
    function, arg, word = EXEMPT[name]
    torch.manual_seed(0)
    trace, op, case = case_of(function, arg)
    assert word in reason(case)
    report = trace.validate()
    assert report, str(report)
    assert report[op.label].status == "exempt"
    assert any(f"argument {arg!r}" in why for why in report[op.label].reasons)


@pytest.mark.parametrize("name", list(NOT_EXEMPT))
def test_argument_that_matters_is_not_exempt(name):
    function, arg = NOT_EXEMPT[name]
    torch.manual_seed(0)
    trace, op, case = case_of(function, arg)
    assert reason(case) is None
    assert arg not in "".join(trace.validate()[op.label].reasons)


def test_first_pass_of_lazy_layers_is_valid():
    torch.manual_seed(0)
    critic = torch.nn.Sequential(
        torch.nn.LazyConv2d(4, 3), torch.nn.LeakyReLU(0.2), torch.nn.Flatten(), torch.nn.LazyLinear(1)
    )
    report = intus.trace(critic, IMAGE).validate()
    assert report, str(report)


NORMALIZATIONS = {
    "InstanceNorm1d": (lambda: torch.nn.InstanceNorm1d(4, affine=True), (2, 4, 8)),
    "InstanceNorm2d": (lambda: torch.nn.InstanceNorm2d(4), (2, 4, 8, 8)),
    "InstanceNorm2d with statistics": (
        lambda: torch.nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        (2, 4, 8, 8),
    ),
    "BatchNorm2d": (lambda: torch.nn.BatchNorm2d(4), (2, 4, 8, 8)),
    "BatchNorm1d": (lambda: torch.nn.BatchNorm1d(4, affine=False), (3, 4)),
    "GroupNorm": (lambda: torch.nn.GroupNorm(2, 4), (2, 4, 8, 8)),
    "GroupNorm of one element": (lambda: torch.nn.GroupNorm(4, 4), (2, 4)),
    "LayerNorm": (lambda: torch.nn.LayerNorm(4), (2, 3, 4)),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("zero", ["nothing", "input", "weight"])
@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_normalizations_are_valid(name, zero, training):
    make, shape = NORMALIZATIONS[name]
    model, x = make().train(training), torch.randn(shape)
    if zero == "input":
        x.zero_()
    elif model.weight is not None and zero == "weight":
        torch.nn.init.zeros_(model.weight)
    for report in (intus.trace(model, x).validate(), intus.validate(model, x)):
        assert report, report
        assert "cannot be checked" not in str(report)


EVERYDAY = {
    "LSTM, one step": lambda: (torch.nn.LSTM(4, 4), (torch.randn(1, 2, 4),)),
    "GRU, one step": lambda: (torch.nn.GRU(4, 4, bidirectional=True, num_layers=2), (torch.randn(1, 2, 4),)),
    "RNN, one step": lambda: (torch.nn.RNN(4, 4, nonlinearity="relu"), (torch.randn(1, 2, 4),)),
    "LSTMCell, no state": lambda: (torch.nn.LSTMCell(3, 3), (torch.randn(2, 3),)),
    "attention, one key": lambda: (
        torch.nn.MultiheadAttention(4, 2),
        (torch.randn(3, 2, 4), torch.randn(1, 2, 4), torch.randn(1, 2, 4)),
    ),
    "attention, identity mask": lambda: (
        lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=torch.eye(3, dtype=torch.bool)),
        (torch.randn(1, 1, 3, 4),),
    ),
    "grid outside": lambda: (
        lambda x: F.grid_sample(x, torch.full((1, 2, 2, 2), 9.0), align_corners=False),
        (torch.randn(1, 1, 4, 4),),
    ),
    "all classes ignored": lambda: (
        lambda x: F.cross_entropy(x, torch.full((3,), -100), reduction="sum"),
        (torch.randn(3, 4),),
    ),
    "PReLU of positive numbers": lambda: (torch.nn.PReLU(), (torch.rand(3, 4),)),
    "satisfied triplets": lambda: (lambda x: F.triplet_margin_loss(x, x, x + 100), (torch.randn(3, 4),)),
    "far below a limit": lambda: (lambda x: torch.minimum(x, torch.tensor(6.0)), (-torch.rand(3),)),
    "comparison in place": lambda: (lambda x: (x * 1).eq_(x), (torch.randn(3),)),
    "variance of one row": lambda: (lambda x: x.var(0, correction=0), (torch.randn(1, 3),)),
}


@pytest.mark.parametrize("name", EVERYDAY)
def test_argument_without_effect_is_no_failure(name):
    model, given = EVERYDAY[name]()
    for report in (intus.trace(model, *given).validate(), intus.validate(model, *given)):
        assert report, report
