"""Scores from plain functions and scikit-learn estimators, computed from the bounded sample."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from ..core.errors import InputError
from ..core.notes import joined
from .base import NAN, Need, Score, ScoreResult, info_of, summary
from .cluster import INTERVAL as CLUSTER_INTERVAL
from .cluster import SHUFFLED, adjusted, agreement, clustered
from .probes.judging import CHANCE, INTERVAL, ConfusionCounts, judge
from .probes.labelled import CLASSES, TOO_MANY, complete, labelled_rows, shuffled, too_few
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


@dataclass(frozen=True, slots=True)
class CheckedFunction:
    """A function given as a score, which says what it was called with if it fails or returns no number.

    Attributes:
        function: The function.
        name: The name of the score.
        per: Whether it gets a whole layer or one unit.
    """

    function: Callable[..., Any]
    name: str
    per: Literal["layer", "unit"]

    def __call__(self, *arguments: np.ndarray) -> float:
        """Return the number that the function returns; raises InputError if there is none."""
        try:
            value = self.function(*arguments)
        except Exception as error:
            message = f"raised {type(error).__name__}: {error}"
            raise InputError(f"The score {self.name!r} {message}. {self._given(*arguments)}") from error
        try:
            if np.ndim(value) == 0 and not isinstance(value, str):
                return float(value)
        except (TypeError, ValueError):
            pass
        shape = np.shape(value) if isinstance(value, np.ndarray | list | tuple) or np.ndim(value) else ()
        kind = f"an array of shape {shape}" if shape else repr(value)
        raise InputError(
            f"The score {self.name!r} returned {kind}, but a score is a number. {self._given(*arguments)}"
        )

    def _given(self, x: np.ndarray, *labels: np.ndarray) -> str:
        """Return what the function was given, and how to declare that it wants something else."""
        if self.per == "unit":
            return (
                f"It is registered with per='unit' and was given one unit: behaviours of shape {x.shape} "
                f"and a hypothesis of shape {labels[0].shape}. To get the whole layer, (rows, units), "
                "register it without per='unit'."
            )
        text = f"It was given the whole layer: behaviours of shape {x.shape}, a column for each unit"
        if not labels:
            return f"{text}."
        return (
            f"{text}, and labels of shape {labels[0].shape}, whole numbers from 0. To get one unit (rows,) "
            f"and one hypothesis (rows,) at a time, write register({self.name!r}, function, per='unit') "
            f"and scores={self.name!r}; register is in intus.scores."
        )


def of_function(function: Callable[..., Any], name: str, *, told: str = "", **fields: Any) -> Score:
    """Return the score of a function of (behaviours) or (behaviours, labels); raises InputError otherwise.

    Args:
        function: The function.
        name: The name of the score.
        told: A note for the results of a function of (behaviours, labels).
        fields: Fields of ScoreInfo.
    """
    wants = len([p for p in inspect.signature(function).parameters.values() if p.default is p.empty])
    if wants not in (1, 2):
        raise InputError(
            f"The score {name!r} takes {wants} arguments. Write it as a function of (behaviours) or of "
            f"(behaviours, labels){f', or call it if it returns a score: {name}()' * (not wants)}."
        )
    fields = {"about": summary(function), **fields}
    checked = CheckedFunction(function, name, "layer")

    if wants == 1:
        of_layer = partial(_of_layer, checked, name)
        return Score(name, of_layer, frozenset({"sample"}), info=info_of(name, "layer", **fields))
    fields = {"requires": CLASSES, "baseline": SHUFFLED, **fields}
    needs: frozenset[Need] = frozenset({"sample", "classes"})
    of_target = partial(_of_target, checked, name, told)
    return Score(name, of_target, needs, per="target", info=info_of(name, "target", **fields))


def _of_layer(function: Callable[..., float], name: str, statistics: Statistics) -> Iterable[ScoreResult]:
    x = statistics.drawn()[1]
    x = statistics.projection.apply(x[complete(x)]) if statistics.raw else x
    yield ScoreResult(name, _number(function, x), n=len(x), note=statistics.note)


def _of_target(
    function: Callable[..., float], name: str, told: str, statistics: Statistics, target: str
) -> Iterable[ScoreResult]:
    _, x, codes = labelled_rows(statistics, target)
    if statistics.classes[target].overflowed:
        yield ScoreResult(name, NAN, target, n=len(x), note=TOO_MANY)
        return
    base = _number(function, x, shuffled(codes, statistics.seed))
    value = _number(function, x, codes)
    note = joined(told, statistics.note)
    yield ScoreResult(name, value, target, baseline=base, n=len(x), note=note)


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
    return [ScoreResult(name, value, target, -1, low, high, chance, n, statistics.note, p)]


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
    counts = clustered(codes, clusters, places.group, statistics.seed)
    return [agreement(name, target, adjusted, counts, statistics)]


def _number(function: Callable[..., float], *arguments: np.ndarray) -> float:
    return function(*arguments) if len(arguments[0]) else NAN


def _clone(estimator: Any) -> Any:
    from sklearn.base import clone

    return clone(estimator)
