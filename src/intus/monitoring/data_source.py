"""Find the epochs and the ids of rows of a training that names neither.

An epoch begins when the DataLoader of the training is iterated anew, or else when the first batch comes
again, in both cases only after the parameters changed. Iterations that begin while that of the training is
under way are of other loaders and count no epochs, nor does a loader that takes the place of another which
was broken off, nor one whose batches are not seen to train the model: a batch that is not recognized in a
call is taken to be the newest one only if its iteration is still under way, or has trained the model before.
A loader over another dataset, or another part of it, that follows it may be the rest of the same epoch. Which
it is, shows what comes next: if that is another iteration of it, and not of the first, it is another epoch. A
part that follows several epochs over another is a stage of the training, with epochs of its own. Where the
model itself is not called, as inside ``torch.compile``, the steps of its optimizer stand for its calls.
Epoch 0 is the model before its training.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from ..backends.feeds import Feed, Origin
from .contents import Repeats
from .item_finder import ItemFinder
from .pass_data import UNKNOWN, Data, PassData
from .search_log import NOT_FOUND
from .warn_once import WarningLog

_BY_LOADER = "Epochs are found from {}: one begins when it is iterated anew after the parameters changed."
_ASIDE = " {} was iterated over meanwhile, which counts none."
_UNCHANGED = (
    " No new epoch was found since epoch {:g}, although another iteration began {}: as far as can be seen, "
    "the parameters of the probed model did not change. Set watch.epoch = number before each epoch."
)
_USED_AGAIN = (
    " No new epoch was found since epoch {:g}, although {} passes followed the end of an iteration that gave "
    "{} batches: if these were kept and used again, their epochs cannot be told apart. Set watch.epoch = "
    "number before each epoch."
)
_ONE_BATCH = (
    " No new epoch was found since epoch {:g}, although {} steps of its optimizer followed a single batch of "
    "{}: epochs over parts of it cannot be told apart. Set watch.epoch = number before each epoch."
)
_ENDLESS = (
    " No new epoch was found since epoch {:g}: one iteration of {} has given as many rows as {:.3g} times "
    "its dataset, and goes on. Set watch.epoch = number before each epoch."
)
_NO_LENGTH = (
    " One iteration of {} gave all passes of epoch {:g}, and it has not ended: if its data begins again "
    "inside of it, that begins no epoch. Set watch.epoch = number before each epoch to count them."
)
_UNDONE = (
    "Epoch {:g} also has the passes of a training that was undone: the parameters had the values again that "
    "they had before it, as after a search for a learning rate. To leave them out, search before probe()."
)
_UNDONE_BEFORE = (
    "Epochs up to {:g} are of a training that was undone: in epoch {:g} the parameters began with the values "
    "that they had before epoch 1, as after a search for a learning rate or in another fold of "
    "a cross-validation. Search before probe(), begin another run, or set watch.epoch = number before each "
    "epoch."
)
_UNCHANGED_IN = (
    "Epoch {:g} did not change the parameters, as far as was seen, as with a learning rate of 0: the next "
    "one begins with the values that they had before epoch 1."
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
_AGAIN = " Its batches were kept and used again, and an epoch begins when the first of them comes again."
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
_FURTHER = (
    " Epoch {:g} is the model after it changed further in epoch {:g}, which the probe set had shown: by "
    "another loader, by steps after the data had ended, or by a write to its parameters or buffers. Later "
    "epochs are counted from there. Set watch.epoch = number before each epoch to count otherwise."
)
_SHARED = (
    " Epoch {:g} has the passes of several datasets, or parts of one: those of {} were followed by others, "
    "the last of {}, and it was not known then whether they are epochs of their own. Set watch.epoch = "
    "number before each epoch."
)
_RETURNED = (
    "Epoch {:g} may be a part of one: it has the passes of {}, which was taken for a stage of the training, "
    "and then {} came again. So perhaps both are parts of one epoch, and are counted apart. Set watch.epoch "
    "= number before each epoch."
)
_NOT_AS_BEFORE = (
    " Epoch {:g} has the passes of {} and of {} others, and the epoch before of it and of {}: these are "
    "datasets, or parts of one, that follow each other, and it is not known which of them are epochs of "
    "their own. Set watch.epoch = number before each epoch."
)
_BY_EVALUATION = (
    "The model is called in evaluation mode or without gradients alone, and its parameters change meanwhile: "
    "epochs are its evaluations, counted from 0, and another one begins with the first call with other data "
    "after a change. Epoch 0 is the model as it was evaluated first, so it may be trained: the average of "
    "another model after epoch 1 of that one is epoch 0 here. Set watch.epoch = number before each "
    "evaluation to count otherwise."
)
_PART = "Epoch {:g} is a part: the training was resumed inside of it, and its passes are those since then."
_BY_BATCH = "Epochs are found from the first batch: one begins when it comes again."
_UNEQUAL = (
    " Epoch {:g} has {} passes, the one before {}: if batches are drawn again at random, as from a replay "
    "buffer, these are no epochs. Set watch.epoch = number before each epoch."
)
_NO_EPOCHS = (
    "All passes of {} are in epoch {:g}, because no end of an epoch was found: no DataLoader is known to "
    "have given the batches, and the first batch never came again. Set watch.epoch = number before each "
    "epoch."
)
_FROZEN = (
    ". All passes are in epoch {:g}, over {} iterations of {}, because the parameters did not change: the "
    "model is frozen, or was not trained meanwhile. Set watch.epoch = number before each epoch."
)
_ROWS_AGAIN = (
    " No new epoch was found since epoch {:g}, although rows that were compared came twice on average: no "
    "DataLoader is known to have given the batches, and the first batch did not come again, as of "
    "permutations of tensors. Set watch.epoch = number before each epoch."
)
_FEW = 8  # stages
_MOST_SINGLE = 1 << 16  # batches of one row that are remembered
_Read = TypeVar("_Read")
_TRAINING = "train"
_SCRIPT = "set by the script"


class DataSource:
    """The epochs and item ids of the batches of one model, as far as they are known.

    Args:
        feed: What gives the batches; None if the framework does not tell.
        order: Returns a hash of the data in a call's arguments, or something else if there is none.
        troubles: Gets the sentences for the page.
        on_epoch_over: Called when an epoch is over, if that is known before the next one begins.
        on_doubt: Called as ``on_doubt(note, modes, withdraw)`` if rows that had ids in these modes were
            perhaps other items, or with ``withdraw`` were not those of the labels.
        on_other_inputs: Called if items have other inputs than before.

    Attributes:
        checked_s: The processor seconds that it took to find out whether the parameters changed.
        is_first: Whether the last call or step with an epoch was the first of the training, so that the model
            is as it was before.
        are_passes_recorded: Whether the passes themselves are recorded, and not a probe set instead.
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
        self._on_epoch_over = on_epoch_over
        self._items = ItemFinder(feed, troubles, on_doubt, on_other_inputs)
        if feed is not None:
            feed.on_end = self._ended
        self._feed, self._order, self._troubles = feed, order, troubles
        self._how = NOT_FOUND
        self._part = ""  # says which epoch is a part
        self._resumed: float | None = None  # the epoch inside of which the training was resumed
        self._finds_epochs = feed is not None
        self.checked_s = 0.0
        # The iteration by which epochs are counted. If its dataset is made anew in each epoch, and not known
        # to be the same, it moves on.
        self._current: Origin | None = None
        self._seen: dict[int, Origin] = {}  # iterations over its dataset that are under way, with the newest
        self._newest = -1  # the highest number of such an iteration so far
        self._beside: int | None = None  # of one that began after the current one gave its last batch
        self._is_meanwhile = False  # whether it was said that others give batches meanwhile
        self._calls = self._late_calls = 0  # of the training in the current iteration, and after its end
        self._calls_before: int | None = None  # in the epoch before, of a training without a loader
        # Of another dataset: those under way along with the current one, and those that followed its end.
        self._streams: set[int] = set()
        self._tails: list[Origin] = []
        self._tails_before: list[Origin] = []  # in the epoch before, which began with the same rows
        self._rest: list[Origin] = []  # those after which the current dataset came again
        self._in_a_row = 0  # iterations over the rows of the current one, with nothing else between
        self._left: list[Origin] = []  # parts that others took the place of, after an iteration of each since
        self._stepped_at_call = -1  # steps of optimizers at the last call of the training
        self._evaluated: int | None = None  # the iteration whose batch the last call in evaluation had
        # The iterations whose batches a model without epochs had so far, by the dataset and loader.
        self._evaluations: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
        self.are_passes_recorded = True
        self._unchanged = 0  # iterations since the last epoch that began without a change of the parameters
        self._gradients = 0  # of the model when the current iteration began
        self._is_accumulated = False  # whether others came by its end
        self._has_joined_gradients = False  # whether that was so of an iteration without a change
        self._is_moved = False  # whether the parameters were seen to differ from those remembered
        self._since: tuple[int, int] = 0, 0  # steps of optimizers, and calls of the training, before that
        self._trained = 0  # calls of the training
        self._looked: tuple[int, int] | None = None  # steps and calls when it was last looked at
        self._epoch_now = 0.0
        self._repeats: Repeats | None = Repeats()  # of a training without a loader; None once said
        self._are_compared_whole = False  # whether these rows are compared by all of their values
        self._single_rows: set[Any] = set()  # hashes of batches of one row, since the first of them came
        self._are_rows_mixed = False  # whether they come in another order in each epoch
        self._data = None if feed is None else PassData(feed, troubles)
        self._said: set[str] = set()  # sentences
        self._first: tuple[tuple[Any, ...] | None, Any] | None = None
        self._version: int | None = None
        self.is_first = False
        self._is_called = False  # in training, since the last step of an optimizer
        self._calls_of_kept = 0  # in an epoch of batches that were kept
        self._is_again = False  # whether the batches of an iteration were kept and used again
        self._stepped_alone: int | None = None  # steps of optimizers before a call with a batch of no loader
        self._came_alone = 0  # batches that had come before the first step of a training without a loader
        self._came_at_call = 0  # batches that had come at the last call or step of any kind
        self._came_before = 0  # and at the one before
        self._stepped_at_begin = 0  # steps of optimizers before the current iteration
        self._over: float | None = None  # the epoch that is known to be over before the next one begins
        self._came = -1  # batches that had come at the last call or step of the training
        self._is_by_steps = False  # steps of optimizers stand for calls
        self._mixed = 0  # steps in a row before which several loaders gave batches

    @property
    def epochs(self) -> str:
        """The way in which epochs are found, in words."""
        how = f"{self._how} {_BY_STEPS}" if self._is_by_steps and self._how != NOT_FOUND else self._how
        how += self._doubt() + self._open_end() if self._finds_epochs else ""
        return f"{how}. {self._part}" if self._part else how

    def epochs_are_set(self, how: str = _SCRIPT) -> None:
        """Register that epochs are known otherwise, so that none are looked for."""
        self._how, self._finds_epochs = how, False

    def items_are_set(self, how: str = _SCRIPT) -> None:
        """Register that ids of rows are known otherwise, so that none are looked for."""
        self._items.are_set(how)

    @property
    def items(self) -> str:
        """The way in which the ids of rows are found, in words."""
        return self._items.how

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

    @property
    def is_observing(self) -> bool:
        """True if the framework tells what shows a training."""
        return self._feed is not None

    @property
    def is_searching(self) -> bool:
        """True as long as epochs or ids of rows are to be found."""
        return self._feed is not None and (self._finds_epochs or self._items.is_searching)

    @property
    def finds_epochs(self) -> bool:
        """True if epochs are found, and the script does not name them."""
        return self._feed is not None and self._finds_epochs

    @property
    def stepped(self) -> int:
        """The number of steps of optimizers so far."""
        return self._feed.stepped() if self._feed is not None else 0

    def say_further(self, epoch: float) -> None:
        """Say once that a model which changed after an epoch was shown is another epoch."""
        if _FURTHER not in self._said:
            self._said.add(_FURTHER)
            text = _FURTHER.format(epoch + 1, epoch)
            self._how = text.strip() if self._how == NOT_FOUND else self._how + text
            self._troubles.inform("epochs", text.strip())

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
        return self._data is not None and self.are_passes_recorded and self._data.is_stopped_inside()

    def remove(self) -> None:
        """Stop observing."""
        if self._feed is not None:
            self._how += self._doubt() + self._open_end() if self._finds_epochs else ""
            self._finds_epochs = False
            self._feed.remove()

    def epoch_of(self, inputs: Any, epoch: float) -> float:
        """Return the epoch of a call that is about to run.

        Args:
            inputs: The arguments of the call.
            epoch: The present epoch.
        """
        feed, data = self._feed, self._data
        if feed is None or data is None or not self.is_searching:
            return epoch
        since = self._came_before = self._came_at_call
        self._came_at_call = feed.came()
        data.call_begins(self._came_at_call)
        if not feed.is_training():
            return self._epoch_of_evaluation(feed, inputs, epoch)
        self._stepped_at_call = feed.stepped()
        origin = feed.origin(inputs, data.training, guesses=self._guesses(feed), since=since)
        if origin is not None:
            data.trains(origin)
        self._is_called, self._came = True, self._came_at_call
        self._trained += 1
        self._look_now_and_then(feed)
        self.is_first = self._current is None and self._first is None and not self.has_steps()
        if self._finds_epochs:
            epoch = self._epoch_now = self._epoch(feed, inputs, origin, epoch)
        if origin is not None:
            self._items.trains(origin)
        return epoch

    def epoch_at_step(self, epoch: float, name: str) -> float:
        """Return the epoch of a step of an optimizer that is about to change the model.

        It differs from the present epoch only if the model was not called to train it: compiled code, other
        methods, and ``forward`` itself leave no call of it.

        Args:
            epoch: The present epoch.
            name: The name of the model.
        """
        feed, data = self._feed, self._data
        if feed is None or data is None or not self._finds_epochs:
            return epoch
        is_called, self._is_called = self._is_called, False
        came, before = feed.came(), self._came
        self._epoch_now = epoch
        self._look_now_and_then(feed)
        if epoch and (is_called or (came == before and not self._is_by_steps)):
            return epoch
        self._came, self.is_first = came, epoch == 0 and not self.has_steps() and not self._has_changed(feed)
        self._mixed = self._mixed + 1 if before >= 0 and len(feed.sources(before)) > 1 else 0
        since = self._came_before = self._came_at_call
        self._came_at_call = came
        origin = feed.origin((), data.training, guesses=self._guesses(feed), since=since)
        if origin is not None:
            data.trains(origin)
            self._epoch_now = self._epoch_of_loader(feed, (), origin, epoch)
        elif epoch == 0:
            self._begin_alone(feed)
            self._version, self._epoch_now = self._read_version(feed), 1
        if not is_called and not self._is_by_steps:
            self._is_by_steps = True
            self._troubles.inform("epochs", _BY_STEPS)
        if self._mixed > 1:
            self._warn_once(_SEVERAL.format(name))
        if self.is_first and feed.are_buffers_written():
            self._warn_once(_BUFFERS.format(name))
        return self._epoch_now

    def has_steps(self) -> bool:
        """Return whether an optimizer has changed the model."""
        return self._feed is not None and self._feed.steps() > 0

    def is_of_second(self, inputs: Any, epoch: float, mode: str) -> bool:
        """Return whether a call that trains nothing has rows of a second dataset in its epoch and mode."""
        if self._feed is None or self._data is None or mode == _TRAINING or self._feed.is_training():
            return False
        return self._data.is_of_second(inputs, epoch, mode, is_followed=self.is_searching)

    def data_of(self, inputs: Any) -> Data:
        """Return the data that the rows of a call are of."""
        if self._feed is None or self._data is None:
            return UNKNOWN
        return self._data.of(inputs, trains=self._feed.is_training(), is_followed=self.is_searching)[0]

    def is_untrained(self) -> bool:
        """Return whether the parameters are known to have the values that they had before the training."""
        if self._feed is None or not self.has_steps():
            return False
        self._look(self._feed)
        return not self._is_moved

    def trains(self) -> bool | None:
        """Return whether the call in progress trains the model; None if the framework does not tell."""
        return None if self._feed is None else self._feed.is_training()

    def items_of(self, inputs: Any, mode: str) -> np.ndarray | None:
        """Return the ids of the rows of a call that is about to be recorded; None if they are not known.

        Args:
            inputs: The arguments of the call.
            mode: The mode of the call.
        """
        if self._data is None:
            return None
        are_kept = self._is_again and self._is_late()
        return self._items.ids_of(inputs, mode, self._data.training, are_kept=are_kept)

    def end(self, name: str, epoch: float) -> None:
        """Say if passes of a training may be of several epochs, because nothing showed where others begin."""
        if self._feed is None or not self._finds_epochs:
            return
        if open_end := self._open_end().lstrip(". "):
            self._say_once(open_end)
        texts = [self._doubt().strip()]
        if self._how == NOT_FOUND and self._repeats is not None and self._has_changed(self._feed):
            texts.append(_NO_EPOCHS.format(name, epoch))
        for text in texts:
            self._warn_once(text)

    # ------------------------------------------------------------------------------------------------

    def _warn_once(self, text: str) -> None:
        self._say_once(text, "warning")

    def _say_once(self, text: str, *level: str) -> None:
        if text and text not in self._said:
            self._said.add(text)
            self._troubles.inform("epochs", text, *level)

    def _begin_alone(self, feed: Feed) -> None:
        """Register that the training has begun without a loader."""
        self._stepped_alone, self._came_alone = feed.stepped(), feed.came()
        self._remember(feed)

    def _is_alone(self, feed: Feed) -> bool:
        """Return whether the model was trained without a loader, and by none since."""
        return self._current is None and self._stepped_alone not in (None, feed.stepped())

    def _guesses(self, feed: Feed) -> bool:
        """Return whether a call may be of the newest loader, as nothing shows a training without one."""
        return not (self._is_alone(feed) or self._is_again or self._is_used_again(feed))

    def _is_used_again(self, feed: Feed) -> bool:
        """Return whether more calls followed the end of the current iteration than it had batches."""
        given = None if self._current is None or not self._late_calls else self._kept(feed, self._current)
        return given is not None and self._late_calls > max(given, self._calls_of_kept)

    def _is_late(self) -> bool:
        """Return whether the iteration by which epochs are counted has ended."""
        current, feed = self._current, self._feed
        return current is not None and feed is not None and feed.batches(current.iteration) is not None

    def _has_changed(self, feed: Feed) -> bool:
        """Return whether the parameters changed since the first call of the training.

        Those of a model that no longer exists changed if they did while it was observed.
        """
        if self._version is None:
            return False
        version = self._read_version(feed)
        return version != self._version if version else feed.stepped() > 0 or self._is_moved

    def _ended(self, iteration: int) -> None:
        """Tell that an epoch is over, unless its last step is still to come."""
        feed, current = self._feed, self._current
        if feed is not None and self._finds_epochs and current and iteration == current.iteration:
            self._is_accumulated = self._read_gradients(feed) not in (0, self._gradients)
            self._look(feed)
        ends = {one.iteration for one in (self._current, *self._tails[-1:]) if one is not None}
        if self._finds_epochs and iteration in ends and self._stepped_at_call != self.stepped:
            self._over = self._epoch_now
            self._on_epoch_over()

    def _epoch_of_evaluation(self, feed: Feed, inputs: Any, epoch: float) -> float:
        """Return the epoch of a call that does not train the model.

        A model that nothing trains may change all the same, such as an average of another's parameters.
        """
        counts = self._finds_epochs and self.are_passes_recorded and not (self._current or self._first)
        looks = self._items.has_no_dataset
        if not counts and not looks:
            return epoch
        origin = feed.origin(inputs, (), guesses=True, since=self._came_at_call)
        iteration = origin.iteration if origin is not None else feed.came()
        if iteration == self._evaluated:
            return epoch
        if looks and origin is not None and not feed.has_optimizer():  # which a model under training has
            self._items.evaluates(origin)
        if not counts:
            self._evaluated = iteration
            return epoch
        before, self._evaluated = self._version, iteration
        self._version = self._read_version(feed)
        if before in (None, self._version):
            if origin is not None:
                self._evaluations[origin.dataset, origin.name].add(origin.iteration)
            return epoch
        self._found(_BY_EVALUATION)
        self._epoch_now = epoch + 1
        return epoch + 1

    def _epoch(self, feed: Feed, inputs: Any, origin: Origin | None, epoch: float) -> float:
        if origin is not None:
            return self._epoch_of_loader(feed, inputs, origin, epoch)
        if self._current is not None:
            return self._epoch_within(feed, inputs, self._current, epoch)
        if self._first is None:
            self._first = feed.first_values(inputs), self._order(inputs)
            self._version = self._read_version(feed)
            self._begin_alone(feed)
            self._look_for_rows_again(feed, inputs, epoch)
            return epoch + 1 if epoch == 0 and feed.has_optimizer() else epoch
        self._calls += 1
        if not self._is_alone(feed):  # the call before was a look, and no part of the training
            self._came_alone = feed.came()
        is_first_again = self._is_first_again(feed, inputs)
        self._look_at_single_row(inputs, is_first=is_first_again)
        if self._are_rows_mixed or not is_first_again:
            self._look_for_rows_again(feed, inputs, epoch)
            return epoch
        self._found(_BY_BATCH)
        begun = self._next(feed, epoch)
        if begun > epoch:
            self._compare_lengths(epoch)
        self._calls = 0
        return begun

    def _compare_lengths(self, epoch: float) -> None:
        """Say once that an epoch that ends has another number of passes than the one before."""
        before, self._calls_before = self._calls_before, self._calls
        if before not in (None, self._calls_before) and _UNEQUAL not in self._said:
            self._said.add(_UNEQUAL)
            text = _UNEQUAL.format(epoch, self._calls_before, before)
            self._how += text
            self._troubles.inform("epochs", text.strip(), "warning")

    def _next(self, feed: Feed, epoch: float) -> float:
        """Return the number of an epoch that begins, unless the training up to here was undone.

        It was if the parameters have the values that they had before it, and others were seen meanwhile.
        """
        if not epoch or not self._timed(feed.is_restored):
            return epoch + 1
        if not self._is_moved:
            if _UNCHANGED_IN not in self._said:
                self._said.add(_UNCHANGED_IN)
                self._troubles.inform("epochs", _UNCHANGED_IN.format(epoch))
            return epoch + 1
        self._begin_to_look(feed)
        level = ["warning"] if self.are_passes_recorded else []
        if epoch == 1 != self._over:
            self._say_once(_UNDONE.format(epoch), *level)
            return epoch
        self._say_once(_UNDONE_BEFORE.format(epoch, epoch + 1), "warning")
        return epoch + 1

    def _remember(self, feed: Feed) -> None:
        """Remember the parameters, with which a training that is undone begins anew."""
        self._timed(feed.remember)
        self._begin_to_look(feed)

    def _begin_to_look(self, feed: Feed) -> None:
        self._is_moved, self._looked, self._since = False, None, (feed.stepped(), self._trained)

    def _look_now_and_then(self, feed: Feed) -> None:
        """Look at the parameters after 1, 2, 4, 8, … steps, or calls before any step, until they differ."""
        if self._is_moved:
            return
        steps, calls = feed.stepped() - self._since[0], self._trained - self._since[1]
        number = steps or calls
        if number & (number - 1) or (steps, number) == self._looked:
            return
        self._looked = steps, number
        self._look(feed)

    def _look(self, feed: Feed) -> None:
        """Look whether the parameters differ from those remembered."""
        self._is_moved = self._is_moved or not self._timed(feed.is_restored)

    def _look_at_single_row(self, inputs: Any, *, is_first: bool) -> None:
        """Note whether batches of one row come in an order of their own in each epoch.

        Then the first of them comes again in the midst of another epoch, and others have come again before.
        """
        values, digest = self._first or (None, None)
        if values is None or values[0][:1] != (1,) or self._are_rows_mixed:
            return
        if is_first:
            self._single_rows.clear()
            return
        found = self._order(inputs)
        self._are_rows_mixed = found != digest and found in self._single_rows
        if len(self._single_rows) < _MOST_SINGLE:
            self._single_rows.add(found)

    def _look_for_rows_again(self, feed: Feed, inputs: Any, epoch: float) -> None:
        """Say once that epochs are not found, if each row of a training without a loader has come twice.

        Few values of the rows are compared first. If these came again, so did the rows, or others like them.
        """
        if self._repeats is None or not (self._how == NOT_FOUND or self._are_rows_mixed):
            return
        found = feed.row_contents(inputs, by_all=self._are_compared_whole)
        if found is None or not self._repeats.see(found[0]):
            return
        if not found[1]:
            self._repeats, self._are_compared_whole = Repeats(), True
        elif not self._repeats.are_few and self._has_changed(feed):
            self._repeats = None
            self._warn_once(_ROWS_AGAIN.format(epoch).strip())

    def _is_first_again(self, feed: Feed, inputs: Any) -> bool:
        """Return whether a call has the first batch again, after the parameters changed."""
        values, digest = self._first or (None, None)
        if values is None or feed.first_values(inputs) != values:
            return False
        version = self._read_version(feed)
        if version == self._version or not isinstance(digest, bytes) or self._order(inputs) != digest:
            return False
        self._version = version
        return True

    def _epoch_of_loader(self, feed: Feed, inputs: Any, origin: Origin, epoch: float) -> float:
        current = self._current
        if current is None:
            is_later = self._is_alone(feed) and not origin.was_under_way and origin.came > self._came_alone
            is_trained = self._is_evaluated_anew(feed) or is_later
            self._version = self._read_version(feed)
            if not self._is_alone(feed):
                self._remember(feed)
            outer = feed.outer(origin)
            self._found(_BY_LOADER.format(outer.name))
            self._moves_on(feed, inputs, outer)
            if outer.iteration != origin.iteration:
                self._streams.add(origin.iteration)
            return self._next(feed, epoch) if epoch == 0 or is_trained else epoch
        if origin.iteration == current.iteration:
            self._beside = None
            return self._epoch_within(feed, inputs, current, epoch)
        outer = origin if feed.is_open(current.iteration) else feed.outer(origin, current.dataset)
        if outer.iteration != origin.iteration and outer.dataset == current.dataset:
            self._streams.add(origin.iteration)
            origin = outer  # the loop begins anew, and its body takes this batch first
        if origin.iteration in self._seen:
            return epoch
        is_gone = origin.dataset != current.dataset and feed.is_gone(current.dataset)
        may_follow = origin.dataset != current.dataset or self._is_next_part(feed, current, origin, epoch)
        if may_follow and not is_gone:
            if not self._follows(feed, current, origin):
                return epoch
            is_gone = True
        if not is_gone:
            self._rest += [one for one in self._tails if not self._is_known_rest(one)]
        under_way = {number: one for number, one in self._seen.items() if feed.is_open(number)}
        self._seen = under_way | {origin.iteration: origin}
        if origin.iteration < self._newest:  # it began before, and gives its first batch now
            self._say_meanwhile(origin)
            return epoch
        self._newest = origin.iteration
        is_over = feed.is_over(current.iteration) or is_gone
        # Forgotten is an iterator that was kept, if a whole other iteration has passed since it gave a batch.
        is_forgotten = self._beside is not None and feed.batches(self._beside) is not None
        if current.iteration in under_way:
            leading = [current]
        else:
            leading = [one for one in under_way.values() if not is_over or one.length > current.length]
        if leading and not is_forgotten:
            self._say_meanwhile(origin)
            self._beside = origin.iteration
            self._current = max(leading, key=attrgetter("length"))
            return epoch
        calls, has_accumulated = self._calls, self._is_accumulated
        self._moves_on(feed, inputs, origin)
        if not is_over and origin.loader != current.loader:
            return epoch  # the other was broken off, such as one that gives a batch in each step
        version = self._read_version(feed)
        if version == self._version:
            if is_over or calls > 1:
                self._unchanged += 1
                self._has_joined_gradients = self._has_joined_gradients or has_accumulated
            elif _PEEK not in self._said:  # a single batch was to see a shape
                self._said.add(_PEEK)
                self._troubles.inform("epochs", _PEEK.format(epoch, origin.name))
            return epoch
        if self._unchanged:
            self._say_joined(epoch, origin.name)
        self._version, self._unchanged, self._has_joined_gradients = version, 0, False
        return self._next(feed, epoch)

    def _epoch_within(self, feed: Feed, inputs: Any, current: Origin, epoch: float) -> float:
        """Return the epoch of a call that no other iteration than the current one is known to have."""
        given = self._kept(feed, current)
        if given and self._calls % given == 0 and self._is_first_again(feed, inputs):
            self._calls_of_kept, self._calls, self._late_calls = self._calls, 1, 0
            self._say_again()
            return self._next(feed, epoch)
        self._calls += 1
        self._late_calls += given is not None
        return epoch

    def _kept(self, feed: Feed, current: Origin) -> int | None:
        """Return how many batches an iteration gave that gives no more; None if it may."""
        return None if feed.is_open(current.iteration) else feed.given(current.iteration)

    def _moves_on(self, feed: Feed, inputs: Any, origin: Origin) -> None:
        """Count epochs by another iteration from now on."""
        values = feed.first_values(inputs)
        self._first = values, None if values is None else self._order(inputs)
        before = [one for one in (self._current, *self._tails[-1:]) if one is not None]
        is_again = any(map(origin.has_rows_of, before))
        self._in_a_row = self._in_a_row + 1 if is_again else 1
        if before and origin.has_rows_of(before[0]):
            if _NOT_AS_BEFORE not in self._said and (text := self._not_as_before()):
                self._said.add(_NOT_AS_BEFORE)
                self._warn_once(text.strip())
            self._tails_before = self._tails
        else:
            self._tails_before = []
        self._current, self._newest, self._beside = origin, origin.iteration, None
        self._seen = {origin.iteration: origin}
        self._calls, self._late_calls, self._stepped_at_begin = 1, 0, feed.stepped()
        self._gradients, self._is_accumulated = self._read_gradients(feed), False
        self._tails, self._streams = [], {one for one in self._streams if feed.is_open(one)}

    def _is_next_part(self, feed: Feed, current: Origin, origin: Origin, epoch: float) -> bool:
        """Return whether an iteration over another part of a dataset may be the rest of an epoch.

        It is no stage of the training, as after several epochs over the current part or instead of one that
        is made anew in each epoch, and its batches do not come along with others.
        """
        if origin.dataset != current.dataset or origin.has_rows_of(current):
            return False
        others = feed.sources(self._came_before) - {origin.iteration}
        is_beside = not feed.is_over(current.iteration) or any(map(feed.is_open, others))
        if is_beside and not self._tails:
            return False
        has_returned = self._has_returned(current, origin, epoch)
        if self._tails or self._is_known_rest(origin):
            return True
        is_stage = self._in_a_row > 1 or feed.is_gone(current.drawn_from)
        if is_stage and not has_returned:
            self._left = [*self._left[-_FEW:], current]
        return not (is_stage or has_returned)

    def _has_returned(self, current: Origin, origin: Origin, epoch: float) -> bool:
        """Return whether a part comes again after others that were taken for stages, and say so.

        Others that were trained on for several epochs were stages, and then it is another one.
        """
        places = [at for at, one in enumerate(self._left) if origin.has_rows_of(one)]
        if self._in_a_row > 1 or not places:
            self._left = [] if self._in_a_row > 1 else self._left
            return False
        self._rest += [*self._left[places[-1] + 1 :], current]
        self._left = []
        if self.are_passes_recorded:
            self._warn_once(_RETURNED.format(epoch, current.name, origin.name))
        return True

    def _is_known_rest(self, origin: Origin) -> bool:
        """Return whether the rows of an iteration were the rest of an epoch before."""
        return any(origin.has_rows_of(one) for one in self._rest)

    def _follows(self, feed: Feed, current: Origin, origin: Origin) -> bool:
        """Return whether epochs are counted by an iteration over another dataset, or part, from now on.

        Those that follow the end of the current iteration may be the rest of the same epoch. If another of
        their data comes, and none of the current one, the training has moved on.
        """
        tail = self._tails[-1] if self._tails else None
        if origin.iteration in self._streams or (tail and origin.iteration == tail.iteration):
            return False
        last = tail or current
        is_forgotten = self._beside is not None and feed.batches(self._beside) is not None
        if feed.is_open(last.iteration) and not (last is current and is_forgotten):
            self._streams.add(origin.iteration)
            self._beside = origin.iteration if last is current else self._beside
            return False
        if tail is None or not (
            any(map(origin.has_rows_of, self._tails)) or self._is_made_anew(feed, tail, origin)
        ):
            self._tails.append(origin)
            return False
        if self.are_passes_recorded and _SHARED not in self._said:
            self._said.add(_SHARED)
            self._warn_once(_SHARED.format(self._epoch_now, current.name, origin.name).strip())
        return True

    def _is_made_anew(self, feed: Feed, tail: Origin, origin: Origin) -> bool:
        """Return whether an iteration takes the place of one over a part that no longer exists."""
        return tail.dataset == origin.dataset and feed.is_gone(tail.drawn_from)

    def _not_as_before(self) -> str:
        """Return in words that others follow the current data than in the epoch before; "" if not."""
        now, before = self._tails, self._tails_before
        if not before or self._current is None or not self.are_passes_recorded or _are_alike(now, before):
            return ""
        return _NOT_AS_BEFORE.format(self._epoch_now, self._current.name, len(now), len(before))

    def _is_shared(self) -> bool:
        """Return whether the present epoch has passes of others that may be epochs of their own."""
        are_known = all(map(self._is_known_rest, self._tails))
        return self.are_passes_recorded and not are_known

    def _is_evaluated_anew(self, feed: Feed) -> bool:
        """Return whether epochs were found by evaluation, and the model changed since the last."""
        return self._how == _BY_EVALUATION and self._version != self._read_version(feed)

    def _say_again(self) -> None:
        """Say once that the batches of an iteration were kept, and that their rows are no longer known."""
        if not self._is_again:
            self._is_again = True
            self._how += _AGAIN
            self._troubles.inform("epochs", self._how)

    def _read_gradients(self, feed: Feed) -> int:
        """Return ``Feed.gradients`` of a training with a probe set, whose iterations are judged by it."""
        return 0 if self.are_passes_recorded else self._timed(feed.gradients)

    def _say_joined(self, epoch: float, name: str) -> None:
        """Say once that an epoch has several iterations; with a probe set it may still show each model."""
        with_gradients = _ACCUMULATED if self._has_joined_gradients else _JOINED_MODELS
        words = _JOINED if self.are_passes_recorded else with_gradients
        if words not in self._said:
            self._said.add(words)
            text = words.format(epoch, self._unchanged + 1, name)
            self._how += f" {text}"
            self._troubles.inform("epochs", text, "info" if words is _JOINED_MODELS else "warning")

    def _say_meanwhile(self, origin: Origin) -> None:
        """Say once that batches come of an iteration that counts no epochs."""
        if not self._is_meanwhile:
            self._is_meanwhile = True
            self._how += _ASIDE.format(f"{origin.name[:1].upper()}{origin.name[1:]}")
            self._troubles.inform("epochs", self._how)

    def _doubt(self) -> str:
        """Return in words that passes may be of several epochs; "" if nothing suggests it."""
        if self._unchanged:
            times = "once" if self._unchanged == 1 else f"{self._unchanged} times"
            return _UNCHANGED.format(self._epoch_now, times)
        feed, current = self._feed, self._current
        if feed is not None and current is not None:
            came = feed.given(current.iteration)
            if self._is_used_again(feed):
                return _USED_AGAIN.format(self._epoch_now, self._late_calls, came)
            steps, rounds = feed.stepped() - self._stepped_at_begin, feed.rounds(current.iteration)
            if came == 1 < steps and self._epoch_now <= 1 and not self._is_again:
                return _ONE_BATCH.format(self._epoch_now, steps, current.name)
            if rounds is not None and rounds > 1 and not feed.is_over(current.iteration):
                return _ENDLESS.format(self._epoch_now, current.name, rounds)
        if self._repeats is None and (self._how == NOT_FOUND or self._are_rows_mixed):
            return _ROWS_AGAIN.format(self._epoch_now)
        if self._current is not None and self._is_shared():
            return _SHARED.format(self._epoch_now, self._current.name, self._tails[-1].name)
        if feed is not None and current is not None and feed.is_over(current.iteration):
            return self._not_as_before()
        return ""

    def _open_end(self) -> str:
        """Return in words that an epoch may have data several times, as it is meant to be; "" if not.

        Data without a length may begin again inside of an iteration, and a model that does not change has
        all iterations in one epoch.
        """
        feed, current = self._feed, self._current
        again = {loader: len(each) for (_, loader), each in self._evaluations.items() if len(each) > 1}
        if again and feed is not None and self._how == NOT_FOUND and not self._has_changed(feed):
            loader, times = next(iter(again.items()))
            return _FROZEN.format(self._epoch_now, times, loader)
        if feed is None or current is None or current.length < math.inf or feed.is_over(current.iteration):
            return ""
        return _NO_LENGTH.format(current.name, self._epoch_now)

    def _read_version(self, feed: Feed) -> int:
        return self._timed(feed.version)

    def _timed(self, read: Callable[[], _Read]) -> _Read:
        """Return what a function that reads values returns, and count its processor seconds."""
        began = time.thread_time()
        found = read()
        self.checked_s += time.thread_time() - began
        return found

    def _found(self, how: str) -> None:
        if self._how == NOT_FOUND:
            self._how = how
            self._troubles.inform("epochs", how)


def _are_alike(some: Sequence[Origin], others: Sequence[Origin]) -> bool:
    """Return whether iterations are over the same rows, in any order."""
    pairs = (some, others), (others, some)
    return all(any(map(one.has_rows_of, those)) for these, those in pairs for one in these)
