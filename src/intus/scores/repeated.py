"""A scorer that judges its classifiers on several seeded splits of the same items."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.errors import InputError
from ..core.notes import joined
from .base import Score, ScoreColumns, ScoreResult
from .multiple import depends_on_split, merged_splits
from .scorer import SAMPLE_BYTES, Scorer

_STRIDE = 7919  # between the seeds, whose neighbors other hashes use


class RepeatedScorer(Scorer):
    """A Scorer whose scores of a layer and a target are means over several splits.

    Scores that hold nothing out are computed once. ``predictions``, ``confusion`` and ``above`` are those of
    the first split, and so are the coefficients of units.

    Args:
        scores: As for ``Scorer``.
        splits: The number of splits, at least 2.
        seed: The seed of the first split.
        sample_bytes: Most bytes of all samples together.
        null: As for ``Scorer``.

    Raises:
        InputError: If there are fewer than two splits.

    Example:
        >>> scorer = RepeatedScorer("linear_accuracy", splits=3)
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(400, 3))
        >>> scorer.update(x, {"positive": x[:, 0] > rng.normal(size=400)})
        >>> scorer.result()[0].note
        'mean of 3 splits'
    """

    def __init__(
        self,
        scores: str | Score | Any | Iterable[str | Score | Any],
        *,
        splits: int,
        seed: int = 0,
        sample_bytes: int = SAMPLE_BYTES,
        null: int = 0,
    ) -> None:
        if splits < 2:
            raise InputError(
                f"A RepeatedScorer needs 2 splits or more, got splits={splits!r}. Use Scorer for 1."
            )
        super().__init__(scores, seed=seed, sample_bytes=sample_bytes // splits, null=null)
        again = [score for score in self.scores if depends_on_split(score.infos[0])]
        seeds = [seed + number * _STRIDE for number in range(1, splits)]
        self.others = [Scorer(again, seed=one, sample_bytes=sample_bytes // splits) for one in seeds if again]

    def update(self, behaviours: Any, labels: Any = None, items: Any = None, **more: Any) -> None:
        """Add rows; see ``Scorer.update`` for the arguments."""
        super().update(behaviours, labels, items, **more)
        for scorer in self.others:
            scorer.update(behaviours, labels, items, **more)

    def merge(self, other: Scorer) -> RepeatedScorer:
        """Add the rows of another scorer of the same scores, seed and number of splits, and return self."""
        if not isinstance(other, RepeatedScorer) or len(other.others) != len(self.others):
            raise InputError("Only scorers of the same number of splits can be merged.")
        super().merge(other)
        for own, its in zip(self.others, other.others, strict=True):
            own.merge(its)
        return self

    def results_of(self, score: Score) -> list[ScoreResult]:
        """Return the results of one of the scores; see ``multiple.merged_splits``."""
        return list(self._columns(score))

    def columns(self) -> ScoreColumns:
        """Return the results of all scores as columns; see ``multiple.merged_splits``."""
        if self.statistics.features < 0:
            return ScoreColumns.concat(())
        return ScoreColumns.concat(self._columns(score) for score in self.scores)

    def _columns(self, score: Score) -> ScoreColumns:
        first = score.columns(self.statistics)
        if not depends_on_split(score.infos[0]):
            return first
        splits = [list(first), *(list(score.columns(scorer.statistics)) for scorer in self.others)]
        merged = ScoreColumns.of(merged_splits([[one for one in rows if one.unit == -1] for rows in splits]))
        info = score.infos[0]
        low, high = -np.inf if info.low is None else info.low, np.inf if info.high is None else info.high
        means = iter(replace(merged, low=np.maximum(merged.low, low), high=np.minimum(merged.high, high)))
        return ScoreColumns.of([next(means) if one.unit == -1 else self._of_first(one) for one in splits[0]])

    def _of_first(self, result: ScoreResult) -> ScoreResult:
        """Return the result of a unit, such as its coefficient, which is that of the first split."""
        note = f"of split 1 of {1 + len(self.others)}"
        return result._replace(note=joined(result.note, note))
