"""The outline in plain text."""

from __future__ import annotations

import itertools

from drafts import Draft, chain, digits_cnn, gpt2, resnet
from hypothesis import given
from hypothesis import strategies as st

from intus.viewing.text import dimensions, duration, headline, outline, size, walk


def test_headline() -> None:
    assert headline(digits_cnn()) == "11 operations, 10 modules, 38,314 parameters (150 KB), 2.10 ms"


def test_outline_shows_modules_with_what_is_inside() -> None:
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


def test_every_operation_is_in_it_once() -> None:
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


def test_depth_and_bound() -> None:
    graph = resnet()
    shallow = outline(graph, depth=0)
    assert "layer1" in shallow
    assert "layer1.0" not in shallow
    assert "… and 10 more" in outline(chain(20), most=12)


def test_module_figures_are_sums() -> None:
    graph = digits_cnn()
    rows = {row.name: row for row in walk(graph)}
    parts = [rows[f"features.{i}"] for i in range(6)]
    assert rows["features"].nanoseconds == sum(part.nanoseconds for part in parts)
    assert rows["features"].parameters == sum(part.parameters for part in parts) == 4832


def test_shared_parameters_count_once() -> None:
    draft = Draft("Tied")
    x = draft.input(2)
    with draft.module("", "Tied"), draft.module("body", "Body"):
        for _ in range(2):
            x = draft.op("linear", x, shape=(2,), params={"w": (2, 2)})
    assert next(row for row in walk(draft.graph()) if row.name == "body").parameters == 4


def test_a_function_that_returns_several_tensors_is_one_operation() -> None:
    draft = Draft("Split")
    x = draft.input(4)
    with draft.module("", "Split"), draft.module("halves", "Halves"):
        draft.op("split", x, shape=(2,))
        draft.op("split", x, shape=(2,))
        draft.rows[-1]["event"] = draft.rows[-2]["event"]
    names = [row.name for row in walk(draft.graph())]
    assert names == ["input_1", "halves"]


def test_a_failure_is_named_where_it_happened() -> None:
    draft = Draft("Bad")
    x = draft.input(2)
    with draft.module("", "Bad"):
        draft.op("matmul", x, shape=(), failed=True)
    text = outline(draft.graph(error="RuntimeError: shapes differ"))
    assert "matmul_1_1  matmul failed" in text
    assert text.endswith("Failed: RuntimeError: shapes differ")


def test_deep_nesting_needs_no_recursion() -> None:
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
def test_figures_are_short(number: int) -> None:
    assert len(size(number)) <= 9
    assert len(duration(number)) <= 11


def test_dimensions() -> None:
    assert dimensions((2, 3)) == "2×3"
