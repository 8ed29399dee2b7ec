"""Find the epochs of a model that is only evaluated, such as an average of another."""

from __future__ import annotations

from collections import defaultdict

from ...backends.feeds import Origin
from .changes import ModelChanges
from .log import EpochLog

_BY_EVALUATION = (
    "The model is called in evaluation mode or without gradients alone, and its parameters change meanwhile: "
    "epochs are its evaluations, counted from 0, and another one begins with the first call with other data "
    "after a change. Epoch 0 is the model as it was evaluated first, so it may be trained: the average of "
    "another model after epoch 1 of that one is epoch 0 here. Set watch.epoch = number before each "
    "evaluation to count otherwise."
)
_FROZEN = (
    "All passes are in epoch {:g}, over {} iterations of {}, because the parameters did not change: the "
    "model is frozen, or was not trained meanwhile. Set watch.epoch = number before each epoch."
)


class EpochsByEvaluation:
    """The epochs of a model that is only evaluated: one begins with the first call after a change.

    Args:
        log: Gets how epochs are found.
        changes: The changes of the parameters.
    """

    def __init__(self, log: EpochLog, changes: ModelChanges) -> None:
        self._log, self._changes = log, changes
        # The iterations whose batches the model had without a change, by the dataset and loader.
        self._iterations: defaultdict[tuple[int, str], set[int]] = defaultdict(set)

    def epoch_of(self, origin: Origin | None, epoch: float) -> float:
        """Return the epoch of a call with other data than the call before.

        Args:
            origin: Where its batch comes from; None if that is not known.
            epoch: The present epoch.
        """
        if self._changes.advance():
            self._log.found(_BY_EVALUATION)
            return epoch + 1
        if origin is not None:
            self._iterations[origin.dataset, origin.name].add(origin.iteration)
        return epoch

    def is_new_model(self) -> bool:
        """Return whether epochs were found by evaluation, and the model changed since the last."""
        return self._log.how == _BY_EVALUATION and self._changes.version != self._changes.read()

    def frozen(self) -> str:
        """Return in words that a model without epochs had the same data again, as it is frozen; "" if not."""
        again = {loader: len(some) for (_, loader), some in self._iterations.items() if len(some) > 1}
        if not again or self._log.is_found or self._changes.since_epoch():
            return ""
        loader, times = next(iter(again.items()))
        return _FROZEN.format(self._log.epoch, times, loader)
