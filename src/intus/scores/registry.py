"""Registers scores and finds them by name: those of intus, of installed packages, and of the user."""

from __future__ import annotations

import copyreg
import logging
import pickle
from collections.abc import Iterable
from dataclasses import fields as fields_of
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal

from ..core.errors import InputError, did_you_mean
from ..core.score_info import ScoreInfo
from .adapters import CheckedFunction, of_classifier, of_clusterer, of_function
from .base import _SCORES, Score, add_score, summary
from .comparisons.similarity import RELATIONS
from .units.affinity import of_pairs

#: The group of entry points with which packages provide scores.
ENTRY_POINTS = "intus.scores"
#: Other names of registered scores: those that the post on DeepBase uses.
_ALIASES = {"LocalIOU": "iou"}
#: The note of results of a function of (behaviours, labels) that was not registered.
_TOLD = "the function was given the whole layer, (rows, units); see register(per='unit') for single units"
#: The names of scores that this process registered, which other processes do not have.
_REGISTERED_HERE: set[str] = set()
_log = logging.getLogger(__name__)


def register(
    name: str,
    what: Any = None,
    *,
    per: Literal["layer", "unit"] = "layer",
    label: str = "",
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """Register a function or a scikit-learn estimator as a score, directly or as a decorator.

    A function of ``(behaviours)`` is a score that needs no target, a function of ``(behaviours, labels)`` one
    that is computed for each target. It gets behaviours of shape (rows, features) and whole-number classes of
    shape (rows,), of a bounded sample of the rows. A classifier's score is its macro F1 on held-out rows, a
    clusterer's its adjusted mutual information with the labels.

    Args:
        name: The score's name.
        what: The function or estimator; None to decorate one.
        per: "layer", or "unit" for a function of one unit's behaviours (rows,) and one hypothesis (rows,),
            which is called for each pair of a unit and a hypothesis.
        label: The name to show to people, by default ``name``. The first paragraph of the function's
            docstring is shown as the description.
        low: The least value it can have, if there is one.
        high: The largest value it can have, if there is one.

    Returns:
        ``what``, or the decorator.

    Raises:
        InputError: If the name is taken, or ``what`` cannot be used as a score. If a function raises, or
            returns no number when it is called, the error says what it was given.

    Example:
        >>> @register("spread_doc", label="Spread", low=0)
        ... def spread(behaviours):
        ...     "Largest entry minus the smallest."
        ...     return float(behaviours.max() - behaviours.min())
        >>> from intus.scores import Scorer
        >>> scorer = Scorer("spread_doc")
        >>> scorer.update(np.array([[1.0], [4.0]]))
        >>> scorer.result()[0].value
        3.0
    """
    if per not in ("layer", "unit"):
        raise InputError(f"per must be 'layer' or 'unit', got {per!r}.")
    if what is None:

        def decorate(function: Any) -> Any:
            return register(name, function, per=per, label=label, low=low, high=high)

        return decorate
    given = {"label": label, "low": low, "high": high}
    fields: dict[str, Any] = {field: value for field, value in given.items() if value not in (None, "")}
    if per == "unit":
        fields = {"about": summary(what), **fields}
        add_score(of_pairs(CheckedFunction(what, name, "unit"), name, **fields))
    else:
        add_score(as_score(what, name, **fields))
    _REGISTERED_HERE.add(name)
    return what


def as_score(what: Any, name: str = "", **fields: Any) -> Score:
    """Convert a name, a Score, a function or an estimator to a Score; raises InputError for anything else.

    ``fields`` are fields of ScoreInfo, for a function or an estimator.
    """
    if isinstance(what, str):
        return get(what)
    if isinstance(what, Score):
        return what
    told = "" if name else _TOLD
    name = name or getattr(what, "__name__", type(what).__name__)
    if not isinstance(what, type):
        if hasattr(what, "fit_predict"):
            return of_clusterer(what, name, **fields)
        if hasattr(what, "fit") and hasattr(what, "predict"):
            return of_classifier(what, name, **fields)
        if callable(what):
            return of_function(what, name, told=told, **fields)
    if isinstance(what, type):
        raise InputError(
            f"A score is an estimator, not its class. Give {what.__name__}(), or one with parameters."
        )
    raise InputError(
        f"A score is a name, a function of behaviours (and labels) or a scikit-learn estimator, got {what!r} "
        f"of type {type(what).__name__}."
    )


def names() -> list[str]:
    """Return the names of all registered scores, those of installed packages included."""
    _load_entry_points()
    return sorted(_SCORES)


def get(name: str, others: Iterable[str] = ()) -> Score:
    """Return the score of that name; raises InputError with the nearest names, also of ``others``."""
    name = _ALIASES.get(name, name)
    if name not in _SCORES:
        _load_entry_points()
    if name not in _SCORES:
        for one in _SCORES.values():
            if name in {info.name for info in one.beside}:
                raise InputError(f"{name!r} is returned together with {one.name!r}. Write {one.name!r}.")
        if name in {info.name for info in RELATIONS}:
            raise InputError(
                f"{name!r} compares two data points, which only servers have, beside their default scores."
            )
        raise InputError(f"There is no score {name!r}. {did_you_mean(name, [*others, *_SCORES])}")
    return _SCORES[name]


def scores() -> list[Score]:
    """Return all registered scores."""
    _load_entry_points()
    return list(_SCORES.values())


def infos() -> dict[str, ScoreInfo]:
    """Return the descriptions of all known scores by name, in the order in which they are shown.

    These are all rows of the registered scores, and the scores that servers compute of two data points.
    """
    _load_entry_points()
    registered = [info for each in _SCORES.values() for info in each.infos]
    return {info.name: info for info in (*registered, *RELATIONS)}


@cache
def _load_entry_points() -> None:
    """Register the scores of installed packages, once.

    An entry point of the group ``intus.scores`` names anything that ``register`` takes. One that fails to
    load is logged and left out.
    """
    for point in entry_points(group=ENTRY_POINTS):
        package = point.dist.name if point.dist else "another package"
        if point.name in _SCORES:
            _log.warning("The score %r of %s is left out: the name is taken.", point.name, package)
            continue
        try:
            _SCORES[point.name] = as_score(point.load(), point.name)
        except Exception as error:
            _log.warning("The score %r of %s could not be loaded: %s", point.name, package, error)
            _log.debug("Loading %r failed", point.value, exc_info=True)


def _reduced(score: Score) -> tuple[Any, ...]:
    """Return how to pickle a score: by value, or by name if only its package can make its function."""
    parts = tuple(getattr(score, field.name) for field in fields_of(Score))
    try:
        pickle.dumps((score.compute, score.suits, score.judged))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if _SCORES.get(score.name) is score and score.name not in _REGISTERED_HERE:
            return get, (score.name,)
        raise InputError(
            f"The score {score.name!r} cannot be sent to another process ({error}). Define its function at "
            "the top level of a module."
        ) from None
    return Score, parts


copyreg.pickle(Score, _reduced)
