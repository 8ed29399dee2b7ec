"""Names, neighbors and containment in a Graph."""

import pytest

from intus.core.building import GraphBuilder
from intus.core.graph import CONSTANT, INPUT, OP, OUTPUT


def test_labels_number_types_operations_and_passes(graph):
    assert graph.labels == [
        "input_1",
        "conv2d_1_1:1",
        "relu_1_2:1",
        "conv2d_1_1:2",
        "relu_1_2:2",
        "rand_1_3",
        "add_1_4",
        "output_1",
    ]
    assert [graph.label(row) for row in range(8)] == graph.labels


def test_parents_and_children(graph):
    assert graph.parents(6) == [4, 5]
    assert graph.parents(0) == []
    assert graph.children(4) == [6]
    assert graph.children(7) == []


def test_parents_and_children_are_consistent(graph):
    pairs = {(p, row) for row in range(8) for p in graph.parents(row)}
    assert pairs == {(row, c) for row in range(8) for c in graph.children(row)}


def test_rows_of_kind(graph):
    assert graph.rows_of(INPUT) == [0]
    assert graph.rows_of(OP) == [1, 2, 3, 4, 5, 6]
    assert graph.rows_of(OUTPUT) == [7]
    assert graph.rows_of(CONSTANT) == []


def test_enclosing_calls_are_outermost_first(graph):
    assert [graph.call_address(call) for call in graph.enclosing_calls(3)] == ["", "body:2", "body.conv:2"]
    assert graph.enclosing_calls(0) == []


def test_module_outputs_and_parameters_of_rows(graph):
    assert graph.call_outputs == {0: [6], 1: [2], 2: [1], 3: [4], 4: [3]}
    assert graph.row_exits[4] == [3]
    assert graph.row_params == {1: [0], 3: [0]}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("conv2d_1_1", [1, 3]),
        ("conv2d_1", [1, 3]),
        ("conv2d_1:2", [3]),
        ("conv2d_1_1:2", [3]),
        ("body", [2, 4]),
        ("body:2", [4]),
        ("body.conv:1", [1]),
        ("", [6]),
        ("rand_1", [5]),
        ("output_1", [7]),
    ],
)
def test_rows_by_name(graph, name, rows):
    assert graph.rows(name) == rows


def test_rows_by_label(graph):
    for row, label in enumerate(graph.labels):
        assert graph.rows(label) == [row]


def test_size_and_repr(graph):
    assert len(graph) == 6
    assert repr(graph) == "<Graph of Net: 6 operations, 3 modules>"
    assert graph.rows("nothing") is None


def test_label_is_found_before_the_short_label_of_another_type():
    builder = GraphBuilder("net.file", "Net")
    types = ["_softmax", "_", "__", "conv2d", "conv2d_1", "conv2d_1", "_softmax", "input", "1"]
    for type_ in types:
        builder.op(type_, (1,), "float32")
    found, _ = builder.graph()
    assert [found.rows(label) for label in found.labels] == [[row] for row in range(len(types))]
    assert found.rows("_softmax_2") == [6]
