"""Number the states of a model in which it is evaluated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.record import TRAINING_MODE

_MOST_CHANGES = 1000  # of a model between two passes that train it, that are told apart


class ModelTurns:
    """Tells which passes of an evaluation are of the same model.

    Args:
        writes_of: Returns the number of writes to the parameters of a model.

    Attributes:
        mode: The mode of the last pass.

    Example:
        >>> turns = ModelTurns(len)
        >>> for mode in ("train", "eval"):
        ...     turns.change_mode(mode)
        >>> turns.number(turns.writes("a"), 0), turns.number(1, 0), turns.number(2, 0)
        (1000, 1000, 1001)
    """

    def __init__(self, writes_of: Callable[[Any], int]) -> None:
        self._writes_of = writes_of
        self.mode = ""
        self._turns = 0  # how often a pass of the training followed others
        self._last = -1, 0, 0  # of the model in an evaluation: turn, writes, and changes in the turn

    def change_mode(self, mode: str) -> None:
        """Register a pass in another mode than the last."""
        self._turns += mode == TRAINING_MODE
        self.mode = mode

    def writes(self, model: Any) -> int:
        """Return the number of writes to the parameters of a model; 0 if it no longer exists."""
        return 0 if model is None else self._writes_of(model)

    def number(self, writes: int, steps: int) -> int:
        """Return a number that changes when the model did: by training, or by writes to its parameters.

        Writes are counted from the last training on, so that processes of one training find the same number
        though they record other passes.

        Args:
            writes: The number of writes to its parameters.
            steps: The number of steps of optimizers, which counts if no pass was seen that trains.
        """
        turn = self._turns or steps
        before, writes_before, changes = self._last
        changes = 0 if turn != before else changes + (writes != writes_before)
        self._last = turn, writes, changes
        return turn * _MOST_CHANGES + min(changes, _MOST_CHANGES - 1)
