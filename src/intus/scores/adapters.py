"""Scores from plain functions and scikit-learn estimators, computed from the bounded sample."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from ..core.errors import InputError
from .base import NAN, Need, Score, ScoreResult, info_of, summary
from .cluster import INTERVAL as CLUSTER_INTERVAL
from .cluster import SHUFFLED, adjusted, agreement
from .judging import CHANCE, INTERVAL, ConfusionCounts, judge
from .labelled import CLASSES, TOO_MANY, complete, labelled_rows, shuffled, too_few
from .statistics.statistics import Statistics

#: Fields of ScoreInfo for the score of any classifier, and of any clusterer.
CLASSIFIER: dict[str, Any] = {
    "formula": "the mean over classes of 2 TP / (2 TP + FP + FN), on held-out rows",
    "low": 0.0,
    "high": 1.0,
    "baseline": CHANCE,
    "interval": INTERVAL,
    "requires": CLASSES,
}
CLUSTERER: dict[str, Any] = {
    "formula": "(MI - E[MI]) / (mean of the two entropies - E[MI]), E over random labellings",
    "high": 1.0,
    "baseline": SHUFFLED,
    "interval": CLUSTER_INTERVAL,
    "requires": CLASSES,
}


def of_function(function: Callable[..., Any], name: str, **fields: Any) -> Score:
    """Return the score of a function of (behaviours) or (behaviours, labels); raises InputError otherwise."""
    wants = len([p for p in inspect.signature(function).parameters.values() if p.default is p.empty])
    if wants not in (1, 2):
        raise InputError(
            f"The score {name!r} takes {wants} arguments. Write it as a function of (behaviours) or of "
            f"(behaviours, labels){f', or call it if it returns a score: {name}()' * (not wants)}."
        )
    fields = {"about": summary(function), **fields}

    if wants == 1:
        of_layer = partial(_of_layer, function, name)
        return Score(name, of_layer, frozenset({"sample"}), info=info_of(name, "layer", **fields))
    fields = {"requires": CLASSES, "baseline": SHUFFLED, **fields}
    needs: frozenset[Need] = frozenset({"sample", "classes"})
    of_target = partial(_of_target, function, name)
    return Score(name, of_target, needs, per="target", info=info_of(name, "target", **fields))


def _of_layer(function: Callable[..., Any], name: str, statistics: Statistics) -> Iterable[ScoreResult]:
    x = statistics.drawn()[1]
    x = statistics.projection.apply(x[complete(x)]) if statistics.raw else x
    yield ScoreResult(name, _number(function, x), n=len(x), note=statistics.note)


def _of_target(
    function: Callable[..., Any], name: str, statistics: Statistics, target: str
) -> Iterable[ScoreResult]:
    _, x, codes = labelled_rows(statistics, target)
    if statistics.classes[target].overflowed:
        yield ScoreResult(name, NAN, target, n=len(x), note=TOO_MANY)
        return
    base = _number(function, x, shuffled(codes, statistics.seed))
    value = _number(function, x, codes)
    yield ScoreResult(name, value, target, baseline=base, n=len(x), note=statistics.note)


def of_classifier(estimator: Any, name: str, **fields: Any) -> Score:
    """Return the score of a scikit-learn classifier: its macro F1 on held-out rows."""
    about = f"Macro F1 of {type(estimator).__name__}, on held-out rows."
    info = info_of(name, "target", **{"about": about} | CLASSIFIER | fields)
    compute, judged = partial(_of_classifier, estimator, name), partial(_judged, estimator, name)
    needs: frozenset[Need] = frozenset({"sample", "classes"})
    return Score(name, compute, needs, per="target", info=info, judged=judged)


def _judged(estimator: Any, name: str, statistics: Statistics, target: str) -> ConfusionCounts | None:
    places, x, codes = labelled_rows(statistics, target)
    held = places.held
    if too_few(statistics, target, codes, held):
        return None

    def counts() -> ConfusionCounts:
        guess = _clone(estimator).fit(x[~held], codes[~held]).predict(x[held])
        return judge(codes[held], guess, places.cluster[held])

    return statistics.once(("classifier", name, target), counts)


def _of_classifier(estimator: Any, name: str, statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    places, _, codes = labelled_rows(statistics, target)
    n, counts = int(places.held.sum()), _judged(estimator, name, statistics, target)
    if counts is None:
        note = too_few(statistics, target, codes, places.held)
        return [ScoreResult(name, NAN, target, n=n, note=note)]
    value, low, high, chance, p = counts.judgement("f1")
    return [ScoreResult(name, value, target, -1, low, high, chance, n, p=p)]


def of_clusterer(estimator: Any, name: str, **fields: Any) -> Score:
    """Return the score of a scikit-learn clusterer: its adjusted mutual information with the labels."""
    about = f"Adjusted mutual information of the labels and the clusters of {type(estimator).__name__}."
    info = info_of(name, "target", **{"about": about} | CLUSTERER | fields)
    compute = partial(_of_clusterer, estimator, name)
    return Score(name, compute, frozenset({"sample", "classes"}), per="target", info=info)


def _of_clusterer(estimator: Any, name: str, statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    places, x, codes = labelled_rows(statistics, target)
    if note := too_few(statistics, target, codes):
        return [ScoreResult(name, NAN, target, n=len(x), note=note)]
    clusters = _clone(estimator).fit_predict(x)
    return [agreement(name, target, adjusted, codes, clusters, places.group, statistics)]


def _number(function: Callable[..., Any], *arguments: np.ndarray) -> float:
    return float(function(*arguments)) if len(arguments[0]) else NAN


def _clone(estimator: Any) -> Any:
    from sklearn.base import clone

    return clone(estimator)
