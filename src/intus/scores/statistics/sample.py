"""A bounded, seeded, uniform sample of whole items that merges exactly.

The sample consists of the rows with the smallest keys, and keys are hashes of the rows' items. Which rows
are kept therefore depends on the rows alone, and at most one item is kept in part. (If rows were drawn one by
one, hardly two items would have rows in the same positions, which the control with moved hypotheses
compares.) A sample that never overflowed contains all rows, and scores computed from it are exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .split import Places
from .split import places as places_of


class Sample:
    """A sample of at most ``capacity`` rows.

    Attributes:
        capacity: The largest number of rows.
        features: The number of features of a row.
        complete: Whether all rows so far are in the sample.
    """

    def __init__(self, capacity: int, features: int) -> None:
        self.capacity, self.features = capacity, features
        self.complete = True
        self._below: int | None = None
        self._parts: list[tuple[Places, np.ndarray, np.ndarray, np.ndarray]] = []
        self._rows = 0

    def add(self, places: Places, x: np.ndarray, codes: np.ndarray, values: np.ndarray) -> None:
        """Add those rows that belong to the sample. Arrays may be stored without a copy.

        Args:
            places: The places of the rows.
            x: Behaviours, shape (rows, features).
            codes: Class codes, shape (rows, targets).
            values: Numeric labels, shape (rows, targets), NaN if missing.
        """
        if self._below is not None:
            keep = places.key < np.uint64(self._below)
            places, x, codes, values = places.take(keep), x[keep], codes[keep], values[keep]
        if not len(x):
            return
        self._parts.append((places, x, codes, values))
        self._rows += len(x)
        if self._rows > 2 * self.capacity:
            self._trim()

    def _trim(self) -> None:
        """Drop the rows with the largest keys, part by part, so that no large array is copied twice."""
        if self._rows > self.capacity:
            keys = np.concatenate([part[0].key for part in self._parts])
            self._below = int(np.partition(keys, self.capacity)[self.capacity])
            self.complete = False
            self._filter()

    def _filter(self) -> None:
        parts, self._parts, self._rows = self._parts, [], 0
        while parts:
            self.add(*parts.pop())

    def rows(self) -> tuple[Places, np.ndarray, np.ndarray, np.ndarray]:
        """Return the sample in a seeded random order: places, behaviours, class codes and numeric labels."""
        self._trim()
        if not self._parts:
            none = np.empty(0, np.int64)
            return places_of(none, 0), np.empty((0, self.features)), none.reshape(0, 0), np.empty((0, 0))
        places = Places(*(np.concatenate(c) for c in zip(*(part[0] for part in self._parts), strict=True)))
        order = np.lexsort((places.position, places.item, places.turn))
        _, *columns = zip(*self._parts, strict=True)
        x, codes, values = (ordered(parts, order) for parts in columns)
        self._parts, self._rows = [(places.take(order), x, codes, values)], len(order)
        return self._parts[0]

    def __len__(self) -> int:
        return len(self.rows()[1])

    def merge(self, other: Sample, codes: list[np.ndarray]) -> None:
        """Add the rows of ``other``, whose class codes ``codes[column]`` maps to those here."""
        if other._below is not None:
            self._below = other._below if self._below is None else min(self._below, other._below)
            self.complete = False
        for places, x, other_codes, values in other._parts:
            own_codes = other_codes.copy()
            for column in range(own_codes.shape[1]):
                own_codes[:, column] = codes[column][other_codes[:, column]]
            self.add(places, x, own_codes, values)
        if self._below is not None:
            self._filter()


def ordered(parts: Sequence[np.ndarray], order: np.ndarray) -> np.ndarray:
    """Concatenate the parts and return their rows in the given order, copying each row once."""
    out = np.empty((len(order), *parts[0].shape[1:]), np.result_type(*parts))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    start = 0
    for part in parts:
        out[place[start : start + len(part)]] = part
        start += len(part)
    return out
