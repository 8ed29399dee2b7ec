"""Do clusters, found without labels, agree with the labels?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ..core.errors import require
from .base import NAN, Reading, score
from .jackknife import jackknife
from .labelled import labelled_rows, shuffled, too_few
from .statistics import Statistics

MOST_ROWS = 2000  #: k-means sees at most so many rows


def mutual_information(truth: np.ndarray, cluster: np.ndarray) -> float:
    """Mutual information of two labellings (rows,) in nats; random ones do not give 0."""
    metrics = require("sklearn.metrics", extra="server", why="to compare clusters with labels")
    # The table is made here since scikit-learn's checks of the labels cost more than the rest.
    rows, columns = (np.unique(codes, return_inverse=True)[1] for codes in (truth, cluster))
    width = int(columns.max(initial=0)) + 1
    table = np.bincount(rows * width + columns, minlength=(int(rows.max(initial=0)) + 1) * width)
    return float(metrics.mutual_info_score(None, None, contingency=table.reshape(-1, width)))


def adjusted(truth: np.ndarray, cluster: np.ndarray) -> float:
    """Adjusted mutual information: 0 for random labellings, 1 for equal ones (Vinh et al. 2010)."""
    metrics = require("sklearn.metrics", extra="server", why="to compare clusters with labels")
    return float(metrics.adjusted_mutual_info_score(truth, cluster))


def agreement(
    name: str,
    target: str,
    measure: Callable[[np.ndarray, np.ndarray], float],
    truth: np.ndarray,
    cluster: np.ndarray,
    group: np.ndarray,
    statistics: Statistics,
) -> Reading:
    """How clusters agree with classes by that measure, with the interval of leaving out groups of items and
    the agreement of shuffled labels."""
    value = measure(truth, cluster)
    kept = (group != one for one in np.unique(group))
    without = np.array([measure(truth[rows], cluster[rows]) if rows.any() else NAN for rows in kept])
    least, most = (0, np.inf) if measure is mutual_information else (-np.inf, 1)
    low, high = np.clip(jackknife(np.asarray(value), without), least, most)
    base = measure(shuffled(truth, statistics.seed), cluster)
    return Reading(
        name, value, target, -1, float(low), float(high), base, len(truth), statistics.projection.note
    )


def _kmeans(
    name: str, measure: Callable[[np.ndarray, np.ndarray], float], statistics: Statistics, target: str
) -> Reading:
    places, x, truth = labelled_rows(statistics, target)
    places, x, truth = places.take(np.arange(len(x)) < MOST_ROWS), x[:MOST_ROWS], truth[:MOST_ROWS]
    note = too_few(statistics, target, truth)
    count = len(np.unique(truth))
    if not note and len(x) <= count:
        note = f"{len(x)} rows are too few for {count} clusters"
    if note:
        return Reading(name, NAN, target, n=len(x), note=note)
    key = ("kmeans", count, places.key.tobytes())
    cluster = statistics.once(key, lambda: _clusters(x, count, statistics.seed))
    return agreement(name, target, measure, truth, cluster, places.group, statistics)


def _clusters(x: np.ndarray, count: int, seed: int) -> np.ndarray:
    """k-means, k the number of classes; fewer distinct rows than k give fewer clusters, not a warning."""
    distinct = len(np.unique(x, axis=0)) if len(x) else 0
    cluster = require("sklearn.cluster", extra="server", why="to cluster behaviours")
    means = cluster.KMeans(min(count, distinct), n_init=2, max_iter=100, random_state=seed)
    return np.asarray(means.fit_predict(x - x.mean(axis=0)))


@score("kmeans_mi", "sample", "classes", per="target")
def kmeans_mi(statistics: Statistics, target: str) -> Iterable[Reading]:
    """Mutual information in nats of k-means clusters and classes."""
    return [_kmeans("kmeans_mi", mutual_information, statistics, target)]


@score("kmeans_ami", "sample", "classes", per="target")
def kmeans_ami(statistics: Statistics, target: str) -> Iterable[Reading]:
    """Adjusted mutual information of k-means clusters and classes."""
    return [_kmeans("kmeans_ami", adjusted, statistics, target)]
