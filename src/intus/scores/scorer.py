"""The Scorer computes scores from behaviours and labels that arrive block by block."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.errors import InputError, did_you_mean
from ..core.record import Record
from ..core.results import Predictions
from .base import NAN, Score, ScoreColumns, ScoreResult
from .probes.judging import Confusion, ConfusionCounts, Gap
from .registry import as_score
from .statistics.sent import SentStatistics
from .statistics.statistics import Statistics
from .statistics.summed import StepSums

#: Most bytes of the samples that a Scorer keeps, by default.
SAMPLE_BYTES = 64 << 20


class Scorer:
    """Computes scores of one layer from a stream.

    A Scorer can be pickled, unless a score is a function that other processes cannot import, such as a
    lambda.

    Args:
        scores: Registered names, Score objects, plain functions or scikit-learn estimators (see
            ``register``), one or many.
        seed: Seed of the split, the sample and the shuffled labels. Scorers with equal seeds hold out the
            same items.
        sample_bytes: Most bytes of the sample, which clusterings, plain functions and IoU read. A layer's
            moments take at most 34 MB more, and classes × features numbers per target.
        null: If this is 200, for instance, the p-value of each unit and hypothesis is that of 200
            permutations of the hypotheses between groups (or items), compared with the strongest of all units
            each time. It then holds for all units of a hypothesis together. It is computed from the sample.
            Default: 0, p-values of single pairs from sums over groups.

    Raises:
        InputError: If a score is not known, or ``null`` is negative.

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
        sample_bytes: int = SAMPLE_BYTES,
        null: int = 0,
    ) -> None:
        if isinstance(scores, str | Score) or not isinstance(scores, Iterable):
            scores = [scores]
        wished = {s.name: s for s in (as_score(one) for one in scores)}
        self.scores: tuple[Score, ...] = tuple(wished.values())
        needs = frozenset(need for s in self.scores for need in s.needs)
        raw = any(s.per == "unit" for s in self.scores)
        if isinstance(null, bool) or not isinstance(null, int) or null < 0:
            raise InputError(f"null={null!r} must be a number of permutations, such as 200, or 0 for none.")
        if null and raw:
            needs |= {"sample"}
        self.statistics: Statistics = Statistics(
            needs, raw=raw, seed=seed, sample_bytes=sample_bytes, null=null
        )

    def update(
        self,
        behaviours: Any,
        labels: Any = None,
        items: Any = None,
        *,
        projected_from: int | None = None,
        summary: Any = None,
        groups: Any = None,
        types: Any = None,
        given: Any = None,
    ) -> None:
        """Add rows. Rows with NaN or infinite values are counted, and left out.

        The baseline of scores of units from sums, such as ``correlation``, moves hypotheses between the items
        of one update, or, if all updates have one item, from that of the update before. It therefore depends
        on how rows are divided into updates; no other result does.

        Args:
            behaviours: Shape (rows, features); further axes are flattened.
            labels: A mapping of target to one label per row (int, float, string, bool; None or NaN for none),
                one such column, which is called "target", or a matrix (rows, hypotheses).
            items: Ids of shape (rows,), int64. Rows of one item are held out together. By default each row is
                an item, numbered in order of arrival.
            projected_from: Number of features before the behaviours were projected at random.
            summary: The scalars that ``core.projection.SUMMARY`` names, of the rows before they were
                projected, shape (rows, 8). Without it, scores of entries have no rows.
            groups: Ids of shape (rows,) of what belongs together: a document, an episode, a subject. Items of
                a group are held out together, and intervals count groups. By default each item is a group.
            types: Ids of shape (rows,) of what a row is an instance of, such as its word or token, which the
                control task of ``linear_selectivity`` needs.
            given: Confounders, a mapping of name to one number per row. ``correlation`` is then that of what
                they leave of the units and the targets.

        Raises:
            InputError: If shapes, targets or ``projected_from`` do not fit one another or earlier rows.
        """
        self.statistics.update(behaviours, labels, items, projected_from, summary, groups, types, given)

    def update_steps(self, sums: StepSums) -> None:
        """Add the arrays of training steps by their sums; for scores of entries and of steps alone."""
        self.statistics.add_steps(sums)

    def receive(self, records: Sequence[Record]) -> None:
        """Take the statistics of a layer that were made where the model runs, instead of rows.

        Scores of units, and others that need every row, cannot be computed from them.

        Args:
            records: The records of one layer and epoch, each with statistics.

        Raises:
            InputError: If the statistics cannot be put together.
        """
        self.statistics = SentStatistics(self.statistics.needs, records)

    def merge(self, other: Scorer) -> Scorer:
        """Add the rows of another scorer of the same scores and seed, and return self.

        If ``items`` were given, the result equals that of one scorer that was given all updates.
        """
        self.statistics.merge(other.statistics)
        return self

    def predictions(self, score: str, target: str) -> ConfusionCounts | None:
        """Return the counts of a classifier's predictions on held-out rows; None if it was not trained.

        Raises:
            InputError: If the scorer has no such classifier or target.
        """
        judged = {s.name: s.judged for s in self.scores if s.judged is not None}
        if score not in judged:
            raise InputError(f"{score!r} is no classifier of this scorer. {did_you_mean(score, judged)}")
        known = self.statistics.targets
        if target not in known:
            raise InputError(f"There is no target {target!r}. {did_you_mean(target, known)}")
        return None if self.statistics.magnitude.too_large else judged[score](self.statistics, target)

    def predicted(self, origin: Mapping[str, Any], without: Collection[str] = ()) -> Iterator[Predictions]:
        """Yield the predictions of every classifier, once for the scores that have the same ones.

        Args:
            origin: The run, model, epoch, step, address and kind of the behaviours.
            without: Names of scores to leave out, such as those that failed.
        """
        wanted = [one for one in reversed(self.scores) if one.judged is not None and one.name not in without]
        for name in reversed({one.judged: one.name for one in wanted}.values()):
            for target in self.statistics.targets:
                counts = self.predictions(name, target)
                if counts is not None:
                    truth, guess, items = counts.rows
                    yield Predictions(
                        **origin,
                        target=target,
                        score=name,
                        classes=tuple(self.statistics.classes[target].names()),
                        items=counts.items[items],
                        truth=truth,
                        guess=guess,
                    )

    def confusion(self, score: str, target: str) -> Confusion | None:
        """Return which classes a classifier takes for which, with the F1 of each; None if it was not trained.

        Args:
            score: The name of a classifier's score, such as ``"linear_f1"``.
            target: The target.

        Raises:
            InputError: If the scorer has no such classifier or target.

        Example:
            >>> scorer = Scorer("linear_f1")
            >>> x = np.repeat([[0.0], [1.0]], 40, axis=0)
            >>> scorer.update(x, {"positive": x[:, 0] > 0})
            >>> scorer.confusion("linear_f1", "positive").f1
            array([1., 1.])
        """
        counts = self.predictions(score, target)
        return None if counts is None else counts.confusion(self.statistics.classes[target].names())

    def above(self, other: Scorer, score: str, target: str) -> Gap:
        """Test whether a classifier's score is higher here than in another layer, epoch or model.

        Both are judged on the same held-out items, and the test is paired by item. The other scorer must have
        the same seed and got the same items and groups; held-out items that only one has are left out.

        Args:
            other: The scorer of the other layer or epoch.
            score: The name of a classifier's score, such as ``"linear_f1"``.
            target: The target.

        Returns:
            The score here minus that of the other, with a 95 % interval and p. The value is NaN, with a note,
            if one of them was not trained.

        Raises:
            InputError: If a scorer has no such classifier or target, or the seeds differ.

        References:
            Hampel (1974), "The influence curve and its role in robust estimation": the variance of the
            difference is that of the items' differences of influence.
        """
        seed, other_seed = self.statistics.seed, other.statistics.seed
        if seed != other_seed:
            raise InputError(
                f"The scorers have the seeds {seed} and {other_seed}, so they hold out other items. "
                "Give both the same seed."
            )
        one, two = self.predictions(score, target), other.predictions(score, target)
        if one is None or two is None:
            return Gap(NAN, NAN, NAN, NAN, note="a classifier could not be trained")
        (measure,) = {each.measure for each in self.scores if each.name == score}
        return one.above(two, measure)

    def precision(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the strength of each result and the half-width of its 95 % interval, by score.

        Strengths are comparable between units: for ``mean_difference`` they are in standard deviations of
        the unit, for ``auroc`` the distance from 0.5. Both arrays have the shape (units, hypotheses) for
        scores of units, otherwise (1, results). Half-widths are NaN where too few groups have a value.
        """
        if self.statistics.features < 0:
            return {}
        with np.errstate(all="ignore"):
            return {score.name: _precision(score, self.statistics) for score in self.scores}

    def converged(self, eps: float, *, share: float = 0.99) -> bool:
        """Return whether the results are precise enough to stop reading rows.

        The rows so far must be a random part of all rows: shuffle items, whole groups together, first. Call
        this after each block or, for scores from the sample, after blocks that are half as many rows again,
        since it costs as much as ``columns`` for them. A hypothesis without a value for any unit, such as one
        that was constant so far, may have one later, so it is not precise. Units without a value do not
        count, nor do scores from the sample once that is full, as more rows do not change them.

        Args:
            eps: The half-width of 95 % intervals that is precise enough, in the unit of the score;
                ``mean_difference`` is in standard deviations of the unit.
            share: The share of results that must be as precise. Default: 0.99.

        Raises:
            InputError: If ``eps`` is not positive.

        Example:
            >>> scorer, rng = Scorer("correlation"), np.random.default_rng(0)
            >>> for block in range(100):
            ...     x = rng.normal(size=(200, 3))
            ...     scorer.update(x, {"h": x[:, 0] + rng.normal(size=200)})
            ...     if scorer.converged(eps=0.05):
            ...         break
            >>> 5 < block < 20
            True
        """
        if not eps > 0:
            raise InputError(f"eps={eps!r} must be a positive half-width of intervals, such as 0.025.")
        found = self.precision()
        if not found:
            return False
        full = not self.statistics.sample.complete
        for score in self.scores:
            strength, error = found[score.name]
            known = np.isfinite(strength)
            if full and "sample" in score.needs:
                continue
            if not self._begun(score, known):
                return False
            if not known.any():
                continue
            with np.errstate(invalid="ignore"):
                if (error[known] <= eps).mean() < share:
                    return False
        return True

    def _begun(self, score: Score, known: np.ndarray) -> bool:
        """Return whether each hypothesis that the score suits has a value for some unit.

        Args:
            score: The score.
            known: Which results have a value, shape (units, hypotheses), or (1, results).
        """
        if score.per == "target":
            return bool(known.all())
        if score.per != "unit":
            return True
        statistics = self.statistics
        able = np.array([target not in statistics.not_numbers for target in statistics.targets], dtype=bool)
        if len(statistics.pairs.binary) == len(able):
            able &= statistics.pairs.binary
        return known.shape[1:] != able.shape or bool((known.any(axis=0) | ~able).all())

    def separated(self, top: int, *, share: float = 0.95) -> bool:
        """Return whether the ``top`` strongest units of each hypothesis are known, to stop reading rows.

        They are if each is stronger than every other unit by more than the error of their difference.

        Args:
            top: The number of units.
            share: The share of hypotheses for which they must be known. Default: 0.95.

        Raises:
            InputError: If ``top`` is less than 1.
        """
        if top < 1:
            raise InputError(f"top={top!r} must be 1 or more units.")
        scores = [score for score in self.scores if score.per == "unit"]
        precision = self.precision()
        found = {score.name: precision[score.name] for score in scores if score.name in precision}
        if not all(self._begun(one, np.isfinite(precision[one.name][0])) for one in scores if found):
            return False
        return bool(found) and all(_separated(*both, top) >= share for both in found.values())

    def result(self) -> list[ScoreResult]:
        """Return the results of all scores; an empty list before the first update."""
        return list(self.columns())

    def results_of(self, score: Score) -> list[ScoreResult]:
        """Return the results of one of the scores."""
        return list(score.columns(self.statistics))

    def columns(self) -> ScoreColumns:
        """Return the results of all scores as columns, without an object for each result.

        Example:
            >>> scorer = Scorer("correlation")
            >>> scorer.update([[1.0, 5.0], [2.0, 3.0], [4.0, 1.0]], {"h": [0, 1, 1]})
            >>> found = scorer.columns()
            >>> found.unit.tolist(), found.value.round(2).tolist()
            ([0, 1], [0.76, -0.87])
        """
        scores = self.scores if self.statistics.features >= 0 else ()
        return ScoreColumns.concat(score.columns(self.statistics) for score in scores)


def _precision(score: Score, statistics: Statistics) -> tuple[np.ndarray, np.ndarray]:
    """Return strengths and half-widths, from the results if the score has no other way."""
    if score.precision is not None:
        return score.precision(statistics)
    found = score.columns(statistics)
    shape = (statistics.features, len(statistics.targets)) if score.per == "unit" else (1, len(found))
    half = (found.high - found.low) / 2
    return np.abs(found.value.reshape(shape[::-1]).T), half.reshape(shape[::-1]).T


def _separated(strength: np.ndarray, error: np.ndarray, top: int) -> float:
    """Return the share of hypotheses whose strongest units are known; those without a value do not count."""
    known = strength[:, np.isfinite(strength).any(axis=0)]
    error = error[:, np.isfinite(strength).any(axis=0)]
    if not known.shape[1] or top >= len(known):
        return 1.0
    order = np.argsort(np.where(np.isfinite(known), -known, np.inf), axis=0, kind="stable")
    known, error = (np.take_along_axis(part, order, axis=0) for part in (known, error))
    error = np.where(np.isfinite(error), error, np.inf)
    gap = known[:top, None] - np.where(np.isfinite(known[None, top:]), known[None, top:], -np.inf)
    with np.errstate(invalid="ignore"):
        clear = gap > np.hypot(error[:top, None], np.where(np.isfinite(gap), error[None, top:], 0))
    return float(clear.all(axis=(0, 1)).mean())
