"""What the callbacks of all training loops share: one probe from the training's begin to its end."""

from __future__ import annotations

from typing import Any

from ..core.errors import InputError, did_you_mean
from ..monitoring import Probe, flush, probe


class ProbeCallback:
    """Holds the probe of the training that runs, None before and after."""

    watch: Probe | None = None

    def prepare(self, host: str, port: int, options: dict[str, Any]) -> None:
        """Take what ``probe`` will be called with; a misspelt option is said now, not at the beginning."""
        known = set(probe.__annotations__) - {"model", "host", "port", "return"}
        for name in options:
            if name not in known:
                raise InputError(f"probe has no option {name!r}. {did_you_mean(name, sorted(known))}")
        self._host, self._port, self._options = host, port, options

    def begin(self, model: Any, epoch: float) -> None:
        """The training begins, in a new run or one that goes on."""
        self.end()
        self.watch = probe(model, self._host, self._port, **self._options)
        self.watch.epoch = epoch

    def at(self, epoch: float) -> None:
        """An epoch begins, which ends the one before."""
        if self.watch is not None:
            self.watch.epoch = epoch

    def end(self) -> None:
        """The training is over, however it ended: nothing stays on the model."""
        watch, self.watch = self.watch, None
        if watch is not None:
            watch.remove()

    def finish(self) -> None:
        """It came to its end: wait until all is scored."""
        if self.watch is not None:
            self.end()
            flush(self._host, self._port)
