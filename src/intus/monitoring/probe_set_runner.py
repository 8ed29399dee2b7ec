"""When the monitor itself runs the probe set through the model, and what these passes are tagged with."""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..backends.base import Backend
from ..core.probes_disabled import probes_disabled
from ..core.record import PROBE_SET_MODE
from .probe_set import ProbeSet
from .warn_once import WarningLog

_TWICE = (
    "intus: the probe set was run in epoch %s already; what was learned in it since is not shown. Where the "
    "untrained model is looked at as epoch 0, number the epochs of the training from 1."
)


class PassTags(NamedTuple):
    """What one pass is tagged with; its gradients, which come later, carry the same."""

    epoch: float
    step: int
    mode: str
    items: np.ndarray | None
    rows: int | None = None
    ordered: bool = True


class Host(Protocol):
    """The tap that looks are for."""

    epoch: float
    passes: int
    troubles: WarningLog

    def turn(self, old: float, new: float) -> None: ...
    def on_error(self, error: Exception) -> None: ...


class ProbeSetRunner:
    """Runs a probe set. Without one it never does anything."""

    def __init__(self, host: Host, model: Any, backend: Backend, probe_set: ProbeSet | None) -> None:
        self.running = False
        self._host, self._model = weakref.proxy(host), weakref.ref(model)
        self._backend, self._set = backend, probe_set
        self._at: float = 0  # the step, where looks are by steps
        self._epoch = math.nan  # that was looked at last
        self._since = (0, backend.version(model)) if probe_set is not None else (0, 0)

    @property
    def instead(self) -> bool:
        """Whether only the probe set is watched, and not the training's own passes."""
        return self._set is not None

    def facts(self, step: int) -> PassTags | None:
        """What the pass that runs is tagged with; None where it is the training's."""
        if not self.running or self._set is None:
            return None
        epoch = self._host.epoch if self._set.every is None else self._at
        return PassTags(epoch, step, PROBE_SET_MODE, self._set.items)

    def epoch_ends(self) -> None:
        """An epoch is over: look, if anything was learned in it."""
        if self._set is not None and self._set.every is None and self._is_due():
            self.run()

    def step_begins(self, step: int) -> None:
        """A call of the training begins: look if it is one of ``every``."""
        if self._set is not None and self._set.every is not None and step % self._set.every == 0:
            self._host.turn(self._at, step)
            self._at = step
            self.run()

    def training_ends(self) -> None:
        """Nothing more may come: look at what came of it."""
        if self._set is None or not self._is_due():
            return
        if self._set.every is not None:
            self._host.turn(self._at, self._at + 1)
            self._at += 1
        self.run()

    def run(self) -> None:
        """Run the probe set now, unless this epoch has been looked at: two states of a model are not one."""
        model = self._model()
        if self._set is None or model is None or self.running:
            return
        if self._set.every is None and self._host.epoch == self._epoch:
            self._host.troubles.say(_TWICE, f"{self._epoch:g}")
            return
        self._epoch = self._host.epoch
        self._since = self._now(model)
        self.running = True
        try:
            with probes_disabled(), self._backend.evaluation(model) as run:  # not a part of the training
                run(self._set.inputs)
        except Exception as error:
            self._host.on_error(error)
        finally:
            self.running = False

    def _now(self, model: Any) -> tuple[int, int]:
        return self._host.passes, self._backend.version(model)

    def _is_due(self) -> bool:
        model = self._model()
        return model is not None and self._now(model) != self._since
