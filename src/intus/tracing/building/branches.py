"""Which way a model went: the tensors whose truth decided an ``if``, ``while``, ternary or ``assert``.

The recorder notes each time Python asks a tensor for a plain value (``bool(t)``, ``t.item()``), and at which
instruction. Python keeps the columns of every instruction, so the source tells what the value was asked
for: the innermost construct whose condition holds the instruction. The way it went is the value itself where
the condition is just the tensor (or its negation), else it is told by the line of the next operation. Without
source (text given to ``exec``) only the read is known.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator, Sequence
from itertools import islice
from types import CodeType
from typing import Any, NamedTuple

from ...core.graph import Branch
from ..capture.recording import Read


class _Span(NamedTuple):
    start: tuple[int, int]
    stop: tuple[int, int]

    def holds(self, other: _Span) -> bool:
        return self.start <= other.start and other.stop <= self.stop


class _Test(NamedTuple):
    """A construct that tests something. ``whole`` is where it stands, ``test`` its condition less any
    ``not``; ``sign`` is 1, or -1 under an odd number of them; ``simple`` whether it is one value, not
    several joined by ``and`` and ``or``; ``body`` the lines that run if it holds, ``orelse`` if not."""

    kind: str
    whole: _Span
    test: _Span
    sign: int
    simple: bool
    body: range
    orelse: range

    def asks(self, here: _Span) -> bool:
        """Whether an instruction at ``here`` belongs to the condition: Python gives the jump on a bare name
        the place of the whole construct."""
        return self.test.holds(here) or here == self.whole

    def way(self, here: _Span, value: bool | None) -> bool | None:
        """Which way the value alone sends it; None where it takes more than this value to tell."""
        decides = here == self.test or (here == self.whole and self.simple)
        return (value if self.sign > 0 else not value) if decides and value is not None else None


def find_branches(
    reads: Sequence[Read], sites: Sequence[tuple[CodeType, int]], site_of_row: Sequence[int]
) -> list[Branch]:
    """One Branch for each read, in order; ``site_of_row`` gives every recorded row's number in ``sites``."""
    parsed: dict[int, list[_Test]] = {}
    found = []
    for read in reads:
        here = _span_of(read.code, read.at)
        if id(read.code) not in parsed:
            parsed[id(read.code)] = _tests(read.code)
        around = [test for test in parsed[id(read.code)] if here and test.asks(here)]
        if here is None or not around:
            found.append(Branch(read.row, "read", None, read.how))
            continue
        test = max(around, key=lambda t: (t.whole.start, [-at for at in t.whole.stop]))  # the innermost
        way = test.way(here, read.value)
        if way is None:
            way = _way_by_next_line(read, test, sites, site_of_row)
        found.append(Branch(read.row, test.kind, way, read.how))
    return found


def _way_by_next_line(
    read: Read, test: _Test, sites: Sequence[tuple[CodeType, int]], site_of_row: Sequence[int]
) -> bool | None:
    """The first operation after the read that ran in the same function says which lines were taken."""
    for site in islice(site_of_row, read.rows, None):
        if site >= 0 and sites[site][0] is read.code:
            line = _line_of(*sites[site])
            return True if line in test.body else False if line in test.orelse else None
    return None


def _tests(code: CodeType) -> list[_Test]:
    """Everything in the function of ``code`` that tests something."""
    tree, shift, margin = _source_tree(code)
    nodes = [] if tree is None else list(ast.walk(tree))
    elifs = {
        id(node.orelse[0])
        for node in nodes
        if isinstance(node, ast.If)
        and len(node.orelse) == 1
        and isinstance(node.orelse[0], ast.If)
        and node.orelse[0].col_offset == node.col_offset  # an if under an else stands further right
    }
    return [
        _test(kind, whole, condition, body, orelse, shift, margin)
        for node in nodes
        for kind, whole, condition, body, orelse in _conditions(node, elifs)
    ]


def _conditions(node: Any, elifs: set[int]) -> Iterator[tuple[str, Any, ast.expr, list[Any], list[Any]]]:
    """Kind, construct, condition, and what runs if it holds and if not."""
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
    kind: str, whole: Any, condition: ast.expr, body: list[Any], orelse: list[Any], shift: int, margin: int
) -> _Test:
    sign = 1
    while isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        condition, sign = condition.operand, -sign
    return _Test(
        kind,
        _span(whole, shift, margin),
        _span(condition, shift, margin),
        sign,
        not isinstance(condition, ast.BoolOp),
        _lines(body, shift),
        _lines(orelse, shift),
    )


def _lines(nodes: list[Any], shift: int) -> range:
    return range(nodes[0].lineno + shift, nodes[-1].end_lineno + shift + 1) if nodes else range(0)


def _span(node: Any, shift: int, margin: int) -> _Span:
    return _Span(
        (node.lineno + shift, node.col_offset + margin),
        (node.end_lineno + shift, node.end_col_offset + margin),
    )


def _source_tree(code: CodeType) -> tuple[ast.AST | None, int, int]:
    """The syntax of a function, or of its whole file where it is part of an expression; with what to add to
    its lines and columns to have the file's own."""
    lines = linecache.getlines(code.co_filename)
    first = code.co_firstlineno - 1
    if not 0 <= first < len(lines):
        return None, 0, 0
    try:
        block = inspect.getblock(lines[first:])
        margin = len(block[0]) - len(block[0].lstrip())
        if not code.co_name.startswith("<"):
            cut = [line[margin:] if line[:margin].isspace() else line for line in block]
            return ast.parse("".join(cut)), first, margin
    except (SyntaxError, IndexError, ValueError):
        pass  # a method whose lines go below its own margin, a lambda, a comprehension
    try:
        return ast.parse("".join(lines)), 0, 0
    except (SyntaxError, ValueError):
        return None, 0, 0


def _span_of(code: CodeType, at: int) -> _Span | None:
    """Where in its file an instruction's expression stands."""
    line, end_line, column, end_column = next(islice(code.co_positions(), at // 2, None), (None,) * 4)
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return _Span((line, column), (end_line, end_column))


def _line_of(code: CodeType, at: int) -> int:
    span = next(islice(code.co_positions(), at // 2, None), (None,))
    return span[0] or 0
