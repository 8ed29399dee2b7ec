"""Evaluate the stored predictions of classifiers: tables of confused classes, and paired tests."""

from __future__ import annotations

import numpy as np

from ..core.results import Predictions
from ..scores import Confusion, Gap, get, names
from ..scores.probes.judging import ConfusionCounts, judge

MOST_CLASSES = 100  #: a table of more classes is not sent to the page


def scores_of(score: str) -> list[str]:
    """Return the names of the scores that are computed from the same predictions, such as accuracy and F1.

    >>> scores_of("lda_f1")
    ['lda_f1', 'lda_accuracy']
    """
    known = names()
    judged = get(score).judged if score in known else None
    return [score, *(name for name in known if judged and name != score and get(name).judged is judged)]


def counts_of(predictions: Predictions) -> ConfusionCounts:
    """Return the counts of stored predictions."""
    return judge(predictions.truth, predictions.guess, predictions.items)


def confusion_of(predictions: Predictions) -> Confusion:
    """Return the table of confused classes of stored predictions."""
    return counts_of(predictions).confusion(predictions.classes)


def gap_of(one: Predictions | None, other: Predictions | None, score: str) -> Gap:
    """Return the difference of two classifiers' score on the held-out items that both have."""
    if one is None or other is None:
        missing = "either" if one is other else "this point" if one is None else "the other point"
        return Gap(np.nan, np.nan, np.nan, np.nan, note=f"no predictions of {missing} are stored")
    if one.classes != other.classes:
        return Gap(np.nan, np.nan, np.nan, np.nan, note="the labels have other classes")
    return counts_of(one).above(counts_of(other), get(score).measure if score in names() else "f1")
