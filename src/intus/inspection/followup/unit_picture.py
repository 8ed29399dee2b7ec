"""Draw a unit over one record: over an image, or over a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import InputError, require
from ..plan import Plan
from .pictures import colors_of, ink_on, new_figure, short
from .unit_over import is_binary, nearest, picture, unit_over
from .unit_reader import UnitReader
from .unit_row import UnitRow

_WIDTH = 80  # characters of a line
_SYMBOLS = 2000  # symbols that are drawn at most


def draw_unit(plan: Plan, row: UnitRow, record: int) -> Any:
    """Return a figure of a unit over a record; see ``Inspection.draw_unit``."""
    if not 0 <= record < len(plan.records):
        raise InputError(f"record={record!r} is not a number from 0 to {len(plan.records) - 1}.")
    over = unit_over(UnitReader(plan, row), record)
    if over.values is None:
        raise InputError(
            f"{row.address!r} gives records of shape {over.shape} per unit, which cannot be drawn over "
            f"a {type(over.shown).__name__}. A layer with a position for each pixel or symbol can."
        )
    if over.symbols is None:
        return _over_image(row, record, over.shown, over.size, over.values, over.labels)
    return _over_text(row, record, over.shown, over.symbols, over.values, over.labels)


def _over_image(
    row: UnitRow,
    record: int,
    image: np.ndarray,
    size: tuple[int, ...],
    values: np.ndarray,
    labels: np.ndarray,
) -> Any:
    """Draw the record and the unit beside it, both with the outline of where the hypothesis holds."""
    height, width = size
    figure = new_figure(7.6, 0.7 + 3.1 * min(2.0, height / width))
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    left.imshow(picture(image, size), cmap="gray", interpolation="nearest")
    left.set_title(f"record {record}")
    drawn = right.imshow(values, interpolation="nearest", **colors_of(values))
    right.set_title(f"{short(row)}")
    figure.colorbar(drawn, ax=right, label="behavior", shrink=0.8)
    if is_binary(labels) and labels.ndim == 2:
        lines = outline(nearest(labels == 1, size))
        for axis in (left, right):
            axis.add_collection(_lines(lines, "white", 3.4))
            axis.add_collection(_lines(lines, "black", 1.4))
        figure.supxlabel(f"outlined: {short(row.target)}", fontsize=9)
    elif labels.ndim == 0:
        figure.supxlabel(f"{short(row.target)} = {labels}", fontsize=9)
    for axis in (left, right):
        axis.set_xticks([])
        axis.set_yticks([])
    return figure


def outline(mask: np.ndarray) -> np.ndarray:
    """Return the edges between pixels in a mask and others, (edges, 2 ends, x and y).

    Example:
        >>> outline(np.array([[False, True]])).tolist()[0]
        [[0.5, -0.5], [0.5, 0.5]]
    """
    padded = np.pad(mask, 1)
    y, x = np.nonzero(padded[1:-1, 1:] != padded[1:-1, :-1])
    upright = np.stack([np.stack([x - 0.5, y - 0.5], 1), np.stack([x - 0.5, y + 0.5], 1)], 1)
    y, x = np.nonzero(padded[1:, 1:-1] != padded[:-1, 1:-1])
    level = np.stack([np.stack([x - 0.5, y - 0.5], 1), np.stack([x + 0.5, y - 0.5], 1)], 1)
    return np.concatenate([upright, level]).astype(float)


def _lines(segments: np.ndarray, color: str, width: float) -> Any:
    require("matplotlib", extra="draw", why="to draw")
    from matplotlib.collections import LineCollection

    return LineCollection(list(segments), colors=color, linewidths=width, capstyle="round")


def _over_text(
    row: UnitRow, record: int, text: Any, items: list[Any], values: np.ndarray, labels: np.ndarray
) -> Any:
    """Draw the symbols of a record, shaded by the unit, and underlined where the hypothesis holds."""
    symbols = [str(one) for one in items]
    symbols, values = symbols[:_SYMBOLS], values[: len(symbols[:_SYMBOLS])]
    gap = 0 if isinstance(text, str) and len(text) == len(items) else 1
    places, y, x = [], 0, 0
    for one in symbols:
        if x and x + len(one) > _WIDTH:
            x, y = 0, y + 1
        places.append((x, y))
        x += len(one) + gap
        if one == "\n":
            x, y = 0, y + 1
    across = max(40, max((x + len(one) for (x, _), one in zip(places, symbols, strict=True)), default=1))
    down = places[-1][1] + 1 if places else 1
    figure = new_figure(0.6 + 0.115 * across, 1.5 + 0.3 * down)
    axis = figure.subplots()
    axis.set(xlim=(-0.5, across + 0.5), ylim=(down, 0))
    axis.axis("off")
    require("matplotlib", extra="draw", why="to draw")
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import Rectangle

    colors = colors_of(values)
    scale = ScalarMappable(Normalize(colors["vmin"], colors["vmax"]), colormaps[colors["cmap"]])
    holds = is_binary(labels) and labels.ndim == 1
    for at, (one, (x, y), value) in enumerate(zip(symbols, places, values, strict=True)):
        color = scale.to_rgba(value) if np.isfinite(value) else (1, 1, 1, 1)
        axis.add_patch(Rectangle((x, y + 0.08), len(one), 0.84, facecolor=color, edgecolor="none"))
        shown = one.replace("\n", "↵").replace("\t", "⇥").replace("$", r"\$")
        axis.text(
            x + len(one) / 2,
            y + 0.48,
            shown,
            ha="center",
            va="center",
            family="monospace",
            fontsize=10,
            color=ink_on(color),
        )
        if holds and at < len(labels) and labels[at] == 1:
            axis.plot([x + 0.08, x + len(one) - 0.08], [y + 0.97, y + 0.97], color="black", linewidth=2.2)
    under = f"; underlined: {short(row.target)}" if holds else ""
    axis.set_title(f"{short(row)} over record {record}{under}", fontsize=10, loc="left")
    figure.colorbar(
        scale, ax=axis, orientation="horizontal", label="behavior", shrink=0.5, aspect=40, pad=0.02
    )
    return figure
