"""Run the probe set through the model at the right times, and tag these passes."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...backends.base import Backend, CapturedTensor
from ...backends.sharding import Together
from ...core.doubt import Doubt
from ...core.notes import Facts
from ...core.probes_disabled import probes_disabled
from ...core.record import PROBE_SET_MODE
from ..probe_set import ProbeSet, taken
from ..row_check import Place, RowCheck, Rows, Verdict, listed, permutation
from ..schedule import Schedule
from ..warn_once import WarningLog
from .batch_axes import possible
from .costs import Costs
from .model_reference import ModelReference
from .pass_tags import PassTags

_TWICE = (
    "intus: the probe set has already run in epoch %s, so later changes in that epoch are not shown: two "
    "states of the model cannot share one. Set watch.epoch = number before what changes the model. If you "
    "ran it on the untrained model as epoch 0, number the epochs of the training from 1."
)

_NOTHING_NEW = (
    "run_probe_set() ran nothing in epoch {:g}, because this epoch was shown with the same values of the "
    "model. What else changed, such as an attribute, is not shown."
)
_REMOVED = (
    "intus: the probe set of %s was not run, because its probe records nothing more: it was removed, or "
    "another one took its place. Call probe() again."
)
_GONE = (
    "intus: the probe set was not run, because the model no longer exists: a probe does not keep it. Keep it "
    "in a variable until the probe is removed."
)
_LAST_GONE = (
    "intus: the last state of %s is not recorded: the model no longer exists, a probe does not keep it, and "
    "the probe set had not run since it was trained or called last. Call watch.remove() or flush() while the "
    "model exists."
)
_UNPLACED = (
    "intus: the probe set of %s was not run, because its parameters changed before anything showed a "
    "training: it was neither called in training mode with an optimizer, nor did an optimizer of PyTorch "
    "step. So it is not known which epoch this is. Set watch.epoch = number before each epoch, from 1, or "
    "call model(x)."
)
_UNNAMED = (
    "intus: the probe set of %s was not run, because its parameters changed after probe(), and nothing says "
    "which epoch this is. Set watch.epoch = number before each epoch, from 1, or watch.epoch = 0 for a model "
    "that is not trained yet."
)
_NEVER_CALLED = (
    "intus: the probe set of %s was not run, because every=%s counts calls of the model itself, and it was "
    "trained without any, as inside torch.compile or by its methods. Call model(x), or leave out every= and "
    "set watch.epoch = number before each epoch."
)
_APART = (
    "intus: the probe set was not run at %s, because not every process of the sharded model came to run it. "
    "Set Probe.epoch, and call flush and Probe.remove, in every process at the same place."
)
_OWN_ORDER = (
    "{} of {} {} the order of rows: when the rows of the probe set came in another order, {} came in one of "
    "their own, as of rows that are sorted or sent to experts. Which label belongs to which is not known "
    "there, so they have no scores with labels."
)
_WRITTEN = (
    "intus: the inputs of the probe set of %s were written to after probe() got them, first seen in epoch "
    "%s. Which label belongs to which row is not known from then on, so no scores have labels. Pass "
    "copies: probe_set=(inputs.clone(), labels)."
)
_KERNELS = (
    "intus: the training changed {} after the probe set of {} first ran, seen in epoch {}. So the scores "
    "before and after may differ without anything learned. Set it before the first pass, and leave it."
)
_NOT_PROVEN = (
    "It is not proven for {} of {} that the order of rows is kept, because {}. Scores with labels assume it."
)
#: Why the order of rows is not proven, for each verdict.
_UNPROVEN: dict[Verdict, str] = {
    "mixed": "its rows are others when those of the probe set come in another order, as of noise drawn in "
    "evaluation mode, or of the nodes of a graph",
    "alike": "its rows differ by no more than rounding",
}

_NOT_KEPT = (
    "intus: the model that epoch %s of %s has trained is not shown, because other weights were loaded into "
    "it before the probe set ran, and it cannot be shown as it was before: %s. Call watch.run_probe_set() "
    "before you load weights."
)

#: More calls than any training makes between two looks at the probe set.
_MANY = 1 << 40


class _State(NamedTuple):
    """A number of each kind, which changes when the model is called or trained.

    Attributes:
        passes: Calls of the training.
        writes: Writes to parameters, as far as the framework counts them.
        values: The values of the parameters, or their identity; 0 if not known. They take long to read.
        buffers: The values of the buffers; 0 if not known.
    """

    passes: int
    writes: int
    values: int
    buffers: int

    @property
    def parameters(self) -> tuple[int, int]:
        """The numbers that change with the parameters."""
        return self.writes, self.values


class _Trained(NamedTuple):
    """A model as it was trained last, before other weights were loaded into it.

    Attributes:
        stepped: The number of steps of optimizers so far.
        state: What it was.
        as_before: A function of the model, which returns a context in which it has these values; or the
            reason why there is none.
    """

    stepped: int
    state: _State
    as_before: Callable[[Any], AbstractContextManager[None]] | str


class Host(Protocol):
    """The part of a tap that ``ProbeSetRunner`` uses."""

    epoch: float
    name: str
    troubles: WarningLog
    costs: Costs

    @property
    def passes(self) -> int:
        """Number of passes so far."""

    @property
    def step(self) -> int:
        """Number of the next call."""

    @property
    def is_over(self) -> bool:
        """True once the probe was removed."""

    @property
    def is_before_training(self) -> bool:
        """True if no epoch is named or found."""

    @property
    def is_observing(self) -> bool:
        """True if the framework shows a training."""

    @property
    def steps(self) -> int | None:
        """Number of steps of optimizers so far; None if the script names epochs, and may name another."""

    @property
    def stepped(self) -> int:
        """Number of steps of optimizers so far, whoever names epochs; 0 if they are not known."""

    def begin_further_epoch(self) -> bool:
        """Begin an epoch for a model that changed since this one was shown; False if the script names it."""

    def change_epoch(self, old: float, new: float) -> None:
        """End an epoch of the records and begin another."""

    def doubt(self, doubt: Doubt) -> None:
        """Tell the server of a doubt of rows whose scores may be stored already."""

    def on_error(self, error: Exception) -> None:
        """Count and log an error."""

    def is_refused(self) -> bool:
        """Return whether the model cannot be recorded as processes share it now, and say so."""

    def follow_model(self, model: Any, epoch: float, mode: str) -> bool:
        """Record the model as it is now, and return whether it has changed."""

    def end(self) -> None:
        """Record what is due, and end the recording."""

    def model_ends(self) -> None:
        """Call ``ProbeSetRunner.model_ends``, since the model dies."""


class ProbeSetRunner:
    """Runs a probe set. Without one it does nothing.

    Args:
        host: The tap that records the passes.
        model: The model.
        backend: The model's backend.
        probe_set: The probe set, or None.
        together: The agreement of the processes that must run it together, or None.
        schedule: Says which part of a tensor is copied, and which axis of the inputs has the rows.
    """

    def __init__(
        self,
        host: Host,
        model: Any,
        backend: Backend,
        probe_set: ProbeSet | None,
        together: Together | None,
        schedule: Schedule,
    ) -> None:
        self.running = False
        self.begins_untrained = True  # False of a training that is resumed, which has no epoch 0
        self._host = weakref.proxy(host)
        self._backend, self._set, self._together = backend, probe_set, together
        #: The model, and a twin of it after its end, so that its last state can be shown then.
        self.model = self._reference(model, host)
        #: What is known of the order of rows in the layers; None if the framework cannot tell.
        self._rows = RowCheck() if hasattr(backend, "row_contents") and together is None else None
        self._tested: tuple[float, ...] = ()  # the epochs of the last two passes whose rows were tested
        self._schedule, self._axis = schedule, schedule.batch_axis
        self._contents_of = getattr(backend, "row_contents", None)
        self._contents = self._row_contents()
        self._settings: Callable[[], AbstractContextManager[None]] | None = None  # those of its first pass
        self._kernels_of: Callable[[Any], dict[str, Any]] = getattr(backend, "kernels", lambda model: {})
        self._kernels: dict[str, Any] | None = None  # the settings of kernels in its first pass
        self._is_written = False  # since the inputs are no longer those that the labels are for
        self._said: set[tuple[Place, Verdict]] = set()  # of which a notice tells
        self._are_orders_unknown = False  # whether a notice tells of it
        self._step: float = 0  # the call before which it ran last, with ``every``
        self._last_epoch = math.nan  # the epoch in which it ran last
        self._writes_of = getattr(backend, "writes", lambda model: 0)
        self._keep_values = getattr(backend, "keep_values", lambda model: "its framework does not tell")
        self._buffers_of = getattr(backend, "buffers", lambda model: 0)
        self._values_of = getattr(backend, "fingerprint", backend.version)
        #: When it ran last; before, at the start.
        self._last_state = self._state(model, 0) if probe_set is not None else _State(0, 0, 0, 0)
        self._last_steps: int | None = None  # of optimizers, when it ran last
        self._last_stepped = 0  # the same, whoever names epochs
        self._trained: _Trained | None = None  # that may have to be shown yet, if no step follows
        self._has_ended = False
        self._is_nothing_new_said = False

    @property
    def replaces_training(self) -> bool:
        """True if only the probe set is recorded, and not the training's own passes."""
        return self._set is not None

    @property
    def checks_rows(self) -> bool:
        """True during a pass that is run to see whether layers keep the order of rows."""
        return self._rows is not None and self._rows.is_running

    def receive(self, tensor: CapturedTensor) -> None:
        """Receive a tensor of such a pass."""
        assert self._rows is not None
        self._pass_on(tensor, self._rows.receive)

    def axis_of(self, tensor: CapturedTensor) -> int | None:
        """Return the batch axis of a tensor of the probe set as such a pass has shown it, or None."""
        if self._rows is None:
            return None
        place = Place.of(tensor)
        if self._rows.is_waiting(place):
            self._pass_on(tensor, self._rows.compare)
        else:
            self._rows.skip(place)
        return self._rows.axis(place)

    def is_reordered(self, tensor: CapturedTensor) -> bool:
        """Return whether the rows of a tensor of the probe set are not those of its labels in their order."""
        return self._is_written or (self._rows is not None and self._rows.is_refused(Place.of(tensor)))

    def _pass_on(self, tensor: CapturedTensor, take: Callable[[Place, Rows, Sequence[int]], None]) -> None:
        """Pass a tensor to the check of the order of rows, with each axis that may be theirs."""
        assert self._set is not None
        cut = self._schedule.cut(tensor, None)
        if cut.axis is None:
            return
        axes = [cut.axis]
        axes += [axis for axis in possible(tensor.shape, len(self._set.items), cut.axis) if axis != cut.axis]
        take(Place.of(tensor), Rows.of(tensor, cut.axis), axes)

    @property
    def number(self) -> float | None:
        """The number of the call that its records have instead of an epoch; None without ``every``."""
        return self._step if self._set is not None and self._set.every is not None else None

    def tags(self, step: int) -> PassTags | None:
        """Return the tags of the pass in progress, or None if it belongs to the training."""
        if not self.running or self._set is None:
            return None
        epoch = self._host.epoch if self._set.every is None else self._step
        return PassTags(epoch, step, PROBE_SET_MODE, self._set.items)

    def training_begins(self) -> None:
        """Run the probe set on the untrained model, before a training that names no epochs."""
        is_due = self.begins_untrained and math.isnan(self._last_epoch)
        if self._set is not None and self._set.every is None and is_due:
            self.run()

    def epoch_ends(self) -> None:
        """Run the probe set at the end of an epoch, if the model was called or trained since it last ran.

        A model that was shown when the data ended, and changed since without a step of an optimizer, was
        trained no further: weights were restored, or averaged for a validation.
        """
        self._show_epoch()

    def loader_ends(self) -> None:
        """Run the probe set at the end of the data, which is the end of an epoch in most scripts.

        If nothing changed since it ran, the step of this epoch may come after the data.
        """
        self._show_epoch(only_changed=not math.isnan(self._last_epoch))

    def _show_epoch(self, *, only_changed: bool = False) -> None:
        """Run the probe set if the model was called or trained since it last ran.

        Args:
            only_changed: Whether other parameters are required.
        """
        model = self.model()
        if model is None or self._set is None or self._set.every is not None or self._show_trained(model):
            return
        if self._is_shown and (steps := self._host.steps) is not None and steps == self._last_steps:
            return
        state = self._state(model)
        if state == self._last_state or self._is_unplaced(state):
            return
        if self._has_changed(state) or not only_changed:
            self.run(state)

    def step_begins(self, step: int) -> None:
        """Run the probe set before every ``every``-th call of the training."""
        if self._set is not None and self._set.every is not None and step % self._set.every == 0:
            self._host.change_epoch(self._step, step)
            self._step = step
            self.run()

    def take_as_shown(self) -> None:
        """Take the present model for the one that was shown last."""
        if (model := self.model()) is not None:
            self._last_state = self._state(model)

    def calls_until_next(self, step: int) -> int:
        """Return the number of calls, from number ``step`` on, before which it does not run."""
        if self._set is None:
            return 0
        return _MANY if self._set.every is None else -step % self._set.every

    def training_ends(self) -> None:
        """Run the probe set at the end of the training, if the model changed since it last ran."""
        model = self.model()
        if model is None or self._set is None:
            return
        if self._trained is not None:
            self._show_trained(model)
        state = self._state(model)
        if state == self._last_state or self._is_unplaced(state) or self._is_same(state):
            return
        self._count_calls()
        self.run(state)

    def _count_calls(self) -> None:
        """Give the present model the number of the calls so far, with ``every``."""
        if self._set is not None and self._set.every is not None:
            calls = max(self._host.step, self._step + 1)  # the script may set another number
            self._host.change_epoch(self._step, calls)
            self._step = calls

    # -- weights that are loaded after an epoch --------------------------------------------------------

    def keep_trained(self) -> None:
        """Keep a model that was trained since it was shown, for the script is about to load other weights.

        Only what follows tells whether its epoch is over: weights may be exchanged for an evaluation.
        """
        model, stepped = self.model(), self._host.stepped
        is_kept = self._trained is not None and self._trained.stepped == stepped
        if model is None or self._set is None or stepped == self._last_stepped or is_kept:
            return
        with self._host.costs.paying_for_set():
            state = self._state(model)
            try:
                self._trained = _Trained(stepped, state, self._keep_values(model))
            except Exception as error:  # such as no memory for a copy
                self._trained = _Trained(stepped, state, str(error))

    def forget_trained(self) -> None:
        """Let go of such a model, since the training goes on from other weights."""
        self._trained = None

    def _show_trained(self, model: Any) -> bool:
        """Run the probe set on the model that was kept; False if there is none, or the model is it again."""
        trained, self._trained = self._trained, None
        if trained is None or trained.stepped != self._host.stepped or self._is_unplaced(trained.state):
            return False
        state = self._state(model)
        if state[2:] == trained.state[2:]:
            return False
        reason = trained.as_before
        if callable(reason):
            self._count_calls()
            try:
                with reason(model):
                    self.run(trained.state)
                return True
            except Exception as error:
                reason = str(error)
        number = self._host.epoch
        self._host.troubles.warn_once(_NOT_KEPT, f"{number:g}", self._host.name, reason)
        self._ran(state)
        return True

    def ends(self) -> None:
        """Run the probe set before the probe is removed, also on a model that nobody trained, as epoch 0.

        Calling it again has no effect: a model of JAX that is no longer observed is the one before its steps.
        """
        if self._has_ended:
            return
        self._has_ended = True
        self.training_ends()
        if math.isnan(self._last_epoch) and self._host.epoch == 0:
            model = self.model()
            if model is None or not self._is_unplaced(self._state(model)):
                self.run()
        self.model.release()
        self._trained = None

    def gives_way(self) -> None:
        """End without showing the model, which another probe will show."""
        self._has_ended = True
        self.model.release()

    def _reference(self, model: Any, host: Host) -> ModelReference:
        """Return a reference to a model, and with a probe set to what it is made of, until it has ended."""
        remains = getattr(self._backend, "remains", None)
        if remains is None:
            return ModelReference(model)
        if self._set is None:  # nothing is left to record
            return ModelReference(model, None, host.model_ends, keeps=False)
        return ModelReference(model, None if self._together else remains(model), host.model_ends)

    def model_ends(self) -> None:
        """Show a model that dies, or say that this cannot be done, and end: nothing more can follow."""
        if self._set is not None and self.model() is None and self._is_behind():
            self._host.troubles.warn_once(_LAST_GONE, self._host.name)
            self._has_ended = True
        self._host.end()

    def _is_behind(self) -> bool:
        """Return whether the model was trained, or called if that is not known, since the probe set ran."""
        if self._last_steps is not None or self._host.steps is not None:
            return (self._host.steps or 0) != (self._last_steps or 0)
        return bool(self._host.passes != self._last_state.passes)

    def run_on_request(self) -> None:
        """Run the probe set because the script asks for it; if that shows nothing, say why."""
        if self._host.is_over and self.model() is not None:
            self._host.troubles.warn_once(_REMOVED, self._host.name)
        elif not self._run_on_request() and not self._is_nothing_new_said:
            self._is_nothing_new_said = True
            self._host.troubles.inform("probe set", _NOTHING_NEW.format(self._host.epoch))

    def _run_on_request(self) -> bool:
        """Run the probe set on the present model, and before it on one that an epoch of its own has."""
        model = self.model()
        if model is not None and self._host.steps is not None:  # else the script has named the present model
            self._show_trained(model)
        return self.run()

    def run(self, state: _State | None = None) -> bool:
        """Run the probe set now; if it has run in this epoch, only on a changed model, as another epoch.

        Args:
            state: The present state of the model, if it was read.

        Returns:
            False if it has run on this very model in this epoch.
        """
        model = self.model()
        if self._set is None or self.running:
            return True
        if model is None:
            if math.isnan(self._last_epoch):  # otherwise its end was shown, or it was said that it was not
                self._host.troubles.warn_once(_GONE)
            return True
        if self._host.is_refused():
            return True
        if state is None:
            state = self._state(model)
            if not self._host.is_observing and self._set.every is None and self._is_unplaced(state):
                return True
        if self._is_shown:
            if not self._has_changed(state) and state.buffers == self._last_state.buffers:
                self._last_state = state
                return False
            if not self._last_state.values or not self._host.begin_further_epoch():
                self._host.troubles.warn_once(_TWICE, f"{self._last_epoch:g}")
                return True
        is_first = math.isnan(self._last_epoch)
        self._ran(state)
        number = self._host.epoch if self._set.every is None else self._step
        if self._together is not None and not self._together.agree(number):
            self._host.troubles.count("together", _APART, f"{number:g}")
            return True
        self.running = True
        try:
            with self._host.costs.paying_for_set(), probes_disabled(), self._settings_of_first():
                self._compare_kernels(model, number)
                if self._host.follow_model(model, number, PROBE_SET_MODE) and self._rows is not None:
                    self._rows.forget()
                unknown = self._check_rows(model, number)
                inputs = self._checked_inputs(number)
                with self._backend.evaluation(model) as run:
                    run(inputs)  # not part of the training
                if self._rows is not None:
                    self._say_orders(unknown)
        except Exception as error:
            self._host.on_error(error)
        finally:
            self.running = False
        if is_first:  # which builds a model that is built when it is called
            self._last_state = self._state(model, state.passes)
        return True

    def _ran(self, state: _State) -> None:
        """Register that the present epoch needs to be shown no more."""
        self._last_epoch, self._last_state = self._host.epoch, state
        self._last_steps, self._last_stepped = self._host.steps, self._host.stepped
        self._trained = None

    def _settings_of_first(self) -> AbstractContextManager[None]:
        """Return a context with the framework's settings of the first pass, so that epochs can be compared.

        A pass runs where the script happens to be, inside its autocast or outside.
        """
        if self._settings is None:
            self._settings = getattr(self._backend, "settings", lambda: nullcontext)()
        return self._settings()

    def _compare_kernels(self, model: Any, number: float) -> None:
        """Say once of each setting of kernels that it is another than in the first pass."""
        now = self._kernels_of(model)
        before = self._kernels = now if self._kernels is None else self._kernels
        if changed := [name for name in before if before[name] != now[name]]:
            what = ", ".join(f"{name} from {before.pop(name)!r} to {now[name]!r}" for name in changed)
            self._host.troubles.warn_once(_KERNELS.format(what, self._host.name, f"{number:g}"))

    def _row_contents(self) -> bytes | None:
        """Return what the rows of the inputs are; None if that cannot be compared."""
        if self._set is None or self._contents_of is None:
            return None
        contents = self._contents_of(self._set.inputs, self._axis)
        return None if contents is None else contents.tobytes()

    def _checked_inputs(self, number: float) -> Any:
        """Return the inputs for a pass, as a copy that the model may write to, and notice if they changed."""
        assert self._set is not None
        if self._contents is None:
            return self._set.inputs
        if not self._is_written and self._row_contents() != self._contents:
            self._is_written = True
            self._host.troubles.warn_once(_WRITTEN, self._host.name, f"{number:g}")
        rows = len(self._set.items)
        return taken(self._set.inputs, self._axis, rows, np.arange(rows))

    def _check_rows(self, model: Any, number: float) -> str:
        """Run the rows in another order, if that is due; return why it cannot be known what layers do."""
        assert self._set is not None
        count = len(self._set.items)
        if self._rows is None or count < 2 or not self._rows.is_due():
            return ""
        order = permutation(count)
        try:
            inputs = taken(self._set.inputs, self._axis, count, order)
            with self._backend.evaluation(model) as run:
                self._rows.run(partial(run, inputs), order)
            self._tested = (*self._tested[-1:], number)
        except Exception as error:
            return f"the model cannot run the rows of the probe set in another order: {error}"
        return ""

    def _say_orders(self, unknown: str) -> None:
        """Say of which layers the rows have an order of their own, and of which that is not known."""
        assert self._rows is not None
        if news := self._new("reordered"):
            one = len({place.address for place in news}) == 1
            words = f"{'Layer' if one else 'Layers'} {listed(place.address for place in news)}"
            keep, those = ("does not keep", "its rows") if one else ("do not keep", "their rows")
            text = _OWN_ORDER.format(words, self._host.name, keep, those)
            self._host.troubles.inform("rows", text, "warning")
            self._doubt({place.address for place in news})
        for verdict, reason in _UNPROVEN.items():
            if news := self._new(verdict):
                names = listed(place.address for place in news)
                self._host.troubles.inform("rows", _NOT_PROVEN.format(names, self._host.name, reason))
        if unknown and not self._are_orders_unknown:
            self._are_orders_unknown = True
            self._host.troubles.inform("rows", _NOT_PROVEN.format("any layer", self._host.name, unknown))

    def _doubt(self, addresses: Collection[str]) -> None:
        """Doubt what layers that are now seen to have an order of their own recorded since it was proven."""
        *before, now = self._tested
        unproven = {place.address for place, verdict in self._said if verdict in _UNPROVEN}
        reason = f"the layer was seen to have its rows in an order of its own in epoch {now:g}"
        note = Facts(doubts=(reason,)).note
        for address in sorted(addresses):
            after = before[0] if before and address not in unproven else None
            doubt = Doubt(note, after=after, until=now, modes=(PROBE_SET_MODE,), address=address)
            self._host.doubt(doubt)

    def _new(self, verdict: Verdict) -> list[Place]:
        """Return the tensors of a verdict of which it was not said yet, and register that it is."""
        assert self._rows is not None
        news = [place for place in self._rows.places(verdict) if (place, verdict) not in self._said]
        self._said.update((place, verdict) for place in news)
        return news

    @property
    def _is_shown(self) -> bool:
        """True if it has run in the present epoch."""
        return self._set is not None and self._set.every is None and self._host.epoch == self._last_epoch

    def _has_changed(self, state: _State) -> bool:
        """Return whether the parameters differ from those when it ran last, or that is not known."""
        return not self._last_state.values or state.values != self._last_state.values

    def _is_same(self, state: _State) -> bool:
        """Return whether a model whose epochs are found was only called since it ran, as to evaluate it."""
        if math.isnan(self._last_epoch) or self._host.steps is None:
            return False
        is_stepped = self._host.steps != self._last_steps
        return bool(state.values) and not is_stepped and state[1:] == self._last_state[1:]

    def _state(self, model: Any, passes: int | None = None) -> _State:
        """Return the present state of the model."""
        passes = self._host.passes if passes is None else passes
        return _State(passes, self._writes_of(model), self._values_of(model), self._buffers_of(model))

    def _is_unplaced(self, state: _State) -> bool:
        """Return whether the model is trained, and nobody knows how far, and say so."""
        if self._set is None or not math.isnan(self._last_epoch):
            return False
        every = self._set.every
        is_unknown = self._host.is_before_training if every is None else not self._host.passes
        has_changed = state.parameters != self._last_state.parameters
        if not self._last_state.values and not self._host.is_observing:  # variables without a value yet
            has_changed = self._host.passes > 0
        if not (state.values or self._host.is_observing):  # the pass itself says why nothing is known
            return False
        if not is_unknown or not has_changed:
            return False
        if self._host.is_refused():  # which says why the parameters are others
            return True
        if every is None:
            text = _UNPLACED if self._host.is_observing else _UNNAMED
            self._host.troubles.warn_once(text, self._host.name)
        else:
            self._host.troubles.warn_once(_NEVER_CALLED, self._host.name, every)
        return True
