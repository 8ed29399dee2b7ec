"""The types of a score and of its result, and the table of registered scores.

A score is a pure function of statistics and never reads the behaviours themselves. The same score therefore
serves a running training, a file, and a data set that does not fit into memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..core.errors import InputError
from ..core.score_info import ScoreInfo

if TYPE_CHECKING:
    from .probes.judging import ConfusionCounts
    from .statistics.statistics import Statistics

#: The statistics that a score may need (see ``statistics.Statistics``); only those that are needed are
#: computed.
#:
#: ``tally``    counts, extremes and the means of per-row scalars of all entries (``Statistics.tally``)
#: ``moments``  sums and products of features over the training rows, by class (``Statistics.moments``)
#: ``whole``    the moments of the held-out rows as well
#: ``classes``  the labels of each target as classes (``Statistics.classes``)
#: ``values``   the labels of each target as numbers
#: ``pairs``    sums of products of each unit and each target's numbers (``Statistics.pairs``)
#: ``sample``   a bounded random sample of the rows with their labels (``Statistics.drawn``)
#: ``rows``     of layers that are projected here, some rows of the sample before that (``rows_to_compare``)
#: ``steps``    the sum of the rows and of their squares, each row being one step (``Statistics.steps``)
Need = Literal["tally", "moments", "whole", "classes", "values", "pairs", "sample", "rows", "steps"]

#: The arguments of a score's function, and so the level of the score.
#:
#: ``layer``   ``compute(statistics)``, once: a score of the layer that needs no target
#: ``target``  ``compute(statistics, target)``, once for each target: a score of the layer and the target
#: ``unit``    ``compute(statistics)``, once: scores of all pairs of a unit and a target
#: ``layers``  ``compute(statistics, other)``, once for each pair of layers; see ``comparisons.layers``
Per = Literal["layer", "target", "unit", "layers"]

#: Returns the counts of a classifier's predictions of a target on held-out rows; None if it was not trained.
Judge = Callable[["Statistics", str], "ConfusionCounts | None"]

NAN = float("nan")


class ScoreResult(NamedTuple):
    """One row of Results, without the columns of the run, the layer and the epoch.

    Attributes:
        score: The name of the score.
        value: The value, NaN where there is none.
        target: The target, "" for a score that needs none.
        unit: The unit, -1 for the whole layer.
        low: Lower bound of a 95 % interval.
        high: Upper bound of a 95 % interval.
        baseline: The value that the score has without information about the target, such as at chance.
        n: Number of rows.
        note: Why there is no value, or what to know about it.
        p: The two-sided p-value of the hypothesis that the behaviours do not depend on the target; NaN for a
            score without a test.
    """

    score: str
    value: float
    target: str = ""
    unit: int = -1
    low: float = NAN
    high: float = NAN
    baseline: float = NAN
    n: int = 0
    note: str = ""
    p: float = NAN


#: The type of each column of ScoreColumns.
_TYPES = {"value": float, "unit": np.int64, "low": float, "high": float, "baseline": float, "n": np.int64}
_TYPES |= {"p": float}


@dataclass(frozen=True, slots=True, eq=False)
class ScoreColumns:
    """Many results as columns: arrays of equal length, with the fields of ScoreResult.

    Columns of text are object arrays whose rows share strings. Iteration yields ScoreResults.

    Attributes:
        score: The names of the scores.
        value: The values.
        target: The targets.
        unit: The units.
        low: The lower bounds.
        high: The upper bounds.
        baseline: The baselines.
        n: The numbers of rows.
        note: The notes.
        p: The p-values.

    Example:
        >>> columns = ScoreColumns.of([ScoreResult("mean", 0.5), ScoreResult("mean", 2.0, unit=3)])
        >>> len(columns), columns.value.tolist(), columns.unit.tolist()
        (2, [0.5, 2.0], [-1, 3])
    """

    score: np.ndarray
    value: np.ndarray
    target: np.ndarray
    unit: np.ndarray
    low: np.ndarray
    high: np.ndarray
    baseline: np.ndarray
    n: np.ndarray
    note: np.ndarray
    p: np.ndarray

    @classmethod
    def of(cls, results: Iterable[ScoreResult]) -> ScoreColumns:
        """Return results as columns; columns are returned as they are."""
        if isinstance(results, cls):
            return results
        columns = zip(*results, strict=True)
        filled = dict(zip(ScoreResult._fields, columns, strict=False))
        return cls(**{name: _column(name, filled.get(name, ())) for name in ScoreResult._fields})

    @classmethod
    def concat(cls, parts: Iterable[ScoreColumns]) -> ScoreColumns:
        """Concatenate columns. An empty sequence gives columns without rows."""
        parts = [cls.of(()), *parts]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ScoreResult._fields))

    def within(self, infos: Iterable[ScoreInfo]) -> ScoreColumns:
        """Return the results with intervals that do not go beyond the range of their score.

        Args:
            infos: The descriptions of the scores.

        Example:
            >>> info = ScoreInfo(name="r2", high=1.0)
            >>> found = ScoreColumns.of([ScoreResult("r2", 0.99, low=0.97, high=1.01)]).within([info])
            >>> found.low.tolist(), found.high.tolist()
            ([0.97], [1.0])
        """
        low, high = self.low, self.high
        for info in infos:
            own = self.score == info.name
            if info.low is not None:
                low = np.where(own, np.maximum(low, info.low), low)
            if info.high is not None:
                high = np.where(own, np.minimum(high, info.high), high)
        return replace(self, low=low, high=high)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[ScoreResult]:
        columns = (getattr(self, name).tolist() for name in ScoreResult._fields)
        return map(ScoreResult._make, zip(*columns, strict=True))


def _column(name: str, values: Any) -> np.ndarray:
    return np.array(values, dtype=_TYPES.get(name, object))


@dataclass(frozen=True, slots=True)
class Score:
    """A named pure function from statistics to results.

    Attributes:
        name: The name.
        compute: The function; ``per`` says how it is called.
        needs: The statistics that it reads.
        per: How it is called.
        default: Whether servers compute it by default; False for expensive scores.
        kinds: The kinds of record that it applies to, all if empty.
        suits: Returns whether it is meant for a target's labels; None for all. A score that is requested by
            name is computed all the same, one of the default scores is not.
        info: Its description for people.
        beside: The descriptions of further rows that it returns under other names.
        judged: Returns the counts that a classifier's score is computed from; None for other scores. Scores
            of the same predictions have the same function.
        measure: Which score of these counts it is, "f1" or "accuracy".
        precision: For a score of units, returns the strength of each pair and the half-width of its 95 %
            interval, both (units, hypotheses) and comparable between units; None to take them from the
            results.
    """

    name: str
    compute: Callable[..., Iterable[ScoreResult]]
    needs: frozenset[Need]
    per: Per = "layer"
    default: bool = True
    kinds: frozenset[str] = frozenset()
    suits: Callable[[Statistics, str], bool] | None = None
    info: ScoreInfo | None = None
    beside: tuple[ScoreInfo, ...] = ()
    judged: Judge | None = None
    measure: Literal["f1", "accuracy"] = "f1"
    precision: Callable[[Statistics], tuple[np.ndarray, np.ndarray]] | None = None

    def by_default(self) -> Score:
        """Return the score without results for targets that it does not suit."""
        suits, compute = self.suits, self.compute
        if suits is None:
            return self
        return replace(self, compute=partial(_if_suited, suits, compute))

    def results(self, statistics: Statistics) -> list[ScoreResult]:
        """Compute the score and return its results for all targets and units."""
        return list(self.columns(statistics))

    def columns(self, statistics: Statistics) -> ScoreColumns:
        """Compute the score and return its results for all targets and units as columns.

        A score of two layers has none.
        """
        if self.per == "layers":
            return ScoreColumns.of(())
        magnitude, targets = statistics.magnitude, statistics.targets
        if self.per == "target" and (why := magnitude.too_large):  # scikit-learn would raise an error
            return ScoreColumns.of(ScoreResult(self.name, NAN, target, note=why) for target in targets)
        with np.errstate(all="ignore"):  # an overflow is shown as infinite
            if self.per == "target":
                found = ScoreColumns.of(r for target in targets for r in self.compute(statistics, target))
            else:
                found = ScoreColumns.of(self.compute(statistics))
        return magnitude.checked(found).within(self.infos)

    @property
    def reads_layers(self) -> bool:
        """True if it reads whole layers, one or two, and no labels."""
        return self.per in ("layer", "layers")

    @property
    def infos(self) -> tuple[ScoreInfo, ...]:
        """The descriptions of the rows that it returns."""
        return (self.info or info_of(self.name, self.per), *self.beside)


def _if_suited(
    suits: Callable[[Statistics, str], bool],
    compute: Callable[..., Iterable[ScoreResult]],
    statistics: Statistics,
    target: str,
) -> Iterable[ScoreResult]:
    """Return the results of a score for a target that it suits, otherwise none."""
    return compute(statistics, target) if suits(statistics, target) else ()


def info_of(name: str, per: Per, **fields: Any) -> ScoreInfo:
    """Return the ScoreInfo of a score; ``fields`` are its other fields."""
    return ScoreInfo(
        name=name, level="unit" if per == "unit" else "layer", needs_target=per != "layer", **fields
    )


def summary(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a function's docstring, on one line.

    >>> summary(summary)
    "Return the first paragraph of a function's docstring, on one line."
    """
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())[:1000]


_SCORES: dict[str, Score] = {}


def score(
    name: str,
    *needs: Need,
    per: Per = "layer",
    default: bool = True,
    kinds: Iterable[str] = (),
    suits: Callable[[Statistics, str], bool] | None = None,
    beside: Iterable[ScoreInfo] = (),
    judged: Judge | None = None,
    measure: Literal["f1", "accuracy"] = "f1",
    precision: Callable[[Statistics], tuple[np.ndarray, np.ndarray]] | None = None,
    **fields: Any,
) -> Callable[[Callable[..., Iterable[ScoreResult]]], Callable[..., Iterable[ScoreResult]]]:
    """Register a function of statistics as a score; for plain functions see ``intus.scores.register``.

    The first paragraph of the function's docstring is the description of what the score measures.

    Args:
        name: The name of the score.
        needs: The statistics that it reads.
        per: How the function is called.
        default: Whether servers compute the score by default.
        kinds: The kinds of record that it applies to, all if empty.
        suits: Returns whether it is meant for a target's labels; None for all.
        beside: The ScoreInfo of each further row that it returns under another name.
        judged: Returns the counts that a classifier's score is computed from; None for other scores.
        measure: Which score of these counts it is.
        precision: Returns strengths and half-widths of intervals; see ``Score``.
        fields: Other fields of ScoreInfo.
    """

    def add(compute: Callable[..., Iterable[ScoreResult]]) -> Callable[..., Iterable[ScoreResult]]:
        info = info_of(name, per, **{"about": summary(compute), **fields})
        kinds_, needs_ = frozenset(kinds), frozenset(needs)
        facts = (name, compute, needs_, per, default, kinds_, suits, info, tuple(beside))
        add_score(Score(*facts, judged, measure, precision))
        return compute

    return add


def add_score(new: Score) -> Score:
    """Register a score; raises InputError if its name is taken."""
    if new.name in _SCORES:
        raise InputError(f"A score named {new.name!r} is registered already. Choose another name.")
    _SCORES[new.name] = new
    return new
