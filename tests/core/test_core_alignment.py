"""Alignment of two passes, compared with a plain search and on graphs of real passes."""

import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import intus
from intus.core.analysis import alignment
from intus.core.analysis.alignment import align
from intus.core.analysis.modules import same_modules
from intus.core.graph import Graph

STEPS = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "mul": lambda x: x * 2,
    "cat": lambda x: torch.cat([x, x])[:4],
    "first": lambda x: x[:2],
}


def run_of(names):
    def run(x):
        for name in names:
            x = STEPS[name](x)
        return x

    return run


def graph_of(names):
    return intus.trace(run_of(names), torch.ones(4), save="none").graph


programs = st.lists(st.sampled_from(list(STEPS)), max_size=9)


def heaviest(weights):
    """Return the weight of the heaviest common subsequence, found by plain search."""
    best = np.zeros((weights.shape[0] + 1, weights.shape[1] + 1), int)
    for i, row in enumerate(weights, 1):
        for j, weight in enumerate(row, 1):
            best[i, j] = max(best[i - 1, j], best[i, j - 1], best[i - 1, j - 1] + weight)
    return best[-1, -1]


@settings(max_examples=60, deadline=None)
@given(programs, programs)
def test_pairs_are_heaviest_common_subsequence(one, other):
    a, b = graph_of(one), graph_of(other)
    numbers = {}
    nothing = [np.full((len(g.ops), 3), np.nan) for g in (a, b)]
    traits_a, traits_b = (alignment._traits(g, numbers, n, {}) for g, n in zip((a, b), nothing, strict=True))
    whole = slice(0, len(b.ops))
    weights = np.array([alignment._weights(traits_a, i, traits_b, whole, 0) for i in range(len(a.ops))])
    found = alignment._heaviest(traits_a, traits_b, (0, len(a.ops)), (0, len(b.ops)), 0)
    assert sum(weights[i, j] for i, j in found) == heaviest(weights)
    assert all(weights[i, j] > 0 for i, j in found)
    assert all(i > k and j > m for (i, j), (k, m) in pairwise(found))


@settings(max_examples=60, deadline=None)
@given(programs, programs)
def test_every_row_appears_once_and_kinds_agree(one, other):
    a, b = graph_of(one), graph_of(other)
    pairs = align(a, b)
    assert sorted(i for i, _ in pairs if i >= 0) == list(range(len(a.ops)))
    assert sorted(j for _, j in pairs if j >= 0) == list(range(len(b.ops)))
    for i, j in pairs:
        if i >= 0 and j >= 0:
            assert a.ops.kind[i] == b.ops.kind[j]
            assert a.types[a.ops.type[i]] == b.types[b.ops.type[j]]
    assert align(a, a) == [(row, row) for row in range(len(a.ops))]


def test_inserted_operation_has_no_partner():
    a, b = graph_of(["tanh", "mul"] * 50), graph_of([*["tanh", "mul"] * 20, "relu", *["tanh", "mul"] * 30])
    alone = [(i, j) for i, j in align(a, b) if i < 0 or j < 0]
    assert [b.label(j) for _, j in alone] == ["relu_1_3"]


class Shared(torch.nn.Module):
    """One layer called on two branches, one after the other or after both."""

    def __init__(self, late, swapped=False):
        super().__init__()
        self.shared = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid())
        self.late, self.swapped = late, swapped

    def forward(self, x, y):
        if self.swapped:
            v = self.shared(torch.relu(y))
            u = self.shared(torch.tanh(x))
        elif self.late:
            u, v = torch.tanh(x), torch.relu(y)
            u, v = self.shared(u), self.shared(v)
        else:
            u = self.shared(torch.tanh(x))
            v = self.shared(torch.relu(y))
        return u * v


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("way", [{"late": True}, {"late": False, "swapped": True}])
def test_calls_of_a_module_correspond_by_what_they_were_called_on(way, values):
    torch.manual_seed(0)
    one, other = Shared(late=False), Shared(**way)
    other.load_state_dict(one.state_dict())
    with torch.no_grad():
        other.shared[0].weight *= 1.1  # so that no value tells which call is which
    a, b = (intus.trace(net, torch.randn(2, 4), torch.randn(2, 4)) for net in (one, other))
    pairs = dict(intus.compare(a, b).pairs if values else align(a.graph, b.graph))
    for before in ("tanh", "relu"):
        row, partner = (
            next(row for row, label in enumerate(t.graph.labels) if label.startswith(before)) for t in (a, b)
        )
        for _ in range(3):  # the layer, its activation and the product
            assert pairs[row] == partner
            (row,), (partner,) = a.graph.children(row), b.graph.children(partner)


def test_values_decide_which_of_two_equal_rows_is_new():
    x = torch.linspace(-1, 1, 5)
    a = intus.trace(lambda x: (x * 3).sin(), x)
    b = intus.trace(lambda x: (x * 2 * 1.5).sin(), x)
    sums = [
        np.array([[float(v.abs().sum()), float(v.square().sum()), float(v.sum())] for v in t.values.values()])
        for t in (a, b)
    ]
    assert (1, 2) in align(a.graph, b.graph, tuple(sums))  # x * 3 is what x * 2 * 1.5 came to
    assert (1, 1) in align(a.graph, b.graph)


@pytest.mark.long
@pytest.mark.parametrize("size", [1000])
def test_long_passes_are_aligned_within_3_seconds(size):
    a, b = graph_of(["tanh", "mul", "relu", "mul"] * size), graph_of(["tanh", "mul", "mul", "relu"] * size)
    began = time.process_time()
    pairs = align(a, b)
    assert time.process_time() - began < 3
    assert sum(i >= 0 and j >= 0 for i, j in pairs) >= 3 * size


def test_oversized_table_is_split(monkeypatch):
    monkeypatch.setattr(alignment, "_MOST_CELLS", 500)
    monkeypatch.setattr(alignment, "_MARGIN", 2)
    a, b = graph_of(["tanh", "mul"] * 50), graph_of(["relu", *["tanh", "mul"] * 50, "cat"])
    pairs = align(a, b)
    assert sorted(j for _, j in pairs if j >= 0) == list(range(len(b.ops)))
    assert sum(i >= 0 and j >= 0 for i, j in pairs) > 90


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (["0", "0.norm"], ["blocks.0", "blocks.0.norm"], {"blocks.0": "0", "blocks.0.norm": "0.norm"}),
        (["layers.1.fc"], ["layers_1.fc"], {"layers_1.fc": "layers.1.fc"}),
        (["norm"], ["a.norm", "b.norm"], {}),
        (["a", "fc"], ["a", "net.fc"], {"net.fc": "fc"}),
    ],
)
def test_modules_with_the_same_end_correspond(one, other, same):
    a, b = (Graph.of_modules("Net", [(name, "M") for name in ("", *names)]) for names in (one, other))
    assert same_modules(a, b) == same
