"""A saved value as a small picture for the page: a heat map of its numbers, or an image where it is one."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

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
        return _image(index, _thin(value, _IMAGE))
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


def _image(index: list[str], channels: Tensor) -> dict[str, Any]:
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
