"""``compare`` of layer norms of inputs far from 0 with passes that compute the variance as a difference.

The values of those passes are what numpy computes in float32; in float64 both ways give the same.
"""

import numpy as np
import pytest
import torch
from torch import nn

import intus
from intus import compare
from intus.core.building import GraphBuilder, Scope

EPS = 1e-6
MEANS = [0, 5, 10, 30, 100]


class ByHand(nn.LayerNorm):
    """A layer norm of single operations."""

    def forward(self, x):
        """Return the input, normalized."""
        centered = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt((centered * centered).mean(-1, keepdim=True) + self.eps)
        return centered * scale * self.weight + self.bias


class Net(nn.Module):
    """A layer norm and a linear layer."""

    def __init__(self, norm=nn.LayerNorm):
        super().__init__()
        self.norm, self.out = norm(16, eps=EPS), nn.Linear(16, 4)
        for p in (self.norm.weight, self.norm.bias):
            nn.init.uniform_(p, 0.5, 1.5)

    def forward(self, x):
        """Return four numbers for each row."""
        return self.out(self.norm(x))


class Twin:
    """The same in numpy, of primitives as in XLA."""

    def __init__(self, net, x, *, by_difference=True, fused=False):
        self.builder, self.values = GraphBuilder("Twin"), {}
        self.state = {name: p.detach().numpy().copy() for name, p in net.named_parameters()}
        self.row = self._put(self.builder.input("x", x.shape, "float32"), x)
        for name, value in self.state.items():
            self.builder.param(name, value.shape, "float32")
        self._norm(Scope("norm", "LayerNorm"), x, by_difference=by_difference, fused=fused)
        scope, weight = Scope("out", "Dense"), self.state["out.weight"]
        product = self._op(
            "dot_general", scope, self.values[self.row] @ weight.T, self.row, params=["out.weight"]
        )
        out = self.values[product] + self.state["out.bias"]
        self.row = self._op("add", scope, out, product, params=["out.bias"])
        self._put(self.builder.output("y", self.row), self.values[self.row])

    def _put(self, row, value):
        assert value.dtype == np.float32
        self.values[row] = value
        return row

    def _op(self, type_, scope, value, *parents, params=(), setting=""):
        parents = [(parent, str(number)) for number, parent in enumerate(parents)]
        row = self.builder.op(
            type_, value.shape, "float32", scope=[scope], parents=parents, params=params, setting=setting
        )
        return self._put(row, value)

    def _norm(self, scope, x, *, by_difference, fused):
        known, weights = self.values, ["norm.weight", "norm.bias"]
        weight, bias = (self.state[name] for name in weights)
        mean = x.mean(-1, keepdims=True)
        square = (x * x if by_difference else (x - mean) ** 2).mean(-1, keepdims=True)
        variance = square - mean * mean if by_difference else square
        if fused:
            out = (x - mean) / np.sqrt(variance + np.float32(EPS)) * weight + bias
            self.row = self._op("LayerNorm", scope, out, self.row, params=weights, setting=f"eps={EPS}")
            return
        m = self._op("reduce_mean", scope, mean, self.row)
        if by_difference:
            squares = self._op("square", scope, x * x, self.row)
            squares = self._op("reduce_mean", scope, square, squares)
            v = self._op("sub", scope, variance, squares, self._op("square", scope, mean * mean, m))
            centered = self._op("sub", scope, x - mean, self.row, m)
        else:
            centered = self._op("sub", scope, x - mean, self.row, m)
            v = self._op("reduce_mean", scope, variance, self._op("square", scope, (x - mean) ** 2, centered))
        safe = self._op("add", scope, known[v] + np.float32(EPS), v, setting=repr(EPS))
        scale = self._op("rsqrt", scope, 1 / np.sqrt(known[safe]), safe)
        scaled = self._op("mul", scope, known[centered] * known[scale], centered, scale)
        product = self._op("mul", scope, known[scaled] * weight, scaled, params=["norm.weight"])
        self.row = self._op("add", scope, known[product] + bias, product, params=["norm.bias"])

    def trace(self, framework="numpy"):
        """Return the trace."""
        graph, rows = self.builder.graph({"framework": framework})
        return intus.Trace(
            graph, {int(rows[row]): one for row, one in self.values.items()}, params=self.state
        )


def passes(mean, plant=None, norm=nn.LayerNorm, fused=False, seed=0):
    """Return the trace of a network in which a fault may be planted, and that of the twin without one."""
    torch.manual_seed(seed)
    net, x = Net(norm), mean + torch.randn(5, 16)
    twin = Twin(net, x.numpy(), fused=fused).trace("mxnet" if fused else "numpy")
    if plant is not None:
        with torch.no_grad():
            plant(net)
    return intus.trace(net, x), twin


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize(("norm", "fused"), [(nn.LayerNorm, False), (nn.LayerNorm, True), (ByHand, False)])
def test_variance_as_a_difference_is_no_divergence(mean, norm, fused, seed, turned):
    both = passes(mean, norm=norm, fused=fused, seed=seed)
    table = compare(*both[::-1] if turned else both)
    assert table.attrs["first"] is None, str(table)
    assert table.agree or mean >= 30, str(table)


@pytest.mark.parametrize("fused", [False, True])
def test_much_that_rounding_takes_where_numbers_cancel_is_said(fused):
    table = compare(*passes(100, fused=fused))
    assert not table.agree
    assert "where large numbers cancel there, which hides other differences" in str(table)


def _other_eps(net):
    net.norm.eps = 1e-3


def _other_bias(net):
    net.norm.bias[0] += 1e-2


def _swapped_weights(net):
    net.norm.weight.copy_(net.norm.weight.flip(0))


def _other_bias_behind(net):
    net.out.bias[0] += 1e-3


def _swapped_weights_behind(net):
    net.out.weight.copy_(net.out.weight[[1, 0, 2, 3]])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize(
    ("plant", "module"),
    [
        (_other_eps, "norm"),
        (_other_bias, "norm"),
        (_swapped_weights, "norm"),
        (_other_bias_behind, "out"),
        (_swapped_weights_behind, "out"),
    ],
)
def test_faults_beside_a_variance_as_a_difference_are_named(plant, module, mean, turned):
    both = passes(mean, plant)
    table = compare(*both[::-1] if turned else both)
    assert table.attrs["first"] is not None, str(table)
    assert table.attrs["first"]["module"] == module, str(table)


@pytest.mark.parametrize("mean", MEANS[:-1])
@pytest.mark.parametrize("fault", ["", "norm.bias", "out.bias"])
def test_variance_as_a_difference_of_passes_that_cannot_be_run(mean, fault):
    torch.manual_seed(0)
    net, x = Net(), mean + torch.randn(5, 16).numpy()
    one = Twin(net, x, by_difference=False).trace()
    with torch.no_grad():
        if fault:
            net.get_parameter(fault)[0] += 1e-2
    table = compare(one, Twin(net, x).trace())
    first = table.attrs["first"]
    assert (first and first["module"]) == (fault.partition(".")[0] or None), str(table)
    assert not (table.agree and fault), str(table)
