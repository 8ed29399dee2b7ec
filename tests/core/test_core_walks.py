"""Walks over a graph, compared with networkx."""

from __future__ import annotations

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from intus import trace
from intus.core.analysis import walks


@st.composite
def programs(draw):
    """Draw a random program: each step adds two earlier tensors, possibly the same one."""
    steps = draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12))

    def run(a, b):
        made = [a, b]
        for left, right in steps:
            made.append(made[left % len(made)] + made[right % len(made)])
        return tuple(made[2:])

    return run


@given(programs())
def test_walks_equal_networkx(program):
    graph = trace(program, (torch.ones(2), torch.ones(2)), save="none").graph
    whole = nx.DiGraph(zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True))
    whole.add_nodes_from(range(len(graph.ops)))
    for row in range(len(graph.ops)):
        assert walks.ancestors(graph, [row]) == sorted(nx.ancestors(whole, row))
        assert walks.descendants(graph, [row]) == sorted(nx.descendants(whole, row))
        above, below = set(whole.predecessors(row)), set(whole.successors(row))
        assert walks.siblings(graph, row) == sorted({c for p in above for c in whole.successors(p)} - {row})
        assert walks.spouses(graph, row) == sorted({p for c in below for p in whole.predecessors(c)} - {row})
    for back, source, direction in ((False, 0, whole), (True, len(graph.ops) - 1, whole.reverse())):
        near, far = walks.distances(graph, [source], back=back)
        shortest = nx.single_source_shortest_path_length(direction, source)
        assert near.tolist() == [shortest.get(row, -1) for row in range(len(graph.ops))]
        for row in range(len(graph.ops)):
            longest = max((len(p) - 1 for p in nx.all_simple_paths(direction, source, row)), default=-1)
            assert far[row] == (0 if row == source else longest)


def test_relatives_of_an_op():
    t = trace(lambda x: torch.relu(x + 1) * torch.tanh(x + 1), torch.ones(2))
    assert [op.label for op in t["relu_1"].ancestors] == ["input_1", "add_1_1"]
    assert [op.label for op in t["add_1"].descendants] == ["relu_1_2", "mul_1_5", "output_1"]
    assert [op.label for op in t["relu_1"].spouses] == ["tanh_1_4"]
    assert t["add_1"].siblings == [t["add_2"]]
    with pytest.raises(AttributeError):
        t["add_1"].cousins  # noqa: B018
