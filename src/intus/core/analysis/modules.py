"""Find which modules of two passes correspond: by their names, or by what they compute.

Two implementations of one architecture name their modules otherwise. Layers correspond that have the same
weights or returned the same tensors, and modules around them that have the same layers inside. What is left
in two modules that correspond does so by its name there, or its place among what has parameters of the same
sizes. Names decide where layers have each other's weights: those were loaded into the wrong ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..graph import Graph

#: The digits by which two sums are compared: those of the same numbers in another order agree in more.
_DIGITS = 6
#: The most rounds in which what was found may show more: each finds what is one level further in.
_ROUNDS = 8


def same_modules(a: Graph, b: Graph) -> dict[str, str]:
    """Return the address in ``a`` of modules of ``b`` that have another, as ``0.norm`` of ``blocks.0.norm``.

    Two modules correspond if one address ends with the other, and no other module of either graph does so.
    """
    names_a, names_b = ({m.address for m in graph.modules if m.address} for graph in (a, b))
    return same_ends(names_a - names_b, names_b - names_a)


def same_ends(names_a: Iterable[str], names_b: Iterable[str]) -> dict[str, str]:
    """Return the only names of the first that end with, or are an end of, those of the second, by these."""
    left_a, left_b = ({name: _parts(name) for name in left} for left in (names_a, names_b))
    ends: dict[tuple[int, str], set[str]] = {}
    for side, some, others in ((0, left_a, left_b), (1, left_b, left_a)):
        named: dict[tuple[str, ...], list[str]] = {}
        for other, parts in others.items():
            named.setdefault(parts, []).append(other)
        for name, parts in some.items():
            for start in range(len(parts)):
                for other in named.get(parts[start:], ()):
                    ends.setdefault((side, name), set()).add(other)
                    ends.setdefault((1 - side, other), set()).add(name)
    only = {key: next(iter(found)) for key, found in ends.items() if len(found) == 1}
    return {
        other: only[1, other]
        for other in sorted(left_b)
        if (1, other) in only and only.get((0, only[1, other])) == other
    }


def _parts(address: str) -> tuple[str, ...]:
    """Return the parts of an address: frameworks write ``blocks.0``, ``blocks_0`` or ``Blocks_0``."""
    return tuple(re.sub(r"_(\d+)(?=\.|$)", r".\1", address.lower()).split("."))


def renamed(address: str, names: Mapping[str, str]) -> str:
    """Return an address with the name in the other pass of the innermost module around it that has one.

    >>> renamed("blocks.0.norm", {"blocks.0": "0"}), renamed("fc:2", {"fc": "head"})
    ('0.norm', 'head:2')
    """
    module, *call = address.partition(":")
    around, point, last = module.rpartition(".")
    is_known = module in names or not point
    name = names.get(module, module) if is_known else f"{renamed(around, names)}.{last}"
    return "".join((name, *call))


def with_names(graph: Graph, names: Mapping[str, str], taken: Iterable[str]) -> dict[str, str]:
    """Return the names of all modules of a graph under those of another one.

    Args:
        graph: The graph.
        names: The names in the other graph of modules that correspond.
        taken: The names in the other graph, which no other module may have.
    """
    found, used, own = {}, {*names.values()}, {*taken}
    for address in (module.address for module in graph.modules if module.address):
        name = renamed(address, names)
        is_taken = name in used and names.get(address) != name
        is_other = address not in names and name != address and name in own
        found[address] = f"{name}'" if is_taken or is_other else name
    return found


@dataclass(frozen=True)
class _Tree:
    """The modules that a pass called, in order of their first call; a number is the place in the graph.

    Attributes:
        graph: The graph.
        around: The module around each; none of the model.
    """

    graph: Graph
    around: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> _Tree:
        """Return the modules of a graph."""
        tree, of_call = cls(graph), graph.calls.module.tolist()
        for module, call in zip(of_call, graph.calls.parent.tolist(), strict=True):
            tree.around.setdefault(module, of_call[call] if call >= 0 else -1)
        return tree

    @cached_property
    def layers(self) -> list[int]:
        """The modules without modules inside of them."""
        outer = {*self.around.values()}
        return [module for module in self.around if module not in outer]

    @cached_property
    def inside(self) -> dict[int, frozenset[int]]:
        """The layers inside of each other module."""
        found: dict[int, set[int]] = {}
        for layer in self.layers:
            for module in self.modules_around(layer):
                found.setdefault(module, set()).add(layer)
        return {module: frozenset(layers) for module, layers in found.items()}

    def modules_around(self, module: int) -> Iterator[int]:
        """Yield the modules around one, innermost first."""
        seen = {module}
        while (module := self.around[module]) >= 0 and module not in seen:
            seen.add(module)
            yield module

    def address(self, module: int) -> str:
        """Return the address of a module."""
        return self.graph.modules[module].address

    def sizes(self, module: int) -> tuple[int, ...]:
        """Return the numbers of elements of a module's own parameters."""
        params = self.graph.modules[module].params
        return tuple(sorted(int(np.prod(self.graph.params[number].shape)) for number in params))

    def name_in(self, module: int, outer: int) -> str:
        """Return the address of a module without that of one around it."""
        address, around = self.address(module), self.address(outer)
        return address[len(around) + 1 :] if around and address.startswith(f"{around}.") else address


def corresponding_modules(
    a: Graph,
    b: Graph,
    pairs: Iterable[tuple[int, int]],
    weights: tuple[Mapping[int, Hashable], Mapping[int, Hashable]],
) -> dict[str, str]:
    """Return the address in ``a`` of each module of ``b`` that has a counterpart of another name.

    Args:
        a: The first graph.
        b: The second graph.
        pairs: Pairs of rows that have the same values; -1 where a row has none.
        weights: What identifies the values of each graph's parameters, by their numbers.
    """
    return _Correspondence(_Tree.of(a), _Tree.of(b), [*pairs], weights).names()


def sums_as_key(sums: np.ndarray) -> Hashable:
    """Return what identifies a tensor by sums over its elements, in whichever order they are added."""
    return tuple(f"{x:.{_DIGITS}g}" for x in sums.tolist())


class _Correspondence:
    """Finds the modules that correspond.

    Attributes:
        partner: The module of ``b`` of each module of ``a`` that has one.
    """

    def __init__(
        self,
        a: _Tree,
        b: _Tree,
        pairs: list[tuple[int, int]],
        weights: tuple[Mapping[int, Hashable], Mapping[int, Hashable]],
    ) -> None:
        self._a, self._b = a, b
        self.partner: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        shown = self._by_weights(weights)
        shown += [one for one in self._by_results(pairs) if {one[0]}.isdisjoint(i for i, _ in shown)]
        self._by_names({**dict(shown)})
        for i, j in shown:
            self._add(i, j)
        for _ in range(_ROUNDS):
            before = len(self.partner)
            self._around_layers()
            self._inside_of_pairs()
            if len(self.partner) == before:
                break

    def names(self) -> dict[str, str]:
        """Return the address in ``a`` of each module of ``b`` that has a counterpart of another name."""
        both = ((self._a.address(i), self._b.address(j)) for i, j in self.partner.items())
        return {other: one for one, other in both if one != other and one and other}

    def _add(self, i: int, j: int) -> bool:
        """Let two modules correspond, if neither does to another."""
        is_free = i not in self.partner and j not in self._taken
        if is_free:
            self.partner[i], self._taken[j] = j, i
        return is_free

    def _replace(self, i: int, j: int) -> None:
        """Let two modules correspond, and what they corresponded to correspond to nothing as yet."""
        self._taken.pop(self.partner.pop(i, -1), None)
        self.partner.pop(self._taken.pop(j, -1), None)
        self._add(i, j)

    def _by_names(self, shown: Mapping[int, int]) -> None:
        """Add the modules of one address, and those of which one address ends with the other.

        But for an end that only happens to be the same: the layer is shown to be another, which is none of
        those that names pair. Where these have each other's weights, names decide.

        Args:
            shown: The modules of ``b`` that are shown to be those of ``a``.
        """
        numbers_a, numbers_b = ({tree.address(n): n for n in tree.around} for tree in (self._a, self._b))
        for address in numbers_a.keys() & numbers_b.keys():
            self._add(numbers_a[address], numbers_b[address])
        ends = same_ends(numbers_a.keys() - numbers_b.keys(), numbers_b.keys() - numbers_a.keys())
        named = {numbers_a[one]: numbers_b[other] for other, one in ends.items()}
        of_names, back = {*named.values()}, {j: i for i, j in shown.items()}
        for i, j in named.items():
            if shown.get(i, j) in of_names and back.get(j, i) in named:
                self._add(i, j)

    def _by_weights(
        self, weights: tuple[Mapping[int, Hashable], Mapping[int, Hashable]]
    ) -> list[tuple[int, int]]:
        """Return the layers of which a parameter has the values that one of the other has alone."""
        owners: list[dict[Hashable, list[int]]] = [{}, {}]
        for tree, keys, owner in zip((self._a, self._b), weights, owners, strict=True):
            for layer in tree.layers:
                for number in tree.graph.modules[layer].params:
                    if number in keys:
                        owner.setdefault(keys[number], []).append(layer)
        same = [(owners[0][key], owners[1][key]) for key in owners[0] if key in owners[1]]
        return _mutual(Counter((i[0], j[0]) for i, j in same if len(i) == len(j) == 1))

    def _by_results(self, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the modules that returned the same tensors."""
        a, b, votes = self._a.graph, self._b.graph, Counter[tuple[int, int]]()
        for i, j in pairs:
            calls, others = a.row_exits.get(i, ()), b.row_exits.get(j, ())
            if len(calls) == len(others):
                votes.update(
                    (int(a.calls.module[call]), int(b.calls.module[other]))
                    for call, other in zip(calls, others, strict=True)
                )
        return _mutual(votes)

    def _around_layers(self) -> None:
        """Add the modules around which are most of the same layers, and no others."""
        votes = Counter[tuple[int, int]]()
        for module, layers in self._a.inside.items():
            if module in self.partner:
                continue
            images = {self.partner[layer] for layer in layers if layer in self.partner}
            if not images:
                continue
            for other in dict.fromkeys(m for layer in images for m in self._b.modules_around(layer)):
                if other not in self._taken:
                    known = {layer for layer in self._b.inside[other] if layer in self._taken}
                    both = len(images & known)
                    if 2 * both > len(images | known):
                        votes[module, other] = round(1000 * both / len(images | known))
        # Of several modules around the same layers, the innermost of both correspond.
        depth = {m: n for n, m in enumerate(self._a.around)}, {m: n for n, m in enumerate(self._b.around)}
        order = sorted(votes, key=lambda ij: (-votes[ij], -depth[0][ij[0]], -depth[1][ij[1]]))
        for i, j in order:
            self._add(i, j)

    def _inside_of_pairs(self) -> None:
        """Add what is left inside of modules that correspond, and let names there decide."""
        groups: dict[int, tuple[list[int], list[int]]] = {}
        for side, tree in enumerate((self._a, self._b)):
            for module in tree.around:
                around = self._outer(side, module)
                if around >= 0:
                    groups.setdefault(around, ([], []))[side].append(module)
        for outer, (own, others) in groups.items():
            self._by_names_in(outer, own, others)
            left = [m for m in own if m not in self.partner], [m for m in others if m not in self._taken]
            self._by_place(*left)

    def _outer(self, side: int, module: int) -> int:
        """Return the innermost module around one that has a partner, as the one of ``a``; -1 for none."""
        tree, found = (self._a, self.partner) if side == 0 else (self._b, self._taken)
        outer = next((m for m in tree.modules_around(module) if m in found), -1)
        return outer if side == 0 or outer < 0 else self._taken[outer]

    def _by_names_in(self, outer: int, own: list[int], others: list[int]) -> None:
        """Let modules of one name inside of two that correspond do so too.

        Numbers tell only if both have the same, each for a module of the same size.
        """
        other = self.partner[outer]
        named = {_parts(self._a.name_in(m, outer)): m for m in own}
        names = {_parts(self._b.name_in(m, other)): m for m in others}
        families: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for name in named.keys() | names.keys():
            families.setdefault(tuple("#" if part.isdigit() else part for part in name), []).append(name)
        for family, members in families.items():
            same = [name for name in members if name in named and name in names]
            if "#" in family and not (
                len(same) == len(members)
                and all(self._a.sizes(named[n]) == self._b.sizes(names[n]) for n in same)
            ):
                continue
            for name in same:
                if self.partner.get(named[name]) != names[name]:
                    self._replace(named[name], names[name])

    def _by_place(self, own: list[int], others: list[int]) -> None:
        """Let layers left in two modules correspond in order, if as many have parameters of one size.

        And a layer that is the only one between two that have a counterpart.
        """
        layers = {*self._a.layers}, {*self._b.layers}
        groups: dict[Hashable, tuple[list[int], list[int]]] = {}
        for side, (tree, some) in enumerate(((self._a, own), (self._b, others))):
            for module in some:
                if module in layers[side]:
                    sizes = tree.sizes(module)
                    kind = sizes or tree.graph.modules[module].type.lower()
                    groups.setdefault(kind, ([], []))[side].append(module)
        for one, two in groups.values():
            if len(one) == len(two):
                for i, j in zip(one, two, strict=True):
                    self._add(i, j)
        gaps: dict[Hashable, tuple[list[int], list[int]]] = {}
        for side, some in enumerate((own, others)):
            for module in some:
                if module in layers[side] and module not in (self.partner, self._taken)[side]:
                    gaps.setdefault(self._neighbors(side, module), ([], []))[side].append(module)
        for one, two in gaps.values():
            if len(one) == len(two) == 1:
                self._add(one[0], two[0])

    def _neighbors(self, side: int, module: int) -> tuple[int, int]:
        """Return the nearest layers with a partner before and after one, as those of ``a``; -1 for none."""
        tree, found = (self._a, self.partner) if side == 0 else (self._b, self._taken)
        at = tree.layers.index(module)
        before = next((layer for layer in reversed(tree.layers[:at]) if layer in found), -1)
        after = next((layer for layer in tree.layers[at:] if layer in found), -1)
        return (before, after) if side == 0 else (self._taken.get(before, -1), self._taken.get(after, -1))


def _mutual(votes: Counter[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pairs that have more votes than any other of either member.

    >>> _mutual(Counter({(0, 0): 2, (0, 1): 1, (1, 2): 1, (2, 2): 1}))
    [(0, 0)]
    """
    best: list[dict[int, list[int]]] = [{}, {}]
    for pair, count in votes.items():
        for side in (0, 1):
            best[side].setdefault(pair[side], []).append(count)
    return [
        (i, j)
        for (i, j), count in votes.items()
        if all(max(some) == count and some.count(count) == 1 for some in (best[0][i], best[1][j]))
    ]
