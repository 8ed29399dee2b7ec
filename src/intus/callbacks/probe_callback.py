"""The part that the callbacks of all training loops share."""

from __future__ import annotations

from typing import Any

from ..core.errors import InputError, did_you_mean
from ..monitoring import Probe, probe


class ProbeCallback:
    """Manages one probe from the start of a training to its end.

    Attributes:
        watch: The probe of the current training; None before and after.
    """

    watch: Probe | None = None

    def prepare(self, host: str, port: int, options: dict[str, Any]) -> None:
        """Store the arguments of ``probe``.

        Args:
            host: The server's host name.
            port: The server's port for probes.
            options: Options of ``probe``.

        Raises:
            InputError: If there is no such option, so that a misspelling is reported before the training
                starts.
        """
        known = set(probe.__annotations__) - {"model", "host", "port", "return"}
        for name in options:
            if name not in known:
                raise InputError(f"probe has no option {name!r}. {did_you_mean(name, sorted(known))}")
        self._host, self._port, self._options = host, port, options

    def begin(self, model: Any, epoch: float) -> None:
        """Attach a probe at the start of a training, or when it continues.

        Args:
            model: The model.
            epoch: The number of the first epoch.
        """
        self.end()
        self.watch = probe(model, self._host, self._port, **self._options)
        self.watch.epoch = epoch

    def at(self, epoch: float) -> None:
        """Set the epoch, which ends the one before."""
        if self.watch is not None:
            self.watch.epoch = epoch

    def end(self) -> None:
        """Remove the probe, however the training ended."""
        watch, self.watch = self.watch, None
        if watch is not None:
            watch.remove()

    def finish(self) -> None:
        """Remove the probe at the normal end of a training, and wait until everything is scored."""
        watch = self.watch
        if watch is not None:
            self.end()
            watch.flush()
