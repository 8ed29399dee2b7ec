"""The models of an inspection: one, several checkpoints, or functions that load them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..backends.base import for_model
from ..core.errors import InputError

NO_EPOCH = float("nan")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model, not yet loaded.

    Attributes:
        name: Its name; ``""`` for the name of its class.
        epoch: Its epoch; NaN if it has none.
        load: Loads and returns the model.
    """

    name: str
    epoch: float
    load: Callable[[], Any]

    def __str__(self) -> str:
        return self.name or (f"epoch {self.epoch:g}" if self.epoch == self.epoch else "the model")

    def open(self) -> tuple[str, Any]:
        """Load the model and return its name and the model.

        Raises:
            InputError: If model was loaded is not a model of a known framework.
        """
        model = self.load()
        for_model(model)  # raises InputError if it is not a model
        return self.name or type(model).__name__, model


def as_checkpoints(given: Any) -> list[Checkpoint]:
    """Return the checkpoints that the caller passed.

    Args:
        given: A model; a list of models, of epochs 0, 1, 2 …; or a dict by epoch or by name. Each may be a
            function without arguments that loads a model; it is called when its turn comes.

    Raises:
        InputError: If there are none, or a key is neither an epoch nor a name.
    """
    if isinstance(given, Mapping):
        made = [_by_key(key, model) for key, model in given.items()]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        many = len(given) > 1
        made = [Checkpoint("", float(i) if many else NO_EPOCH, _load(model)) for i, model in enumerate(given)]
    else:
        made = [Checkpoint("", NO_EPOCH, _load(given))]
    if not made:
        raise InputError("models is empty. Pass at least one model.")
    return made


def _by_key(key: Any, model: Any) -> Checkpoint:
    if isinstance(key, str):
        return Checkpoint(key, NO_EPOCH, _load(model))
    try:
        return Checkpoint("", float(key), _load(model))
    except (TypeError, ValueError):
        raise InputError(f"A key of models must be an epoch or a name, got {key!r}.") from None


def _load(model: Any) -> Callable[[], Any]:
    try:
        for_model(model)
    except InputError:
        if callable(model):
            return lambda: model()
        raise
    return lambda: model
