"""Draw a unit over one record: over an image, or over a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import InputError, require
from ..plan import Plan
from .pictures import colors_of, ink_on, new_figure, short
from .symbols import Symbols, symbols_of
from .unit_reader import UnitReader
from .unit_row import UnitRow

_WIDTH = 80  # characters of a line
_SYMBOLS = 2000  # symbols that are drawn at most
_CHANNELS = 3  # of a color image


def draw_unit(plan: Plan, row: UnitRow, record: int) -> Any:
    """Return a figure of a unit over a record; see ``Inspection.draw_unit``."""
    if not 0 <= record < len(plan.records):
        raise InputError(f"record={record!r} is not a number from 0 to {len(plan.records) - 1}.")
    numbers = np.array([record])
    reader = UnitReader(plan, row)
    block = reader.plan.block(numbers)
    with reader.reading() as read:
        array = read(block)
    shown, labels = plan.records.block(numbers)[0], block.labels[row.target][0]
    chosen = array[:, [row.unit]]
    if isinstance(shown, np.ndarray) and shown.ndim >= 2:
        size = Symbols(shown, labels.shape if labels.ndim == 2 else (), row.target).size(shown)
        if len(size) == 2 and array.ndim == 4:
            ((_, values),) = reader.on_grid(chosen, size, block)
            return _over_image(row, record, shown, size, values[0, 0], labels)
    grid = reader.filled(block.labels[row.target], array, block).shape[1:]
    count = labels.shape[0] if labels.ndim else len(shown) if hasattr(shown, "__len__") else 0
    symbols = symbols_of(shown, count) if array.ndim == 3 and labels.ndim < 2 else None
    if symbols is None or (not grid and (block.symbols is not None or array.shape[2] < count)):
        raise InputError(
            f"{row.address!r} gives records of shape {array.shape[2:]} per unit, which cannot be drawn over "
            f"a {type(shown).__name__}. A layer with a position for each pixel or symbol can."
        )
    values = np.concatenate([one for _, one in reader.on_grid(chosen, grid or array.shape[2:], block)])
    return _over_text(row, record, shown, symbols, values[0, 0, :count], labels)


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
    left.imshow(_picture(image, size), cmap="gray", interpolation="nearest")
    left.set_title(f"record {record}")
    drawn = right.imshow(values, interpolation="nearest", **colors_of(values))
    right.set_title(f"{short(row)}")
    figure.colorbar(drawn, ax=right, label="behavior", shrink=0.8)
    if _is_binary(labels) and labels.ndim == 2:
        lines = outline(_nearest(labels == 1, size))
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


def _picture(image: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Return an image with its colors last and from 0 to 1, or in gray."""
    if image.shape[:2] != size or image.ndim == 2:
        image = np.moveaxis(image.reshape(-1, *size), 0, -1)
    image = image.astype(float)
    image = image if image.shape[-1] == _CHANNELS else image.mean(axis=-1)
    low, high = float(np.nanmin(image)), float(np.nanmax(image))
    return np.asarray((image - low) / ((high - low) or 1))


def _nearest(mask: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    rows, columns = (np.arange(new) * old // new for old, new in zip(mask.shape, size, strict=True))
    return np.asarray(mask[rows][:, columns])


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


def _is_binary(labels: np.ndarray) -> bool:
    return labels.dtype.kind in "fiub" and bool(np.isin(labels[labels == labels], (0, 1)).all())


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
    holds = _is_binary(labels) and labels.ndim == 1
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
