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

#: The difference that passes for none, of the typical distance between rows that differ.
_OF_DISTANCE = 0.05
#: The same where sorted rows are compared, which come closer by chance.
_OF_DISTANCE_SORTED = 0.005
#: The most that rounding changes in a row, of its size: in the model, and in its fingerprint.
_ROUNDING, _OWN_ROUNDING = 1e-5, 1e-12
#: The part of the rows that the other order moves which are not where they should be in a layer with an order
#: of its own. Fewer may be drawn anew by the model, of a few kinds and by chance as many of each.
_MOST = 0.5

#: Found of the rows of a layer: see ``compare``.
Verdict = Literal["kept", "reordered", "mixed", "alike"]


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
    """Tell whether a layer keeps the order of its rows, of which equal ones may stand for each other.

    Args:
        first: The fingerprints of its rows.
        second: Those of a pass in which the model got its rows in another order.
        order: That order: row ``order[i]`` of the first pass was row ``i`` of the second.

    Returns:
        ``"kept"`` if the layer's rows came in that order too; ``"reordered"`` if the same rows came in yet
        another; ``"mixed"`` if they are other rows, such as with noise, or the nodes of a graph; ``"alike"``
        if they differ so little that rounding hides their order.

    Example:
        >>> rows = fingerprints(np.eye(4), 0)
        >>> order = permutation(4)
        >>> compare(rows, rows[order], order), compare(rows, rows, order), compare(rows, rows * 2, order)
        ('kept', 'reordered', 'mixed')
    """
    expected = first[order]
    off = np.linalg.norm(second - expected, axis=1)
    apart = np.linalg.norm(first - expected, axis=1)  # of each row and the one that takes its place
    rounding, least = (share * expected[:, -1] for share in (_ROUNDING, _OWN_ROUNDING))
    are_alike = not (apart > rounding).any()
    floor = least if are_alike else rounding
    seen = apart > floor
    distance = (
        float(np.median(apart[seen])) if seen.any() else 0.0
    )  # of rows that differ, however many do not
    is_off = off > _OF_DISTANCE * distance + floor
    if not is_off.any():
        return "kept"
    has_moved = is_off.sum() >= _MOST * seen.sum() and (not are_alike or _are_different(first))
    if has_moved and _are_same(expected, second, _OF_DISTANCE_SORTED * distance + least):
        return "reordered"
    return "alike" if (off <= rounding).all() else "mixed"


def _are_same(first: np.ndarray, second: np.ndarray, near: np.ndarray) -> bool:
    """Return whether two passes have the same rows in any order, each as often.

    Sorted, equal numbers stand at the same places.

    Args:
        first: The fingerprints of the rows of one.
        second: Those of the other.
        near: The difference that passes for the same, for each row of the first.
    """
    places = first.argsort(axis=0)
    gaps = np.abs(np.sort(second, axis=0) - np.take_along_axis(first, places, axis=0))
    return bool((gaps <= near[places]).all())


def _are_different(rows: np.ndarray) -> bool:
    """Return whether most rows are of one kind each, so that they are not equal rows, rounded by their place.

    An operation may round differently at the end of a batch.
    """
    return len(np.unique(rows, axis=0)) > len(rows) / 2


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
