"""Scores of single units and hypotheses from the ranks of a unit: ROC curves and information."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..base import NAN, ScoreColumns, ScoreResult, score
from ..statistics.jackknife import jackknife
from ..statistics.permutation import midranks, rank_difference
from ..statistics.ranks import areas, informations
from ..statistics.statistics import Statistics
from .affinity import INTERVAL, best, drawn, moved, spread

_HALF = 0.5  # the area of a unit that does not depend on the hypothesis


def _of_area(statistics: Statistics) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance of the area from 0.5, and the half-width of its interval."""
    found = ScoreColumns.of(auroc(statistics))
    shape = len(statistics.targets), statistics.features
    return np.abs(found.value - _HALF).reshape(shape).T, ((found.high - found.low) / 2).reshape(shape).T


@score(
    "auroc",
    "pairs",
    "sample",
    per="unit",
    label="Area under the ROC curve",
    center=_HALF,
    formula="P(u > v) + P(u = v) / 2, for the unit's values u where the hypothesis is 1 and v where it is 0",
    low=0.0,
    high=1.0,
    baseline="0.5 plus the largest difference from 0.5 of any unit when hypotheses are moved to other items",
    interval=INTERVAL,
    requires="hypotheses of 0 and 1",
    source="Mann and Whitney 1947; scikit-learn's roc_auc_score",
    precision=_of_area,
)
def auroc(statistics: Statistics) -> Iterable[ScoreResult]:
    """Probability that a unit is larger where a hypothesis is 1 than where it is 0, in other rows."""
    places, x, values = drawn(statistics)
    values = np.where(statistics.pairs.binary, values, NAN)
    value, *without = areas(x, values, places.group)
    bounds = jackknife(value, np.reshape(without, (-1, *value.shape)), _HALF)
    elsewhere = np.where(statistics.pairs.binary, moved(statistics), NAN)
    base = _HALF + best(areas(x, elsewhere)[0] - _HALF)
    rows = np.isfinite(drawn(statistics)[2]).sum(axis=0)

    def strength(x: np.ndarray, permuted: np.ndarray) -> np.ndarray:
        ranks = statistics.once("midranks", lambda: midranks(x))
        return rank_difference(ranks, np.where(statistics.pairs.binary, permuted, NAN))

    return spread(
        "auroc", statistics, value, bounds, base, binary=True, rows=rows, strength=strength, ranked=True
    )


@score(
    "mutual_information",
    "pairs",
    "sample",
    per="unit",
    label="Mutual information",
    formula="Σ p(b, h) log2 (p(b, h) / p(b) p(h)) over 16 equally frequent bins b of the unit and the values "
    "h of the hypothesis, minus the expected bias",
    baseline="the largest value of any unit when hypotheses are moved to other items",
    interval=INTERVAL,
    requires="hypotheses that are numbers; more than 50 different ones are cut into 16 bins",
    source="Cover and Thomas 2006, section 2.3; correction of Miller 1955",
)
def mutual_information(statistics: Statistics) -> Iterable[ScoreResult]:
    """Information in bits that a unit gives on a hypothesis, also where the relation is not linear."""
    places, x, values = drawn(statistics)
    value, *without = informations(x, values, places.group)
    bounds = jackknife(value, np.reshape(without, (-1, *value.shape)))
    untested = np.full(value.shape, NAN)  # the information of noise is no normal variable
    base = best(np.maximum(informations(x, moved(statistics))[0], 0))
    rows = np.isfinite(values).sum(axis=0)

    def strength(x: np.ndarray, permuted: np.ndarray) -> np.ndarray:
        return informations(x, permuted)[0]

    bounds = bounds._replace(p=untested)
    return spread(
        "mutual_information", statistics, value, bounds, base, rows=rows, strength=strength, ranked=True
    )
