"""``compare`` of attention in PyTorch with one of single steps, of scores that are masked with large numbers.

The values of the other pass are what numpy computes in float32. Of a row of scores that are all masked with
-1e9, rounding takes everything, and nothing of any other row.
"""

import numpy as np
import pytest
import torch
from torch import nn

import intus
from intus import compare
from intus.core.building import GraphBuilder, Scope

BATCH, LENGTH, WIDTH, HEADS = 3, 7, 16, 4
LOWEST = float(np.finfo(np.float32).min)
#: How masked scores are written: a number in their place, or a number that is added.
WAYS = [("where", -1e9), ("where", LOWEST), ("add", -1e9), ("add", -1e4)]
FAULTS = ["scale", "axis", "queries", "values"]


class Attention(nn.Module):
    """An attention with a mask."""

    def __init__(self, way, number):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.way, self.number = way, number

    def forward(self, x, mask):
        """Return one vector for each position."""
        q, k, v = (
            layer(x).view(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        if self.way == "add":
            mask = torch.zeros(mask.shape).masked_fill(~mask, self.number)
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o(out.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))


class ByHand(Attention):
    """The same of single operations."""

    def forward(self, x, mask):
        """Return one vector for each position."""
        q, k, v = (
            layer(x).view(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-1, -2) / 2
        if self.way == "where":
            scores = torch.where(mask, scores, self.number)
        else:
            scores = scores + (~mask).float() * self.number
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))


class Twin:
    """The same in numpy, of primitives as in XLA."""

    def __init__(self, net, x, mask, fault=""):
        self.builder, self.values, self.net = GraphBuilder("Twin"), {}, net
        self.given = self._put(self.builder.input("x", x.shape, "float32"), x)
        self.mask = self._put(self.builder.input("mask", mask.shape, "bool"), mask)
        for name, value in self._state().items():
            self.builder.param(name, value.shape, "float32")
        heads = [self._heads(name) for name in "qkv"]
        if fault == "values":
            heads[2] = self._op("mul", self.values[heads[2]] * np.float32(1.1), heads[2], setting="1.1")
        scores = self._scores(*heads[:2], 4 if fault == "scale" else 2, turned=fault == "queries")
        weights = self._softmax(scores, -2 if fault == "axis" else -1)
        out = self._op("dot_general", self.values[weights] @ self.values[heads[2]], weights, heads[2])
        out = self._op("transpose", self.values[out].transpose(0, 2, 1, 3), out)
        out = self._op("reshape", self.values[out].reshape(BATCH, LENGTH, WIDTH), out)
        out = self._linear("o", out)
        self._put(self.builder.output("y", out), self.values[out])

    def _state(self):
        return {name: p.detach().numpy() for name, p in self.net.named_parameters()}

    def _put(self, row, value):
        self.values[row] = value
        return row

    def _op(self, type_, value, *parents, scope=(), params=(), setting=""):
        assert value.dtype in (np.float32, np.bool_)
        parents = [(parent, str(number)) for number, parent in enumerate(parents)]
        row = self.builder.op(
            type_, value.shape, str(value.dtype), scope=scope, parents=parents, params=params, setting=setting
        )
        return self._put(row, value)

    def _linear(self, name, row):
        scope, state = [Scope(name, "Dense")], self._state()
        product = self.values[row] @ state[f"{name}.weight"].T
        found = self._op("dot_general", product, row, scope=scope, params=[f"{name}.weight"])
        return self._op("add", product + state[f"{name}.bias"], found, scope=scope, params=[f"{name}.bias"])

    def _heads(self, name):
        row = self._linear(name, self.given)
        row = self._op("reshape", self.values[row].reshape(BATCH, LENGTH, HEADS, -1), row)
        return self._op("transpose", self.values[row].transpose(0, 2, 1, 3), row)

    def _scores(self, q, k, scale, *, turned):
        product = np.einsum("bhqd,bhkd->bhqk", self.values[q], self.values[k])
        scores = self._op("dot_general", product, q, k)
        scores = self._op("div", product / np.float32(scale), scores, setting=repr(float(scale)))
        mask, number = self.mask, np.float32(self.net.number)
        if turned:
            mask = self._op("transpose", self.values[mask].swapaxes(-1, -2), mask)
        if self.net.way == "where":
            masked = np.where(self.values[mask], self.values[scores], number)
            return self._op("where", masked, mask, scores, setting=repr(float(number)))
        bias = self._op("mul", (~self.values[mask]).astype(np.float32) * number, mask)
        return self._op("add", self.values[scores] + self.values[bias], scores, bias)

    def _softmax(self, row, axis):
        x, setting = self.values[row], f"axes=({axis % 4},)"
        largest = self._op("reduce_max", x.max(axis, keepdims=True), row, setting=setting)
        apart = self._op("sub", x - self.values[largest], row, largest)
        powers = self._op("exp", np.exp(self.values[apart]), apart)
        sums = self._op("reduce_sum", self.values[powers].sum(axis, keepdims=True), powers, setting=setting)
        return self._op("div", self.values[powers] / self.values[sums], powers, sums)

    def trace(self):
        """Return the trace."""
        graph, rows = self.builder.graph({"framework": "numpy"})
        values = {int(rows[row]): one for row, one in self.values.items()}
        return intus.Trace(graph, values, params=self._state())


def passes(cls, way, padding, fault=""):
    """Return the trace of an attention, and that of its twin with a fault."""
    torch.manual_seed(0)
    net, x = cls(*way), torch.randn(BATCH, LENGTH, WIDTH)
    is_token = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    if padding == "right":
        is_token[1, 4:] = is_token[2, 6:] = False
        mask = is_token[:, None, None, :].expand(-1, 1, LENGTH, -1).clone()
    else:  # of a causal attention, so that the first rows have no token at all
        is_token[0, :1] = is_token[1, :3] = is_token[2, :2] = False
        mask = is_token[:, None, None, :] & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    return intus.trace(net, x, mask), Twin(net, x.numpy(), mask.numpy(), fault).trace()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("cls", "way", "padding"),
    [
        (cls, way, padding)
        for cls in (Attention, ByHand)
        for way in WAYS
        for padding in ("right", "left")
        # PyTorch returns zeros for a row that a mask of bools leaves nothing of
        if (cls, way[0], padding) != (Attention, "where", "left")
    ],
)
def test_masked_scores_of_the_same_attention_agree(cls, way, padding, turned):
    both = passes(cls, way, padding)
    table = compare(*both[::-1] if turned else both)
    assert table.attrs["first"] is None, str(table)
    assert "differs" not in set(table["verdict"])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cls", [Attention, ByHand])
def test_faults_beside_masked_scores_are_no_rounding(cls, way, padding, fault, turned):
    both = passes(cls, way, padding, fault)
    table = compare(*both[::-1] if turned else both)
    assert table.attrs["first"] is not None, str(table)
    assert not table.agree
    assert table["verdict"].iloc[-1] == "differs", str(table)
    assert table["relative"].iloc[-1] > 1e-3
