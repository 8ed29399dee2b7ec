"""Summarize saved activations: statistics, a histogram and a picture of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...viewing.thumbnail import ValueSummary
from ..capture.saving.stored import Value
from .arrays import blocks, float64, is_complex, is_integer, numbers, unrecorded

if TYPE_CHECKING:
    from torch import Tensor

BINS = 24
_MOST_HISTOGRAMS = 5000  # of more values the page gets statistics only, so that it stays small
_COLUMNS = ("row", "mean", "std", "low", "high", "nan", "inf", "zero", "histogram", "picture")
_MOST_PICTURES = 2000
_PIXELS = 64


def summary_of(value: Value, bins: int = 40, *, image: bool = True) -> ValueSummary | None:
    """Return the summary of a value without any active trace recording it; see ``compute_summary``.

    Returns:
        The summary; None if the value has no plain numbers (text, fake, nested, a class that refuses).
    """
    return unrecorded(partial(compute_summary, bins=bins, image=image), value)


def compute_summary(value: Value, bins: int = 40, *, image: bool = True) -> ValueSummary | None:
    """Compute statistics of the finite elements, their histogram, and a picture of the first item.

    Complex numbers count by magnitude; the standard deviation is that of the population (divisor n).

    Args:
        value: The tensor or array; of a ``DTensor`` the part of this process is summarized.
        bins: The number of bins of the histogram.
        image: Whether to make the picture, of at most 64 by 64 elements.

    Returns:
        The summary; None for a value that ``arrays.numbers`` refuses.

    Example:
        >>> compute_summary(np.array([0.0, 1.0, float("nan")]))[:7]
        (3, 1, 0, 1, 0.0, 0.5, 1.0)
    """
    plain = _plain(value)
    if plain is None:
        return None
    plain = plain if isinstance(plain, np.ndarray) else plain.cpu()
    size, nan, zero, moments, low, high = math.prod(plain.shape), 0, 0, _Moments(), math.inf, -math.inf
    with np.errstate(over="ignore", invalid="ignore"):  # sums of nearly infinite numbers overflow
        for (elements,) in blocks(plain):
            finite = _finite(elements)
            nan += int(np.isnan(elements).sum()) if finite is not elements else 0
            if finite.size:
                zero += finite.size - int(np.count_nonzero(finite))
                low, high = min(low, float(finite.min())), max(high, float(finite.max()))
                moments.add(finite)
    counts = (size, nan, size - moments.size - nan, zero)
    if not moments.size:
        return ValueSummary(*counts, None, None, None, None, (), None)
    bars = _histogram(plain, bins, low, high) if low < high else (moments.size,)
    return ValueSummary(*counts, low, moments.mean, high, moments.std, bars, _image(plain) if image else None)


def _plain(value: Value) -> Any:
    """Return the real numbers of a value, the magnitudes of complex ones; None if it has no numbers."""
    plain = numbers(value)
    return abs(plain) if plain is not None and is_complex(plain) else plain


class _Moments:
    """Mean and population standard deviation, updated in parts (Chan, Golub and LeVeque, 1983)."""

    def __init__(self) -> None:
        self.size, self.mean, self._squares = 0, 0.0, 0.0

    def add(self, part: np.ndarray) -> None:
        mean = float(part.mean())
        rest, whole = part - mean, self.size + part.size
        self._squares += float(rest @ rest) + (mean - self.mean) ** 2 * self.size * part.size / whole
        self.mean += (mean - self.mean) * part.size / whole
        self.size = whole

    @property
    def std(self) -> float:
        return math.sqrt(self._squares / self.size)


def _finite(numbers: np.ndarray) -> np.ndarray:
    """Return the finite elements; the same array if all are finite, which is nearly always so."""
    kept = np.isfinite(numbers)
    return numbers if kept.all() else numbers[kept]


def _histogram(value: Value, bins: int, low: float, high: float) -> tuple[int, ...]:
    """Count the finite elements in each of ``bins`` equal parts of their range."""
    counts, half = np.zeros(bins, np.int64), (high / 2 - low / 2) or 1.0  # halves, as high - low may overflow
    for (elements,) in blocks(value):
        indices = ((_finite(elements) / 2 - low / 2) / half * bins).astype(np.int64)
        counts += np.bincount(np.minimum(indices, bins - 1), minlength=bins)
    return tuple(counts.tolist())


def _image(value: Any) -> np.ndarray | None:
    """Return the first item as a matrix, the channels of an image side by side, subsampled."""
    if value.ndim < 2 or min(value.shape[-2:]) < 2:
        return None
    while value.ndim > 3:
        value = value[0]
    if value.ndim == 2:
        value = value[None]
    value = value[: max(1, min(8, _PIXELS // value.shape[-1]))]
    if not len(value):
        return None
    rows, columns = (max(1, -(-n // _PIXELS)) for n in (value.shape[1], len(value) * value.shape[2]))
    return np.concatenate(list(float64(value[:, ::rows, ::columns])), -1)


def summarize(values: Mapping[int, Value]) -> dict[str, list[Any]]:
    """Return the summaries of saved values as columns; see ``viewing.scene``.

    ``zero`` is the fraction of the finite elements that are 0. Values without plain numbers are left out.

    Args:
        values: The values by row of the graph.

    Returns:
        The columns by name, in the order of the rows.

    Example:
        >>> summarize({3: np.array([0.0, 1.0, float("nan")])})["mean"]
        [0.5]
    """
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for row in sorted(values):
        summary = summary_of(values[row], BINS, image=False)
        if summary is not None and summary.size:
            room = len(columns["row"]) < _MOST_HISTOGRAMS
            bars = summary.counts if room and len(summary.counts) > 1 else ()
            figures = (_rounded(n) for n in (summary.mean, summary.std, summary.low, summary.high))
            finite = summary.size - summary.nan - summary.infinite
            zero = _rounded(summary.zero / finite) if finite else None
            picture = unrecorded(thumbnail, values[row]) if len(values) <= _MOST_PICTURES else None
            entries = (row, *figures, summary.nan, summary.infinite, zero, list(bars), picture)
            for name, value in zip(_COLUMNS, entries, strict=True):
                columns[name].append(value)
    return columns


_MOST_ELEMENTS = 2**29  # of parameters that are summarized, which take about a second


def summarize_params(params: Iterable[Tensor | None]) -> dict[str, list[Any]]:
    """Return figures of parameters as columns; see ``viewing.scene``.

    Args:
        params: The parameters in the order of the graph, None for one whose value is not known any more. Once
            half a billion elements are summarized, further parameters are left out.

    Returns:
        ``param`` (the position), ``mean``, ``std``, ``low``, ``high`` of the finite elements, ``nan`` and
        ``inf`` (counts), with one entry for each parameter that has plain numbers.

    Example:
        >>> import torch
        >>> figures = summarize_params([torch.tensor([1.0, float("nan")]), None, torch.tensor([2.0, 4.0])])
        >>> figures["param"], figures["nan"], figures["high"], figures["mean"]
        ([0, 2], [1, 0], [1.0, 4.0], [1.0, 3.0])
    """
    columns: dict[str, list[Any]] = {name: [] for name in _PARAM_COLUMNS}
    room = _MOST_ELEMENTS
    for number, value in enumerate(params):
        if value is None or value.is_meta or not value.numel() or value.numel() > room:
            continue
        room -= value.numel()
        figures = unrecorded(_finite_figures, value)
        counts = (0, 0)
        if figures is None:
            found = summary_of(value, image=False)
            if found is None:
                continue
            figures, counts = (found.mean, found.std, found.low, found.high), (found.nan, found.infinite)
        for name, entry in zip(_PARAM_COLUMNS, (number, *map(_rounded, figures), *counts), strict=True):
            columns[name].append(entry)
    return columns


_PARAM_COLUMNS = ("param", "mean", "std", "low", "high", "nan", "inf")


def _finite_figures(value: Tensor) -> tuple[float | None, ...] | None:
    """Return mean, standard deviation, minimum and maximum; None if any element is not finite or no float."""
    import torch

    plain = numbers(value) if value.is_floating_point() else None
    if plain is None:
        return None
    low, high = (float(end) for end in plain.aminmax())  # NaN if any element is
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    var, mean = torch.var_mean(plain.float(), correction=0)
    return float(mean), math.sqrt(float(var)), low, high


def _rounded(value: float | None) -> float | None:
    """Round to six digits, more than the page shows; None for infinity, which JSON lacks."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


#: The character of a pixel: tones from -15 to 15; then ``NO_NUMBER`` (NaN, infinity) and ``NOTHING`` (a gap).
TONES = "0123456789abcdefghijklmnopqrstu"
NO_NUMBER, NOTHING = "v", "-"
_LEVELS = len(TONES) // 2
_SIDE = 32  # largest height and width of a heat map, in pixels
_TILES = 2  # channels in each direction of a mosaic
_IMAGE = 48  # largest height and width of an image, in pixels
_STRIP = 128  # largest width of a strip, in pixels
_NUMBERS = 16  # largest number of integers shown as text
_QUANTILE = 0.99  # of the magnitudes; the colors end there, so that a few large values do not hide the rest


def thumbnail(value: Value) -> dict[str, Any] | None:
    """Return a picture of the first item of a value.

    A matrix becomes a heat map, three channels an image (red, green, blue), other channels a mosaic of the
    first four, a row a strip. Large items are subsampled. Of a row of integers the first are given as text.

    Args:
        value: The tensor or array.

    Returns:
        ``of``: the part that is shown, as a numpy index; ``columns``: the width; ``pixels``: one character
        per pixel, three in an image; ``most``: the magnitude at which the colors end, None in an image;
        ``numbers``: the text, for integers. None for a scalar, and for a value without plain numbers.

    Example:
        >>> thumbnail(np.array([[0.0, 1.0], [-1.0, float("nan")]]))
        {'of': '', 'columns': 2, 'pixels': 'fu0v', 'most': 1.0}
    """
    item = numbers(value)
    if item is None or item.ndim < 1:
        return None
    index: list[str] = []
    while item.ndim > 3 and len(item):
        item = item[0]
        index.append("0")
    if math.prod(item.shape) < 2:
        return None
    item = abs(item) if is_complex(item) else item
    if min(item.shape[-2:], default=0) < 2 or item.ndim < 2:
        return _row(index, item)
    if item.ndim == 3 and len(item) == 3 and min(item.shape[1:]) >= 8:
        return _rgb(index, _thin(item, _IMAGE))
    if item.ndim == 3 and len(item) == 1:
        item = item[0]
        index.append("0")
    if item.ndim == 2:
        return _map(index, _thin(item, _SIDE))
    tiles = item[: _TILES**2]
    if len(tiles) < len(item):
        index.append(f":{len(tiles)}")
    return _map(index, _mosaic(_thin(tiles, _SIDE // _TILES)))


def _row(index: list[str], value: Any) -> dict[str, Any] | None:
    """Return the strip of the first row, or of the only column; integers as text."""
    while value.ndim > 1:
        column = value.ndim == 2 and value.shape[1] == 1
        value = value[:, 0] if column else value[0]
        index += [":", "0"] if column else ["0"]
    if len(value) < 2:
        return None
    if is_integer(value):
        more = ", …" if len(value) > _NUMBERS else ""
        text = ", ".join(map(str, value[:_NUMBERS].tolist())) + more
        return {"of": _part(index), "numbers": text, "columns": 0, "pixels": "", "most": None}
    return _map(index, _thin(value[None], _STRIP))


def _thin(value: Any, most: int) -> np.ndarray:
    """Subsample the last two axes to at most ``most`` elements each, as float64."""
    rows, columns = (-(-n // most) for n in value.shape[-2:])
    thinned = float64(value[..., ::rows, ::columns])
    return np.where(np.isfinite(thinned), thinned, math.nan)  # infinities are drawn as NaN


def _mosaic(tiles: np.ndarray) -> np.ndarray:
    """Arrange tiles in two columns, separated by lines of infinity, which are drawn as gaps."""
    count, rows, columns = tiles.shape
    down = -(-count // _TILES)
    whole = np.full((down * (rows + 1) - 1, _TILES * (columns + 1) - 1), math.inf)
    for number, tile in enumerate(tiles):
        top, left = (number // _TILES) * (rows + 1), (number % _TILES) * (columns + 1)
        whole[top : top + rows, left : left + columns] = tile
    return whole


def _map(index: list[str], flat: np.ndarray) -> dict[str, Any]:
    """Return the heat map of a matrix, scaled by the quantile of its magnitudes."""
    sizes = abs(flat[np.isfinite(flat)])
    most = float(np.quantile(sizes, _QUANTILE)) if sizes.size else 0.0
    most = most or (float(sizes.max()) if sizes.size else 0.0)
    shares = np.where(np.isfinite(flat), flat, 0.0) / (most or 1.0)
    tones = (shares.clip(-1, 1) * _LEVELS).round().astype(np.int64) + _LEVELS
    tones[np.isnan(flat)] = len(TONES)
    tones[np.isinf(flat)] = len(TONES) + 1
    alphabet = TONES + NO_NUMBER + NOTHING
    return _entry(index, flat, [alphabet[tone] for tone in tones.reshape(-1)], float(f"{most:.3g}"))


def _rgb(index: list[str], channels: np.ndarray) -> dict[str, Any]:
    """Return the image of three channels, scaled from the least to the greatest finite element."""
    known = channels[np.isfinite(channels)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    shares = (np.where(np.isfinite(channels), channels, low) - low) / ((high - low) or 1.0)
    tones = (shares * (len(TONES) - 1)).round().astype(np.int64).transpose(1, 2, 0)
    return _entry(index, channels, [TONES[tone] for tone in tones.reshape(-1)], None)


def _entry(index: list[str], drawn: np.ndarray, pixels: list[str], most: float | None) -> dict[str, Any]:
    return {"of": _part(index), "columns": drawn.shape[-1], "pixels": "".join(pixels), "most": most}


def _part(index: list[str]) -> str:
    return f"[{', '.join(index)}]" if index else ""
