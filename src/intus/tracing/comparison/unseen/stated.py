"""Find what two passes state that their values do not show: other constants, and a lower precision.

An epsilon that is ten times as large changes a norm by less than what rounding explains behind some layers or
in half precision, and by more on other inputs. So constants are compared wherever two operations correspond,
whatever the values are. If only one pass casts to a lower precision, its rounding explains differences that
the other pass alone would not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ....core.analysis.walks import ancestors
from ....core.graph import INPUT, OP, OUTPUT, Graph
from ....core.vocabularies import common_type
from ....core.vocabularies.families import MOVES
from ....viewing.repr_text import listed
from ..parameters.coverage import module_of
from ..values.elements import eps_of
from ..values.settings import (
    arguments,
    common,
    different_arguments,
    number_of,
    same_number,
    stated_apart,
    stated_arguments,
)
from .causal import is_causal_mask
from .passes import placed
from .same_when_run import compute_same

if TYPE_CHECKING:
    from ...results.trace import Trace

#: Dtypes of floats, the finest first.
_FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
#: Arguments that mean the same in every framework, whatever else the operations are given.
_STATED = frozenset(
    {"eps", "negative_slope", "approximate", "alpha", "lambd", "threshold", "num_groups", "k"}
)
#: Operations of two numbers of which one may be a constant, with whether they may change places.
_BINARY = {"add": True, "mul": True, "sub": False, "div": False, "pow": False}
#: The largest number that is taken for an epsilon where a file adds one.
_LARGEST_EPSILON = 0.02


def different_stated(a: Trace, b: Trace, pairs: Iterable[tuple[int, int]]) -> dict[int, list[str]]:
    """Return the constants that both passes state and that differ, as sentences by the row of ``a``.

    Args:
        a: The trace of the model.
        b: The trace of the file.
        pairs: The rows that correspond to each other; -1 where there is none.
    """
    both = [(i, j) for i, j in pairs if i >= 0 and j >= 0]
    stated = _Stated(a.graph, b.graph, both)
    found = {i: list(stated.sentences(i, j)) for i, j in both if a.graph.ops.kind[i] == OP}
    return {i: sentences for i, sentences in sorted(found.items()) if sentences}


def different_constants_stated(
    a: Trace, b: Trace, pairs: Iterable[tuple[int, int]], names: tuple[str, str]
) -> Iterator[str]:
    """Yield what is said of other constants that two operations of one type state differently.

    Unlike those of ``different_stated``, they may not mean the same in both frameworks, or be made up for by
    another operation.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows whose values differ by no more than rounding explains.
        names: The names of the passes.
    """
    found: dict[str, list[str]] = {}
    pairs = list(pairs)
    graph, other = a.graph, b.graph
    stated = _Stated(graph, other, pairs)
    for i, j in pairs:
        if not (graph.ops.kind[i] == other.ops.kind[j] == OP) or graph.type_of(i) in MOVES - {"pad"}:
            continue
        # Another factor may make up for one, so the tensors that are multiplied have to be the same.
        found_here = stated.operands(i, j) if stated.are_binary(i, j) else stated_apart(graph, i, other, j)
        for name, x, y in found_here:
            if name == "is_causal" and is_causal_mask(*((b, j) if x == "True" else (a, i))):
                continue  # the other pass writes the mask
            if "None" in (x, y) and compute_same(a, i, b, j):
                continue  # None stands for what the other pass states
            found.setdefault(f"{name} is {x} in {names[0]}, {y} in {names[1]}", []).append(placed(graph, i))
    for text, places in found.items():
        yield f"{text}, at {listed(places)}, which rounding hides on these inputs"


class Lower(NamedTuple):
    """A precision that only one of two passes rounds to.

    Attributes:
        dtype: The dtype.
        sentence: What is said of it.
        is_stated: Whether the pass has an input, a parameter or an output of it. If not, the rounding in
            between is an operation that the other pass lacks.
    """

    dtype: str
    sentence: str
    is_stated: bool


def lower_precisions(a: Graph, b: Graph, names: tuple[str, str]) -> list[Lower]:
    """Return the precisions that only one of two passes rounds to.

    A precision counts if the other pass has none as low, or has a finer one in a module of the same address.

    Args:
        a: The first graph.
        b: The second graph.
        names: The names of the passes.
    """
    sides = _dtypes(a), _dtypes(b)
    found: list[Lower] = []
    for graph, one, two, name, other in ((a, *sides, *names), (b, *sides[::-1], *names[::-1])):
        stated = {param.dtype for param in graph.params}
        stated |= {graph.dtype_of(row) for kind in (INPUT, OUTPUT) for row in graph.rows_of(kind)}
        everywhere = set().union(*two.values())
        for dtype in _FLOATS[1:]:
            modules = [
                address
                for address, own in one.items()
                if dtype in own and _is_finer(two.get(address, everywhere) or everywhere, dtype)
            ]
            if modules:
                inside = [address for address in modules if address]
                where = f" in {listed(inside)}" if inside and set(modules) != set(one) else ""
                sentence = (
                    f"{name[0].upper()}{name[1:]} computes in {dtype}{where}, {other} in a higher precision: "
                    f"a difference that the rounding of {dtype} explains is not seen."
                )
                found.append(Lower(dtype, sentence, dtype in stated))
    return found


def _is_finer(dtypes: set[str], dtype: str) -> bool:
    """Return whether all of some dtypes of floats are finer than another."""
    return bool(dtypes) and max(map(_FLOATS.index, dtypes)) < _FLOATS.index(dtype)


def _dtypes(graph: Graph) -> dict[str, set[str]]:
    """Return the dtypes of the floats that the operations of each module compute for the outputs."""
    found: dict[str, set[str]] = {}
    outputs = graph.rows_of(OUTPUT)
    for row in sorted({*outputs, *ancestors(graph, outputs)}):
        dtype = graph.dtype_of(row)
        if graph.ops.kind[row] == OP and dtype in _FLOATS:
            found.setdefault(module_of(graph, row), set()).add(dtype)
    return found


def _either(numbers: Iterable[float]) -> str:
    return " or ".join(f"{number:.6g}" for number in numbers)


class _Stated:
    def __init__(self, a: Graph, b: Graph, both: list[tuple[int, int]]) -> None:
        self._a, self._b = a, b
        self._sides = a, b
        self._partner = dict(both)
        self._paired = set(self._partner), set(self._partner.values())

    def sentences(self, i: int, j: int) -> Iterator[str]:
        """Yield how the constants of two rows differ."""
        where = self._a.label(i)
        given = self._epsilon(0, i), self._epsilon(1, j)
        one, two = ([] if eps is None else [eps] for eps in given)
        if one or two:  # of the other side, those among the operations that a norm consists of
            one, two = one or list(self._epsilons(0, i)), two or list(self._epsilons(1, j))
            if one and two and not any(self._equal(x, y, i, j) for x in one for y in two):
                yield f"eps of {where} is {_either(one)} in a, {_either(two)} in b"
        for name, x, y in different_arguments(self._a, i, self._b, j):
            if name in _STATED and name != "eps":
                yield f"{name} of {where} is {x} in a, {y} in b"

    def are_binary(self, i: int, j: int) -> bool:
        """Return whether two operations are the same one of two numbers."""
        one, two = common_type(self._a, i), common_type(self._b, j)
        return one == two and one in _BINARY

    def operands(self, i: int, j: int) -> Iterator[tuple[str, str, str]]:
        """Yield the number that is added to, or multiplied with, the same tensor, if it is another."""
        if self.are_binary(i, j) and self._same_operands(i, j):
            kind = common_type(self._a, i)
            one, two = self._operand(self._a, i, kind), self._operand(self._b, j, kind)
            if one is not None and two is not None and not self._equal(one, two, i, j):
                yield "the constant", f"{one:.6g}", f"{two:.6g}"

    def _same_operands(self, i: int, j: int) -> bool:
        """Return whether two operations are given the one tensor that corresponds."""
        given, others = self._a.parents(i), self._b.parents(j)
        return len(given) == len(others) == 1 and self._partner.get(given[0]) == others[0]

    def _operand(self, graph: Graph, row: int, kind: str) -> float | None:
        """Return the number that an operation of two numbers has as its second, or as either."""
        given = common(graph, row, arguments(graph.setting(row)))
        if "alpha" in given or "rounding_mode" in given:
            return None
        texts = [given[name] for name in ("other", "exponent", "y") if name in given]
        if _BINARY[kind]:
            texts += [given[name] for name in ("A", "X", "x") if name in given]
        return number_of(texts[0]) if len(texts) == 1 else None

    def _epsilon(self, side: int, row: int) -> float | None:
        """Return the epsilon of a norm; None if it is none, or does not say."""
        graph = self._sides[side]
        kind = common_type(graph, row)
        text = stated_arguments(graph, row).get("eps")
        if "norm" not in kind or text is None:
            return None
        if text == "None" and kind == "rms_norm":
            return eps_of(graph.dtype_of(row))
        return number_of(text)

    def _epsilons(self, side: int, row: int) -> Iterator[float]:
        """Yield the epsilon of a norm, or those among the operations it consists of."""
        graph = self._sides[side]
        waiting, seen = [row], {row}
        while waiting:
            one = waiting.pop()
            stated = stated_arguments(graph, one)
            kind = common_type(graph, one)
            if "norm" in kind and "eps" in stated:
                found = number_of(stated["eps"])
            else:
                found = self._operand(graph, one, kind) if kind == "add" else None
            if found is not None and 0 < found <= _LARGEST_EPSILON:
                yield found
            before = [n for n in graph.parents(one) if n not in self._paired[side] and n not in seen]
            seen.update(before)
            if "norm" not in kind:
                waiting += before

    def _equal(self, x: float, y: float, i: int, j: int) -> bool:
        """Return whether two constants are one in the precision of the two rows."""
        rows = (self._a, i), (self._b, j)
        return same_number(x, y, [graph.dtype_of(row) for graph, row in rows])
