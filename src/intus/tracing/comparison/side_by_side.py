"""Two traces as one page: ``view(a, beside=b)``."""

from __future__ import annotations

from ...viewing.overlay import Overlay
from ...viewing.side_by_side import Sides, Verdicts
from ..results.trace import Trace
from .compare import compare

_FIGURES = ("relative", "max_abs", "cosine")


def sides(
    a: Trace, b: Trace, *, depth: int | str | None, rolled: bool | None, overlay: Overlay = None
) -> Sides:
    """The graphs of two traces side by side, marked with what ``compare`` finds; raises what that raises."""
    table = compare(a, b)
    first, rows = table.attrs["first"] or {"a": "", "b": ""}, []
    for trace, name in ((a, "a"), (b, "b")):
        row_of = {label: row for row, label in enumerate(trace.graph.labels)} | {"": -1}
        rows.append(([row_of[label] for label in table[name]], row_of[first[name]]))
    figures = {name: table[name].astype(float).tolist() for name in _FIGURES}
    for name in ("shape_a", "shape_b"):
        figures[name] = [None if shape is None else list(shape) for shape in table[name]]
    (of_a, first_a), (of_b, first_b) = rows
    verdicts = Verdicts(
        pairs=list(zip(of_a, of_b, strict=True)),
        verdict=table["verdict"].tolist(),
        figures=figures,
        first=(first_a, first_b),
        summary=table.attrs["summary"],
    )
    one, other = (trace.show(depth=depth, rolled=rolled) for trace in (a, b))
    return Sides(one, other, verdicts, overlay=overlay)
