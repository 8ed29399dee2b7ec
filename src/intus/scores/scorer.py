"""The Scorer: feed it behaviours and labels block by block, then ask."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .adapters import as_score
from .base import Score, ScoreResult
from .statistics.statistics import Statistics


class Scorer:
    """Scores of one layer, from a stream.

    ``scores`` are registered names, Score objects, plain functions or scikit-learn estimators (see
    ``register``), one or many. ``seed`` decides what is held out, sampled and shuffled: two scorers of
    one seed agree on every item. ``sample_bytes`` bounds the memory of the sample that clusterings,
    plain functions and IoU read; a layer's moments take at most 34 MB more, and C·D numbers per target.

    >>> import numpy as np
    >>> scorer = Scorer(["mean", "linear_accuracy"])
    >>> x = np.random.default_rng(0).normal(size=(400, 3))
    >>> scorer.update(x, {"positive": x[:, 0] > 0})
    >>> [(r.score, r.target, round(r.value)) for r in scorer.result()]
    [('mean', '', 0), ('linear_accuracy', 'positive', 1)]
    """

    def __init__(
        self,
        scores: str | Score | Any | Iterable[str | Score | Any],
        *,
        seed: int = 0,
        sample_bytes: int = 64 << 20,
    ) -> None:
        if isinstance(scores, str | Score) or not isinstance(scores, Iterable):
            scores = [scores]
        wished = {s.name: s for s in (as_score(one) for one in scores)}
        self.scores: tuple[Score, ...] = tuple(wished.values())
        needs = frozenset(need for s in self.scores for need in s.needs)
        raw = any(s.per == "unit" for s in self.scores)
        self.statistics = Statistics(needs, raw=raw, seed=seed, sample_bytes=sample_bytes)

    def update(
        self,
        behaviours: Any,
        labels: Any = None,
        items: Any = None,
        *,
        projected_from: int | None = None,
        summary: Any = None,
    ) -> None:
        """Add rows.

        ``behaviours`` (rows, features), anything more is flattened. ``labels`` is a mapping of target to
        one label per row (ints, floats, strings, bools; None or NaN for none), one such column (it is
        called "target"), or a matrix (rows, hypotheses). ``items`` int64 (rows,) are the ids by which
        rows are held out together; without them each row is an item, numbered in order of arrival.
        ``projected_from`` is how many features there were before the behaviours were projected at random,
        ``summary`` (rows, 8) what ``core.record.SUMMARY`` names of the rows then; without it, scores of
        single entries have no rows.
        Raises InputError when the parts do not fit; a NaN or an infinity is counted, never an error.
        """
        self.statistics.update(behaviours, labels, items, projected_from, summary)

    def merge(self, other: Scorer) -> Scorer:
        """Add all that another scorer of the same scores and seed saw; returns self.

        The result equals that of one scorer that saw everything, given that ``items`` were.
        """
        self.statistics.merge(other.statistics)
        return self

    def result(self) -> list[ScoreResult]:
        """What every score reads now; an empty list before the first update."""
        if self.statistics.features < 0:
            return []
        return [result for score in self.scores for result in score.results(self.statistics)]
