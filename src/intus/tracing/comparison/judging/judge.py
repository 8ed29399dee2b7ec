"""Judge whether rounding explains by how much two passes differ, pair by pair, in order of execution.

Where an operation of ``a`` can be run on what ``b`` was given, that tells whether it makes a difference or
only propagates one. Elsewhere it is taken to make one if nothing that it was given differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....core.graph import Graph
from ..values.differences import difference, rounding, smaller_relative
from ..values.elements import Elements
from .cancelling import are_set_otherwise, is_lost_in_differences
from .layouts import in_shape, laid_out, layouts_differ, layouts_like
from .pairs import CLOSE, DIFFERS, EQUAL, ONLY_A, ONLY_B, SHAPE, Pair, Pairs
from .sides import Side, are_apart, are_turned

if TYPE_CHECKING:
    from .steps import Steps


def judge(a: Side, b: Side, rows: Sequence[tuple[int, int]]) -> Pairs:
    """Return the pairs of two passes, with what is found of each.

    Args:
        a: The first pass.
        b: The second pass.
        rows: The rows of the pairs; -1 where there is none.
    """
    pairs, apart = Pairs(a, b, rows), set[int]()
    one_pass = _is_one_pass(a.graph, b.graph)
    steps = None if one_pass else _steps(pairs, apart)
    for number, pair in enumerate(pairs):
        _judge(pairs, number, steps, one_pass=one_pass)
        if not pair.is_explained:
            apart.add(pair.a)
        elif pair.agrees and steps is not None:
            steps.add(pair.a, pair.b)
    return pairs


def _is_one_pass(a: Graph, b: Graph) -> bool:
    """Return whether one trace is a rerun of the other, so that unchanged values are equal bit for bit."""
    changed = "changed" in a.facts or "changed" in b.facts
    return changed and a.facts.get("started") == b.facts.get("started")


def _steps(pairs: Pairs, apart: set[int]) -> Steps | None:
    """Return the steps of ``a``, which begin at no tensor as yet; None if they cannot be run.

    Args:
        pairs: The pairs.
        apart: The rows of ``a`` that differ, as far as they have been judged.
    """
    if pairs.a.calls is None:
        return None
    from .steps import Steps

    return Steps(pairs.a.calls, pairs.b, {}, apart, pairs.value_of_b)


def _judge(pairs: Pairs, number: int, steps: Steps | None, *, one_pass: bool) -> None:
    """Set what is found of a pair.

    Args:
        pairs: All pairs, of which those before it have been judged.
        number: The number of the pair.
        steps: The steps that may begin at the tensors judged so far; None if they cannot be run.
        one_pass: Whether one trace is a rerun of the other, in which nothing rounds.
    """
    pair = pairs[number]
    parents = pairs.parents(pair)
    x = pairs.a.value(pair.a) if pair.a >= 0 else None
    y = pairs.b.value(pair.b) if pair.b >= 0 else None
    eps = 0.0 if one_pass else rounding(*(t for t in (x, y) if t is not None))
    inherited = max((pairs[n].rounding_error for n in parents), default=0.0)
    pair.rounding_error = (inherited**2 + eps**2) ** 0.5
    pair.is_explained = all(pairs[n].is_explained for n in parents)
    pair.amplified = any(pairs[n].amplified for n in parents)
    if not pair.has_both:
        pair.verdict = ONLY_A if pair.b < 0 else ONLY_B
    elif x is not None and y is not None:
        sides = pairs.a, pair.a, x, pairs.b, pair.b
        moved = in_shape(*sides, laid_out(*sides, y))
        if moved.array.shape == y.array.shape and not (pair.is_explained or pairs.begins_turned(number)):
            moved = y  # computed from what differs and is laid out alike: a layout explains nothing
        if moved is not y:
            pairs.moved[pair.a] = moved
        if x.array.shape == moved.array.shape:
            _judge_values(pairs, pair, x, moved, parents, steps)
        else:
            _judge_shapes(pairs, pair, parents)


def _judge_shapes(pairs: Pairs, pair: Pair, parents: list[int]) -> None:
    """Set what is found of a pair of values of two shapes.

    Operations of two modules need not correspond, and then their operands do not either.
    """
    pair.other_type = _have_other_types(pairs, pair)
    if _are_in_one_module(pairs, pair):
        pair.unpaired_parents = [n for n in _single(pairs, parents) if not _is_given(pairs, pair, pairs[n])]
    is_source = pair.is_explained and not pair.unpaired_parents
    pair.verdict, pair.is_source, pair.is_explained = SHAPE, is_source, False


def _is_given(pairs: Pairs, pair: Pair, parent: Pair) -> bool:
    """Return whether a parent that one side alone has brings no tensor that the other is not given.

    What a dropout returns in evaluation mode is the tensor that it is given, which the other side has.
    """
    sides = pairs.sides(pair) if parent.a >= 0 else pairs.sides(pair)[::-1]
    (one, row), (other, user) = sides
    own, calls = max(parent.a, parent.b), one.graph.ops.call
    if calls[own] == calls[row] >= 0 and one.graph.call_address(int(calls[row])):
        # a step of the same layer, which the other side computes as one
        before = [] if one.computes(own) else [pairs[n] for n in _single(pairs, pairs.parents(parent))]
        return all(_is_given(pairs, pair, n) for n in before)
    value = one.value(own)
    if value is None or not one.depends_on_inputs(own) or _is_in_layout_of_other(pairs, parent):
        return True  # no tensor that a missing operation could have made another
    given = (other.value(n) for n in other.graph.parents(user))
    return any(x is not None and _is_same(one, value, other, x, parent.rounding_error) for x in given)


def _is_same(a: Side, x: Elements, b: Side, y: Elements, allowed: float) -> bool:
    """Return whether two operands are the same tensor, which has its axes in one order in both passes.

    Args:
        a: The first pass.
        x: A value of it.
        b: The second pass.
        y: A value of it.
        allowed: The relative difference up to which they are the same.
    """
    if alike := layouts_like(a.graph, x, b.graph, y):
        return any(not are_apart(x, one, allowed) for one in alike)
    return not are_turned(x, y, allowed) and not are_apart(x, y, allowed)


def _is_in_layout_of_other(pairs: Pairs, alone: Pair) -> bool:
    """Return whether a row without a partner only moves a tensor that both passes have to the other's layout.

    Of convolutions that have their channels first in one pass, it moves the channels to the end, where the
    other pass has them already. What follows is given the same then.

    Args:
        pairs: All pairs.
        alone: The pair of the row.
    """
    if not layouts_differ(pairs.a.graph, pairs.b.graph):
        return False
    (side, row), (other, _) = pairs.sides(alone) if alone.a >= 0 else pairs.sides(alone)[::-1]
    moved = side.value(row)
    if moved is None or not side.is_op(row) or side.computes(row):
        return False
    numbers = pairs.number_of_a if side is pairs.a else pairs.number_of_b
    for pair in (pairs[numbers[parent]] for parent in side.graph.parents(row)):
        if not pair.agrees or pair.a not in pairs.moved:
            continue
        value = other.value(pair.b if side is pairs.a else pair.a)
        if value is not None and value.array.shape == moved.array.shape:
            return difference(moved, value).relative <= pair.rounding_error
    return False


def _judge_values(
    pairs: Pairs, pair: Pair, x: Elements, y: Elements, parents: list[int], steps: Steps | None
) -> None:
    """Set what is found of a pair of values of one shape."""
    pair.difference = found = difference(x, y)
    if x.dtype == y.dtype and found.fraction_different == 0:
        pair.verdict, pair.rounding_error, pair.is_explained, pair.amplified = EQUAL, 0.0, True, False
        return
    pair.smaller = smaller_relative(x, y)
    by_norm = found.relative > pair.rounding_error or found.lopsided
    beyond = by_norm or pair.smaller > pair.rounding_error
    pair.other_type = _have_other_types(pairs, pair)
    isolated = _isolated_error(pairs, pair, y)
    step = None
    if pair.is_explained and steps is not None and _may_amplify(pairs, pair, isolated, beyond=beyond):
        # It begins at tensors that rounding explains, and may amplify what they differ by.
        step = steps.also(pair.a, pair.b, y).judge(pair.a)
    if step is not None:
        if step.is_wrong or (step.by_cancelling and are_set_otherwise(pairs, pair)):
            beyond = True
        else:
            pair.step = step
    elif isolated is None and beyond:
        # What is left where large numbers cancel is rounding, which only the step could tell.
        is_rounding = pair.is_explained and not by_norm
        if is_rounding or is_lost_in_differences(pairs, pair):
            beyond, pair.by_depth = False, True
    pair.unpaired_parents = _unpaired_parents(pairs, pair, parents, beyond=beyond)
    inherited = bool(pair.unpaired_parents) or not pair.is_explained
    if pair.step is not None:
        pair.isolated_error = pair.step.error
    elif isolated is None:
        pair.is_source = beyond and not inherited
        pair.is_explained = not beyond
    else:
        pair.isolated_error, allowed = isolated
        pair.proven = pair.isolated_error > allowed
        # From inputs that differ by rounding it may make an infinity of the other sign, or a NaN.
        # On the same inputs it does the same, but the other pass may give it others, or in another order.
        is_wrong = step is not None and pair.step is None
        makes_it = is_wrong or found.lopsided or (beyond and _are_given_others(pairs, pair))
        pair.is_source = pair.proven or (makes_it and not inherited)
        pair.is_explained = not pair.is_source and not (beyond and inherited)
    pair.verdict = CLOSE if pair.is_explained else DIFFERS
    if pair.is_explained:  # the same numbers in another dtype are exact
        pair.amplified = pair.amplified or found.relative > pair.rounding_error
        pair.rounding_error = max(pair.rounding_error, found.relative) if found.fraction_different else 0.0


def _may_amplify(pairs: Pairs, pair: Pair, isolated: tuple[float, float] | None, *, beyond: bool) -> bool:
    """Return whether only a step can tell that a pair amplifies rounding, and does not differ.

    An operation that makes no difference amplifies what it is given, if that corresponds in both passes:
    elsewhere it may be given something else. An error of which rounding explains nothing is that of the same
    kernel on the same tensors.

    Args:
        pairs: All pairs.
        pair: The pair.
        isolated: What ``_isolated_error`` returns of it.
        beyond: Whether it differs by more than rounding explains.
    """
    if isolated is not None and isolated[0] > isolated[1]:
        return isolated[1] > 0
    return (beyond or pair.amplified) and not (isolated and _are_given_pairs(pairs, pair))


def _are_given_pairs(pairs: Pairs, pair: Pair) -> bool:
    """Return whether each argument of one operation corresponds to that of the same name of the other."""
    given = (
        {name: numbers[row] for name, row in side.graph.parents_by_argument(at)}
        for (side, at), numbers in zip(pairs.sides(pair), (pairs.number_of_a, pairs.number_of_b), strict=True)
    )
    one, other = given
    return one == other


def _have_other_types(pairs: Pairs, pair: Pair) -> bool:
    """Return whether two operations have different types."""
    return pairs.a.graph.type_of(pair.a) != pairs.b.graph.type_of(pair.b)


def _are_in_one_module(pairs: Pairs, pair: Pair) -> bool:
    """Return whether two operations ran in calls of modules that correspond."""
    calls = [int(side.graph.ops.call[row]) for side, row in pairs.sides(pair)]
    one, other = (side.graph.call_address(call) for side, call in zip((pairs.a, pairs.b), calls, strict=True))
    return one == other or any([module.a, module.b] == calls for module in pairs.modules)


def _single(pairs: Pairs, parents: list[int]) -> set[int]:
    """Return the parents without a partner or value that rounding explains, as far as is known.

    A pair with both may have no difference yet, because one pass runs it later than the other.
    """
    return {n for n in parents if not _has_values(pairs, pairs[n]) and pairs[n].is_explained}


def _has_values(pairs: Pairs, pair: Pair) -> bool:
    """Return whether both passes have a value of a pair."""
    return pair.has_both and all(side.value(row) is not None for side, row in pairs.sides(pair))


def _unpaired_parents(pairs: Pairs, pair: Pair, parents: list[int], *, beyond: bool) -> list[int]:
    """Return the parents without a partner or value that propagate a difference.

    Those are the parents whose tensor differs from the one that the other operation received. If the two
    operations have different types, they are all such parents, provided that rounding does not explain
    the difference.

    Args:
        pairs: All pairs.
        pair: The pair.
        parents: The numbers of its parents.
        beyond: Whether it differs by more than rounding explains.
    """
    single = {n for n in _single(pairs, parents) if not _is_in_layout_of_other(pairs, pairs[n])}
    if not single:
        return []
    if _have_other_types(pairs, pair):
        return sorted(single) if beyond else []
    a, b = pairs.a, pairs.b
    rows_a, rows_b = (dict(side.graph.parents_by_argument(row)) for side, row in pairs.sides(pair))
    found: set[int] = set()
    for name in rows_a.keys() | rows_b.keys():
        i, j = rows_a.get(name, -1), rows_b.get(name, -1)
        numbers = {pairs.number_of_a.get(i, -1), pairs.number_of_b.get(j, -1)} & single
        allowed = max((pairs[n].rounding_error for n in numbers), default=0.0)
        if min(i, j) >= 0:
            x, y = a.value(i), b.value(j)
            turned = beyond and x is not None and y is not None and are_turned(x, y, allowed)
            apart = turned or (x is not None and y is not None and are_apart(x, y, allowed))
        else:
            side, row, other, user = (a, i, b, pair.b) if j < 0 else (b, j, a, pair.a)
            apart = side.depends_on_inputs(row) and not other.has_state(user, side.value(row), allowed)
        found |= numbers if apart else set()
    return sorted(found)


def _are_given_others(pairs: Pairs, pair: Pair) -> bool:
    """Return whether two operations have an argument that is another tensor, and not only by rounding.

    Or in which the same tensor has its axes in another order.
    """
    rows_a, rows_b = (dict(side.graph.parents_by_argument(row)) for side, row in pairs.sides(pair))
    for i, j in ((rows_a[name], rows_b[name]) for name in rows_a.keys() & rows_b):
        n, other = pairs.number_of_a[i], pairs.number_of_b[j]
        x, y = pairs.a.value(i), pairs.b.value(j)
        if x is not None and y is not None:
            allowed = max(pairs[n].rounding_error, pairs[other].rounding_error)
            if are_turned(x, y, allowed) or (n != other and are_apart(x, y, allowed)):
                return True
    return False


def _isolated_error(pairs: Pairs, pair: Pair, y: Elements) -> tuple[float, float] | None:
    """Return the difference of a's operation, run on b's inputs, from b's result, and its allowance.

    None if it cannot be run so, or a rerun replaced the value in ``a``. Where the result has its channels
    elsewhere in ``b``, so may the inputs have, of a shape that does not tell.
    """
    a, b = pairs.a, pairs.b
    if pair.a in pairs.moved:
        return None
    if a.calls is None or b.calls is None or pair.other_type or a.changed(pair.a):
        return None
    if _take_state_elsewhere(pairs, pair):
        return None
    from .crossing import isolated_error

    return isolated_error(a.calls, pair.a, b.calls, pair.b, y, edited=b.changed(pair.b))


def _take_state_elsewhere(pairs: Pairs, pair: Pair) -> bool:
    """Return whether an argument is a parameter in one pass and a tensor of the inputs in the other.

    Of ``(x + a) + bias`` and ``x + (a + bias)``, the bias stands where the other sum has a tensor.
    """
    given = [
        (side, dict(side.graph.parents_by_argument(row)), side.calls.of_parameters(row) if side.calls else ())
        for side, row in pairs.sides(pair)
    ]
    return any(
        name in parameters and one.depends_on_inputs(row)
        for (one, rows, _), (_, _, parameters) in (given, given[::-1])
        for name, row in rows.items()
    )
