"""The models of an inspection: one, checkpoints, or loaders of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..backends.base import for_model
from ..core.errors import InputError

NO_EPOCH = float("nan")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model still to be loaded: its name ("" for its class's) and its epoch (NaN where it has none)."""

    name: str
    epoch: float
    load: Callable[[], Any]

    def open(self) -> tuple[str, Any]:
        """Load it: its name and the model."""
        model = self.load()
        for_model(model)  # raises a sentence for what is no model
        return self.name or type(model).__name__, model


def as_checkpoints(wrote: Any) -> list[Checkpoint]:
    """What the caller wrote as checkpoints.

    A model; a list of them (epochs 0, 1, 2 …); a dict by epoch or by name; each a model or a function
    of no arguments that loads one, which is called when its turn comes.
    """
    if isinstance(wrote, Mapping):
        made = [_by_key(key, what) for key, what in wrote.items()]
    elif isinstance(wrote, Sequence) and not isinstance(wrote, str):
        many = len(wrote) > 1
        made = [Checkpoint("", float(i) if many else NO_EPOCH, _load(w)) for i, w in enumerate(wrote)]
    else:
        made = [Checkpoint("", NO_EPOCH, _load(wrote))]
    if not made:
        raise InputError("There are no models to inspect: models is empty.")
    return made


def _by_key(key: Any, what: Any) -> Checkpoint:
    if isinstance(key, str):
        return Checkpoint(key, NO_EPOCH, _load(what))
    try:
        return Checkpoint("", float(key), _load(what))
    except (TypeError, ValueError):
        raise InputError(f"A key of models is an epoch or a name, got {key!r}.") from None


def _load(what: Any) -> Callable[[], Any]:
    try:
        for_model(what)
    except InputError:
        if callable(what):
            return lambda: what()
        raise
    return lambda: what
