"""The ranges of the numbers that tensors of a pass can have."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import intus
from intus.tracing.comparison.values.ranges import Ranges


class Deep(nn.Module):
    """A chain of more operations than Python allows calls within one another."""

    def forward(self, x):
        for _ in range(1500):
            x = x.abs()
        return x


def test_range_behind_many_operations():
    ranges = Ranges(intus.trace(Deep(), torch.randn(2)))
    assert ranges.of(0) == (-math.inf, math.inf)
    assert ranges.of(1500) == (0.0, math.inf)


CREATED = {
    "randn_like": lambda x: torch.randn_like(x.relu()),
    "normal": lambda x: x.relu().normal_(),
    "full_like": lambda x: torch.full_like(x.relu(), -2.0),
    "new_full": lambda x: x.relu().new_full((50,), -2.0),
    "index_fill": lambda x: x.relu().index_fill(0, torch.tensor([1]), -2.0),
}


@pytest.mark.parametrize("name", CREATED)
def test_numbers_that_do_not_come_from_a_tensor_are_not_within_its_range(name):
    trace = intus.trace(CREATED[name], torch.randn(50))
    low, high = Ranges(trace).of(len(trace.graph.ops) - 2)
    value = trace.outputs[0].value
    assert low <= value.min() < 0
    assert high >= value.max()


def test_sum_of_products_with_itself_is_never_negative():
    x = torch.randn(6, 5)
    one, two = intus.trace(lambda x: x.square().sum(-1), x), intus.trace(lambda x: (x * x).sum(-1), x)
    assert "no effect" not in str(intus.compare(one, two))
    bare = intus.trace(lambda x: x.sum(-1), x.abs())
    assert "abs_1_1 ran only in a" in str(
        intus.compare(intus.trace(lambda x: x.abs().sum(-1), x.abs()), bare)
    )
