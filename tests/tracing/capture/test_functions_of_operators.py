"""Traces of operators that are given functions: ``torch.cond`` and torch's loops, with gradients."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_rows

from intus import trace, validate


class Net(nn.Module):
    def __init__(self, step):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.step = step

    def forward(self, x):
        return self.step(self, x)


def one_branch(net, x):
    h = net.first(x)
    return torch.cond(h.sum() > 0, lambda h: net.one(h), lambda h: h - 1, (h,))


def both_branches(net, x):
    h = net.first(x)
    return torch.cond(h.sum() > 0, lambda h: net.one(h), lambda h: net.other(h), (h,))


def of_an_input(net, x):
    return torch.cond(x.sum() > 0, lambda x: net.one(x), lambda x: net.other(x) - 1, (x,))


def nested(net, x):
    def inner(h):
        return torch.cond(h.mean() > 0, lambda h: net.one(h), lambda h: h * 2, (h,))

    h = net.first(x)
    return torch.cond(h.sum() > 0, inner, lambda h: net.other(h), (h,))


def loop(net, x):
    def body(i, h):
        return i + 1, torch.tanh(net.one(h)) + 0.1

    return while_loop(lambda i, h: i < 3, body, (torch.tensor(0), net.first(x)))[1]


def scanned(net, x):
    h = net.first(x)
    return scan(lambda carry, row: (torch.tanh(net.one(carry)) + row, carry * 2), h[0], h, dim=0)[1]


def mapped(net, x):
    return map_rows(lambda row, all_rows: net.one(row) * all_rows.sum(), net.first(x), x)


STEPS = {
    "cond": (one_branch, both_branches, of_an_input, nested),
    "while_loop": (loop,),
    "scan": (scanned,),
    "map_impl": (mapped,),
}
CASES = [(kind, step) for kind, steps in STEPS.items() for step in steps]
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's compiler, which plain calls of these run


def gradients(net, output):
    net.zero_grad()
    output.pow(2).sum().backward()
    # A branch that was not taken has no gradients or zeros, which is the same to an optimizer without state.
    return [torch.zeros_like(one) if one.grad is None else one.grad.clone() for one in net.parameters()]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("kind", "step"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_values_and_gradients_are_those_without_a_trace(kind, step, sign):
    net, x = Net(step), X * sign
    wanted = net(x)
    found = trace(net, x, grads=True)
    torch.testing.assert_close(found.output, wanted)
    assert found.find(kind)[0].parents
    for mine, own in zip(gradients(net, found.output), gradients(net, wanted), strict=True):
        torch.testing.assert_close(mine, own)


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("kind", "step"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_operators_are_recorded_in_any_mode(kind, step, grad, is_frozen):
    net = Net(step).requires_grad_(not is_frozen)
    with torch.set_grad_enabled(grad):
        found = trace(net, X)
        torch.testing.assert_close(found.outputs[0].value, net(X).detach())
    assert kind in {op.type for op in found.ops}


@pytest.mark.parametrize(("kind", "step"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_operators_are_valid_with_gradients(kind, step):
    report = validate(
        Net(step), X, fidelity=False
    )  # a plain call is compiled, and a scan then rounds otherwise
    assert report, report


def test_operators_of_torch_are_restored():
    operator = torch._ops._higher_order_ops["cond"]
    before = dict(operator.py_kernels), type(operator).__call__
    trace(Net(both_branches), X)
    assert (dict(operator.py_kernels), type(operator).__call__) == before
