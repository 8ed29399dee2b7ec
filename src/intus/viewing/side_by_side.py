"""Two graphs side by side on one page: which box of one is which of the other, and how far they are apart.

The page's side of this contract is ``web/src/graph/view/sides.ts``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import InputError, did_you_mean
from ..core.graph import Graph
from .html import View, content, document
from .outline import headline
from .overlay import BUILT_IN, Overlay
from .scene import finite

#: How a box is marked, from the least to the worst; a module takes the worst of what is inside.
MARKS = ("equal", "not saved", "close", "only here", "differs", "first difference")
_EQUAL, _ONLY, _DIFFERS, _FIRST = 0, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What was found of two graphs: ``pairs`` of rows (-1: no partner), a ``verdict`` of each, ``figures``
    (columns with one entry per pair), ``first``, the rows where they part (-1 for none), and the ``summary``
    in words."""

    pairs: Sequence[tuple[int, int]]
    verdict: Sequence[str]
    figures: Mapping[str, Sequence[Any]]
    first: tuple[int, int]
    summary: str


class Sides(View):
    """Two graphs to look at side by side, walking together; saves itself as one offline page.

    >>> Sides(View(graph), View(other), verdicts).save("sides.html")     # doctest: +SKIP
    PosixPath('sides.html')
    """

    def __init__(self, a: View, b: View, verdicts: Verdicts, *, overlay: Overlay = None) -> None:
        if not (overlay is None or (isinstance(overlay, str) and overlay in BUILT_IN)):
            raise InputError(
                f"overlay={overlay!r} cannot colour two graphs side by side. "
                f"{did_you_mean(str(overlay), BUILT_IN)} Without it the differences are coloured."
            )
        title = f"{a.title} and {b.title}"
        super().__init__(a.graph, title=title, overlay=overlay, depth=a.depth, rolled=a.rolled)
        self.views, self.verdicts = (a, b), verdicts

    def html(self, *, rolled: bool | None = None) -> str:
        """The page as text; ``rolled`` as asked for at first where None."""
        rolled = self.rolled if rolled is None else rolled
        both = [
            content(v.graph, overlay=self.overlay, depth=self.depth, rolled=rolled, values=v.values)
            for v in self.views
        ]
        data = {**both[0], "beside": {**both[1], **self.marks()}}
        return document(data, title=self.title, summary=self.verdicts.summary, also="sides")

    def marks(self) -> dict[str, Any]:
        """What the page marks (see ``marks``)."""
        a, b = self.views
        return marks(a.graph, b.graph, self.verdicts)

    def save(self, path: str | Path, *, rolled: bool | None = None, **look: Any) -> Path:
        """Write the page to ``path``, which ends in ``.html``, and return it.

        Raises InputError for another ending, or for ``direction``, ``dark`` and ``scale``, which are for
        pictures of one graph.
        """
        path = Path(path)
        if path.suffix != ".html" or look:
            said = f"{sorted(look)} cannot be" if look else f"{path.name!r} cannot be"
            raise InputError(
                f"{said}: two graphs side by side are a page. Save it as .html, without options."
            )
        path.write_text(self.html(rolled=rolled), encoding="utf-8")
        return path

    def widget(self) -> Any:
        """Not of two graphs: raises InputError."""
        raise InputError(
            "A widget holds one graph. End the cell with view(a, beside=b), or save it as .html."
        )

    def __repr__(self) -> str:
        a, b = self.views
        return f"<View of {self.title}: {headline(a.graph)}; {headline(b.graph)}>"


def marks(a: Graph, b: Graph, found: Verdicts) -> dict[str, Any]:
    """What the page marks: for each side, by label and by module call, the mark (an index into ``MARKS``),
    the partner's name ("" for none) and the number of the pair's figures (-1 for a module)."""
    calls = partners(a, b, found.pairs)
    back = {theirs: mine for mine, theirs in calls.items()}
    return {
        "marks": MARKS,
        "first": [
            graph.labels[row] if row >= 0 else "" for graph, row in zip((a, b), found.first, strict=True)
        ],
        "figures": finite({name: list(column) for name, column in found.figures.items()}),
        "summary": found.summary,
        "names": [_names(0, (a, b), found, calls), _names(1, (a, b), found, back)],
    }


def _names(
    side: int, graphs: tuple[Graph, Graph], found: Verdicts, calls: Mapping[int, int]
) -> dict[str, tuple[int, str, int]]:
    graph, other = graphs[side], graphs[1 - side]
    names: dict[str, tuple[int, str, int]] = {}
    worst: dict[int, int] = {}
    for number, (pair, verdict) in enumerate(zip(found.pairs, found.verdict, strict=True)):
        row, partner = pair[side], pair[1 - side]
        if row >= 0:
            mark = _FIRST if row == found.first[side] else _mark(verdict)
            names[graph.labels[row]] = mark, other.labels[partner] if partner >= 0 else "", number
            for call in graph.enclosing_calls(row):
                worst[call] = max(worst.get(call, _EQUAL), mark)
    for call, mark in worst.items():
        if address := graph.call_address(call):
            names[address] = mark, other.call_address(calls[call]) if call in calls else "", -1
    return names


def _mark(verdict: str) -> int:
    """
    >>> [MARKS[_mark(verdict)] for verdict in ("close", "only in b", "shape")]
    ['close', 'only here', 'differs']
    """
    if verdict.startswith("only"):
        return _ONLY
    return MARKS.index(verdict) if verdict in MARKS else _DIFFERS


def partners(a: Graph, b: Graph, pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Which module call of ``a`` is which of ``b``: the two that share the largest part of their rows (their
    Jaccard index), among equals those of one name, then of nearest depth. No call stands twice."""
    shared: Counter[tuple[int, int]] = Counter()
    sizes: tuple[Counter[int], Counter[int]] = Counter(), Counter()
    depth: tuple[dict[int, int], dict[int, int]] = {}, {}
    for pair in pairs:
        around: list[list[int]] = [[], []]
        for side, graph in enumerate((a, b)):
            if pair[side] >= 0:
                around[side] = graph.enclosing_calls(pair[side])
                sizes[side].update(around[side])
                depth[side].update({call: level for level, call in enumerate(around[side])})
        shared.update((mine, theirs) for mine in around[0] for theirs in around[1])

    def order(both: tuple[int, int]) -> tuple[float, bool, int, int, int]:
        mine, theirs = both
        common = shared[both] / (sizes[0][mine] + sizes[1][theirs] - shared[both])
        named = a.call_address(mine) == b.call_address(theirs)
        return -common, not named, abs(depth[0][mine] - depth[1][theirs]), mine, theirs

    found: dict[int, int] = {}
    taken: set[int] = set()
    for mine, theirs in sorted(shared, key=order):
        if mine not in found and theirs not in taken:
            found[mine] = theirs
            taken.add(theirs)
    return found
