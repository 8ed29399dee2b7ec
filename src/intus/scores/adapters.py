"""Anything usable as a score: plain functions and scikit-learn estimators, over the bounded sample."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from ..core.errors import InputError
from .affinity import of_pairs
from .base import NAN, Score, ScoreResult, add_score, get, score
from .cluster import adjusted, agreement
from .judging import judge, majority_f1
from .labelled import TOO_MANY, complete, labelled_rows, shuffled, too_few
from .mdl import logistic
from .statistics.statistics import Statistics


def register(name: str, what: Any = None, *, per: Literal["layer", "unit"] = "layer") -> Any:
    """Make a function or a scikit-learn estimator a score by that name, directly or as a decorator.

    A function of ``(behaviours)`` gives a layer's number, one of ``(behaviours, labels)`` a number for
    each target, from behaviours (rows, features) and whole-number classes (rows,); its baseline is the same
    function on shuffled labels. ``per="unit"``: the function gets one unit's behaviours (rows,) and one
    hypothesis (rows,). A classifier's number is its macro F1 on held-out rows, a clusterer's its
    adjusted mutual information with the labels. All of them see the bounded sample.

    >>> @register("spread_doc")
    ... def spread(behaviours):
    ...     return float(behaviours.max() - behaviours.min())
    >>> from intus.scores import Scorer
    >>> scorer = Scorer("spread_doc")
    >>> scorer.update(np.array([[1.0], [4.0]]))
    >>> scorer.result()[0].value
    3.0
    """
    if what is None:

        def decorate(function: Any) -> Any:
            return register(name, function, per=per)

        return decorate
    if per == "unit":
        add_score(of_pairs(what, name))
    else:
        add_score(as_score(what, name))
    return what


def as_score(what: Any, name: str = "") -> Score:
    """The Score that a name, a Score, a function or an estimator means; raises InputError otherwise."""
    if isinstance(what, str):
        return get(what)
    if isinstance(what, Score):
        return what
    name = name or getattr(what, "__name__", type(what).__name__)
    if not isinstance(what, type):
        if hasattr(what, "fit_predict"):
            return _of_clusterer(what, name)
        if hasattr(what, "fit") and hasattr(what, "predict"):
            return _of_classifier(what, name)
        if callable(what):
            return _of_function(what, name)
    if isinstance(what, type):
        raise InputError(
            f"A score is an estimator, not its class: give {what.__name__}(), or one with settings."
        )
    raise InputError(
        f"A score is a name, a function of behaviours (and labels) or a scikit-learn estimator, got {what!r} "
        f"of type {type(what).__name__}."
    )


def _of_function(function: Callable[..., Any], name: str) -> Score:
    wants = len([p for p in inspect.signature(function).parameters.values() if p.default is p.empty])
    if wants not in (1, 2):
        raise InputError(
            f"The score {name!r} takes {wants} arguments; write it as a function of (behaviours) or of "
            "(behaviours, labels)."
        )

    def of_layer(statistics: Statistics) -> Iterable[ScoreResult]:
        x = statistics.drawn()[1]
        x = statistics.projection.apply(x[complete(x)]) if statistics.raw else x
        yield ScoreResult(name, _number(function, x), n=len(x), note=statistics.note)

    def of_target(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
        _, x, codes = labelled_rows(statistics, target)
        if statistics.classes[target].overflowed:
            yield ScoreResult(name, NAN, target, n=len(x), note=TOO_MANY)
            return
        base = _number(function, x, shuffled(codes, statistics.seed))
        value = _number(function, x, codes)
        yield ScoreResult(name, value, target, baseline=base, n=len(x), note=statistics.note)

    if wants == 1:
        return Score(name, of_layer, frozenset({"sample"}))
    return Score(name, of_target, frozenset({"sample", "classes"}), per="target")


def _number(function: Callable[..., Any], *arguments: np.ndarray) -> float:
    return float(function(*arguments)) if len(arguments[0]) else NAN


def _of_classifier(estimator: Any, name: str) -> Score:
    def compute(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
        places, x, codes = labelled_rows(statistics, target)
        held = places.held
        if note := too_few(statistics, target, codes, held):
            return [ScoreResult(name, NAN, target, n=int(held.sum()), note=note)]
        fake = shuffled(codes, statistics.seed)
        value, control = (
            judge(y[held], _fitted(estimator, x[~held], y[~held]).predict(x[held])) for y in (codes, fake)
        )
        base = max(control.f1, majority_f1(codes[~held], codes[held]))
        low, high = value.interval("f1", statistics.seed)
        return [ScoreResult(name, value.f1, target, -1, low, high, base, int(held.sum()))]

    return Score(name, compute, frozenset({"sample", "classes"}), per="target")


@score("logistic_f1", "sample", "classes", per="target", default=False)
def logistic_f1(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Held-out macro F1 of scikit-learn's logistic regression on standardised rows of the sample."""
    return _of_classifier(logistic(), "logistic_f1").compute(statistics, target)


def _of_clusterer(estimator: Any, name: str) -> Score:
    def compute(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
        places, x, codes = labelled_rows(statistics, target)
        if note := too_few(statistics, target, codes):
            return [ScoreResult(name, NAN, target, n=len(x), note=note)]
        found = _clone(estimator).fit_predict(x)
        return [agreement(name, target, adjusted, codes, found, places.group, statistics)]

    return Score(name, compute, frozenset({"sample", "classes"}), per="target")


def _fitted(estimator: Any, x: np.ndarray, y: np.ndarray) -> Any:
    return _clone(estimator).fit(x, y)


def _clone(estimator: Any) -> Any:
    from sklearn.base import clone

    return clone(estimator)
