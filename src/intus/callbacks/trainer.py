"""A callback for the ``Trainer`` of Hugging Face transformers."""

from __future__ import annotations

import importlib
from typing import Any

from ..core.errors import MissingExtraError
from ..monitoring.commands import HOST, PORT
from .probe_callback import ProbeCallback


def _callback() -> Any:
    try:
        return importlib.import_module("transformers").TrainerCallback
    except ModuleNotFoundError:
        what = "transformers is needed for TrainerProbe. Install it with: pip install transformers accelerate"
        raise MissingExtraError(what) from None


class TrainerProbe(ProbeCallback, _callback()):  # type: ignore[misc]
    """A callback that probes the model of a Hugging Face ``Trainer``.

    The first epoch is epoch 1; a probe set runs on the untrained model too, as epoch 0. Passes of
    ``evaluate`` have the mode ``"eval"``. Without a probe set, label i belongs to row i of the training data,
    although the Trainer shuffles them. With several processes, only the first one is probed; those that share
    a sharded model (FSDP) run a probe set together, and one of them sends.

    Args:
        host: The server's host name.
        port: The server's port for probes, 8082 by default.
        wait: Whether the end of the training waits for the scores, at most two minutes. True by default. The
            server scores what it has in any case.
        **options: Options of ``probe``, such as ``run``, ``which``, ``kinds``, ``budget`` and ``probe_set``.

    Raises:
        InputError: If ``probe`` has no such option; when the training starts, if an option is invalid.

    Example:
        >>> callback = TrainerProbe(probe_set=({"input_ids": ids}, {"pos": tags}))  # doctest: +SKIP
        >>> Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()  # doctest: +SKIP
    """

    def __init__(self, host: str = HOST, port: int = PORT, *, wait: bool = True, **options: Any) -> None:
        super().__init__()
        self.prepare(host, port, options, wait=wait)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """Attach the probe."""
        self.begin(model, round(state.epoch or 0), is_first=state.is_world_process_zero)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Set the probe's epoch."""
        self.at(round(state.epoch or 0))

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Remove the probe, and wait for the scores unless ``wait`` is False."""
        self.finish()
