"""Agreement of clusters that are found without labels with the labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import require
from .base import NAN, ScoreResult, score
from .probes.labelled import CLASSES, labelled_rows, shuffled, too_few
from .statistics.jackknife import jackknife, leave_one_out
from .statistics.split import GROUPS
from .statistics.statistics import Statistics

MOST_ROWS = 2000  #: most rows that k-means clusters
LEAST_ROWS = 3  #: least rows per cluster; with fewer, clusters mean little and k-means is slow
#: Descriptions of the baseline and of the interval of these scores.
SHUFFLED = "the same with shuffled labels"
INTERVAL = (
    "95 %, jackknife over groups of items, of the agreement of these very clusters with further rows;"
    " too narrow for other clusters, which other rows would give, and if rows of an item resemble "
    "each other"
)

#: A measure of agreement of contingency tables (…, classes, clusters); the result is (…).
Measure = Callable[[np.ndarray], np.ndarray]
#: Most cells of the tables that are measured at once.
MOST_CELLS = 1 << 20


class Clustered(NamedTuple):
    """Numbers of rows of each class in each cluster.

    Attributes:
        tables: By group of items, shape (groups, classes, clusters).
        shuffled: Of shuffled labels, shape (classes, clusters).
    """

    tables: np.ndarray
    shuffled: np.ndarray


def mutual_information(tables: np.ndarray) -> np.ndarray:
    """Return the mutual information of classes and clusters in nats; random clusters do not give 0.

    >>> bool(np.isclose(mutual_information(np.eye(4)), np.log(4)))
    True
    """
    return np.asarray(np.maximum(2 * _mean_entropy(tables) - _entropy(tables, (-2, -1)), 0.0))


def normalised(tables: np.ndarray) -> np.ndarray:
    """Return mutual information divided by the mean of the two entropies: 1 for equal labellings.

    It is the V-measure, the harmonic mean of homogeneity and completeness (Rosenberg and Hirschberg 2007).
    """
    return _ratio(mutual_information(tables), _mean_entropy(tables))


def adjusted(tables: np.ndarray, chance: np.ndarray | None = None) -> np.ndarray:
    """Return adjusted mutual information: 0 for random labellings, 1 for equal ones (Vinh et al. 2010).

    ``chance`` is the mutual information of random labellings of these sizes; by default it is computed, for
    one table.
    """
    chance = _expected(tables) if chance is None else chance
    return _ratio(mutual_information(tables) - chance, _mean_entropy(tables) - chance)


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return a ratio that is 1 where the whole is 0 but for rounding, as for one class in one cluster."""
    known = np.abs(whole) > 1e-12
    return np.where(known | np.isnan(whole), part / np.where(known, whole, 1.0), 1.0)


def _expected(table: np.ndarray) -> np.ndarray:
    """Return the expected mutual information of random labellings of the same sizes."""
    metrics = require("sklearn.metrics.cluster", extra="server", why="to compare clusters with labels")
    whole = table[table.any(axis=1)][:, table.any(axis=0)].astype(np.int64)
    return np.asarray(metrics.expected_mutual_information(whole, int(whole.sum())))


def _mean_entropy(tables: np.ndarray) -> np.ndarray:
    return np.asarray(_entropy(tables.sum(axis=-1), -1) + _entropy(tables.sum(axis=-2), -1)) / 2


def _entropy(counts: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """Return the entropy in nats of a distribution that is given as counts; NaN if there are none."""
    n = counts.sum(axis=axis)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(n) - (counts * np.log(np.maximum(counts, 1))).sum(axis=axis) / n)


def agreement(
    name: str,
    target: str,
    measure: Measure,
    counts: Clustered,
    statistics: Statistics,
) -> ScoreResult:
    """Return the agreement of clusters and classes, with a jackknife interval and that of shuffled labels."""
    table = counts.tables.sum(axis=0)
    near = _near(measure, table)
    value = float(near(table))
    without = _in_pieces(near, leave_one_out(counts.tables, 0))
    least, most = (0, np.inf) if measure is mutual_information else (-np.inf, 1)
    low, high = np.clip(jackknife(np.asarray(value), without)[:2], least, most)
    base = float(near(counts.shuffled))  # of the same sizes
    n = int(table.sum())
    return ScoreResult(name, value, target, -1, float(low), float(high), base, n, statistics.note)


def clustered(truth: np.ndarray, cluster: np.ndarray, group: np.ndarray, seed: int) -> Clustered:
    """Count rows with classes ``truth`` in clusters; ``seed`` shuffles the labels."""
    other = _tables(shuffled(truth, seed), cluster, group)
    return Clustered(_tables(truth, cluster, group), other.sum(axis=0))


def contingency(truth: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """Return how many rows of each class are in each cluster, (classes, clusters)."""
    return np.asarray(_tables(truth, cluster, np.zeros(len(truth), int)).sum(axis=0))


def _near(measure: Measure, table: np.ndarray) -> Measure:
    """Return the measure for a table and for large parts of it.

    To first order the agreement of random labellings goes with 1/n (Vinh et al. 2010), so it is computed
    once: it costs more than all the rest.
    """
    if measure is not adjusted:
        return measure
    chance = _expected(table) * table.sum()

    def near(tables: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return adjusted(tables, chance / tables.sum(axis=(-2, -1)))

    return near


def _in_pieces(measure: Measure, tables: np.ndarray) -> np.ndarray:
    """Return the measure of many tables, of some at a time, so that large ones need little memory."""
    step = max(MOST_CELLS // max(tables[0].size, 1), 1) if len(tables) else 1
    pieces = [measure(tables[start : start + step]) for start in range(0, len(tables), step)]
    return np.concatenate(pieces) if pieces else np.empty(0)


def _tables(truth: np.ndarray, cluster: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return contingency tables of classes and clusters by group of items: (GROUPS, classes, clusters)."""
    rows, columns = (np.unique(codes, return_inverse=True)[1] for codes in (truth, cluster))
    out = np.zeros((GROUPS, int(rows.max(initial=0)) + 1, int(columns.max(initial=0)) + 1))
    np.add.at(out, (group, rows, columns), 1)
    return out


def _kmeans(name: str, measure: Measure, statistics: Statistics, target: str) -> ScoreResult:
    places, x, truth = labelled_rows(statistics, target)
    places, x, truth = places.take(np.arange(len(x)) < MOST_ROWS), x[:MOST_ROWS], truth[:MOST_ROWS]
    note = too_few(statistics, target, truth)
    count = len(np.unique(truth))
    if not note and len(x) < LEAST_ROWS * count:
        note = f"{len(x)} rows are too few for {count} clusters"
    if note:
        return ScoreResult(name, NAN, target, n=len(x), note=note)
    key = ("kmeans", count, places.key.tobytes())

    def compare() -> Clustered:
        cluster = statistics.once(key, lambda: k_means(x, count, statistics.seed))
        return clustered(truth, cluster, places.group, statistics.seed)

    return agreement(name, target, measure, statistics.once((*key, target), compare), statistics)


def k_means(x: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the clusters of k-means (rows,); fewer than ``count`` if there are fewer distinct rows."""
    sklearn = require("sklearn", extra="server", why="to cluster behaviours")
    cluster = require("sklearn.cluster", extra="server", why="to cluster behaviours")

    def seeds(x: np.ndarray, count: int, random_state: Any) -> np.ndarray:
        """Choose centres by k-means++ in float64 at once, at half the cost of scikit-learn."""
        centres, _ = cluster.kmeans_plusplus(x.astype(np.float64), count, random_state=random_state)
        return np.asarray(centres, x.dtype)

    means = cluster.KMeans(_distinct(x, count), init=seeds, n_init=2, max_iter=100, random_state=seed)
    x = np.ldexp(x, -np.frexp(np.abs(x).max())[1])  # a power of two: squares stay in range, digits the same
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):  # a third of the time
        return np.asarray(means.fit_predict(x - x.mean(axis=0)))


def _distinct(x: np.ndarray, most: int) -> int:
    """Count distinct rows, up to ``most``."""
    distinct: set[bytes] = set()
    for row in x + 0.0:  # adding 0.0 turns -0.0 into 0.0
        distinct.add(row.tobytes())
        if len(distinct) == most:
            break
    return len(distinct)


_INFO: dict[str, Any] = {
    "low": 0.0,
    "baseline": SHUFFLED,
    "interval": INTERVAL,
    "requires": f"{CLASSES}, with at least {LEAST_ROWS} rows for each",
}
_KMEANS = f"k-means with as many clusters as there are classes, on at most {MOST_ROWS:,} rows of the sample"


@score(
    "kmeans_ami",
    "sample",
    "classes",
    per="target",
    label="k-means, adjusted mutual information",
    formula=f"(MI - E[MI]) / (mean of the two entropies - E[MI]), E over random labellings; {_KMEANS}",
    source="Vinh, Epps and Bailey 2010",
    **_INFO | {"low": None, "high": 1.0},
)
def kmeans_ami(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Agreement of clusters of the layer's rows with the classes; about 0 if they are random."""
    return [_kmeans("kmeans_ami", adjusted, statistics, target)]


@score(
    "kmeans_mi",
    "sample",
    "classes",
    per="target",
    label="k-means, mutual information",
    formula=f"Σ p(c, k) ln(p(c, k) / (p(c) p(k))) over classes c and clusters k, in nats; {_KMEANS}",
    source="Vivisect 2018, Figure 2",
    **_INFO,
)
def kmeans_mi(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Mutual information, in nats, of the classes and clusters of the layer's rows.

    Random clusters do not give 0: compare it with its baseline.
    """
    return [_kmeans("kmeans_mi", mutual_information, statistics, target)]


@score(
    "kmeans_nmi",
    "sample",
    "classes",
    per="target",
    label="k-means, normalized mutual information",
    formula=f"mutual information divided by the mean of the two entropies (the V-measure); {_KMEANS}",
    source="Rosenberg and Hirschberg 2007",
    **_INFO | {"high": 1.0},
)
def kmeans_nmi(statistics: Statistics, target: str) -> Iterable[ScoreResult]:
    """Agreement of clusters of the layer's rows with the classes, not adjusted for chance."""
    return [_kmeans("kmeans_nmi", normalised, statistics, target)]
