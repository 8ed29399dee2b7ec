"""The tap: tags the tensors to record, copies them, and passes the records to the sender."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...backends.base import Backend, CapturedTensor, GraphRecorder, Operation
from ...backends.feeds import Judged, Undecided
from ...backends.sharding import Together
from ...core.doubt import Doubt
from ...core.errors import IntusError
from ...core.notes import Facts
from ...core.probes_disabled import are_probes_disabled
from ...core.projection import project, summarize
from ...core.record import (
    NO_FACTS,
    PROBE_SET_MODE,
    TRAINING_MODE,
    LateRecord,
    PassFacts,
    Record,
)
from ..budget import Budget, Seconds
from ..clocks import process_seconds, process_seconds_since, thread_seconds, thread_seconds_since
from ..data_source import DataSource
from ..probe_set import ProbeSet
from ..refusal import refusal_since
from ..row_check import Place
from ..schedule import Cut, Schedule
from ..sender import Sender
from ..sent_counts import EpochKey
from ..warn_once import WarningLog
from .costs import Costs
from .coverage import Coverage
from .doubts import Doubts, from_epoch, of_epoch
from .epoch_parameters import EpochParameters
from .error_log import ErrorLog
from .first_graph import FirstGraph
from .followed_model import FollowedModel
from .item_ids import ItemIds
from .model_reference import end_dead
from .model_turns import ModelTurns
from .moved_rows import MovedRows
from .order_of_call import OrderOfCall
from .pass_axes import PassAxes
from .pass_tags import PassTags
from .probe_set_runner import ProbeSetRunner
from .queue_fit import QueueFit
from .row_order import RowOrder
from .skips import Skips
from .statistics_labels import StatisticsLabels
from .target_checks import TargetChecks
from .undecided import Kept, UndecidedPass, UndecidedPasses

if TYPE_CHECKING:
    from ..statistics import Part, PassStatistics

T = TypeVar("T")
_NO_BATCH = (
    "intus: the %s of %r of %s is recorded without ids of items and labels, because which of its axes is the "
    "batch is not known: %s."
)
_REPLACED = (
    "intus: %s of run %r is probed anew, as another training, so the earlier probe records nothing more. To "
    "record both, pass another run= (or for two models of one training, another name=)."
)
_TAKEN_OVER = (
    "{} was probed before under the same run= and name, and nothing of it was recorded: the earlier probe is "
    "ended, and what it would record is what this one is asked for alone. To record both, pass another name=."
)
_NO_CALL = "intus: %s was never called while it was probed, so nothing is recorded. %s"
_UNPROVEN = (
    "Passes of {} in evaluation mode with gradients were taken for evaluations (mode eval) before a step of "
    "an optimizer could show that they train the model, which is not proven: they were too many or too large "
    "to wait for it, or no optimizer was known yet. Call model.train() before the training, or pass a "
    "probe_set."
)
_UNSEEN = (
    "An optimizer steps {} in evaluation mode, and no backward pass was seen through what its modules "
    "returned, so that it is not known which of its passes train it. They are recorded as evaluations (mode "
    "eval), which is not proven. Call model.train() before the training, or pass a probe_set."
)
_ROWS_OF_EVALUATION_MODE = (
    "Rows of passes of {} in evaluation mode with gradients are sent, not statistics: that such a pass "
    "trains the model is known only at the step that follows. Call model.train() before the training."
)
_STOPPED = "a part of the epoch: the training stopped inside of it"
#: Of how many calls in which an epoch is looked for one is timed, for the clock takes as long as the look.
_TIMED = 16
#: The share of the queue that passes take at most of which it is not known yet whether they train the model.
_SHARE_UNDECIDED = 0.25


class ModelTap:
    """The tap of one probe. It has only a weak reference to the model; see ``ModelReference``.

    Args:
        model: The model.
        backend: Its backend.
        sender: Receives the records.
        schedule: Decides what is recorded.
        troubles: Counts and logs errors.
        run: The name of the training.
        name: The name of the model.
        wait: The maximum number of seconds to wait for room in the queue.
        structure: Records the graph of the first pass; None for no graph.
        budget: Decides which passes are recorded.
        probe_set: The fixed batch to record instead of the training's passes; None for the training's.
        together: The agreement of the processes that must run the probe set together; None if this one need
            not wait for others.
        kinds: The kinds of tensors that are recorded.
    """

    def __init__(
        self,
        model: Any,
        backend: Backend,
        sender: Sender,
        schedule: Schedule,
        troubles: WarningLog,
        *,
        run: str,
        name: str,
        wait: float,
        structure: GraphRecorder | None,
        budget: Budget,
        probe_set: ProbeSet | None,
        together: Together | None = None,
        kinds: Collection[str] = ("output",),
    ) -> None:
        self.coverage = Coverage(name, kinds, troubles, backend.blind_spot)
        self.sender, self.troubles = sender, troubles
        self.run, self.name = run, name
        self._epoch: float = 0
        self._is_named = False  # whether the script or what was found ever set the epoch
        self._step = self._passes = self.recorded = 0
        self._mode: str | None = None
        self._items: np.ndarray | None = None
        # How many calls a backend may still leave out, and what it said of them; None if none.
        self._left_out: tuple[int, Callable[[bool], int]] | None = None
        self._epoch_began = 0, 0, 0  # passes, skipped passes and records before the epoch
        self._ended = False
        self._replaced = False  # whether another training of this process has the same names
        self.evaluates = probe_set is not None
        self._backend, self._schedule = backend, schedule
        self.statistics: PassStatistics | None = None  # None to send rows
        self._first = True  # no pass has ended yet
        self._tags = PassTags(0, 0, "", None)
        self.batch_axis = schedule.batch_axis
        self._is_time_first = is_time_first = getattr(backend, "is_time_first", None)
        self._label_patterns = _label_patterns(sender, run, name, probe_set)
        self._axes = PassAxes(
            name,
            schedule.batch_axis,
            may_move=bool(schedule.batch_axis) or (is_time_first is not None and is_time_first(model)),
            rows_of=backend.rows if schedule.batch_axis or is_time_first is not None else None,
            patterns=self._label_patterns,
            troubles=troubles,
        )
        self._has_gradients: Callable[[], bool] | None = getattr(backend, "has_gradients", None)
        self._is_differentiated = False  # whether a pass of the training had gradients
        self._looked = math.nan  # the last epoch in which it was looked whether rows of a pass are shuffled
        self._have_waited = False  # whether passes did until it was known whether they train the model
        self._deciding: UndecidedPass | None = None  # which came before, and is tagged now
        feed = getattr(backend, "feed", None)
        observed = feed(model) if feed is not None else None
        self._undecided = UndecidedPasses(
            sender.capacity * _SHARE_UNDECIDED,
            self._expects_step,
            lambda: self.troubles.inform("epochs", _UNPROVEN.format(self.name), "warning"),
        )
        self._decides = observed is not None and (
            probe_set is None or (probe_set.every is None and together is None)
        )
        if observed is not None and self._decides:
            observed.on_step, observed.on_stepped = self._before_step, self._decide_known
        if observed is not None and probe_set is not None and together is None:
            observed.before_load(self._before_load)
        self._order_of_call = OrderOfCall(partial(backend.order, axis=schedule.batch_axis))
        self.source = DataSource(
            observed,
            self._order_of_call,
            troubles,
            self._epoch_over,
            self._doubt_items,
            self._note_other_inputs,
        )
        if probe_set is not None:
            self.source.items_are_set("the rows of the probe set")
            self.source.are_passes_recorded = False
        if probe_set is not None and probe_set.every is not None:
            self.source.epochs_are_set("the numbers of the calls (every=)")
        self.budget = budget
        self.probe_runs = ProbeSetRunner(self, model, backend, probe_set, together, schedule)
        self._model = self.probe_runs.model
        has_set, is_agreed = probe_set is not None, together is not None
        self._refusal = partial(refusal_since, backend, kinds=kinds, has_set=has_set, is_agreed=is_agreed)
        self._is_refusal_said = False
        self._named: tuple[float, str] | None = None  # epoch and mode of the last pass whose rows have ids
        # The epoch, the mode and whether there were no ids, of the last pass if it was skipped; else None.
        self._skipped_like: tuple[float, str, bool] | None = None
        self._order = RowOrder(name, troubles)
        self._ids = ItemIds(name, self._order, self._label_patterns, troubles)
        self._doubts = Doubts(run, name, sender)
        self._moved = MovedRows(name, self._doubts, troubles)
        self._turns = ModelTurns(getattr(backend, "writes", lambda model: 0))
        self._parameters = EpochParameters(name, sender, self._fail, troubles)
        self._graph = FirstGraph(structure, run, name, self._model, sender, budget, troubles)
        self._fit = QueueFit(name, schedule, sender, budget, wait, troubles)
        self.costs = Costs(name, budget, sender, troubles)
        self._skips = Skips(name, budget, troubles)
        self._errors = ErrorLog(name, troubles)
        self.followed = FollowedModel(
            name, backend, schedule, self.coverage, self._forget_layers, self.doubt, troubles
        )
        self.targets = TargetChecks(run, name, self.coverage, sender, troubles)
        self._labels = StatisticsLabels(run, name, sender, budget, troubles)

    def follow_model(self, model: Any, epoch: float, mode: str) -> bool:
        """Record the model as it is now, and return whether it has changed; see ``FollowedModel``."""
        try:
            return self.followed.before_pass(model, epoch, mode)
        except Exception as error:
            self.on_error(error)
            return False

    def _forget_layers(self, model: Any) -> None:
        """Forget what was learned of the rows and axes of a model that has other layers now."""
        self._moved.look_again()
        self._axes.forget(may_move=self._is_time_first is not None and self._is_time_first(model))
        self.warn_unobserved(model)

    def warn_unobserved(self, model: Any) -> None:
        """Warn if the framework hides modules of the model in the training's own passes."""
        unobserved = getattr(self._backend, "unobserved", None)
        if not self.probe_runs.replaces_training and unobserved is not None and (why := unobserved(model)):
            self.warn(why)

    @property
    def epoch(self) -> float:
        """The number of the epoch. Setting another one ends the current epoch."""
        return self._epoch

    @epoch.setter
    def epoch(self, value: float) -> None:
        self.decide_all()
        self._begin_epoch(value)

    def _begin_epoch(self, value: float) -> None:
        if value != self._epoch:
            self.count_left_out()
            if value == 1 and self._epoch == 0 and not self._passes and not self.source.has_steps():
                self.probe_runs.training_begins()  # the script counts from 1
            before = self._epoch
            self.probe_runs.epoch_ends()
            value += self._epoch - before  # of a model that changed after its epoch was shown
            self.change_epoch(self._epoch, value)
        self._epoch, self._is_named = value, True

    @property
    def is_over(self) -> bool:
        """True once the probe was removed."""
        return self._ended

    @property
    def is_before_training(self) -> bool:
        """True if no epoch is named or found."""
        return not self._is_named

    @property
    def is_observing(self) -> bool:
        """True if the framework shows a training."""
        return self.source.is_observing

    @property
    def steps(self) -> int | None:
        """The number of steps of optimizers so far; None if the script names epochs, and may name another."""
        return self.source.stepped if self.source.finds_epochs else None

    @property
    def stepped(self) -> int:
        """The number of steps of optimizers so far, whoever names epochs; 0 if they are not known."""
        return self.source.stepped

    def begin_further_epoch(self) -> bool:
        """Begin an epoch for a model that changed since this one was shown; False if the script names it."""
        if not self.source.finds_epochs:
            return False
        self.source.say_further(self._epoch)
        self.change_epoch(self._epoch, self._epoch + 1)
        self._epoch, self._is_named = self._epoch + 1, True
        return True

    @property
    def step(self) -> int:
        """The number of the next call of the model."""
        self.count_left_out(end=False)
        return self._step

    @step.setter
    def step(self, value: int) -> None:
        self.count_left_out()
        self._step = value

    @property
    def passes(self) -> int:
        """The number of calls of the training."""
        self.count_left_out(end=False)
        return self._passes

    @property
    def mode(self) -> str | None:
        """The mode that the script names; None for that of the model."""
        return self._mode

    @mode.setter
    def mode(self, value: str | None) -> None:
        self.count_left_out()
        self._mode = value

    @property
    def items(self) -> np.ndarray | None:
        """The ids of the next call's rows."""
        return self._items

    @items.setter
    def items(self, value: np.ndarray | None) -> None:
        self.count_left_out()  # the ids are those of the next call, so from now on each is reported
        self._items = self._ids.receive(value, self._items)

    @property
    def framework(self) -> str:
        """The name of the model's framework."""
        return self._backend.name

    def change_epoch(self, old: float, new: float) -> None:
        """End an epoch of the records and begin another."""
        if self._ended:
            return
        self._doubt_stopped(old, is_last=new < old)
        self._end_epoch(old)
        if self.sender.begin(EpochKey(self.run, self.name, new)):
            self._doubts.begin_training()

    def _end_epoch(self, epoch: float) -> None:
        """Report the end of an epoch, with all that is missing in it."""
        self.epoch_is_trained()
        began, self._epoch_began = self._epoch_began, (self.passes, self.budget.skipped, self.recorded)
        passes, skipped, recorded = (
            now - before for now, before in zip(self._epoch_began, began, strict=True)
        )
        self._skips.end_epoch(epoch, passes, skipped, recorded)
        self._ids.end_epoch(epoch, passes)
        if self.source.are_passes_recorded and recorded and self.source.is_untrained():
            self.doubt(of_epoch(Facts(is_untrained=True).note, epoch))
        self.coverage.tell(recorded=recorded > 0 and not self._is_refusal_said)
        self._axes.tell()
        self.costs.tell_of_set(epoch)
        self._tell(epoch)
        self.sender.end(EpochKey(self.run, self.name, epoch), self.coverage.take_idle())

    def _tell(self, epoch: float) -> None:
        """Report what was logged since the last time."""
        self._errors.tell()
        if self.statistics is not None:
            self._labels.tell_mixed(self.statistics.take_mixed(), epoch)
        if news := self.troubles.take_news():
            self.sender.tell(EpochKey(self.run, self.name, epoch), news)
        self._doubts.tell()

    def doubt(self, doubt: Doubt) -> None:
        """Tell the server, at the end of the pass, of a doubt of rows whose scores may be stored already."""
        self._doubts.add(doubt)

    def _doubt_stopped(self, epoch: float, *, is_last: bool) -> None:
        """Note on scores of epochs that are known to be parts, as one ends."""
        for one in self.source.stopped_epochs(epoch, is_last=is_last):
            self.doubt(of_epoch(_STOPPED, one, modes=(TRAINING_MODE,), every=True))

    def _doubt_items(self, note: str, modes: Iterable[str], withdraw: bool) -> None:
        """Doubt the items of all rows that labels were matched to in these modes so far."""
        if periods := [one for one in (self._named, self._order.period) if one is not None]:
            self.doubt(Doubt(note, withdraw, until=max(periods)[0], modes=tuple(modes)))

    def _note_other_inputs(self) -> None:
        """Note on scores from this epoch on that items have other inputs than before."""
        self.doubt(from_epoch(Facts(has_other_inputs=True).note, self._epoch))

    def is_refused(self) -> bool:
        """Return whether the model cannot be recorded as processes share it now, and say so once."""
        began, model = thread_seconds(), self._model()
        reason = None if model is None else self._refusal(model)
        if reason is not None and not self._is_refusal_said:
            self._is_refusal_said = True
            self.warn(reason)
        self.budget.pay(thread_seconds_since(began))
        return reason is not None

    def current_mode(self) -> str:
        """Return the caller's mode, or else that of the model."""
        model = self._model()
        return self._mode or (self._backend.mode(model) if model is not None else "")

    def _mode_of_pass(self) -> str:
        """Return the mode of a call of the training that is about to run.

        Without gradients it does not train a model whose other passes have them, although the script did not
        set it to evaluation.
        """
        mode = self.current_mode()
        if mode != "train" or self._mode or self._has_gradients is None:
            return mode
        if self._has_gradients():
            self._is_differentiated = True
            return mode
        return "eval" if self._is_differentiated else mode

    # -- called by the backend ------------------------------------------------------------------------

    def on_forward_start(self, inputs: Any) -> bool:
        """Tag a pass; False if it is not recorded."""
        if self._left_out is not None:
            self.count_left_out()
        if self._replaced or (are_probes_disabled() and not self.probe_runs.running):  # trace or inspect
            return False
        if self.probe_runs.checks_rows:
            return True
        if self._skips_again():
            return False
        if self.probe_runs.running:
            tags = self.probe_runs.tags(self._step)
            return tags is not None and self._begin(inputs, tags, tags.mode)
        if self._undecided:
            known = self._undecided.all if self.source.trains() else self._undecided.known
            self._decide(known(self.source.stepped))
        undecided = self.source.undecided() if self._decides else None
        if undecided is not None:
            return self._wait_with(inputs, undecided)
        self._find_epoch(inputs)
        self.probe_runs.step_begins(self._step)
        tags = self._numbered()
        is_recorded = self._tag(tags, inputs)
        self._order_of_call.forget()
        return is_recorded and self._begin(inputs, tags, tags.mode)

    def _numbered(self) -> PassTags:
        """Return the tags of a call of the training as it begins, and number the next one."""
        is_set = self.probe_runs.replaces_training
        mode = "" if is_set else self._mode_of_pass()  # which a backend may have to trace a step for
        tags = PassTags(self._epoch, self._step, mode, self._items)
        self._step += 1
        self._items = self._skipped_like = None
        if not is_set:
            self.costs.pay_sender()
        return tags

    def _begin(self, inputs: Any, tags: PassTags, mode: str) -> bool:
        """Begin to record a pass; False if it is refused.

        Args:
            inputs: The arguments of the call.
            tags: Its tags.
            mode: Its mode, as far as is known.
        """
        if self.is_refused():
            return False
        began = thread_seconds()
        self.costs.begin_pass()
        self._tags, waits = tags, self._undecided.have(tags)
        if waits:  # what is other than before is said once its epoch is known
            self.followed.follow(self._model())
        elif tags.mode != PROBE_SET_MODE:  # whose runner has done so
            self.follow_model(self._model(), tags.epoch, mode)
        self._fit.begin_pass()
        self._ids.begin_pass()
        self._axes.begin(inputs, tags.epoch, mode, self._number_of_ids(inputs, tags, waits=waits))
        if not self._graph.begin(inputs):
            self.budget.pay(thread_seconds_since(began))
        return True

    def _skips_again(self) -> bool:
        """Skip a pass of the training if the last was skipped and nothing changed; else return False.

        It is what most passes do. After the work of a training step none of this is in the processor's
        caches, so that a pass takes longer with every function that it calls.
        """
        like = self._skipped_like
        if like is None or self.probe_runs.running:
            return False
        if like != (self._epoch, self._mode_of_pass(), self._items is None) or not self.budget.skips_again():
            return False
        self._step += 1
        self._passes += 1
        self._items = None
        return True

    def leave_out(self, left: Callable[[bool], int]) -> int:
        """Return how many of the next calls of the training are not recorded, whatever they are.

        A backend to which the report of a call is expensive need not report these, if they are of the mode of
        the last call, which was skipped.

        Args:
            left: ``left(end)`` returns how many of them were not made yet. If ``end`` is true, the backend
                reports the next call.
        """
        if self._ids.are_set or self.source.is_searching or self.probe_runs.running:
            return 0
        if self.probe_runs.replaces_training:
            calls = self.probe_runs.calls_until_next(self._step)
        else:
            calls = self.budget.foreseen if self._skipped_like is not None else 0
        if calls:
            self._left_out = calls, left
        return calls

    def count_left_out(self, *, end: bool = True) -> None:
        """Count the calls that the backend has left out.

        Args:
            end: Whether it shall report the next one, because something has changed.
        """
        if self._left_out is None:
            return
        (calls, left), self._left_out = self._left_out, None
        rest = 0
        try:
            rest = left(end)
        except Exception as error:
            self.on_error(error)
        if not end and rest:
            self._left_out = rest, left
        made = calls - rest
        self._step += made
        self._passes += made
        if not self.probe_runs.replaces_training:
            self.budget.skip(made)

    def refuse_call(self, error: Exception) -> None:
        """Count a call of the training that cannot be recorded, and log why."""
        if self._replaced or self.probe_runs.running or are_probes_disabled():
            return
        self._order.refuse(self.current_mode())
        self._step += 1
        self._passes += 1
        self._items = None
        self.on_error(error)

    def ran_outside(self, address: str) -> None:
        """Register an operation that ran outside of a call of the model, so that it was not observed."""
        self.coverage.outside.add(address)

    def checkpointed(self, address: str) -> None:
        """Register an operation that ran without gradients, and again in the backward pass, not observed."""
        self.coverage.checkpointed.add(address)

    def returned(self, address: str, recorded: str, others: list[str], *, packed: bool) -> None:
        """Register an operation that returns several tensors, or packed items; see ``Coverage.returned``."""
        self.coverage.returned(address, recorded, others, packed=packed)

    def sent_elsewhere(self, kinds: Collection[str]) -> None:
        """Register kinds that another process of the training sends."""
        self.coverage.kinds_elsewhere.update(kinds)

    def note(self, text: str) -> None:
        """Register a fact about what is recorded, as a sentence that the page shall say."""
        self.troubles.inform("parts", text)

    def warn(self, text: str) -> None:
        """Log a warning about what is recorded, once per text, and keep it as a fault."""
        self.troubles.warn_once(f"intus: {text}")

    def prepared(self, wall: float, processor: float) -> None:
        """Charge the budget for work of a backend that is done once, in seconds of the two clocks."""
        self.budget.pay_once(Seconds(wall, processor))

    def _find_epoch(self, inputs: Any) -> None:
        """Find the epoch of a call of the training, unless the script sets it."""
        if not self.source.is_searching:
            return
        timed = self._passes % _TIMED == 1  # not the first call, which looks for an optimizer, once
        began, checked = time.thread_time() if timed else None, self.source.checked_s
        try:
            epoch = self.source.epoch_of(inputs, self.epoch)
        except Exception as error:
            self.on_error(error)
            return
        # It waits for nothing: if the wall clock shows more, another process had the processor.
        spent = self.source.checked_s - checked  # seldom, but it reads values, so it is timed each time
        if began is not None:
            spent += _TIMED * (time.thread_time() - began - spent)
        if spent:
            self.budget.pay(Seconds(spent, spent))
        self._find_begun(epoch)

    def _find_begun(self, epoch: float) -> None:
        """Set the epoch that was found, and run the probe set if the training begins with it."""
        if epoch != self.epoch:
            if self.source.is_first:
                self.probe_runs.training_begins()
            self._begin_epoch(epoch)

    def _before_step(self, has_closure: bool) -> None:
        """Find the epoch of a step of an optimizer, which changes the model also where it is not called.

        Args:
            has_closure: Whether a function that the step calls makes the gradients.
        """
        if self._replaced or self._ended or self.probe_runs.running or are_probes_disabled():
            return
        self._decide(self._undecided.before_step())
        if not self.probe_runs.replaces_training:
            is_seen = (
                has_closure or self._is_differentiated or self.current_mode() in (TRAINING_MODE, self._mode)
            )
            if self._have_waited and not is_seen:
                self.troubles.inform("epochs", _UNSEEN.format(self.name), "warning")
            return
        try:
            self._find_begun(self.source.epoch_at_step(self._epoch, self.name))
        except Exception as error:
            self.on_error(error)
        self.probe_runs.forget_trained()

    def _before_load(self) -> None:
        """Keep the model that an epoch has trained, which the script is about to load other weights into."""
        if self._replaced or self._ended or self.probe_runs.running or are_probes_disabled():
            return
        try:
            self.probe_runs.keep_trained()
        except Exception as error:
            self.on_error(error)

    def _epoch_over(self) -> None:
        """Run the probe set as soon as an epoch is over: the model may not live until the next one."""
        self._decide_known()
        self._show_parameters()
        self.probe_runs.loader_ends()

    def _tag(self, tags: PassTags, inputs: Any, *, is_recorded: bool | None = None) -> bool:
        """Tag a pass of which it is known now whether it trains the model, and return whether it is recorded.

        Args:
            tags: Its tags so far.
            inputs: The arguments of the call.
            is_recorded: Whether it was, of one that waited; None if the budget is to decide.
        """
        self._passes += 1
        if self.probe_runs.replaces_training:
            return False
        epoch, mode, is_unnamed = self._epoch, tags.mode, tags.items is None
        tags.epoch, period = epoch, (epoch, mode)
        if mode != self._turns.mode:  # a call less in most passes; see _skips_again
            self._turns.change_mode(mode)
        # One score must not be of the rows of two datasets.
        if self._paid(self.source.is_of_second, inputs, epoch, mode, default=False):
            return False
        watched = self._is_watched(epoch, mode) if is_recorded is None else is_recorded
        if is_unnamed and (watched or period not in (self._order.period, self._named)):
            tags.items = self._paid(self.source.items_of, inputs, mode, default=None)
            if tags.items is None and self.source.is_refused:
                self._order.refuse(mode)
        has_ids = tags.items is not None
        if tags.items is not None:
            self.targets.check_items(tags.items, mode)
        named = has_ids or (not watched and (self.source.has_ids or period == self._named))
        if named:
            self._named = period
            self._order.on_named(mode)
        elif self._order.is_new(epoch, mode):
            began = process_seconds()
            first = self._order_of_call(inputs)
            self._order.on_forward_start(epoch, mode, first, self._shuffled)
            self.budget.pay_once(process_seconds_since(began))
        if not watched:
            self._skips.skip(named=named)
            if is_recorded is None and not self.source.is_searching:
                self._skipped_like = epoch, mode, is_unnamed
            return False
        self._skips.last_recorded = epoch
        self._ids.count(mode, named=has_ids)
        tags.ordered = has_ids or self._order.is_known(mode)
        tags.facts = self._paid(self._facts, inputs, epoch, default=NO_FACTS)
        if is_recorded is None:  # otherwise rows were copied already
            tags.rows, tags.trains = self.budget.rows, mode == TRAINING_MODE or self._takes_gradients()
            if self.statistics is not None:
                tags.labels = self._labels.of_pass(self.statistics, period, tags.items)
        return True

    def _is_watched(self, epoch: float, mode: str) -> bool:
        """Return whether a pass of the training that begins now is recorded."""
        if self._fit.rows:
            self._fit.adapt()
        period = epoch, mode
        return not self.budget.skips(period, mode) and self.budget.allows(process_seconds(), period, mode)

    def _facts(self, inputs: Any, epoch: float) -> PassFacts:
        """Return what the server shall know of a pass of the training that is recorded."""
        model = self._model()
        trains = self.source.trains()
        if trains is None:
            trains = model is None or self._backend.mode(model) == TRAINING_MODE
        data, turn = self.source.data_of(inputs), 0
        if not trains:
            writes = self._deciding.writes if self._deciding else self._turns.writes(model)
            turn = self._turns.number(writes, 0 if self._takes_gradients() else self.source.stepped)
        is_part = trains and self.source.is_part(epoch)
        return PassFacts(*data, turn, is_part, self.source.has_copies)

    def _paid(self, look: Callable[..., T], *args: Any, default: T) -> T:
        """Return what a look at the data of a call shows, which the budget pays for.

        Args:
            look: Looks.
            *args: Its arguments.
            default: What is returned if it raises.
        """
        began = thread_seconds()
        try:
            return look(*args)
        except Exception as error:
            self.on_error(error)
            return default
        finally:
            self.budget.pay(thread_seconds_since(began))

    def _takes_gradients(self) -> bool:
        """Return whether gradients can follow the pass in progress, as far as the framework tells."""
        return self._deciding is not None or (self._has_gradients is not None and self._has_gradients())

    # -- passes in evaluation mode, which may train the model -------------------------------------------

    def _wait_with(self, inputs: Any, by: Undecided) -> bool:
        """Let a call in evaluation mode wait, to tag it once it is known whether it trains; always True."""
        is_set = self.probe_runs.replaces_training
        tags = self._numbered()
        self._step -= is_set  # the passes of the set have the number of the next call
        tags.rows, tags.ordered, tags.trains = self.budget.rows, not self.source.has_ids, True
        self._tags, one = tags, UndecidedPass(tags, inputs, by, self._mode or TRAINING_MODE)
        self._undecided.add(one)
        self._have_waited = True
        expected = one.mode_of_training if self._undecided.are_expected_to_train else tags.mode
        if not is_set and self._is_watched(tags.epoch, expected):
            one.writes = self._turns.writes(self._model())
            one.is_recorded = self._begin(inputs, tags, expected)
            if tags.items is None:  # later the batch may have been written to, and its loader be gone
                self._paid(self.source.keep_items, inputs, by.at, default=None)
            found = by.at.items[0] if by.at.items else None
            has_ids = tags.items is not None or (found is not None and found.ids is not None)
            if not has_ids and self._looked != tags.epoch and not self._order.has_begun(tags.mode):
                self._looked = tags.epoch  # it may take milliseconds
                one.drawn.append(self._paid(self._backend.shuffled, default=None))
            if self.statistics is not None:
                self.note(_ROWS_OF_EVALUATION_MODE.format(self.name))
        return True

    def _shuffled(self) -> str | None:
        """Return why rows come in another order than that of their dataset, as known when the pass ran."""
        one = self._deciding
        return one.drawn[0] if one is not None and one.drawn else self._backend.shuffled()

    def _number_of_ids(self, inputs: Any, tags: PassTags, *, waits: bool) -> int | None:
        """Return how many ids the rows of a pass have, or will have once it is decided; None if not known."""
        if tags.items is not None or not waits:
            return None if tags.items is None else len(tags.items)
        try:
            return self._backend.rows(inputs, self.batch_axis) if self.source.has_ids else None
        except Exception:  # packed items, or no tensor
            return None

    def _decide(self, decided: Iterable[tuple[UndecidedPass, bool]]) -> None:
        """Tag and send passes of which it is known now whether they train the model."""
        for one, trains in decided:
            self._deciding = one
            try:
                with self.source.judged(Judged(trains, one.by.at)):
                    self._send_decided(one, trains=trains)
            except Exception as error:
                self.on_error(error)
            finally:
                self._deciding = None
                self._order_of_call.forget()

    def decide_all(self) -> None:
        """Tag and send all passes that wait, since no step is expected of them any more."""
        if self._undecided:
            self._decide(self._undecided.all(self.source.stepped))

    def _decide_known(self) -> None:
        """Tag and send the passes of which it is known by now whether they train."""
        if self._undecided:
            self._decide(self._undecided.known(self.source.stepped))

    def _send_decided(self, one: UndecidedPass, *, trains: bool) -> None:
        """Tag and send a pass, and begin the epoch that begins with it."""
        tags = one.tags
        if trains:
            tags.mode, self._is_differentiated = one.mode_of_training, True
        self._find_epoch(one.inputs)
        self._step += self.probe_runs.replaces_training
        if not self._tag(tags, one.inputs, is_recorded=one.is_recorded):
            for kept in one.records:
                self.sender.release(kept.nbytes)
            return
        self.follow_model(self._model(), tags.epoch, tags.mode)
        self._moved.end_pass(self._undecided.have)
        self._ids.begin_pass()
        for kept in one.records:
            record = kept.make()
            self.sender.gather(record, kept.nbytes)
            self.recorded += 1
            self.coverage.recorded_at.add(record.address)
            if self.statistics is not None:
                place = Place(record.address, record.kind, record.index)
                self.statistics.rows_are_sent((tags.epoch, tags.mode), place)
            if tags.mode == TRAINING_MODE:
                self.coverage.kinds_seen.add(record.kind)
        self._ids.end_pass(tags.items, self._fit.rows)
        for address, show in one.parameters.items():
            self._parameters.add(tags.mode, address, show)

    def _expects_step(self) -> bool | None:
        """Return whether an optimizer may step the model; None if that is not known."""
        return self._paid(self.source.expects_step, default=None)

    def backward_passes(self) -> Any:
        """Return what shall observe the backward passes through the pass that begins; None if nothing."""
        waiting = self._undecided.of(self._tags)
        return None if waiting is None else waiting.by.backward

    def met(self, operation: Operation) -> bool:
        """Return whether an operation is to be recorded. One that was not known is noted, called or not."""
        chosen = self.followed.chosen.get(operation.address)
        return self.followed.discover(self._model(), operation) if chosen is None else chosen

    def wants(self, operation: Operation) -> PassTags | None:
        """Return the tags of the pass if the operation is recorded."""
        chosen = self.met(operation)
        if self.probe_runs.checks_rows:
            return self._tags if chosen else None
        if (waiting := self._undecided.of(self._tags)) is not None and not waiting.is_recorded:
            return None
        self.coverage.called.add(operation.address)
        wanted = chosen and self._schedule.wants(self._model(), operation)
        if chosen:
            idle = self.coverage.idle
            idle[operation.address] = idle.get(operation.address, True) and not wanted
        return self._tags if wanted else None

    def on_tensor(self, ticket: PassTags, tensor: CapturedTensor) -> None:
        """Copy a tensor and pass the record to the sender, if the queue has room."""
        if self.probe_runs.checks_rows:
            self.probe_runs.receive(tensor)
            return
        if ticket.mode == "train":
            self.coverage.kinds_seen.add(tensor.kind)
        began = thread_seconds() if tensor.began is None else Seconds(*tensor.began)
        if tensor.pass_apart:
            self.costs.set_apart()
        if tensor.without_rows:
            self.troubles.warn_once(_NO_BATCH, tensor.kind, tensor.address, self.name, tensor.without_rows)
        elif tensor.has_batch:
            tensor = self._with_axis(ticket, tensor)
        cut = self._schedule.cut(tensor, ticket.rows)
        parts = self._parts(ticket, tensor, cut)
        if not parts:
            cut = self._fit.fit(tensor, cut, ticket.rows)
        if not self._repeat(ticket, tensor, cut, parts):
            self._send(ticket, tensor, cut, parts)
        self.budget.pay((thread_seconds_since if tensor.began is None else process_seconds_since)(began))

    def at_epoch_end(self, ticket: PassTags, address: str, show: Callable[[], bool]) -> bool:
        """Return whether a parameter of a pass is to be shown at the end of the epoch, not now.

        The step that follows a pass that trains changes it.

        Args:
            ticket: The tags of the pass.
            address: The parameter.
            show: Passes it to ``on_tensor``, and returns False if it no longer exists.
        """
        if self.probe_runs.checks_rows or not ticket.trains:
            return False
        if (waiting := self._undecided.of(ticket)) is not None:
            waiting.parameters[address] = show
            return True
        self._parameters.add(ticket.mode, address, show)
        return True

    def _show_parameters(self) -> None:
        """Record the parameters of the epoch as they are now."""
        if self._parameters.are_waiting and not self.is_refused():
            self._parameters.show(self._epoch, self.source.stepped)

    def epoch_is_trained(self) -> None:
        """Record the parameters of the epoch: what changes them from now on is no training of it."""
        self._show_parameters()
        self._parameters.end_epoch()

    def axis_to_follow(self) -> int | None:
        """Return the axis of the rows of the pass that begins, if a backend shall follow them; else None."""
        if self.probe_runs.running:
            return None
        return self.batch_axis if self._moved.is_due() else None

    def on_moved(self, address: str, *, is_known: bool = True) -> None:
        """Register that the rows of a layer are in another order than in the batch.

        Args:
            address: The layer.
            is_known: Whether that is known; otherwise they may be, since others before are.
        """
        self._moved.add(address, self._tags, is_known=is_known)

    def on_other_rows(self, address: str) -> None:
        """Register that the rows of a layer are not known to be those that the ids of the pass are for."""
        self._moved.add_others(address, self._tags)

    def _with_axis(self, ticket: PassTags, tensor: CapturedTensor) -> CapturedTensor:
        """Return a tensor with its batch axis, as far as it is known."""
        shown = self.probe_runs.axis_of(tensor) if ticket.mode == PROBE_SET_MODE else None
        known = tensor.batch_axis if shown is None else shown
        axis = self._axes.find(Place.of(tensor), tensor.shape, known)
        return tensor if axis in (None, tensor.batch_axis) else replace(tensor, batch_axis=axis)

    def _is_reordered(self, ticket: PassTags, tensor: CapturedTensor) -> bool:
        """Return whether the rows of a layer are not those of the batch in their order, as far as known."""
        if self._axes.is_unknown(Place.of(tensor)):
            return True
        if ticket.mode == PROBE_SET_MODE:
            return self.probe_runs.is_reordered(tensor)
        return self._moved.has(tensor)

    def _parts(self, ticket: PassTags, tensor: CapturedTensor, cut: Cut) -> list[Part]:
        """Return the rows of which statistics are sent instead of a tensor; none if its rows are sent.

        Statistics of rows in another order than that of their items would mix up their labels.
        """
        if self.statistics is None or self._undecided.have(ticket):
            return []
        items = None if self._is_reordered(ticket, tensor) else ticket.items
        return self.statistics.parts(tensor, cut, (ticket.epoch, ticket.mode), items, ticket.labels)

    def _repeat(self, ticket: PassTags, tensor: CapturedTensor, cut: Cut, parts: list[Part]) -> bool:
        """Record a tensor that holds what another did in this pass, without a copy; False if none did.

        A container returns what its last child returned, and dropout in evaluation what it was given.
        """
        contents = _contents(ticket, tensor, cut, parts)
        count = len(parts) or 1
        if contents is not None and (waiting := self._undecided.of(ticket)) is not None:
            return waiting.repeat(contents, address=tensor.address, kind=tensor.kind, index=tensor.index)
        if contents is None or not self.sender.gather_again(
            contents, count, tensor.address, tensor.kind, tensor.index
        ):
            return False
        self.recorded += count
        self.coverage.recorded_at.add(tensor.address)
        return True

    def _send(self, ticket: PassTags, tensor: CapturedTensor, cut: Cut, parts: list[Part]) -> None:
        """Copy a tensor, or make statistics of it, and pass the records to the sender."""
        self._fit.add(tensor, cut, sum(part.nbytes for part in parts) or cut.nbytes)
        epoch = EpochKey(self.run, self.name, ticket.epoch)
        for part in parts or (None,):
            nbytes = cut.nbytes if part is None else part.nbytes
            if not self.sender.reserve(nbytes, self._fit.wait_s(is_of_set=self.probe_runs.running), epoch):
                continue
            try:
                if (waiting := self._undecided.of(ticket)) is not None:
                    contents = _contents(ticket, tensor, cut, ())
                    waiting.records.append(Kept(cache(self._made_of(ticket, tensor, cut)), nbytes, contents))
                    continue
                record = self._record(ticket, tensor, cut, part)
            except Exception:
                self.sender.release(nbytes)
                raise
            self.sender.gather(record, nbytes, _contents(ticket, tensor, cut, parts))
            self.recorded += 1
            self.coverage.recorded_at.add(tensor.address)

    def on_forward_end(self, output: Any) -> None:
        """Send the records of the pass, or keep them if it waits, and the graph of the first one."""
        if self.probe_runs.checks_rows:
            return
        waiting = self._undecided.of(self._tags)
        try:
            if waiting is None or waiting.is_recorded:
                self._end_pass(output)
        finally:
            if waiting is not None and not waiting.may_train:  # no gradients can come
                self._decide_known()

    def _end_pass(self, output: Any) -> None:
        """End a pass that is recorded."""
        if self._first and output is not None:
            self._first = False
            self.coverage.warn_never_called()
        self._ids.end_pass(self._tags.items, self._fit.rows)
        self._axes.end()
        self._moved.end_pass(self._undecided.have)
        if self._tags.mode == PROBE_SET_MODE:
            self._axes.tell()
        try:
            self._graph.end(output)
        finally:
            began = thread_seconds()
            self._tell(self._tags.epoch)
            self.sender.post()
            self.budget.pay(thread_seconds_since(began))
            self.costs.end_pass()

    def on_error(self, error: Exception) -> None:
        """Count an error, and log it if its text is new; a refusal counts once for each reason.

        Beside a probe set nothing is missing of a pass of the training, which is not recorded in any case.
        """
        if self.probe_runs.running or not self.probe_runs.replaces_training:
            self._fail(error)
        elif not isinstance(error, IntusError):
            self._errors.log(error)

    def _fail(self, error: Exception) -> None:
        """Log an error by which something is missing in the epoch."""
        self._errors.log(error)
        epoch = self._tags.epoch if self._tags.mode else self.epoch
        self.sender.count_failed(EpochKey(self.run, self.name, epoch))

    # ------------------------------------------------------------------------------------------------

    def before_flush(self) -> None:
        """Run the probe set if it is due, and report what is missing so far."""
        if not self._ended:
            self.decide_all()
            self._show_parameters()
            self.probe_runs.training_ends()
        self.source.end(self.name, self.epoch)
        self._axes.tell()
        self._tell(self.epoch)
        if not self.source.is_stopped_inside():
            self.sender.whole(EpochKey(self.run, self.name, self.epoch))

    def replace_earlier(self, job: str) -> None:
        """End the earlier probes of this process with the same names; must come first.

        They are of an earlier training, but for those of the same model of which nothing was recorded, as of
        a cell of a notebook that is run twice.

        Args:
            job: The name that this process shares with the other processes of the training; "" if unknown.
        """
        end_dead()
        model = self._model()
        same = [tap for tap in self.sender.taps if (tap.run, tap.name) == (self.run, self.name)]
        for tap in (tap for tap in same if not tap._ended):
            if tap._model() is model and not tap.recorded:
                tap._give_way()
                self.troubles.inform("probed anew", _TAKEN_OVER.format(self.name))
                continue
            tap.end()
            tap._replaced = True
            tap.troubles.warn_once(_REPLACED, self.name, self.run)
        self.sender.begin_training(self.run, self.name, job)

    def _give_way(self) -> None:
        """Record nothing: another probe takes over before the model was called."""
        self._ended = self._replaced = True
        self.source.remove()
        self.probe_runs.gives_way()

    def model_ends(self) -> None:
        """Show the last state of a model that dies, if the probe set is recorded."""
        self.probe_runs.model_ends()

    def end(self) -> None:
        """Run the probe set if it is due, send the collected records, and end the recording of a graph."""
        if self._ended:
            return
        self.count_left_out()
        self.decide_all()
        self.probe_runs.ends()
        self._ended = True
        self.source.end(self.name, self.epoch)
        self._doubt_stopped(self._epoch, is_last=True)
        self.source.remove()
        if (
            not self.passes
            and self.coverage.operations
            and self._first
            and not self.probe_runs.replaces_training
        ):
            self.coverage.warn_outside()
            if not self.coverage.outside:
                self.troubles.warn_once(_NO_CALL, self.name, self._backend.blind_spot)
        try:
            self.on_forward_end(None)
            self._skips.end_training()
            self._end_epoch(self.epoch if self.probe_runs.number is None else self.probe_runs.number)
            self.sender.close_model(self.run, self.name)
        except Exception as error:
            self.on_error(error)

    def _origin(self, tags: PassTags, tensor: CapturedTensor) -> dict[str, Any]:
        """Return the fields of a record that say where it comes from, except the address."""
        return {
            "kind": tensor.kind,
            "run": self.run,
            "model": self.name,
            "step": tags.step,
            "epoch": tags.epoch,
            "mode": tags.mode,
            "index": tensor.index,
            "of_pass": tags.facts,
            "channels_first": tensor.channels_first,
        }

    def _record(
        self, tags: PassTags, tensor: CapturedTensor, cut: Cut, part: Part | None
    ) -> Record | LateRecord:
        """Copy a tensor into a record, or begin to make statistics of it for one."""
        if part is not None and self.statistics is not None:
            self._ids.fit()
            begun = self.statistics.begin(part, tensor, cut.axis or 0, self.sender.count_device)
            return LateRecord(cache(begun), tensor.address, **self._origin(tags, tensor))
        return self._made_of(tags, tensor, cut)()

    def _made_of(self, tags: PassTags, tensor: CapturedTensor, cut: Cut) -> Callable[[], Record]:
        """Copy a tensor, and return a function that makes a record of it, of the tags as they are then."""
        array, summary = _copied(tensor, cut)
        cut_from, waits = self._fit.cut_from(tensor, cut), self._undecided.have(tags)
        may_have_ids = cut.axis is not None and (waits or tags.items is not None)
        is_reordered = may_have_ids and self._is_reordered(tags, tensor)
        # the tensor must not outlive the call
        known = replace(tensor, copy=_gone, project=None, sums=None, fingerprints=None) if waits else tensor

        def make() -> Record:
            items = None
            if cut.axis is not None:
                items = self._ids.of_rows(
                    tags,
                    known.shape[cut.axis],
                    array.shape[cut.axis],
                    is_reordered=tags.items is not None and is_reordered,
                    is_cut=cut_from is not None,
                )
            return Record(
                array,
                known.address,
                batch_axis=cut.axis,
                items=items,
                projected_from=cut.projected_from,
                summary=summary,
                cut_from=cut_from,
                **self._origin(tags, known),
            )

        return make


def _label_patterns(
    sender: Sender, run: str, name: str, probe_set: ProbeSet | None
) -> Callable[[], Iterable[str]]:
    """Return a function that returns the patterns of the layers that this process has labels for."""
    if probe_set is not None:
        patterns = [probe_set.layers.get(target, "") for target in probe_set.labels]
        return lambda: patterns
    return lambda: [one.layer_pattern for one in sender.targets.values() if one.is_for(name, run)]


def _copied(tensor: CapturedTensor, cut: Cut) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a copy of a part of a tensor, and the summary of its rows if they are projected; else None."""
    axis = cut.axis or 0
    if cut.projected_from is None:
        return tensor.copy(cut.rows, axis), None
    if tensor.project is not None:
        return tensor.project(cut.rows, axis)
    array = tensor.copy(cut.rows, axis)
    summary = summarize(np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1))
    return project(array if array.ndim == 3 else array.reshape(len(array), -1)), summary


def _gone(rows: int | None, axis: int) -> np.ndarray:
    """Refuse to copy a tensor that a record no longer needs."""
    raise RuntimeError("The tensor was copied before.")


def _contents(ticket: PassTags, tensor: CapturedTensor, cut: Cut, parts: Iterable[Part]) -> Hashable | None:
    """Return what records of a tensor are made of; None if it may change in the course of the pass."""
    if tensor.contents is None:
        return None
    return ticket, tensor.contents, tensor.channels_first, cut, tuple(part.known for part in parts)
