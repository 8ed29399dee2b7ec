"""Minimum description length: how many bits the labels take when a layer is at hand to tell them."""

from __future__ import annotations

from collections.abc import Iterable
from math import log2
from typing import Any

import numpy as np

from ..core.errors import require
from .base import NAN, ScoreResult, score
from .labelled import labelled_rows, shuffled, too_few
from .statistics.statistics import Statistics

MOST_ROWS = 5000  #: eleven classifiers, and more to choose their penalty, are trained on at most so many rows
#: Shares of the rows after which the classifier is trained anew (Voita and Titov 2020, section 2.2).
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)


def code_length(x: np.ndarray, codes: np.ndarray) -> float:
    """Bits of the online code of classes (rows,) given x (rows, features) (Voita and Titov 2020, equation 3).

    The first block is sent at log2 K bits a label; each next one by a logistic regression trained on all
    before it, with the penalty that would have sent the block before best. Rows are taken in their order.
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
    """Bits of the labels from ``start`` to ``end``, the model being trained on those before."""
    known = np.unique(codes[:start])
    share = np.full((end - start, classes), 1e-6)  # a class never met yet is possible all the same
    if len(known) > 1:
        fit = logistic(penalty, 300).fit(x[:start], codes[:start])
        share[:, known] += fit.predict_proba(x[start:end])
    else:
        share[:, known] += 1
    share /= share.sum(axis=1, keepdims=True)
    return float(-np.log2(share[np.arange(end - start), codes[start:end]]).sum())


def logistic(inverse_penalty: float = 1.0, most_steps: int = 1000) -> Any:
    """scikit-learn's logistic regression on standardised rows."""
    linear = require("sklearn.linear_model", extra="server", why="to fit logistic regressions")
    pipeline = require("sklearn.pipeline", extra="server", why="to fit logistic regressions")
    scaling = require("sklearn.preprocessing", extra="server", why="to fit logistic regressions")
    return pipeline.make_pipeline(
        scaling.StandardScaler(), linear.LogisticRegression(C=inverse_penalty, max_iter=most_steps)
    )


@score("mdl_compression", "sample", "classes", per="target", default=False)
def mdl_compression(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """How many times shorter the labels' online code is with the layer than without: N log2 K bits, divided
    by ``code_length``. 1 means that the layer says nothing; the baseline is that of shuffled labels."""
    _, x, codes = labelled_rows(statistics, target)
    x, codes = x[:MOST_ROWS].astype(np.float64), codes[:MOST_ROWS]
    if note := too_few(statistics, target, codes):
        return [ScoreResult("mdl_compression", NAN, target, n=len(x), note=note)]
    plain = len(codes) * log2(int(codes.max()) + 1)
    value, base = (plain / code_length(x, y) for y in (codes, shuffled(codes, statistics.seed)))
    return [ScoreResult("mdl_compression", value, target, baseline=base, n=len(x), note=statistics.note)]
