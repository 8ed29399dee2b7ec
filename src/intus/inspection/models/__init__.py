"""The models of an inspection: one, several checkpoints, files of weights, or functions that load them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...backends.base import for_model, refuse_functions
from ...backends.checkpoints import LoadsWeights
from ...core.errors import InputError
from .files import epochs, is_path, paths

NO_EPOCH = float("nan")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model, not yet loaded.

    Attributes:
        name: Its name; ``""`` for the name of its class.
        epoch: Its epoch; NaN if it has none.
        load: Loads and returns the model.
        new: Whether it is a newly initialized twin, to compare others with.
    """

    name: str
    epoch: float
    load: Callable[[], Any]
    new: bool = False

    def __str__(self) -> str:
        return self.name or (f"epoch {self.epoch:g}" if self.epoch == self.epoch else "the model")

    def open(self) -> tuple[str, Any]:
        """Load the model and return its name and the model.

        Raises:
            InputError: If what was loaded is not a model of a known framework.
        """
        model = self.load()
        for_model(model)  # raises InputError if it is not a model
        return self.name or type(model).__name__ + (" (new)" if self.new else ""), model

    @property
    def given(self) -> Any:
        """The model that the caller passed; None if it is loaded or made anew each time."""
        return self.load.args[0] if isinstance(self.load, partial) and self.load.func is _itself else None

    def twin(self, seed: int) -> Checkpoint:
        """Return the same model newly initialized."""
        name = f"{self.name} (new)" if self.name else ""
        return Checkpoint(name, NO_EPOCH, partial(_initialized, self.load, seed), new=True)


@dataclass(frozen=True, slots=True)
class Loader:
    """A reader of models from files and state dicts.

    Attributes:
        load: The caller's function of a path that returns a model; None if there is none.
        model: A model, or a function without arguments that makes one, into which weights are loaded; None if
            there is none.
    """

    load: Callable[[Any], Any] | None = None
    model: Any = None

    def __post_init__(self) -> None:
        if self.load is not None and self.model is not None:
            raise InputError(
                "Pass load= or model=, not both: load= returns whole models, model= takes weights."
            )
        if self.load is not None and not callable(self.load):
            raise InputError(f"load must be a function of a path that returns a model, got {self.load!r}.")

    def of_path(self, path: Path) -> Callable[[], Any]:
        """Return a function that loads the model of a path.

        Raises:
            InputError: If neither ``load`` nor ``model`` was given.
        """
        if self.load is not None:
            return partial(_loaded, self.load, path)
        if self.model is None:
            raise InputError(
                f"{str(path)!r} is a path. Pass load=, a function that takes it and returns the model, or "
                "model=, the model that its weights are of."
            )
        return partial(self._with_weights, path)

    def of_state(self, state: Mapping[str, Any]) -> Callable[[], Any]:
        """Return a function that loads a state dict.

        Raises:
            InputError: If ``model`` was not given.
        """
        if self.model is None:
            raise InputError(
                f"models holds a state dict ({next(iter(state))!r}, …), which is weights without a model. "
                "Pass model=, the model that they are of, or a function that makes it."
            )
        return partial(self._with_weights, state)

    def _with_weights(self, what: Any) -> Any:
        try:
            for_model(self.model)
            model = self.model
        except InputError:
            if not callable(self.model):
                raise
            model = self.model()
        backend = for_model(model)
        if not isinstance(backend, LoadsWeights):
            raise InputError(
                f"{backend.name!r} loads no weights. Pass load=, a function that returns the model."
            )
        return backend.with_weights(model, backend.weights(what) if isinstance(what, Path) else what)


def as_checkpoints(
    given: Any,
    *,
    load: Callable[[Any], Any] | None = None,
    model: Any = None,
    twin: bool = False,
    seed: int = 0,
) -> list[Checkpoint]:
    """Return the checkpoints that the caller passed.

    Args:
        given: A model; a list of models, of epochs 0, 1, 2 …; or a dict by epoch or by name. Each may be a
            function without arguments that loads a model, which is called when its turn comes; a path; or a
            state dict. A path may be a pattern (``"runs/epoch_*.pt"``).
        load: Takes a path and returns the model. Default: None.
        model: The model, or a function that makes it, into which the weights of paths and state dicts are
            loaded. It is copied, not changed. Default: None.
        twin: Whether to add a newly initialized twin: of the last epoch, or of each model that has a name.
        seed: The seed of the twin.

    Raises:
        InputError: If there are none, a key is neither an epoch nor a name, or a path or state dict comes
            without ``load`` or ``model``.
    """
    loader = Loader(load, model)
    if is_path(given):
        made = _of_files(paths(given), loader)
    elif _is_state(given):
        made = [Checkpoint("", NO_EPOCH, loader.of_state(given))]
    elif isinstance(given, Mapping):
        made = [_by_key(key, one, loader) for key, one in given.items()]
    elif isinstance(given, Sequence):
        if given and all(map(is_path, given)):
            made = _of_files([path for one in given for path in paths(one)], loader)
        else:
            numbers = [float(i) if len(given) > 1 else NO_EPOCH for i in range(len(given))]
            made = [
                Checkpoint("", number, _load(one, loader)) for number, one in zip(numbers, given, strict=True)
            ]
    else:
        made = [Checkpoint("", NO_EPOCH, _load(given, loader))]
    if not made:
        raise InputError("models is empty. Pass at least one model.")
    if twin:
        named = [one for one in made if one.name]
        made += [one.twin(seed) for one in named or made[-1:]]
    return made


def _of_files(files: Sequence[Path], loader: Loader) -> list[Checkpoint]:
    numbers = epochs(files)
    return [Checkpoint("", epoch, loader.of_path(path)) for epoch, path in zip(numbers, files, strict=True)]


def _by_key(key: Any, model: Any, loader: Loader) -> Checkpoint:
    load = _load(model, loader)
    if isinstance(key, str):
        return Checkpoint(key, NO_EPOCH, load)
    try:
        return Checkpoint("", float(key), load)
    except (TypeError, ValueError):
        raise InputError(f"A key of models must be an epoch or a name, got {key!r}.") from None


def _load(model: Any, loader: Loader) -> Callable[[], Any]:
    if is_path(model):
        found = paths(model)
        if len(found) > 1:
            raise InputError(f"{str(model)!r} matches {len(found)} files. Pass the pattern alone, as models.")
        return loader.of_path(found[0])
    if _is_state(model):
        return loader.of_state(model)
    try:
        for_model(model)
    except InputError:
        if callable(model):
            return partial(_called, model)
        raise
    return partial(_itself, model)


def _is_state(value: Any) -> bool:
    """Return whether a value is a state dict: a mapping of names to tensors or arrays."""
    return (
        isinstance(value, Mapping)
        and all(isinstance(key, str) for key in value)
        and any(hasattr(one, "shape") and hasattr(one, "dtype") for one in value.values())
        and not any(callable(one) or is_path(one) for one in value.values())
    )


def _itself(model: Any) -> Any:
    return model


def _called(make: Callable[[], Any]) -> Any:
    refuse_functions(make)
    return make()


def _loaded(load: Callable[[Any], Any], path: Path) -> Any:
    model = load(path)
    if _is_state(model):
        raise InputError(
            f"load returned a state dict for {str(path)!r}, which is weights without a model. Let it return "
            "the model, or pass model= instead of load=."
        )
    return model


def _initialized(load: Callable[[], Any], seed: int) -> Any:
    model = load()
    backend = for_model(model)
    if not isinstance(backend, LoadsWeights):
        raise InputError(f"twin=True is not implemented for {backend.name!r}. Pass a new model in models=.")
    return backend.initialized(model, seed)
