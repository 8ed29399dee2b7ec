"""Read what a user says of where scores go, and open the trackers among it."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ...core.errors import InputError, MissingExtraError, ServeError
from .base import Place, TrackedRun, Tracker

#: The class of each tracker, in the module of its name, and what the part after a colon is.
TRACKERS = {
    "wandb": ("Wandb", "a project"),
    "tensorboard": ("TensorBoard", "a folder"),
    "mlflow": ("Mlflow", "an experiment"),
}


def places(to: Any) -> tuple[str | None, list[Place]]:
    """Return the database and the trackers of ``probe(to=...)``.

    Args:
        to: A path or a URL of a database, a tracker as ``"NAME"`` or ``"NAME:WHERE"``, or several of these.

    Returns:
        The database, None for a temporary one; and the trackers.

    Raises:
        InputError: If it is something else, or there are several databases.
        MissingExtraError: If a tracker is not installed.

    Example:
        >>> places("runs.db")[1]
        []
    """
    several = isinstance(to, Collection) and not isinstance(to, str | bytes)
    given: list[Any] = list(to) if several else [to]
    databases: list[str] = []
    trackers: list[Place] = []
    for each in given:
        if not isinstance(each, str | Path) or not str(each):
            raise InputError(
                "to must be a database, such as 'runs.db', a tracker (wandb, tensorboard, mlflow), or a list "
                f"of these, got {each!r}."
            )
        name, colon, where = str(each).partition(":")
        if isinstance(each, str) and name in TRACKERS:
            trackers.append(_checked(name, colon, where))
        else:
            _refuse_misspelled(each, name)
            databases.append(str(each) if "://" in str(each) else str(Path(each).resolve()))
    if len(databases) > 1 or not given:
        raise InputError(f"to must name one database at most, and something, got {to!r}.")
    return (databases[0] if databases else None), list(dict.fromkeys(trackers))


def _checked(name: str, colon: str, where: str) -> Place:
    if colon and not where:
        kind = TRACKERS[name][1]
        raise InputError(f"to='{name}:' lacks {kind} after the colon. Write to='{name}' for the default.")
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:  # a folder of that name, such as W&B leaves, is no package
        raise MissingExtraError(f"{name} is needed for to={name!r}. Install it with: pip install {name}")
    return Place(name, where)


def _refuse_misspelled(each: str | Path, name: str) -> None:
    """Raise InputError for a name like that of a tracker, which would become a file."""
    plain = isinstance(each, str) and not set(name) & set("./\\")
    near = difflib.get_close_matches(name.lower(), TRACKERS, n=1, cutoff=0.75) if plain else []
    if near:
        raise InputError(
            f"to={each!r} is no tracker. Did you mean {near[0]!r}? For a database of that name, write "
            f"'./{each}'."
        )


def open_tracker(place: Place, run: TrackedRun) -> Tracker:
    """Open a tracker: a run of it that is active, or else a new one.

    Args:
        place: Which, and where.
        run: The training.

    Raises:
        ServeError: If the tracker refuses, with its own reason.
    """
    try:
        module = importlib.import_module(f".{place.tracker}", __package__)
        tracker: Tracker = getattr(module, TRACKERS[place.tracker][0])(place.where, run)
    except Exception as error:  # whatever a tracker raises
        raise ServeError(f"to={str(place)!r} could not be opened: {type(error).__name__}: {error}") from error
    return tracker
