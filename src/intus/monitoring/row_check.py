"""Prove that layers keep the order of the rows of a probe set.

Row *i* of a layer belongs to row *i* of the inputs unless the model sorts its rows, sends them to experts or
shuffles them. If the model gets its rows in another order, those of each layer must come in that order too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from ..backends.base import CapturedTensor
from ..core.fingerprints import fingerprints

#: The rows that are looked for among all.
_SAMPLE = 64
#: Differences that are due to rounding: of the median distance between rows, and of their size.
_OF_DISTANCE, _OF_SIZE = 0.05, 1e-5

Verdict = Literal["kept", "reordered", "mixed"]


class Place(NamedTuple):
    """A tensor of each pass."""

    address: str
    kind: str
    number: int

    @classmethod
    def of(cls, tensor: CapturedTensor) -> Place:
        """Return the place of a tensor."""
        return cls(tensor.address, tensor.kind, tensor.index)


class Rows(NamedTuple):
    """The rows of a tensor.

    Attributes:
        shape: The tensor's shape.
        fingerprints: Returns those of the rows along an axis; see ``core.fingerprints``.
    """

    shape: tuple[int, ...]
    fingerprints: Callable[[int], np.ndarray]

    @classmethod
    def of(cls, tensor: CapturedTensor, axis: int) -> Rows:
        """Return the rows of a tensor, which is copied to the host only if its framework cannot tell them."""
        if tensor.fingerprints is not None:
            return cls(tensor.shape, tensor.fingerprints)
        array = tensor.copy(None, axis)
        return cls(array.shape, partial(fingerprints, array))


def permutation(rows: int) -> np.ndarray:
    """Return an order of rows that is not their own, always the same.

    Example:
        >>> permutation(2).tolist()
        [1, 0]
    """
    order = np.random.default_rng(0).permutation(rows)
    return np.roll(order, 1) if np.array_equal(order, np.arange(rows)) else order


def compare(first: np.ndarray, second: np.ndarray, order: np.ndarray) -> Verdict:
    """Tell whether a layer keeps the order of its rows.

    Args:
        first: The fingerprints of its rows.
        second: Those of a pass in which the model got its rows in another order.
        order: That order: row ``order[i]`` of the first pass was row ``i`` of the second.

    Returns:
        ``"kept"`` if the layer's rows came in that order too; ``"reordered"`` if the same rows came in yet
        another; ``"mixed"`` if they are other rows, such as with noise, or the nodes of a graph.

    Example:
        >>> rows = fingerprints(np.eye(4), 0)
        >>> order = permutation(4)
        >>> compare(rows, rows[order], order), compare(rows, rows, order), compare(rows, rows * 2, order)
        ('kept', 'reordered', 'mixed')
    """
    some = np.unique(np.linspace(0, len(first) - 1, _SAMPLE).astype(int))
    of_some = np.linalg.norm(first[some][:, None] - first[some][None], axis=2)
    apart = float(np.median(of_some[~np.eye(len(some), dtype=bool)]))
    near = _OF_DISTANCE * apart + _OF_SIZE * float(np.abs(first).max(initial=0))
    if (np.linalg.norm(second - first[order], axis=1) <= near).all():
        return "kept"
    between = np.linalg.norm(second[some][:, None] - first[None], axis=2)
    found = (between.min(axis=1) <= near).all() and len(np.unique(between.argmin(axis=1))) == len(some)
    return "reordered" if found else "mixed"


class RowCheck:
    """Knowledge of the order of rows in each layer.

    It is due before the first pass of a probe set, the second, the fourth and so on, because what a model
    learns may decide on the order, and as soon as another layer has shown itself.

    Attributes:
        is_running: Whether the pass with rows in another order is in progress.
    """

    def __init__(self) -> None:
        self.is_running = False
        self._order = np.empty(0, np.int64)
        #: Fingerprints of rows in another order, to be compared, along each axis that may be theirs.
        self._moved: dict[Place, dict[int, np.ndarray]] = {}
        self._verdicts: dict[Place, Verdict] = {}
        self._axes: dict[Place, int] = {}  # of the rows, as far as seen
        self._has_news = False
        self._looks = 0

    def is_due(self) -> bool:
        """Count a pass of the probe set, and return whether rows are to be run in another order before it."""
        self._looks += 1
        due = self._looks & (self._looks - 1) == 0 or self._has_news
        self._has_news = False
        return due

    def forget(self) -> None:
        """Forget all that is known of the layers, because the model has changed: it is due at once."""
        self._verdicts, self._axes, self._has_news = {}, {}, True

    def run(self, run: Callable[[], None], order: np.ndarray) -> None:
        """Run a pass with rows in another order, during which ``receive`` is called.

        Args:
            run: Runs it.
            order: The order.
        """
        self._order, self._moved, self.is_running = order, {}, True
        try:
            run()
        except BaseException:
            self._moved = {}
            raise
        finally:
            self.is_running = False

    def receive(self, place: Place, rows: Rows, axes: Sequence[int]) -> None:
        """Receive a tensor of the pass with rows in another order.

        Args:
            place: The tensor.
            rows: Its rows.
            axes: The axes that may be that of the rows, the likeliest first.
        """
        axes = [self._axes[place]] if place in self._axes else axes
        count = len(self._order)
        found = {axis: rows.fingerprints(axis) for axis in axes if rows.shape[axis] == count}
        if found:
            self._moved[place] = found

    def is_waiting(self, place: Place) -> bool:
        """Return whether a tensor of the pass of the probe set itself is to be compared."""
        self._has_news = self._has_news or (place not in self._verdicts and place not in self._moved)
        return place in self._moved

    def compare(self, place: Place, rows: Rows, axes: Sequence[int]) -> None:
        """Compare a tensor of the pass of the probe set itself, along the axes of its rows in the other."""
        moved = self._moved.pop(place)
        verdicts: dict[int, Verdict] = {}
        for axis, others in moved.items():
            same = len(rows.shape) > axis and rows.shape[axis] == len(others)
            verdicts[axis] = compare(rows.fingerprints(axis), others, self._order) if same else "mixed"
            if verdicts[axis] == "kept":
                self._axes[place], self._verdicts[place] = axis, "kept"
                return
        if axes[0] in verdicts:
            self._axes.pop(place, None)
            self._verdicts[place] = verdicts[axes[0]]
        elif self._axes.pop(place, None) is not None:
            self._verdicts[place] = "mixed"
        else:  # it has rows of its own, and another of its sizes is that of the batch by chance
            self._axes[place] = axes[0]
            self.skip(place)

    def axis(self, place: Place) -> int | None:
        """Return the axis along which a tensor was seen to have its rows, or None."""
        return self._axes.get(place)

    def skip(self, place: Place) -> None:
        """Register that nothing is known of a tensor, or that it has other rows than the inputs."""
        self._verdicts.setdefault(place, "kept")

    def places(self, verdict: Verdict) -> list[Place]:
        """Return the tensors of a verdict."""
        return [place for place, known in self._verdicts.items() if known == verdict]

    def is_refused(self, place: Place) -> bool:
        """Return whether a tensor has its rows in an order of its own."""
        return self._verdicts.get(place) == "reordered"


def listed(addresses: Iterable[str]) -> str:
    """Return the addresses of layers in words, three at most.

    Example:
        >>> listed(["a", "b"])
        "'a' and 'b'"
    """
    names = [repr(name) for name in dict.fromkeys(addresses)]
    if len(names) > 3:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
