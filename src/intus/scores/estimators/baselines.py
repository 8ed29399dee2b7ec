"""Macro F1 of a linear support vector machine, and of two baselines that do not read the layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ...core.errors import require
from ..adapters import CLASSIFIER, of_classifier
from ..base import Score, ScoreResult, score
from ..probes.judging import ConfusionCounts
from ..statistics.statistics import Statistics


def _dummy(strategy: str, seed: int) -> Any:
    dummy = require("sklearn.dummy", extra="server", why="to compute baselines")
    return dummy.DummyClassifier(strategy=strategy, random_state=seed)


def _machine(statistics: Statistics) -> Score:
    svm = require("sklearn.svm", extra="server", why="to fit support vector machines")
    pipeline = require("sklearn.pipeline", extra="server", why="to fit support vector machines")
    scaling = require("sklearn.preprocessing", extra="server", why="to fit support vector machines")
    machine = svm.LinearSVC(random_state=statistics.seed, max_iter=5000)
    return of_classifier(pipeline.make_pipeline(scaling.StandardScaler(), machine), "svm_f1")


def _majority(statistics: Statistics) -> Score:
    return of_classifier(_dummy("most_frequent", statistics.seed), "majority_f1")


def _random(statistics: Statistics) -> Score:
    return of_classifier(_dummy("stratified", statistics.seed), "random_f1")


def _counts(
    make: Callable[[Statistics], Score], statistics: Statistics, target: str
) -> ConfusionCounts | None:
    """Return the counts of a classifier that depends on the seed."""
    judged = make(statistics).judged
    return judged(statistics, target) if judged else None


def _of_classifier(name: str, make: Callable[[Statistics], Score], **fields: Any) -> Callable[[Any], Any]:
    """Return the decorator that registers the macro F1 of a classifier that depends on the seed."""
    judged = partial(_counts, make)
    return score(
        name, "sample", "classes", per="target", default=False, judged=judged, **fields, **CLASSIFIER
    )


@_of_classifier(
    "svm_f1",
    _machine,
    label="Linear support vector machine, macro F1",
    source="scikit-learn's LinearSVC, on standardised rows of the sample",
)
def svm_f1(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Macro F1 of a linear support vector machine on the layer, on held-out rows."""
    return _machine(statistics).compute(statistics, target)


@_of_classifier(
    "majority_f1",
    _majority,
    label="Baseline: the commonest class, macro F1",
    source="scikit-learn's DummyClassifier('most_frequent')",
)
def majority_f1(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Macro F1 of guessing the commonest class of the training rows; it does not read the layer."""
    return _majority(statistics).compute(statistics, target)


@_of_classifier(
    "random_f1",
    _random,
    label="Baseline: random classes, macro F1",
    source="scikit-learn's DummyClassifier('stratified')",
)
def random_f1(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Macro F1 of random guesses with the classes' frequencies among the training rows."""
    return _random(statistics).compute(statistics, target)
