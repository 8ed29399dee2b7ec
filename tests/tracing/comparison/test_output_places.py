"""Outputs that only one of two passes returns, or at another place: PyTorch says what each returns."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import nn

import intus
from intus import compare

X = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))


class Returns(nn.Module):
    """Returns what a function makes of a layer's result and of the input."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.function, self.layer = function, nn.Linear(3, 3)

    def forward(self, x):
        return self.function(self.layer(x), x)


ONE = Returns(lambda y, x: y)
OTHERS = {
    "computed": lambda y, x: (y, y.sin()),
    "computed, first": lambda y, x: (y.sin(), y),
    "a constant": lambda y, x: (y, torch.zeros(2)),
    "the input": lambda y, x: (y, x),
    "twice": lambda y, x: (y, y),
    "in a dict": lambda y, x: {"a": y, "b": y * 100},
    "in a nested dict": lambda y, x: ([None, y], {"b": (y.exp(),)}),
    "nothing": lambda y, x: None,
}


@pytest.mark.parametrize("name", OTHERS)
def test_output_of_one_side(name):
    one, other = intus.trace(ONE, X), intus.trace(Returns(OTHERS[name]), X)
    count = len(other.outputs)
    assert count != 1
    for a, b, counts in ((one, other, (1, count)), (other, one, (count, 1))):
        table = compare(a, b)
        assert not table.agree
        words = [f"{n} output{'' if n == 1 else 's'}" for n in counts]
        line = next(one for one in str(table).splitlines() if "(a) has" in one)
        assert line.startswith(f"Returns (a) has {words[0]}")
        assert f", Returns (b) has {words[1]}" in line
    moved = "Output 1 of Returns is output 2 of Returns." in str(compare(one, other))
    assert moved == (name == "computed, first")


@pytest.mark.parametrize("name", OTHERS)
def test_outputs_of_both_sides(name):
    """Outputs of both at the same places agree, also with None among them, nested, or repeated."""
    one, two = (intus.trace(Returns(OTHERS[name]), X) for _ in range(2))
    assert compare(one, two).agree == bool(one.outputs)
    among = intus.trace(Returns(lambda y, x: [None, OTHERS[name](y, x), None]), X)
    assert compare(one, among).agree == compare(among, one).agree == bool(one.outputs)


def test_order_of_keys():
    """The place of an output of a dict is its key, whatever the order of the keys."""

    def named(**numbers):
        def function(y, x):
            made = {2: y.exp(), 3: y.sin()}
            return {key: made[n] for key, n in numbers.items()}

        return intus.trace(Returns(function), X)

    one = named(a=2, b=3)
    for right in (named(a=2, b=3), named(b=3, a=2), named(c=2, d=3)):
        assert compare(one, right).agree
        assert compare(right, one).agree
    for wrong in (named(b=2, a=3), named(a=3, b=2), named(c=3, d=2), named(b=2, c=3)):
        assert not compare(one, wrong).agree
        assert not compare(wrong, one).agree
    text = str(compare(one, named(b=2, a=3)))
    assert "Output 'a' of Returns is output 'b' of Returns." in text


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_outputs_with_the_same_values(order):
    """A ReLU of positive numbers returns what it is given, but is another output; a dropout is not."""

    def returns(order, last):
        def function(y, x):
            made = [x.abs() + 1, (x.abs() + 1).relu(), last(x.abs() + 1)]
            return tuple(made[n] for n in order)

        return intus.trace(Returns(function).eval(), X)

    for last in (nn.Softplus(beta=1e4), nn.Tanh()):
        one, two = returns((0, 1, 2), last), returns(order, last)
        assert compare(one, two).agree == compare(two, one).agree == (order == (0, 1, 2))
    idle = nn.Dropout().eval()
    one, two = (intus.trace(Returns(lambda y, x, n=n: tuple([y, idle(y)][::n])).eval(), X) for n in (1, -1))
    assert compare(one, two).agree


@pytest.mark.parametrize("seed", range(20))
def test_outputs_of_generated_models(seed):
    """Of two models that return nested results and constants, PyTorch says whether these are the same."""

    def returned(draw):
        def nested(made, depth):
            kind = draw.choice(["tensor", tuple, list]) if depth else "tensor"
            if kind == "tensor":
                return draw.choice(made)
            return kind(nested(made, depth - 1) for _ in range(draw.randint(0, 3)))

        def function(y, x):
            made = [y, x, y.exp(), y.tanh(), torch.full((2, 3), 3.0), None]
            return [nested(made, 2), nested(made, 1)]

        return function

    def flat(value):
        if isinstance(value, list | tuple):
            return [t for part in value for t in flat(part)]
        return [] if value is None else [value]

    def made(own):
        return Returns(returned(random.Random(own)))

    for other in (seed, seed + 1, seed + 2):
        expected = [flat(made(one)(X)) for one in (seed, other)]
        is_same = len(expected[0]) == len(expected[1]) and all(map(torch.equal, *expected))
        one, two = intus.trace(made(seed), X), intus.trace(made(other), X)
        assert [len(t.outputs) for t in (one, two)] == [len(some) for some in expected]
        assert compare(one, two).agree == compare(two, one).agree == (is_same and expected[0] != [])
