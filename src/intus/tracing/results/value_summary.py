"""What saved activations look like: a few figures, a histogram and a picture each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...viewing.thumbnail import ValueSummary

BLOCK = 32_768  # numbers; as float64 a quarter of a megabyte


def blocks(*tensors: Tensor) -> Iterator[tuple[np.ndarray, ...]]:
    """The numbers of tensors of one size on the CPU, side by side, as flat float64 arrays of at most 32,768.

    >>> [(x.tolist(), y.tolist()) for x, y in blocks(torch.ones(1, 2), torch.zeros(2, 1))]
    [([1.0, 1.0], [0.0, 0.0])]
    """
    for parts in zip(*(torch.split(tensor.reshape(-1), BLOCK) for tensor in tensors), strict=True):
        yield tuple(part.to(torch.float64).numpy() for part in parts)


T = TypeVar("T")
BINS = 24
_MOST_HISTOGRAMS = 5000  # beyond so many values, figures alone: the page must stay small
_COLUMNS = ("row", "mean", "std", "low", "high", "nan", "inf", "zero", "histogram", "picture")
_MOST_PICTURES = 2000
_PIXELS = 64


def look_of(value: Tensor, bins: int = 40, *, image: bool = True) -> ValueSummary | None:
    """What is shown of a value, out of the sight of any trace; None where it has no plain numbers."""
    return _unseen(lambda: look_at(value, bins, image=image))


def _unseen(look: Callable[[], T]) -> T | None:
    with torch._C.DisableTorchFunction(), torch.no_grad():
        try:
            return look()
        except (RuntimeError, NotImplementedError, TypeError):  # fake, nested, or of a class that refuses
            return None


def look_at(value: Tensor, bins: int = 40, *, image: bool = True) -> ValueSummary | None:
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
        return ValueSummary(*rest, None, None, None, None, (), None)
    bars = _histogram(plain, bins, low, high) if low < high else (moments.size,)
    return ValueSummary(*rest, low, moments.mean, high, moments.std, bars, _image(plain) if image else None)


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


#: A pixel's character: tones from -15 to 15 around the middle, then what is no number, then nothing at all.
TONES = "0123456789abcdefghijklmnopqrstu"
NO_NUMBER, NOTHING = "v", "-"
_LEVELS = len(TONES) // 2
_SIDE = 32  # pixels of a heat map, at most, either way
_TILES = 2  # channels beside each other, either way
_IMAGE = 48  # pixels of an image, either way
_STRIP = 128  # pixels of a row
_NUMBERS = 16  # whole numbers of a row
_SHARE = 0.99  # of the numbers that the colours tell apart: a few large ones would leave the rest white


def thumbnail(value: Tensor) -> dict[str, Any] | None:
    """A picture of the first item; None for a single number, and for what has no plain numbers.

    ``of`` is which part, in numpy's words; ``columns`` how wide it is; ``pixels`` a character each, three in
    an image (red, green, blue); ``most`` the amount at which the colours end, None in an image. Large
    ones are thinned out. A row is a strip, one of whole numbers their first as text, ``numbers``.

    >>> thumbnail(torch.tensor([[0.0, 1.0], [-1.0, float("nan")]]))
    {'of': '', 'columns': 2, 'pixels': 'fu0v', 'most': 1.0}
    """
    if value.is_meta or value.is_quantized or value.layout != torch.strided or value.dim() < 1:
        return None
    index: list[str] = []
    while value.dim() > 3 and len(value):
        value = value[0]
        index.append("0")
    if value.numel() < 2:
        return None
    if min(value.shape[-2:], default=0) < 2 or value.dim() < 2:
        return _row(index, value.detach())
    value = (value.abs() if value.is_complex() else value).detach()
    if value.dim() == 3 and len(value) == 3 and min(value.shape[1:]) >= 8:
        return _rgb(index, _thin(value, _IMAGE))
    if value.dim() == 3 and len(value) == 1:
        value = value[0]
        index.append("0")
    if value.dim() == 2:
        return _map(index, _thin(value, _SIDE))
    tiles = value[: _TILES**2]
    if len(tiles) < len(value):
        index.append(f":{len(tiles)}")
    return _map(index, _mosaic(_thin(tiles, _SIDE // _TILES)))


def _row(index: list[str], value: Tensor) -> dict[str, Any] | None:
    """A strip of the first row, or of the only column; of whole numbers the first as they are."""
    while value.dim() > 1:
        column = value.dim() == 2 and value.shape[1] == 1
        value = value[:, 0] if column else value[0]
        index += [":", "0"] if column else ["0"]
    if len(value) < 2:
        return None
    if not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool):
        more = ", …" if len(value) > _NUMBERS else ""
        numbers = ", ".join(map(str, value[:_NUMBERS].tolist())) + more
        return {"of": _part(index), "numbers": numbers, "columns": 0, "pixels": "", "most": None}
    return _map(index, _thin((value.abs() if value.is_complex() else value)[None], _STRIP))


def _thin(value: Tensor, most: int) -> Tensor:
    rows, columns = (-(-n // most) for n in value.shape[-2:])
    thinned = value[..., ::rows, ::columns].to("cpu", torch.float64)
    return thinned.nan_to_num(math.nan, math.nan, math.nan)  # infinities are no numbers here


def _mosaic(tiles: Tensor) -> Tensor:
    """Two beside each other, with a line of nothing (infinity) between them."""
    count, rows, columns = tiles.shape
    down = -(-count // _TILES)
    whole = torch.full((down * (rows + 1) - 1, _TILES * (columns + 1) - 1), math.inf, dtype=torch.float64)
    for number, tile in enumerate(tiles):
        top, left = (number // _TILES) * (rows + 1), (number % _TILES) * (columns + 1)
        whole[top : top + rows, left : left + columns] = tile
    return whole


def _map(index: list[str], flat: Tensor) -> dict[str, Any]:
    sizes = flat[flat.isfinite()].abs()
    most = float(sizes.quantile(_SHARE)) if sizes.numel() else 0.0
    most = most or (float(sizes.max()) if sizes.numel() else 0.0)
    shares = (flat.nan_to_num(0.0, 0.0, 0.0) / (most or 1.0)).clamp(-1, 1)
    tones = shares.mul(_LEVELS).round().long() + _LEVELS
    tones[flat.isnan()] = len(TONES)
    tones[flat.isinf()] = len(TONES) + 1
    alphabet = TONES + NO_NUMBER + NOTHING
    return _entry(index, flat, [alphabet[tone] for tone in tones.flatten().tolist()], float(f"{most:.3g}"))


def _rgb(index: list[str], channels: Tensor) -> dict[str, Any]:
    """Red, green and blue, from the least to the greatest number."""
    known = channels[channels.isfinite()]
    low, high = (float(known.min()), float(known.max())) if known.numel() else (0.0, 0.0)
    shares = (channels.nan_to_num(low) - low) / ((high - low) or 1.0)
    tones = shares.mul(len(TONES) - 1).round().long().permute(1, 2, 0)
    return _entry(index, channels, [TONES[tone] for tone in tones.flatten().tolist()], None)


def _entry(index: list[str], drawn: Tensor, pixels: list[str], most: float | None) -> dict[str, Any]:
    return {"of": _part(index), "columns": drawn.shape[-1], "pixels": "".join(pixels), "most": most}


def _part(index: list[str]) -> str:
    return f"[{', '.join(index)}]" if index else ""
