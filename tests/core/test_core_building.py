"""GraphBuilder: rows with module scopes become a graph whose calls are intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intus.core.building import GraphBuilder, Scope, nbytes
from intus.core.errors import InputError
from intus.core.graph import OP


def chain(scopes):
    """Return the graph of operations that follow each other, in these scopes."""
    builder = GraphBuilder("Net")
    row = builder.input("x", (1,), "float32")
    for scope in scopes:
        row = builder.op("f", (1,), "float32", scope=scope, parents=[(row, "0")])
    builder.output("y", row)
    return builder.graph()[0]


def test_module_called_twice_has_two_calls():
    graph = chain([[Scope("a", "A", 1)], [Scope("a", "A", 2)]])
    assert [graph.call_address(call) for call in range(3)] == ["", "a:1", "a:2"]
    assert graph.rows("a:2") == [2]


def test_nested_calls_return_their_last_row():
    inner = [Scope("a", "A"), Scope("a.b", "B")]
    graph = chain([inner, inner, inner[:1]])
    assert graph.rows("a.b") == [2]
    assert graph.rows("a") == graph.rows("") == [3]
    assert [module.type for module in graph.modules] == ["Net", "A", "B"]


def test_interleaved_branches_become_intervals():
    builder = GraphBuilder("Net")
    x = builder.input("x", (1,), "float32")
    left = right = x
    for _ in range(3):
        left = builder.op("l", (1,), "float32", scope=[Scope("left")], parents=[(left, "0")])
        right = builder.op("r", (1,), "float32", scope=[Scope("right")], parents=[(right, "0")])
    graph, rows = builder.graph()
    assert graph.calls.start.tolist() == [1, 1, 4]
    assert graph.calls.stop.tolist() == [7, 4, 7]
    assert rows.tolist() == [0, 1, 4, 2, 5, 3, 6]


def test_module_that_reads_what_was_computed_from_it_is_split():
    graph = chain([[Scope("a")], [], [Scope("a")]])
    assert [graph.call_address(call) for call in range(3)] == ["", "a:1", "a:2"]


def test_parameters_belong_to_the_nearest_module():
    builder = GraphBuilder("Net")
    builder.module("fc", "Dense", "3")
    builder.param("fc.inner.weight", (2, 2), "bfloat16")
    builder.param("scale", (), "float32", trainable=False)
    builder.buffer_of("step", (), "int64", owner="fc")
    x = builder.input("x", (1, 2), "float32")
    builder.op("matmul", (1, 2), "float32", parents=[(x, "0")], params=["fc.inner.weight"])
    graph, _ = builder.graph()
    assert [(m.address, m.params, m.buffers) for m in graph.modules] == [("", (1,), ()), ("fc", (0,), (0,))]
    assert graph.params[0].nbytes == 8
    assert graph.op_params.tolist() == [[1, 0]]


def test_parameter_as_a_row_of_its_module():
    builder = GraphBuilder("Net")
    builder.param("fc.weight", (256, 2), "q4_k", size=288)
    row = builder.parameter("fc.weight", [Scope("fc")])
    graph, _ = builder.graph()
    assert (graph.type_of(row), graph.state_address(row)) == ("parameter", "fc.weight")
    assert graph.metas[graph.ops.meta[row]].nbytes == graph.params[0].nbytes == 288
    assert graph.row_params == {0: [0]}
    assert graph.call_address(int(graph.ops.call[row])) == "fc"
    with pytest.raises(InputError, match=r"'fc.bias', which was not declared"):
        builder.parameter("fc.bias")


def test_operations_with_the_same_parameter_are_passes_of_one_layer():
    builder = GraphBuilder("Net")
    builder.param("w", (1,), "float32")
    row = builder.input("x", (1,), "float32")
    for _ in range(2):
        row = builder.op("mul", (1,), "float32", parents=[(row, "0")], params=["w"])
    assert builder.graph()[0].labels == ["input_1", "mul_1_1:1", "mul_1_1:2"]


def test_parent_that_is_no_earlier_row_is_refused():
    builder = GraphBuilder("Net")
    with pytest.raises(InputError, match="row 3 as a parent"):
        builder.op("f", (), "float32", parents=[(3, "0")])
    with pytest.raises(InputError, match="'w', which was not declared"):
        builder.op("f", (), "float32", params=["w"])


def test_sizes_of_dtypes_that_numpy_does_not_have():
    assert [nbytes((3,), dtype) for dtype in ("float8_e4m3fn", "int4", "string", "complex64")] == [
        3,
        2,
        0,
        24,
    ]


@given(st.data())
def test_random_graphs_keep_order_and_scopes(data):
    names = st.sampled_from("ab")
    paths = st.lists(names, max_size=3).map(
        lambda path: [Scope(".".join(path[: depth + 1])) for depth in range(len(path))]
    )
    scopes = data.draw(st.lists(paths, max_size=12))
    builder = GraphBuilder("Net")
    edges = []
    for row, scope in enumerate(scopes):
        parents = data.draw(st.lists(st.integers(0, row - 1), max_size=2)) if row else []
        edges += [(parent, row) for parent in parents]
        builder.op(
            "f", (), "float32", scope=scope, parents=[(parent, str(n)) for n, parent in enumerate(parents)]
        )
    graph, rows = builder.graph()
    assert sorted(rows) == list(range(len(scopes)))
    assert {(int(rows[src]), int(rows[dst])) for src, dst in edges} == set(
        zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True)
    )
    assert (graph.edges.src < graph.edges.dst).all()
    assert (np.diff(graph.edges.dst) >= 0).all()
    for row, scope in enumerate(scopes):
        chain_ = graph.enclosing_calls(int(rows[row]))
        assert [graph.modules[graph.calls.module[call]].address for call in chain_[1:]] == [
            s.address for s in scope
        ]
        for call in chain_:
            assert graph.calls.start[call] <= rows[row] < graph.calls.stop[call]
    for call in range(1, len(graph.calls)):
        inside = range(graph.calls.start[call], graph.calls.stop[call])
        assert all(call in graph.enclosing_calls(row) for row in inside)
    assert (graph.ops.kind == OP).all()
