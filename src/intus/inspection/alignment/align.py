"""Bring behaviors and labels onto one grid of symbols; pure functions of arrays."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...core.errors import InputError
from .places import Places

Grid = tuple[int, ...]


def onto(
    behaviours: np.ndarray,
    grid: Grid,
    address: str,
    hypothesis: str,
    images: list[Grid],
    places: Places | None = None,
) -> np.ndarray:
    """Return behaviors on the grid of a hypothesis's labels.

    Behaviors are averaged over their positions if there is one label per record. A map is interpolated
    bilinearly if the labels cover the record's image: they have its height and width, a whole multiple, or a
    whole fraction of both. Its positions are put where they lie in the image if that is known; else the map
    is stretched over the image. A sequence must be as long as its labels.

    Args:
        behaviours: The behaviors, (records, units, …positions).
        grid: The shape of the labels of one record; empty for one label.
        address: The address of the layer, for the message.
        hypothesis: The name of the hypothesis, for the message.
        images: What may be the height and width of a record.
        places: Where the positions lie in the image; None if that is not known.

    Returns:
        An array (records, units, …grid), NaN where no position of the map is near.

    Raises:
        InputError: If the two shapes do not fit.
    """
    positions = behaviours.shape[2:]
    if positions == grid:
        return behaviours
    if not grid:
        return np.asarray(behaviours.mean(axis=tuple(range(2, behaviours.ndim))))
    if len(positions) == len(grid) == 2:
        for size in images:
            if covers(grid, size):
                return resize(behaviours, grid) if places is None else spread(behaviours, grid, size, places)
        of_record = f"the record ({_times(images[-1])})" if images else "the record, whose size is unknown,"
        raise InputError(
            f"The hypothesis {hypothesis!r} gives maps of {_times(grid)}, which fit neither {of_record} nor "
            f"{address!r} ({_times(positions)}). Return maps of the record's height and width, or a whole "
            "multiple or fraction of both, or maps of the layer's size."
        )
    found = f"positions of shape {positions}" if positions else "one value per record"
    raise InputError(
        f"The hypothesis {hypothesis!r} gives labels of shape {grid} per record, but {address!r} has "
        f"{found}. Return labels of that shape, or one label for the whole record."
    )


def covers(grid: Grid, image: Grid) -> bool:
    """Return whether labels on a grid cover an image: the same size, or a whole multiple or fraction of it.

    >>> covers((8, 8), (8, 8)), covers((2, 4), (4, 8)), covers((5, 8), (8, 8)), covers((5, 5), (8, 8))
    (True, True, False, False)
    """
    whole = [max(pair) % min(pair) == 0 for pair in zip(grid, image, strict=True)]
    return all(whole) and grid[0] * image[1] == grid[1] * image[0]


def _times(size: Grid) -> str:
    return " × ".join(map(str, size))


def resize(maps: np.ndarray, grid: Grid) -> np.ndarray:
    """Resize maps bilinearly, without aligning corners (as torch's ``interpolate`` does by default).

    Args:
        maps: An array (…, h, w).
        grid: The new height and width.

    Returns:
        An array (…, H, W).

    Example:
        >>> resize(np.array([[0.0, 1.0]]), (1, 4))
        array([[0.  , 0.25, 0.75, 1.  ]])

    References:
        Bau et al. (2017), "Network Dissection: Quantifying Interpretability of Deep Visual Representations",
        CVPR.
    """
    down, across = (_weights(old, new) for old, new in zip(maps.shape[-2:], grid, strict=True))
    return np.asarray(down.astype(maps.dtype) @ maps @ across.T.astype(maps.dtype))


def spread(maps: np.ndarray, grid: Grid, image: Grid, places: Places) -> np.ndarray:
    """Interpolate maps bilinearly from the places of their positions in the image.

    Args:
        maps: An array (…, h, w).
        grid: The height and width of the result, which covers the image.
        image: The height and width of the image.
        places: Where the positions of the maps lie in the image.

    Returns:
        An array (…, H, W), NaN where the nearest position is more than half a step away.

    Example:
        >>> spread(np.array([[5.0, 7.0]]), (1, 4), (1, 4), Places((0, 1), (1, 1)))
        array([[nan,  5.,  7., nan]])
    """
    axes = zip(maps.shape[-2:], grid, image, *places, strict=True)
    down, across = (_weights_at(*axis) for axis in axes)
    out = np.asarray(down.astype(maps.dtype) @ maps @ across.T.astype(maps.dtype))
    far = np.logical_or.outer(~down.any(axis=1), ~across.any(axis=1))
    if far.any():
        out = np.where(far, np.nan, out)
    return out


@lru_cache(maxsize=32)
def _weights_at(old: int, new: int, image: int, start: float, step: float) -> np.ndarray:
    """Return the interpolation matrix (new, old) along one axis; a row is 0 where no position is near."""
    pixel = (np.arange(new) + 0.5) * image / new - 0.5
    place = (pixel - start) / step
    near = (place >= -0.5 - 1e-9) & (place <= old - 0.5 + 1e-9)
    place = np.clip(place, 0, old - 1)
    left = np.floor(place).astype(int)
    out = np.zeros((new, old))
    np.add.at(out, (np.arange(new), left), 1 - (place - left))
    np.add.at(out, (np.arange(new), np.minimum(left + 1, old - 1)), place - left)
    return out * near[:, None]


@lru_cache(maxsize=32)
def _weights(old: int, new: int) -> np.ndarray:
    """Return the interpolation matrix (new, old) along one axis."""
    place = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    left = np.floor(place).astype(int)
    out = np.zeros((new, old))
    np.add.at(out, (np.arange(new), left), 1 - (place - left))
    np.add.at(out, (np.arange(new), np.minimum(left + 1, old - 1)), place - left)
    return out


def rows(aligned: np.ndarray) -> np.ndarray:
    """Return aligned behaviors (records, units, …grid) as a matrix (records · symbols, units).

    The symbols of a record stay together.
    """
    units = aligned.shape[1]
    return np.asarray(np.moveaxis(aligned, 1, -1).reshape(-1, units))


def fill(labels: np.ndarray, length: int) -> np.ndarray:
    """Return labels of shorter sequences padded to ``length`` as not annotated.

    Args:
        labels: The labels, (records, t).
        length: The new number of positions.
    """
    text = labels.dtype.kind in "USO"
    out = np.full((len(labels), length), None if text else np.nan, dtype=object if text else float)
    out[:, : labels.shape[1]] = labels
    return out


def reduce_positions(behaviours: np.ndarray, index: np.ndarray, how: str) -> np.ndarray:
    """Return the behaviors of symbols from those of their positions.

    Args:
        behaviours: The behaviors, (records, units, positions).
        index: The positions of each symbol in their order, (records, symbols, most), -1 where it has fewer.
        how: ``"mean"``, ``"first"``, ``"last"`` or ``"max"``, for a symbol of several positions.

    Returns:
        An array (records, units, symbols), NaN for a symbol without positions.

    Example:
        >>> tokens = np.array([[[9.0, 2.0, 4.0, 5.0]]])
        >>> reduce_positions(tokens, np.array([[[1, 2], [3, -1], [-1, -1]]]), "mean").tolist()
        [[[3.0, 5.0, nan]]]
    """
    count = (index >= 0).sum(axis=2)
    if how in ("first", "last"):
        last = np.maximum(count - 1, 0) if how == "last" else np.zeros_like(count)
        index = np.take_along_axis(index, last[:, :, None], axis=2)
    out = _gathered(behaviours, index[:, :, 0])
    for k in range(1, index.shape[2]):
        more = _gathered(behaviours, index[:, :, k])
        has = (index[:, :, k] >= 0)[:, None, :]
        out = np.where(has, np.maximum(out, more) if how == "max" else out + more, out)
    if how == "mean":
        out = out / np.maximum(count, 1)[:, None, :].astype(out.dtype)
    return np.where((count > 0)[:, None, :], out, np.nan).astype(behaviours.dtype, copy=False)


def _gathered(behaviours: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the behaviors (records, units, symbols) of one position for each symbol."""
    return np.take_along_axis(behaviours, np.maximum(positions, 0)[:, None, :], axis=2)
