"""Find the operations without a partner by which two passes come to differ at a pair.

Two implementations may take other steps to a tensor that both have. All steps since the last such tensors
are to blame then, unless those that ran last compute the same in both passes.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import TYPE_CHECKING

from ....core.analysis.walks import ancestors, descendants
from ....core.graph import BUFFER, CONSTANT, Graph
from ..judging.layouts import is_permuted, laid_out, layouts_differ, layouts_like
from ..judging.pairs import ONLY_A, ONLY_B, SHAPE, Pair, Pairs

if TYPE_CHECKING:
    from ..judging.sides import Side
    from ..judging.steps import Steps

#: The largest number of operations of both sides in which the ones that make a difference are looked for.
_MOST = 40
#: The beginning of the types of layers on maps of any size that a file may compute as one.
_OF_ANY_SIZE = ("conv", "batch_norm", "relu", "add")
#: What an operation has of its own, besides what it is given.
_STATE = (BUFFER, CONSTANT)


class Unpaired:
    """Finds pairs without a partner.

    Args:
        pairs: All pairs, with what was found of each.
    """

    def __init__(self, pairs: Pairs) -> None:
        self._pairs, self._a, self._b = pairs, pairs.a, pairs.b

    def before(self, number: int, inside: list[int]) -> list[int]:
        """Return the numbers of the pairs without a partner that led to a pair, and of itself if it did too.

        Args:
            number: The number of the pair.
            inside: The numbers of those of the module that returned it.

        Returns:
            The numbers; empty if the operation of the pair itself makes the difference.
        """
        pair = self._pairs[number]
        if pair.is_source:
            is_alone = pair.proven or not inside or self._is_given_the_same(pair)
            return [] if is_alone else [*inside, number]
        waiting = [n for n in pair.unpaired_parents if not self._has_agreeing_result(n)]
        waiting, region = waiting or list(pair.unpaired_parents), set[int]()
        if waiting and pair.other_type and pair.verdict != SHAPE:
            region.add(number)
        while waiting:
            one = waiting.pop()
            if one not in region:
                region.add(one)
                parents = self._pairs.parents(self._pairs[one])
                alone = [n for n in parents if self._pairs[n].verdict in (ONLY_A, ONLY_B)]
                waiting += [n for n in alone if not self._has_agreeing_result(n)]
        found = self._first_of(number, region) or sorted(region)
        return [n for n in found if not self._is_idle_dropout(self._pairs[n])] or found

    def given_otherwise(self, number: int, region: list[int]) -> tuple[int, int] | None:
        """Return the two tensors that do not correspond of which both passes compute the same at a pair.

        A norm in steps that is given what another layer of the other pass is given is not to blame. Files are
        left out, which fold steps into others.

        Args:
            number: The number of the pair.
            region: The numbers of the pairs that led to it; empty if its operation alone did.

        Returns:
            The rows of ``a`` and of ``b``; None if there are none, or it is not known.
        """
        pair = self._pairs[number]
        is_of_calls = pair.proven or not (region or pair.other_type)  # known by running the operation
        is_unknown = self._a.calls is None or self._b.is_file or not pair.has_both
        if is_of_calls or is_unknown or len(region) > _MOST:
            return None
        begins = [self._given(side, row) for side, row in self._pairs.sides(pair)]
        own = {i for i in begins[0] if self._pairs[self._pairs.number_of_a[i]].b not in begins[1]}
        others = {j for j in begins[1] if self._pairs[self._pairs.number_of_b[j]].a not in begins[0]}
        if len(own) != 1 or len(others) != 1:
            return None
        (i,), (j,) = own, others
        return (i, j) if self._are_others(pair, i, j) and self._computes_the_same(pair, i, j) else None

    def _given(self, side: Side, row: int) -> set[int]:
        """Return the nearest rows with a partner that a row was computed from and that depend on inputs."""
        numbers = self._pairs.number_of_a if side is self._a else self._pairs.number_of_b
        waiting, seen, found = [row], {row}, set[int]()
        while waiting:
            for parent in {*side.graph.parents(waiting.pop())} - seen:
                seen.add(parent)
                if self._pairs[numbers[parent]].has_both:
                    found.add(parent)
                else:
                    waiting.append(parent)
        return {parent for parent in found if side.depends_on_inputs(parent)}

    def _has_agreeing_result(self, number: int) -> bool:
        """Return whether another result of the operation of a row without a partner agrees.

        Of an LSTM whose last state agrees, what only one pass uses of its steps makes no difference.
        """
        one = self._pairs[number]
        side, row = (self._a, one.a) if one.b < 0 else (self._b, one.b)
        if one.has_both or not side.computes(row):
            return False
        numbers = self._pairs.number_of_a if side is self._a else self._pairs.number_of_b
        return any(self._pairs[numbers[result]].agrees for result in side.graph.results_of(row))

    def _is_given_the_same(self, pair: Pair) -> bool:
        """Return whether both operations of a pair are given the same tensors, which do not differ."""
        numbers = self._pairs.number_of_a, self._pairs.number_of_b
        given = [
            {number[parent] for parent in side.graph.parents(row)}
            for (side, row), number in zip(self._pairs.sides(pair), numbers, strict=True)
        ]
        return given[0] == given[1] != set() and all(self._pairs[n].agrees for n in given[0])

    def _first_of(self, number: int, region: set[int]) -> list[int]:
        """Return the part of a region that explains the rest of it, because it ran before.

        A parent may compute something between two of its modules, which only one side does. The module that
        runs on the result is not to blame, even if a file has folded another into it.
        """
        pair = self._pairs[number]
        found = self._cut(pair, region | {number} if pair.verdict == SHAPE else region)
        if not found and number in region and self._is_given_other(pair):
            found = {n for n in region if not self._is_inside(self._pairs[n], pair)}
        return sorted(n for n in found if self._computes(self._pairs[n])) or sorted(found)

    def _cut(self, pair: Pair, region: set[int]) -> set[int]:
        """Return what leads to the first tensors of a region from which both sides compute the same.

        The operations of ``a`` that follow its tensor, run on the tensor of ``b``, have the result of ``b``.
        """
        if self._a.calls is None or self._a.value(pair.a) is None or len(region) > _MOST:
            return set()
        graphs, ends = (self._a.graph, self._b.graph), (pair.a, pair.b)
        members = [self._pairs[n] for n in region]
        rows = {one.a for one in members if one.a >= 0}, {one.b for one in members if one.b >= 0}
        given = [{p for row in rows[k] for p in graphs[k].parents(row)} - rows[k] for k in (0, 1)]
        given = [{p for p in given[k] if graphs[k].ops.kind[p] not in _STATE} for k in (0, 1)]
        begins = [sorted((rows[k] | given[k]) - {ends[k]}) for k in (0, 1)]
        before = [
            {row: {row, *ancestors(graph, [row])} & own for row in some}
            for graph, own, some in zip(graphs, rows, begins, strict=True)
        ]

        def led_to(i: int, j: int) -> set[int]:
            """Return the part of the region that led to two tensors."""
            return {n for n in region if self._pairs[n].a in before[0][i] or self._pairs[n].b in before[1][j]}

        begins = [
            [row for row in begins[k] if _leads_only_to(graphs[k], before[k][row], row, rows[k])]
            for k in (0, 1)
        ]
        # a norm of its own result is the same: what both compute from late tensors blames too much
        candidates = [(i, j) for i, j in itertools.product(*begins) if i in rows[0] or j in rows[1]]
        candidates.sort(key=lambda ends: sum(self._computes(self._pairs[n]) for n in led_to(*ends)))
        for i, j in candidates:
            if not self._computes_the_same(pair, i, j):
                continue
            # a LeakyReLU of what has passed a ReLU changes nothing, and may be what differs
            i = next(row for row in reversed(begins[0]) if row == i or self._computes_the_same(pair, row, j))
            found = led_to(i, j)
            if any(self._computes(self._pairs[n]) for n in found) or self._are_others(pair, i, j):
                return found
        return set()

    def _computes_the_same(self, pair: Pair, i: int, j: int) -> bool:
        """Return whether ``a``, from a row on and given a tensor of ``b``, has the result of ``b``."""
        x, y = self._a.value(i), self._b.value(j)
        if x is None or y is None:
            return False
        given = layouts_like(self._a.graph, x, self._b.graph, y)
        if not given and self._is_of_any_size(pair, i):
            given = [y]
        steps = self._steps.also(pair.a, pair.b, self._pairs.value_of_b(pair.a))
        judged = (steps.also(i, j, one).judge(pair.a) for one in given)
        return any(step is not None and i in step.region.given and not step.is_wrong for step in judged)

    def _is_of_any_size(self, pair: Pair, i: int) -> bool:
        """Return whether what ``a`` computes from a row on to a pair may be given a tensor of another shape.

        Not every operation that runs checks what it is given: that of an LSTM may end the process.
        """
        graph = self._a.graph
        between = {pair.a, *ancestors(graph, [pair.a])} & {*descendants(graph, [i])}
        kinds = {self._a.kind(row) for row in between}
        return pair.verdict == SHAPE and all(kind.startswith(_OF_ANY_SIZE) for kind in kinds)

    @cached_property
    def _steps(self) -> Steps:
        """The steps of ``a`` that begin at tensors which rounding explains."""
        from ..judging.steps import Steps

        assert self._a.calls is not None
        agreeing = self._pairs.agreeing()
        return Steps(self._a.calls, self._b, agreeing, set(), self._pairs.value_of_b)

    def _is_given_other(self, pair: Pair) -> bool:
        """Return whether the modules of a pair were called on one tensor each, which differ.

        For passes whose operations cannot be run.
        """
        if self._a.calls is not None and not layouts_differ(self._a.graph, self._b.graph):
            return False
        given = []
        for side, row in self._pairs.sides(pair):
            graph = side.graph
            call = int(graph.ops.call[row])
            if call < 0:
                return False
            inside = range(int(graph.calls.start[call]), int(graph.calls.stop[call]))
            outside = {parent for one in inside for parent in graph.parents(one)} - {*inside}
            given.append([one for one in outside if graph.ops.kind[one] not in _STATE])
        if [len(rows) for rows in given] != [1, 1]:
            return False
        (i,), (j,) = given
        return self._are_others(pair, i, j)

    def _are_others(self, pair: Pair, i: int, j: int) -> bool:
        """Return whether two tensors that led to a pair differ in every order of their axes.

        Args:
            pair: The pair.
            i: A row of ``a``.
            j: A row of ``b``.
        """
        x, y = self._a.value(i), self._b.value(j)
        if x is None or y is None:
            return False
        y = laid_out(self._a, i, x, self._b, j, y)
        are_of_one_shape = sorted(x.array.shape) == sorted(y.array.shape)
        return are_of_one_shape and not is_permuted(x, y, pair.rounding_error)

    def _is_inside(self, one: Pair, pair: Pair) -> bool:
        """Return whether a row without a partner ran in the module call that a pair ran in."""
        (side, row), other = ((self._a, one.a), pair.a) if one.a >= 0 else ((self._b, one.b), pair.b)
        call = int(side.graph.ops.call[other])
        return call < 0 or call in side.graph.enclosing_calls(row)

    def _is_idle_dropout(self, one: Pair) -> bool:
        """Return whether a row without a partner returns what it is given, so that it made no difference."""
        return not one.has_both and any(
            row >= 0 and side.is_idle_dropout(row) for side, row in self._pairs.sides(one)
        )

    def _computes(self, one: Pair) -> bool:
        """Return whether a row without a partner is an operation that does not only move elements."""
        side, row = (self._a, one.a) if one.a >= 0 else (self._b, one.b)
        return side.computes(row)


def _leads_only_to(graph: Graph, before: set[int], row: int, rows: set[int]) -> bool:
    """Return whether what led to a row reaches the other rows of a region only through it.

    The mean in a norm, which its last step uses again, is no tensor from which the rest is computed.
    """
    return all(
        child in before or child not in rows for one in before - {row} for child in graph.children(one)
    )
