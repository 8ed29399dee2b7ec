"""The pictures of the examples: bars, curves over epochs, a heat map, and a unit over an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from ...core.errors import require


def figure(
    columns: int,
    width: float = 10,
    height: float = 3.2,
    widths: Sequence[float] | None = None,
    rows: int = 1,
) -> Any:
    """Return a figure and its panels, row by row, without a window."""
    require("matplotlib", extra="draw", why="to draw the pictures of an example")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    out = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(out)
    return out, np.ravel(out.subplots(rows, columns, width_ratios=widths))


def save(drawn: Any, folder: Path, name: str) -> None:
    """Save a figure as ``name.png`` in the folder and print where it is."""
    file = folder / f"{name}.png"
    drawn.savefig(file, dpi=90)
    print(f"picture: {file}")


def bars(panel: Any, table: pandas.DataFrame, title: str, beside: pandas.DataFrame | None = None) -> None:
    """Draw the value of each unit with its interval and baseline; ``beside`` is another table to compare."""
    positions = np.arange(len(table))
    spread = [(table.value - table.low).fillna(0), (table.high - table.value).fillna(0)]
    panel.bar(positions, table.value, yerr=spread, color="#3b6fb6", ecolor="#777777", label="trained")
    if beside is not None:
        panel.plot(positions, beside.value, "_", color="#d1495b", markersize=9, label="untrained")
    panel.plot(positions, table.baseline, ":", color="black", linewidth=1, label="baseline")
    panel.set(title=title, xlabel="unit", xticks=positions[:: max(len(positions) // 8, 1)])
    panel.legend(fontsize=8)


def curves(panel: Any, table: pandas.DataFrame, title: str, by: str = "unit") -> None:
    """Draw the value over epochs with its interval, one curve for each of the column ``by``."""
    for name, rows in table.groupby(by, sort=False):
        line = panel.plot(rows.epoch, rows.value, marker=".", label=str(name))[0]
        panel.fill_between(rows.epoch, rows.low, rows.high, color=line.get_color(), alpha=0.15, linewidth=0)
    panel.plot(
        *zip(*table.groupby("epoch").baseline.max().items(), strict=True), ":", color="black", linewidth=1
    )
    panel.set(title=title, xlabel="epoch")
    panel.legend(fontsize=8, ncols=2)


def heat(drawn: Any, panel: Any, values: pandas.DataFrame, title: str) -> None:
    """Draw a table of values as a heat map; rows down, columns across."""
    shown = panel.imshow(values.to_numpy(float), aspect="auto", cmap="viridis")
    panel.set(title=title, xticks=range(values.shape[1]), yticks=range(values.shape[0]))
    panel.set_xticklabels([str(name) for name in values.columns], rotation=60, fontsize=7)
    panel.set_yticklabels([str(name) for name in values.index], fontsize=8)
    drawn.colorbar(shown, ax=panel)


def over(
    panel: Any, image: np.ndarray, unit: np.ndarray, threshold: float, title: str, frame: float = 9
) -> None:
    """Draw an image (height, width, 3), dark where a unit is low; frame the pixels where it is active.

    It is active above the threshold, as in ``iou``.
    """
    active = unit > threshold
    share = (unit / threshold).clip(0, 1) if threshold > 0 else active.astype(float)
    panel.imshow((image * (0.3 + 0.7 * share[..., None])).clip(0, 1))
    for row, column in zip(*np.nonzero(active), strict=True):
        panel.plot(column, row, "s", markersize=frame, markerfacecolor="none", markeredgecolor="white")
    panel.set(title=title, xticks=[], yticks=[])


def text(table: pandas.DataFrame, decimals: int = 3) -> str:
    """Return a table as text, with numbers of as many decimals; small q-values as powers of ten."""
    formats: Mapping[str, Any] = {name: _small for name in ("p", "q") if name in table}
    return table.to_string(index=False, formatters=dict(formats), float_format=lambda x: f"{x:.{decimals}f}")


def _small(value: float) -> str:
    return f"{value:.3f}" if not value < 0.001 else f"{value:.0e}"
