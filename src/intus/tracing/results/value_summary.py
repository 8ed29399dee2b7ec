"""What saved activations look like: a few figures, a histogram and a picture each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...viewing.thumbnail import Look
from .blocks import blocks
from .thumbnails import thumbnail

T = TypeVar("T")
BINS = 24
_MOST_HISTOGRAMS = 5000  # beyond so many values, figures alone: the page must stay small
_COLUMNS = ("row", "mean", "std", "low", "high", "nan", "inf", "zero", "histogram", "picture")
_MOST_PICTURES = 2000
_PIXELS = 64


def look_of(value: Tensor, bins: int = 40, *, image: bool = True) -> Look | None:
    """What is shown of a value, out of the sight of any trace; None where it has no plain numbers."""
    return _unseen(lambda: look_at(value, bins, image=image))


def _unseen(look: Callable[[], T]) -> T | None:
    with torch._C.DisableTorchFunction(), torch.no_grad():
        try:
            return look()
        except (RuntimeError, NotImplementedError, TypeError):  # fake, nested, or of a class that refuses
            return None


def look_at(value: Tensor, bins: int = 40, *, image: bool = True) -> Look | None:
    """Figures of the finite numbers, their histogram, and at most 64 by 64 of the first item as a picture.

    None for what has no plain numbers; complex ones count by magnitude, the deviation is the population's.

    >>> look_at(torch.tensor([0.0, 1.0, float("nan")]))[:7]
    (3, 1, 0, 1, 0.0, 0.5, 1.0)
    """
    if value.is_meta or value.is_quantized or value.layout != torch.strided:
        return None
    plain = (value.abs() if value.is_complex() else value).detach().cpu()
    nan, zero, moments, low, high = 0, 0, _Moments(), math.inf, -math.inf
    with np.errstate(over="ignore", invalid="ignore"):  # sums of what is nearly infinite
        for (numbers,) in blocks(plain):
            finite = _finite(numbers)
            nan += int(np.isnan(numbers).sum()) if finite is not numbers else 0
            if finite.size:
                zero += finite.size - int(np.count_nonzero(finite))
                low, high = min(low, float(finite.min())), max(high, float(finite.max()))
                moments.add(finite)
    rest = (plain.numel(), nan, plain.numel() - moments.size - nan, zero)
    if not moments.size:
        return Look(*rest, None, None, None, None, (), None)
    bars = _histogram(plain, bins, low, high) if low < high else (moments.size,)
    return Look(*rest, low, moments.mean, high, moments.std, bars, _image(plain) if image else None)


class _Moments:
    """The mean and the population's deviation of what comes in parts (Chan, Golub and LeVeque 1983)."""

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
    """The same array where all of it is finite, as it nearly always is."""
    kept = np.isfinite(numbers)
    return numbers if kept.all() else numbers[kept]


def _histogram(value: Tensor, bins: int, low: float, high: float) -> tuple[int, ...]:
    """How many of the finite numbers are in each of so many equal parts of their range."""
    counts, half = np.zeros(bins, np.int64), (high / 2 - low / 2) or 1.0  # halves: a difference may overflow
    for (numbers,) in blocks(value):
        places = ((_finite(numbers) / 2 - low / 2) / half * bins).astype(np.int64)
        counts += np.bincount(np.minimum(places, bins - 1), minlength=bins)
    return tuple(counts.tolist())


def _image(value: Tensor) -> np.ndarray | None:
    """The first item: the channels of an image beside each other, the rows of a matrix; thinned out."""
    if value.dim() < 2 or min(value.shape[-2:]) < 2:
        return None
    while value.dim() > 3:
        value = value[0]
    if value.dim() == 3:
        value = (
            torch.cat(list(value[: max(1, min(8, _PIXELS // value.shape[-1]))]), -1)
            if value.shape[0]
            else value
        )
    if value.dim() != 2:
        return None
    rows, columns = (max(1, -(-n // _PIXELS)) for n in value.shape)
    image: np.ndarray = value[::rows, ::columns].to(torch.float64).numpy()
    return image


def summarise(values: Mapping[int, Tensor]) -> dict[str, list[Any]]:
    """Columns over the saved values, in the order of their rows; see ``viewing.scene``. ``zero`` is the share
    of the finite numbers that is 0. Values without plain numbers are left out.

    >>> summarise({3: torch.tensor([0.0, 1.0, float("nan")])})["mean"]
    [0.5]
    """
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for row in sorted(values):
        look = look_of(values[row], BINS, image=False)
        if look is not None and look.size:
            drawn = look.counts if len(columns["row"]) < _MOST_HISTOGRAMS and len(look.counts) > 1 else ()
            figures = (_short(number) for number in (look.mean, look.std, look.low, look.high))
            finite = look.size - look.nan - look.infinite
            zero = _short(look.zero / finite) if finite else None
            picture = _unseen(partial(thumbnail, values[row])) if len(values) <= _MOST_PICTURES else None
            found = (row, *figures, look.nan, look.infinite, zero, list(drawn), picture)
            for name, value in zip(_COLUMNS, found, strict=True):
                columns[name].append(value)
    return columns


def _short(value: float | None) -> float | None:
    """Six digits, which is more than is shown; None also for what is beyond numbers, which JSON has not."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
