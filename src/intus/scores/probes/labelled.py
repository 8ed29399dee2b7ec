"""The rows of the sample that have a label of a target, for clusterings, estimators and functions."""

from __future__ import annotations

import numpy as np

from ...core.notes import joined
from ..statistics.labels import MISSING, MOST
from ..statistics.split import Places
from ..statistics.statistics import Statistics

MOST_ROWS = 40_000  #: most rows of the sample that estimators and functions of labels get
#: Description of the data that scores of classes need.
CLASSES = f"labels that are classes, at most {MOST:,} of them"
TOO_MANY = "too many different labels to be classes"
NO_FEATURES = "no features"


def labelled_rows(statistics: Statistics, target: str) -> tuple[Places, np.ndarray, np.ndarray]:
    """Return the rows of the sample that have a label, at most MOST_ROWS of them.

    Returns:
        Their places, behaviours (rows, width), and classes (rows,), numbered in the order of the labels.
    """
    return statistics.once(("labelled", target), lambda: _labelled_rows(statistics, target))


def rows_to_fit(statistics: Statistics, target: str) -> tuple[Places, np.ndarray, np.ndarray]:
    """Return the labelled rows to train and judge a classifier on, as ``labelled_rows`` does.

    Of rows that were chosen where the model runs, these are more of rare classes than in the whole.
    """
    if not statistics.by_class:
        return labelled_rows(statistics, target)
    places, x, codes = statistics.rows_to_fit(target)
    return places, x, _rank(statistics, target)[codes]


def _labelled_rows(statistics: Statistics, target: str) -> tuple[Places, np.ndarray, np.ndarray]:
    places, x, codes, _ = statistics.drawn()
    column = codes[:, statistics.targets.index(target)] if codes.size else np.empty(0, np.int64)
    usable = column != MISSING
    if statistics.raw:  # a projected sample contains finite rows only
        usable &= complete(x)
    rows = np.flatnonzero(usable)[:MOST_ROWS]
    places, x = statistics.once(("rows", rows.tobytes()), lambda: _taken(statistics, rows))
    return places, x, _rank(statistics, target)[column[rows]]


def _rank(statistics: Statistics, target: str) -> np.ndarray:
    """Return the number of each class in the order of the labels."""
    order = statistics.classes[target].order()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank


def _taken(statistics: Statistics, rows: np.ndarray) -> tuple[Places, np.ndarray]:
    """Return some rows of the sample, once for all targets that label the same rows."""
    places, x, _, _ = statistics.drawn()
    if len(rows) < len(x):
        places, x = places.take(rows), x[rows]
    return places, statistics.projection.apply(x) if statistics.raw else x


def complete(x: np.ndarray) -> np.ndarray:
    """Return True for the rows of (rows, features) that are finite, shape (rows,)."""
    return np.asarray(np.isfinite(x).all(axis=1))


def shuffled(codes: np.ndarray, seed: int) -> np.ndarray:
    """Return the labels in a seeded random order."""
    return np.random.default_rng(seed).permutation(codes)


def too_few(statistics: Statistics, target: str, codes: np.ndarray, held: np.ndarray | None = None) -> str:
    """Return the reason why no classifier can be trained on these labels, "" if one can."""
    note = _too_few(statistics, target, codes, held)
    return joined(note, statistics.note) if note else ""


def _too_few(statistics: Statistics, target: str, codes: np.ndarray, held: np.ndarray | None) -> str:
    if statistics.classes[target].overflowed:
        return TOO_MANY
    if not statistics.width:
        return NO_FEATURES
    classes = len(np.unique(codes))
    if classes < 2:
        return "a single class" if classes else "no labelled rows"
    if held is not None and len(np.unique(codes[~held])) < 2:
        return "a single class among the training rows"
    if held is not None and held.sum() < 2:
        return "too few rows to hold any out"
    if held is not None and 2 * len(np.unique(codes[~held])) > (~held).sum():
        return f"{classes} classes are too many for {(~held).sum()} training rows"
    return ""
