"""Look at the passes that are compared: the types, values and constants of their operations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.graph import OP, Graph
from ....core.vocabularies import common_type
from ....core.vocabularies.families import CASTS, COMPARISONS, ELEMENTWISE, MOVES, OF_BOUNDS, ROUNDING, SIGNS
from ..pairing.regions import Region, Regions, of_inputs
from ..parameters.coverage import module_of
from ..values.differences import difference, rounding
from ..values.elements import Elements, eps_of, plain
from ..values.settings import arguments, common, constant_of

if TYPE_CHECKING:
    from ...results.trace import Trace

#: The number that leaves every number as it is, of arithmetic.
NEUTRAL = {
    **dict.fromkeys(("add", "sub", "subtract", "rsub"), 0.0),
    **dict.fromkeys(("mul", "multiply", "div", "divide", "true_divide", "pow"), 1.0),
}
#: Operations that change with a number they are given whatever they do not return as it is.
_SCALING = frozenset({"leaky_relu", "elu", "celu", "selu", "rrelu", "softplus"})
#: Operations that have their cases at 0, which they do not state.
_AT_ZERO = frozenset({"leaky_relu", "prelu", "elu", "celu", "selu"})
#: Operations that return one of several tensors, element by element.
_CHOICES = frozenset({"where", "maximum", "minimum", "max", "min"})
#: Numbers among the arguments of operations on each element that are no operands.
_NO_OPERANDS = frozenset({"dim", "fmod", "to", "saturate", "decimals"})
#: Operations that return the same for many numbers, whichever these are.
_COARSE = ROUNDING.union(SIGNS, COMPARISONS) | {
    *("argmax", "argmin", "argsort", "any", "all", "mod", "remainder", "fmod"),
    *("isnan", "is_nan", "isinf", "is_inf", "isfinite"),
}
#: The epsilons of PyTorch's functions that have no signature to read them from.
_EPSILONS = {
    "cosine_similarity": {"eps": "1e-08"},
    "cosine_embedding_loss": {"eps": "1e-08"},
    "pairwise_distance": {"eps": "1e-06"},
}


_BOUND, _OTHER = frozenset({"bound"}), frozenset({"factor, summand or filling"})


class Constant(NamedTuple):
    """A number that an operation computes with.

    Attributes:
        number: The number.
        roles: Whether the cases of the operation begin there, or it computes with the number. An epsilon may
            do either.
        is_shown: Whether the values show the number: another would have made others.
    """

    number: float
    roles: frozenset[str]
    is_shown: bool = False

    @property
    def is_bound(self) -> bool:
        """True for a number at which the cases of an operation begin."""
        return self.roles == _BOUND


def placed(graph: Graph, row: int) -> str:
    """Return the label of a row, with the module that it ran in."""
    module = module_of(graph, row)
    return f"{graph.label(row)} in {module}" if module else graph.label(row)


class Pass:
    """One of two passes.

    Attributes:
        graph: Its graph.

    Args:
        trace: Its trace.
    """

    def __init__(self, trace: Trace) -> None:
        self.graph, self._trace = trace.graph, trace
        self._varies = of_inputs(trace.graph)

    def kind(self, row: int) -> str:
        """Return the common name of the type of a row, of an activation that of its function."""
        return common_type(self.graph, row)

    def dtype(self, row: int) -> str:
        """Return the dtype of a row."""
        return self.graph.dtype_of(row)

    def is_logical(self, row: int) -> bool:
        """Return whether a row is true or false."""
        return self.dtype(row) == "bool"

    def place(self, row: int) -> str:
        """Return the label of a row, with the module that it ran in."""
        return placed(self.graph, row)

    def rows(self) -> list[int]:
        """Return the rows that depend on an input."""
        return sorted(self._varies)

    def eps(self, row: int) -> float:
        """Return the distance from 1 to the next number of a row's dtype."""
        return eps_of(self.dtype(row))

    def operands(self, row: int) -> list[int]:
        """Return what an operation is given that depends on an input."""
        return [one for one in dict.fromkeys(self.graph.parents(row)) if one in self._varies]

    def inputs_before(self, inputs: set[int]) -> dict[int, set[int]]:
        """Return which of some inputs each row depends on."""
        found: dict[int, set[int]] = {row: {row} for row in inputs}
        for row in sorted(self._varies - inputs):
            found[row] = set().union(*(found.get(parent, set()) for parent in self.graph.parents(row)))
        return found

    def value(self, row: int) -> Elements | None:
        """Return the value of a row; None if it was not saved."""
        value = self._trace.values.get(row)
        return None if value is None else plain(value)

    def is_coarse(self, row: int) -> bool:
        """Return whether an operation returns the same for many numbers."""
        kind, is_whole = self.kind(row), "float" not in self.dtype(row)
        if kind in CASTS:
            return self.truncates(row)
        return kind in _COARSE or (is_whole and kind in ("div", "divide"))

    def truncates(self, row: int) -> bool:
        """Return whether an operation is a cast that makes whole numbers of fractions."""
        is_cast = self.kind(row) in CASTS and "float" not in self.dtype(row)
        return is_cast and any("float" in self.dtype(one) for one in self.graph.parents(row))

    def constants(self, row: int, *, is_end: bool) -> Iterator[Constant]:
        """Yield the numbers that an operation has as operands.

        Args:
            row: The row of the operation.
            is_end: Whether its own result is compared, and not only what is computed from it.
        """
        kind = self.kind(row)
        given = common(self.graph, row, arguments(self.graph.setting(row)))
        if self.graph.facts.get("framework") == "torch":
            given = {**_EPSILONS.get(kind, {}), **given}
        is_bound = kind in ("max", "min") and not given  # of ONNX: 0.1=[1e-08], the second of its tensors
        if is_bound:
            given = {"other": self.graph.setting(row).partition("=")[2]}
        if kind == "softplus":  # its threshold is compared by itself
            given.pop("threshold", None)
        is_norm = kind.endswith(("_norm", "normalization"))
        has_bounds = kind in COMPARISONS or kind in OF_BOUNDS
        is_arithmetic = kind in NEUTRAL and not self.is_coarse(row) and "rounding_mode" not in given
        if kind in _AT_ZERO:
            yield Constant(0.0, _BOUND)
        for name, text in given.items():
            number = constant_of(text.strip("[]"))
            is_epsilon = name == "eps" and not is_norm  # those of norms are compared
            is_operand = kind in ELEMENTWISE or is_bound or is_epsilon
            if number is None or name in _NO_OPERANDS or not is_operand:
                continue
            roles = _BOUND if has_bounds or name == "threshold" else _OTHER
            is_shown = is_arithmetic or kind in _SCALING
            if is_shown and (number != NEUTRAL.get(kind) or not is_arithmetic):
                is_shown = not self.leaves(row)
            if is_shown and not is_end:
                is_shown = not self._is_dropped(row)
            yield Constant(number, _BOUND | _OTHER if is_epsilon else roles, is_shown)

    def _is_dropped(self, row: int) -> bool:
        """Return whether a result has no effect, because other tensors were chosen wherever it is used."""
        waiting = [row]
        while waiting:
            one = waiting.pop()
            children = self.graph.children(one)
            if not children:
                return False
            for child in children:
                if self.kind(child) in MOVES:
                    waiting.append(child)
                elif self.kind(child) not in _CHOICES or not self._chooses_another(child, one):
                    return False
        return True

    def _chooses_another(self, row: int, operand: int) -> bool:
        """Return whether an operation returned one of its operands, but for rounding, and not this one."""
        result = self.value(row)
        others = [value for one in self.operands(row) if one != operand and (value := self.value(one))]
        return result is not None and any(_is_same(x, result) for x in others)

    def has_constant_tensor(self, row: int, paired: Collection[int]) -> bool:
        """Return whether an operation has an operand of several numbers that depend on no input.

        Args:
            row: The row of the operation.
            paired: The rows that correspond to one of the other pass, which do not count.
        """
        if not self.operands(row) or self.graph.row_params.get(row):
            return False
        operands = {*self.graph.parents(row)}.difference(paired)
        fixed = [self.value(one) for one in sorted(operands) if one not in self._varies]
        if any(one is not None and one.is_float and np.unique(one.array).size > 1 for one in fixed):
            return True
        texts = arguments(self.graph.setting(row)).values()
        return self.kind(row) in NEUTRAL and any(_has_several_numbers(text) for text in texts)

    def leaves(self, row: int) -> bool:
        """Return whether an operation returned what it was given, but for rounding."""
        given = self.operands(row)
        x, y = self.value(row), self.value(given[0]) if len(given) == 1 else None
        return x is not None and y is not None and _is_same(x, y)


class Both:
    """Two passes, and the operations by which both compute the same from the same tensors.

    Attributes:
        a: The trace of the first pass.
        b: The trace of the second pass.
        one: The first pass.
        two: The second pass.
        partner: The rows of the second pass by those of the first whose values agree.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows whose values differ by no more than rounding explains.
    """

    def __init__(self, a: Trace, b: Trace, pairs: Iterable[tuple[int, int]]) -> None:
        self.a, self.b = a, b
        self.one, self.two = Pass(a), Pass(b)
        self.partner = {i: j for i, j in pairs if i >= 0 and j >= 0}

    @cached_property
    def regions(self) -> list[tuple[int, int, Region]]:
        """The rows of two operations whose results agree, with the steps to them from what agrees before."""
        graphs = self.a.graph, self.b.graph
        regions = Regions(*graphs, self.partner)
        kinds = [graph.ops.kind for graph in graphs]
        ends = ((i, j) for i, j in self.partner.items() if kinds[0][i] == kinds[1][j] == OP)
        return [(i, j, region) for i, j in ends if (region := regions.of(i, j)) is not None]


def _has_several_numbers(text: str) -> bool:
    """Return whether the text of an argument is a list of numbers that are not all one.

    >>> [_has_several_numbers(text) for text in ("[0.5, 0.5]", "[[1.0], [2.0]]", "'floor'", "2.0")]
    [False, True, False, False]
    """
    numbers = {constant_of(one) for one in text.replace("[", "").replace("]", "").split(",")}
    return text.startswith("[") and len(numbers - {None}) > 1


def _is_same(x: Elements, y: Elements) -> bool:
    """Return whether two values differ by no more than the rounding of one operation."""
    if x.array.shape != y.array.shape or x.is_float != y.is_float:
        return False
    apart = difference(x, y)
    return apart.relative <= rounding(x, y) and not apart.lopsided
