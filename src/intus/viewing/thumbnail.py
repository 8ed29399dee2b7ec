"""A tensor's values as a small picture: a histogram in SVG and a heat map in PNG, both inline and offline."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import NamedTuple

import numpy as np

_WIDTH, _HEIGHT = 240, 56


class ValueSummary(NamedTuple):
    """What is shown of a tensor's values.

    ``low``, ``mean``, ``high`` and ``std`` are of the finite ones, None where there are none; ``counts`` how
    many of them fall in equal bins from ``low`` to ``high``; ``image`` is a flat part of it, or None.
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


def sentence(look: ValueSummary) -> str:
    """The figures in a line.

    >>> sentence(ValueSummary(4, 1, 0, 0, -1.0, 0.5, 2.0, 1.25, (1, 2), None))
    'min -1, mean 0.5, max 2, std 1.25, 1 NaN'
    """
    figures = (("min", look.low), ("mean", look.mean), ("max", look.high), ("std", look.std))
    parts = [f"{name} {value:.4g}" for name, value in figures if value is not None]
    if look.zero:
        parts.append(f"{look.zero / look.size:.0%} zeros" if look.zero < look.size else "all zeros")
    parts += [f"{look.nan:,} NaN"] if look.nan else []
    parts += [f"{look.infinite:,} infinite"] if look.infinite else []
    return ", ".join(parts) or "no values"


def histogram(look: ValueSummary) -> str:
    """The counts as bars in SVG, of the colour of the text around."""
    if not look.counts or look.low is None or look.high is None:
        return ""
    top, step = max(look.counts), _WIDTH / len(look.counts)
    bars = "".join(
        f'<rect x="{n * step:.1f}" y="{_HEIGHT - (height := _HEIGHT * count / top):.1f}" '
        f'width="{max(step - 1, 1):.1f}" height="{height:.1f}"/>'
        for n, count in enumerate(look.counts)
        if count
    )
    zero = ""
    if look.low < 0 < look.high:
        at = _WIDTH * -look.low / (look.high - look.low)
        zero = (
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{_HEIGHT}" stroke="currentColor" opacity=".35"/>'
        )
    ends = (
        f'<text x="0" y="{_HEIGHT + 13}">{look.low:.3g}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 13}" text-anchor="end">{look.high:.3g}</text>'
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT + 16}" role="img" aria-label="Histogram, {sentence(look)}">'
        f'<g fill="#2f7fd0">{bars}</g>{zero}<g fill="currentColor" font-size="11">{ends}</g></svg>'
    )


def heat_map(image: np.ndarray, *, width: int = 240) -> str:
    """A two-dimensional array as an ``<img>``: blue below zero, white at it, red above; NaN is grey."""
    rows, columns = image.shape
    scale = max(1, min(width // columns, 160 // rows))
    data = base64.b64encode(png(image)).decode("ascii")
    alt = f"Values as a heat map, {rows} by {columns}"
    return (
        f'<img alt="{alt}" width="{columns * scale}" height="{rows * scale}" '
        f'style="image-rendering:pixelated" src="data:image/png;base64,{data}">'
    )


def png(image: np.ndarray) -> bytes:
    """A PNG with one pixel a number, its colours symmetric around zero.

    >>> png(np.array([[-1.0, 0.0, 1.0]]))[:4]
    b'\\x89PNG'
    """
    finite = np.isfinite(image)
    most = float(np.abs(image[finite]).max(initial=0)) or 1.0
    tone = np.clip(np.where(finite, image, 0) / most, -1, 1)[..., None]
    white, red, blue = (np.array(c, dtype=float) for c in ((247, 247, 247), (178, 24, 43), (33, 102, 172)))
    pixels = white + np.abs(tone) * (np.where(tone > 0, red, blue) - white)
    pixels = np.where(finite[..., None], pixels, 128).astype(np.uint8)
    rows, columns = image.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    body = _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
