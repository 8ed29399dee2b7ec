"""Say why iterations are joined to one epoch: the parameters did not change in between."""

from __future__ import annotations

from .changes import ModelChanges
from .log import EpochLog

_UNCHANGED = (
    "No new epoch was found since epoch {:g}, although another iteration began {}: as far as can be seen, "
    "the parameters of the probed model did not change. Set watch.epoch = number before each epoch."
)
_JOINED = (
    "Epoch {:g} has the passes of {} iterations of {}, because the parameters did not change in the first: "
    "gradients may have accumulated over all of it, its steps may have been skipped, or it may be an "
    "evaluation of the epoch before, in training mode and with gradients. Evaluate under torch.no_grad() or "
    "after model.eval(), or set watch.epoch = number before each epoch."
)
_JOINED_MODELS = (
    "Epoch {:g} is the model after {} iterations of {}, because the parameters did not change in the first: "
    "it may be an evaluation of the epoch before, in training mode and with gradients, or its steps were "
    "skipped."
)
_ACCUMULATED = (
    "Epoch {:g} is the model after {} iterations of {}, because the parameters did not change in the first, "
    "although gradients came: they may accumulate over more batches than it gives, or its steps were "
    "skipped. So there are fewer epochs than iterations. Set watch.epoch = number before each epoch."
)
_PEEK = (
    "Epoch {:g} also has the rows of one pass with a batch of {} before it was iterated anew, when the "
    "parameters had not changed. To see a shape, call the model before probe()."
)


class JoinedIterations:
    """The iterations since the present epoch began that the model was not changed in.

    Args:
        log: Gets what is to be said.
        changes: The changes of the parameters.

    Attributes:
        has_gradients: Whether gradients were left by the newest iteration when it was over.
    """

    def __init__(self, log: EpochLog, changes: ModelChanges) -> None:
        self._log, self._changes = log, changes
        self._joined, self._have_gradients = 0, False  # and whether gradients came in one of them
        self._gradients = 0  # when the newest iteration began
        self.has_gradients = False

    def begin(self) -> None:
        """Register that an iteration begins."""
        self._gradients, self.has_gradients = self._changes.gradients(), False

    def end(self) -> None:
        """Register that all batches of the iteration were used."""
        self.has_gradients = self._changes.gradients() not in (0, self._gradients)

    def join(self, *, has_gradients: bool) -> None:
        """Register an iteration that did not change the model."""
        self._joined += 1
        self._have_gradients = self._have_gradients or has_gradients

    def say_peek(self, epoch: float, name: str) -> None:
        """Say once that a single batch came before the loader was iterated anew, as to see a shape."""
        if self._log.is_new(_PEEK):
            self._log.say(_PEEK.format(epoch, name))

    def split(self, epoch: float, name: str) -> None:
        """Register that another epoch begins, and say once that this one has several iterations.

        With a probe set it may still show each model.
        """
        if self._joined:
            with_gradients = _ACCUMULATED if self._have_gradients else _JOINED_MODELS
            words = _JOINED if self._log.are_passes_recorded else with_gradients
            if self._log.is_new(words):
                text = words.format(epoch, self._joined + 1, name)
                self._log.add(text, "info" if words is _JOINED_MODELS else "warning")
        self._joined, self._have_gradients = 0, False

    def doubt(self) -> str:
        """Return in words that iterations were joined which may be epochs; "" if there are none."""
        if not self._joined:
            return ""
        return _UNCHANGED.format(self._log.epoch, "once" if self._joined == 1 else f"{self._joined} times")
