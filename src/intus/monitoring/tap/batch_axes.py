"""Find which axis of a layer's tensors is the batch, in a model that may have it elsewhere than its inputs.

Recurrent layers and attention of PyTorch have time first by default, and so have the layers behind them. If
batch and sequence are of one size, no shape tells them apart, and labels of items would be given to
positions. So the axis is never assumed there: the framework knows it, or it is the only one that follows the
size of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..row_check import Place

Shape = tuple[int, ...]


def possible(shape: Shape, rows: int, default: int) -> list[int]:
    """Return the axes with as many entries as the batch has rows, the default one first.

    The last of several is that of features, unless it is the default.

    Example:
        >>> possible((8, 8, 3), 8, 0), possible((5, 8, 8), 8, 0), possible((8, 8), 8, 0)
        ([0, 1], [1], [0])
    """
    found = [axis for axis, size in enumerate(shape) if size == rows and (axis < len(shape) - 1 or not axis)]
    if default < len(shape) and shape[default] == rows:
        return [default, *(axis for axis in found if axis != default)]
    return found


@dataclass(slots=True)
class _Past:
    """Facts that the passes so far showed of a tensor.

    Attributes:
        axes: The axes that had the size of the batch in every pass.
        sizes: The sizes of the batch.
        axis: The axis that was found in a pass in which no other size was that of the batch.
    """

    axes: set[int]
    sizes: set[int] = field(default_factory=set)
    axis: int | None = None


class BatchAxes:
    """Knowledge of the batch axis of each tensor, over the passes of a training.

    Args:
        default: The axis of the rows of the model's inputs.
        may_move: Whether a layer may have its batch along another axis. It becomes true with the first one.

    Example:
        >>> axes, linear = BatchAxes(0, may_move=True), Place("linear", "output", 0)
        >>> axes.begin(8, [(8, 8)])  # a batch of 8 sequences of 8 words
        >>> axes.find(linear, (8, 8, 3)) is None
        True
        >>> axes.begin(5, [(5, 8)])  # of 5 sequences
        >>> axes.find(linear, (8, 5, 3))
        1
    """

    def __init__(self, default: int, *, may_move: bool) -> None:
        self.may_move = may_move
        self.rows: int | None = None
        self._default = default
        self._is_square = False  # another axis of a tensor of this pass has the size of the batch
        #: The sizes up to the batch axis, of tensors where it is another one.
        self._leading: set[Shape] = set()
        self._past: dict[Place, _Past] = {}

    def begin(self, rows: int | None, shapes: Iterable[Shape]) -> None:
        """Begin a pass.

        Args:
            rows: The number of rows of the batch; None if it is not known.
            shapes: The shapes of the model's inputs.
        """
        self.rows, self._is_square = rows, False
        for shape in shapes:
            self._is_square = self._is_square or shape.count(rows) > 1
            if rows is not None:
                self._leading.update((size, rows) for size in shape if size != rows)

    def forget(self, *, may_move: bool) -> None:
        """Forget the axes of earlier passes; see ``PassAxes.forget``."""
        self.may_move = self.may_move or may_move
        self._past.clear()

    def find(self, place: Place, shape: Shape, known: int | None = None) -> int | None:
        """Return the batch axis of a tensor; None if it cannot be known.

        It is the default one if no axis has the size of the batch, so that it has no rows of it.

        Args:
            place: The tensor.
            shape: Its shape.
            known: The axis, if the framework knows it.
        """
        if known is not None and known != self._default:
            self.may_move = True
            self._leading.add(shape[: known + 1])
        if self.rows is None or not self.may_move:
            return self._default if known is None else known
        axes = possible(shape, self.rows, self._default)
        self._is_square = self._is_square or len(axes) > 1
        past = self._past.setdefault(place, _Past(set(axes)))
        past.axes.intersection_update(axes)
        past.sizes.add(self.rows)
        if known is not None or not axes:
            return self._default if known is None else known
        return self._only(past, shape)

    def _only(self, past: _Past, shape: Shape) -> int | None:
        """Return the one axis that followed the size of the batch; None if there is none, or by chance."""
        if len(past.axes) != 1:
            return None
        (axis,) = past.axes
        if len(past.sizes) == 1 and past.axis is None:
            if self._is_square or not (axis == self._default or shape[: axis + 1] in self._leading):
                return None
            past.axis = axis
        return axis
