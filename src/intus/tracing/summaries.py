"""What saved activations looked like: a few figures and a histogram each, for the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

BINS = 24
_MOST_HISTOGRAMS = 5000  # beyond so many values, figures alone: the page must stay small
_COLUMNS = ("row", "mean", "std", "low", "high", "nan", "inf", "zero", "histogram")


def summarise(values: Mapping[int, Tensor]) -> dict[str, list[Any]]:
    """Columns over the saved values, in the order of their rows; see ``viewing.scene``.

    Mean, std (of the population), low and high are of the finite values, ``zero`` is their share that is 0.
    Values without plain numbers (``meta``, fake, quantized, sparse, nested, empty) are left out; complex ones
    count by magnitude.

    >>> summarise({3: torch.tensor([0.0, 1.0, float("nan")])})["mean"]
    [0.5]
    """
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    with torch.no_grad():
        for row in sorted(values):
            try:
                summary = _summary(values[row], len(columns["row"]) < _MOST_HISTOGRAMS)
            except (RuntimeError, NotImplementedError):  # fake, nested, or of a class that refuses to be read
                summary = None
            if summary is not None:
                for name, value in zip(_COLUMNS, (row, *summary), strict=True):
                    columns[name].append(value)
    return columns


def _summary(value: Tensor, with_histogram: bool) -> tuple[Any, ...] | None:
    if value.is_meta or value.is_quantized or value.layout != torch.strided or not value.numel():
        return None
    flat = value.detach().cpu().flatten()
    flat = flat.abs() if flat.is_complex() else flat
    numbers = flat.double() if flat.dtype in (torch.float64, torch.int64) else flat.float()
    isfinite = numbers.isfinite()
    nan = int(numbers.isnan().sum())
    inf = numbers.numel() - nan - int(isfinite.sum())
    if nan or inf:
        numbers = numbers[isfinite]
    if not numbers.numel():
        return None, None, None, None, nan, inf, None, []
    low, high = (float(end) for end in numbers.aminmax())
    mean = float(numbers.double().mean())
    std = float(numbers.double().std(correction=0))
    zero = float((numbers == 0).double().mean())
    counts = torch.histc(numbers, BINS, low, high).int().tolist() if with_histogram and high > low else []
    return _short(mean), _short(std), _short(low), _short(high), nan, inf, _short(zero), counts


def _short(value: float) -> float:
    """Six digits, which is more than is shown."""
    return float(f"{value:.6g}")
