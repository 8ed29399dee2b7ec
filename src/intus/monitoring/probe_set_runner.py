"""Run the probe set through the model at the right times, and tag these passes."""

from __future__ import annotations

import math
import weakref
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..backends.base import Backend
from ..backends.sharding import Together
from ..core.probes_disabled import probes_disabled
from ..core.record import PROBE_SET_MODE
from .probe_set import ProbeSet, taken
from .row_check import ROWS, Place, RowCheck, listed, permutation
from .warn_once import WarningLog

if TYPE_CHECKING:
    from .statistics import Labels

_TWICE = (
    "intus: the probe set has already run in epoch %s, so later changes in that epoch are not shown. If you "
    "ran it on the untrained model as epoch 0, number the epochs of the training from 1."
)

_GONE = (
    "intus: the probe set was not run, because the model no longer exists: a probe does not keep it. Keep it "
    "in a variable until the probe is removed."
)
_APART = (
    "intus: the probe set was not run at %s, because not every process of the sharded model came to run it. "
    "Set Probe.epoch, and call flush and Probe.remove, in every process at the same place."
)
_OWN_ORDER = (
    "{} of {} {} the order of rows: when {} rows of the probe set came in another order, {} came in an order "
    "of their own, as of rows that are sorted or sent to experts. Which label belongs to which is not known "
    "there, so they have no scores with labels."
)
_OTHER_ROWS = (
    "{} of {} {} the order of rows: when {} rows of the probe set came in another order, {} were others, "
    "which depend on the order. Which label belongs to which is not known there, so they have no scores with "
    "labels."
)
_WRITTEN = (
    "intus: the inputs of the probe set of %s were written to after probe() got them, first seen in epoch "
    "%s. Which label belongs to which row is not known from then on, so no scores have labels. Pass "
    "copies: probe_set=(inputs.clone(), labels)."
)
_NOT_PROVEN = (
    "It is not proven that {} of {} {} the order of rows, because {}. Their scores with labels assume it."
)
_RANDOM = "the model draws random numbers in evaluation mode, so that its rows differ in another order anyway"

#: More calls than any training makes between two looks at the probe set.
_MANY = 1 << 40


@dataclass(frozen=True, slots=True, eq=False)
class PassTags:
    """The tags of one pass; its gradients, which come later, have the same.

    Attributes:
        epoch: The epoch, or the number of the call for a probe set with ``every``.
        step: The number of the model's call.
        mode: The mode.
        items: The ids of the rows, or None.
        rows: The maximum number of rows to record; None for all.
        ordered: Whether rows without ids can be identified by their order of arrival.
        labels: The labels to make statistics with in a pass of the training; None to send its rows.
    """

    epoch: float
    step: int
    mode: str
    items: np.ndarray | None
    rows: int | None = None
    ordered: bool = True
    labels: Labels | None = None


class Host(Protocol):
    """The part of a tap that ``ProbeSetRunner`` uses."""

    epoch: float
    name: str
    troubles: WarningLog

    @property
    def passes(self) -> int:
        """Number of passes so far."""

    def change_epoch(self, old: float, new: float) -> None:
        """End an epoch of the records and begin another."""

    def on_error(self, error: Exception) -> None:
        """Count and log an error."""

    def paying_for_set(self) -> AbstractContextManager[None]:
        """Return a context that pays for a pass of the probe set."""


class ProbeSetRunner:
    """Runs a probe set. Without one it does nothing.

    Args:
        host: The tap that records the passes.
        model: The model.
        backend: The model's backend.
        probe_set: The probe set, or None.
        together: The agreement of the processes that must run it together, or None.
        axis: The axis of the rows of its inputs.
    """

    def __init__(
        self,
        host: Host,
        model: Any,
        backend: Backend,
        probe_set: ProbeSet | None,
        together: Together | None = None,
        axis: int = 0,
    ) -> None:
        self.running = False
        self._host, self._model = weakref.proxy(host), weakref.ref(model)
        self._backend, self._set, self._together = backend, probe_set, together
        #: What is known of the order of rows in the layers; None if the framework cannot tell.
        self.rows = RowCheck() if hasattr(backend, "random_state") and together is None else None
        self._axis = axis
        self._contents_of = getattr(backend, "row_contents", None)
        self._contents = self._row_contents()
        self.is_written = False  # since the inputs are no longer those that the labels are for
        self._said: set[Place | None] = set()  # of which a notice tells; None for all
        self._step: float = 0  # the call before which it ran last, with ``every``
        self._is_early = False  # it ran when the data ended, perhaps before the last step
        self._last_epoch = math.nan  # the epoch in which it ran last
        self._last_state = (0, backend.version(model)) if probe_set is not None else (0, 0)

    @property
    def replaces_training(self) -> bool:
        """True if only the probe set is recorded, and not the training's own passes."""
        return self._set is not None

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
        if self._set is not None and self._set.every is None and math.isnan(self._last_epoch):
            self.run()

    def epoch_ends(self) -> None:
        """Run the probe set at the end of an epoch, if the model was called or trained since it last ran."""
        if self._set is not None and self._set.every is None and self._is_due():
            self.run()

    def loader_ends(self) -> None:
        """Run the probe set at the end of the data, which is the end of an epoch in most scripts."""
        self.epoch_ends()
        self._is_early = True

    def step_begins(self, step: int) -> None:
        """Run the probe set before every ``every``-th call of the training."""
        if self._set is not None and self._set.every is not None and step % self._set.every == 0:
            self._host.change_epoch(self._step, step)
            self._step = step
            self.run()

    def calls_until_next(self, step: int) -> int:
        """Return the number of calls, from number ``step`` on, before which it does not run."""
        if self._set is None:
            return 0
        return _MANY if self._set.every is None else -step % self._set.every

    def training_ends(self) -> None:
        """Run the probe set at the end of the training, if the model changed since it last ran."""
        if self._set is None or not self._is_due():
            return
        if self._set.every is not None:
            self._host.change_epoch(self._step, self._step + 1)
            self._step += 1
        self.run()

    def ends(self) -> None:
        """Run the probe set before the probe is removed, also on a model that nobody trained, as epoch 0."""
        self.training_ends()
        if self._set is not None and math.isnan(self._last_epoch) and self._host.epoch == 0:
            self.run()

    def run(self) -> None:
        """Run the probe set now, unless it has already run in this epoch."""
        model = self._model()
        if self._set is None or self.running:
            return
        if model is None:
            self._host.troubles.warn_once(_GONE)
            return
        if self._set.every is None and self._host.epoch == self._last_epoch:
            if not self._is_early:  # the script asked for it
                self._host.troubles.warn_once(_TWICE, f"{self._last_epoch:g}")
            return
        self._is_early = False
        is_first, self._last_epoch = math.isnan(self._last_epoch), self._host.epoch
        self._last_state = self._state(model)
        number = self._host.epoch if self._set.every is None else self._step
        if self._together is not None and not self._together.agree(number):
            self._host.troubles.count("together", _APART, f"{number:g}")
            return
        self.running = True
        try:
            with self._host.paying_for_set(), probes_disabled():
                unknown = self._check_rows(model)
                inputs = self._checked_inputs(number)
                with self._backend.evaluation(model) as run:
                    run(inputs)  # not part of the training
                if unknown:
                    self._say_not_proven(None, unknown)
        except Exception as error:
            self._host.on_error(error)
        finally:
            self.running = False
        if is_first:  # which builds a model that is built when it is called
            self._last_state = self._last_state[0], self._backend.version(model)

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
        if not self.is_written and self._row_contents() != self._contents:
            self.is_written = True
            self._host.troubles.warn_once(_WRITTEN, self._host.name, f"{number:g}")
        rows = len(self._set.items)
        return taken(self._set.inputs, self._axis, rows, np.arange(rows))

    def _check_rows(self, model: Any) -> str:
        """Find out which layers keep the order of rows, if that is due; return why it cannot be known."""
        assert self._set is not None
        rows = len(self._set.items)
        if self.rows is None or rows < 2 or not self.rows.is_due():
            return ""
        why: Exception | None = None
        for count in dict.fromkeys((min(rows, ROWS), rows)):  # all for a model of batches of one size
            try:
                self._compare_rows(model, count)
                return ""
            except Exception as error:
                why = error
        return f"the model cannot run them in another order: {why}"

    def _compare_rows(self, model: Any, count: int) -> None:
        """Run some rows twice, then in another order, and refuse the layers that do not keep it."""
        assert self._set is not None
        assert self.rows is not None
        given, rows, order = self._set.inputs, len(self._set.items), permutation(count)
        is_random = False

        def run_in(which: np.ndarray) -> None:
            nonlocal is_random
            inputs = taken(given, self._axis, rows, which)
            with self._backend.evaluation(model) as run:
                before = self._backend.random_state()  # type: ignore[attr-defined]
                run(inputs)
                is_random = is_random or before != self._backend.random_state()  # type: ignore[attr-defined]

        found = self.rows.run((partial(run_in, which) for which in (np.arange(count), order)), order)
        unknown = found["mixed"] if is_random else []
        mixed = [] if is_random else found["mixed"]
        self.rows.refused = {*found["reordered"], *mixed}
        self._say(_OWN_ORDER, found["reordered"], count)
        self._say(_OTHER_ROWS, mixed, count)
        if unknown:
            self._say_not_proven(unknown, _RANDOM)

    def _say(self, text: str, places: list[Place], count: int) -> None:
        """Say of which layers the rows have an order of their own, once of each."""
        news = [place for place in places if place not in self._said]
        self._said.update(news)
        if news:
            one = len({place.address for place in news}) == 1
            words = f"{'Layer' if one else 'Layers'} {listed(news)}"
            keep, those = ("does not keep", "its rows") if one else ("do not keep", "their rows")
            self._host.troubles.inform(
                "rows", text.format(words, self._host.name, keep, count, those), "warning"
            )

    def _say_not_proven(self, places: list[Place] | None, why: str) -> None:
        """Say of which layers it is not known whether they keep the order of rows, once of each."""
        news = [place for place in places or (None,) if place not in self._said]
        self._said.update(news)
        if news:
            named = [place for place in news if place is not None]
            words = f"layer{'s' * (len(named) > 1)} {listed(named)}" if named else "any layer"
            keep = "keep" if len({place.address for place in named}) > 1 else "keeps"
            text = _NOT_PROVEN.format(words, self._host.name, keep, why)
            self._host.troubles.inform("rows", text, "warning" if not named else "info")

    def _state(self, model: Any) -> tuple[int, int]:
        """Return a value that changes when the model is called or trained."""
        return self._host.passes, self._backend.version(model)

    def _is_due(self) -> bool:
        model = self._model()
        return model is not None and self._state(model) != self._last_state
