"""Bringing behaviours and labels onto one grid of symbols: pure functions of arrays."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..core.errors import InputError

Grid = tuple[int, ...]


def onto(behaviours: np.ndarray, grid: Grid, address: str, hypothesis: str) -> np.ndarray:
    """Behaviours (records, units, …positions) on a hypothesis's grid: (records, units, …grid).

    Records without positions are averaged over them; a map is resized bilinearly (corners not aligned, as
    images are), a sequence must be as long as its labels. Raises InputError naming both shapes.
    """
    positions = behaviours.shape[2:]
    if positions == grid:
        return behaviours
    if not grid:
        return np.asarray(behaviours.mean(axis=tuple(range(2, behaviours.ndim))))
    if len(positions) == len(grid) == 2:
        return resize(behaviours, grid)
    what = f"positions of shape {positions}" if positions else "one value per record"
    raise InputError(
        f"The hypothesis {hypothesis!r} gives labels of shape {grid} per record, but {address!r} has {what}. "
        "Give labels that fit the layer, or one label for the whole record."
    )


def resize(maps: np.ndarray, grid: Grid) -> np.ndarray:
    """Maps (…, h, w) to (…, H, W), bilinearly, corners not aligned (Dissection's and torch's default).

    >>> resize(np.array([[0.0, 1.0]]), (1, 4))
    array([[0.  , 0.25, 0.75, 1.  ]])
    """
    down, across = (_weights(old, new) for old, new in zip(maps.shape[-2:], grid, strict=True))
    return np.asarray(down.astype(maps.dtype) @ maps @ across.T.astype(maps.dtype))


@lru_cache(maxsize=32)
def _weights(old: int, new: int) -> np.ndarray:
    """(new, old): how much each old place counts at each new one."""
    place = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    left = np.floor(place).astype(int)
    out = np.zeros((new, old))
    np.add.at(out, (np.arange(new), left), 1 - (place - left))
    np.add.at(out, (np.arange(new), np.minimum(left + 1, old - 1)), place - left)
    return out


def rows(aligned: np.ndarray) -> np.ndarray:
    """(records, units, …grid) to (records · symbols, units), symbols of a record together."""
    units = aligned.shape[1]
    return np.asarray(np.moveaxis(aligned, 1, -1).reshape(-1, units))


def fill(labels: np.ndarray, length: int) -> np.ndarray:
    """Labels (records, t) of ragged sequences, filled up to ``length`` with "not annotated"."""
    text = labels.dtype.kind in "USO"
    out = np.full((len(labels), length), None if text else np.nan, dtype=object if text else float)
    out[:, : labels.shape[1]] = labels
    return out
