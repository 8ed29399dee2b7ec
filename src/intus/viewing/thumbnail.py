"""Draw small pictures of a tensor's values, inline in HTML: a histogram in SVG and a heat map in PNG."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.png import data_url

_WIDTH, _HEIGHT = 240, 56


class ValueSummary(NamedTuple):
    """Summary statistics of a tensor's values.

    Attributes:
        size: The number of values.
        nan: The number of NaN.
        infinite: The number of infinite values.
        zero: The number of zeros.
        low: The minimum of the finite values; None if there are none.
        mean: The mean of the finite values; None if there are none.
        high: The maximum of the finite values; None if there are none.
        std: The standard deviation of the finite values; None if there are none.
        counts: A histogram of the finite values with bins of equal width from ``low`` to ``high``.
        image: A two-dimensional part of the tensor, (rows, columns), or None.
    """

    size: int
    nan: int
    infinite: int
    zero: int
    low: float | None
    mean: float | None
    high: float | None
    std: float | None
    counts: tuple[int, ...]
    image: np.ndarray | None


def sentence(values: ValueSummary) -> str:
    """Return the statistics as one line.

    >>> sentence(ValueSummary(4, 1, 0, 0, -1.0, 0.5, 2.0, 1.25, (1, 2), None))
    'min -1, mean 0.5, max 2, std 1.25, 1 NaN'
    """
    figures = (("min", values.low), ("mean", values.mean), ("max", values.high), ("std", values.std))
    parts = [f"{name} {value:.4g}" for name, value in figures if value is not None]
    if values.zero:
        parts.append(f"{values.zero / values.size:.0%} zeros" if values.zero < values.size else "all zeros")
    parts += [f"{values.nan:,} NaN"] if values.nan else []
    parts += [f"{values.infinite:,} infinite"] if values.infinite else []
    return ", ".join(parts) or "no values"


def histogram(values: ValueSummary) -> str:
    """Return the histogram as an SVG element, or ``""`` without finite values.

    Its labels have the color of the surrounding text.
    """
    if not values.counts or values.low is None or values.high is None:
        return ""
    top, step = max(values.counts), _WIDTH / len(values.counts)
    bars = "".join(
        f'<rect x="{n * step:.1f}" y="{_HEIGHT - (height := _HEIGHT * count / top):.1f}" '
        f'width="{max(step - 1, 1):.1f}" height="{height:.1f}"/>'
        for n, count in enumerate(values.counts)
        if count
    )
    zero = ""
    if values.low < 0 < values.high:
        at = _WIDTH * -values.low / (values.high - values.low)
        zero = (
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{_HEIGHT}" stroke="currentColor" opacity=".35"/>'
        )
    ends = (
        f'<text x="0" y="{_HEIGHT + 13}">{values.low:.3g}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 13}" text-anchor="end">{values.high:.3g}</text>'
    )
    label = f"Histogram, {sentence(values)}"
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT + 16}" role="img" aria-label="{label}">'
        f'<g fill="#2f7fd0">{bars}</g>{zero}<g fill="currentColor" font-size="11">{ends}</g></svg>'
    )


def heat_map(image: np.ndarray, *, width: int = 240) -> str:
    """Return an array (rows, columns) as an ``<img>``: negative blue, zero white, positive red, NaN gray."""
    rows, columns = image.shape
    scale = max(1, min(width // columns, 160 // rows))
    alt = f"Values as a heat map, {rows} by {columns}"
    return (
        f'<img alt="{alt}" width="{columns * scale}" height="{rows * scale}" '
        f'style="image-rendering:pixelated" src="{data_url(heat_colors(image))}">'
    )


def heat_colors(image: np.ndarray) -> np.ndarray:
    """Return the colors of an array, (rows, columns, 3), on a scale symmetric around 0."""
    finite = np.isfinite(image)
    largest = float(np.abs(image[finite]).max(initial=0)) or 1.0
    tone = np.clip(np.where(finite, image, 0) / largest, -1, 1)[..., None]
    white, red, blue = (np.array(c, dtype=float) for c in ((247, 247, 247), (178, 24, 43), (33, 102, 172)))
    pixels = white + np.abs(tone) * (np.where(tone > 0, red, blue) - white)
    return np.where(finite[..., None], pixels, 128).astype(np.uint8)
