"""Find the epochs and the ids of rows of a training that names neither.

Both follow from where the batch of a call comes from: its epoch (``epochs/``), the ids of its rows
(``item_finder.py``), and the data that they are of (``pass_data.py``). A batch that is not recognized is
taken to be the newest one only if its iteration is still under way, or has trained the model before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..backends.feeds import Feed, Judged, Moment, Origin, Undecided
from ..core.record import TRAINING_MODE
from .epochs import EpochFinder, EpochLog
from .item_finder import ItemFinder
from .pass_data import UNKNOWN, Data, PassData
from .warn_once import WarningLog

_FURTHER = (
    "Epoch {:g} is the model after it changed further in epoch {:g}, which the probe set had shown: by "
    "another loader, by steps after the data had ended, or by a write to its parameters or buffers. Later "
    "epochs are counted from there. Set watch.epoch = number before each epoch to count otherwise."
)
_PART = "Epoch {:g} is a part: the training was resumed inside of it, and its passes are those since then."
_SCRIPT = "set by the script"


class _Observed(NamedTuple):
    """The parts that need a framework which tells what gives the batches."""

    feed: Feed
    data: PassData
    epochs: EpochFinder


class DataSource:
    """The epochs and item ids of the batches of one model, as far as they are known.

    Args:
        feed: What gives the batches; None if the framework does not tell.
        order: Returns a hash of the data in a call's arguments, or something else if there is none.
        troubles: Gets the sentences for the page.
        on_epoch_over: Called when an epoch is over, if that is known before the next one begins.
        on_doubt: Called as ``on_doubt(note, modes, withdraw)`` if rows with labels in these modes were
            perhaps other items, or with ``withdraw`` were not those of the labels.
        on_other_inputs: Called if items have other inputs than before.
    """

    def __init__(
        self,
        feed: Feed | None,
        order: Callable[[Any], Any],
        troubles: WarningLog,
        on_epoch_over: Callable[[], None],
        on_doubt: Callable[[str, Iterable[str], bool], None] = lambda note, modes, withdraw: None,
        on_other_inputs: Callable[[], None] = lambda: None,
    ) -> None:
        self._log, self._troubles = EpochLog(troubles), troubles
        self._items = ItemFinder(feed, troubles, on_doubt, on_other_inputs)
        self._observed: _Observed | None = None
        if feed is not None:
            epochs = EpochFinder(feed, order, self._log, on_epoch_over)
            self._observed = _Observed(feed, PassData(feed, troubles), epochs)
        self._came = 0  # batches that had come at the last call or step of any kind
        self._loop: Origin | None = None  # that of the loop before the last call or step, if it is found
        self._evaluated: int | None = None  # the iteration whose batch the last call in evaluation had
        self._resumed: float | None = None  # the epoch inside of which the training was resumed
        self._part = ""  # says which epoch is a part

    # -- how epochs and ids are found ------------------------------------------------------------------

    @property
    def epochs(self) -> str:
        """The way in which epochs are found, in words."""
        how = self._log.how if self._observed is None else self._observed.epochs.words()
        return f"{how}. {self._part}" if self._part else how

    @property
    def items(self) -> str:
        """The way in which the ids of rows are found, in words."""
        return self._items.how

    def epochs_are_set(self, how: str = _SCRIPT) -> None:
        """Register that epochs are known otherwise, so that none are looked for."""
        self._log.how = how
        if self._observed is not None:
            self._observed.epochs.is_searching = False

    def items_are_set(self, how: str = _SCRIPT) -> None:
        """Register that ids of rows are known otherwise, so that none are looked for."""
        self._items.are_set(how)

    @property
    def are_passes_recorded(self) -> bool:
        """True if the passes themselves are recorded, and not a probe set instead."""
        return self._log.are_passes_recorded

    @are_passes_recorded.setter
    def are_passes_recorded(self, value: bool) -> None:
        self._log.are_passes_recorded = value

    @property
    def is_observing(self) -> bool:
        """True if the framework tells what shows a training."""
        return self._observed is not None

    @property
    def is_searching(self) -> bool:
        """True as long as epochs or ids of rows are to be found."""
        observed = self._observed
        return observed is not None and (observed.epochs.is_searching or self._items.is_searching)

    @property
    def finds_epochs(self) -> bool:
        """True if epochs are found, and the script does not name them."""
        return self._observed is not None and self._observed.epochs.is_searching

    def say_further(self, epoch: float) -> None:
        """Say once that a model which changed after an epoch was shown is another epoch."""
        if self._log.is_new(_FURTHER):
            self._log.add(_FURTHER.format(epoch + 1, epoch))

    def end(self, name: str, epoch: float) -> None:
        """Say if passes of a training may be of several epochs, because nothing showed where others begin."""
        if self._observed is not None:
            self._observed.epochs.say_doubts(name, epoch)

    def remove(self) -> None:
        """Stop observing."""
        if self._observed is not None:
            self._observed.epochs.remove()
            self._observed.feed.remove()

    # -- the epoch of a call or step -------------------------------------------------------------------

    def epoch_of(self, inputs: Any, epoch: float) -> float:
        """Return the epoch of a call that is about to run.

        Args:
            inputs: The arguments of the call.
            epoch: The present epoch.
        """
        observed = self._observed
        if observed is None or not self.is_searching:
            return epoch
        self._loop = observed.epochs.newest()
        since, self._came = self._came, observed.feed.came()
        observed.data.call_begins(self._came)
        if not observed.feed.is_training():
            return self._epoch_of_evaluation(observed, inputs, epoch)
        origin = _trained_on(observed, inputs, since)
        epoch = observed.epochs.at_call(inputs, origin, epoch, since)
        if origin is not None:
            self._items.trains(origin)
        if (newest := observed.epochs.newest()) is not None:  # which no call may be known to have a batch of
            observed.data.trains(newest)
        for one in observed.epochs.around():
            observed.data.trains(one)
        return epoch

    def epoch_at_step(self, epoch: float, name: str) -> float:
        """Return the epoch of a step of an optimizer that is about to change the model.

        It differs from the present epoch only if the model was not called to train it: compiled code, other
        methods, and ``forward`` itself leave no call of it.

        Args:
            epoch: The present epoch.
            name: The name of the model.
        """
        observed = self._observed
        if observed is None or not self.finds_epochs or not observed.epochs.step_begins(epoch):
            return epoch
        self._loop = observed.epochs.newest()
        since, self._came = self._came, observed.feed.came()
        origin = _trained_on(observed, (), since)
        return observed.epochs.at_step(origin, epoch, since, name)

    @property
    def is_first(self) -> bool:
        """True if the last call or step with an epoch was the first of the training.

        Then the model is as it was before.
        """
        return self._observed is not None and self._observed.epochs.is_first

    @property
    def checked_s(self) -> float:
        """The processor seconds that it took to find out whether the parameters changed."""
        return 0.0 if self._observed is None else self._observed.epochs.changes.checked_s

    def _epoch_of_evaluation(self, observed: _Observed, inputs: Any, epoch: float) -> float:
        """Return the epoch of a call that does not train the model.

        A model that nothing trains may change all the same, such as an average of another's parameters.
        """
        feed, _, epochs = observed
        counts, looks = epochs.counts_evaluations(), self._items.has_no_dataset
        if not counts and not looks:
            return epoch
        origin = feed.origin(inputs, (), guesses=True, since=self._came)
        iteration = origin.iteration if origin is not None else self._came
        if iteration == self._evaluated:
            return epoch
        self._evaluated = iteration
        if looks and origin is not None and not feed.has_optimizer():  # which a model under training has
            self._items.evaluates(origin)
        return epochs.at_evaluation(origin, epoch) if counts else epoch

    # -- the rows of a call ----------------------------------------------------------------------------

    def items_of(self, inputs: Any, mode: str) -> np.ndarray | None:
        """Return the ids of the rows of a call that is about to be recorded; None if they are not known.

        Args:
            inputs: The arguments of the call.
            mode: The mode of the call.
        """
        if self._observed is None:
            return None
        _, data, epochs = self._observed
        return self._items.ids_of(inputs, mode, data.training, are_kept=epochs.are_rows_unknown())

    def keep_items(self, inputs: Any, at: Moment) -> None:
        """Keep the rows of a call that begins, of which it is asked later.

        Args:
            inputs: The arguments of the call.
            at: The state of the training at it.
        """
        if self._observed is not None and self._items.is_searching:
            at.items.append(self._observed.feed.items(inputs))

    @property
    def has_ids(self) -> bool:
        """True if the ids of recorded rows are found."""
        return self._items.has_ids

    @property
    def has_copies(self) -> bool:
        """True if many items are known to be exact copies of others."""
        return self._items.has_copies

    @property
    def is_refused(self) -> bool:
        """True if labels cannot be for the rows of the last call without ids, not even in their order.

        They are of another dataset than the labels, or were reordered.
        """
        return self._items.is_refused

    def data_of(self, inputs: Any) -> Data:
        """Return the data that the rows of a call are of."""
        if self._observed is None:
            return UNKNOWN
        feed, data, _ = self._observed
        return data.of(inputs, trains=feed.is_training(), is_followed=self.is_searching)[0]

    def is_of_second(self, inputs: Any, epoch: float, mode: str) -> bool:
        """Return whether a call that trains nothing has rows of a second dataset in its epoch and mode."""
        if self._observed is None or mode == TRAINING_MODE or self._observed.feed.is_training():
            return False
        return self._observed.data.is_of_second(inputs, epoch, mode, is_followed=self.is_searching)

    # -- the state of the training ---------------------------------------------------------------------

    def undecided(self) -> Undecided | None:
        """Return what tells whether the call that begins trains the model; None if its mode does."""
        return None if self._observed is None else self._observed.feed.undecided()

    def expects_step(self) -> bool | None:
        """Return whether an optimizer may step the model; None if that is not known. See ``Feed``."""
        return self._observed is not None and self._observed.feed.expects_step()

    @contextmanager
    def judged(self, judged: Judged) -> Iterator[None]:
        """Return a context in which a call of before is looked at, of which it is known what it does."""
        if self._observed is not None:
            self._observed.feed.judged = judged
        try:
            yield
        finally:
            if self._observed is not None:
                self._observed.feed.judged = None

    @property
    def stepped(self) -> int:
        """The number of steps of optimizers so far."""
        return 0 if self._observed is None else self._observed.feed.stepped()

    def has_steps(self) -> bool:
        """Return whether an optimizer has changed the model."""
        return self._observed is not None and self._observed.epochs.has_steps()

    def is_untrained(self) -> bool:
        """Return whether the parameters are known to have the values that they had before the training."""
        return self._observed is not None and self._observed.epochs.is_untrained()

    def trains(self) -> bool | None:
        """Return whether the call in progress trains the model; None if the framework does not tell."""
        return None if self._observed is None else self._observed.feed.is_training()

    def resumes_inside(self, epoch: float) -> None:
        """Register that the training is resumed inside of an epoch, whose passes are then a part."""
        self._resumed = epoch

    def is_part(self, epoch: float) -> bool:
        """Return whether a pass that trains is of an epoch inside of which the training was resumed."""
        if epoch != self._resumed:
            return False
        if not self._part:
            self._part = _PART.format(epoch)
            self._troubles.inform("epochs", self._part)
        return True

    def is_stopped_inside(self) -> bool:
        """Return whether the training has stopped inside of an epoch whose passes were recorded."""
        if self._observed is None or not self.are_passes_recorded:
            return False
        return self._observed.data.is_stopped_inside(self._observed.epochs.newest())

    def stopped_epochs(self, epoch: float, *, is_last: bool) -> list[float]:
        """Register the end of an epoch, and return those inside of which the training is known to stop.

        Args:
            epoch: The epoch.
            is_last: Whether the training ends with it, or goes back to an earlier one.
        """
        if self._observed is None or not self.are_passes_recorded:
            return []
        _, data, epochs = self._observed
        if is_last or not epochs.is_searching:
            return data.stopped_epochs(epoch, epochs.newest(), is_last=is_last)
        # the first call of the next one has come
        return [] if self._loop is None else data.stopped_epochs(epoch, self._loop, is_last=False)


def _trained_on(observed: _Observed, inputs: Any, since: int) -> Origin | None:
    """Return where the batch of a call or step that trains comes from, and register it.

    Args:
        observed: What tells it.
        inputs: The arguments of the call.
        since: The number of batches that had come at the last call or step.
    """
    feed, data, epochs = observed
    origin = feed.origin(inputs, data.training, guesses=epochs.guesses(), since=since)
    if origin is not None:
        data.trains(origin)
    return origin
