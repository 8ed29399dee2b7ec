"""Statistics of a layer that were made where the model runs: how they are packed, and read again.

What is sent is the sums that scores need of all rows, and some rows, sketched to at most PROJECTED features.
They merge as the statistics of a server do, so that several processes may each send those of their own rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np

from ...core.errors import InputError
from ...core.projection import PROJECTED, SUMMARY
from ...core.record import LayerStatistics, Record
from ...core.sketch import UNITS
from ..base import Need
from .kept import WHOLE, Kept, kept_rows, share_of
from .labels import CODE, MISSING, MOST, Classes, numbers
from .moments import Gram, Moments
from .projection import Projection
from .row_statistics import ROW_SCALARS, RowStatistics
from .split import BUCKETS, GROUPS, Places, places
from .statistics import Statistics

#: What scores may need of rows, and can be computed from sums and some of the rows.
SENT: frozenset[Need] = frozenset({"tally", "moments", "whole", "classes", "values", "sample", "rows"})
#: Bytes of one kept row beside its behaviours: its item, position, cluster and bucket.
_PLACE = 24
_MOST_ROWS, _MOST_FEATURES = 1 << 24, 1 << 40


class Sums(Protocol):
    """The sums of a tensor's rows; see ``backends.row_sums.RowSums``."""

    features: int
    sketch: str
    shift: np.ndarray
    summary: np.ndarray
    alive: np.ndarray
    kept: np.ndarray
    products: Any
    classes: Any
    units: np.ndarray
    packed: Any


class KnownRows:
    """Rows whose items and labels are known before their behaviours, as those of a probe set.

    Args:
        items: The id of each row's item, int64 of shape (rows,).
        labels: For each target, one label per row, as an array of shape (rows,).
        groups: The id of each row's group of items, int64 of shape (rows,), or None.
        types: The id of each row's type, int64 of shape (rows,), or None.
        seed: The seed of the split.

    Attributes:
        kept: The numbers of the rows that are kept.
        masks: The rows whose products are summed: the trained ones, and for each set of them that targets
            label, these; empty if all rows are kept.
        codes: The class of each row for each target, shape (rows, targets).
    """

    def __init__(
        self,
        items: np.ndarray,
        labels: Mapping[str, np.ndarray],
        groups: np.ndarray | None = None,
        types: np.ndarray | None = None,
        seed: int = 0,
    ) -> None:
        self.seed, self.targets = seed, tuple(labels)
        self._grouped, self._typed = groups is not None, types is not None
        self._where = places(items, seed, groups=groups, types=types)
        self._classes = [Classes() for _ in labels]
        columns = [own.encode(column) for own, column in zip(self._classes, labels.values(), strict=True)]
        self.codes = np.array(columns, CODE).reshape(len(columns), len(items)).T
        self._values = [numbers(column) for column in labels.values()]
        of_classes = [not own.are_measured for own in self._classes]
        self.kept = kept_rows(self._where, self.codes[:, of_classes])
        self._share = share_of(sum(of_classes))
        self.masks, self._gram_of = self._labelled() if len(items) > WHOLE else ((), [])

    @property
    def groups(self) -> tuple[np.ndarray, int]:
        """The group of each row for the jackknife, and the number of groups."""
        return self._where.group, GROUPS

    @cached_property
    def trained(self) -> tuple[tuple[np.ndarray, int], ...]:
        """For each target, the code of each trained row, MISSING for others, and the number of classes."""
        columns = (np.where(self._where.held, MISSING, column) for column in self.codes.T)
        return tuple((column, len(own)) for column, own in zip(columns, self._classes, strict=True))

    @cached_property
    def classes(self) -> tuple[tuple[np.ndarray, int], ...]:
        """For each target, the code of each row and the number of classes, if sums are needed."""
        counted = zip(self.codes.T, self._classes, strict=True) if self.masks else ()
        return tuple((column, len(own)) for column, own in counted)

    def nbytes(self, width: int) -> int:
        """Return the bytes of the statistics of rows that are kept with so many features, at most."""
        row = 2 * width + _PLACE + (CODE().itemsize + 8) * len(self.targets)
        classes = sum(len(own) for own in self._classes) if self.masks else 0
        sums = len(self.masks) * 2 * width * (width + 1) + 4 * width * classes
        return len(self.kept) * row + sums + 16 * width + 8 * GROUPS * 12

    def _labelled(self) -> tuple[tuple[np.ndarray, ...], list[int]]:
        """Return the masks, and the number of each target's."""
        trained = ~self._where.held
        found = {trained.tobytes(): trained}
        of_targets = [trained & (column != MISSING) for column in self.codes.T]
        for mask in of_targets:
            found.setdefault(mask.tobytes(), mask)
        order = list(found)
        return tuple(found.values()), [order.index(mask.tobytes()) for mask in of_targets]

    def packed(
        self, sums: Sums, *, positions: bool = False, rank: int = 0, ranks: int = 1
    ) -> tuple[np.ndarray, np.ndarray, LayerStatistics]:
        """Return the kept rows in float16, the ids of their items, and the statistics.

        Args:
            sums: The sums of a tensor of these rows.
            positions: Whether the rows are positions of items.
            rank: The number of the process among those that have parts of the rows, from 0.
            ranks: The number of these processes.
        """
        rows, offset, scale, ok, tally = _packed_rows(sums, self)
        items, of_rows = self._of_kept if ok.all() else self._of(self.kept[ok])
        arrays = of_rows | {
            "shift": sums.shift.astype(np.float64),
            "offset": offset,
            "scale": scale,
            "tally.counts": tally.counts,
            "tally.means": tally.means,
            "tally.m2s": tally.m2s,
            "tally.ends": np.array([tally.low, tally.high]),
            "alive": np.packbits(sums.alive),
        }
        for number, part in enumerate(sums.products):
            arrays[f"total.{number}"] = part.total
            upper = part.gram if part.gram.ndim == 1 else part.gram.reshape(-1)[_upper(len(part.total))]
            arrays[f"gram.{number}"] = upper.astype(np.float32, copy=False)
        for number, each in enumerate(sums.classes):
            arrays[f"counts.{number}"] = each.counts
            arrays[f"totals.{number}"] = each.totals.astype(np.float32)
        facts = {
            "seed": self.seed,
            "positions": positions,
            "rank": rank,
            "ranks": ranks,
            "features": sums.features,
            "sketch": sums.sketch,
            "units": sums.units.tolist(),
            "rows": len(self._where.group),
            "finite": tally.rows,
            "share": self._share,
            "nonfinite": tally.nonfinite,
            "products": [part.n for part in sums.products],
            "targets": [
                {
                    "name": name,
                    "labels": own.in_order(),
                    "overflowed": own.overflowed,
                    "gram": self._gram_of[number] if self._gram_of else 0,
                }
                for number, (name, own) in enumerate(zip(self.targets, self._classes, strict=True))
            ],
        }
        return rows, items, LayerStatistics(arrays, facts)

    @cached_property
    def _of_kept(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return self._of(self.kept)

    def _of(self, kept: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return what is known of kept rows: the ids of their items, and arrays to send."""
        where = self._where.take(kept)
        arrays = {
            "position": where.position.astype(np.int32),
            "codes": np.ascontiguousarray(self.codes[kept]),
        }
        if self._grouped:
            arrays["cluster"] = where.cluster
        if self._typed:
            arrays["bucket"] = where.bucket.astype(np.int16)
        for number, column in enumerate(self._values):
            if column is not None:
                arrays[f"values.{number}"] = column[kept]
        return where.item, arrays


def _packed_rows(
    sums: Sums, known: KnownRows
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, RowStatistics]:
    """Return the kept rows in float16, their offset and scale, which of them are finite, and the tally.

    A framework may have packed them on its device. If it did not, the same is computed here.
    """
    tally = RowStatistics(0)
    if sums.packed is not None:
        counts, means, m2s, ends, nonfinite = sums.packed.tally
        tally.counts, tally.means, tally.m2s, tally.nonfinite = counts, means, m2s, nonfinite
        tally.low, tally.high = ends.tolist()
        return sums.kept, sums.packed.offset, sums.packed.scale, sums.packed.finite, tally
    tally.absorb(sums.summary.astype(np.float64), known.groups[0])
    offset, scale = _grid_of(sums.kept, sums.shift)
    rows = sums.kept - (offset - sums.shift).astype(np.float32)  # in place below: they are many
    rows /= scale
    finite = sums.summary[known.kept, SUMMARY.index("nonfinite")] == 0
    return rows.astype(np.float16), offset, scale, finite, tally


def _grid_of(rows: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an offset and a power of two for each feature, so that float16 has digits to spare for rows.

    The offset is the mean, rounded to the size of what differs from it. Parts of the same rows therefore have
    the same offset, and are rounded to the same numbers, except in rare cases.

    Args:
        rows: The rows minus the shift, float32.
        shift: The shift, float64.
    """
    mean = rows.sum(axis=0) / max(len(rows), 1)  # not a product, for which a library wakes all its threads
    widest = np.maximum(rows.max(axis=0, initial=-np.inf) - mean, mean - rows.min(axis=0, initial=np.inf))
    spread = np.exp2(np.ceil(np.log2(np.maximum(widest.astype(np.float64), 1e-30))))
    offset = (np.round((mean + shift) / (2 * spread)) * 2 * spread).astype(np.float32)
    return offset, (spread / 2**13).astype(np.float32)


@lru_cache(maxsize=4)
def _upper(width: int) -> np.ndarray:
    """Return the places of the upper triangle in a flattened square matrix."""
    return np.flatnonzero(np.triu(np.ones((width, width), bool)))


class SentStatistics(Statistics):
    """The statistics of a layer, merged from those that one or several processes sent.

    Args:
        needs: The statistics that scores read; those not in SENT are empty.
        records: The records of one layer and epoch, each with statistics.

    Raises:
        InputError: If the statistics of the records cannot be put together.
    """

    def __init__(self, needs: Collection[Need], records: Sequence[Record]) -> None:
        parts = [(record, _read(record)) for record in records]
        first = parts[0][1]
        super().__init__(frozenset(needs) & SENT, raw=False, seed=first.seed, sample_bytes=0)
        width = records[0].array.shape[1]
        self.sketch, self._units = first.sketch, first.units
        self.rows = sum(part.rows for _, part in parts)
        self._start(width, first.names, first.features if self.sketch else None)
        self.projection = _Sketch(width, self.projected_from, len(first.units))
        self.tally = RowStatistics(first.features)
        self.kept = Kept(width)
        self._moments = Moments(width, first.names, whole=self.rows <= WHOLE)
        for record, part in parts:
            self._add_part(record, part)

    @property
    def by_class(self) -> bool:
        """True if rows were kept by class, or have single units beside their sketch."""
        return self.thinned or bool(self._units)

    @property
    def thinned(self) -> bool:
        """True if rows were kept by class, because there were many."""
        return not self.kept.complete

    @property
    def even(self) -> int:
        """The number of features without the single units."""
        return self.width - len(self._units)

    def drawn(self) -> tuple[Places, np.ndarray, np.ndarray, np.ndarray]:
        """Return a uniform sample of all rows, without the single units. The result is cached."""

        def draw() -> tuple[Places, np.ndarray, np.ndarray, np.ndarray]:
            where, x, codes, values = self.kept.rows()
            return where, x[:, : self.even], codes, values

        return self.once("drawn", draw)

    def rows_to_fit(self, target: str) -> tuple[Places, np.ndarray, np.ndarray]:
        """Return kept rows to fit and judge classifiers of a target on: places, behaviours and codes."""
        counts = self.moments.classes[target].counts
        key = "to fit", target
        return self.once(key, lambda: self.kept.rows_to_fit(self.targets.index(target), counts))

    def _add_part(self, record: Record, part: _Part) -> None:
        own = (self.seed, self.sketch, self._units, self.targets, self.whole, self.features)
        its = (part.seed, part.sketch, part.units, part.names, part.features, record.array.shape[1])
        if own != its:
            raise InputError(
                f"The statistics of {record.address!r} cannot be merged: their seeds, sketches, targets or "
                f"numbers of features differ ({own} and {its}). Give all processes the same probe set and "
                "options, and the same kind of device."
            )
        arrays = part.arrays
        x = record.array.astype(np.float32) * arrays["scale"] + arrays["offset"]
        items = record.items if record.items is not None else np.arange(len(x))
        position = arrays["position"].astype(np.int64)
        where = places(items, self.seed, groups=arrays.get("cluster"), position=position)
        if "bucket" in arrays:
            where = where._replace(bucket=arrays["bucket"].astype(np.int64))
        classes = [_classes(labels, overflowed) for labels, overflowed in part.labels]
        to_own = [self.classes[name].absorb(its) for name, its in zip(self.targets, classes, strict=True)]
        codes = np.empty((len(x), len(self.targets)), CODE)
        values = np.full((len(x), len(self.targets)), np.nan)
        for number, name in enumerate(self.targets):
            codes[:, number] = to_own[number][arrays["codes"][:, number]]
            if f"values.{number}" in arrays:
                values[:, number] = arrays[f"values.{number}"]
            else:
                self.not_numbers.add(name)
        self.kept.add(where, x, codes, values, part.rows, part.share)
        self._arrived += part.rows
        self._left_out += part.rows - part.finite
        self.tally.merge(part.tally())
        moments = Moments(self.features, self.targets, whole=self._moments.whole)
        counted = {
            name: codes[:, number]
            for number, name in enumerate(self.targets)
            if not self.classes[name].overflowed
        }
        if part.has_sums:
            part.fill(moments)
        else:
            moments.update(x, where.held, where.bucket, counted)
            to_own = [np.r_[np.arange(len(self.classes[name])), MISSING] for name in self.targets]
        self._moments.merge(moments, dict(zip(self.targets, to_own, strict=True)))


class _Sketch(Projection):
    """The projection of rows that were sketched before they were sent.

    Args:
        features: The number of features that were sent.
        before: The number of features of the layer; None if they were not sketched.
        units: How many of the features sent are single units.
    """

    def __init__(self, features: int, before: int | None, units: int) -> None:
        super().__init__(features, 0, before)
        self.width, self._units = features, units

    @property
    def added(self) -> float:
        """Return what the sketch adds to 1 / (participation ratio), of features without the single units."""
        return 1 / (self.width - self._units)

    @property
    def note(self) -> str:
        """A note for the reader of a score; "" if nothing was sketched."""
        if self.features <= self.width:
            return ""
        beside = f", and {self._units} of them kept" if self._units else ""
        return f"{self.features:,} features sketched to {self.width - self._units:,}{beside}"


class _Part:
    """The statistics of one record, once they are validated.

    Attributes:
        arrays: The arrays.
        seed: The seed of the split.
        features: The number of features of a row.
        sketch: How rows were sketched.
        units: The numbers of the single features beside the sketch.
        rows: The number of rows.
        finite: The number of rows without NaN and infinite values.
        share: The number of trained rows that were kept for each target.
        names: The names of the targets.
        labels: The labels of each target, and whether there were more.
    """

    def __init__(self, statistics: LayerStatistics) -> None:
        facts, self.arrays = statistics.facts, statistics.arrays
        self.seed, self.features, self.sketch = facts["seed"], facts["features"], facts["sketch"]
        self.units, self.share = tuple(facts["units"]), facts["share"]
        self.rows, self.finite, self._nonfinite = facts["rows"], facts["finite"], facts["nonfinite"]
        self._products, self._targets = facts["products"], facts["targets"]
        self.names = tuple(target["name"] for target in self._targets)
        self.labels = [(target["labels"], target["overflowed"]) for target in self._targets]

    @property
    def has_sums(self) -> bool:
        """True if some rows were not kept, so that sums of all rows were sent."""
        return bool(self._products)

    def tally(self) -> RowStatistics:
        """Return the summary statistics of all rows."""
        tally = RowStatistics(self.features)
        tally.seen, tally.nonfinite = self.rows, self._nonfinite
        tally.counts, tally.means, tally.m2s = (
            self.arrays[f"tally.{name}"] for name in ("counts", "means", "m2s")
        )
        tally.low, tally.high = map(float, self.arrays["tally.ends"])
        tally.alive = np.unpackbits(self.arrays["alive"], count=self.features).astype(bool)
        return tally

    def fill(self, moments: Moments) -> None:
        """Set moments to the sums that were sent."""
        moments.shift = self.arrays["shift"].copy()
        grams = [self._gram(number, n) for number, n in enumerate(self._products)]
        moments.train = grams[0]
        for number, target in enumerate(self._targets):
            moments.labelled[target["name"]] = grams[target["gram"]]
            own = moments.classes[target["name"]]
            own.add_sums(self.arrays[f"counts.{number}"], self.arrays[f"totals.{number}"])

    def _gram(self, number: int, n: int) -> Gram:
        total = self.arrays[f"total.{number}"]
        gram = np.zeros((len(total), len(total)))
        gram[np.triu_indices(len(total))] = self.arrays[f"gram.{number}"]
        gram += np.triu(gram, 1).T
        return Gram.of(n, total, gram)


def _classes(labels: list[Any], overflowed: bool) -> Classes:
    classes = Classes()
    classes.encode(np.array([*labels, None], dtype=object))
    classes.overflowed = overflowed
    return classes


def rank_of(record: Record) -> tuple[int, int, bool]:
    """Return which part of the rows a record has, of how many, and whether positions are its rows."""
    assert record.statistics is not None
    facts = record.statistics.facts
    return facts["rank"], facts["ranks"], facts["positions"]


def _read(record: Record) -> _Part:
    assert record.statistics is not None
    check_sent(record)
    return _Part(record.statistics)


def check_sent(record: Record) -> None:
    """Raise InputError unless the statistics of a record are complete and of the right types and shapes."""
    if record.statistics is None:
        return
    try:
        wanted = _shapes(record)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"The statistics of {record.address!r} are malformed: {type(error).__name__} {error}."
        ) from None
    for name, (kind, shape) in wanted.items():
        found = record.statistics.arrays.get(name)
        if found is None or found.dtype != kind or found.shape != shape:
            got = "none" if found is None else f"{found.dtype} of shape {found.shape}"
            raise InputError(
                f"The statistics of {record.address!r} must have an array {name!r} of {np.dtype(kind)} and "
                f"shape {shape}, got {got}."
            )


def _shapes(record: Record) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return the type and the shape of each array; KeyError, TypeError or ValueError for malformed facts."""
    assert record.statistics is not None
    facts, arrays = record.statistics.facts, record.statistics.arrays
    if record.array.ndim != 2 or record.array.dtype != np.float16 or record.batch_axis != 0:
        raise ValueError("the kept rows must be float16 of shape (rows, features)")
    if record.items is None:
        raise ValueError("the kept rows have no ids of items")
    (kept, width), features = record.array.shape, facts["features"]
    limits = {"features": _MOST_FEATURES, "rows": _MOST_ROWS, "finite": facts["rows"] + 1, "seed": 2**62}
    limits |= {"share": _MOST_ROWS, "rank": facts["ranks"], "ranks": _MOST_ROWS}
    for name, limit in limits.items():
        if type(facts[name]) is not int or not 0 <= facts[name] < limit:
            raise ValueError(f"{name} must be a whole number below {limit}, got {facts[name]!r}")
    if type(facts["positions"]) is not bool:
        raise ValueError(f"positions must be true or false, got {facts['positions']!r}")
    if facts["sketch"] not in ("", "sparse", "dense"):
        raise ValueError(f"sketch must be 'sparse', 'dense' or '', got {facts['sketch']!r}")
    units = facts["units"]
    if not all(type(unit) is int and 0 <= unit < features for unit in units) or len(units) > UNITS:
        raise ValueError(f"units must be at most {UNITS} numbers of features")
    if width != (PROJECTED + len(units) if facts["sketch"] else features):
        raise ValueError(f"rows of {features} features cannot have {width} features when they are sent")
    targets, products = facts["targets"], facts["products"]
    if type(facts["nonfinite"]) is not int or not all(type(n) is int and n >= 0 for n in products):
        raise ValueError("numbers of rows must be whole")
    if bool(products) != (facts["rows"] > WHOLE):
        raise ValueError(f"sums are needed of more than {WHOLE} rows, and of no fewer")
    shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
        "shift": (np.float64, (width,)),
        "offset": (np.float32, (width,)),
        "scale": (np.float32, (width,)),
        "position": (np.int32, (kept,)),
        "codes": (CODE, (kept, len(targets))),
        "tally.counts": (np.int64, (GROUPS,)),
        "tally.means": (np.float64, (GROUPS, len(ROW_SCALARS))),
        "tally.m2s": (np.float64, (GROUPS, len(ROW_SCALARS))),
        "tally.ends": (np.float64, (2,)),
        "alive": (np.uint8, (-(-features // 8),)),
    }
    optional = {"cluster": np.int64, "bucket": np.int16}
    shapes |= {name: (kind, (kept,)) for name, kind in optional.items() if name in arrays}
    for number in range(len(products)):
        shapes[f"total.{number}"] = np.float64, (width,)
        shapes[f"gram.{number}"] = np.float32, (width * (width + 1) // 2,)
    for number, target in enumerate(targets):
        labels = target["labels"]
        if not isinstance(labels, list) or len(labels) > MOST or type(target["overflowed"]) is not bool:
            raise ValueError(f"the labels of target {number} must be a list of at most {MOST}")
        if type(target["name"]) is not str or not all(type(x) in (bool, int, float, str) for x in labels):
            raise ValueError(f"target {number} must have a name, and labels")
        if len(set(labels)) != len(labels):
            raise ValueError(f"target {number} has a label twice")
        if products and target["gram"] not in range(len(products)):
            raise ValueError(f"target {number} has no product {target['gram']!r}")
        if f"values.{number}" in arrays:
            shapes[f"values.{number}"] = np.float64, (kept,)
        if products:
            shapes[f"counts.{number}"] = np.int64, (len(labels),)
            shapes[f"totals.{number}"] = np.float32, (len(labels), width)
        codes = arrays["codes"]
        of_target = codes[:, number] if codes.shape == (kept, len(targets)) else np.empty(0, CODE)
        if not (of_target.min(initial=MISSING) == MISSING and of_target.max(initial=MISSING) < len(labels)):
            raise ValueError(f"target {number} has codes without a label")
    if "bucket" in arrays and kept and not 0 <= arrays["bucket"].min() <= arrays["bucket"].max() < BUCKETS:
        raise ValueError(f"buckets must be below {BUCKETS}")
    return shapes
