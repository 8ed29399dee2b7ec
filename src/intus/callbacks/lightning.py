"""A callback for the ``Trainer`` of Lightning, under its new name or its old one."""

from __future__ import annotations

import importlib
from typing import Any

from ..core.errors import InputError, MissingExtraError
from ..monitoring.commands import HOST, PORT
from .probe_callback import ProbeCallback


def _callback() -> Any:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return importlib.import_module(name).Callback
        except ModuleNotFoundError:
            continue
    raise MissingExtraError("lightning is needed for LightningProbe. Install it with: pip install lightning")


class LightningProbe(ProbeCallback, _callback()):  # type: ignore[misc]
    """Watches a ``LightningModule``; takes the options of ``probe``. Epochs are Lightning's, passes of the
    validation have the mode "eval", and the sanity check before the training is not seen.

    ``of`` is the module inside it that the training step calls, such as ``"net"``, where the step does
    not call the LightningModule itself. Of several processes the first one alone watches.

    ``lightning.Trainer(callbacks=[LightningProbe(of="net", probe_set=(images, {"digit": labels}))])``
    """

    def __init__(self, host: str = HOST, port: int = PORT, *, of: str = "", **options: Any) -> None:
        super().__init__()
        self.of = of
        self.prepare(host, port, options)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach."""
        if not trainer.is_global_zero:
            return
        try:
            model = pl_module.get_submodule(self.of)
        except AttributeError:
            names = ", ".join(repr(name) for name, _ in pl_module.named_children())
            kind = type(pl_module).__name__
            raise InputError(f"of={self.of!r} is no module of {kind}. Its modules are: {names}.") from None
        self.begin(model, trainer.current_epoch)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Say which epoch it is."""
        self.at(trainer.current_epoch)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Detach."""
        self.end()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Detach, and wait for the scores."""
        self.finish()
