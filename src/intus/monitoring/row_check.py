"""Prove that layers keep the order of the rows of a probe set.

Row *i* of a layer belongs to row *i* of the inputs unless the model sorts its rows, sends them to experts or
shuffles them. Of a few rows that the model gets in another order, the rows of each layer must come in that
order too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

#: The rows that are compared.
ROWS = 16
#: Differences that are due to rounding: of the median distance between rows, and of their size.
_OF_DISTANCE, _OF_SIZE = 0.05, 1e-5
#: The numbers that a row is compared by.
_NUMBERS = 3

Verdict = Literal["kept", "reordered", "mixed"]


class Place(NamedTuple):
    """A tensor of each pass."""

    address: str
    kind: str
    index: int


def permutation(rows: int) -> np.ndarray:
    """Return an order of rows that is not their own, always the same.

    Example:
        >>> permutation(2).tolist()
        [1, 0]
    """
    order = np.random.default_rng(0).permutation(rows)
    return np.roll(order, 1) if np.array_equal(order, np.arange(rows)) else order


def fingerprints(array: np.ndarray, axis: int) -> np.ndarray:
    """Return a few numbers of each row that differ if any of its entries does, shape (rows, numbers).

    The last is the size of the row, in units of which the others are rounded.
    """
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    rows = np.nan_to_num(np.asarray(rows, np.float64), posinf=1e30, neginf=-1e30)
    steps = np.outer(np.arange(1, rows.shape[1] + 1), 1 / np.arange(1, _NUMBERS + 1) ** 0.5)
    return np.column_stack([rows @ np.sin(steps), np.linalg.norm(rows, axis=1)])


def compare(first: np.ndarray, second: np.ndarray, order: np.ndarray) -> Verdict:
    """Tell whether a layer keeps the order of its rows.

    Args:
        first: The fingerprints of its rows.
        second: Those of a pass in which the model got its rows in another order.
        order: That order: row ``order[i]`` of the first pass was row ``i`` of the second.

    Returns:
        ``"kept"`` if the layer's rows came in that order too; ``"reordered"`` if the same rows came in yet
        another; ``"mixed"`` if they are other rows.

    Example:
        >>> rows = fingerprints(np.eye(4), 0)
        >>> order = permutation(4)
        >>> compare(rows, rows[order], order), compare(rows, rows, order), compare(rows, rows * 2, order)
        ('kept', 'reordered', 'mixed')
    """
    distances = np.linalg.norm(first[:, None] - first[None], axis=2)
    apart = distances[~np.eye(len(first), dtype=bool)]
    near = _OF_DISTANCE * float(np.median(apart)) + _OF_SIZE * float(np.abs(first).max(initial=0))
    if (np.linalg.norm(second - first[order], axis=1) <= near).all():
        return "kept"
    between = np.linalg.norm(second[:, None] - first[None], axis=2)
    nearest = between.argmin(axis=1)
    found = (between.min(axis=1) <= near).all() and len(np.unique(nearest)) == len(first)
    return "reordered" if found else "mixed"


class RowCheck:
    """What is known of the order of rows in each layer.

    It is due before the first pass of a probe set, the second, the fourth and so on, because what a model
    learns may decide on the order, and as soon as another layer has shown itself.

    Attributes:
        is_running: Whether a pass of the check is in progress.
        refused: The layers that do not keep the order of their rows.
    """

    def __init__(self) -> None:
        self.is_running = False
        self.refused: set[Place] = set()
        self._known: set[Place] = set()
        self._has_news = False
        self._looks = self._rows = 0
        self._passes: list[dict[Place, np.ndarray]] = []

    def is_due(self) -> bool:
        """Count a pass of the probe set, and return whether rows are to be checked before it."""
        self._looks += 1
        due = self._looks & (self._looks - 1) == 0 or self._has_news
        self._has_news = False
        return due

    def meet(self, place: Place) -> None:
        """Register that a pass of the probe set has a tensor."""
        self._has_news = self._has_news or place not in self._known

    def receive(self, place: Place, array: np.ndarray, axis: int) -> None:
        """Receive a tensor of a pass of the check; one with other rows has none to compare."""
        self._known.add(place)
        if array.shape[axis] == self._rows:
            self._passes[-1][place] = fingerprints(array, axis)

    def run(self, passes: Iterable[Callable[[], None]], order: np.ndarray) -> dict[Verdict, list[Place]]:
        """Run two passes, the second with rows in another order, and return what each layer does with them.

        Args:
            passes: Each runs one of them, in which ``receive`` is called.
            order: The order of the second.
        """
        self._passes, self._rows, self.is_running = [], len(order), True
        try:
            for run in passes:
                self._passes.append({})
                run()
            first, second = self._passes
        finally:
            self._passes, self.is_running = [], False
        out: dict[Verdict, list[Place]] = {"kept": [], "reordered": [], "mixed": []}
        for place, rows in first.items():
            out[compare(rows, second[place], order) if place in second else "mixed"].append(place)
        return out


def listed(places: Sequence[Place]) -> str:
    """Return the addresses of layers in words, three at most.

    Example:
        >>> listed([Place("a", "output", 0), Place("b", "output", 0)])
        "'a' and 'b'"
    """
    names = [repr(name) for name in dict.fromkeys(place.address for place in places)]
    if len(names) > 3:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
