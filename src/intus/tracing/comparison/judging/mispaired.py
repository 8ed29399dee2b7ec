"""Find pairs that differ and do not correspond, so that they are no difference of the passes."""

from __future__ import annotations

from ....core.vocabularies.families import MOVES
from ..pairing.modules import ModulePair
from ..values.differences import SAME, difference, same_elements
from ..values.settings import RECURRENT
from .layouts import is_permuted, layouts_differ
from .pairs import SHAPE, Pair, Pairs
from .sides import HIDING, Side, are_apart, has_near

#: Operations that choose between elements, and so may leave out those that differ.
_CHOOSING = frozenset({"where", "masked_fill"})
#: The relative difference up to which two tensors that a module of one name returned are the same one.
_NEAR = 1e-3


def mispaired(pairs: Pairs) -> set[int]:
    """Return the numbers of the pairs that differ and do not correspond.

    What follows in one of the passes is the same as in the other, so that this tensor is too: the
    operation of another kind or shape that it was paired with corresponds to another. Where the outputs
    agree, such a pair remains, because an operation may hide its difference, unless one of the two uses
    a parameter that the other leaves to the operation after it, or both have the same elements in
    another order.

    Args:
        pairs: The pairs, with what was found.
    """
    agree = pairs.outputs_agree()
    found = {
        n
        for n, pair in enumerate(pairs)
        if _is_laid_out_for_a_layer(pairs, pair)
        or _is_laid_out_otherwise(pairs, pair)
        or _is_in_another_module(pairs, pair)
        or _is_paired_by_place(pairs, pair)
        or _is_beside_a_dropout(pairs, pair)
        or (_is_mispaired(pairs, pair) and (not agree or _corresponds_to_another(pairs, pair)))
    }
    return found.union(*(_of_another_way(pairs, module) for module in pairs.modules))


def _is_mispaired(pairs: Pairs, pair: Pair) -> bool:
    """Return whether operations of another kind or shape differ, and what follows one of them does not."""
    if pair.is_explained or not pair.has_both or not (pair.other_type or pair.verdict == SHAPE):
        return False
    if not all(side.is_op(row) for side, row in pairs.sides(pair)) or _nearly_agree_of_a_module(pairs, pair):
        return False
    following = pairs.following(pairs.a, pair.a), pairs.following(pairs.b, pair.b)
    return any(found and all(one.is_explained for one in found) for found in following)


def _nearly_agree_of_a_module(pairs: Pairs, pair: Pair) -> bool:
    """Return whether two tensors nearly agree that modules of one address returned."""
    if pair.difference is None or pair.difference.relative > _NEAR:
        return False
    a, b = pairs.a.graph, pairs.b.graph
    addresses = {a.call_address(call) for call in a.row_exits.get(pair.a, ())} - {""}
    return any(b.call_address(call) in addresses for call in b.row_exits.get(pair.b, ()))


def _is_in_another_module(pairs: Pairs, pair: Pair) -> bool:
    """Return whether one of two operations that differ ran in a module whose counterpart the other is not of.

    What a parent computes before a module corresponds to no step of the module then, unless both are given
    the same tensors: one side may have moved the operation into the module.
    """
    if pair.is_explained or not pair.has_both or not all(side.is_op(row) for side, row in pairs.sides(pair)):
        return False
    around, others = (_calls_around(side, row) for side, row in pairs.sides(pair))
    is_apart = any((module.a in around) != (module.b in others) for module in pairs.modules)
    return is_apart and not _are_given_the_same(pairs, pair)


def _is_paired_by_place(pairs: Pairs, pair: Pair) -> bool:
    """Return whether two steps of two frameworks have other numbers of elements and no operand in common.

    Both are an addition in one module, say. Frameworks take other steps there, so that this tells nothing:
    one makes the positions of rotary embeddings, and the other their frequencies.
    """
    if pair.verdict != SHAPE or not pair.has_both:
        return False
    frameworks = {side.graph.facts.get("framework") for side, _ in pairs.sides(pair)}
    is_inside = all(side.is_op(row) and row not in side.graph.row_exits for side, row in pairs.sides(pair))
    x, y = (side.value(row) for side, row in pairs.sides(pair))
    if len(frameworks) == 1 or not is_inside or x is None or y is None or x.array.size == y.array.size:
        return False
    given = {pairs.number_of_a[row] for row in pairs.a.graph.parents(pair.a)}
    return given.isdisjoint(pairs.number_of_b[row] for row in pairs.b.graph.parents(pair.b))


def _calls_around(side: Side, row: int) -> set[int]:
    """Return the calls that a row ran in, and those that returned it."""
    return {*side.graph.enclosing_calls(row), *side.graph.row_exits.get(row, ())}


def _is_beside_a_dropout(pairs: Pairs, pair: Pair) -> bool:
    """Return whether one of two operations that differ only returns a tensor that both passes have before it.

    What the other computes corresponds to nothing of the dropout, even if both modules return both.
    """
    if pair.is_explained or not pair.has_both or not pair.other_type:
        return False
    sides = pairs.sides(pair)
    numbers = pairs.number_of_a, pairs.number_of_b
    idle = [side.is_idle_dropout(row) for side, row in sides]
    if sum(idle) != 1:
        return False
    at = idle.index(True)
    side, row = sides[at]
    return any(pairs[numbers[at][parent]].agrees for parent in side.graph.parents(row))


def _corresponds_to_another(pairs: Pairs, pair: Pair) -> bool:
    """Return whether two operations of a pair compute the same with what follows them."""
    x, y = pairs.a.value(pair.a), pairs.b.value(pair.b)
    has_same = x is not None and y is not None and x.array.size == y.array.size and same_elements(x, y)
    return has_same or _is_split_elsewhere(pairs, pair)


def _is_split_elsewhere(pairs: Pairs, pair: Pair) -> bool:
    """Return whether one operation of a pair has a parameter that the other leaves to the next one.

    So does a file in which the bias of a layer is a part of the activation or normalization after it.
    """
    sides = pairs.sides(pair)
    for (one, row), (other, partner) in (sides, sides[::-1]):
        states = [state for state in one.states(row) if state is not None]
        left = [state for state in states if not has_near(state, other.states(partner))]
        following = [state for child in other.graph.children(partner) for state in other.states(child)]
        if left and all(has_near(state, following) for state in left):
            return True
    return False


def _is_laid_out_for_a_layer(pairs: Pairs, pair: Pair) -> bool:
    """Return whether two moves give recurrent layers one tensor, the file's with the steps first.

    A layer of PyTorch may take the batch first, for which a file moves the axes otherwise.
    """
    sides = pairs.sides(pair)
    if pair.verdict != SHAPE or not pairs.b.is_file:
        return False
    if any(not side.is_op(row) or side.computes(row) for side, row in sides):
        return False
    x, y = (side.value(row) for side, row in sides)
    if x is None or y is None or x.array.ndim != 3 or x.array.swapaxes(0, 1).shape != y.array.shape:
        return False
    swapped = y._replace(array=y.array.swapaxes(0, 1))
    if difference(x, swapped).relative > pair.rounding_error:
        return False
    layers, others = (
        [child for child in side.graph.children(row) if side.graph.type_of(child) != "shape"]
        for side, row in sides
    )
    settings = [pairs.a.graph.setting(layer) for layer in layers if _is_recurrent(pairs.a, layer)]
    return (
        all(setting.endswith(", True") for setting in settings)  # the last of them is batch_first
        and len(settings) == len(layers) > 0 < len(others)
        and all(_is_recurrent(pairs.b, other) for other in others)
    )


def _is_laid_out_otherwise(pairs: Pairs, pair: Pair) -> bool:
    """Return whether two moves of two frameworks return one tensor, with its axes in another order.

    A loop of JAX takes the steps first, where PyTorch takes the batch first. What follows tells whether one
    of them should have moved it otherwise.
    """
    if pair.verdict != SHAPE or not layouts_differ(pairs.a.graph, pairs.b.graph):
        return False
    if any(not side.is_op(row) or side.computes(row) for side, row in pairs.sides(pair)):
        return False
    x, y = (side.value(row) for side, row in pairs.sides(pair))
    return x is not None and y is not None and is_permuted(x, y, pair.rounding_error)


def _is_recurrent(side: Side, row: int) -> bool:
    return side.graph.type_of(row).startswith(RECURRENT)


def _of_another_way(pairs: Pairs, module: ModulePair) -> set[int]:
    """Return the pairs of steps that differ inside a module that computes the same in another way.

    Of a variance as the mean of squares, or of what is left of the mean, no steps correspond. A module
    computes the same if it runs other operations of its own on what both passes have, and what it returns
    agrees: unless two steps are given the same, so that they do correspond, or what follows a step may leave
    out a difference.
    """
    sides = (pairs.a, module.a), (pairs.b, module.b)
    is_root = not all(side.graph.call_address(call) for side, call in sides)
    if is_root or not all(pairs[n].is_explained for n in module.outputs):
        return set()
    rows = [
        [
            row
            for row in range(int(side.graph.calls.start[call]), int(side.graph.calls.stop[call]))
            if int(side.graph.ops.call[row]) == call
        ]
        for side, call in sides
    ]
    kinds = [
        sorted(kind for row in own if (kind := side.kind(row)) not in MOVES)
        for (side, _), own in zip(sides, rows, strict=True)
    ]
    inside = {pairs.number_of_a[row] for row in rows[0]}, {pairs.number_of_b[row] for row in rows[1]}
    given = {n for one in set.union(*inside) for n in pairs.parents(pairs[one])}.difference(*inside)
    if kinds[0] == kinds[1] or not all(pairs[n].is_explained for n in given):
        return set()
    apart = {n for n in inside[0] & inside[1] if not pairs[n].is_explained}
    for pair in (pairs[n] for n in apart):
        ends = [pairs[n] for n in pairs.children(pair) if pairs[n].is_explained]
        if _are_given_the_same(pairs, pair) or any(_may_leave_out(pairs, pair, end) for end in ends):
            return set()
    return apart


def _are_given_the_same(pairs: Pairs, pair: Pair) -> bool:
    """Return whether two operations are computed from tensors that correspond and do not differ."""
    parents = [pairs[n] for n in pairs.parents(pair)]
    found = [one for one in parents if any(side.depends_on_inputs(row) for side, row in pairs.sides(one))]
    return bool(found) and all(one.is_explained and one.has_both for one in found)


def _may_leave_out(pairs: Pairs, pair: Pair, end: Pair) -> bool:
    """Return whether what follows a pair of steps may agree although it would show a difference.

    A bound that returns what it is given, of either step, leaves out nothing.
    """
    for (side, row), given in zip(pairs.sides(end), (pair.a, pair.b), strict=True):
        if row < 0 or given not in side.graph.parents(row):
            continue
        kind, x, y = side.kind(row), side.value(row), side.value(given)
        if x is None or y is None or (kind in MOVES and x.array.size < y.array.size):
            return True
        if kind in HIDING | _CHOOSING and are_apart(x, y, SAME):
            return True
    return False
