"""``compare`` of two passes of which one takes another step: what differs is never called rounding.

What the two passes return tells which of them differ.
"""

import random

import pytest
import torch
from torch import nn

import intus
from intus import compare

STEPS = [
    *(torch.relu, torch.neg, lambda v: v.transpose(0, 1), lambda v: torch.cat((v, v), 0)),
    *(lambda v: torch.cat((v, -v), 1), lambda v: v.softmax(-1), lambda v: v.sum(0, keepdim=True)),
    *(lambda v: v.reshape(-1, 1), lambda v: v @ v.T, lambda v: v[:2], lambda v: v * 2 + 1),
    *(lambda v: torch.stack([v, v.exp()]).sum(0), lambda v: v.chunk(2)[0]),
    *(lambda v: v.mean(1, keepdim=True) * v, lambda v: torch.where(v > 0, v, v * 0.1)),
    lambda v: v.max(1, keepdim=True)[0] + v,
]
CHANGES = ["swap", "drop", "add", "other", "none"]


def function_of(steps, seed):
    """Return a function of some steps, each on one of the last two results.

    Those that do not fit are left out.
    """

    def f(x):
        choose, found = random.Random(seed), [x]
        for step in steps:
            given = choose.choice(found[-2:])
            try:
                found.append(STEPS[step](given))
            except (RuntimeError, IndexError):
                continue
        return found[-1]

    return f


def changed(steps, change, choose):
    """Return some steps with one changed."""
    found, at = list(steps), choose.randrange(len(steps))
    if change == "swap":
        other = choose.randrange(len(found))
        found[at], found[other] = found[other], found[at]
    elif change == "drop" and len(found) > 1:
        del found[at]
    elif change == "add":
        found.insert(at, choose.randrange(len(STEPS)))
    elif change == "other":
        found[at] = choose.randrange(len(STEPS))
    return found


@pytest.mark.parametrize("seed", range(100))
def test_functions_without_modules_differ_where_their_results_do(seed):
    choose = random.Random(seed)
    steps = [choose.randrange(len(STEPS)) for _ in range(choose.randint(1, 6))]
    f = function_of(steps, seed)
    g = function_of(changed(steps, CHANGES[seed % len(CHANGES)], choose), seed)
    torch.manual_seed(seed)
    x = torch.randn(3, 4)
    y, z = f(x), g(x)
    comparison = compare(intus.trace(f, x), intus.trace(g, x))
    if y.shape != z.shape or (y - z).norm() > 1e-2 * max(y.norm(), z.norm()):
        assert comparison.attrs["first"] is not None, comparison.attrs["summary"]
        assert not comparison.agree


@pytest.mark.parametrize(
    ("f", "g", "only"),
    [
        (lambda x: torch.cat((x, -x), 1), lambda x: torch.cat((x, x), 2), "neg"),
        (
            lambda x: (x @ x.transpose(1, 2)).softmax(-1) @ x.exp(),
            lambda x: (x @ x).softmax(-1) @ x[:, :, :2],
            "transpose",
        ),
    ],
)
def test_functions_without_modules_may_return_another_shape(f, g, only):
    x = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
    for some in ((f, g), (g, f)):
        first = compare(*(intus.trace(one, x) for one in some)).attrs["first"]
        assert (first["a"] or first["b"]).startswith(only), first


class Net(nn.Module):
    """A convolution and a linear layer, with a step between them."""

    def __init__(self, step):
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.step, self.head = nn.Conv2d(2, 3, 3), step, nn.Linear(12, 2)

    def forward(self, x):
        return self.head(self.step(self.conv(x)))


VIEWS = {
    "flatten": lambda h: h.flatten(2).view(-1, 12),
    "flatten twice": lambda h: h.flatten(2).flatten(1),
    "unsqueeze": lambda h: h.unsqueeze(1).view(-1, 12),
    "view twice": lambda h: h.view(-1, 3, 4).view(-1, 12),
    "clone": lambda h: h.clone().view(-1, 12),
}
FAULTS = {
    "transpose": lambda h: h.transpose(2, 3).contiguous(),
    "neg": torch.neg,
    "flip": lambda h: h.flip(3),
    "roll": lambda h: h.roll(1, 1),
    "softmax": lambda h: h.softmax(1),
}


def images():
    return torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("view", VIEWS)
def test_step_before_a_view_is_no_rounding(view, fault):
    right = VIEWS[view]
    last = (lambda h: h.flatten(1)) if view == "flatten twice" else (lambda h: h.view(-1, 12))
    wrong = FAULTS[fault]
    models = Net(right), Net(lambda h: last(wrong(h)))
    a, b = (intus.trace(model, images()) for model in models)
    for some in ((a, b), (b, a)):
        comparison = compare(*some)
        first = comparison.attrs["first"]
        assert first is not None, comparison.attrs["summary"]
        assert fault in str(first["why"]), first
        assert not comparison[comparison.verdict == "close"].relative.gt(1e-5).any(), comparison


def test_reason_of_a_step_before_a_view_of_a_file_is_known(tmp_path):
    model = Net(lambda h: FAULTS["transpose"](h).view(-1, 12)).eval()
    torch.export.save(torch.export.export(model, (images(),)), tmp_path / "net.pt2")
    report = intus.check_export(Net(VIEWS["flatten"]).eval(), tmp_path / "net.pt2", images())
    assert not report
    assert "transpose" in str(report.first["why"])


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("other", VIEWS)
def test_views_of_the_same_elements_in_one_order_agree(view, other):
    a, b = (intus.trace(Net(VIEWS[one]), images()) for one in (view, other))
    comparison = compare(a, b)
    assert comparison.agree, comparison.attrs["summary"]


def both_comparisons(f, g, x):
    """Return the comparisons of two functions in both orders."""
    a, b = intus.trace(f, x), intus.trace(g, x)
    return [compare(a, b), compare(b, a)]


def test_what_rounding_leaves_of_zero_explains_no_larger_numbers():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))

    def f(x):
        h = torch.cat((x, -x), 1)
        return h.mean(1, keepdim=True) * h

    def g(x):
        h = torch.cat((x, -x), 1)
        return h.amax(1, keepdim=True) + h

    assert f(x).norm() < 1e-6 < 1 < g(x).norm()
    for comparison in both_comparisons(f, g, x):
        assert comparison.attrs["first"] is not None, comparison.attrs["summary"]
        assert (comparison.verdict == "close").sum() == 0, comparison


def test_other_roundings_of_zero_are_explained():
    x = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))

    def f(x):
        return (x.softmax(-1).sum(-1) - 1).tanh()

    def g(x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return ((e / e.sum(-1, keepdim=True)).sum(-1) - 1).tanh()

    assert (f(x) - g(x)).norm() > 0.1 * f(x).norm()
    for comparison in both_comparisons(f, g, x):
        assert comparison.attrs["first"] is None, comparison.attrs["summary"]


def standardized(h):
    """Return columns less their mean, divided by their deviation, by steps."""
    return (h - h.mean((0, 1))) / (h.var((0, 1), unbiased=False) + 1e-5).sqrt()


def norm_of_columns(h):
    """Return the same by a batch norm."""
    return torch.batch_norm(h.mT, None, None, None, None, True, 0.0, 1e-5, False).mT


@pytest.mark.parametrize("seed", range(5))
def test_step_before_a_norm_of_numbers_far_from_zero_is_no_rounding(seed):
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(seed))

    def right(x, norm):
        return norm(x * 0.01 + 100)

    def wrong(x, norm):
        return norm((x * 0.01 + 100).mT.reshape(2, 4, 8))

    def found(*some):
        (f, norm), (g, other) = some
        return both_comparisons(lambda x: f(x, norm), lambda x: g(x, other), x)

    exact = [f(x.double(), standardized) for f in (right, wrong)]
    assert (exact[0] - exact[1]).norm() > 0.5 * exact[0].norm()
    for comparison in found((right, standardized), (wrong, norm_of_columns)):
        assert comparison.attrs["first"] is not None, comparison.attrs["summary"]
    for comparison in found((right, standardized), (right, norm_of_columns)):
        assert comparison.attrs["first"] is None, comparison.attrs["summary"]


class NearlyConstant(nn.Module):
    """An activation of nearly constant rows, which a layer norm amplifies."""

    def __init__(self, activation):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.activation = nn.Linear(8, 8), nn.LayerNorm(8, eps=1e-12), activation
        with torch.no_grad():
            self.first.weight.mul_(1e-6)
            self.first.bias.fill_(0.05)

    def forward(self, x):
        return self.norm(self.activation(self.first(x)))


def test_other_formula_that_is_amplified_is_not_said_to_be_rounding():
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))

    def tanh(v):
        return 0.5 * v * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (v + 0.044715 * v**3)))

    models = NearlyConstant(nn.functional.gelu), NearlyConstant(tanh)
    y, z = (model(x) for model in models)
    assert (y - z).norm() > 1e-3 * y.norm()
    for comparison in both_comparisons(*models, x):
        summary = comparison.attrs["summary"]
        assert not comparison.agree
        assert "not proven to be rounding, because" in summary, summary
        assert "rounding, amplified" not in summary, summary
        assert "within rounding error" not in summary, summary
