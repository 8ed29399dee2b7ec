"""intus.validate(against="autograd"): autograd's edges are those of the graph."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformer_models import gpt2, t5
from zoo_models import ZOO, make

import intus
from intus.core.errors import InputError
from intus.tracing.capture.call_log import CallLog
from intus.tracing.capture.writes import Writes


def judged(model, *args, **options):
    return intus.validate(model, *args, against="autograd", fidelity=False, **options)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", list(ZOO))
def test_zoo_agrees_with_autograd(name, training):
    report = judged(*make(name, training))
    assert report, str(report)
    assert report.autograd.confirmed > 2
    assert report.autograd.missing == ()


@pytest.mark.parametrize("build", [gpt2, t5], ids=lambda build: build.__name__)
def test_transformers_agree_with_autograd(build):
    torch.manual_seed(0)
    model, inputs = build()
    report = judged(model.eval(), inputs)
    assert report, str(report)
    assert report.autograd.confirmed > 3 * (report.autograd.no_gradient + report.autograd.no_derivative)


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return x.sign() * 2

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def custom_function(x):
    return Straight.apply(x * 2, x.sum()) + x


def views_and_writes(x):
    y = x * 2
    first, second = y[:2], y[2:]
    first.mul_(x[:2])
    z = second.sin()
    second.add_(z)
    y.t()[0] = x[:, 0].exp()
    return y.sum() + first.cos().sum() + z.sum()


def in_the_input(x):
    x.mul_(3)
    x[:2].add_(1)
    return F.relu(x, inplace=True).sum()


def parts(x):
    a, b = x.chunk(2)
    low, high = torch.aminmax(a)
    return (low + high) * b + torch.stack(x.unbind()).sum()


def gradient_inside(x):
    energy = (x.sin() * x).sum()
    (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
    return gradient * x


def without_gradients(x):
    with torch.no_grad():
        y = x * 2
    return y + x.detach() * x


@pytest.mark.parametrize(
    "function",
    [custom_function, views_and_writes, in_the_input, parts, gradient_inside, without_gradients],
)
def test_special_cases_agree_with_autograd(function):
    torch.manual_seed(0)
    report = judged(function, torch.rand(4, 3))
    assert report, str(report)
    assert report.autograd.confirmed > 1


class ReturnsItsParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x), self.linear.weight


class UsesAReturnedParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = ReturnsItsParameter()

    def forward(self, x):
        y, weight = self.inner(x)
        return y @ weight


@pytest.mark.parametrize("model", [ReturnsItsParameter, UsesAReturnedParameter])
def test_returned_parameter_counts_as_the_parameter(model):
    report = judged(model(), torch.rand(2, 3))
    assert report, str(report)
    assert report.autograd.confirmed >= 2


def test_results_of_one_call_do_not_depend_on_one_another():
    """``torch.lstm_cell`` computes one of its results from the other, in one call."""
    state = torch.rand(2, 3), torch.rand(2, 3)
    report = judged(nn.LSTMCell(3, 3), torch.rand(2, 3), state)
    assert report, str(report)
    assert str(report.autograd).startswith("autograd: 8 of 8 edges confirmed")


def test_lost_argument_behind_another_result_is_missing(monkeypatch):
    """The hidden state of ``torch.lstm_cell`` is computed from ``x`` only through the cell state."""

    def noted(self, func, args, kwargs, inputs):
        if func is torch.lstm_cell:
            del inputs[:2]
        return plain(self, func, args, kwargs, inputs)

    plain = CallLog.logged_call
    monkeypatch.setattr(CallLog, "logged_call", noted)
    state = torch.rand(2, 3), torch.rand(2, 3)
    report = judged(nn.LSTMCell(3, 3), torch.rand(2, 3).sin(), state)
    assert len(report.autograd.missing) == 2, str(report)


def test_state_is_restored():
    model, x = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.randn(4, 3)
    model[0].weight.requires_grad_(False)
    values = x.clone()
    report = intus.validate(lambda x: model(x.mul_(2)), x, against="autograd")
    assert report, str(report)
    assert (x.requires_grad, x.grad_fn, torch.equal(x, values)) == (False, None, True)
    assert [p.requires_grad for p in model.parameters()] == [False, True, True, True]
    assert all(p.grad is None for p in model.parameters())


def test_frozen_parameters_are_followed():
    model = nn.Linear(3, 3).requires_grad_(False)
    with torch.inference_mode():
        report = judged(model, torch.ones(1, 3))
    assert report.autograd.confirmed == 2
    assert not any(p.requires_grad for p in model.parameters())


def test_edges_beyond_autograd_are_counted():
    report = judged(lambda x: (x > 0).float() + x.argmax(), torch.randn(3))
    assert str(report).splitlines()[-1] == (
        "autograd: 0 of 6 edges confirmed, none missing; not judged: 6 without a gradient"
    )


# -- wrong recordings ------------------------------------------------------------------------------------


def test_lost_argument_is_missing(monkeypatch):
    """The recorder overlooks an argument, in the graph and in the notes."""

    def noted(self, func, args, kwargs, inputs):
        if func is torch.sub:
            del inputs[2:]
        return plain(self, func, args, kwargs, inputs)

    plain = CallLog.logged_call
    monkeypatch.setattr(CallLog, "logged_call", noted)
    report = judged(lambda x: torch.sub(x.sin(), x.cos()), torch.rand(3))
    assert report.autograd.missing == (
        "sub_1_3: autograd computes it also from cos_1_2, which the graph does not",
    )
    assert [check.label for check in report.failed] == ["sub_1_3"]


def test_lost_parameter_is_missing(monkeypatch):
    def noted(self, func, args, kwargs, inputs):
        if func is F.linear:
            del inputs[2:4]
        return plain(self, func, args, kwargs, inputs)

    plain = CallLog.logged_call
    monkeypatch.setattr(CallLog, "logged_call", noted)
    report = judged(nn.Linear(3, 3), torch.rand(1, 3))
    assert report.autograd.missing == (
        "linear_1_1: autograd computes it also from weight, which the graph does not",
    )


def test_lost_write_through_a_view_is_missing(monkeypatch):
    def forward(x):
        y = x.sin()
        y[:2].mul_(x.cos()[:2])
        return y.exp()

    monkeypatch.setattr(Writes, "writers", lambda self, t, offset: [])
    report = judged(forward, torch.rand(3))
    assert any("exp_1" in sentence and "mul_1" in sentence for sentence in report.autograd.missing), str(
        report
    )


def test_wrong_parent_is_missing(monkeypatch):
    def noted(self, func, args, kwargs, inputs):
        if func is torch.sub:
            inputs[2] = inputs[0]
        return plain(self, func, args, kwargs, inputs)

    plain = CallLog.logged_call
    monkeypatch.setattr(CallLog, "logged_call", noted)
    report = judged(lambda x: torch.sub(x.sin(), x.cos()), torch.rand(3))
    assert "sub_1_3: autograd computes it also from cos_1_2" in report.autograd.missing[0]


def test_argument_without_derivative_is_counted():
    report = judged(
        lambda x: torch.zeros_like(x.sin()).expand_as(x) + x.exp().expand_as(x.cos()), torch.ones(3)
    )
    assert str(report).splitlines()[-1] == (
        "autograd: 6 of 11 edges confirmed, none missing; not judged: 4 without a gradient, "
        "1 without a derivative"
    )


def test_view_of_input_that_forward_lets_require_a_gradient():
    """As the feature extractor of Wav2Vec2 in training."""

    class Extractor(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(1, 2, 3)

        def forward(self, x):
            hidden = x[:, None]
            hidden.requires_grad = True
            return self.conv(hidden).relu()

    x = torch.randn(2, 8)
    report = intus.validate(Extractor(), x, against="autograd")
    assert report
    assert report.autograd.confirmed == 2  # conv1d to relu to the output; before it is no gradient
    assert not report.autograd.missing
    assert not x.requires_grad


def test_invalid_against_is_refused():
    with pytest.raises(InputError, match="against='export' is not one of"):
        intus.validate(nn.ReLU(), torch.ones(2), against="export")


# -- random programs -------------------------------------------------------------------------------------


def program(seed):
    """Return a function that makes views, writes through them and calls functions, at random."""

    def forward(x):
        draw = random.Random(seed)
        live = [x.sin()]
        for _ in range(24):
            one, other = draw.choice(live), draw.choice(live)
            match draw.randrange(8):
                case 0:
                    live.append(one[draw.randrange(2) :])
                case 1:
                    live.append(one.t())
                case 2:
                    live.append(one.cos() * other.sum())
                case 3:
                    one.mul_(other.mean())
                case 4:
                    one[0] = other.sum()
                case 5:
                    one.narrow(0, 0, 1).add_(other.max())
                case 6:
                    live.append(one.reshape(-1)[:2] + other.min())
                case 7:
                    live.append(one.clone())
            live = [t for t in live if t.numel() and t.dim()]
        return [t.sum() for t in live]

    return forward


@pytest.mark.parametrize("seed", range(40))
def test_random_program_agrees_with_autograd(seed):
    torch.manual_seed(seed)
    report = judged(program(seed), torch.rand(3, 3))
    assert not report.failed, str(report)
    assert report.autograd.missing == ()
    assert report.autograd.confirmed >= 10


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_results_of_one_call(cell):
    """An LSTM cell computes its hidden state from its other result, which is not a parent."""
    report = judged(cell(3, 4), torch.randn(2, 3))
    assert report, str(report)
    assert report.autograd.missing == ()


def test_input_without_derivative_is_explained():
    with pytest.raises(RuntimeError, match="not differentiable with respect to argument 'target'") as caught:
        judged(nn.SoftMarginLoss(), torch.randn(3), torch.ones(3))
    assert "every input of floating point requires gradients" in "".join(caught.value.__notes__)
