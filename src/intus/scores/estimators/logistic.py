"""Scores from logistic regressions: macro F1, and the description length of the labels given the layer."""

from __future__ import annotations

from collections.abc import Iterable
from math import log2
from typing import Any

import numpy as np

from ...core.errors import require
from ..adapters import CLASSIFIER, of_classifier
from ..base import NAN, ScoreResult, score
from ..cluster import SHUFFLED
from ..probes.judging import ConfusionCounts
from ..probes.labelled import CLASSES, labelled_rows, shuffled, too_few
from ..statistics.statistics import Statistics

MOST_ROWS = 5000  #: most rows that the eleven or more classifiers are trained on
#: Fractions of the rows after which the classifier is trained again (Voita and Titov 2020, section 2.2).
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)


def code_length(x: np.ndarray, codes: np.ndarray) -> float:
    """Return the bits of the online code of classes (rows,) given x (rows, features).

    This is equation 3 of Voita and Titov (2020). The first block costs log2 K bits a label; each further one
    is coded by a logistic regression trained on all blocks before it, with the penalty that was best for the
    block before. The order of the rows is kept.
    """
    classes = int(codes.max()) + 1
    ends = sorted({end for share in PORTIONS if (end := round(share * len(x))) >= 2 * classes} | {len(x)})
    bits, penalty, start = ends[0] * log2(classes), 0.1, ends[0]
    for end in ends[1:]:
        costs = {c: _cost(x, codes, start, end, c, classes) for c in {*_PENALTIES, penalty}}
        bits += costs[penalty]
        penalty, start = min(costs, key=costs.__getitem__), end
    return bits


def _cost(x: np.ndarray, codes: np.ndarray, start: int, end: int, penalty: float, classes: int) -> float:
    """Return the bits of the labels from ``start`` to ``end``, with a model trained on those before."""
    seen = np.unique(codes[:start])
    share = np.full((end - start, classes), 1e-6)  # an unseen class keeps a small probability
    if len(seen) > 1:
        fit = logistic(penalty, 300).fit(x[:start], codes[:start])
        share[:, seen] += fit.predict_proba(x[start:end])
    else:
        share[:, seen] += 1
    share /= share.sum(axis=1, keepdims=True)
    return float(-np.log2(share[np.arange(end - start), codes[start:end]]).sum())


def logistic(inverse_penalty: float = 1.0, most_steps: int = 1000) -> Any:
    """Return scikit-learn's logistic regression on standardised rows."""
    linear = require("sklearn.linear_model", extra="server", why="to fit logistic regressions")
    pipeline = require("sklearn.pipeline", extra="server", why="to fit logistic regressions")
    scaling = require("sklearn.preprocessing", extra="server", why="to fit logistic regressions")
    return pipeline.make_pipeline(
        scaling.StandardScaler(), linear.LogisticRegression(C=inverse_penalty, max_iter=most_steps)
    )


@score(
    "mdl_compression",
    "sample",
    "classes",
    per="target",
    default=False,
    label="Compression (description length)",
    formula=f"N log2 K divided by the bits of the online code of the labels, of at most {MOST_ROWS:,} rows",
    low=0.0,
    baseline=SHUFFLED,
    requires=CLASSES,
    source="Voita and Titov 2020",
)
def mdl_compression(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Factor by which the code of the labels is shorter given the layer; 1 if the layer does not help."""
    _, x, codes = labelled_rows(statistics, target)
    x, codes = x[:MOST_ROWS].astype(np.float64), codes[:MOST_ROWS]
    if note := too_few(statistics, target, codes):
        return [ScoreResult("mdl_compression", NAN, target, n=len(x), note=note)]
    plain = len(codes) * log2(int(codes.max()) + 1)
    value, base = (plain / code_length(x, y) for y in (codes, shuffled(codes, statistics.seed)))
    return [ScoreResult("mdl_compression", value, target, baseline=base, n=len(x), note=statistics.note)]


def _predictions(statistics: Statistics, target: str) -> ConfusionCounts | None:
    judged = of_classifier(logistic(), "logistic_f1").judged
    return judged(statistics, target) if judged else None


@score(
    "logistic_f1",
    "sample",
    "classes",
    per="target",
    default=False,
    judged=_predictions,
    label="Logistic regression, macro F1",
    source="scikit-learn's LogisticRegression, on standardised rows of the sample",
    **CLASSIFIER,
)
def logistic_f1(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Macro F1 of a logistic regression that predicts the target from the layer, on held-out rows."""
    return of_classifier(logistic(), "logistic_f1").compute(statistics, target)
