"""Find which operation makes two passes diverge first, and why."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.analysis.modules import renamed
from ...core.graph import BUFFER, OP, Graph
from ...core.vocabularies import KINDS, common_type, is_translated
from ...core.vocabularies.families import MOVES
from ...core.vocabularies.roles import role_of
from ..results.op import Op
from .judging.polynomials import ARITHMETIC
from .judging.sides import Side, returned
from .judging.sums import Sums
from .pairing.regions import of_inputs
from .parameters.exchanged import exchanged, values_of_others
from .parameters.parameters import COMBINED, UsedParameters, different_state
from .reasons import drawn, reasons
from .values.axes import different_axes
from .values.elements import plain
from .values.settings import different_constants, different_settings, whole_numbers
from .values.windows import different_windows

if TYPE_CHECKING:
    from ..results.trace import Trace
    from .judging.pairs import Pair
    from .judging.polynomials import Monomial
    from .origins.origins import Origin

#: The largest number of terms of two sums that are said to differ.
_MOST_TERMS = 4


def divergence(
    a: Trace, b: Trace, pairs: list[Pair], origins: list[Origin], names: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the first operation that makes a difference, as a dict of ``a``, ``b``, ``module`` and ``why``.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows, with what was found.
        origins: Where differences originate.
        names: The address in ``a`` of modules of ``b`` that correspond and have another.

    Returns:
        The operation; None if there is none. Of operations that the passes do otherwise, it is the last.
    """
    return _Divergence(a, b, pairs, names).of(origins[0]) if origins else None


def places(
    a: Trace, b: Trace, pairs: list[Pair], origins: list[Origin], names: Mapping[str, str]
) -> list[str | None]:
    """Return the addresses of the modules in which differences originate; None for one outside of all.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows, with what was found.
        origins: Where differences originate.
        names: As in ``divergence``.
    """
    found = _Divergence(a, b, pairs, names)
    return [found.place(origin) for origin in origins]


class _Divergence:
    """Finds why two passes diverge at a place.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows, with what was found.
        names: The address in ``a`` of modules of ``b`` that correspond and have another.
    """

    def __init__(self, a: Trace, b: Trace, pairs: list[Pair], names: Mapping[str, str]) -> None:
        self.a, self.b, self.pairs, self.names = a, b, pairs, names

    def _rows(self, numbers: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return the rows of some pairs in ``a`` and in ``b``."""
        found = [self.pairs[number] for number in numbers]
        return [pair.a for pair in found if pair.a >= 0], [pair.b for pair in found if pair.b >= 0]

    def of(self, origin: Origin) -> dict[str, Any]:
        """Return the operation that makes a difference, and why.

        Args:
            origin: Where the difference originates.
        """
        pair, (row, other) = self.pairs[origin.pair], self._last(origin)
        return {
            "a": self.a.graph.labels[row] if row >= 0 else "",
            "b": self.b.graph.labels[other] if other >= 0 else "",
            "module": self.place(origin) or "",
            "why": [*self._why_origin(origin), *self._exchanged(pair)],
        }

    def _why_origin(self, origin: Origin) -> list[str]:
        """Return how the operations that make a difference differ."""
        pair = self.pairs[origin.pair]
        if origin.given is not None:
            i, j = origin.given
            return [_inputs_are("others", self.a.graph, [i], self.b.graph, [j])]
        return self._why_region(origin.region, pair) if origin.region else self._why(pair)

    def _last(self, origin: Origin) -> tuple[int, int]:
        """Return the row of ``a`` and that of ``b`` that make a difference last; -1 for none."""
        rows, others = self._rows(origin.region or [origin.pair])
        if not (rows and others):
            return max(rows, default=-1), max(others, default=-1)
        return (
            _computed(self.a, rows[-1], self.b, others[-1], rows),
            _computed(self.b, others[-1], self.a, rows[-1], others),
        )

    def _exchanged(self, pair: Pair) -> list[str]:
        """Return which values of another layer, or under another name, make a pair differ."""
        if not pair.has_both:
            return []
        kinds = self.a.graph.ops.kind[pair.a], self.b.graph.ops.kind[pair.b]
        if kinds == (BUFFER, BUFFER):
            state = self.a.graph.state_address(pair.a), self.b.graph.state_address(pair.b)
            return values_of_others(self.a, self.b, [state])
        return exchanged(self.a, pair.a, self.b, pair.b) if kinds == (OP, OP) else []

    def place(self, origin: Origin) -> str | None:
        """Return the address of the module in which a difference originates; None if it is outside of all.

        Where operations of several modules make it, that is the innermost module around all of them. But a
        file folds some modules into others, so that there it is the one that the last operation of the model
        ran in.

        Args:
            origin: Where the difference originates.
        """
        graphs, last = (self.a.graph, self.b.graph), self._last(origin)
        files = ["format" in graph.facts for graph in graphs]
        if any(files):
            side = min((k for k in (0, 1) if last[k] >= 0), key=files.__getitem__)
            return _module_around(graphs[side], [last[side]])
        if origin.given is not None:
            i, j = origin.given
            members = self._rows({origin.pair, *origin.region})
            return self._around_all([*members[0], i], [*members[1], j])
        if not origin.region and (around := self._wired(self.pairs[origin.pair])) is not None:
            return around
        rows = self._rows(origin.with_effect or [origin.pair])
        one, other = (
            _module_around(graph, own if len(own) > 1 else [at]) if own else None
            for graph, own, at in zip(graphs, rows, last, strict=True)
        )
        return other if one is None else one if other is None else self._around(one, other)

    def _wired(self, pair: Pair) -> str | None:
        """Return the address of the module that gives an operation another tensor in one pass.

        An operation that was run on the same inputs, and returned the same, is not to blame, nor is its
        module. That is the innermost around it and what it is given, in either pass. None if the operation
        itself makes a difference, or may.
        """
        if pair.proven or math.isnan(pair.isolated_error) or not self._other_inputs(pair):
            return None
        partner = {one.a: one.b for one in self.pairs}
        graphs, rows = (self.a.graph, self.b.graph), (pair.a, pair.b)
        given, others = (
            dict(graph.parents_by_argument(row)) for graph, row in zip(graphs, rows, strict=True)
        )
        apart = [name for name in given if name in others and partner[given[name]] != others[name]]
        return self._around_all(
            *([row, *(some[name] for name in apart)] for row, some in zip(rows, (given, others), strict=True))
        )

    def _around_all(self, rows: Iterable[int], others: Iterable[int]) -> str:
        """Return the address of the innermost module around all of these rows of ``a``, or of ``b``."""
        graphs = self.a.graph, self.b.graph
        found = [_innermost(graph, some) or "" for graph, some in zip(graphs, (rows, others), strict=True)]
        one, other = found[0], renamed(found[1], self.names)
        return one if _is_inside(one, other) else found[1] if _is_inside(other, one) else self._around(*found)

    def _around(self, one: str, other: str) -> str:
        """Return the address of the innermost module around one of ``a`` and one of ``b``.

        If one of both is inside of the other and only its pass has such a module, it is that one: the other
        pass computes the same in the code of what is around it.

        Args:
            one: The address of the first.
            other: The address of the second.
        """
        own = {module.address for module in self.a.graph.modules}
        others = {renamed(module.address, self.names) for module in self.b.graph.modules}
        first, second = (name.partition(":")[0] for name in (one, renamed(other, self.names)))
        if _is_inside(second, first):
            return one if second in own or _is_layer(first, own) else other
        if _is_inside(first, second):
            return other if first in others or _is_layer(second, others) else one
        if not {first, second} <= own & others:
            return one
        parts = zip(first.split("."), second.split("."), strict=False)
        return ".".join(part for part, _ in takewhile(lambda both: both[0] == both[1], parts))

    def _why_region(self, region: list[int], pair: Pair) -> list[str]:
        """Return how operations that correspond as a whole differ, which led to a pair."""
        found = [self.pairs[number] for number in region]
        kinds_a, kinds_b = self.a.graph.ops.kind, self.b.graph.ops.kind
        rows_a = [pair.a for pair in found if pair.a >= 0 and kinds_a[pair.a] == OP]
        rows_b = [pair.b for pair in found if pair.b >= 0 and kinds_b[pair.b] == OP]
        if drops := drawn(self.a, rows_a, self.b, rows_b):
            return drops
        terms, buffers = self._terms(pair), self._buffers(found)
        settings = self._settings(rows_a, rows_b, buffers)
        if terms and settings and not self._are_arithmetic(rows_a, rows_b):
            terms = []  # of what else is computed there, the terms are not known to correspond
        elif terms:
            settings = self._settings(rows_a, rows_b, buffers, with_constants=False)
        settings = settings or ([] if terms else self._constants_of_module(pair))
        computing, others = _computing(self.a.graph, rows_a), _computing(self.b.graph, rows_b)
        one_each = len(computing) == len(others) == 1
        if settings and one_each and _are_one_kind(self.a.graph, computing[0], self.b.graph, others[0]):
            return settings
        other_ops = _different_ops(self.a.graph, rows_a, self.b.graph, rows_b)
        if all(one.startswith(COMBINED) for one in settings):
            terms = terms or self._numbers(pair)
        return [*terms, *other_ops, *settings]

    def _are_arithmetic(self, rows_a: list[int], rows_b: list[int]) -> bool:
        """Return whether operations that compute are sums and products alone."""
        rows = [(self.a.graph, row) for row in rows_a] + [(self.b.graph, row) for row in rows_b]
        return {_kind(*row) for row in rows} <= MOVES | ARITHMETIC

    def _numbers(self, pair: Pair) -> list[str]:
        """Return the first number in which two constant tensors differ, such as rotary frequencies."""
        if not pair.has_both or any(
            row in of_inputs(graph) for graph, row in ((self.a.graph, pair.a), (self.b.graph, pair.b))
        ):
            return []
        x, y = plain(self.a.values.get(pair.a)), plain(self.b.values.get(pair.b))
        if x is None or y is None or not (x.is_float and y.is_float) or not x.array.size or not y.array.size:
            return []
        return [f"the constant tensor {_differs(*(one.array.astype(np.float64) for one in (x, y)))}"]

    def _terms(self, pair: Pair) -> list[str]:
        """Return by which terms and factors two sums of tensors that correspond differ.

        The sums are a pair, or what its operations are given.
        """
        if not pair.has_both:
            return []
        sums = Sums(Side(self.a), Side(self.b), self.pairs)
        for i, j in ((pair.a, pair.b), *sums.given(pair.a, pair.b)):
            apart = sums.apart(i, j) if sums.are_steps(i, j) else None
            is_known = apart is not None and apart.is_in_part
            if apart is None or not (is_known and (apart.is_of_tensors or sums.are_ends(i, j))):
                continue
            if 0 < len(apart.factors) <= _MOST_TERMS:
                return [self._term(monomial, *factors) for monomial, factors in apart.factors.items()]
        return []

    def _term(self, monomial: Monomial, x: np.ndarray, y: np.ndarray) -> str:
        """Return how two sums differ in one term, as a sentence.

        Args:
            monomial: The term, as ``Apart`` has it.
            x: Its factor in ``a``; 0 if that has no such term.
            y: Its factor in ``b``.
        """
        powers = [(self._label(tensor), power) for tensor, power in monomial]
        term = " * ".join(label if power == 1 else f"{label}**{power}" for label, power in powers)
        for name, factor, other in (("a", x, y), ("b", y, x)):
            if not other.any() and monomial:
                times = "" if factor.size > 1 or factor == 1 else f"{float(factor):.6g} * "
                return f"the term {times}{term} is only in {name}"
        what = f"the factor of {term}" if monomial else "the constant term"
        if x.size == y.size == 1:
            return f"{what} is {float(x):.6g} in a, {float(y):.6g} in b"
        return f"{what} {_differs(x, y)}"

    def _label(self, tensor: int) -> str:
        """Return the label of a tensor, by its number in ``Apart``."""
        pair = self.pairs[tensor // 2]
        is_second = pair.a < 0 or tensor % 2
        return self.b.graph.label(pair.b) if is_second else self.a.graph.label(pair.a)

    def _constants_of_module(self, pair: Pair) -> list[str]:
        """Return how the constants of the modules around a pair differ, if these have none inside of them.

        A module that computes a variance in another way has steps that differ before those with the constant.
        For passes of other frameworks than PyTorch, whose steps are primitives.
        """
        sides = (self.a.graph, pair.a), (self.b.graph, pair.b)
        if min(pair.a, pair.b) < 0 or not all(is_translated(graph) for graph, _ in sides):
            return []
        rows = []
        for graph, row in sides:
            call = int(graph.ops.call[row])
            inside = (
                range(int(graph.calls.start[call]), int(graph.calls.stop[call])) if call >= 0 else range(0)
            )
            if not inside or any(int(graph.ops.call[one]) != call for one in inside):
                return []
            rows.append(inside)
        return different_constants(self.a.graph, rows[0], self.b.graph, rows[1])

    def _buffers(self, found: list[Pair]) -> list[str]:
        """Return how the buffers without a partner differ, if a region has one on each side.

        Zeros may be the state that something begins with, unless the name tells what they are.
        """
        rows = [pair.a for pair in found if pair.a >= 0 and self.a.graph.ops.kind[pair.a] == BUFFER]
        others = [pair.b for pair in found if pair.b >= 0 and self.b.graph.ops.kind[pair.b] == BUFFER]
        if len(rows) != 1 or len(others) != 1:
            return []
        x = plain(self.a.values.get(rows[0]))
        is_known = bool(role_of(self.a.graph.state_address(rows[0]))) or (x is not None and x.array.any())
        return different_state(self.a, rows[0], self.b, others[0]) if is_known else []

    def _settings(
        self,
        rows_a: list[int],
        rows_b: list[int],
        buffers: Sequence[str] = (),
        *,
        with_constants: bool = True,
    ) -> list[str]:
        """Return how the state and constants of operations that correspond as a whole differ."""
        graphs = self.a.graph, self.b.graph
        used = UsedParameters(self.a, rows_a, self.b, rows_b)
        why = [
            *buffers,
            *used.different(),
            *(different_constants(graphs[0], rows_a, graphs[1], rows_b) if with_constants else ()),
        ]
        if all(one.startswith(COMBINED) for one in why) and len(rows_a) == len(rows_b) == 1:
            why += different_settings(graphs[0], rows_a[0], graphs[1], rows_b[0])
        if self._are_translated() or (not why and any(map(is_translated, graphs))):
            why += different_windows(graphs[0], rows_a, graphs[1], rows_b)
            why += different_axes(self.a, rows_a, self.b, rows_b)
        is_known = any(not reason.startswith(COMBINED) for reason in why)
        why = why or used.unknown()
        is_known = is_known or graphs[0].facts.get("framework") == graphs[1].facts.get("framework")
        return why if is_known else [*why, *whole_numbers(graphs[0], rows_a, graphs[1], rows_b)]

    def _are_translated(self) -> bool:
        """Return whether the passes are of two frameworks, of which one has other names and settings."""
        graphs = self.a.graph, self.b.graph
        frameworks = {graph.facts.get("framework") for graph in graphs}
        return len(frameworks) == 2 and any(map(is_translated, graphs))

    def _why(self, pair: Pair) -> list[str]:
        one, other = Op(self.a, pair.a), Op(self.b, pair.b)
        why = reasons(self.a, pair.a, self.b, pair.b)
        if one.type != other.type:
            found = different_constants(self.a.graph, [pair.a], self.b.graph, [pair.b])
            why = [*why, *(found or self._foreign(pair, why) or self._constants_of_module(pair))]
            is_one_kind = _are_one_kind(self.a.graph, pair.a, self.b.graph, pair.b)
            if not why and is_one_kind and pair.verdict != "shape":
                why = self._other_inputs(pair)
            if not why or not is_one_kind:
                why.insert(0, f"it is {one.type} in a, {other.type} in b")
        else:
            why = [*why, *self._foreign(pair, why)]
        if pair.verdict == "shape":
            is_turned = self._are_translated() and sorted(one.shape) == sorted(other.shape)
            what = "it differs in every order of its axes: its" if is_turned else "its"
            why.insert(0, f"{what} shape is {one.shape} in a, {other.shape} in b")
        if why and all(one.startswith(COMBINED) for one in why):
            why = [*self._numbers(pair), *why]
        return (
            why
            or self._other_inputs(pair)
            or self._terms(pair)
            or self._numbers(pair)
            or self._as_written(pair)
            or UsedParameters(self.a, [pair.a], self.b, [pair.b]).unknown()
        )

    def _as_written(self, pair: Pair) -> list[str]:
        """Return the settings of two operations of two frameworks that only move elements.

        Each framework writes them in its own way, so it is not said which of them differ.
        """
        rows = (self.a.graph, pair.a), (self.b.graph, pair.b)
        settings = [graph.setting(row) for graph, row in rows]
        if not (self._are_translated() and all(settings) and {_kind(*row) for row in rows} <= MOVES):
            return []
        return [f"it is given {settings[0]} in a, {settings[1]} in b"]

    def _other_inputs(self, pair: Pair) -> list[str]:
        """Return which tensors two operations of one kind are given, if these do not correspond.

        Nothing is said if one of them has no counterpart, which may be the same tensor in another shape, or
        if the counterparts have the same elements.
        """
        partner = {one.a: one.b for one in self.pairs if one.difference is not None}
        graphs = self.a.graph, self.b.graph
        given = [
            [row for _, row in graph.parents_by_argument(one)]
            for graph, one in zip(graphs, (pair.a, pair.b), strict=True)
        ]
        expected = [partner.get(row, -1) for row in given[0]]
        if -1 in expected or len(expected) != len(given[1]) or not {*given[1]} <= {*partner.values()}:
            return []
        is_same = sorted(expected) == sorted(given[1])
        if is_same and _kind(graphs[0], pair.a) not in _ORDERED:
            return []
        values = [plain(self.b.values.get(row)) for row in (*expected, *given[1])]
        known = [value for value in values if value is not None]
        count = len(expected)
        if len(known) < 2 * count or all(
            x.array.shape == y.array.shape and x.equals(y)
            for x, y in zip(known[:count], known[count:], strict=True)
        ):
            return []
        what = "in another order" if is_same else "others"
        return [_inputs_are(what, graphs[0], given[0], graphs[1], given[1])]

    def _foreign(self, pair: Pair, why: list[str]) -> list[str]:
        """Return how the settings of operations of two frameworks differ, if nothing else is known to.

        Those of which the notation is translated may differ besides parameters.
        """
        is_foreign = self._are_translated() or (not why and is_translated(self.a.graph))
        if is_foreign and self.a.graph.ops.kind[pair.a] == OP:
            return [one for one in self._settings([pair.a], [pair.b]) if one not in why]
        is_one_framework = self.a.graph.facts.get("framework") == self.b.graph.facts.get("framework")
        return (
            [] if why or is_one_framework or pair.verdict == "shape" else self._settings([pair.a], [pair.b])
        )


def _differs(x: np.ndarray, y: np.ndarray) -> str:
    """Return by what an array of ``a`` differs from one of ``b``, in words.

    >>> x = np.array([1.0, 2.0])
    >>> _differs(x, -0.5 * x), _differs(x, x + [0, 1])
    ('is -0.5 times that of a in b', 'is 2 in a, 3 in b, at [1]')
    """
    if x.shape == y.shape and (size := float((x * x).sum())):
        factor = float((x * y).sum()) / size
        if np.allclose(y, factor * x, rtol=1e-4):
            return f"is {factor:.6g} times that of a in b"
    try:
        x, y = np.broadcast_arrays(x, y)
    except ValueError:
        return f"is of shape {x.shape} in a, {y.shape} in b"
    apart = np.argwhere(~np.isclose(x, y, rtol=1e-4))
    at = tuple(map(int, apart[0])) if len(apart) else (0,) * x.ndim
    return f"is {x[at]:.6g} in a, {y[at]:.6g} in b, at {list(at)}"


#: Operations that return something else for their inputs in another order.
_ORDERED = frozenset(
    {"sub", "subtract", "div", "divide", "true_divide", "floordiv", "floor_divide", "remainder", "fmod"}
    | {"mod", "pow", "float_power", "atan2", "matmul", "bmm", "batch_dot", "cat", "stack", "hstack", "vstack"}
    | {"dstack", "column_stack"}
)


def _inputs_are(what: str, a: Graph, rows: Iterable[int], b: Graph, others: Iterable[int]) -> str:
    """Return the sentence on the tensors that two operations are given."""
    names = [", ".join(graph.label(row) for row in some) for graph, some in ((a, rows), (b, others))]
    return f"its inputs are {what}: {names[0]} in a, {names[1]} in b"


def _is_inside(address: str, other: str) -> bool:
    """Return whether an address is that of a module inside of another, or the same."""
    return not other or f"{address}.".startswith(f"{other}.")


def _is_layer(address: str, addresses: Collection[str]) -> bool:
    """Return whether a module is not the model, and has no modules inside."""
    return bool(address) and not any(one != address and _is_inside(one, address) for one in addresses)


def _module_around(graph: Graph, rows: Sequence[int]) -> str | None:
    """Return the address of the innermost module in which all operations that compute ran; None if none."""
    ops = [row for row in rows if graph.ops.kind[row] == OP] or rows
    computing = [row for row in ops if common_type(graph, row) not in MOVES] or ops
    return _innermost(graph, computing)


def _innermost(graph: Graph, rows: Iterable[int]) -> str | None:
    """Return the address of the innermost module in which all rows ran; None if there is none."""
    calls = zip(*(graph.enclosing_calls(row) for row in rows), strict=False)
    around = [call for call, *others in calls if {*others} <= {call}]
    return graph.call_address(around[-1]) if around else None


def _computed(a: Trace, row: int, b: Trace, other: int, inside: Collection[int]) -> int:
    """Return the row of a pass that computed a value in the module in which the other pass did.

    A dropout in evaluation mode returns what it is given, and a file lacks it, so that it is paired with
    the result of what is before it: of the layer, or of code of the parent.

    Args:
        a: The pass.
        row: A row of it.
        b: The other pass.
        other: The row of it that corresponds to it.
        inside: The rows of the pass that the other computes otherwise.
    """
    module = Op(b, other).module
    for parent in returned(a, row):
        if module:
            is_before = Op(a, row).module != module == Op(a, parent).module
        else:
            is_before = parent in inside
        if is_before:
            return _computed(a, parent, b, other, inside)
    return row


def _are_one_kind(a: Graph, row: int, b: Graph, other: int) -> bool:
    """Return whether two rows are the same operation, whatever their frameworks call it."""
    return _kind(a, row) == _kind(b, other) != ""


def _kind(graph: Graph, row: int) -> str:
    """Return the name of an operation that it has in every framework; ``""`` if it is unknown."""
    kind = common_type(graph, row)
    return KINDS.get(kind, kind)


def _computing(graph: Graph, rows: list[int]) -> list[int]:
    """Return the rows whose operations do not only move elements, nor only add a bias to the result."""
    kinds = {row: common_type(graph, row) for row in rows}
    found = [row for row in rows if kinds[row] not in MOVES]
    return [row for row in found if len(found) == 1 or not _adds_bias(graph, row, kinds)]


def _adds_bias(graph: Graph, row: int, kinds: Mapping[int, str]) -> bool:
    """Return whether an operation adds a parameter to the result of another of some rows."""
    is_sum = KINDS.get(kinds[row], kinds[row]) == "add"
    return is_sum and bool(graph.row_params.get(row)) and any(one in kinds for one in graph.parents(row))


def _different_ops(a: Graph, rows_a: list[int], b: Graph, rows_b: list[int]) -> list[str]:
    """Return the sentence for operations that only one pass ran, with the setting of a single one."""
    names_a, names_b = (
        _named([graph.labels[row] for row in rows]) for graph, rows in ((a, rows_a), (b, rows_b))
    )
    if not (names_a or names_b):
        return []
    if names_a == names_b:
        return [f"{names_a} of a and of b do not correspond"]
    if names_a and names_b:
        return [f"a runs {names_a} where b runs {names_b}"]
    graph, rows, name = (a, rows_a, "a") if names_a else (b, rows_b, "b")
    setting = graph.setting(rows[0]) if len(rows) == 1 else ""
    return [f"{names_a or names_b}{f' ({setting})' if setting else ''} ran only in {name}"]


def _named(labels: list[str], most: int = 12) -> str:
    """Join labels with commas; of many only the first and the last.

    >>> _named(["a", "b", "c", "d"], most=3)
    'a, b … d (4 operations)'
    """
    if len(labels) <= most:
        return ", ".join(labels)
    return f"{', '.join(labels[: most - 1])} … {labels[-1]} ({len(labels)} operations)"
