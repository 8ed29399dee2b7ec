"""Scores of two data points: of a layer with the previous layer or epoch, and of updates with parameters."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from ...scores import ScoreResult
from ...scores.comparisons.similarity import Sketch, alignment
from ..data_point import DataPoint, Key

MOST_SKETCHES = 400  #: most sketches in memory, a quarter of a megabyte each
_T = TypeVar("_T")


class _Latest(Generic[_T]):
    """A dict of bounded size that drops the entries set longest ago."""

    def __init__(self, most: int) -> None:
        self._most, self._kept = most, OrderedDict[Key, tuple[float, _T]]()

    def swap(self, key: Key, epoch: float, value: _T) -> tuple[float, _T] | None:
        """Set the value of an epoch, unless a later one is set; return that of an earlier epoch, if any."""
        before = self._kept.get(key)
        if before is None or before[0] <= epoch:
            self._kept[key] = (epoch, value)
            self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return before if before is not None and before[0] < epoch else None

    def get(self, key: Key) -> tuple[float, _T] | None:
        """Return the latest epoch and its value."""
        return self._kept.get(key)


class Relations:
    """Computes the scores that relate a data point to earlier ones.

    ``cka_layer`` compares a layer with the layer scored before it in the same epoch, in the network's order;
    all layers have the same rows. ``cka_epoch`` compares a layer with itself in the previous epoch. It needs
    item ids, since shuffled rows without ids differ between epochs. ``update_ratio`` compares a parameter's
    updates with the parameter. Data points scored before a restart, or long ago, are not compared.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._sketches = _Latest[Sketch](MOST_SKETCHES)
        self._norms = _Latest[float](10_000)
        self._before: tuple[Key, float, Sketch] | None = None

    def of(self, point: DataPoint, sketch: Sketch | None, results: list[ScoreResult]) -> list[ScoreResult]:
        """Return the related scores of a data point, given its sketch and its other results."""
        epoch = point.epoch
        if epoch is None:
            return []
        if point.key.kind in ("parameter", "update"):
            return list(self._ratio(point.key, epoch, results))
        if sketch is None or point.key.kind != "output":
            return []
        return [*self._to_layer(point.key, epoch, sketch), *self._to_epoch(point, epoch, sketch)]

    def _to_layer(self, key: Key, epoch: float, sketch: Sketch) -> Iterator[ScoreResult]:
        before, self._before = self._before, (key, epoch, sketch)
        if (
            before is not None
            and _source(before[0]) == _source(key)
            and before[1] == epoch
            and before[0] != key
        ):
            yield _aligned("cka_layer", sketch, before[2], self._seed, f"with {before[0].address}")

    def _to_epoch(self, point: DataPoint, epoch: float, sketch: Sketch) -> Iterator[ScoreResult]:
        if any(record.items is None for record in point.records):
            return
        before = self._sketches.swap(point.key, epoch, sketch)
        if before is not None:
            yield _aligned("cka_epoch", sketch, before[1], self._seed, f"with epoch {before[0]:g}")

    def _ratio(self, key: Key, epoch: float, results: list[ScoreResult]) -> Iterator[ScoreResult]:
        norm = next((result for result in results if result.score == "norm"), None)
        if norm is None:
            return
        self._norms.swap(key, epoch, norm.value)
        norms = [self._norms.get(key._replace(kind=kind)) for kind in ("update", "parameter")]
        if all(one is not None and one[0] == epoch for one in norms):
            update, parameter = (one[1] for one in norms if one is not None)
            value = update / parameter if parameter > 0 else math.nan
            note = "" if parameter > 0 else "all weights are 0"
            yield ScoreResult("update_ratio", value, n=norm.n, note=note)


def _source(key: Key) -> tuple[str, ...]:
    """Return the fields that all layers of one pass have in common."""
    return key.run, key.model, key.kind, key.mode


def _aligned(name: str, sketch: Sketch, other: Sketch, seed: int, note: str) -> ScoreResult:
    value, low, high, base, n = alignment(sketch, other, seed)
    return ScoreResult(name, value, low=low, high=high, baseline=base, n=n, note=note)
