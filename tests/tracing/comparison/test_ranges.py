"""The ranges of the numbers that tensors of a pass can have."""

from __future__ import annotations

import math

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
