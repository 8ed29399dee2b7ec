"""Draw a table with matplotlib: bars, curves over epochs, a heat map."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...core.errors import InputError, check_folder, require
from .best import center_of, of_units, strengths

if TYPE_CHECKING:
    from ..results.table import Inspection

#: Colors that people with color blindness tell apart (Okabe and Ito 2008, "Color universal design").
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SIGNED, UNSIGNED = "PuOr", "cividis"  # color maps of values around 0, and of others
_MARKERS = "osD^vPX"
_PANELS = 24
_UNITS = 60  # of a heat map
_LONGEST = 30  # characters of a name


def draw(table: Inspection, kind: str, score: str | None, k: int, path: str | Path | None) -> Any:
    """Draw a table; see ``Inspection.draw``."""
    kinds = {"bars": draw_bars, "curves": draw_curves, "heatmap": draw_heatmap}
    if kind not in kinds:
        raise InputError(f"kind={kind!r} is not one of {', '.join(map(repr, kinds))}.")
    if k < 1:
        raise InputError(f"k={k!r} must be 1 or more.")
    return saved(kinds[kind](of_units(table, score), k), path)


def saved(figure: Any, path: str | Path | None) -> Any:
    """Return a figure, after writing it to a file if there is a path."""
    if path is not None:
        check_folder(Path(path))
        figure.savefig(path)
    return figure


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of this size in inches, which belongs to no window."""
    require("matplotlib", extra="draw", why="to draw")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def draw_bars(rows: Inspection, k: int) -> Any:
    """Return bars of the ``k`` strongest units of each hypothesis at the last epoch, with intervals."""
    rows = _last(rows)
    targets, axes, figure = _panels(rows, 0.9 + 0.27 * k)
    for axis, target in zip(axes, targets, strict=True):
        part = rows[rows.target == target]
        part = part.iloc[np.argsort(-strengths(part), kind="stable")[:k]]
        places = np.arange(len(part))
        value = part.value.to_numpy(dtype=float)
        axis.barh(places, value, color=COLORS[0], height=0.7)
        ends = np.abs(np.stack([value - part.low, part.high - value]).astype(float))
        axis.errorbar(
            value,
            places,
            xerr=ends,
            fmt="none",
            ecolor="black",
            elinewidth=1.2,
            capsize=2.5,
            label="95 % interval",
        )
        center = center_of(rows, rows.score.iloc[0])
        level = part.baseline if center is None else _on_side(np.sign(value - center), part.baseline, center)
        axis.vlines(
            level,
            places - 0.42,
            places + 0.42,
            color=COLORS[1],
            linewidth=2.2,
            label="baseline",
        )
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_yticks(places, _names(part, rows))
        axis.invert_yaxis()
        axis.set_title(short(target))
        axis.set_xlabel(_measure(rows))
        axis.grid(axis="x", color="#dddddd")
        axis.set_axisbelow(True)
    _legend(figure, axes[0])
    return figure


def draw_curves(rows: Inspection, k: int) -> Any:
    """Return curves of the ``k`` units that are strongest for each hypothesis at the last epoch.

    Raises:
        InputError: If there are fewer than two epochs.
    """
    epochs = np.unique(rows.epoch.dropna())
    if len(epochs) < 2:
        raise InputError(
            f"Curves need two epochs or more, and the table has {len(epochs)}. Pass a list of checkpoints, "
            "or a dict by epoch, to inspect; or draw kind='bars'."
        )
    targets, axes, figure = _panels(rows, 3.2)
    for axis, target in zip(axes, targets, strict=True):
        part = rows[rows.target == target]
        last = _last(part)
        last = last.iloc[np.argsort(-strengths(last), kind="stable")[: min(k, len(COLORS) - 1)]]
        shown = []
        for number, (address, unit, name) in enumerate(
            zip(last.address, last.unit, _names(last, rows), strict=True)
        ):
            curve = part[(part.address == address) & (part.unit == unit)].sort_values("epoch")
            color = COLORS[number]
            axis.plot(
                curve.epoch,
                curve.value,
                color=color,
                marker=_MARKERS[number],
                markersize=5,
                label=name,
                linewidth=1.8,
            )
            axis.fill_between(
                curve.epoch,
                curve.low.astype(float),
                curve.high.astype(float),
                color=color,
                alpha=0.15,
                linewidth=0,
            )
            shown.append(curve)
        baseline = pd.concat(shown).groupby("epoch").baseline.max().dropna()
        center = center_of(rows, rows.score.iloc[0])
        signs = np.ones(1) if center is None else np.sign(last.value.to_numpy(dtype=float) - center)
        for side in np.unique(signs[signs != 0]) if len(baseline) else ():
            axis.plot(
                baseline.index,
                baseline if center is None else _on_side(side, baseline, center),
                color=COLORS[-1],
                linestyle="--",
                linewidth=1.4,
                label="largest baseline" if side == max(signs) else "_",
            )
        axis.set_title(short(target))
        axis.set_xlabel("epoch")
        axis.set_ylabel(_measure(rows))
        axis.grid(color="#dddddd")
        axis.set_axisbelow(True)
        axis.legend(fontsize=8, framealpha=0.9)
    return figure


def _on_side(side: Any, baseline: Any, center: float) -> Any:
    """Return a baseline on the side of the center that a value is on."""
    return center + side * abs(baseline - center)


def draw_heatmap(rows: Inspection, k: int) -> Any:
    """Return a heat map units × hypotheses at the last epoch, of at most 60 units: the strongest.

    ``k`` has no effect.
    """
    rows = _last(rows)
    units = list(zip(rows.model, rows.address, rows.unit, strict=True))
    names = dict(zip(units, _names(rows, rows), strict=True))
    targets, places = list(rows.target.unique()), {unit: number for number, unit in enumerate(names)}
    values, strength = np.full((len(names), len(targets)), np.nan), np.full(len(names), -np.inf)
    for unit, target, value, strong in zip(units, rows.target, rows.value, strengths(rows), strict=True):
        values[places[unit], targets.index(target)] = value
        strength[places[unit]] = max(strength[places[unit]], strong)
    order, count = list(names.values()), len(names)
    if count > _UNITS:
        kept = np.sort(np.argsort(-strength, kind="stable")[:_UNITS])
        values, order = values[kept], [order[number] for number in kept]
    figure = new_figure(2.6 + 0.55 * len(targets), 1.6 + 0.22 * len(order))
    axis = figure.subplots()
    image = axis.imshow(values, aspect="auto", interpolation="nearest", **colors_of(values))
    axis.set_yticks(range(len(order)), order, fontsize=8)
    axis.set_xticks(
        range(len(targets)), [short(one) for one in targets], rotation=40, ha="right", rotation_mode="anchor"
    )
    axis.set_ylabel("unit" if count <= _UNITS else f"unit (the strongest {_UNITS} of {count})")
    axis.set_xlabel("hypothesis")
    if values.size <= 200:
        for (y, x), value in np.ndenumerate(values):
            if np.isfinite(value):
                color = ink_on(image.cmap(image.norm(value)))
                axis.text(x, y, f"{value:.2g}", ha="center", va="center", fontsize=7, color=color)
    figure.colorbar(image, ax=axis, label=_measure(rows))
    return figure


def colors_of(values: np.ndarray) -> dict[str, Any]:
    """Return the color map and its limits: symmetric around 0 if there are values below 0.

    Args:
        values: The values that are drawn, with NaN.
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return {"cmap": UNSIGNED, "vmin": 0.0, "vmax": 1.0}
    if known.min() < 0:
        end = float(np.abs(known).max())
        return {"cmap": SIGNED, "vmin": -end, "vmax": end}
    return {"cmap": UNSIGNED, "vmin": 0.0, "vmax": float(known.max()) or 1.0}


def ink_on(color: Any) -> str:
    """Return black or white, whichever is legible on a color (red, green, blue, …) from 0 to 1.

    Example:
        >>> ink_on((1, 1, 0.8)), ink_on((0, 0, 0.3))
        ('black', 'white')
    """
    red, green, blue = color[:3]
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def short(name: Any) -> str:
    """Return a name of at most 30 characters, without the mathematics that matplotlib reads into ``$``."""
    text = str(name)
    return (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…").replace("$", r"\$")


def _last(rows: Inspection) -> Inspection:
    """Return the rows of the last epoch, or all if there are no epochs."""
    return rows[rows.epoch == rows.epoch.max()] if rows.epoch.notna().any() else rows


def _names(rows: Inspection, whole: Inspection) -> list[str]:
    """Return the names of units, with their model if the whole has several; a long one loses its start."""
    several = whole.epoch.isna().all() and whole.model.nunique() > 1
    names = [
        f"{model}: {address}[{unit}]" if several else f"{address or 'model'}[{unit}]"
        for model, address, unit in zip(rows.model, rows.address, rows.unit, strict=True)
    ]
    names = [name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}" for name in names]
    return [name.replace("$", r"\$") for name in names]


def _measure(rows: Inspection) -> str:
    epochs = rows.epoch.dropna().unique()
    at = f" at epoch {epochs[0]:g}" if len(epochs) == 1 else ""
    return f"{rows.score.iloc[0]}{at}"


def _panels(rows: Inspection, height: float) -> tuple[list[str], list[Any], Any]:
    """Return the hypotheses, a pair of axes for each, and the figure."""
    targets = list(rows.target.unique())
    if len(targets) > _PANELS:
        raise InputError(
            f"The table has {len(targets)} hypotheses, and a picture {_PANELS} panels at most. Select some: "
            "table[table.target.isin([…])].draw(), or draw kind='heatmap'."
        )
    across = min(3, len(targets))
    down = -(-len(targets) // across)
    figure = new_figure(4.2 * across + 0.6, height * down + 0.4)
    axes = np.atleast_1d(figure.subplots(down, across, squeeze=False)).reshape(-1).tolist()
    for axis in axes[len(targets) :]:
        axis.remove()
    return targets, axes[: len(targets)], figure


def _legend(figure: Any, axis: Any) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(labels), fontsize=8, frameon=False)
