"""Compare the arguments of operations that graphs store as text, which files and other frameworks have."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterable, Iterator

from ...core.graph import Graph
from ...viewing.repr_text import listed

#: Arguments without effect in evaluation mode.
_UNUSED = frozenset({"p", "dropout_p", "momentum"})


def different_settings(a: Graph, row: int, b: Graph, other: int) -> list[str]:
    """Return how the arguments of two operations of one type differ, as sentences.

    Of different frameworks only the arguments that both name are compared.

    Args:
        a: The first graph.
        row: A row of it.
        b: The second graph.
        other: A row of it.

    Example:
        >>> from intus.core.building import GraphBuilder
        >>> def norm(setting):
        ...     builder = GraphBuilder("Net")
        ...     builder.op("norm", (1,), "float32", setting=setting)
        ...     return builder.graph()[0]
        >>> different_settings(norm("3, eps=1e-05"), 0, norm("3, eps=0.001"), 0)
        ['eps is 1e-05 in a, 0.001 in b']
    """
    if a.type_of(row) != b.type_of(other):
        return []
    one, two = (_defaults(g, i) | _arguments(g.setting(i)) for g, i in ((a, row), (b, other)))
    names = list(dict.fromkeys((*one, *two)))
    if a.facts.get("framework") != b.facts.get("framework"):
        names = [name for name in names if name in one and name in two]
    texts = [(name, one.get(name, "not given"), two.get(name, "not given")) for name in names]
    return [f"{name} is {x} in a, {y} in b" for name, x, y in texts if not _equal(x, y)]


def different_constants(a: Graph, rows_a: Iterable[int], b: Graph, rows_b: Iterable[int]) -> list[str]:
    """Return the constants among the arguments that the other side does not have, as a sentence.

    Whole numbers are left out, because they are mostly axes and sizes. If only one side has such constants,
    they explain nothing.

    Args:
        a: The first graph.
        rows_a: The rows of the operations of ``a``.
        b: The second graph.
        rows_b: The rows of the operations of ``b`` that compute the same.
    """
    one, two = list(_constants(a, rows_a)), list(_constants(b, rows_b))
    only = [
        [f"{text} ({label})" for text, label in some if not any(_equal(text, x) for x, _ in others)]
        for some, others in ((one, two), (two, one))
    ]
    return [f"its constants are {listed(only[0])} in a, {listed(only[1])} in b"] if all(only) else []


def _defaults(graph: Graph, row: int) -> dict[str, str]:
    """Return the arguments that an operation of a ``.pt2`` file has by default, which the file leaves out."""
    torch = sys.modules.get("torch")
    if graph.facts.get("framework") != "torch.export" or torch is None:
        return {}
    operator = getattr(torch.ops.aten, graph.type_of(row), None)
    found: dict[str, set[str]] = {}
    for overload in operator.overloads() if operator is not None else ():
        for argument in getattr(operator, overload)._schema.arguments:
            if isinstance(argument.default_value, str | bool | int | float):
                found.setdefault(argument.name, set()).add(repr(argument.default_value))
    return {name: texts.pop() for name, texts in found.items() if len(texts) == 1}


def _arguments(setting: str) -> dict[str, str]:
    """Return the arguments in a text by name, or by position from 1; empty if it is cut or no Python."""
    try:
        call = ast.parse(f"f({setting})", mode="eval").body
    except SyntaxError:
        return {}
    if not isinstance(call, ast.Call):
        return {}
    positional = {f"argument {number}": ast.unparse(arg) for number, arg in enumerate(call.args, 1)}
    return positional | {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg}


def _constants(graph: Graph, rows: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Yield the fractions among the arguments of operations as text, with the labels of the operations."""
    for row in rows:
        for name, text in _arguments(graph.setting(row)).items():
            number = _number(text)
            if number is not None and number != round(number) and name not in _UNUSED:
                yield (text if name.startswith("argument ") else f"{name}={text}"), graph.label(row)


def _number(text: str) -> float | None:
    try:
        value = float(text.rpartition("=")[2])
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _equal(one: str, two: str) -> bool:
    """Return whether two texts are the same, or numbers that float32 does not tell apart."""
    x, y = _number(one), _number(two)
    return one == two if x is None or y is None else math.isclose(x, y, rel_tol=1e-6)
