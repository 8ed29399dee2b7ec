"""Find the epochs of one model in whichever way shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends.feeds import Feed, Origin
from .by_batch import EpochsByBatch
from .by_evaluation import EpochsByEvaluation
from .by_loader import EpochsByLoader
from .by_step import StepsAsCalls
from .changes import ModelChanges
from .first_batch import Order
from .log import EpochLog


class EpochFinder:
    """Finds the epochs of one model: by the first loader that gives it a batch, or else by its batches.

    Args:
        feed: What gives the batches.
        order: Returns a hash of the data in a call's arguments, or something else if there is none.
        log: Gets how epochs are found.
        on_epoch_over: Called when an epoch is over, if that is known before the next one begins.

    Attributes:
        is_searching: Whether epochs are to be found, and the script does not name them.
        is_first: Whether the last call or step with an epoch was the first of the training, so that the model
            is as it was before.
        changes: The changes of the parameters.
    """

    def __init__(self, feed: Feed, order: Order, log: EpochLog, on_epoch_over: Callable[[], None]) -> None:
        self._feed, self._order, self._log, self._on_epoch_over = feed, order, log, on_epoch_over
        self.is_searching, self.is_first = True, False
        self.changes = ModelChanges(feed, log)
        self._by_loader: EpochsByLoader | None = None
        self._by_batch = EpochsByBatch(feed, order, log, self.changes)
        self._by_evaluation = EpochsByEvaluation(log, self.changes)
        self._by_step = StepsAsCalls(feed, log)
        self._stepped = -1  # steps of optimizers at the last call that trains
        self._values: Any = None  # first values of that call, if they were read
        feed.on_end = self._ended

    def guesses(self) -> bool:
        """Return whether a call may be of the newest loader, as nothing shows a training without one."""
        by_loader = self._by_loader
        return not (self._by_batch.have_trained() if by_loader is None else by_loader.are_kept_in_use())

    def at_call(self, inputs: Any, origin: Origin | None, epoch: float, since: int) -> float:
        """Return the epoch of a call that trains the model and is about to run.

        Args:
            inputs: The arguments of the call.
            origin: Where its batch comes from; None if that is not known.
            epoch: The present epoch.
            since: The number of batches that had come at the last call.
        """
        is_again = self._comes_again(inputs, since)
        self._stepped = self._feed.stepped()
        self._by_step.on_call(self._feed.came())
        self.changes.on_call()
        self.is_first = self._is_unknown() and not self.has_steps()
        if not self.is_searching or is_again:
            return epoch
        if origin is not None:
            epoch = self._epoch_of_loader(inputs, origin, epoch, since)
        elif self._by_loader is not None:
            epoch = self._by_loader.epoch_within(inputs, epoch)
        else:
            epoch = self._by_batch.epoch_of(inputs, epoch)
        self._log.epoch = epoch
        return epoch

    def step_begins(self, epoch: float) -> bool:
        """Register a step of an optimizer that is about to run, and return whether an epoch may begin.

        Args:
            epoch: The present epoch.
        """
        self._log.epoch = epoch
        self.changes.look_now_and_then()
        if not self._by_step.stands_for_call(epoch):
            return False
        self.is_first = epoch == 0 and not self.has_steps() and not self.changes.since_epoch()
        return True

    def at_step(self, origin: Origin | None, epoch: float, since: int, name: str) -> float:
        """Return the epoch of a step that stands for a call.

        Args:
            origin: Where the batch comes from; None if that is not known.
            epoch: The present epoch.
            since: The number of batches that had come at the last call or step.
            name: The name of the model.
        """
        if origin is not None:
            self._log.epoch = self._epoch_of_loader((), origin, epoch, since)
        elif epoch == 0:
            self._by_batch.begin()
            self.changes.advance()
            self._log.epoch = 1
        self._by_step.say(name, is_first=self.is_first)
        return self._log.epoch

    def counts_evaluations(self) -> bool:
        """Return whether evaluations may be epochs, as long as nothing trains the model."""
        return self.is_searching and self._log.are_passes_recorded and self._is_unknown()

    def at_evaluation(self, origin: Origin | None, epoch: float) -> float:
        """Return the epoch of a call that does not train the model, with other data than the one before."""
        begun = self._by_evaluation.epoch_of(origin, epoch)
        if begun > epoch:
            self._log.epoch = begun
        return begun

    def has_steps(self) -> bool:
        """Return whether an optimizer has changed the model."""
        return self._feed.steps() > 0

    def is_untrained(self) -> bool:
        """Return whether the parameters are known to have the values that they had before the training."""
        if not self.has_steps():
            return False
        self.changes.look()
        return not self.changes.is_moved

    def newest(self) -> Origin | None:
        """Return the newest iteration of the loop of the training; None if epochs are found otherwise."""
        return self._by_loader.newest() if self.is_searching and self._by_loader is not None else None

    def around(self) -> list[Origin]:
        """Return iterations over other data in whose loop's body that of the training may be."""
        return self._by_loader.around() if self.is_searching and self._by_loader is not None else []

    def are_rows_unknown(self) -> bool:
        """Return whether the rows of calls that train are not known, because their batches were kept."""
        return self._by_loader is not None and self._by_loader.kept.are_rows_unknown()

    def words(self) -> str:
        """Return in words how epochs are found, and why there may be others."""
        how = self._log.how
        if self._log.is_found and (by_steps := self._by_step.words()):
            how = f"{how} {by_steps}"
        return self._with_doubts(how) if self.is_searching else how

    def say_doubts(self, name: str, epoch: float) -> None:
        """Say if passes of a training may be of several epochs, because nothing showed where others begin."""
        if self.is_searching:
            self._log.say(self._by_evaluation.frozen() or self._open_end())
            self._log.warn(self._doubt())
            self._by_batch.say_no_epochs(name, epoch)

    def remove(self) -> None:
        """Stop finding epochs."""
        if self.is_searching:
            self._log.how, self.is_searching = self._with_doubts(self._log.how), False

    def _comes_again(self, inputs: Any, since: int) -> bool:
        """Return whether a call has the batch of the one before it, in the same step of the optimizer.

        So it is with a closure that the optimizer calls several times, and the second pass of SAM.
        """
        feed, before = self._feed, self._values
        has_come = since != feed.came()  # another batch of a loader
        self._values = None if has_come and self._by_loader is not None else feed.first_values(inputs)
        if has_come or self._stepped != feed.stepped() or before is None or before != self._values:
            return False
        return feed.stepped() > 0 or (self.changes.since_epoch() and self.changes.are_by_optimizer())

    def _is_unknown(self) -> bool:
        """Return whether no batch of a training came."""
        return self._by_loader is None and not self._by_batch.has_first

    def _epoch_of_loader(self, inputs: Any, origin: Origin, epoch: float, since: int) -> float:
        if self._by_loader is not None:
            return self._by_loader.epoch_of(inputs, origin, epoch, since)
        is_new_model = self._by_evaluation.is_new_model() or self._by_batch.came_before(origin)
        self.changes.advance()
        if not self._by_batch.have_trained():
            self.changes.training_begins()
        self._by_loader = EpochsByLoader(self._feed, self._order, self._log, self.changes, inputs, origin)
        return self.changes.next_epoch(epoch) if epoch == 0 or is_new_model else epoch

    def _ended(self, iteration: int) -> None:
        """Tell that an epoch is over, unless its last step is still to come."""
        if not self.is_searching or self._by_loader is None or not self._by_loader.may_end(iteration):
            return
        if self._stepped != self._feed.stepped():
            self.changes.epoch_over = self._log.epoch
            self._on_epoch_over()

    def _doubt(self) -> str:
        """Return in words that passes may be of several epochs; "" if nothing suggests it."""
        by_loader = self._by_loader
        if by_loader is None:
            return self._by_batch.doubt()
        return by_loader.doubt() or self._by_batch.doubt() or by_loader.doubt_of_others()

    def _open_end(self) -> str:
        return "" if self._by_loader is None else self._by_loader.open_end()

    def _with_doubts(self, how: str) -> str:
        """Return the words for how epochs are found, and why there may be others."""
        frozen = self._by_evaluation.frozen()
        texts = f"{how}." if frozen else how, self._doubt(), frozen or self._open_end()
        return " ".join(filter(None, texts))
