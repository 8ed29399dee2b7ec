"""A callback for ``fit`` of Keras 3."""

from __future__ import annotations

import importlib
from typing import Any

from ..core.errors import MissingExtraError
from ..monitoring.commands import HOST, PORT
from .probe_callback import ProbeCallback


def _callback() -> Any:
    try:
        return importlib.import_module("keras").callbacks.Callback
    except ModuleNotFoundError:
        raise MissingExtraError("keras is needed for Keras. Install it with: pip install keras") from None


class Keras(ProbeCallback, _callback()):  # type: ignore[misc]
    """A callback that probes the model that ``fit`` trains.

    The first epoch is epoch 1; a probe set runs on the untrained model too, as epoch 0. Passes over the
    validation data have the mode ``"eval"``. ``fit`` shuffles the rows by default, so labels are best passed
    with a ``probe_set``; labels by order of arrival need ``shuffle=False``. On JAX and PyTorch as
    backend of Keras, only a ``probe_set`` is recorded.

    Args:
        host: The server's host name.
        port: The server's port for probes, 8082 by default.
        wait: Whether the end of the training waits for the scores, at most two minutes. True by default. The
            server scores what it has in any case.
        **options: Options of ``probe``, such as ``run``, ``which``, ``kinds``, ``budget`` and ``probe_set``.

    Raises:
        InputError: If ``probe`` has no such option; when the training starts, if an option is invalid.

    Example:
        callback = Keras(probe_set=(images, {"digit": labels}))
        model.fit(x, y, epochs=5, callbacks=[callback])
    """

    def __init__(self, host: str = HOST, port: int = PORT, *, wait: bool = True, **options: Any) -> None:
        super().__init__()
        self.prepare(host, port, options, wait=wait)

    def on_train_begin(self, logs: Any = None) -> None:
        """Attach the probe."""
        self.begin(self.model, 0)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Set the probe's epoch."""
        self.at(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Run the probe set."""
        self.show()

    def on_train_end(self, logs: Any = None) -> None:
        """Remove the probe, and wait for the scores unless ``wait`` is False."""
        self.finish()
