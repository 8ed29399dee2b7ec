"""Find the tensors whose values decided an ``if``, ``while``, ternary or ``assert``, and the branch taken.

The recorder stores each read of a tensor's plain value (``bool(t)``, ``t.item()``) with its instruction.
Python keeps the source columns of every instruction, so the read belongs to the innermost construct whose
condition contains the instruction. If the condition is just the tensor, or its negation, the value tells
which branch was taken; otherwise the line of the next operation does. Without source (text passed to
``exec``) only the read is known.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from types import CodeType
from typing import Any, NamedTuple

from ...core.graph import Branch
from ..capture.recording import Read


class _Span(NamedTuple):
    """A range of source: line and column of its first and its last character."""

    start: tuple[int, int]
    stop: tuple[int, int]

    def contains(self, other: _Span) -> bool:
        return self.start <= other.start and other.stop <= self.stop


class _Test(NamedTuple):
    """A construct with a condition.

    Attributes:
        kind: ``"if"``, ``"while"`` …, as in ``Branch``.
        whole: The span of the construct.
        test: The span of its condition, without any ``not``.
        sign: 1, or -1 if an odd number of ``not`` was removed.
        simple: Whether the condition is one value, not several joined by ``and`` and ``or``.
        body: The lines that run if the condition is true.
        orelse: The lines that run if it is false.
    """

    kind: str
    whole: _Span
    test: _Span
    sign: int
    simple: bool
    body: range
    orelse: range

    def reads(self, instruction: _Span) -> bool:
        """Return whether the instruction with this span belongs to the condition.

        Python gives the jump on a bare name the span of the whole construct.
        """
        return self.test.contains(instruction) or instruction == self.whole

    def way(self, instruction: _Span, value: bool | None) -> bool | None:
        """Return whether the condition is true, given the value read; None if other values matter too."""
        decides = instruction == self.test or (instruction == self.whole and self.simple)
        return (value if self.sign > 0 else not value) if decides and value is not None else None


def find_branches(
    reads: Sequence[Read], sites: Sequence[tuple[CodeType, int]], site_of_row: Sequence[int]
) -> list[Branch]:
    """Return a Branch for each read.

    Args:
        reads: The reads, in order.
        sites: The instructions of the recording: code and ``f_lasti``.
        site_of_row: The index into ``sites`` of every recorded row.

    Returns:
        The branches, in the order of ``reads``. Their rows are recorded rows.
    """
    parsed: dict[int, list[_Test]] = {}
    branches = []
    for read in reads:
        span = _span_of(read.code, read.instruction)
        if id(read.code) not in parsed:
            parsed[id(read.code)] = _tests(read.code)
        tests = [test for test in parsed[id(read.code)] if span and test.reads(span)]
        if span is None or not tests:
            branches.append(Branch(read.row, "read", None, read.how))
            continue
        test = max(tests, key=lambda t: (t.whole.start, [-at for at in t.whole.stop]))  # the innermost
        way = test.way(span, read.value)
        if way is None:
            way = _way_by_next_line(read, test, sites, site_of_row)
        branches.append(Branch(read.row, test.kind, way, read.how))
    return branches


def _way_by_next_line(
    read: Read, test: _Test, sites: Sequence[tuple[CodeType, int]], site_of_row: Sequence[int]
) -> bool | None:
    """Return whether the next operation of the same function is in the body; None if in neither branch."""
    for site in islice(site_of_row, read.next_row, None):
        if site >= 0 and sites[site][0] is read.code:
            line = _line_of(*sites[site])
            return True if line in test.body else False if line in test.orelse else None
    return None


def _tests(code: CodeType) -> list[_Test]:
    """Return all constructs with a condition in the function of ``code``."""
    tree, shift = _source_tree(code)
    nodes = [] if tree is None else list(ast.walk(tree))
    elifs = {
        id(node.orelse[0])
        for node in nodes
        if isinstance(node, ast.If)
        and len(node.orelse) == 1
        and isinstance(node.orelse[0], ast.If)
        and node.orelse[0].col_offset == node.col_offset  # an if inside an else is indented further
    }
    return [
        _test(kind, whole, condition, body, orelse, shift)
        for node in nodes
        for kind, whole, condition, body, orelse in _conditions(node, elifs)
    ]


def _conditions(node: Any, elifs: set[int]) -> Iterator[tuple[str, Any, ast.expr, list[Any], list[Any]]]:
    """Yield a node's conditions: kind, construct, condition, body if it is true, body if it is false."""
    if isinstance(node, ast.If):
        yield ("elif" if id(node) in elifs else "if"), node, node.test, node.body, node.orelse
    elif isinstance(node, ast.While):
        yield "while", node, node.test, node.body, node.orelse
    elif isinstance(node, ast.IfExp):
        yield "ternary", node, node.test, [node.body], [node.orelse]
    elif isinstance(node, ast.Assert):
        yield "assert", node, node.test, [], []
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        for generator in node.generators:
            for condition in generator.ifs:
                yield "comprehension", node, condition, [], []
    elif isinstance(node, ast.match_case) and node.guard is not None:
        yield "guard", node.guard, node.guard, node.body, []


def _test(
    kind: str, whole: Any, condition: ast.expr, body: list[Any], orelse: list[Any], shift: int
) -> _Test:
    sign = 1
    while isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        condition, sign = condition.operand, -sign
    return _Test(
        kind,
        _span(whole, shift),
        _span(condition, shift),
        sign,
        not isinstance(condition, ast.BoolOp),
        _lines(body, shift),
        _lines(orelse, shift),
    )


def _lines(nodes: list[Any], shift: int) -> range:
    return range(nodes[0].lineno + shift, nodes[-1].end_lineno + shift + 1) if nodes else range(0)


def _span(node: Any, shift: int) -> _Span:
    return _Span(
        (node.lineno + shift, node.col_offset),
        (node.end_lineno + shift, node.end_col_offset),
    )


def _source_tree(code: CodeType) -> tuple[ast.AST | None, int]:
    """Return the syntax tree of a function, and what to add to its lines for those of the file.

    For a function that is part of an expression (a lambda, a comprehension) it is the tree of the whole file.
    """
    lines = linecache.getlines(code.co_filename)
    first = code.co_firstlineno - 1
    if not 0 <= first < len(lines):
        return None, 0
    if not code.co_name.startswith("<"):
        with suppress(SyntaxError, IndexError, ValueError):
            block = inspect.getblock(lines[first:])
            if block[0][:1].isspace():  # removing the indentation would change blank lines and long strings
                return ast.parse("".join(["if True:\n", *block])), first - 1
            return ast.parse("".join(block)), first
    try:
        return ast.parse("".join(lines)), 0
    except (SyntaxError, ValueError):
        return None, 0


def _span_of(code: CodeType, instruction: int) -> _Span | None:
    """Return the span of an instruction in its file; None if it is not known."""
    line, end_line, column, end_column = next(
        islice(code.co_positions(), instruction // 2, None), (None,) * 4
    )
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return _Span((line, column), (end_line, end_column))


def _line_of(code: CodeType, instruction: int) -> int:
    span = next(islice(code.co_positions(), instruction // 2, None), (None,))
    return span[0] or 0
