"""Replace one symbol of a record by one of another record: a character, a token, a patch of an image."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ...core.errors import InputError
from ..alignment.align import covers

Place = tuple[int, ...]
_COLORS = 4  # the most channels of an image, to find their axis


class Symbols:
    """The symbols of records of one kind.

    Args:
        record: One of the records, as a hypothesis gets it.
        grid: The shape of the labels of one record; empty for one label per record.
        hypothesis: The name of the hypothesis, for messages.
        patch: The height and width of a patch of an image, in pixels. Default: an eighth of the image.

    Raises:
        InputError: If it is not known what the symbols of such a record are.
    """

    def __init__(self, record: Any, grid: Place, hypothesis: str, patch: int | None = None) -> None:
        self._patch, self._axes = patch, self._find_axes(record, grid)
        if self._axes is None:
            shape = f" of shape {record.shape}" if isinstance(record, np.ndarray) else ""
            raise InputError(
                f"It is not known which part of a {type(record).__name__}{shape} a label of {hypothesis!r} "
                "is about, so no symbol can be replaced. Pass change=, a function (record, random) that "
                "returns a changed record."
            )

    @staticmethod
    def _find_axes(record: Any, grid: Place) -> tuple[int, ...] | None:
        """Return the axes of the symbols, one for a sequence and two for an image; None if not known."""
        if isinstance(record, str | list | tuple):
            return (0,) if len(grid) == 0 or grid == (len(record),) else None
        if not isinstance(record, np.ndarray) or record.ndim == 0:
            return None
        shape = record.shape
        if len(grid) == 1:
            return next(((axis,) for axis, size in enumerate(shape) if size == grid[0]), None)
        if len(grid) == 2:
            pairs = itertools.pairwise(range(len(shape)))
            return next((pair for pair in pairs if covers(grid, (shape[pair[0]], shape[pair[1]]))), None)
        if grid or len(shape) > 3:
            return None
        if len(shape) == 1:
            return (0,)
        channels_last = len(shape) == 3 and shape[2] <= _COLORS < shape[0]
        return (0, 1) if channels_last else (len(shape) - 2, len(shape) - 1)

    def size(self, record: Any) -> Place:
        """Return the number of places of a record along each axis of its symbols."""
        assert self._axes is not None
        if not isinstance(record, np.ndarray):
            return (len(record),)
        return tuple(record.shape[axis] for axis in self._axes)

    def places_differ(self, record: Any) -> bool:
        """Return whether a symbol may be put at another place, which a measurement or a color may not."""
        return not isinstance(record, np.ndarray) or record.dtype.kind in "iub"

    def replace(self, record: Any, place: Place, donor: Any, there: Place) -> Any:
        """Return a copy of a record with one symbol of another.

        Args:
            record: The record.
            place: The place of the symbol in the record.
            donor: The other record.
            there: The place of the symbol in it.
        """
        if isinstance(record, str):
            return record[: place[0]] + donor[there[0]] + record[place[0] + 1 :]
        if isinstance(record, list | tuple):
            changed = list(record)
            changed[place[0]] = donor[there[0]]
            return type(record)(changed)
        assert self._axes is not None
        out = record.copy()
        ours, theirs = [slice(None)] * record.ndim, [slice(None)] * record.ndim
        for axis, at, other in zip(self._axes, place, there, strict=True):
            width = 1 if len(self._axes) == 1 else self._width(record)
            ours[axis] = _around(at, width, record.shape[axis])
            theirs[axis] = _around(other, width, donor.shape[axis])
        out[tuple(ours)] = donor[tuple(theirs)]
        return out

    def _width(self, record: np.ndarray) -> int:
        assert self._axes is not None
        least = min(int(record.shape[axis]) for axis in self._axes)
        return max(1, min(least, round(least / 8) if self._patch is None else self._patch))


def _around(at: int, width: int, size: int) -> slice:
    """Return a slice of this width around a place, inside an axis of this size."""
    start = min(max(at - width // 2, 0), size - width)
    return slice(start, start + width)


def symbols_of(record: Any, count: int) -> list[Any] | None:
    """Return the symbols that the labels of a record are about; None if that is not known.

    Args:
        record: A text, whose symbols are its characters or its words; a list; or an array of one axis.
        count: The number of labels.

    Example:
        >>> symbols_of("a b", 3), symbols_of("a b", 2), symbols_of(np.array([4, 2]), 2), symbols_of("a b", 1)
        (['a', ' ', 'b'], ['a', 'b'], [4, 2], None)
    """
    if isinstance(record, np.ndarray):
        record = record.tolist() if record.ndim == 1 else []
    if isinstance(record, str) and len(record) != count:
        record = record.split()
    if not isinstance(record, str | list | tuple) or len(record) != count:
        return None
    return list(record)


def scaled(place: Place, grid: Place, size: Place) -> Place:
    """Return the place in a record that a label on a grid is about.

    Args:
        place: The index of the label.
        grid: The shape of the labels.
        size: The number of places of the record along each axis.

    Example:
        >>> scaled((1, 3), (4, 4), (8, 8)), scaled((5,), (9,), (9,))
        ((3, 7), (5,))
    """
    return tuple(
        int((at + 0.5) * places / labels) for at, labels, places in zip(place, grid, size, strict=True)
    )


def same(a: Any, b: Any) -> bool:
    """Return whether two records are equal.

    Example:
        >>> same("a", "a"), same(np.zeros(2), np.ones(2))
        (True, False)
    """
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    try:
        return bool(a == b)
    except ValueError:
        return False


def like(changed: Any, original: Any) -> Any:
    """Return a changed record in the type that it has in the data; arrays become tensors if they were.

    Args:
        changed: The record, as a hypothesis gets it.
        original: The record that it was made of, as it is in the data.
    """
    if isinstance(changed, np.ndarray) and hasattr(original, "new_tensor"):
        return original.new_tensor(changed)
    return changed
