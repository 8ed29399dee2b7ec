"""A bounded, seeded sample of whole items, uniform over these, that merges exactly.

It keeps the rows with the smallest keys, and keys are hashes of their items: so which rows are kept depends
on the rows alone, and at most one item is kept in part. (Rows drawn one by one would leave hardly a pair of
items with the same positions, which the control of moved hypotheses compares.) A sample that never
overflowed holds everything, and what is computed from it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .split import Places
from .split import places as places_of


class Sample:
    """At most ``capacity`` rows: their ``places``, behaviours ``x`` (rows, features), label ``codes``
    (rows, targets) and label ``values`` (rows, targets, NaN where missing)."""

    def __init__(self, capacity: int, features: int) -> None:
        self.capacity, self.features = capacity, features
        self.complete = True
        self._below: int | None = None
        self._parts: list[tuple[Places, np.ndarray, np.ndarray, np.ndarray]] = []
        self._rows = 0

    def add(self, places: Places, x: np.ndarray, codes: np.ndarray, values: np.ndarray) -> None:
        """Offer rows; keeps those that belong to the sample. The arrays are kept, not copied."""
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
        """Drop the rows with the greatest keys, part by part: nothing large is copied twice."""
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
        """The sample: places, x, codes, values, in a seeded random order."""
        self._trim()
        if not self._parts:
            none = np.empty(0, np.int64)
            return places_of(none, 0), np.empty((0, self.features)), none.reshape(0, 0), np.empty((0, 0))
        places = Places(*(np.concatenate(c) for c in zip(*(part[0] for part in self._parts), strict=True)))
        order = np.lexsort((places.position, places.item, places.turn))
        _, *columns = zip(*self._parts, strict=True)
        x, codes, values = (_ordered(parts, order) for parts in columns)
        self._parts, self._rows = [(places.take(order), x, codes, values)], len(order)
        return self._parts[0]

    def __len__(self) -> int:
        return len(self.rows()[1])

    def merge(self, other: Sample, codes: list[np.ndarray]) -> None:
        """Add another's rows; ``codes[column]`` translates its classes."""
        if other._below is not None:
            self._below = other._below if self._below is None else min(self._below, other._below)
            self.complete = False
        for places, x, theirs, values in other._parts:
            mine = theirs.copy()
            for number in range(mine.shape[1]):
                mine[:, number] = codes[number][theirs[:, number]]
            self.add(places, x, mine, values)
        if self._below is not None:
            self._filter()


def _ordered(parts: Sequence[np.ndarray], order: np.ndarray) -> np.ndarray:
    """The parts' rows one below the other, then in that order; each is copied once."""
    out = np.empty((len(order), *parts[0].shape[1:]), np.result_type(*parts))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    start = 0
    for part in parts:
        out[place[start : start + len(part)]] = part
        start += len(part)
    return out
