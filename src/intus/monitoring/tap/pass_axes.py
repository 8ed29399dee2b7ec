"""Tell the batch axis of each tensor of a pass, and report layers with labels of which it is not known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from ...core.nested import leaves
from ..row_check import Place, listed
from ..warn_once import WarningLog
from .batch_axes import BatchAxes

_NO_AXIS = (
    "Which axis of {} of {} is the batch is not known: some layers have it along another axis than the "
    "inputs, and in epoch {} other axes are as long as the batch of {} rows. So they have no scores with "
    "labels in mode {}, and in scores without labels axis {} counts as rows, which may be positions or "
    "units. Use batch_first=True, a batch of another size than the sequences, or a probe_set, which tests "
    "the axis."
)
_NO_ROWS = (
    "{} of {} layers of {} have no scores with labels of items in mode {}: no axis of {} is known to be the "
    "batch, in a pass of epoch {} with {} rows. In scores without labels axis {} counts as rows."
)


#: A mode and the address of a layer, which may have labels in one mode and none in another.
_Layer = tuple[str, str]


@runtime_checkable
class Shaped(Protocol):
    """A tensor or array of any framework."""

    shape: Any


class PassAxes:
    """The batch axes of the tensors of a pass, from what this and earlier passes show.

    Args:
        model: The name of the model, for notices.
        default: The axis of the rows of its inputs.
        may_move: Whether a layer may have its batch along another axis.
        rows_of: Returns the number of rows of a call's arguments; None to know it from ids alone.
        patterns: Returns the patterns of the layers that have labels.
        troubles: Receives the notices.
    """

    def __init__(
        self,
        model: str,
        default: int,
        *,
        may_move: bool,
        rows_of: Callable[[Any, int], int | None] | None,
        patterns: Callable[[], Iterable[str]],
        troubles: WarningLog,
    ) -> None:
        self._model, self._default = model, default
        self._known = BatchAxes(default, may_move=may_move)
        self._rows_of, self._patterns, self._troubles = rows_of, patterns, troubles
        self._epoch: float = 0
        self._mode = ""
        self._has_ids = False
        self._unknown: set[Place] = set()
        self._with_rows: set[_Layer] = set()  # layers that have had the rows of the batch in some pass
        self._others: list[str] = []  # layers of this pass without them
        self._fits = False  # whether a layer of this pass has them
        #: Layers of which is still to be said that they have no labels, with an epoch and its rows.
        self._without_axis: dict[_Layer, tuple[float, int]] = {}
        self._without_rows: dict[_Layer, tuple[float, int]] = {}
        self._said: set[_Layer] = set()

    def begin(self, inputs: Any, epoch: float, mode: str, ids: int | None) -> None:
        """Begin a pass.

        Args:
            inputs: The arguments of the call.
            epoch: The epoch.
            mode: The mode.
            ids: The number of ids of its rows; None if it has none.
        """
        self._epoch, self._mode, self._has_ids = epoch, mode, ids is not None
        self._unknown.clear()
        self._others, self._fits = [], False
        rows, shapes = ids, []
        wanted: Any = Shaped  # mypy takes no protocol for a type
        try:
            if rows is None and self._rows_of is not None:
                rows = self._rows_of(inputs, self._default)
            if self._known.may_move:
                shapes = [tuple(one.shape) for one in leaves(inputs, wanted)]
        except Exception:  # packed items, or inputs of another kind
            shapes = []
        self._known.begin(rows, shapes)

    def forget(self, *, may_move: bool) -> None:
        """Forget the axes of earlier passes, because the model has changed.

        Args:
            may_move: Whether a layer may now have its batch along another axis.
        """
        self._known.forget(may_move=may_move)

    def find(self, place: Place, shape: tuple[int, ...], known: int | None) -> int | None:
        """Return the batch axis of a tensor; None if it cannot be known.

        Args:
            place: The tensor.
            shape: Its shape.
            known: The axis, if the framework knows it or a pass with rows in another order has shown it.
        """
        axis, rows = self._known.find(place, shape, known), self._known.rows
        if axis is None:
            self._unknown.add(place)
            if self._lacks_labels(place):
                self._without_axis.setdefault((self._mode, place.address), (self._epoch, rows or 0))
            return None
        self._unknown.discard(place)
        if axis < len(shape) and shape[axis] == rows:
            self._fits = True
            self._with_rows.add((self._mode, place.address))
        elif rows is not None and self._lacks_labels(place):
            self._others.append(place.address)
        return axis

    def is_unknown(self, place: Place) -> bool:
        """Return whether the axis of a tensor of this pass was not found."""
        return place in self._unknown

    def end(self) -> None:
        """End a pass.

        Layers without the rows of the batch are said only if another has them; else the ids do not fit.
        """
        for address in self._others if self._fits else ():
            self._without_rows.setdefault((self._mode, address), (self._epoch, self._known.rows or 0))
        self._others = []

    def tell(self) -> None:
        """Say of which layers the batch axis is not known, of each once for each mode."""
        unknown, self._without_axis = self._without_axis, {}
        without, self._without_rows = self._without_rows, {}
        self._said.update(unknown, without)
        for mode, layers in _by_mode(unknown).items():
            epoch, rows = unknown[mode, layers[0]]
            facts = listed(layers), self._model, f"{epoch:g}", rows, mode, self._default
            self._troubles.inform("axes", _NO_AXIS.format(*facts), "warning")
        of_all = _by_mode(dict.fromkeys([*without, *self._with_rows]))
        for mode, layers in _by_mode(without).items():
            epoch, rows = without[mode, layers[0]]
            counts = len(layers), len(of_all[mode]), self._model, mode
            of_pass = listed(layers), f"{epoch:g}", rows, self._default
            self._troubles.inform("axes", _NO_ROWS.format(*counts, *of_pass), "warning")

    def _lacks_labels(self, place: Place) -> bool:
        """Return whether a layer would have scores with labels, and nothing was said of it."""
        if place.kind not in ("output", "input") or not self._has_ids:
            return False
        if (self._mode, place.address) in self._said:
            return False
        return any(re.search(pattern, place.address) for pattern in self._patterns())


def _by_mode(layers: Iterable[_Layer]) -> dict[str, list[str]]:
    """Return the addresses of layers by their mode.

    >>> _by_mode([("train", "fc1"), ("eval", "fc1"), ("train", "fc2")])
    {'train': ['fc1', 'fc2'], 'eval': ['fc1']}
    """
    out: dict[str, list[str]] = {}
    for mode, address in layers:
        out.setdefault(mode, []).append(address)
    return out
