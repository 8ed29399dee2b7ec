"""The part that the callbacks of all training loops share."""

from __future__ import annotations

import math
from typing import Any

from ..backends.base import for_model
from ..backends.sharding import Shards
from ..core.errors import InputError, did_you_mean
from ..monitoring import Probe, probe


class ProbeCallback:
    """Manages one probe from the start of a training to its end.

    Attributes:
        watch: The probe of the current training. After it, the same probe, removed, whose ``status()`` still
            tells of the training. None before the first one, and in a process that is not probed.
    """

    watch: Probe | None = None
    _is_shown = False  # whether the probe set has shown the model at the end of the present epoch

    def prepare(self, host: str, port: int, options: dict[str, Any], *, wait: bool = True) -> None:
        """Store the arguments of ``probe``.

        Args:
            host: The server's host name.
            port: The server's port for probes.
            options: Options of ``probe``.
            wait: Whether the end of the training waits for the scores.

        Raises:
            InputError: If there is no such option, so that a misspelling is reported before the training
                starts.
        """
        known = set(probe.__annotations__) - {"model", "host", "port", "return"}
        for name in options:
            if name not in known:
                raise InputError(f"probe has no option {name!r}. {did_you_mean(name, sorted(known))}")
        self._host, self._port, self._options, self._wait = host, port, options, wait

    def begin(self, model: Any, done: float, *, is_first: bool = True, begins_anew: bool = False) -> None:
        """Attach a probe at the start of a training, or when it continues.

        Of several processes the first one is probed. If they share a sharded model, they can run a probe set
        only together, so each is probed, and one of them sends.

        Args:
            model: The model.
            done: The number of epochs that the model was trained before, such as 1.5 of a training that is
                resumed inside of its second epoch.
            is_first: Whether this is the first of the processes, or the only one.
            begins_anew: Whether an epoch inside of which the training is resumed has all its data again.
        """
        self.end()
        self.watch, self._is_shown = None, False
        if not is_first and (self._options.get("probe_set") is None or not _is_shared(model)):
            return
        self.watch = probe(model, self._host, self._port, **self._options)
        self.watch._tap.probe_runs.begins_untrained = not done
        self.watch.epoch = done
        if done % 1 and not begins_anew:
            self.watch._tap.source.resumes_inside(math.floor(done) + 1)

    def at(self, done: int) -> None:
        """Begin an epoch after ``done`` others, which ends the one before.

        The first epoch is epoch 1. Before it, a probe set runs on the untrained model, as epoch 0.
        """
        if self.watch is None:
            return
        if not done and self.watch.epoch == 0 and self._runs_by_epoch():
            self.watch.run_probe_set()
        self._leave_epoch()
        self.watch.epoch = done + 1

    def show(self) -> None:
        """Run the probe set at the end of an epoch, before the loop loads or averages parameters.

        Parameters that are recorded themselves are read for the same reason.
        """
        if self.watch is not None:
            self.watch._tap.epoch_is_trained()
        if self.watch is not None and self._runs_by_epoch():
            self.watch.run_probe_set()
            self._is_shown = True

    def end(self) -> None:
        """Remove the probe, however the training ended. Calling it again has no effect."""
        if self.watch is not None:
            self._leave_epoch()
            self.watch.remove()

    def finish(self) -> None:
        """Remove the probe at the normal end of a training, and wait for the scores if that is wanted."""
        self.end()
        if self.watch is not None and self._wait:
            self.watch.flush()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process gets of it: not the probe, which is of this one."""
        return {**self.__dict__, "watch": None}

    def _runs_by_epoch(self) -> bool:
        return self._options.get("probe_set") is not None and self._options.get("every") is None

    def _leave_epoch(self) -> None:
        """Leave an epoch whose model was shown at its end: what changed it since then was no training."""
        if self._is_shown and self.watch is not None:
            self.watch._tap.probe_runs.take_as_shown()
        self._is_shown = False


def _is_shared(model: Any) -> bool:
    """Return whether several processes can run a model only together."""
    backend = for_model(model)
    return isinstance(backend, Shards) and backend.is_shared(backend.inner(model, compiled=True))
