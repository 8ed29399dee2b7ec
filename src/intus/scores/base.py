"""What a score is, what it reads out, and the registry of scores by name.

A score is a pure function of statistics: nothing here sees a tensor twice, so the same score serves a
live training run, a file and a million symbols.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from ..core.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from .statistics.statistics import Statistics

Need = Literal["tally", "moments", "whole", "classes", "values", "pairs", "sample", "steps"]
ENTRY_POINTS = "intus.scores"
NAN = float("nan")
_log = logging.getLogger(__name__)


class ScoreResult(NamedTuple):
    """One row of Results, less who and when: ``unit`` -1 means the whole layer, ``low`` and ``high``
    bound a 95 % interval, ``baseline`` is what the score gives without knowledge, ``n`` counts rows."""

    score: str
    value: float
    target: str = ""
    unit: int = -1
    low: float = NAN
    high: float = NAN
    baseline: float = NAN
    n: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """A named pure function from statistics to readings.

    ``needs`` are the statistics it reads, so that nothing else is accumulated. ``per`` says how it is
    called: ``"layer"``: ``compute(statistics)``; ``"target"``: ``compute(statistics, target)`` once for
    every target; ``"unit"``: ``compute(statistics)`` once, for every unit and target. ``default`` is whether
    servers read it unasked; ``kinds`` are the kinds of record that it means something for, all if empty.
    """

    name: str
    compute: Callable[..., Iterable[ScoreResult]]
    needs: frozenset[Need]
    per: Literal["layer", "target", "unit"] = "layer"
    default: bool = True
    kinds: frozenset[str] = frozenset()

    def results(self, statistics: Statistics) -> list[ScoreResult]:
        """Everything this score has to say."""
        with np.errstate(all="ignore"):  # what overflows is shown as infinite, not warned of
            if self.per == "target":
                return [r for target in statistics.targets for r in self.compute(statistics, target)]
            return list(self.compute(statistics))


_SCORES: dict[str, Score] = {}


def score(
    name: str,
    *needs: Need,
    per: Literal["layer", "target", "unit"] = "layer",
    default: bool = True,
    kinds: Iterable[str] = (),
) -> Callable[[Callable[..., Iterable[ScoreResult]]], Callable[..., Iterable[ScoreResult]]]:
    """Register a function of statistics as a score; see ``intus.scores.register`` for plain functions."""

    def add(compute: Callable[..., Iterable[ScoreResult]]) -> Callable[..., Iterable[ScoreResult]]:
        add_score(Score(name, compute, frozenset(needs), per, default, frozenset(kinds)))
        return compute

    return add


def add_score(new: Score) -> Score:
    """Put a score into the registry; a name can be taken once only."""
    if new.name in _SCORES:
        raise InputError(f"A score named {new.name!r} is registered already; choose another name.")
    _SCORES[new.name] = new
    return new


def names() -> list[str]:
    """Names of all registered scores, those of installed packages included."""
    _load_entry_points()
    return sorted(_SCORES)


def get(name: str) -> Score:
    """The score of that name; raises InputError with the nearest names."""
    if name not in _SCORES:
        _load_entry_points()
    if name not in _SCORES:
        raise InputError(f"There is no score {name!r}. {did_you_mean(name, _SCORES)}")
    return _SCORES[name]


@cache
def _load_entry_points() -> None:
    """Let other packages add theirs, once: an entry point of the group ``intus.scores`` names anything that
    ``register`` takes. One that fails to load is logged and left out, for the others must go on."""
    from .adapters import as_score

    for point in entry_points(group=ENTRY_POINTS):
        package = point.dist.name if point.dist else "another package"
        if point.name in _SCORES:
            _log.warning("The score %r of %s is left out: the name is taken.", point.name, package)
            continue
        try:
            _SCORES[point.name] = as_score(point.load(), point.name)
        except Exception as error:
            _log.warning("The score %r of %s could not be loaded: %s", point.name, package, error)
            _log.debug("Loading %r failed", point.value, exc_info=True)
