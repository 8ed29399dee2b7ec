"""Take steps of an optimizer for calls of a model that is not called itself, as inside ``torch.compile``."""

from __future__ import annotations

from ...backends.feeds import Feed
from .log import EpochLog

_BY_STEPS = (
    "No call of the model itself came before a step of its optimizer, as in compiled code or with a closure "
    "for step, so that epochs are seen at steps of its optimizer: epoch 0 is the model before the first."
)
_BUFFERS = (
    "Epoch 0 of {} is the model before the first step of its optimizer, but after its first batch, which has "
    "written to its buffers, such as the statistics of batch normalization: the model itself is not called "
    "to train it. Set watch.epoch = number before each epoch, from 1."
)
_SEVERAL = (
    "Epochs of {} are perhaps not those of its training: several loaders give batches between two steps of "
    "its optimizer, and the model itself is not called to train it, so that it is not known which of them "
    "is the training's. Set watch.epoch = number before each epoch."
)


class StepsAsCalls:
    """The steps of optimizers before which no call of the model was seen.

    Args:
        feed: What tells of batches.
        log: Gets what is to be said.
    """

    def __init__(self, feed: Feed, log: EpochLog) -> None:
        self._feed, self._log = feed, log
        self._is_called = self._was_called = False  # in training, since the last step and before it
        self._came = -1  # batches that had come at the last call or step of the training
        self._stand_for_calls = False  # whether that was said
        self._mixed = 0  # steps in a row before which several loaders gave batches

    def on_call(self, came: int) -> None:
        """Register a call that trains the model, and how many batches have come."""
        self._is_called, self._came = True, came

    def stands_for_call(self, epoch: float) -> bool:
        """Register a step that is about to run, and return whether an epoch may begin with it.

        Args:
            epoch: The present epoch. The first may always begin: the calls before were no training.
        """
        self._was_called, self._is_called = self._is_called, False
        came, before = self._feed.came(), self._came
        if epoch and (self._was_called or (came == before and not self._stand_for_calls)):
            return False
        self._came = came
        self._mixed = self._mixed + 1 if before >= 0 and len(self._feed.sources(before)) > 1 else 0
        return True

    def say(self, name: str, *, is_first: bool) -> None:
        """Say what follows from a step that stands for a call.

        Args:
            name: The name of the model.
            is_first: Whether it is the first step of the training.
        """
        if not self._was_called:
            self._stand_for_calls = True
            self._log.say(_BY_STEPS)
        if self._mixed > 1:
            self._log.warn(_SEVERAL.format(name))
        if is_first and self._feed.are_buffers_written():
            self._log.warn(_BUFFERS.format(name))

    def words(self) -> str:
        """Return in words that steps stand for calls; "" if they do not."""
        return _BY_STEPS if self._stand_for_calls else ""
