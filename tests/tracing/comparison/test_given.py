"""Modules that are given other tensors: those that hide it, and those that return it."""

import pytest
import torch
from torch import nn

import intus
from intus import compare
from intus.tracing.comparison.unseen.given import given_others
from intus.tracing.comparison.unseen.passes import Both


class Head(nn.Module):
    """A layer that is given a softmax, as it is or as a function changes it."""

    def __init__(self, head, function):
        super().__init__()
        self.head, self.function = head, function

    def forward(self, x):
        return self.head(self.function(x.softmax(-1)))


@pytest.mark.parametrize(
    ("layer", "function", "is_hidden"),
    [
        (lambda: nn.LayerNorm(8, eps=0.0), lambda x: 2 * x, True),
        (lambda: nn.Linear(8, 4), lambda x: x.bfloat16().float(), False),
    ],
)
def test_module_returns_the_same_only_if_it_hides_what_it_is_given(layer, function, is_hidden):
    torch.manual_seed(0)
    head, x = layer(), torch.randn(5, 8)
    a, b = (intus.trace(Head(head, one), x) for one in (lambda x: x + 0, function))
    table = compare(a, b)
    given = a["head"].parents[0].row
    pairs = [pair for pair in table.agreeing if pair[0] != given]
    said = list(given_others(Both(a, b, pairs), ("a", "b")))
    assert bool(said) == is_hidden, (said, str(table))
