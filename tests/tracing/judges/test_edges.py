"""Autograd judges the edges of traces; and the judge itself is judged by wrong graphs."""

import copy

import numpy as np
import pytest
import torch
from sweep.judges.edges import differentiable, judge, judge_trace
from sweep.judges.observe import observe
from torch import nn
from transformer_models import bert, gpt2, llama, mamba, t5, vit
from zoo_models import make

import intus


def arguments(x):
    return x if isinstance(x, tuple) else (x,)


def test_zoo(zoo):
    model, x = zoo
    found = judge(model, arguments(x))
    assert (found.lost, found.invented, found.unmatched) == ([], [], [])
    assert found.pairs >= 2


@pytest.mark.parametrize("build", [gpt2, bert, vit, llama, t5, mamba], ids=lambda build: build.__name__)
def test_transformers(build):
    torch.manual_seed(0)
    model, inputs = build()
    found = judge(model.eval(), (), inputs)
    assert (found.lost, found.invented, found.unmatched) == ([], [], [])
    assert found.operations >= 60


class Residual(nn.Module):
    """Some views, a write through one, and parameters used twice."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = self.a(x).relu()
        h[:, 1:].mul_(x[:, 1:])
        return self.b(h) + h.t().t() * self.a(x)


@pytest.fixture(scope="module")
def observed():
    torch.manual_seed(0)
    model, x = Residual(), torch.randn(2, 4)
    args, kwargs = differentiable(((x,), {}))
    return model, args, observe(copy.deepcopy(model), *differentiable(((x,), kwargs)))


def changed(trace, edges):
    """Return the trace with other edges: a list of (source, destination, argument)."""
    edges = sorted(edges, key=lambda edge: edge[1])
    columns = [np.array(column, dtype=np.int64) for column in zip(*edges, strict=True)]
    graph = copy.copy(trace.graph)
    object.__setattr__(graph, "edges", type(trace.graph.edges)(*columns))
    trace = copy.copy(trace)
    trace.__dict__.pop("_facts", None)
    trace.graph = graph
    return trace


def edges_of(trace):
    edges = trace.graph.edges
    return list(zip(edges.src.tolist(), edges.dst.tolist(), edges.arg.tolist(), strict=True))


def test_true_graph_is_accepted(observed):
    model, args, seen = observed
    assert judge_trace(intus.trace(model, args), seen)


def test_every_lost_edge_is_noticed(observed):
    model, args, seen = observed
    trace = intus.trace(model, args)
    edges = edges_of(trace)
    for number, (source, destination, _) in enumerate(edges):
        others = edges[:number] + edges[number + 1 :]
        if any(edge[:2] == (source, destination) for edge in others):
            continue  # the graph has the pair twice
        found = judge_trace(changed(trace, others), seen)
        assert not found, (trace.graph.label(source), trace.graph.label(destination))


def test_every_invented_edge_is_noticed(observed):
    model, args, seen = observed
    trace = intus.trace(model, args)
    edges = edges_of(trace)
    tried = caught = 0
    for op in trace.ops:
        for other in trace.ops:
            if other.row < op.row and other not in op.ancestors and op.type not in ("getitem", "t"):
                found = judge_trace(changed(trace, [*edges, (other.row, op.row, edges[0][2])]), seen)
                tried, caught = tried + 1, caught + bool(found.invented)
    assert tried >= 5
    assert caught == tried


def test_lost_parameter_is_noticed(observed):
    model, args, seen = observed
    trace = intus.trace(model, args)
    row = trace["b"].row
    trace.graph.row_params.pop(row)
    assert {"linear_3_7: b.bias", "linear_3_7: b.weight"} <= {
        one.replace(trace.graph.label(row), "linear_3_7") for one in judge_trace(trace, seen).lost
    }


def test_model_with_an_inplace_op_on_its_input():
    found = judge(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2)), (torch.randn(3, 4),))
    assert found
    assert found.pairs == 3


def test_scripted_module_is_passed_over():
    model, x = make("scripted")
    assert judge(model, arguments(x))
