"""Scores of two data points: of a layer with the previous layer or epoch, and of updates with parameters."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from ...core.notes import joined, remarks, within
from ...scores import ScoreResult
from ...scores.comparisons.similarity import Sketch, alignment, why_unaligned
from ..data_point import DataPoint, Key
from ..schedule import Moment

#: The note on scores of a data point whose rows are positions, as the lengths of its batches differ.
OF_POSITIONS = "each position is a row"
MOST_SKETCHES = 400  #: most sketches in memory, a quarter of a megabyte each
_K = TypeVar("_K")
_T = TypeVar("_T")
_At = tuple[Key, Moment]


class _Latest(Generic[_K, _T]):
    """A dict of bounded size that drops the entries set longest ago."""

    def __init__(self, most: int) -> None:
        self._most, self._kept = most, OrderedDict[_K, _T]()

    def set(self, key: _K, value: _T) -> None:
        self._kept[key] = value
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def get(self, key: _K) -> _T | None:
        return self._kept.get(key)

    def forget(self, unwanted: Callable[[_K], bool]) -> None:
        for key in [key for key in self._kept if unwanted(key)]:
            del self._kept[key]


class _Known(NamedTuple):
    """The part of a data point that is kept to compare others with it: not its arrays.

    Attributes:
        point: The data point, without its records.
        doubt: What reduces the trust in all scores of it; "" for nothing.
        sketch: Its sketch.
        unnamed: The number of its rows if they have no ids, else None. Such rows are those of another layer
            only if that one's have no ids either, and are as many.
        of_positions: Whether its rows are positions of items, and not items.
    """

    point: DataPoint
    doubt: str
    sketch: Sketch
    unnamed: int | None
    of_positions: bool


class _Norm(NamedTuple):
    """The norm of a data point, the point without its records, and what reduces the trust in its scores."""

    point: DataPoint
    doubt: str
    result: ScoreResult


class Later(NamedTuple):
    """The comparison of a data point that was scored before with this one.

    Attributes:
        point: That data point, without its arrays: the layer in the next epoch, or a parameter's updates.
        doubt: What reduces the trust in all scores of it; "" for nothing.
        result: The score.
    """

    point: DataPoint
    doubt: str
    result: ScoreResult


class Relations:
    """Computes the scores that relate a data point to others.

    ``cka_layer`` compares a layer with the layer before it in the same epoch, in the network's order; all
    layers have the same rows, or are not compared. ``cka_epoch`` compares a layer with itself in the epoch
    before, whichever is scored first. It needs item ids, since shuffled rows without ids differ between
    epochs. ``update_ratio`` compares a parameter's updates with the parameter, whichever is scored first, and
    is a score of the updates. Data points scored before a
    restart, or long ago, are not compared.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._sketches = _Latest[_At, _Known](MOST_SKETCHES)
        self._next = _Latest[_At, _At](MOST_SKETCHES)  # the epoch after one
        self._norms = _Latest[_At, _Norm](10_000)
        self._before = _Latest[tuple[str, ...], _Known](MOST_SKETCHES // 4)  # by run, kind and mode

    def of(
        self, point: DataPoint, sketch: Sketch | None, results: list[ScoreResult]
    ) -> tuple[list[ScoreResult], Later | None]:
        """Return the related scores of a data point, given its sketch and its other results.

        If its next epoch, or a parameter's updates, were scored before it, their comparison with it is
        returned too.
        """
        if point.epoch is None:
            return [], None
        if point.key.kind in ("parameter", "update"):
            return self._ratio(point, results)
        if sketch is None or point.key.kind != "output":
            return [], None
        unnamed = point.rows if any(record.items is None for record in point.records) else None
        of_positions = any(not result.target and OF_POSITIONS in remarks(result.note) for result in results)
        known = _Known(replace(point, records=()), point.doubt, sketch, unnamed, of_positions)
        own = list(self._to_layer(known))
        if unnamed is not None:
            return own, None
        before, later = self._to_epoch(known)
        return [*own, *before], later

    def forget(self, run: str, model: str | None = None) -> None:
        """Delete what is known of a run, or of one model of it."""

        def of_run(key: Key) -> bool:
            return key.run == run and model in (None, key.model)

        self._sketches.forget(lambda at: of_run(at[0]))
        self._next.forget(lambda at: of_run(at[0]))
        self._norms.forget(lambda at: of_run(at[0]))
        self._before.forget(lambda source: source[0] == run and model in (None, source[1]))

    def _to_layer(self, known: _Known) -> Iterator[ScoreResult]:
        source, key = _source(known.point.key), known.point.key
        before = self._before.get(source)
        self._before.set(source, known)
        if before is None or before.unnamed != known.unnamed:
            return
        if _moment(before.point) == _moment(known.point) and before.point.key != key:
            note = joined(f"with {within(before.point.key.address)}", _positions(known))
            yield _aligned("cka_layer", known.sketch, before.sketch, self._seed, note)

    def _to_epoch(self, known: _Known) -> tuple[list[ScoreResult], Later | None]:
        """Return the comparison with the epoch before, and that of the next epoch with this one."""
        point = known.point
        here = point.key, _moment(point)
        self._sketches.set(here, known)
        own, before = [], None
        if point.previous is not None:
            at = point.key, Moment(point.attempt, *point.previous)
            self._next.set(at, here)
            before = self._sketches.get(at)
        if before is not None:
            own.append(self._compared(known, before))
        following = self._next.get(here)
        after = None if following is None else self._sketches.get(following)
        if after is None:
            return own, None
        return own, Later(after.point, after.doubt, self._compared(after, known))

    def _compared(self, known: _Known, before: _Known) -> ScoreResult:
        note = f"with epoch {before.point.epoch:g}"
        if known.of_positions != before.of_positions:
            note += ": the rows of one are items, of the other positions"
            return ScoreResult("cka_epoch", math.nan, note=note)
        note = joined(note, _positions(known))
        return _aligned("cka_epoch", known.sketch, before.sketch, self._seed, note)

    def _ratio(self, point: DataPoint, results: list[ScoreResult]) -> tuple[list[ScoreResult], Later | None]:
        """Return the ratio of a parameter's updates, or as that of the updates if they were scored before."""
        norm = next((result for result in results if result.score == "norm"), None)
        if norm is None:
            return [], None
        key, moment = point.key, _moment(point)
        self._norms.set((key, moment), _Norm(replace(point, records=()), point.doubt, norm))
        update, parameter = (
            self._norms.get((key._replace(kind=kind), moment)) for kind in ("update", "parameter")
        )
        if update is None or parameter is None:
            return [], None
        size, of = parameter.result.value, update.result
        note = "" if size > 0 else "all weights are 0"
        ratio = ScoreResult("update_ratio", of.value / size if size > 0 else math.nan, n=of.n, note=note)
        if key.kind == "update":
            return [ratio], None
        return [], Later(update.point, update.doubt, ratio)


def _moment(point: DataPoint) -> Moment:
    return point.place.moment


def _positions(known: _Known) -> str:
    return OF_POSITIONS * known.of_positions


def _source(key: Key) -> tuple[str, ...]:
    """Return the fields that all layers of one pass have in common."""
    return key.run, key.model, key.kind, key.mode


def _aligned(name: str, sketch: Sketch, other: Sketch, seed: int, note: str) -> ScoreResult:
    value, low, high, base, n = alignment(sketch, other, seed)
    if math.isnan(value):
        note = f"{note}: {why_unaligned(n)}"
    return ScoreResult(name, value, low=low, high=high, baseline=base, n=n, note=note)
