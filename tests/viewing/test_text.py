"""The outline and the summary in plain text."""

from __future__ import annotations

import itertools

import pytest
from drafts import Draft, chain, digits_cnn, gpt2, resnet
from hypothesis import given
from hypothesis import strategies as st

from intus.viewing.outline import (
    count,
    dimensions,
    duration,
    folded,
    headline,
    outline,
    size,
    summary,
    walk,
)


def test_headline() -> None:
    assert headline(digits_cnn()) == "11 operations, 10 modules, 38,314 parameters (150 KB), 2.10 ms"


def test_outline_indents_contents_of_modules() -> None:
    lines = outline(digits_cnn()).splitlines()
    assert lines[0].startswith("DigitsCNN: 11 operations")
    names = [line.split()[0] for line in lines[3:]]
    assert names == [
        *("input_1", "features"),
        *(f"features.{i}" for i in range(6)),
        *("flatten_1_7", "fc1", "relu_3_9", "dropout", "fc2", "output_1"),
    ]
    inside = next(line for line in lines if "features.4" in line)
    assert inside.startswith("  features.4  Conv2d")
    assert inside.split()[2:4] == ["32×32×4×4", "4,640"]
    assert not any("conv2d" in line for line in lines)  # a module of one operation is one line


def test_walk_yields_every_operation_once() -> None:
    graph = gpt2(layers=2)
    rows = list(walk(graph))
    module_lines = {row.name for row in rows if row.is_module}
    assert {graph.call_address(call) for call in range(len(graph.calls))} - {""} <= module_lines
    operations = [row.name for row in rows if not row.is_module and row.type not in ("input", "output")]
    assert len(operations) == len(set(operations))
    atomic = sum(1 for row in rows if row.is_module) - sum(
        1 for a, b in itertools.pairwise(rows) if a.is_module and b.depth > a.depth
    )
    assert len(operations) + atomic == len(graph)


def test_outline_depth_and_limit() -> None:
    graph = resnet()
    shallow = outline(graph, depth=0)
    assert "layer1" in shallow
    assert "layer1.0" not in shallow
    assert "… and 10 more" in outline(chain(20), most=12)


def test_walk_sums_figures_of_modules() -> None:
    graph = digits_cnn()
    rows = {row.name: row for row in walk(graph)}
    parts = [rows[f"features.{i}"] for i in range(6)]
    assert rows["features"].nanoseconds == sum(part.nanoseconds for part in parts)
    assert rows["features"].parameters == sum(part.parameters for part in parts) == 4832


def test_walk_counts_shared_parameters_once() -> None:
    draft = Draft("Tied")
    x = draft.input(2)
    with draft.module("", "Tied"), draft.module("body", "Body"):
        for _ in range(2):
            x = draft.op("linear", x, shape=(2,), params={"w": (2, 2)})
    assert next(row for row in walk(draft.graph()) if row.name == "body").parameters == 4


def test_walk_counts_function_with_several_outputs_once() -> None:
    draft = Draft("Split")
    x = draft.input(4)
    with draft.module("", "Split"), draft.module("halves", "Halves"):
        draft.op("split", x, shape=(2,))
        draft.op("split", x, shape=(2,))
        draft.rows[-1]["event"] = draft.rows[-2]["event"]
    names = [row.name for row in walk(draft.graph())]
    assert names == ["input_1", "halves"]


def test_outline_shows_where_a_pass_failed() -> None:
    draft = Draft("Bad")
    x = draft.input(2)
    with draft.module("", "Bad"):
        draft.op("matmul", x, shape=(), failed=True)
    text = outline(draft.graph(error="RuntimeError: shapes differ"))
    assert "matmul_1_1  matmul failed" in text
    assert text.endswith("Failed at matmul_1_1: RuntimeError: shapes differ")


@pytest.mark.long
def test_walk_of_deep_nesting_needs_no_recursion() -> None:
    draft = Draft("Deep")
    x = draft.input(1)
    opened = []
    for depth in range(1500):
        manager = draft.module(".".join(["m"] * depth), "M")
        manager.__enter__()
        opened.append(manager)
        x = draft.op("relu", x, shape=(1,))
    for manager in reversed(opened):
        manager.__exit__(None, None, None)
    assert sum(1 for _ in walk(draft.graph())) == 1 + 1499 + 1500 - 1


@given(st.integers(0, 10**15))
def test_formatted_figures_are_short(number: int) -> None:
    assert len(size(number)) <= 9
    assert len(duration(number)) <= 11
    assert len(count(number)) <= 8


def test_dimensions() -> None:
    assert dimensions((2, 3)) == "2×3"


def test_summary_merges_equal_modules() -> None:
    text = summary(gpt2(layers=12))
    assert len(text.splitlines()) <= 60
    assert any("h.0 … 11" in line and "×12" in line for line in text.splitlines())
    assert "equal neighbors or passes" in text


def test_folded_keeps_sums() -> None:
    for graph in (gpt2(layers=3), resnet(), digits_cnn(), chain(20)):
        rows = list(walk(graph))
        shallow = [row for row in rows if row.depth == 0]
        top = [row for row in folded(rows) if row.depth == 0]
        for figure in ("parameters", "nanoseconds", "flops", "times"):
            assert sum(getattr(row, figure) for row in top) == sum(getattr(row, figure) for row in shallow)


def test_folded_keeps_modules_with_different_contents_apart() -> None:
    draft = Draft("Two")
    x = draft.input(2)
    with draft.module("", "Two"):
        for name, inner in (("a", "relu"), ("b", "relu"), ("c", "tanh")):
            with draft.module(name, "Block"):
                x = draft.op("linear", x, shape=(2,))
                x = draft.op(inner, x, shape=(2,))
    rows = folded(list(walk(draft.graph())))
    assert [(row.name, row.times) for row in rows if row.is_module] == [("a", 2), ("c", 1)]


def test_folded_merges_passes_of_a_loop() -> None:
    draft = Draft("Loop")
    x = draft.input(2)
    with draft.module("", "Loop"):
        for _ in range(5):
            with draft.module("mix", "Mix"):
                x = draft.op("linear", x, shape=(2,), params={"w": (2, 2)})
            x = draft.op("add", x, shape=(2,))
    rows = folded(list(walk(draft.graph())))
    assert [(row.name, row.last, row.times) for row in rows if row.is_module] == [("mix:1", "mix:5", 5)]
    assert next(row for row in rows if row.is_module).parameters == 4
    assert "mix:1 … 5" in summary(draft.graph())


def test_summary_opens_as_many_levels_as_fit() -> None:
    graph = resnet()
    assert "layer1.0" not in summary(graph, most=12)
    assert "summary(depth=1) opens the next" in summary(graph, most=12)
    assert "layer1.0" in summary(graph, most=None)
    assert "layer1.0" not in summary(graph, depth=0)
    assert "opens the next" not in summary(graph, most=None)


def test_summary_of_deep_nesting_needs_no_recursion() -> None:
    draft = Draft("Deep")
    x = draft.input(1)
    opened = [draft.module(".".join(["m"] * depth), "M") for depth in range(1, 1200)]
    for manager in opened:
        manager.__enter__()
        x = draft.op("relu", x, shape=(1,))
    for manager in reversed(opened):
        manager.__exit__(None, None, None)
    assert len(summary(draft.graph()).splitlines()) < 70
