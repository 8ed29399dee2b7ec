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
    """Watches the model of a ``Trainer``; takes the options of ``probe``. Epochs are the Trainer's, passes of
    ``evaluate`` have the mode "eval". The Trainer shuffles, so labels are best given with a ``probe_set``.

    Of several processes the first one alone watches.

    >>> trainer = Trainer(model, arguments, train_dataset=data,  # doctest: +SKIP
    ...     callbacks=[TrainerProbe(probe_set=({"input_ids": ids}, {"pos": tags}))])
    """

    def __init__(self, host: str = HOST, port: int = PORT, **options: Any) -> None:
        super().__init__()
        self.prepare(host, port, options)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """Attach."""
        if state.is_world_process_zero:
            self.begin(model, round(state.epoch or 0))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Say which epoch it is."""
        self.at(round(state.epoch or 0))

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Detach, and wait for the scores."""
        self.finish()
