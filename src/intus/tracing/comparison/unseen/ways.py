"""Find where two passes compute from the same tensors in ways that differ on other inputs.

Rounding down and toward zero agree on positive numbers, a softplus is linear only above its threshold, and
the logarithm of a sigmoid is that of 0 only for small numbers. An exporter writes other operations for one,
so what they do is known only where it is plain: nothing is said of steps that choose by a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from ....core.vocabularies.families import COMPARISONS, MOVES, OF_BOUNDS
from ..pairing.regions import Region
from ..values.differences import same_elements
from ..values.settings import arguments, bounds, common, number_of
from .passes import NEUTRAL, Pass
from .without_effect import FORMULAS, is_bent

_DOWN, _ZERO = "down", "toward zero"
#: The direction in which operations round.
_ROUND = {
    **dict.fromkeys(("floor", "floordiv", "floor_divide", "remainder", "rshift"), _DOWN),
    **dict.fromkeys(("bitwise_right_shift", "__rshift__", "floor_mod"), _DOWN),
    **dict.fromkeys(("trunc", "fix", "fmod", "truncate_div"), _ZERO),
    **dict.fromkeys(("round", "round_even"), "to the nearest"),
    "ceil": "up",
}
_MODES = {"'floor'": _DOWN, "'trunc'": _ZERO}
#: Operations by which a pass may choose between directions, or mend one.
_CHOOSE = COMPARISONS.keys() | {"where", "select", "neg", "bitwise_or", "bitwise_and"}
#: Operations that keep small results, with those whose logarithm does not.
_LOGARITHM_OF = {"log_sigmoid": "sigmoid", "logsigmoid": "sigmoid", "log_softmax": "softmax"}
_LARGEST_EPSILON = 0.02
#: Operations that are other formulas beyond some numbers.
_BENT = frozenset(
    {"relu", "relu6", "leaky_relu", "elu", "selu", "celu", "hardtanh", "clamp", "clip", "threshold"}
    | {"hardsigmoid", "hard_sigmoid", "hardswish", "hard_swish", "hardshrink", "softshrink"}
)
_AFFINE = NEUTRAL.keys() - {"pow"}
#: Operations that one formula defines for all numbers.
_PLAIN = FORMULAS | _AFFINE | MOVES | frozenset({"pow", "linear", "matmul", "dot_general"})


def other_ways(a: Pass, b: Pass, i: int, j: int, region: Region, names: tuple[str, str]) -> Iterator[str]:
    """Yield what is said of a region whose operations compute in another way.

    Args:
        a: The first pass.
        b: The second pass.
        i: The row that the region ends at.
        j: The row of the second pass that corresponds to it.
        region: The region.
        names: The names of the passes.
    """
    one, two = _direction(a, region.rows), _direction(b, region.others)
    if one and two and one != two and not (_is_mended(a, i) or _is_mended(b, j)):
        yield f"{a.place(i)} rounds {one} in {names[0]}, {two} in {names[1]}, which are one on these inputs"
    for side, row, other, rows, name in (
        (a, i, b, region.others, names),
        (b, j, a, region.rows, names[::-1]),
    ):
        threshold = _threshold(side, row)
        if threshold and not any(other.kind(n) in _CHOOSE or _threshold(other, n) for n in rows):
            yield (
                f"the threshold of {side.place(row)} is only in {name[0]}, and has no effect on these inputs"
            )
        of = _LOGARITHM_OF.get(side.kind(row))
        logarithms = [n for n in rows if other.kind(n) == "log"]
        if of and any(other.kind(p) == of for n in logarithms for p in other.graph.parents(n)):
            yield (
                f"{side.place(row)} is the logarithm of a {of} in {name[1]}, which is -inf where the {of} is "
                "rounded to 0"
            )


def bounds_of_one(a: Pass, b: Pass, i: int, j: int, region: Region, names: tuple[str, str]) -> Iterator[str]:
    """Yield what is said of bounds of one side, if the other computes by formulas alone.

    A hardsigmoid is ``x / 6 + 0.5`` where no number reaches its bounds. This is for operations that cannot be
    run on other numbers, which would show it.

    Args:
        a: The first pass.
        b: The second pass.
        i: The row that the region ends at.
        j: The row of the second pass that corresponds to it.
        region: The region.
        names: The names of the passes.
    """
    for side, end, rows, other, others, name in (
        (a, i, region.rows, b, region.others, names[0]),
        (b, j, region.others, a, region.rows, names[1]),
    ):
        if not all(other.kind(row) in _PLAIN for row in others):
            continue
        if rows == [end] and side.kind(end) in _BENT:
            yield f"the bounds of {side.place(end)} are only in {name}, and have no effect on these inputs"
        for row in rows:
            limits = bounds(side.graph, row)
            if limits not in (None, (-math.inf, math.inf)) and _is_of_sum(side, row, rows):
                yield f"{side.place(row)} ran only in {name}, and has no effect on these inputs"


def _is_of_sum(side: Pass, row: int, rows: Collection[int]) -> bool:
    """Return whether an operation is given what a region begins at, with numbers added and multiplied.

    Such may be any number, unlike a variance. What is given as it is, is compared as an operation of its own.
    """
    given = side.operands(row)
    if len(given) != 1 or given[0] not in rows:
        return False
    while len(given) == 1 and given[0] in rows and side.kind(given[0]) in _AFFINE | OF_BOUNDS:
        given = side.operands(given[0])
    return len(given) == 1 and given[0] not in rows


def _direction(side: Pass, rows: Collection[int]) -> str:
    """Return the direction in which some operations round; ``""`` if they do not, or it is not known."""
    kinds = {side.kind(row) for row in rows}
    found = {one for row in rows if (one := _rounds(side, row))}
    if not found and any("int" in side.dtype(row) and side.truncates(row) for row in rows):
        found = {_ZERO}
    if found == {_DOWN} and kinds >= {"abs", "sign"}:
        return _ZERO
    return found.pop() if len(found) == 1 and kinds.isdisjoint(_CHOOSE) else ""


def _is_mended(side: Pass, row: int) -> bool:
    """Return whether what follows adds to a result what is 0 here: ``x // 2`` is a division, and 1 less."""
    value = side.value(row)
    following = [n for n in side.graph.children(row) if side.kind(n) in ("sub", "add", "where")]
    values = [side.value(n) for n in following if len(side.operands(n)) > 1]
    return value is not None and any(one is not None and one.equals(value) for one in values)


def _rounds(side: Pass, row: int) -> str:
    kind, given = side.kind(row), arguments(side.graph.setting(row))
    if kind in ("div", "divide", "true_divide"):
        mode = _MODES.get(given.get("rounding_mode", ""), "")
        is_of_whole = "int" in side.dtype(row)  # a framework with another division has another operation
        return mode or (_ZERO if is_of_whole else "")
    if kind == "mod":
        return _ZERO if given.get("fmod") == "1" else _DOWN
    return _ROUND.get(kind, "")


def _threshold(side: Pass, row: int) -> float:
    """Return the number above which a softplus is linear, of what is multiplied with its beta; 0 for none.

    One of beta 1 is compared as an operation that has no effect on these inputs.
    """
    graph = side.graph
    if side.kind(row) != "softplus" or graph.facts.get("framework") not in ("torch", "torch.export"):
        return 0.0
    given = {"beta": "1", "threshold": "20", **common(graph, row, arguments(graph.setting(row)))}
    beta, threshold = number_of(given["beta"]), number_of(given["threshold"])
    is_seen = threshold is not None and beta not in (None, 1) and is_bent(threshold, side.eps(row))
    return threshold if is_seen and threshold is not None else 0.0


def epsilons_elsewhere(a: Pass, b: Pass, names: tuple[str, str]) -> Iterator[str]:
    """Yield what is said of an epsilon that both passes add, each to another tensor.

    Where a pass adds it more often than the other, the other computes some of it in another way.

    Args:
        a: The first pass.
        b: The second pass.
        names: The names of the passes.
    """
    adds, others = _adds(a), _adds(b)
    for number, rows in adds.items():
        of_others = next((some for one, some in others.items() if abs(one - number) <= 1e-6 * number), [])
        if len(rows) != len(of_others):
            continue
        for row in rows:
            if not any(_given_same(a, row, b, other) for other in of_others):
                given = a.place(a.operands(row)[0])
                where = f"at {a.place(row)}, in {names[1]} to another tensor"
                yield f"{number:.6g} is added to {given} in {names[0]} {where}"


def _adds(side: Pass) -> dict[float, list[int]]:
    """Return the rows that add a small number to one tensor, by the number."""
    found: dict[float, list[int]] = {}
    for row in side.rows():
        numbers = [number_of(text.strip("[]")) for text in arguments(side.graph.setting(row)).values()]
        is_add = side.kind(row) == "add" and len(side.operands(row)) == len(side.graph.parents(row)) == 1
        if is_add and len(numbers) == 1 and numbers[0] is not None and 0 < numbers[0] <= _LARGEST_EPSILON:
            found.setdefault(numbers[0], []).append(row)
    return found


def _given_same(a: Pass, row: int, b: Pass, other: int) -> bool:
    """Return whether two operations are given tensors of the same elements, or one that is not known."""
    x, y = a.value(a.operands(row)[0]), b.value(b.operands(other)[0])
    return x is None or y is None or same_elements(x, y)
