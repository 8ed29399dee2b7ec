"""Check the lengths of inputs against the ranges that a ``.pt2`` file states, as torch's guards do."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core.errors import InputError


class RefusedLengthError(InputError):
    """A length of an input is outside of the range that its file states."""


class Range(NamedTuple):
    """The lengths that a file allows, ends included."""

    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.low:g}"
        if math.isinf(self.high):
            return f"{self.low:g} or more"
        return f"{self.low:g} to {self.high:g}"

    def has(self, length: int) -> bool:
        """Return whether torch's program runs on a length: where 2 is the least, it also runs on 0 and 1."""
        return self.low == length or (length <= self.high and (self.low <= _LEAST or self.low <= length))


#: The least length of an open axis that torch.export takes, because it would make 0 and 1 constants.
_LEAST = 2


def check_ranges(
    file: str, program: Mapping[str, Any], inputs: Sequence[tuple[str, Sequence[Any], Sequence[int]]]
) -> None:
    """Raise RefusedLengthError if a length is outside of its range, or does not fit to another.

    Args:
        file: The name of the file.
        program: The file's JSON.
        inputs: The name of each input, its sizes in the file, and its shape.
    """
    symbols = {
        name: Range(_number(one.get("min_val"), -math.inf), _number(one.get("max_val"), math.inf))
        for name, one in (program.get("range_constraints") or {}).items()
    }
    lengths = [
        (f"The length of axis {axis} of the input {name!r} of {file}", _expression(size), length)
        for name, sizes, shape in inputs
        for axis, (size, length) in enumerate(zip(sizes, shape, strict=True))
    ]
    known: dict[str, Range] = {}
    for where, expression, length in sorted(lengths, key=lambda one: _symbol(one[1]) is None):
        for allowed in (_range(expression, symbols), _range(expression, symbols | known)):
            if allowed is not None and not allowed.has(length):
                raise RefusedLengthError(f"{where} must be {allowed}, got {length}.")
        symbol = _symbol(expression)
        if symbol is not None:
            known[symbol] = Range(length, length)


def _expression(size: Mapping[str, Any]) -> ast.expr | None:
    """Return a length that is open as an expression; None if it is a number, or cannot be read."""
    try:
        text: str = size["as_expr"]["expr_str"]
        return ast.parse(text, mode="eval").body
    except (KeyError, TypeError, SyntaxError, ValueError, RecursionError):
        return None


def _symbol(node: ast.expr | None) -> str | None:
    """Return the name of a length that is a symbol alone."""
    if isinstance(node, ast.Name):
        return node.id
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Symbol"
    return str(ast.literal_eval(node.args[0])) if is_call else None  # type: ignore[union-attr]


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise


def _range(node: ast.expr | None, symbols: Mapping[str, Range]) -> Range | None:
    """Return the range of an expression of lengths; None if it is not known.

    Example:
        >>> text = "Add(Mul(Integer(2), Symbol('s0', positive=True)), Integer(1))"
        >>> str(_range(_expression({"as_expr": {"expr_str": text}}), {"s0": Range(2, 4)}))
        '5 to 9'
    """
    try:
        return None if node is None else _of(node, symbols)
    except (KeyError, ValueError, TypeError, IndexError, RecursionError):
        return None


def _of(node: ast.expr, symbols: Mapping[str, Range]) -> Range:
    symbol = _symbol(node)
    if symbol is not None:
        return symbols[symbol]
    if isinstance(node, ast.BinOp):
        kind, args = type(node.op).__name__, [node.left, node.right]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        kind, args = node.func.id, node.args
    else:
        kind, args = "Integer", [node]
    if kind == "Integer":
        value = int(ast.literal_eval(args[0]))
        return Range(value, value)
    return _joined(kind, [_of(one, symbols) for one in args])


def _joined(kind: str, ranges: Sequence[Range]) -> Range:
    """Return the range of a sum, or of a product of numbers that are not negative."""
    if kind == "Add":
        return Range(sum(one.low for one in ranges), sum(one.high for one in ranges))
    if kind not in ("Mul", "Mult") or any(one.low < 0 for one in ranges):
        raise ValueError(kind)
    return Range(math.prod(one.low for one in ranges), math.prod(one.high for one in ranges))
