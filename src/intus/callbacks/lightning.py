"""A callback for the ``Trainer`` of Lightning, from ``lightning`` or ``pytorch_lightning``."""

from __future__ import annotations

import importlib
import math
from typing import Any

from ..backends.torch.feed import TorchFeed
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
    """A callback that probes a ``LightningModule``.

    The first epoch is epoch 1; a probe set runs on the untrained model too, as epoch 0. Validation passes
    have the mode ``"eval"``, and the sanity check before the training is not recorded. A training that is
    resumed has no epoch 0, and continues the epoch inside of which it was saved. With several processes,
    only the first one is probed; those that share a sharded model (``ModelParallelStrategy`` with
    ``fully_shard``) run a probe set together, and one of them sends.

    Args:
        host: The server's host name.
        port: The server's port for probes, 8082 by default.
        of: The address of the module to probe, such as ``"net"``, if the training step calls that module and
            not the LightningModule itself. By default the LightningModule.
        wait: Whether the end of the training waits for the scores, at most two minutes. True by default. The
            server scores what it has in any case.
        **options: Options of ``probe``, such as ``run``, ``which``, ``kinds``, ``budget`` and ``probe_set``.

    Raises:
        InputError: If ``probe`` has no such option; when the training starts, if an option or ``of`` is
            invalid.

    Example:
        callback = LightningProbe(of="net", probe_set=(images, {"digit": labels}))
        lightning.Trainer(callbacks=[callback]).fit(module, loader)
    """

    def __init__(
        self, host: str = HOST, port: int = PORT, *, of: str = "", wait: bool = True, **options: Any
    ) -> None:
        super().__init__()
        self.of = of
        self._loaders: Any = None
        self.prepare(host, port, options, wait=wait)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Observe DataLoaders: the one of the first epoch is iterated before ``on_train_start``."""
        self._loaders = TorchFeed(pl_module)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach the probe."""
        try:
            model = pl_module.get_submodule(self.of)
        except AttributeError:
            names = ", ".join(repr(name) for name, _ in pl_module.named_children())
            kind = type(pl_module).__name__
            raise InputError(f"of={self.of!r} is not a module of {kind}. Its modules are: {names}.") from None
        if (
            given := self._options.get("probe_set")
        ) is not None:  # as Lightning casts a batch of the training
            inputs = trainer.precision_plugin.convert_input(given[0])
            self._options = {**self._options, "probe_set": (inputs, *given[1:])}
        done = _trained(trainer)
        self.begin(model, done, is_first=trainer.is_global_zero)
        if getattr(
            trainer.fit_loop, "restarted_mid_epoch", done % 1
        ):  # ``on_train_epoch_start`` is not called
            self.at(math.floor(done))
        self._forget_loaders()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Set the probe's epoch."""
        self.at(trainer.current_epoch)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Run the probe set."""
        self.show()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Remove the probe."""
        self._forget_loaders()
        self.end()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Remove the probe, and wait for the scores unless ``wait`` is False."""
        self.finish()

    def _forget_loaders(self) -> None:
        if self._loaders is not None:
            self._loaders.remove()
            self._loaders = None


def _trained(trainer: Any) -> float:
    """Return how many epochs a model was trained before its training begins or is resumed."""
    loop = trainer.fit_loop
    epochs: int = trainer.current_epoch
    batches: int = loop.epoch_loop.batch_progress.current.ready
    of: float = trainer.num_training_batches
    if batches in (0, of) or not getattr(loop, "restarted_mid_epoch", loop.restarting):
        return epochs
    return epochs + (batches / of if batches < of < math.inf else 0.5)
