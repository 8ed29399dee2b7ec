"""Tests of finding the branches that a model took from the tensors whose values Python read."""

from __future__ import annotations

import linecache
import runpy
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intus import load, trace

UP, DOWN = torch.ones(3), -torch.ones(3)


def ways(model, x):
    return [(c.op.label.partition(":")[0], c.kind, c.way) for c in trace(model, x).conditionals]


def if_else(x):
    if x.sum() > 0:
        x = x + 1
    else:
        x = x - 1
    return x


def if_not(x):
    if not (x.sum() > 0):
        x = x * 2
    return x + 1


def bare_name(x):
    m = x.sum() > 0
    if m:
        x = x * 2
    return x + m


def elif_chain(x):
    if x.sum() > 100:
        x = x + 1
    elif x.sum() > 0:
        x = x + 2
    elif x.sum() < -100:
        x = x + 3
    return x * 2


def ternary(x):
    y = x * 2 if x.sum() > 0 else x * 3
    return y + 1


def looping(x):
    x = x.abs() + 1
    while x.sum() < 20:
        x = x * 2
    return x


def asserting(x):
    assert (x.abs() < 1e9).all(), "too large"
    return x + 1


def by_item(x):
    if x.sum().item() > 0.5:
        return x * 2
    return x * 3


def by_equal(x):
    if torch.equal(x, x):
        x = x * 2
    return x + 1


def both(x):
    if x.sum() > 0 and x.max() > 0:
        x = x * 2
    return x + 1


def comprehension(x):
    return sum([part for part in (x, x * 2) if part.sum() > 0], x)


def only_read(x):
    v = x.sum().item()
    return x * v


def never_tested(x):
    flag = (x > 0).all()
    return x + 1, flag


@pytest.mark.parametrize(
    ("model", "up", "down"),
    [
        (if_else, [("gt_1_2", "if", True)], [("gt_1_2", "if", False)]),
        (if_not, [("gt_1_2", "if", False)], [("gt_1_2", "if", True)]),
        (bare_name, [("gt_1_2", "if", True)], [("gt_1_2", "if", False)]),
        (ternary, [("gt_1_2", "ternary", True)], [("gt_1_2", "ternary", False)]),
        (asserting, [("all_1_3", "assert", True)], [("all_1_3", "assert", True)]),
        (
            by_item,
            [("sum_1_1", "if", True)],
            [("sum_1_1", "if", None)],
        ),  # there is no else to find the next operation in
        (by_equal, [("input_1", "if", True)], [("input_1", "if", True)]),
        (only_read, [("sum_1_1", "read", None)], [("sum_1_1", "read", None)]),
        (never_tested, [], []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_branch_of_each_construct(model, up, down):
    assert ways(model, UP) == up
    assert ways(model, DOWN) == down


def test_elif_chain():
    assert [(kind, way) for _, kind, way in ways(elif_chain, UP)] == [("if", False), ("elif", True)]
    assert [(kind, way) for _, kind, way in ways(elif_chain, DOWN)] == [
        ("if", False),
        ("elif", False),
        ("elif", False),
    ]


def test_while_loop():
    found = [(kind, way) for _, kind, way in ways(looping, UP)]
    assert found == [("while", True), ("while", True), ("while", False)]


def test_condition_with_and():
    assert [(kind, way) for _, kind, way in ways(both, UP)] == [("if", None), ("if", True)]


def test_comprehension_condition():
    assert [(kind, way) for _, kind, way in ways(comprehension, UP)] == [("comprehension", True)] * 2
    assert [(kind, way) for _, kind, way in ways(comprehension, DOWN)] == [("comprehension", False)] * 2


def test_involved_ops_only_serve_the_decision():
    (decision,) = trace(if_else, UP).conditionals
    assert [op.label for op in decision.involved] == ["sum_1_1", "gt_1_2"]
    assert [op.label for op in decision.starts] == ["sum_1_1"]
    (shared,) = trace(bare_name, UP).conditionals  # the boolean is also used elsewhere
    assert shared.involved == []


CELL = """
def cell(x):
    if x.sum() > 0:
        x = x + 1
    return x
"""


def test_branch_in_a_notebook_cell():
    name = "<ipython-input-7-abc>"
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
    names = {}
    exec(compile(CELL, name, "exec"), names)
    try:
        assert ways(names["cell"], UP) == [("gt_1_2", "if", True)]
    finally:
        del linecache.cache[name]


def test_branch_without_source():
    names = {}
    exec(compile(CELL, "<nowhere>", "exec"), names)
    assert ways(names["cell"], UP) == [("gt_1_2", "read", None)]


def test_branch_in_a_method_and_a_lambda():
    class Net(torch.nn.Module):
        def forward(self, x):
            if x.sum() > 0:
                x = x.relu()
            return x

    assert ways(Net(), DOWN) == [("gt_1_2", "if", False)]
    assert ways(lambda x: x + 1 if x.sum() > 0 else x - 1, UP) == [("gt_1_2", "ternary", True)]


def test_decision_without_input_is_no_orphan():
    def gate(x):
        if torch.zeros(1).sum() == 0:
            x = x + 1
        return x

    assert [op.type for op in trace(gate, UP)] == ["zeros", "sum", "eq", "add"]


def test_branches_after_save_and_load(tmp_path):
    trace(if_else, UP).save(tmp_path / "t.trace")
    (decision,) = load(tmp_path / "t.trace").conditionals
    assert (decision.op.label, decision.kind, decision.way, decision.how) == ("gt_1_2", "if", True, "bool")


#: One statement a line; noise is inserted between the lines.
METHOD = """
class Net:
    @staticmethod
    def forward(x):
        y = x * 2
        if y.mean() > 0:
            y = y + 1
        elif y.sum() > 0:
            y = y - 1
        while y.max() < 100:
            y = y * 3
        z = y if not y.min() < 0 else -y
        assert z.sum() > 0
        return z
""".strip().splitlines()
NOISE = [
    "",
    "   ",
    "\t",
    "# a comment at the margin",
    "            # a comment further in",
    "{indent}'''text",
    "{indent}text = '''",
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(3, len(METHOD) - 1), st.sampled_from(NOISE)), max_size=12))
def test_decisions_do_not_depend_on_blank_lines_comments_and_strings(
    tmp_path: Path, noise: list[tuple[int, str]]
) -> None:
    lines = list(METHOD)
    for at, text in sorted(noise, reverse=True):
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        if lines[at].lstrip().startswith("elif"):
            indent += "    "
        block = [text.format(indent=indent)]
        if "'''" in text:  # a string of several lines, some of them without indentation
            block += ["", "left of everything", "'''"]
        lines[at:at] = block
    path = tmp_path / f"net{abs(hash(tuple(lines)))}.py"
    path.write_text("\n".join(lines) + "\n")
    linecache.clearcache()
    t = trace(runpy.run_path(str(path))["Net"].forward, torch.ones(3))
    assert [(one.kind, one.way) for one in t.conditionals] == [
        ("if", True),
        *[("while", True)] * 4,
        ("while", False),
        ("ternary", True),
        ("assert", True),
    ]
