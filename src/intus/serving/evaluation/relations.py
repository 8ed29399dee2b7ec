"""Scores of two data points: of a layer with the previous layer or epoch, and of updates with parameters."""

from __future__ import annotations

import json
import math
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, Protocol, TypeVar

from ...core.doubt import WITH_EPOCH, WITH_LAYER
from ...core.notes import joined, remarks, within
from ...scores import ScoreResult
from ...scores.comparisons.similarity import Sketch, alignment, pack, unpack, why_unaligned
from ...storage.kept_sketch import KeptSketch
from ..data_point import DataPoint, Key
from ..schedule import Moment

#: The note on scores of a data point whose rows are positions, as the lengths of its batches differ.
OF_POSITIONS = "each position is a row"
#: Most sketches in memory, a quarter of a megabyte each; most places and norms.
MOST_SKETCHES, MOST_PLACES = 400, 10_000
#: The number of a layer that has no place among those of its epoch: its rows are those of another.
NO_PLACE = -1
_K = TypeVar("_K")
_T = TypeVar("_T")
_At = tuple[Key, Moment]
#: Run, model, kind and mode, which all layers of one pass have in common.
_Source = tuple[str, str, str, str]


class SketchStore(Protocol):
    """A store of layers for comparisons."""

    def sketches(
        self, run: str, model: str, training: float, at: tuple[str, float, int] | None = None
    ) -> list[KeptSketch]:
        """Return what is kept of a training without its contents, or the sample of a (layer, epoch, step)."""
        ...


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


class Known(NamedTuple):
    """The part of a layer that is kept to compare others with it: not its arrays.

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

    def kept(self) -> KeptSketch | None:
        """Return what the store keeps; None if no epoch can be compared with it after a restart."""
        point = self.point
        if self.unnamed is not None or not _is_kept(point) or point.epoch is None:
            return None
        facts = {"kind": point.kind, "doubt": self.doubt, "of_positions": self.of_positions}
        content = pack(self.sketch, json.dumps(facts))
        place = _layer(point.key), point.training, float(point.epoch), point.step
        return KeptSketch(*place, point.previous, point.number, content)


class _Norm(NamedTuple):
    """The norm of a data point, the point without its records, and what reduces the trust in its scores."""

    point: DataPoint
    doubt: str
    result: ScoreResult


class Later(NamedTuple):
    """The comparison of a data point that was scored before with this one.

    Attributes:
        point: That data point, without its arrays: the layer behind it, the layer in the next epoch, or a
            parameter's updates.
        doubt: What reduces the trust in all scores of it; "" for nothing.
        result: The score.
    """

    point: DataPoint
    doubt: str
    result: ScoreResult


class Related(NamedTuple):
    """The comparisons of a data point with others.

    Attributes:
        own: The scores that compare it with others.
        later: The scores of others, which were scored before it, that compare them with it.
        known: What later data points are compared with; None for nothing.
    """

    own: list[ScoreResult]
    later: list[Later]
    known: Known | None = None


class Relations:
    """Computes the scores that relate a data point to others.

    ``cka_layer`` compares a layer with the layer before it in the same epoch, in the network's order; all
    layers have the same rows, or are not compared. ``cka_epoch`` compares a layer with itself in the epoch
    before. It needs item ids, since shuffled rows without ids differ between epochs. ``update_ratio``
    compares a parameter's updates with the parameter, and is a score of the updates.

    Whichever of the two is scored first, and if one is scored again, as it has more rows, so is the
    comparison, of whichever it is a score. What the store keeps of layers with item ids is compared too: what
    was scored by a server before this one, or long ago.

    Args:
        seed: Seed of the baselines.
        store: Where layers are kept; None for memory alone.
    """

    def __init__(self, seed: int = 0, store: SketchStore | None = None) -> None:
        self._seed, self._store = seed, store
        self._known = _Latest[_At, Known](MOST_SKETCHES)
        self._next = _Latest[_At, _At](MOST_PLACES)  # the epoch after one
        self._layers = _Latest[tuple[_Source, Moment], list[tuple[int, Key]]](MOST_SKETCHES)  # in order
        self._compared = _Latest[_At, str](MOST_PLACES)  # the layers that have a cka_layer, with which
        self._norms = _Latest[_At, _Norm](MOST_PLACES)
        self._trainings: dict[tuple[str, str], float] = {}  # of which is read what the store keeps

    def of(
        self,
        point: DataPoint,
        sketch: Sketch | None,
        results: list[ScoreResult],
        unscored: Moment | None = None,
    ) -> Related:
        """Return what follows from a data point, its sketch, its other results, and others.

        Args:
            point: The data point.
            sketch: Its sketch; None if it has none.
            results: Its other results.
            unscored: The earliest epoch of its run that is not scored in full; None if that is not known.
        """
        if point.epoch is None:
            return Related([], [])
        if point.key.kind in ("parameter", "update"):
            return self._ratio(point, results)
        if sketch is None or point.key.kind != "output":
            return Related([], [])
        unnamed = point.rows if any(record.items is None for record in point.records) else None
        of_positions = any(not result.target and OF_POSITIONS in remarks(result.note) for result in results)
        known = Known(replace(point, records=()), point.doubt, sketch, unnamed, of_positions)
        self._read(point)
        self._known.set(_at(known), known)
        of_layers, of_epochs = self._with_layers(known), self._with_epochs(known, unscored)
        return Related(of_layers.own + of_epochs.own, of_layers.later + of_epochs.later, known)

    def of_twin(self, point: DataPoint, known: Known, unscored: Moment | None = None) -> Related:
        """Return what follows from the epochs of a layer that has the same rows as another in this one."""
        known = known._replace(point=replace(point, records=(), number=NO_PLACE))
        self._known.set(_at(known), known)
        return self._with_epochs(known, unscored)._replace(known=known)

    def forget(self, run: str, model: str | None = None) -> None:
        """Delete what is known of a run, or of one model of it."""

        def of_run(of: Sequence[str | int]) -> bool:
            return of[0] == run and model in (None, of[1])

        for each in (self._known, self._next, self._layers, self._compared, self._norms):
            each.forget(lambda at: of_run(at[0]))
        self._trainings = {of: began for of, began in self._trainings.items() if not of_run(of)}

    # -- layers ----------------------------------------------------------------------------------------

    def _with_layers(self, known: Known) -> Related:
        """Return the comparison with the layer before, and that of the layer behind with this one."""
        key, moment = _at(known)
        layers = self._place(key, moment, known.point.number)
        at = [layer for _, layer in layers].index(key)
        before, behind = (
            self._find((layers[near][1], moment), known.point.training) if 0 <= near < len(layers) else None
            for near in (at - 1, at + 1)
        )
        own = self._to_layer(known, before)
        other = None if behind is None else self._to_layer(behind, known)
        later = [] if behind is None or other is None else [Later(behind.point, behind.doubt, other)]
        return Related([] if own is None else [own], later)

    def _place(self, key: Key, moment: Moment, number: int) -> list[tuple[int, Key]]:
        """Return the layers of an epoch that are known, in order; equal numbers are in the order of coming.

        A layer that was not known may come between two that were compared, which are then compared with it.
        """
        source = _source(key), moment
        layers = self._layers.get(source) or []
        if (number, key) not in layers:
            layers = [each for each in layers if each[1] != key]
            insort(layers, (number, key), key=lambda each: each[0])
        self._layers.set(source, layers)
        return layers

    def _to_layer(self, known: Known, before: Known | None) -> ScoreResult | None:
        """Return the comparison of a layer with the one before it; without a value if it had one before."""
        at = _at(known)
        if before is not None and before.unnamed == known.unnamed:
            self._compared.set(at, before.point.key.address)
            note = joined(f"with {within(before.point.key.address)}", _positions(known))
            return _aligned(WITH_LAYER, known.sketch, before.sketch, self._seed, note)
        earlier = self._compared.get(at)
        if earlier is None:
            return None
        note = f"with {within(earlier)}, before more rows came: the layer before it has other rows"
        return ScoreResult(WITH_LAYER, math.nan, note=note)

    # -- epochs ----------------------------------------------------------------------------------------

    def _with_epochs(self, known: Known, unscored: Moment | None) -> Related:
        """Return the comparison with the epoch before, and that of the next epoch with this one."""
        own, later, here, point = list[ScoreResult](), list[Later](), _at(known), known.point
        if point.previous is not None:
            at = point.key, Moment(point.attempt, *point.previous)
            self._next.set(at, here)
            before = None if known.unnamed is not None else self._find(at, point.training)
            # an earlier epoch that is scored in full and not kept will not come any more
            is_gone = before is None and unscored is not None and at[1] < unscored
            if before is not None:
                own.append(self._to_epoch(known, before))
            elif is_gone and known.unnamed is None:
                note = f"with epoch {at[1].epoch:g}: no rows of it are kept"
                own.append(ScoreResult(WITH_EPOCH, math.nan, note=note))
        following = self._next.get(here)
        after = None if following is None else self._find(following, point.training)
        if after is not None and after.unnamed is None:
            later.append(Later(after.point, after.doubt, self._to_epoch(after, known)))
        return Related(own, later)

    def _to_epoch(self, known: Known, before: Known) -> ScoreResult:
        note = f"with epoch {before.point.epoch:g}"
        if before.unnamed is not None:
            return ScoreResult(WITH_EPOCH, math.nan, note=f"{note}: its rows have no item ids")
        if known.of_positions != before.of_positions:
            note += ": the rows of one are items, of the other positions"
            return ScoreResult(WITH_EPOCH, math.nan, note=note)
        note = joined(note, _positions(known))
        return _aligned(WITH_EPOCH, known.sketch, before.sketch, self._seed, note)

    # -- what the store keeps --------------------------------------------------------------------------

    def _read(self, point: DataPoint) -> None:
        """Read the order of the layers and epochs that the store keeps, if it was not read."""
        of_model = point.key.run, point.key.model
        if self._store is None or self._trainings.get(of_model) == point.training or not _is_kept(point):
            return
        for each in self._store.sketches(*of_model, point.training):
            key, moment = _key(*of_model, each.layer), Moment(point.attempt, each.epoch, each.step)
            if each.number != NO_PLACE:
                self._place(key, moment, each.number)
            if each.previous is not None:
                self._next.set((key, Moment(point.attempt, *each.previous)), (key, moment))
        self._trainings[of_model] = point.training

    def _find(self, at: _At, training: float) -> Known | None:
        """Return what is known of a layer in an epoch, in memory or in the store."""
        key, moment = at
        found = self._known.get(at)
        if found is not None or self._store is None or not math.isfinite(training):
            return found
        place = _layer(key), moment.epoch, moment.step
        for each in self._store.sketches(key.run, key.model, training, place):
            found = _unpacked(key, moment, each)
            self._known.set(at, found)
        return found

    # -- updates ---------------------------------------------------------------------------------------

    def _ratio(self, point: DataPoint, results: list[ScoreResult]) -> Related:
        """Return the ratio of a parameter's updates, or as that of the updates if they were scored before."""
        norm = next((result for result in results if result.score == "norm"), None)
        if norm is None:
            return Related([], [])
        key, moment = point.key, _moment(point)
        self._norms.set((key, moment), _Norm(replace(point, records=()), point.doubt, norm))
        update, parameter = (
            self._norms.get((key._replace(kind=kind), moment)) for kind in ("update", "parameter")
        )
        if update is None or parameter is None:
            return Related([], [])
        size, of = parameter.result.value, update.result
        note = "" if size > 0 else "all weights are 0"
        ratio = ScoreResult("update_ratio", of.value / size if size > 0 else math.nan, n=of.n, note=note)
        if key.kind == "update":
            return Related([ratio], [])
        return Related([], [Later(update.point, update.doubt, ratio)])


def _moment(point: DataPoint) -> Moment:
    return point.place.moment


def _positions(known: Known) -> str:
    return OF_POSITIONS * known.of_positions


def _at(known: Known) -> _At:
    return known.point.key, _moment(known.point)


def _source(key: Key) -> _Source:
    return key.run, key.model, key.kind, key.mode


def _is_kept(point: DataPoint) -> bool:
    """Return whether the training of a data point is known, so that another of that name is told apart."""
    return math.isfinite(point.training)


def _layer(key: Key) -> str:
    """Return the text that names a layer with its kind and mode in a run.

    >>> _key("r", "m", _layer(Key("r", "m", "fc1", "output", 0, "train")))
    Key(run='r', model='m', address='fc1', kind='output', output=0, mode='train')
    """
    return json.dumps(key[2:], ensure_ascii=False)


def _key(run: str, model: str, layer: str) -> Key:
    return Key(run, model, *json.loads(layer))


def _unpacked(key: Key, moment: Moment, kept: KeptSketch) -> Known:
    """Return what is known of a layer that the store keeps."""
    sketch, text = unpack(kept.content)
    facts = json.loads(text)
    point = DataPoint(
        key,
        facts["kind"],
        moment.epoch,
        moment.step,
        (),
        attempt=moment.attempt,
        previous=kept.previous,
        training=kept.training,
        number=kept.number,
    )
    return Known(point, facts["doubt"], sketch, None, facts["of_positions"])


def _aligned(name: str, sketch: Sketch, other: Sketch, seed: int, note: str) -> ScoreResult:
    value, low, high, base, n = alignment(sketch, other, seed)
    note = joined(note, *dict.fromkeys([sketch.projected, other.projected]))
    if math.isnan(value):
        note = f"{note}: {why_unaligned(sketch, other)}"
    return ScoreResult(name, value, low=low, high=high, baseline=base, n=n, note=note)
