"""Show two graphs side by side on one page, with matching boxes and their differences marked.

``web/src/graph/view/sides.ts`` declares the same data for the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import InputError, check_folder, did_you_mean
from ..core.graph import Graph
from .html import View, content, document
from .outline import headline
from .overlay import BUILT_IN, Overlay
from .scene import finite

#: The marks of a box, in increasing order of severity. A module gets the most severe mark inside it.
MARKS = ("equal", "not saved", "close", "only here", "differs", "first difference")
_EQUAL, _ONLY, _DIFFERS, _FIRST = 0, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The result of comparing two graphs.

    Attributes:
        pairs: Pairs of matching rows, -1 where a row of the other graph has no counterpart.
        verdict: For each pair what ``compare`` found: ``"equal"``, ``"close"``, ``"shape"``, ``"only in a"``
            and others.
        figures: Columns with one entry per pair: ``relative``, ``max_abs``, ``cosine``, ``shape_a`` and
            ``shape_b``.
        first: The row of the first difference in each graph, -1 for none.
        summary: The result in a few sentences.
    """

    pairs: Sequence[tuple[int, int]]
    verdict: Sequence[str]
    figures: Mapping[str, Sequence[Any]]
    first: tuple[int, int]
    summary: str


class Sides(View):
    """Two graphs shown side by side on one page that opens, selects and scrolls both together.

    ``view(a, beside=b)`` makes it.

    Args:
        a: The left graph. Its ``depth``, ``rolled`` and ``details`` apply to both.
        b: The right graph.
        verdicts: What the comparison found.
        overlay: ``"time"``, ``"memory"``, ``"parameters"`` or ``"flops"``. Default: color the differences.

    Attributes:
        views: The two Views.
        verdicts: What the comparison found.

    Raises:
        InputError: ``overlay`` is something else.

    Example:
        >>> view(a, beside=b).save("sides.html")  # doctest: +SKIP
        PosixPath('sides.html')
    """

    def __init__(self, a: View, b: View, verdicts: Verdicts, *, overlay: Overlay = None) -> None:
        if not (overlay is None or (isinstance(overlay, str) and overlay in BUILT_IN)):
            raise InputError(
                f"overlay={overlay!r} cannot color two graphs side by side. "
                f"{did_you_mean(str(overlay), BUILT_IN)} Leave it out to color the differences."
            )
        title = f"{a.title} and {b.title}"
        super().__init__(
            a.graph, title=title, overlay=overlay, depth=a.depth, rolled=a.rolled, details=a.details
        )
        self.views, self.verdicts = (a, b), verdicts

    def html(self, *, rolled: bool | None = None) -> str:
        """Return the page as HTML text, with ``rolled`` as the left View says if it is None."""
        rolled = self.rolled if rolled is None else rolled
        both = [
            content(
                one.graph,
                overlay=self.overlay,
                depth=self.depth,
                rolled=rolled,
                details=self.details,
                values=one.values,
            )
            for one in self.views
        ]
        data = {**both[0], "beside": {**both[1], **self.marks()}}
        return document(data, title=self.title, summary=self.verdicts.summary, also="sides")

    def marks(self) -> dict[str, Any]:
        """Return the marks of all boxes; see the function ``marks``."""
        a, b = self.views
        return marks(a.graph, b.graph, self.verdicts)

    def save(self, path: str | Path, *, rolled: bool | None = None, **options: Any) -> Path:
        """Write the page into a file and return its path.

        Args:
            path: The file, which must end in ``.html``.
            rolled: Whether the passes of a recurrent layer are one box. Default: as the left View says.
            **options: The other options of ``View.save``, which apply to pictures of one graph and are
                refused.

        Returns:
            The path that was written.

        Raises:
            InputError: The path ends in something else, or an option was given.
        """
        path = Path(path)
        if path.suffix != ".html" or options:
            wrong = sorted(options) if options else repr(path.name)
            raise InputError(
                f"{wrong} cannot be: two graphs side by side are a page. Save it as .html, without options."
            )
        check_folder(path)
        path.write_text(self.html(rolled=rolled), encoding="utf-8", errors="backslashreplace")
        return path

    def widget(self) -> Any:
        """Raise InputError, because a widget shows one graph.

        Raises:
            InputError: Always.
        """
        raise InputError(
            "A widget shows one graph. End the cell with view(a, beside=b), or save it as .html."
        )

    def __repr__(self) -> str:
        a, b = self.views
        return f"<View of {self.title}: {headline(a.graph)}; {headline(b.graph)}>"


def marks(a: Graph, b: Graph, found: Verdicts) -> dict[str, Any]:
    """Return the marks of two compared graphs, as JSON-able data.

    Returns:
        A dict with ``marks`` (``MARKS``), ``first`` (the labels of the first difference, ``""`` for none),
        ``figures``, ``summary``, and ``names``: for each side, by label and by address of a module call, the
        mark (an index into ``MARKS``), the name of the counterpart (``""`` for none), and the number of the
        pair (-1 for a module).
    """
    calls = partners(a, b, found.pairs)
    back = {call_b: call_a for call_a, call_b in calls.items()}
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
    """Return the mark for a verdict.

    >>> [MARKS[_mark(verdict)] for verdict in ("close", "only in b", "shape")]
    ['close', 'only here', 'differs']
    """
    if verdict.startswith("only"):
        return _ONLY
    return MARKS.index(verdict) if verdict in MARKS else _DIFFERS


def partners(a: Graph, b: Graph, pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Match the module calls of two graphs by the rows that they share.

    Calls are matched greedily in order of the Jaccard index of their rows. Ties go to calls of equal address,
    then to calls of the nearest depth.

    Args:
        a: One graph.
        b: The other graph.
        pairs: Pairs of matching rows, -1 for none.

    Returns:
        A mapping from calls of ``a`` to calls of ``b``; each call occurs at most once.
    """
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
        shared.update((call_a, call_b) for call_a in around[0] for call_b in around[1])

    def order(both: tuple[int, int]) -> tuple[float, bool, int, int, int]:
        call_a, call_b = both
        jaccard = shared[both] / (sizes[0][call_a] + sizes[1][call_b] - shared[both])
        same_name = a.call_address(call_a) == b.call_address(call_b)
        return -jaccard, not same_name, abs(depth[0][call_a] - depth[1][call_b]), call_a, call_b

    found: dict[int, int] = {}
    taken: set[int] = set()
    for call_a, call_b in sorted(shared, key=order):
        if call_a not in found and call_b not in taken:
            found[call_a] = call_b
            taken.add(call_b)
    return found
