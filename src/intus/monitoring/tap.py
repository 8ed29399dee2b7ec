"""The tap: tags the tensors to record, copies them, and passes the records to the sender."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import numpy as np

from ..backends.base import Backend, CapturedTensor, GraphRecorder, Operation
from ..backends.sharding import Together
from ..core.address import without_call
from ..core.doubt import Doubt
from ..core.errors import IntusError, did_you_mean
from ..core.notes import Facts
from ..core.probes_disabled import are_probes_disabled
from ..core.projection import project, summarize
from ..core.record import NO_FACTS, PROBE_SET_MODE, LateRecord, PassFacts, Record
from ..storage.codec import encode_graph
from .budget import FREE_S, Budget, Seconds
from .clocks import process_seconds, process_seconds_since, thread_seconds, thread_seconds_since
from .coverage import Coverage
from .data_source import DataSource
from .model_reference import end_dead
from .pass_axes import PassAxes
from .probe_set import ProbeSet
from .probe_set_runner import PassTags, ProbeSetRunner
from .refusal import refusal_since
from .row_check import Place, listed
from .row_order import RowOrder
from .schedule import Cut, Schedule
from .sender import BLOCK_S, Sender
from .sent_counts import EpochKey
from .targets import RegisteredTarget, doubt_of_shape
from .warn_once import WarningLog

if TYPE_CHECKING:
    from .statistics import Labels, Part, PassStatistics

T = TypeVar("T")
_NO_BATCH = (
    "intus: the %s of %r of %s is recorded without ids of items and labels, because which of its axes is the "
    "batch is not known: %s."
)
_NO_GRAPH = (
    "intus: the page has no graph of %s, as it could not be made: %s: %s. Layers are recorded without."
)
_MISFIT = (
    "intus: Probe.items had %s ids for a pass of %s whose arrays have %s rows, so its rows have no ids and "
    "no labels. Give one id per row, in the order of the rows."
)
_ITEMS_OF_THREADS = (
    "intus: two threads set Probe.items of %s, and no call came between, so it is not known whose ids are "
    "those of the next call. Its rows have no ids and no labels. Set ids and call the model in one thread, "
    "or under one lock."
)
_MISFITS = (
    "Epoch {}: in {} of {} passes, Probe.items had another number of ids than rows. A data point with such "
    "passes (by default, an epoch in one mode) has no scores with labels."
)
_PARTLY = (
    "Epoch {:g} of {}: {} of {} recorded passes in mode {} have no item ids, and the others have. A data "
    "point with both (by default, an epoch in one mode) has no scores with labels, not even of the rows with "
    "ids. Set Probe.items = ids before each call, give passes of other rows another Probe.mode, or pass a "
    "probe_set."
)
_REPLACED = (
    "intus: %s of run %r is probed anew, as another training, so the earlier probe records nothing more. To "
    "record both, pass another run= (or for two models of one training, another name=)."
)
_MOVED = (
    "Layer {!r} of {} does not keep the order of rows: its rows are those of an earlier layer in another "
    "order, seen in epoch {}. {} A probe_set tests the order of all layers."
)
_REFUSED = "It has no scores with labels from then on, and earlier ones are withdrawn."
_OF_OTHERS = "Its scores with labels are withdrawn."
_MOVED_NOTE = "withdrawn: in epoch {}, the layer had its rows in another order than the batch"
_UNPROVEN = (
    "The order of rows in {} of {} is not proven: in epoch {}, another layer had its rows in another order, "
    "or got a PackedSequence with enforce_sorted=True. {} no scores with labels from then on, and earlier "
    "ones are withdrawn. Pack with enforce_sorted=False, or pass a probe_set, which tests the order of all "
    "layers."
)
_UNPROVEN_NOTE = (
    "withdrawn: in epoch {}, another layer had its rows in another order than the batch, or packed as sorted "
    "ones, and that of this layer is not proven"
)
_OTHER_CALL = (
    "Layer {!r} of {} has no scores with labels: it ran in a call of the model with other inputs than the "
    "first of its step, as on generated rows after real ones, and ids of items and the order of arrival are "
    "those of the first call."
)
_OTHER_CALL_NOTE = "withdrawn: in epoch {}, the layer ran on other inputs than the first call of its step"
_NO_CALL = "intus: %s was never called while it was probed, so nothing is recorded. %s"
_NO_PASS = (
    "intus: epoch %s of %s has no data: all its %s passes were skipped to take at most %s of the training "
    "time. Raise the budget= of probe(), or pass it a probe_set."
)
_SOME_PASSES = (
    "Passes are skipped to take at most {} of the training time: {} of {} in the first such epoch. Scores "
    "are then of fewer rows."
)
_SKIPPED = (
    "intus: the probe of %s skips passes to take at most %s of the training time, so labels cannot be "
    "matched to rows by order of arrival. Set Probe.items = ids before each call, pass a probe_set to "
    "probe(), or raise its budget=."
)
_QUEUE_CUT = (
    "intus: a pass of %s has %s bytes, but the queue to the server only %s, so only the first %s rows of its "
    "passes are recorded, of all layers alike. Pass a larger queue_mb= to probe(), or record fewer layers "
    "(which=)."
)
_NO_STATISTICS = (
    "intus: statistics=True cannot make statistics of passes of %s whose items are not known, or have no "
    "entry in the registered labels, so the rows of these passes are sent. Read the data from a DataLoader, "
    "or set Probe.items = ids before each call."
)
_NO_LABELS = (
    "intus: statistics=True cannot make statistics of passes of %s, because this process had registered no "
    "labels for them when the epoch began, so their rows are sent. Register labels before the first epoch."
)
_LABELS_BY_LAYER = (
    "intus: statistics=True cannot make statistics of passes of %s, because its layers have different labels "
    "of the name %r, so rows are sent. Register the labels for each layer_pattern under a name of their own."
)
_MIXED = (
    "{} of {} sent rows after statistics in one epoch, first in epoch {:g}. These cannot be put together, so "
    "data points with both have no scores. Rows are sent of passes whose items are not known, do not fit, or "
    "have no entry in the labels. Set Probe.items = ids before each call, or leave statistics out."
)
_FEW_LABELS = (
    "intus: the target {} has {} labels, but %s was called with item %s, so it has no scores there. Label i "
    "belongs to item i of the whole dataset, of which a Subset, as of random_split, has a part: register the "
    "labels of all its rows."
)
_OTHER_GROUPS = (
    "intus: targets %s of %s have no scores, because statistics are made for targets with the same groups. "
    "Register all targets with the same groups=, or leave statistics out to send rows."
)
_SET_TAKES = (
    "The probe set of {} took {:.0%} of the processor time of the training up to the end of epoch {:g}. It "
    "is always run completely, in {:.2g} s each time, whatever budget= is. To take less, give it fewer rows, "
    "set watch.epoch less often, or pass every=."
)
_GONE = (
    "intus: the parameters of %s are not recorded as they were at the end of epoch %s, because they do not "
    "exist any more. Keep the model until the next epoch, or call flush() or Probe.remove() before."
)
_STOPPED = "a part of the epoch: the training stopped inside of it"
#: What differs between refusals for one reason: the names of layers, and numbers.
_TRAINING = "train"
_MOST_ERRORS = 8  # different texts of one class of errors that are logged
_NAMES = re.compile(r"'[^']*'|\d+")
#: Of how many calls in which an epoch is looked for one is timed, for the clock takes as long as the look.
_TIMED = 16
_MOST_CHANGES = 1000  # of a model between two passes that train it, that are told apart
#: The most that a pass of a probe set waits for room in the queue, and the part of the queue for one pass.
_PROBE_SET_WAIT_S, _ROOM = 60.0, 0.9
_ALSO = "intus: what an earlier warning says of {} of {} is so of {} more: {}."
_MOST_REFUSED = 1000  # names that are kept for one reason
_SKIPPED_EPOCHS = (
    "intus: epochs of %s are too short for a recorded pass in each, which would take more than %s of the "
    "training time. The first are recorded on a loan of less than a second, and until it is repaid, later "
    "ones may have no data; in a short training, all of them. The next is recorded after about %.2g s more "
    "of training. Probe.status() counts them and says when. Raise budget=, record fewer layers (which=) or "
    "rows (rows=), set Probe.epoch less often, or pass a probe_set, which runs in every epoch."
)
_SKIPPED_AT_END = (
    "{} of {} epochs of {} have no data (training and evaluation counted apart), because a recorded pass in "
    "each would have taken more than {} of the training time. The last with data is epoch {:g}."
)


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
        self._chosen: dict[str, bool] = {}  # by address, including operations discovered during a pass
        self.sender, self.troubles = sender, troubles
        self.run, self.name = run, name
        self._epoch: float = 0
        self._is_named = False  # whether the script or what was found ever set the epoch
        self._step = self._passes = self.recorded = 0
        self._mode: str | None = None
        self._items: np.ndarray | None = None
        self._items_of = 0  # the thread that set them
        self._names_items = False  # whether the script ever did
        # How many calls a backend may still leave out, and what it said of them; None if none.
        self._left_out: tuple[int, Callable[[bool], int]] | None = None
        self._fitting: bool | None = None  # whether the ids of this pass are as many as the rows of an array
        self._misfits = 0  # passes of this epoch whose ids do not fit
        # Of this epoch, by mode, the recorded passes without ids and those with; and modes with both in some.
        self._named_passes: dict[str, list[int]] = {}
        self._partly_named: set[str] = set()
        self._epoch_began = 0, 0, 0  # passes, skipped passes and records before the epoch
        # What shows the parameters of this epoch at its end, by mode and address, and the steps of optimizers
        # when that was last done, as at the end of the data; -1 if it was not.
        self._parameters: dict[tuple[str, str], Callable[[], bool]] = {}
        self._shown_at = -1
        self._ended = False
        self._replaced = False  # whether another training of this process has the same names
        self.evaluates = probe_set is not None
        self._are_skips_known = False
        self._backend, self._schedule, self._wait = backend, schedule, wait
        self.statistics: PassStatistics | None = None  # None to send rows
        self._is_mixed = False  # whether it was said that rows followed statistics
        self._structure = structure  # None once the first pass has begun
        self._first = True  # no pass has ended yet
        self._traced: GraphRecorder | None = None
        self._traced_thread: int | None = None
        self._tags = PassTags(0, 0, "", None)
        self.batch_axis = schedule.batch_axis
        is_time_first = getattr(backend, "is_time_first", None)
        self._label_patterns = _label_patterns(sender, run, name, probe_set)
        self._axes = PassAxes(
            name,
            schedule.batch_axis,
            may_move=bool(schedule.batch_axis) or (is_time_first is not None and is_time_first(model)),
            rows_of=backend.rows if schedule.batch_axis or is_time_first is not None else None,
            patterns=self._label_patterns,
            troubles=troubles,
        )
        self._moved: set[str] = set()  # layers whose rows are in another order than the batch, or may be
        self._unproven: list[str] = []  # those of the pass of which it is not known
        self._followable = 0  # recorded passes of the training
        self._has_gradients: Callable[[], bool] | None = getattr(backend, "has_gradients", None)
        self._is_differentiated = False  # whether a pass of the training had gradients
        feed = getattr(backend, "feed", None)
        observed = feed(model) if feed is not None else None
        if observed is not None and probe_set is not None and probe_set.every is None and together is None:
            observed.on_step = self._before_step
        order = partial(backend.order, axis=schedule.batch_axis)
        self.source = DataSource(
            observed, order, troubles, self._epoch_over, self._doubt_items, self._note_other_inputs
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
        self._queue_rows: int | None = None  # of which a pass fits into the queue; None for all
        self._wait_until = math.inf  # when a pass of the probe set no longer waits for room
        self._order = RowOrder(name, troubles)
        # By the reason of a refusal, the names in the first sentence, and those that came since the last.
        self._refused: dict[str, tuple[str, dict[str, bool]]] = {}
        self._doubts: list[Doubt] = []  # of rows that were sent, to be told to the server
        self._lasting: list[Doubt] = []  # of all rows that follow, also of another training
        self._named: tuple[float, str] | None = None  # epoch and mode of the last pass whose rows have ids
        self._last_watched: float = 0  # the epoch of the last recorded pass of the training
        self._skips = self._skips_epochs = False  # whether the warnings were given
        # The epoch, the mode and whether there were no ids, of the last pass if it was skipped; else None.
        self._skipped_like: tuple[float, str, bool] | None = None
        self._turns, self._mode_before = 0, ""  # how often a pass of the training followed others
        self._writes_of: Callable[[Any], int] = getattr(backend, "writes", lambda model: 0)
        self._state_before = -1, 0, 0  # of the model in an evaluation: turn, writes, and changes in the turn
        self._pass_bytes = self._pass_rows = 0  # of the last recorded pass
        self._busy_before = sender.busy  # at the last payment to the budget
        self._pass_began = process_seconds(), self.budget.spent  # the present pass: clocks, and costs so far
        self._began, self._set_passes, self._is_set_cost_known = process_seconds(), 0, False
        self._apart: tuple[Seconds, Seconds] | None = None  # the same, of a pass apart from the training

    def attach(self, known: Iterable[Operation], chosen: Iterable[Operation]) -> None:
        """Store the operations known before the first call, and those of them to record."""
        self.coverage.operations = tuple(operation.address for operation in chosen)
        self._chosen = {operation.address: False for operation in known} | dict.fromkeys(
            self.coverage.operations, True
        )

    def check_target(self, target: RegisteredTarget) -> None:
        """Warn if a target is for this model and run, but for none of the layers, or looks one-hot."""
        if target.is_for(self.name, self.run):
            self.check_shape(target.name, target.labels)
            self.check_layers(f"layer_pattern of the target {target.name!r}", target.layer_pattern)

    def check_shape(self, name: str, labels: list[Any]) -> None:
        """Warn if labels look one-hot."""
        if doubt := doubt_of_shape(name, labels):
            self.troubles.warn_once(f"intus: {doubt}")

    def check_layers(self, what: str, pattern: str) -> None:
        """Warn if a pattern matches none of the recorded operations that are known before the first call."""
        of_values = all(kind in ("output", "input") for kind in self.coverage.kinds)
        of_calls = any(mark in pattern for mark in ("@", "\\["))  # parts and calls are not known yet
        if not self.coverage.operations or not of_values or of_calls:
            return
        if not any(re.search(pattern, address) for address in self.coverage.operations):
            count, near = len(self.coverage.operations), did_you_mean(pattern, self.coverage.operations)
            text = (
                f"intus: the pattern {what}, {pattern!r}, matches none of the {count} layers of {self.name}. "
            )
            self.troubles.warn_once(text + near)

    @property
    def epoch(self) -> float:
        """The number of the epoch. Setting another one ends the current epoch."""
        return self._epoch

    @epoch.setter
    def epoch(self, value: float) -> None:
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
        self._names_items = self._names_items or value is not None
        thread = threading.get_ident()
        if value is not None and self._items is not None and self._items_of != thread:
            self.troubles.warn_once(_ITEMS_OF_THREADS, self.name)
            self._order.refuse()
            value = self._order.unknown_ids(len(value))
        self._items, self._items_of = value, thread

    @property
    def framework(self) -> str:
        """The name of the model's framework."""
        return self._backend.name

    def change_epoch(self, old: float, new: float) -> None:
        """End an epoch of the records and begin another."""
        if self._ended:
            return
        self._end_epoch(old)
        if self.sender.begin(EpochKey(self.run, self.name, new)):
            self._doubts += [replace(one, after=None) for one in self._lasting]

    def _end_epoch(self, epoch: float) -> None:
        """Report the end of an epoch, with all that is missing in it."""
        self._show_parameters()
        self._parameters = {}
        began, self._epoch_began = self._epoch_began, (self.passes, self.budget.skipped, self.recorded)
        passes, skipped, recorded = (
            now - before for now, before in zip(self._epoch_began, began, strict=True)
        )
        share = f"{self.budget.share:.0%}"
        if skipped and skipped == passes and not recorded:
            self.troubles.warn_once(_NO_PASS, f"{epoch:g}", self.name, passes, share)
        elif skipped and not self._are_skips_known:
            self._are_skips_known = True
            self.troubles.inform("skipped", _SOME_PASSES.format(share, skipped, passes))
        if self._misfits:
            self.troubles.inform("items", _MISFITS.format(f"{epoch:g}", self._misfits, passes), "warning")
            self._misfits = 0
        self._tell_partly_named(epoch)
        if self.source.are_passes_recorded and recorded and self.source.is_untrained():
            untrained = Facts(is_untrained=True).note
            self.doubt(replace(_of_epoch(untrained, epoch), modes=(), every=False))
        self.coverage.tell(recorded=recorded > 0 and not self._is_refusal_said)
        self._axes.tell()
        self._tell_cost_of_set(epoch)
        self._tell(epoch)
        self.sender.end(EpochKey(self.run, self.name, epoch), self.coverage.take_idle())

    def _tell_partly_named(self, epoch: float) -> None:
        """Say once for each mode that only a part of an epoch's passes have ids."""
        passes, self._named_passes = self._named_passes, {}
        has_labels = any(True for _ in self._label_patterns())
        for mode, (without, named) in passes.items():
            if without and named and has_labels and mode not in self._partly_named:
                self._partly_named.add(mode)
                counts = without, without + named
                self.troubles.inform("items", _PARTLY.format(epoch, self.name, *counts, mode), "warning")

    def _tell(self, epoch: float) -> None:
        """Report what was logged since the last time."""
        self._tell_refused()
        if self.statistics is not None and (mixed := self.statistics.take_mixed()) and not self._is_mixed:
            self._is_mixed = True
            layers = f"Layer{'s' * (len(mixed) > 1)} {listed(mixed)}"
            self.troubles.inform("statistics", _MIXED.format(layers, self.name, epoch), "warning")
        if news := self.troubles.take_news():
            self.sender.tell(EpochKey(self.run, self.name, epoch), news)
        doubts, self._doubts = self._doubts, []
        for doubt in doubts:
            self.sender.doubt(self.run, self.name, doubt)

    def doubt(self, doubt: Doubt) -> None:
        """Tell the server, at the end of the pass, of a doubt of rows whose scores may be stored already."""
        self._doubts.append(doubt)
        if doubt.until is None:
            self._lasting.append(doubt)

    def _doubt_items(self, note: str, modes: Iterable[str], withdraw: bool) -> None:
        """Doubt the items of all rows that had ids in these modes so far."""
        if self._named is not None:
            self.doubt(Doubt(note, withdraw, until=self._named[0], modes=tuple(modes)))

    def _note_other_inputs(self) -> None:
        """Note on scores from this epoch on that items have other inputs than before."""
        note = Facts(has_other_inputs=True).note
        self.doubt(Doubt(note, after=math.nextafter(self._epoch, -math.inf)))

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
        if not self.probe_runs.running:
            self._find_epoch(inputs)
            self.probe_runs.step_begins(self._step)
        tags = self.probe_runs.tags(self._step) or self._training_tags(inputs)
        if tags is None or self.is_refused():
            return False
        began, self._apart = thread_seconds(), None
        self._pass_began = process_seconds(), self.budget.spent
        self._tags = tags
        self._wait_until = time.monotonic() + _PROBE_SET_WAIT_S
        self._pass_bytes = self._pass_rows = 0
        self._fitting = None
        self._axes.begin(inputs, tags.epoch, None if tags.items is None else len(tags.items))
        self._end_structure(None)  # left by an interrupted pass
        structure, self._structure = self._structure, None
        if structure is not None:
            any_thread = getattr(structure, "any_thread", False)
            self._traced, self._traced_thread = structure, None if any_thread else threading.get_ident()
            self._graph_made(partial(structure.begin, self._model(), inputs))
        else:
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
        if self._names_items or self.source.is_searching or self.probe_runs.running:
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
            self.epoch = epoch

    def _before_step(self) -> None:
        """Find the epoch of a step of an optimizer, which changes the model also where it is not called."""
        if self._replaced or self._ended or self.probe_runs.running or are_probes_disabled():
            return
        try:
            self._find_begun(self.source.epoch_at_step(self._epoch, self.name))
        except Exception as error:
            self.on_error(error)

    def _find_items(self, inputs: Any, mode: str) -> np.ndarray | None:
        """Find the ids of the rows of a call of the training, unless the script sets them."""
        began = thread_seconds()
        try:
            return self.source.items_of(inputs, mode)
        except Exception as error:
            self.on_error(error)
            return None
        finally:
            self.budget.pay(thread_seconds_since(began))

    def _epoch_over(self) -> None:
        """Run the probe set as soon as an epoch is over: the model may not live until the next one."""
        self._show_parameters()
        self.probe_runs.loader_ends()

    def _training_tags(self, inputs: Any) -> PassTags | None:
        """Return the tags of a call of the training, or None if it is not recorded."""
        epoch, step, items = self._epoch, self._step, self._items
        self._step += 1
        self._passes += 1
        self._items = None
        self._skipped_like = None
        if self.probe_runs.replaces_training:
            return None
        mode, is_unnamed = self._mode_of_pass(), items is None
        self._turns += mode == _TRAINING != self._mode_before
        self._mode_before = mode
        self._pay_sender()
        if self._is_of_second(inputs, mode):
            return None
        if self._pass_rows:
            self._adapt_rows()
        period = epoch, mode
        unpaid = self.budget.skips(period, mode)
        watched = not unpaid and self.budget.allows(process_seconds(), period, mode)
        if items is None and (watched or period not in (self._order.period, self._named)):
            items = self._find_items(inputs, mode)
            if items is None and self.source.is_refused:
                self._order.refuse(mode)
        if items is not None:
            self._check_items(items)
        named = items is not None or (not watched and (self.source.has_ids or period == self._named))
        if named:
            self._named = period
            self._order.on_named(mode)
        elif self._order.is_new(epoch, mode):
            began = process_seconds()
            first = self._backend.order(inputs, self.batch_axis)
            self._order.on_forward_start(epoch, mode, first, self._backend.shuffled)
            self.budget.pay_once(process_seconds_since(began))
        if not watched:
            self._warn_skipped(named=named)
            if not self.source.is_searching:
                self._skipped_like = epoch, mode, is_unnamed
            return None
        self._last_watched = epoch
        self._named_passes.setdefault(mode, [0, 0])[items is not None] += 1
        ordered = items is not None or self._order.is_known(mode)
        labels = None if self.statistics is None else self._labels(period, items)
        facts = self._facts(inputs, epoch)
        trains = mode == _TRAINING or self._takes_gradients()
        return PassTags(epoch, step, mode, items, self.budget.rows, ordered, labels, facts, trains)

    def _facts(self, inputs: Any, epoch: float) -> PassFacts:
        """Return what the server shall know of a pass of the training that is recorded."""
        began = thread_seconds()
        try:
            trains = self.source.trains()
            if trains is None:
                model = self._model()
                trains = model is None or self._backend.mode(model) == _TRAINING
            data, turn = self.source.data_of(inputs), 0
            if not trains:
                turn = self._turn()
            is_part = trains and self.source.is_part(epoch)
            return PassFacts(*data, turn, is_part, self.source.has_copies)
        except Exception as error:
            self.on_error(error)
            return NO_FACTS
        finally:
            self.budget.pay(thread_seconds_since(began))

    def _takes_gradients(self) -> bool:
        """Return whether gradients can follow the pass in progress, as far as the framework tells."""
        return self._has_gradients is not None and self._has_gradients()

    def _turn(self) -> int:
        """Return a number that changes when the model did: by training, or by writes to its parameters.

        Writes are counted from the last training on, so that processes of one training find the same number
        though they record other passes.
        """
        turn = self._turns or (0 if self._takes_gradients() else self.source.stepped)
        model = self._model()
        writes = 0 if model is None else self._writes_of(model)
        before, writes_before, changes = self._state_before
        changes = 0 if turn != before else changes + (writes != writes_before)
        self._state_before = turn, writes, changes
        return turn * _MOST_CHANGES + min(changes, _MOST_CHANGES - 1)

    def _check_items(self, items: np.ndarray) -> None:
        """Warn of targets that have fewer labels than there are items."""
        if not self.sender.targets or not items.size:
            return
        last = int(items.max())
        for one in list(self.sender.targets.values()):
            if last >= len(one.labels) and one.is_for(self.name, self.run):
                named = repr(one.name).replace("%", "%%")
                self.troubles.warn_once(_FEW_LABELS.format(named, len(one.labels)), self.name, last)

    def _is_of_second(self, inputs: Any, mode: str) -> bool:
        """Return whether a call has rows of a second dataset, and one score must not be of two."""
        began = thread_seconds()
        try:
            return self.source.is_of_second(inputs, self._epoch, mode)
        except Exception as error:
            self.on_error(error)
            return False
        finally:
            self.budget.pay(thread_seconds_since(began))

    def _pay_sender(self) -> None:
        """Pay for what the sender's thread and devices have done since the last time."""
        busy = self.sender.busy
        if busy != self._busy_before:
            since = Seconds(*(now - before for now, before in zip(busy, self._busy_before, strict=True)))
            self._busy_before = busy
            self.budget.pay(since)

    def _labels(self, period: tuple[float, str], items: np.ndarray | None) -> Labels | None:
        """Return the labels to make statistics of a pass of the training with; None if its rows are sent."""
        assert self.statistics is not None
        began = process_seconds()
        mine: dict[str, RegisteredTarget] = {}
        for one in self.sender.targets.values():
            if one.is_for(self.name, self.run):
                if mine.setdefault(one.name, one).layer_pattern != one.layer_pattern:
                    self.troubles.warn_once(_LABELS_BY_LAYER, self.name, one.name)
                    return None
                mine[one.name] = one  # the newest counts
        labels = self.statistics.labels_in(period, mine)
        self.budget.pay_once(process_seconds_since(began))
        if labels.left_out:
            self.troubles.warn_once(_OTHER_GROUPS, ", ".join(labels.left_out), self.name)
        if items is not None and labels.exist and labels.have(items):
            return labels
        self.troubles.warn_once(_NO_STATISTICS if labels.exist else _NO_LABELS, self.name)
        return None

    def _adapt_rows(self) -> None:
        """Bound the rows of later passes by the size of the last recorded one."""
        nbytes, rows = self._pass_bytes, self._pass_rows
        self._pass_bytes = self._pass_rows = 0
        self.budget.adapt_rows(nbytes, rows)
        if not self._wait:
            affordable = min(rows, self.budget.rows or rows)
            self._fit_queue(nbytes * affordable // rows, affordable)

    def _warn_skipped(self, *, named: bool) -> None:
        """Warn of passes without ids and of epochs that are skipped, each once."""
        if not named and not self._skips:
            self._skips = True
            self.troubles.warn_once(_SKIPPED, self.name, f"{self.budget.share:.0%}")
        if self.budget.skipped_periods and not self._skips_epochs:
            self._skips_epochs = True
            wait = self.budget.seconds_until_next(process_seconds())
            self.troubles.warn_once(_SKIPPED_EPOCHS, self.name, f"{self.budget.share:.0%}", wait)

    def _warn_skipped_epochs(self) -> None:
        """Say at the end of the training which epochs have no data."""
        self.budget.end()
        skipped, all_ = self.budget.skipped_periods, self.budget.periods
        if 0 < skipped < all_:
            text = _SKIPPED_AT_END.format(
                skipped, all_, self.name, f"{self.budget.share:.0%}", self._last_watched
            )
            self.troubles.inform("skipped", text, "warning")

    def met(self, operation: Operation) -> bool:
        """Return whether an operation is to be recorded. One that was not known is noted, called or not."""
        chosen = self._chosen.get(operation.address)
        if chosen is None:  # discovered during the pass
            chosen = self._chosen[operation.address] = self._schedule.chooses(self._model(), operation)
            self.coverage.operations += (operation.address,) if chosen else ()
        return chosen

    def wants(self, operation: Operation) -> PassTags | None:
        """Return the tags of the pass if the operation is recorded."""
        chosen = self.met(operation)
        if self.probe_runs.checks_rows:
            return self._tags if chosen else None
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
            self._apart = self._pass_began
        if tensor.without_rows:
            self.troubles.warn_once(_NO_BATCH, tensor.kind, tensor.address, self.name, tensor.without_rows)
        elif tensor.has_batch:
            tensor = self._with_axis(ticket, tensor)
        cut = self._schedule.cut(tensor, ticket.rows)
        parts = self._parts(ticket, tensor, cut)
        if not parts:
            cut = self._fit(tensor, cut, ticket.rows)
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
        self._parameters[ticket.mode, address] = show
        self._shown_at = -1
        return True

    def _show_parameters(self) -> None:
        """Record the parameters of the epoch as they are now, unless no step came since that was done.

        The script may load others after the end of its data, which are not those of the epoch.
        """
        steps = self.source.stepped
        if not self._parameters or (steps and steps == self._shown_at) or self.is_refused():
            return
        self._shown_at = steps
        for show in self._parameters.values():
            try:
                if not show():
                    self.troubles.warn_once(_GONE, self.name, f"{self._epoch:g}")
            except Exception as error:
                self._fail(error)
        self.sender.post()

    def epoch_is_trained(self) -> None:
        """Record the parameters of the epoch: what changes them from now on is no training of it."""
        self._show_parameters()
        self._parameters = {}

    def axis_to_follow(self) -> int | None:
        """Return the axis of the rows of the pass that begins, if a backend shall follow them through layers.

        These are the first, second, fourth … recorded pass of the training.
        """
        if self.probe_runs.running:
            return None
        self._followable += 1
        return self.batch_axis if self._followable & (self._followable - 1) == 0 else None

    def on_moved(self, address: str, *, is_known: bool = True) -> None:
        """Register that the rows of a layer are in another order than in the batch.

        Args:
            address: The layer.
            is_known: Whether that is known; otherwise they may be, since others before are.
        """
        if address in self._moved:
            return
        self._moved.add(address)
        epoch = f"{self._tags.epoch:g}"
        is_by_order = self._tags.items is None and self._tags.ordered
        if is_known:
            text = _MOVED.format(address, self.name, epoch, _OF_OTHERS if is_by_order else _REFUSED)
            self.troubles.inform("rows", text, "warning")
        else:
            self._unproven.append(address)
        self._withdraw(address, _MOVED_NOTE if is_known else _UNPROVEN_NOTE)

    def on_other_rows(self, address: str) -> None:
        """Register that the rows of a layer are not known to be those that the ids of the pass are for."""
        if address not in self._moved:
            self._moved.add(address)
            self.troubles.inform("rows", _OTHER_CALL.format(address, self.name), "warning")
            self._withdraw(address, _OTHER_CALL_NOTE)

    def _withdraw(self, address: str, note: str) -> None:
        """Doubt the items of a layer: of its rows so far, and by order of arrival also of later ones."""
        is_by_order = self._tags.items is None and self._tags.ordered
        until = None if is_by_order else self._tags.epoch
        self.doubt(Doubt(note.format(f"{self._tags.epoch:g}"), True, until=until, address=address))

    def _tell_unproven(self) -> None:
        """Say of which layers of the pass the order of rows is not proven."""
        if not self._unproven:
            return
        scores = "They have" if len(self._unproven) > 1 else "It has"
        facts = listed(self._unproven), self.name, f"{self._tags.epoch:g}", scores
        self.troubles.inform("rows", _UNPROVEN.format(*facts), "warning")
        self._unproven = []

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
        if tensor.kind.startswith("grad_"):  # whose number may say which of several gradients it is
            return without_call(tensor.address) in map(without_call, self._moved)
        return tensor.address in self._moved

    def _parts(self, ticket: PassTags, tensor: CapturedTensor, cut: Cut) -> list[Part]:
        """Return the rows of which statistics are sent instead of a tensor; none if its rows are sent.

        Statistics of rows in another order than that of their items would mix up their labels.
        """
        if self.statistics is None:
            return []
        items = None if self._is_reordered(ticket, tensor) else ticket.items
        return self.statistics.parts(tensor, cut, (ticket.epoch, ticket.mode), items, ticket.labels)

    def _repeat(self, ticket: PassTags, tensor: CapturedTensor, cut: Cut, parts: list[Part]) -> bool:
        """Record a tensor that holds what another did in this pass, without a copy; False if none did.

        A container returns what its last child returned, and dropout in evaluation what it was given.
        """
        contents = _contents(ticket, tensor, cut, parts)
        count = len(parts) or 1
        if contents is None or not self.sender.gather_again(
            contents, count, tensor.address, tensor.kind, tensor.index
        ):
            return False
        self.recorded += count
        self.coverage.recorded_at.add(tensor.address)
        return True

    def _send(self, ticket: PassTags, tensor: CapturedTensor, cut: Cut, parts: list[Part]) -> None:
        """Copy a tensor, or make statistics of it, and pass the records to the sender."""
        if cut.axis is not None:
            self._pass_rows = max(self._pass_rows, tensor.shape[cut.axis])
            nbytes = sum(part.nbytes for part in parts) or cut.nbytes
            self._pass_bytes += math.ceil(
                nbytes * tensor.shape[cut.axis] / (cut.rows or tensor.shape[cut.axis] or 1)
            )
        epoch = EpochKey(self.run, self.name, ticket.epoch)
        for part in parts or (None,):
            nbytes = cut.nbytes if part is None else part.nbytes
            if not self.sender.reserve(nbytes, self._room_wait(), epoch):
                continue
            try:
                record = self._record(ticket, tensor, cut, part)
            except Exception:
                self.sender.release(nbytes)
                raise
            self.sender.gather(record, nbytes, _contents(ticket, tensor, cut, parts))
            self.recorded += 1
            self.coverage.recorded_at.add(tensor.address)

    def _fit(self, tensor: CapturedTensor, cut: Cut, rows: int | None) -> Cut:
        """Return the part of a tensor to copy, or less of it if the queue is smaller.

        Args:
            tensor: The tensor.
            cut: The part.
            rows: The number of rows that the part was bounded to; None for all.
        """
        if self._queue_rows is not None and (rows is None or self._queue_rows < rows):
            cut = self._schedule.cut(tensor, self._queue_rows)
        if cut.axis is not None and cut.nbytes > self.sender.capacity:
            self._fit_queue(cut.nbytes, cut.rows or tensor.shape[cut.axis])
            cut = self._schedule.cut(tensor, self._queue_rows)
        return cut

    def _fit_queue(self, nbytes: int, rows: int) -> None:
        """Bound the rows of this and later passes, if a pass of so many bytes does not fit into the queue."""
        capacity = self.sender.capacity
        if nbytes > capacity:
            fitting = max(int(_ROOM * capacity * rows / nbytes), 1)
            self._queue_rows = min(fitting, self._queue_rows or fitting)
            self.troubles.warn_once(_QUEUE_CUT, self.name, nbytes, capacity, self._queue_rows)

    def _room_wait(self) -> float:
        """Return the seconds to wait for room in the queue; a pass of the probe set may wait."""
        if not self.probe_runs.running:
            return self._wait
        return max(self._wait, min(BLOCK_S, self._wait_until - time.monotonic()), 0.0)

    def on_forward_end(self, output: Any) -> None:
        """Send the records of the pass, and the graph of the first one."""
        if self.probe_runs.checks_rows:
            return
        if self._first and output is not None:
            self._first = False
            self.coverage.warn_never_called()
        if self._fitting is False and self._tags.items is not None:
            self._fitting = None
            self._misfits += 1
            self.troubles.count("items", _MISFIT, len(self._tags.items), self.name, self._pass_rows)
        self._axes.end()
        self._tell_unproven()
        if self._tags.mode == PROBE_SET_MODE:
            self._axes.tell()
        try:
            self._end_structure(output)
        finally:
            began = thread_seconds()
            self._tell(self._tags.epoch)
            self.sender.post()
            self.budget.pay(thread_seconds_since(began))
            if self._apart is not None:
                self._pay_apart(*self._apart)

    @contextmanager
    def paying_for_set(self) -> Iterator[None]:
        """Pay for a pass of the probe set: its forward, and what the sender does meanwhile and after it."""
        self._pay_sender()
        began, spent = process_seconds(), self.budget.spent
        try:
            yield
        finally:
            self._pay_apart(began, spent)
            self._busy_before = self.sender.busy
            self._set_passes += 1

    def _tell_cost_of_set(self, epoch: float) -> None:
        """Say once if the passes of the probe set take more of the training than a budget would allow."""
        spent = self.budget.spent.processor
        if self._set_passes < 2 or spent < FREE_S or self._is_set_cost_known:
            return
        share = min(spent / max(process_seconds_since(self._began).processor, spent), 1.0)
        if share > self.budget.share:
            self._is_set_cost_known = True
            text = _SET_TAKES.format(self.name, share, epoch, spent / self._set_passes)
            self.troubles.inform("cost", text)

    def _pay_apart(self, began: Seconds, spent: Seconds) -> None:
        """Pay for the rest of a pass apart from the training, such as a compilation.

        Args:
            began: When the pass began.
            spent: What had been spent by then.
        """
        self._apart = None
        rest = zip(process_seconds_since(began), self.budget.spent, spent, strict=True)
        self.budget.pay_once(Seconds(*(max(all_ - now + before, 0.0) for all_, now, before in rest)))

    def on_error(self, error: Exception) -> None:
        """Count an error, and log it if its text is new; a refusal counts once for each reason.

        Beside a probe set nothing is missing of a pass of the training, which is not recorded in any case.
        """
        if self.probe_runs.running or not self.probe_runs.replaces_training:
            self._fail(error)
        elif not isinstance(error, IntusError):
            self._log_error(error)

    def _fail(self, error: Exception) -> None:
        """Log an error by which something is missing in the epoch."""
        self._log_error(error)
        epoch = self._tags.epoch if self._tags.mode else self.epoch
        self.sender.count_failed(EpochKey(self.run, self.name, epoch))

    def _log_error(self, error: Exception) -> None:
        text = "intus could not record part of a pass and continues without it: %s: %s"
        refused = isinstance(error, IntusError)  # in each pass again, and often for many layers
        code = _NAMES.sub("", str(error)) if refused else type(error).__name__
        of = type(error).__name__, error
        if refused:
            self._note_refused(code, str(error))
        self.troubles.count(f"hook {code}", text, *of, once=refused, most=1 if refused else _MOST_ERRORS)

    def _note_refused(self, code: str, text: str) -> None:
        """Note the layers that a refusal names: only the first for each reason becomes a warning."""
        names = [name for name in _NAMES.findall(text) if name.startswith("'")]
        first = ", ".join(names)
        _, told = self._refused.setdefault(code, (first, dict.fromkeys(names, True)))
        if len(told) < _MOST_REFUSED:
            for name in names:
                told.setdefault(name, False)

    def _tell_refused(self) -> None:
        """Name the layers that were refused for the reason of an earlier warning."""
        for first, told in list(self._refused.values()):
            if others := [name for name, is_told in list(told.items()) if not is_told]:
                told.update(dict.fromkeys(others, True))
                names = listed(name[1:-1] for name in others)
                self.troubles.warn_once(_ALSO.format(first, self.name, len(others), names))

    # ------------------------------------------------------------------------------------------------

    def before_flush(self) -> None:
        """Run the probe set if it is due, and report what is missing so far."""
        if not self._ended:
            self._show_parameters()
            self.probe_runs.training_ends()
        self.source.end(self.name, self.epoch)
        self._axes.tell()
        self._tell(self.epoch)
        if not self.source.is_stopped_inside():
            self.sender.whole(EpochKey(self.run, self.name, self.epoch))

    def replace_earlier(self, job: str) -> None:
        """End the probes of an earlier training of this process with the same names; must come first.

        Those of the same model are of the same training until something of it was recorded.

        Args:
            job: The name that this process shares with the other processes of the training; "" if unknown.
        """
        end_dead()
        model = self._model()
        same = [tap for tap in self.sender.taps if (tap.run, tap.name) == (self.run, self.name)]
        earlier = [tap for tap in same if not tap._ended and (tap._model() is not model or tap.recorded)]
        for tap in earlier:
            tap.end()
            tap._replaced = True
            tap.troubles.warn_once(_REPLACED, self.name, self.run)
        if any(tap not in earlier and not tap._ended for tap in same):
            return
        self.sender.begin_training(self.run, self.name, job)

    def model_ends(self) -> None:
        """Show the last state of a model that dies, if the probe set is recorded."""
        self.probe_runs.model_ends()

    def end(self) -> None:
        """Run the probe set if it is due, send the collected records, and end the recording of a graph."""
        if self._ended:
            return
        self.count_left_out()
        self.probe_runs.ends()
        self._ended = True
        self.source.end(self.name, self.epoch)
        if self.source.is_stopped_inside():
            self.doubt(_of_epoch(_STOPPED, self._epoch))
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
            self._warn_skipped_epochs()
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
        }

    def _record(
        self, tags: PassTags, tensor: CapturedTensor, cut: Cut, part: Part | None
    ) -> Record | LateRecord:
        """Copy a tensor into a record, or begin to make statistics of it for one."""
        if part is not None and self.statistics is not None:
            self._fitting = True
            begun = self.statistics.begin(part, tensor, cut.axis or 0, self.sender.count_device)
            return LateRecord(cache(begun), tensor.address, **self._origin(tags, tensor))
        items, axis, summary = tags.items, cut.axis, None
        if cut.projected_from is not None and tensor.project is not None:
            array, summary = tensor.project(cut.rows, axis or 0)
        else:
            array = tensor.copy(cut.rows, axis or 0)
            if cut.projected_from is not None:
                summary = summarize(np.moveaxis(array, axis or 0, 0).reshape(array.shape[axis or 0], -1))
                array = project(array if array.ndim == 3 else array.reshape(len(array), -1))
        is_cut = axis is not None and self._queue_rows is not None and cut.rows == self._queue_rows
        cut_from = tensor.shape[axis] if is_cut and axis is not None else None
        if axis is None:
            items = None
        elif items is not None and self._is_reordered(tags, tensor):
            items = self._order.unknown_ids(array.shape[axis])
        elif items is not None and tensor.shape[axis] == len(items):
            self._fitting, items = True, items[: array.shape[axis]]
        elif items is not None and tags.mode == PROBE_SET_MODE:
            items = None  # a layer with other rows, which come in the same order each time
        elif items is not None or not tags.ordered or cut_from is not None:
            self._fitting = self._fitting or False
            items = self._order.unknown_ids(array.shape[axis])
        return Record(
            array,
            tensor.address,
            batch_axis=axis,
            items=items,
            projected_from=cut.projected_from,
            summary=summary,
            cut_from=cut_from,
            **self._origin(tags, tensor),
        )

    def _end_structure(self, output: Any) -> None:
        """Send the graph of the first pass."""
        if self._traced is None or self._traced_thread not in (None, threading.get_ident()):
            return  # a pass on another thread is in progress
        structure, self._traced = self._traced, None
        began = thread_seconds()
        graph = self._graph_made(partial(structure.end, output))
        if graph is not None:
            query = urlencode({"run": self.run, "model": self.name})
            self.sender.send(f"/graph?{query}", encode_graph(graph), topic="graph")
        self.budget.pay_once(thread_seconds_since(began))

    def _graph_made(self, make: Callable[[], T]) -> T | None:
        """Return what a function of the recorder of the graph returns; if it raises, None, and say so."""
        try:
            return make()
        except Exception as error:  # of code of the model that the recorder runs once more, or of ours
            lines = str(error).strip().splitlines() or [""]
            line = lines[-1 if lines[0].startswith("Traceback") else 0]
            self.troubles.warn_once(_NO_GRAPH, self.name, type(error).__name__, line)
            return None


def _label_patterns(
    sender: Sender, run: str, name: str, probe_set: ProbeSet | None
) -> Callable[[], Iterable[str]]:
    """Return a function that returns the patterns of the layers that this process has labels for."""
    if probe_set is not None:
        patterns = [probe_set.layers.get(target, "") for target in probe_set.labels]
        return lambda: patterns
    return lambda: [one.layer_pattern for one in sender.targets.values() if one.is_for(name, run)]


def _of_epoch(note: str, epoch: float) -> Doubt:
    """Return a note on all scores of the training's own passes in one epoch."""
    return Doubt(note, after=math.nextafter(epoch, -math.inf), until=epoch, modes=(_TRAINING,), every=True)


def _contents(ticket: PassTags, tensor: CapturedTensor, cut: Cut, parts: Iterable[Part]) -> Hashable | None:
    """Return what records of a tensor are made of; None if it may change in the course of the pass."""
    if tensor.contents is None:
        return None
    return ticket, tensor.contents, cut, tuple(part.known for part in parts)
