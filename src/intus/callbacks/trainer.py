"""A callback for the ``Trainer`` of Hugging Face transformers."""

from __future__ import annotations

import importlib
import math
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
    ``evaluate`` have the mode ``"eval"``; those after the training are not recorded. A training that is
    resumed has no epoch 0, and continues the epoch inside of which it was saved. With
    ``load_best_model_at_end``, the last epoch shows the model before the best one is loaded. Without a
    probe set, label i belongs to row i of the training data, although the Trainer shuffles them. With
    several processes, only the first one is probed; those that share a sharded model (FSDP) run a probe
    set together, and one of them sends.

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
        done = _trained(args, state, _length(others.get("train_dataloader")))
        self._done = math.floor(done)  # counted from here: without a length of the data, the Trainer does not
        again = bool(getattr(args, "ignore_data_skip", False))
        self.begin(model, done, is_first=state.is_world_process_zero, begins_anew=again)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Set the probe's epoch."""
        self.at(self._done)
        self._done += 1

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Run the probe set."""
        self.show()

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Remove the probe, and wait for the scores unless ``wait`` is False."""
        self.finish()


def _length(loader: Any) -> int | None:
    """Return how many batches a loader gives; None if it does not tell."""
    try:
        return len(loader)
    except (TypeError, AttributeError, RuntimeError):  # of its dataset, such as an iterable one
        return None


def _trained(args: Any, state: Any, batches: int | None) -> float:
    """Return how many epochs a model was trained before its training begins or is resumed.

    It follows from the steps, as for the Trainer: ``state.epoch`` is 0.92 at the end of an epoch in versions
    that leave out the last batches if they are fewer than those of a step, and that of a checkpoint counts
    with the accumulation of its own training.

    Args:
        args: The arguments of the training.
        state: Its state.
        batches: The batches of an epoch; None if they are not known.
    """
    if getattr(args, "max_steps", 1) <= 0 < state.max_steps:
        return float(state.global_step / max(math.floor(state.max_steps / args.num_train_epochs), 1))
    accumulated = getattr(args, "gradient_accumulation_steps", 1)
    # versions differ in whether the last batches of an epoch are a step if they are fewer
    possible = (
        {max(round_(batches / accumulated), 1) for round_ in (math.floor, math.ceil)} if batches else ()
    )
    steps = [each for each in possible if math.ceil(state.max_steps / each) == state.num_train_epochs]
    return float(state.global_step / steps[0] if len(steps) == 1 else state.epoch or 0)
