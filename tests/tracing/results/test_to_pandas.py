"""Trace.to_pandas and Trace.to_networkx, against the properties of Op."""

import time

import networkx
import pandas as pd
import torch
from torch import nn

import intus
from intus.core.analysis.facts import Facts
from intus.core.table import columns

SAME = {
    "pass": "pass_number",
    "bytes": "nbytes",
    "parameters": "num_params",
    "parameter_bytes": "param_bytes",
}
OTHER = {
    "parents": lambda op: [parent.label for parent in op.parents],
    "num_consumers": lambda op: sum(len(edge) for edge in edges_to_children(op)),
    "source": lambda op: f"{op.source.file}:{op.source.line}" if op.source else "",
    "device": lambda op: op.meta.device,
}


def edges_to_children(op):
    edges = op._graph.edges
    return [edges.arg[(edges.src == op.row) & (edges.dst == child.row)] for child in op.children]


def test_columns_equal_op_properties(zoo):
    model, x = zoo
    t = intus.trace(model, x)
    table = t.to_pandas()
    assert list(table.columns) == [*columns(Facts(t.graph)), "saved"]
    for row, facts in enumerate(table.to_dict("records")):
        op = t[t.graph.labels[row]]
        for name, fact in facts.items():
            get = OTHER.get(name, lambda op, name=name: getattr(op, SAME.get(name, name)))
            fact = None if pd.api.types.is_scalar(fact) and pd.isna(fact) else fact
            assert fact == get(op), (op.label, name)


def test_missing_integers_are_na():
    table = intus.trace(lambda x: (x.sort().values + 1, torch.ones(2) * 2)[0], torch.ones(3)).to_pandas()
    assert table["flops"].dtype == "Int64"
    flops = table.set_index("label")["flops"]
    assert flops["sort_1_1"] is pd.NA
    assert flops["add_1_3"] == 3
    assert flops.sum() == 3


def test_to_networkx_attributes_and_graphml(tmp_path):
    t = intus.trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2))
    graph = t.to_networkx()
    assert graph.graph["model"] == "Sequential"
    assert graph.nodes["linear_1_1"]["flops"] == 8
    assert graph.nodes["linear_1_1"]["module"] == "0"
    assert graph.nodes["relu_1_2"]["max_distance_from_input"] == 2
    assert "module" not in graph.nodes["input_1"]
    networkx.write_graphml(graph, tmp_path / "net.graphml")
    networkx.write_gexf(graph, tmp_path / "net.gexf")
    networkx.write_gml(graph, tmp_path / "net.gml")
    read = networkx.read_graphml(tmp_path / "net.graphml", force_multigraph=True)
    assert dict(read.nodes(data=True)) == dict(graph.nodes(data=True))
    assert [*read.edges(data="arg")] == [*graph.edges(data="arg")]
    assert read.nodes["linear_1_1"]["shape"] == "1×2"
    assert read.nodes["relu_1_2"]["output_of"] == "1"
    assert set(networkx.read_gexf(tmp_path / "net.gexf")) == set(graph)


def test_to_pandas_is_fast_for_many_operations():
    def chain(x):
        for n in range(20_000):
            x = x.add(n)
        return x

    t = intus.trace(chain, torch.ones(1), save="none")
    began = time.process_time()
    assert len(t.to_pandas()) == 20_002
    assert time.process_time() - began < 2  # 0.3 where nothing else runs
