"""Settings of PyTorch's operations are compared by what they mean; torch's own samples are the judge."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import freeze_rng_state

import intus
from intus import compare, trace
from intus.core.graph import OP
from intus.tracing.comparison.values.settings import different_arguments
from intus.tracing.comparison.values.torch_arguments import signature_of

#: How many samples of a function are compared.
_SAMPLES = 2
_AXES = ("dim", "dims", "dim0", "dim1", "start_dim", "end_dim")
#: All but those that return whatever is in the memory.
_OPERATORS = {
    op.name: op
    for op in op_db
    if ("." not in op.name or op.name.startswith("nn.functional")) and "empty" not in op.name
}


class Called(nn.Module):
    """Call a function on one tensor."""

    def __init__(self, function, *args, **kwargs):
        super().__init__()
        self.function, self.args, self.kwargs = function, args, kwargs

    def forward(self, x):
        return self.function(x, *self.args, **self.kwargs)


def traced(model, x):
    with freeze_rng_state():
        return trace(model, x)


def returned(model, x):
    """Return what a model returns; None if torch does not take these arguments."""
    try:
        with freeze_rng_state():
            return model(x)
    except Exception:
        return None


def is_same(x, y):
    """Return whether two results are the same tensors bit for bit."""
    try:
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)
    except Exception:  # also of what holds no tensors
        return False
    return isinstance(x, torch.Tensor | tuple | list)


def samples(op):
    dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
    found = itertools.islice(op.sample_inputs("cpu", dtype), _SAMPLES)
    return [one for one in found if isinstance(one.input, torch.Tensor)]


def defaults(name):
    """Yield the arguments that a function has by default, as torch states them."""
    try:
        own = signature_of(getattr(F, name, None)).parameters.values()
        yield from ((one.name, one.default) for one in own if one.default is not one.empty)
    except (TypeError, ValueError):
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
            yield from ((one.name, one.default_value) for one in schema.arguments if one.has_default_value())


def written_otherwise(op, sample):
    """Yield the call of a sample with a default written out, axes from the other end, or as a method."""
    rank, args, kwargs = sample.input.dim(), sample.args, sample.kwargs
    for name, default in defaults(op.name.rpartition(".")[2]):
        if name not in kwargs and name != "out" and not name.startswith("_"):
            yield Called(op.op, *args, **{**kwargs, name: default})
    for name in (one for one in _AXES if isinstance(kwargs.get(one), int)):
        axis = kwargs[name]
        yield Called(op.op, *args, **{**kwargs, name: axis - rank if axis >= 0 else axis + rank})
    if op.method_variant is not None:
        yield Called(op.method_variant, *args, **kwargs)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of samples of deprecated functions
@pytest.mark.parametrize("name", sorted(_OPERATORS))
def test_default_that_is_written_out_is_no_difference(name):
    op = _OPERATORS[name]
    for sample in samples(op):
        x, plain = sample.input, Called(op.op, *sample.args, **sample.kwargs)
        for other in written_otherwise(op, sample):
            if is_same(returned(plain, x), returned(other, x)):
                a, b = traced(plain, x), traced(other, x)
                for found in (compare(a, b), compare(b, a)):
                    assert found.agree, (other.kwargs, sample.args, found.attrs["summary"])


def changed(op, sample):
    """Yield calls of a sample along another axis, or with another flag."""
    rank, kwargs = sample.input.dim(), sample.kwargs
    for name in (one for one in _AXES if isinstance(kwargs.get(one), int) and rank > 1):
        yield Called(op.op, *sample.args, **{**kwargs, name: (kwargs[name] + 1) % rank})
    for name, default in defaults(op.name.rpartition(".")[2]):
        if isinstance(default, bool) and name not in ("inplace", "out"):
            yield Called(op.op, *sample.args, **{**kwargs, name: not kwargs.get(name, default)})


def reasons(a, b):
    first = compare(a, b).attrs["first"]
    return first and first["why"]


#: All functions, of which a few are compared in each run, and the others in the long sweeps.
_SWEPT = [
    pytest.param(name, marks=pytest.mark.slow if number % 20 else pytest.mark.long)
    for number, name in enumerate(sorted(_OPERATORS))
]


@pytest.mark.filterwarnings("ignore")  # of samples of deprecated functions
@pytest.mark.parametrize("name", _SWEPT)
def test_reason_does_not_depend_on_how_a_call_is_written(name):
    op = _OPERATORS[name]
    for sample in samples(op):
        x, plain = sample.input, Called(op.op, *sample.args, **sample.kwargs)
        others = [y for y in changed(op, sample) if returned(y, x) is not None]
        for written in written_otherwise(op, sample):
            if not is_same(returned(plain, x), returned(written, x)):
                continue
            for other in others:
                found = reasons(traced(plain, x), traced(other, x))
                assert found == reasons(traced(written, x), traced(other, x)), (written.kwargs, other.kwargs)
                assert not any("argument " in one or "is _" in one for one in found or ())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _SWEPT)
def test_settings_of_a_right_file_are_those_of_the_model(name, tmp_path):
    op = _OPERATORS[name]
    for sample in samples(op):
        model = Called(op.op, *sample.args, **sample.kwargs)
        if returned(model, sample.input) is None:
            continue
        try:
            torch.export.save(torch.export.export(model, (sample.input,)), tmp_path / "op.pt2")
        except Exception:  # torch exports no such function
            continue
        a, b = traced(model, sample.input).graph, intus.read(tmp_path / "op.pt2").graph
        rows = {label: row for row, label in enumerate(a.labels) if a.ops.kind[row] == OP}
        for other in (row for row, label in enumerate(b.labels) if label in rows):
            row = rows[b.labels[other]]
            assert not [*different_arguments(a, row, b, other)], (a.setting(row), b.setting(other))


X = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: F.gelu(x), nn.GELU()),
        (lambda x: F.max_pool2d(x, 2), nn.MaxPool2d((2, 2))),
        (lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2, stride=(2, 2))),
        (lambda x: F.avg_pool2d(x, 2), nn.AvgPool2d(2)),
        (lambda x: F.lp_pool2d(x, 2, 2), lambda x: F.lp_pool2d(x, 2.0, 2, stride=2)),
        (lambda x: F.softmax(x, 1), lambda x: x.softmax(-3)),
        (lambda x: x.mean((2, 3)), lambda x: torch.mean(x, dim=(-1, -2))),
        (lambda x: F.interpolate(x, scale_factor=2), lambda x: F.interpolate(x, size=(16, 16))),
        (
            lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
            lambda x: F.interpolate(x, size=16, mode="bilinear", align_corners=False),
        ),
        (lambda x: F.pad(x, (1, 1)), lambda x: F.pad(x, (1, 1), value=0.0)),
        (lambda x: x + x, lambda x: torch.add(x, x, alpha=1)),
        (lambda x: F.softplus(x), lambda x: F.softplus(x, threshold=20)),
        (lambda x: x.var(1), lambda x: x.var(dim=1, correction=1)),
        (lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2, divisor_override=4)),
        (lambda x: x.nan_to_num(posinf=1.0), lambda x: x.nan_to_num(nan=0.0, posinf=1.0)),
        (lambda x: x.mean(dim=None), lambda x: x.mean(dim=(0, 1, 2, 3))),
        (lambda x: x.std(1, unbiased=False), lambda x: torch.std(x, 1, correction=0)),
        (
            lambda x: F.scaled_dot_product_attention(x, x, x),
            lambda x: F.scaled_dot_product_attention(x, x, x, scale=8**-0.5),
        ),
    ],
)
def test_same_meaning_is_no_difference(one, other):
    assert torch.equal(one(X), other(X))
    a, b = trace(Called(one), X), trace(Called(other), X)
    for found in (compare(a, b), compare(b, a)):
        assert found.agree, found.attrs["summary"]


@pytest.mark.parametrize(
    ("one", "other", "x", "setting"),
    [
        (F.gelu, nn.GELU("tanh"), torch.zeros(4), "'none' in a, 'tanh' in b"),
        (F.softplus, lambda x: F.softplus(x, threshold=30), X, "20 in a, 30 in b"),
        (F.leaky_relu, nn.LeakyReLU(0.3), X.abs(), "0.01 in a, 0.3 in b"),
        (nn.MaxPool2d(2), nn.MaxPool2d(2, ceil_mode=True), X, "False in a, True in b"),
        (lambda x: F.avg_pool2d(x, 2), nn.AvgPool2d(2, count_include_pad=False), X, "True in a, False in b"),
        (lambda x: torch.add(x, 0 * x), lambda x: torch.add(x, 0 * x, alpha=2), X, "1 in a, 2 in b"),
        (lambda x: F.softmax(x, 0), lambda x: F.softmax(x, -1), torch.ones(3, 3), "0 in a, 1 in b"),
        (
            F.mse_loss,
            lambda x, y: F.mse_loss(x, y, reduction="sum"),
            torch.ones(1),
            "'mean' in a, 'sum' in b",
        ),
        (torch.logit, lambda x: torch.logit(x, eps=1e-6), X.sigmoid(), "None in a, 1e-06 in b"),
        (torch.nan_to_num, lambda x: torch.nan_to_num(x, nan=1.0), X, "None in a, 1.0 in b"),
        (F.hardtanh, nn.Hardtanh(-1, 2), X / 100, "1.0 in a, 2 in b"),
    ],
)
def test_other_setting_is_named_where_values_are_equal(one, other, x, setting):
    more = (x + 1,) if one is F.mse_loss else ()
    assert torch.allclose(one(x, *more), other(x, *more), atol=1e-11)
    found = compare(trace(Called(one, *more), x), trace(Called(other, *more), x))
    assert not found.agree
    assert setting in found.attrs["summary"]


class Recurrent(nn.Module):
    def __init__(self, layer, batch_first, is_turned):
        super().__init__()
        self.layer = layer(4, 5, batch_first=batch_first)
        self.is_turned = is_turned

    def forward(self, x):
        y = self.layer(x.transpose(0, 1) if self.is_turned else x)[0]
        return y.transpose(0, 1) if self.is_turned else y


@pytest.mark.parametrize("shape", [(2, 6, 4), (1, 1, 4), (1, 6, 4)])
@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM, nn.RNN])
def test_layout_of_a_recurrent_layer_is_no_difference(layer, shape):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    one, other = Recurrent(layer, True, False).eval(), Recurrent(layer, False, True).eval()
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x), other(x))
    a, b = trace(one, x), trace(other, x)
    for found in (compare(a, b), compare(b, a)):
        assert found.agree, found.attrs["summary"]


@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM, nn.RNN])
def test_layout_that_nothing_turns_is_named(layer):
    x = torch.ones(1, 1, 4)  # one row of one step: both layouts compute the same
    one, other = Recurrent(layer, True, False).eval(), Recurrent(layer, False, False).eval()
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x), other(x))
    found = compare(trace(one, x), trace(other, x))
    assert not found.agree
    assert "Batch_first is True in a, False in b" in found.attrs["summary"]


@pytest.mark.parametrize("other", [nn.AvgPool2d(2), nn.LPPool2d(2, 2)])
def test_reason_of_another_pooling_is_the_operation(other):
    found = compare(trace(Called(nn.MaxPool2d(2)), X), trace(Called(other), X))
    kind = {"AvgPool2d": "avg_pool2d", "LPPool2d": "lp_pool2d"}[type(other).__name__]
    assert found.attrs["first"]["why"] == [f"it is max_pool2d in a, {kind} in b"]


def test_reason_of_another_pooling_with_another_window():
    found = compare(trace(Called(nn.MaxPool2d(2)), X), trace(Called(nn.AvgPool2d(4, 2, 1)), X))
    assert found.attrs["first"]["why"] == [
        "it is max_pool2d in a, avg_pool2d in b",
        "kernel_size is 2 in a, 4 in b",
        "padding is 0 in a, 1 in b",
    ]


def test_reason_of_another_window_is_named():
    found = compare(trace(Called(nn.MaxPool2d(2)), X), trace(Called(nn.MaxPool2d(4, 2, 1)), X))
    assert found.attrs["first"]["why"] == ["kernel_size is 2 in a, 4 in b", "padding is 0 in a, 1 in b"]


@pytest.mark.parametrize(
    ("spellings", "others", "why"),
    [
        (
            [lambda x: F.softmax(x, dim=-1), lambda x: x.softmax(3), nn.Softmax(-1)],
            [lambda x: F.softmax(x, 1), lambda x: x.softmax(-3), lambda x: torch.softmax(x, dim=1)],
            ["dim is 3 in a, 1 in b"],
        ),
        (
            [lambda x: F.log_softmax(x, 1), lambda x: x.log_softmax(-3)],
            [lambda x: torch.log_softmax(x, dim=2), nn.LogSoftmax(2)],
            ["dim is 1 in a, 2 in b"],
        ),
        (
            [lambda x: x.sum((1, 2)), lambda x: torch.sum(x, dim=(-2, 1))],
            [lambda x: x.sum((1, 3)), lambda x: torch.sum(x, dim=[-1, 1])],
            ["dim is (1, 2) in a, (1, 3) in b"],
        ),
        (
            [lambda x: x.cumsum(1), lambda x: torch.cumsum(x, dim=-3)],
            [lambda x: x.cumsum(dim=0), lambda x: torch.cumsum(x, 0)],
            ["dim is 1 in a, 0 in b"],
        ),
        (
            [F.gelu, nn.GELU(), lambda x: F.gelu(x, approximate="none")],
            [nn.GELU("tanh"), lambda x: F.gelu(x, approximate="tanh")],
            ["approximate is 'none' in a, 'tanh' in b"],
        ),
        (
            [lambda x: x.std(1), lambda x: torch.std(x, 1, correction=1)],
            [lambda x: x.std(1, unbiased=False), lambda x: torch.std(x, dim=1, correction=0)],
            ["correction is 1 in a, 0 in b"],
        ),
        (
            [lambda x: F.layer_norm(x, (8,)), nn.LayerNorm(8, elementwise_affine=False)],
            [lambda x: F.layer_norm(x, (8,), torch.full((8,), 2.0))],
            ["weight is None in a, a tensor in b"],
        ),
        (
            [lambda x: torch.cat((x, x), 1), lambda x: torch.cat([x, x], dim=-3)],
            [lambda x: torch.cat((x, x), 3), lambda x: torch.cat([x, x], -1)],
            ["its shape is (2, 8, 8, 8) in a, (2, 4, 8, 16) in b", "dim is 1 in a, 3 in b"],
        ),
    ],
)
def test_reason_is_what_settings_mean(spellings, others, why):
    for one in spellings:
        for other in others:
            assert reasons(trace(Called(one), X), trace(Called(other), X)) == why


def test_functions_without_modules_that_differ_in_shape_are_compared():
    found = compare(
        trace(lambda x: torch.cat((x, -x), 1).sum(), X), trace(lambda x: torch.cat([x, x], dim=-1).sum(), X)
    )
    assert not found.agree


class Between(nn.Module):
    """Call a function between two layers, of which the first returns small numbers."""

    def __init__(self, function):
        super().__init__()
        self.one, self.function, self.two = nn.Conv2d(4, 4, 1), function, nn.Conv2d(4, 2, 1)
        self.one.weight.data *= 1e-3
        self.one.bias.data *= 1e-3

    def forward(self, x):
        return self.two(self.function(self.one(x)))


#: Two settings of a function, one of them the default, that return nearly the same of small numbers.
_HIDDEN = [
    (F.gelu, lambda x: F.gelu(x, approximate="tanh"), "approximate", "'none'", "'tanh'"),
    (F.softplus, lambda x: F.softplus(x, threshold=30), "threshold", "20", "30"),
    (F.leaky_relu, lambda x: F.leaky_relu(x, 0.0100001), "negative_slope", "0.01", "0.0100001"),
    (F.elu, lambda x: F.elu(x, 1.00001), "alpha", "1.0", "1.00001"),
    (
        lambda x: torch.layer_norm(x, (8,)),
        lambda x: torch.layer_norm(x, (8,), eps=1.0001e-5),
        "eps",
        "1e-05",
        "1.0001e-05",
    ),
    (
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, 2, ceil_mode=True),
        "ceil_mode",
        "False",
        "True",
    ),
    (torch.nan_to_num, lambda x: torch.nan_to_num(x, posinf=1.0), "posinf", "None", "1.0"),
]


@pytest.mark.parametrize(("default", "stated", "name", "one", "two"), _HIDDEN)
def test_default_that_the_model_or_the_file_leaves_out_hides_no_other_setting(
    default, stated, name, one, two, tmp_path
):
    for model, exported, texts in ((default, stated, (one, two)), (stated, default, (two, one))):
        torch.manual_seed(0)
        net, wrong = Between(model).eval(), Between(exported).eval()
        wrong.load_state_dict(net.state_dict())
        for file, is_right in ((wrong, False), (net, True)):
            torch.export.save(torch.export.export(file, (X,)), tmp_path / "net.pt2")
            found = intus.check_export(net, tmp_path / "net.pt2", X)
            assert bool(found) is is_right, str(found)
            if not is_right:
                assert name in str(found)
                assert f"{texts[0]} in " in str(found)
                assert f"{texts[1]} in " in str(found)
