"""Tell by names which modules of two passes correspond, where equal values pair them crosswise.

A twin whose layers were loaded with each other's weights has every value of the other pass, in other layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ....core.analysis.modules import same_modules
from ....core.graph import INPUT, OP, OUTPUT, Graph
from ....core.vocabularies.families import MOVES

if TYPE_CHECKING:
    from ..judging.pairs import Pair, Pairs
    from ..origins.origins import Origin

_NUMBER = re.compile(r"\d+")


def named_alike(a: Graph, b: Graph) -> dict[str, str]:
    """Return the address in ``a`` of each layer of ``b`` whose name tells which one it is.

    Layers are the innermost modules with parameters. Numbers tell only if both passes have the same, each
    for a layer of the same size: where one has another layer between, the numbers behind it are others.

    Args:
        a: The first graph.
        b: The second graph.
    """
    renamed = same_modules(a, b)
    own = _layers(a)
    others = {renamed.get(address, address): (address, size) for address, size in _layers(b).items()}
    families: dict[str, list[str]] = {}
    for name in own.keys() | others.keys():
        families.setdefault(_NUMBER.sub("#", name), []).append(name)
    return {
        others[name][0]: name
        for names in families.values()
        if all(name in own and name in others and own[name] == others[name][1] for name in names)
        for name in names
    }


def _layers(graph: Graph) -> dict[str, int]:
    """Return the size of the largest parameter of each module with parameters but no such modules inside."""
    modules = {module.address for module in graph.modules if module.address}
    sizes: dict[str, int] = {}
    for param in graph.params:
        owner = param.address.rpartition(".")[0]
        if owner in modules:
            sizes[owner] = max(sizes.get(owner, 0), int(np.prod(param.shape)))
    around = {owner[: match.start()] for owner in sizes for match in re.finditer(r"\.", owner)}
    return {owner: size for owner, size in sizes.items() if owner not in around}


def rows_of_layers(a: Graph, b: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the layer that each row is of, the same for both graphs; -1 for none.

    A row is of the layer that it ran in. What follows a single layer, and has no parameters, is of it too.

    Args:
        a: The first graph.
        b: The second graph.
    """
    names = named_alike(a, b)
    numbers = {name: number for number, name in enumerate(sorted(names.values()))}
    own = {name: numbers[name] for name in names.values()}
    return _layer_of_rows(a, own), _layer_of_rows(b, {name: numbers[names[name]] for name in names})


def _layer_of_rows(graph: Graph, numbers: Mapping[str, int]) -> np.ndarray:
    of_modules = [numbers.get(module.address, -1) for module in graph.modules]
    of_calls: list[int] = []  # the calls around one began before it
    for module, parent in zip(graph.calls.module.tolist(), graph.calls.parent.tolist(), strict=True):
        of_calls.append(of_calls[parent] if of_modules[module] < 0 <= parent else of_modules[module])
    of_rows: list[int] = []
    for row, call in enumerate(graph.ops.call.tolist()):
        given = {of_rows[one] for one in graph.parents(row) if graph.ops.kind[one] in (INPUT, OP)}
        follows = len(given) == 1 and row not in graph.row_params
        of_rows.append(of_calls[call] if call >= 0 <= of_calls[call] else given.pop() if follows else -1)
    return np.array(of_rows, np.int64)


def are_crossed(pairs: Pairs, origins: list[Origin], layers: tuple[np.ndarray, np.ndarray]) -> bool:
    """Return whether the passes come to differ where they use layers that are paired against their names.

    Names that are others of the same layers have no such effect: what follows uses them alike.

    Args:
        pairs: The pairs, with what was found.
        origins: Where differences originate.
        layers: As ``rows_of_layers`` returns them.
    """
    crossed = {
        number
        for number, pair in enumerate(pairs)
        if pair.has_both and -1 != layers[0][pair.a] != layers[1][pair.b] != -1
    }
    return not crossed.isdisjoint(_given(pairs, origins, crossed))


def _given(pairs: Pairs, origins: list[Origin], crossed: set[int]) -> Iterator[int]:
    """Yield the pairs that the passes come to differ at, and those that are given there.

    What only one pass computes from these, or only moves, is passed over, and also what has another layout
    there alone: the scores of an attention whose queries are the keys of the other.
    """
    waiting = [n for n, pair in enumerate(pairs) if _is_open_output(pairs, pair)]
    waiting += [n for origin in origins for n in (origin.pair, *origin.region)]
    begins, seen = {*waiting}, {*waiting}
    while waiting:
        number = waiting.pop()
        yield number
        if (
            number in begins
            or not _computes(pairs, pairs[number])
            or pairs.is_turned_here(number, without=crossed)
        ):
            parents = {*pairs.parents(pairs[number])} - seen
            seen |= parents
            waiting += parents


def _is_open_output(pairs: Pairs, pair: Pair) -> bool:
    ends = [row >= 0 and side.graph.ops.kind[row] == OUTPUT for side, row in pairs.sides(pair)]
    return any(ends) and not (pair.has_both and pair.is_explained)


def _computes(pairs: Pairs, pair: Pair) -> bool:
    """Return whether both passes have a pair, and do not only move the elements there."""
    return pair.has_both and any(side.kind(row) not in MOVES for side, row in pairs.sides(pair))
