"""Compare what a dataset gave for its items: are they the same in each epoch, are they copies of each other.

A sample of items is remembered by their ids, and a sample of contents by their hashes, so that of each
content all copies are in the sample or none. Both are complete up to some thousand items.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..core.sketch import hashed

#: The most items, and the most contents, that are remembered.
MOST = 4096
#: How many items must differ, or be copies, until it is said.
FEW = 4
#: How many different rows must have come until it is said that they came again.
DIFFERENT = 16
#: The share of the contents that must be of several items. Fewer copies raise scores by less than intervals.
COPIES = 0.1

News = Literal["reordered", "changed", "copies"]


class _Sample:
    """A dict of hashed keys that halves the share of the keys that it takes whenever it is full."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[int, ...]] = {}
        self._mask = np.uint64(0)

    def takes(self, keys: np.ndarray) -> np.ndarray:
        """Return which keys belong to the sample."""
        taken: np.ndarray = (keys & self._mask) == 0
        return taken

    def put(self, key: int, value: tuple[int, ...]) -> None:
        """Remember a value of a key that belongs to the sample."""
        self.kept[key] = value
        while len(self.kept) > MOST:
            self._mask = self._mask << np.uint64(1) | np.uint64(1)
            mask = int(self._mask)
            self.kept = {key: value for key, value in self.kept.items() if not key & mask}


class Repeats:
    """Rows that come without ids: whether each has come twice on average.

    Example:
        >>> repeats, rows = Repeats(), np.arange(16, dtype=np.uint64)
        >>> repeats.see(rows[::-1]), repeats.see(rows[:8]), repeats.see(rows[8:])
        (False, False, True)
    """

    def __init__(self) -> None:
        self._counts = _Sample()

    @property
    def are_few(self) -> bool:
        """True if so few rows are different that their coming again shows nothing."""
        return len(self._counts.kept) < DIFFERENT

    def see(self, contents: np.ndarray) -> bool:
        """Register the hashes of rows, uint64, and return whether each row so far came twice on average."""
        keys, kept, is_again = hashed(contents), self._counts.kept, False
        for key in keys[self._counts.takes(keys)].tolist():
            (count,) = kept.get(key, (0,))
            is_again = is_again or count > 0
            self._counts.put(key, (count + 1,))
            kept = self._counts.kept
        came = sum(count for (count,) in kept.values()) if is_again else 0
        return is_again and came >= 2 * len(kept)


class Contents:
    """The contents of a dataset's items, as far as they came.

    Example:
        >>> contents, rows = Contents(), np.arange(1, 11, dtype=np.uint64)
        >>> contents.see(np.arange(10), rows), contents.see(np.arange(10), rows)
        (None, None)
        >>> contents.see(np.arange(10), rows[::-1])
        'reordered'
    """

    def __init__(self) -> None:
        self._by_id, self._by_content = _Sample(), _Sample()
        self._changed = self._moved = 0
        self._is_again = self._has_copies = False
        self._said: set[News] = set()

    def see(self, ids: np.ndarray, contents: np.ndarray, form: int = 0) -> News | None:
        """Compare rows with those that came before.

        Args:
            ids: The ids of the items, int64 of shape (rows,).
            contents: The hashes of the rows, uint64 of shape (rows,).
            form: A number of the form of the rows. Those of another form, such as with other padding, are not
                compared.

        Returns:
            What they show, if it was not said before: ``"reordered"`` if items are what others were before,
            ``"changed"`` if they are not what they were, ``"copies"`` if items are what others are.
        """
        keys, values = (hashed(hashed(each) + np.uint64(form % 2**64)) for each in (ids, contents))
        for row in np.flatnonzero(self._by_id.takes(keys)):
            self._compare(int(keys[row]), int(ids[row]), int(values[row]))
        found = False
        for row in np.flatnonzero(self._by_content.takes(values)):
            found = self._is_copy(int(values[row]), int(ids[row])) or found
        if self._changed >= FEW:
            return self._news("reordered" if self._moved >= FEW and not self._has_copies else "changed")
        return self._news("copies") if found and self._are_many() else None

    def _compare(self, key: int, item: int, value: int) -> None:
        """Compare an item with what it was, or remember it."""
        before = self._by_id.kept.get(key)
        if before is None:
            self._by_id.put(key, (value,))
            return
        self._is_again = True
        if before != (value,):
            self._changed += 1
            owner = self._by_content.kept.get(value)
            self._moved += owner is not None and owner[0] != item

    def _is_copy(self, value: int, item: int) -> bool:
        """Return whether another item has the same content. Once items come again, the order may differ."""
        before = self._by_content.kept.get(value)
        if before is None:
            self._by_content.put(value, (item, 0))
        elif before[0] != item and not self._is_again:
            self._by_content.kept[value] = before[0], 1
            self._has_copies = True
            return True
        return False

    def _are_many(self) -> bool:
        marks = [is_copied for _, is_copied in self._by_content.kept.values()]
        return sum(marks) >= max(FEW, COPIES * len(marks))

    def _news(self, news: News) -> News | None:
        if news in self._said:
            return None
        self._said.add(news)
        return news
