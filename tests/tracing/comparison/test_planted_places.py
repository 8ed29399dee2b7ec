"""``compare`` of models with one planted difference: the place is the same in both orders, and holds."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import intus
from intus.tracing.comparison.pairing.moves import with_unmoved

WIDTH = 8


class InSteps(nn.Module):
    """A layer norm in steps, with its weight and bias folded into two factors."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        factor = torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5) * self.weight
        return x * factor + (self.bias - mean * factor)


class Block(nn.Module):
    """Layers in an order, with or without a residual around them."""

    def __init__(self, order, norm=nn.LayerNorm, *, residual=False):
        super().__init__()
        self.c, self.n, self.act, self.out = (
            nn.Linear(WIDTH, WIDTH),
            norm(WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 3),
        )
        self.order, self.residual = order, residual

    def forward(self, x):
        y = x
        for name in self.order.split():
            y = x + y if name == "add" else getattr(self, name)(y)
        return self.out(y)


class Attention(nn.Module):
    def __init__(self, fill=-1e9, dim=-1, way="softmax"):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.fill, self.dim, self.way = fill, dim, way

    def forward(self, x):
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(WIDTH)
        if self.way == "masked afterwards":
            parts = scores.softmax(self.dim) * ~future
            return self.out((parts / parts.sum(self.dim, keepdim=True)) @ self.v(x))
        scores = scores.masked_fill(future, self.fill)
        if self.way == "softmax":
            return self.out(scores.softmax(self.dim) @ self.v(x))
        parts = (scores - scores.amax(self.dim, keepdim=True)).exp()
        sums = parts.sum(self.dim, keepdim=True)
        return self.out((parts @ self.v(x)) / sums if self.way == "late" else (parts / sums) @ self.v(x))


class Pooled(nn.Module):
    def __init__(self, pool, *, turned=False):
        super().__init__()
        self.c, self.pool, self.fc, self.turned = nn.Conv2d(1, 2, 1), pool, nn.Linear(18, 3), turned

    def forward(self, x):
        y = self.pool(self.c(x))
        return self.fc((y.transpose(2, 3) if self.turned else y).flatten(1))


class Joined(nn.Module):
    """A net of images, with the channels first or last between its layers."""

    def __init__(self, *, last=False):
        super().__init__()
        self.e, self.c, self.d = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(16, 2, 1)
        self.last = last

    def call(self, layer, x):
        return layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) if self.last else layer(x)

    def forward(self, x):
        x = self.call(self.e, x)
        return self.call(self.d, torch.cat([self.call(self.c, x), x], 3 if self.last else 1))


def both_orders(one, other, x):
    """Return the comparisons of two models with the same weights in both orders, which hold the rules."""
    other.load_state_dict(one.state_dict())
    a, b = (intus.trace(model.eval(), x) for model in (one, other))
    found = [intus.compare(a, b), intus.compare(b, a)]
    for comparison in found:
        holds_rules(comparison)
    firsts = [comparison.attrs["first"] for comparison in found]
    assert len({first and first["module"] for first in firsts}) == 1, firsts
    return firsts


def holds_rules(comparison):
    """Check what no comparison may say, whatever was compared."""
    assert not ((comparison.verdict == "equal") & comparison.is_source).any(), comparison
    first = comparison.attrs["first"]
    for reason in [] if first is None else first["why"]:
        assert re.match(r"\S", reason), reason
        same = re.match(r"a runs (.*) where b runs (.*)", reason)
        assert same is None or same[1] != same[2], reason


ORDERS = ["c n act", "act c n", "c act n", "n c act", "c n", "c n act add", "c add n act", "add c n act"]
PAIRS = [(one, other) for i, one in enumerate(ORDERS) for other in ORDERS[i + 1 :]]


def randomize(model, seed):
    """Give norms other weights than 1 and 0, as training does."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.startswith("n."):
                p.add_(0.5 * torch.rand(p.shape))
    return model


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("is_random", [False, True])
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_both_orders_name_one_module_of_blocks_in_other_orders(one, other, is_random, positive):
    torch.manual_seed(0)
    a, b = Block(one), Block(other)
    a = randomize(a, 1) if is_random else a
    x = torch.rand(2, 3, WIDTH) if positive else torch.randn(2, 3, WIDTH)
    b.load_state_dict(a.state_dict())
    first, _ = both_orders(a, b, x)
    if not torch.allclose(a(x), b(x), atol=1e-5):
        assert first is not None


def test_layers_called_in_another_order_are_not_named():
    torch.manual_seed(0)
    for x in (torch.rand(3, WIDTH), torch.randn(3, WIDTH)):
        for first in both_orders(Block("c n act"), Block("act c n"), x):
            assert first["module"] == "", first
            assert first["why"][0].startswith("its inputs are others: "), first


@pytest.mark.parametrize("is_random", [False, True])
@pytest.mark.parametrize("norms", [(nn.LayerNorm, InSteps), (InSteps, nn.LayerNorm), (InSteps, InSteps)])
def test_missing_residual_is_not_a_fault_of_the_norm_after_it(norms, is_random):
    torch.manual_seed(0)
    a, b = Block("c add n", norms[0]), Block("c n", norms[1])
    a = randomize(a, 1) if is_random else a
    x = torch.randn(2, 6, WIDTH)
    first, turned = both_orders(a, b, x)
    assert first["module"] == "", first
    assert first["why"] == ["add_1_2 ran only in a"], first
    assert turned["why"] == ["add_1_2 ran only in b"], turned


@pytest.mark.parametrize("fills", [(-1e9, -math.inf), (-math.inf, -1e9), (-1e4, -1e9), (-1e9, -1e9)])
def test_mask_that_makes_no_difference_is_not_named_before_the_softmax(fills):
    torch.manual_seed(0)
    x = torch.randn(2, 5, WIDTH)
    a, b, masked = Attention(fills[0]), Attention(fills[1], -2), Attention(fills[1])
    masked.load_state_dict(a.state_dict())
    assert torch.equal(a(x), masked(x))
    for first in both_orders(a, b, x):
        assert first["a"].startswith("softmax"), first


def test_mask_that_makes_a_difference_is_named_before_the_softmax():
    torch.manual_seed(0)
    for first in both_orders(Attention(-0.5), Attention(-math.inf, -2), torch.randn(2, 5, WIDTH)):
        assert first["a"].startswith("masked_fill"), first


WAYS = ["softmax", "in steps", "late", "masked afterwards"]


class Around(nn.Module):
    """A model around an attention, of which the layers are modules and the rest is not."""

    def __init__(self, way):
        super().__init__()
        self.att = Attention(way=way)

    def forward(self, x):
        return x + self.att(x)


@pytest.mark.parametrize(("way", "other"), [(one, other) for one in WAYS for other in WAYS if one != other])
def test_steps_of_a_softmax_in_another_way_are_not_paired(way, other):
    torch.manual_seed(0)
    a, b = Around(way), Around(other)
    b.load_state_dict(a.state_dict())
    x = torch.randn(2, 5, WIDTH)
    assert torch.allclose(a(x), b(x), atol=1e-6)
    comparison = intus.compare(intus.trace(a, x), intus.trace(b, x))
    holds_rules(comparison)
    assert comparison.attrs["first"] is None
    assert not comparison.verdict.isin(["differs", "shape"]).any(), comparison


def test_transposition_after_a_pool_is_outside_of_it():
    torch.manual_seed(0)
    for first in both_orders(
        Pooled(nn.AvgPool2d(2)), Pooled(nn.AdaptiveAvgPool2d(3), turned=True), torch.randn(2, 1, 6, 6)
    ):
        assert first["module"] == "", first


@pytest.mark.parametrize("is_second", [False, True])
def test_result_is_paired_with_what_the_other_pass_transposes(is_second):
    torch.manual_seed(0)
    a, b = Pooled(nn.AvgPool2d(2)), Pooled(nn.AvgPool2d(2), turned=True)
    b.load_state_dict(a.state_dict())
    x = torch.randn(2, 1, 6, 6)
    one, other = intus.trace(a, x), intus.trace(b, x)
    rows = [
        [t.graph.labels.index(label) for label in labels] for t, labels in ((one, LABELS), (other, TURNED))
    ]
    wrong = [*zip(rows[0], [*rows[1][:2], rows[1][3]], strict=True), (-1, rows[1][2])]
    right = [*zip(rows[0], rows[1][:3], strict=True), (-1, rows[1][3])]
    if is_second:
        one, other = other, one
        wrong, right = ([(i, j) for j, i in some] for some in (wrong, right))
    found = with_unmoved(one, other, wrong)
    assert {*right} <= {*found}


LABELS = ["input_1", "conv2d_1_1", "avg_pool2d_1_2"]
TURNED = [*LABELS, "transpose_1_3"]


@pytest.mark.parametrize("factor", [1.1, 1.000005])
def test_cat_of_another_layout_is_no_source(factor):
    torch.manual_seed(0)
    a, b, x = Joined(), Joined(last=True), torch.randn(2, 3, 8, 8)
    b.load_state_dict(a.state_dict())
    last = x.permute(0, 2, 3, 1).contiguous()
    assert torch.allclose(a(x), b(last).permute(0, 3, 1, 2), atol=1e-6)
    with torch.no_grad():
        b.c.weight *= factor
    traces = [intus.trace(a, x), intus.trace(b, last)]
    for some in (traces, traces[::-1]):
        comparison = intus.compare(*some)
        holds_rules(comparison)
        assert comparison.attrs["first"]["module"] == "c"
        assert not comparison[comparison.a.str.startswith("cat")].is_source.any(), comparison


class InStepsOfBatch(nn.Module):
    """A batch norm in steps, in evaluation mode, with other names."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))

    def forward(self, x):
        return (x - self.mean) * (torch.rsqrt(self.var + 1e-5) * self.weight) + self.bias


@pytest.mark.parametrize(("name", "other"), [("running_mean", "mean"), ("running_var", "var")])
def test_changed_statistic_of_a_batch_norm_is_the_reason(name, other):
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(4, WIDTH), nn.BatchNorm1d(WIDTH)).eval()
    b = nn.Sequential(nn.Linear(4, WIDTH), InStepsOfBatch(WIDTH))
    with torch.no_grad():
        a[1].running_mean.normal_()
        a[1].running_var.uniform_(0.5, 2)
        b[0].load_state_dict(a[0].state_dict())
        b[1].mean.copy_(a[1].running_mean)
        b[1].var.copy_(a[1].running_var)
        getattr(b[1], other).mul_(1.05)
    x = torch.randn(5, 4)
    traces = [intus.trace(model, x) for model in (a, b)]
    for k, some in enumerate((traces, traces[::-1])):
        comparison = intus.compare(*some)
        holds_rules(comparison)
        first = comparison.attrs["first"]
        names = (f"1.{name}", f"1.{other}")[:: -1 if k else 1]
        assert first["module"] == "1"
        assert first["why"][0].startswith(f"{names[0]} of a and {names[1]} of b differ by 0.048"), first


def test_softmax_of_other_axes_of_a_functional_model_is_found():
    x = torch.randn(3, 4)
    a, b = (intus.trace(lambda x, dim=dim: F.softmax(x.sin(), dim), x) for dim in (0, 1))
    for first in (intus.compare(a, b).attrs["first"], intus.compare(b, a).attrs["first"]):
        assert first["a"].startswith("softmax")
