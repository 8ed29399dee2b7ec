"""Read a unit over one record: at the pixels of an image, or at the symbols of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import InputError
from ..alignment.align import covers
from ..reading.data import as_pixels
from .symbols import Symbols, symbols_of
from .unit_reader import UnitReader, ordered

_CHANNELS = 3  # of a color image


@dataclass(frozen=True, slots=True, eq=False)
class UnitOver:
    """A unit over a record.

    Attributes:
        shown: The record, as a hypothesis gets it; the pixels of an image of Pillow.
        labels: Its labels, (…grid).
        size: The height and width of the record; empty if it is no image.
        symbols: The symbols that labels are about; None if it is no text or sequence.
        values: The behavior at each pixel (height, width) or symbol; None if the layer has no positions that
            fit the record.
        shape: The shape of the layer's output for the record, without units.
    """

    shown: Any
    labels: np.ndarray
    size: tuple[int, ...]
    symbols: list[Any] | None
    values: np.ndarray | None
    shape: tuple[int, ...]


def unit_over(reader: UnitReader, record: int) -> UnitOver:
    """Return the unit of a row over a record of the data.

    Args:
        reader: The units of the row's layer.
        record: The number of the record.
    """
    row, numbers = reader.row, np.array([record])
    block = reader.plan.block(numbers)
    with reader.reading() as read:
        array = read(block)
    record_itself, labels = reader.plan.records.block(numbers)[0], block.labels[row.target][0]
    shown = as_pixels(record_itself)
    chosen = array[:, [row.unit]]
    size = _size(shown, labels, row.target) if shown is record_itself else shown.shape[:2]
    if size:
        values = None
        if array.ndim == 4 and (size == array.shape[2:] or any(covers(size, one) for one in block.images)):
            ((_, over),) = reader.on_grid(chosen, size, block)
            values = over[0, 0]
        return UnitOver(shown, labels, size, None, values, array.shape[2:])
    grid, order = reader.filled(block.labels[row.target], array, block).shape[1:], reader.order(array, block)
    if order is not None and row.target in block.placed:
        labels = ordered(labels[None], order)[0]
    count = labels.shape[0] if labels.ndim else len(shown) if hasattr(shown, "__len__") else 0
    symbols = symbols_of(shown, count) if labels.ndim < 2 else None
    values = None
    fits = bool(grid) or (block.symbols is None and array.ndim == 3 and array.shape[2] >= count)
    if symbols is not None and array.ndim == 3 and fits:
        over = np.concatenate([one for _, one in reader.on_grid(chosen, grid or array.shape[2:], block)])
        if labels.ndim == 0:  # the symbols have no labels that were placed
            order = block.padding.by_mask(np.arange(count, dtype=float)[None], np.array([count]))
        if order is None or order.shape[1] != over.shape[2]:
            values = over[0, 0, :count]
        else:
            values = ordered(over[:, 0], order)[0]
    return UnitOver(shown, labels, (), symbols, values, array.shape[2:])


def _size(shown: Any, labels: np.ndarray, target: str) -> tuple[int, ...]:
    """Return the height and width of an image; empty if a record is no image."""
    if not isinstance(shown, np.ndarray) or shown.ndim < 2:
        return ()
    try:
        size = Symbols(shown, labels.shape if labels.ndim == 2 else (), target).size(shown)
    except InputError:
        return ()
    return size if len(size) == 2 else ()


def is_binary(labels: np.ndarray) -> bool:
    """Return whether labels are 0 and 1, or missing."""
    return labels.dtype.kind in "fiub" and bool(np.isin(labels[labels == labels], (0, 1)).all())


def picture(image: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Return an image with its colors last and from 0 to 1, or in gray."""
    if image.shape[:2] != size or image.ndim == 2:
        image = np.moveaxis(image.reshape(-1, *size), 0, -1)
    image = image.astype(float)
    image = image if image.shape[-1] == _CHANNELS else image.mean(axis=-1)
    low, high = float(np.nanmin(image)), float(np.nanmax(image))
    return np.asarray((image - low) / ((high - low) or 1))


def nearest(mask: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Return a mask of another size, each pixel that of its nearest place."""
    rows, columns = (np.arange(new) * old // new for old, new in zip(mask.shape, size, strict=True))
    return np.asarray(mask[rows][:, columns])
