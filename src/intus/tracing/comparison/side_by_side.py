"""Show two traces as one page: ``view(a, beside=b)``."""

from __future__ import annotations

from ...viewing.overlay import Overlay
from ...viewing.side_by_side import Sides, Verdicts
from ..results.trace import Trace
from .compare import compare

_COLUMNS = ("relative", "max_abs", "cosine")


def side_by_side(
    a: Trace,
    b: Trace,
    *,
    depth: int | str | None,
    rolled: bool | None,
    details: str | None = None,
    overlay: Overlay = None,
) -> Sides:
    """Return the graphs of two traces side by side, marked with what ``compare`` finds.

    Args:
        a: The first trace.
        b: The second trace.
        depth: As in ``intus.view``.
        rolled: As in ``intus.view``.
        details: As in ``intus.view``.
        overlay: As in ``intus.view``.

    Raises:
        InputError: If one of them has no values to compare, or the overlay is not possible.
    """
    table = compare(a, b)
    first, rows = table.attrs["first"] or {"a": "", "b": ""}, []
    for trace, name in ((a, "a"), (b, "b")):
        row_of = {label: row for row, label in enumerate(trace.graph.labels)} | {"": -1}
        rows.append(([row_of[label] for label in table[name]], row_of[first[name]]))
    figures = {name: table[name].astype(float).tolist() for name in _COLUMNS}
    for name in ("shape_a", "shape_b"):
        figures[name] = [None if shape is None else list(shape) for shape in table[name]]
    (rows_a, first_a), (rows_b, first_b) = rows
    verdicts = Verdicts(
        pairs=list(zip(rows_a, rows_b, strict=True)),
        verdict=table["verdict"].tolist(),
        figures=figures,
        first=(first_a, first_b),
        summary=table.attrs["summary"],
    )
    one, other = (trace.show(depth=depth, rolled=rolled, details=details) for trace in (a, b))
    return Sides(one, other, verdicts, overlay=overlay)
