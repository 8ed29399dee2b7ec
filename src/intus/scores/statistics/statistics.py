"""The statistics that scores are computed from: updated block by block and mergeable."""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np

from ...core.errors import InputError
from ...core.notes import joined
from ...core.projection import SUMMARY
from ..base import Need
from .labels import CODE, Classes, columns, numbers
from .magnitude import Magnitude
from .moments import Moments
from .moved import sources, sources_in, taken
from .pairs import Pairs
from .projection import Projection
from .row_statistics import RowStatistics, Steps
from .sample import Sample
from .split import Places, places
from .summed import StepSums

_BLOCK = 32 << 20  # bytes of one block in float64
_PLACE = 57  # bytes of the place of a row
WHOLE_ROWS, LEAST_WHOLE = 512, 64  #: rows that are kept with all features, and of very wide layers at least
_T = TypeVar("_T")


class Statistics:
    """Statistics of one layer's behaviours, of which only those in ``needs`` are computed.

    Args:
        needs: The statistics to compute; see ``scores.base.Need``.
        raw: Whether the sample stores all rows with their original features, NaN where they are not finite,
            as scores of units need it. Otherwise it stores the finite rows, projected to at most 1,024
            features.
        seed: Seed of the split, the sample and the projection.
        sample_bytes: Largest memory of the sample in bytes.
        null: The number of permutations that the p-values of scores of units are from; 0 for none.

    Attributes:
        features: The number of features of the rows, -1 before the first update.
        targets: The names of the targets.
        given: The names of the confounders.
        classes: The classes of each target.
        not_numbers: The targets with labels that are not numbers.
    """

    def __init__(
        self, needs: Collection[Need], *, raw: bool, seed: int, sample_bytes: int, null: int = 0
    ) -> None:
        self.needs, self.raw, self.seed, self.sample_bytes = frozenset(needs), raw, seed, sample_bytes
        self.null = null
        self.features = -1
        self.targets: tuple[str, ...] = ()
        self.given: tuple[str, ...] = ()
        self.classes: dict[str, Classes] = {}
        self.not_numbers: set[str] = set()
        self._arrived = 0
        self._left_out = 0
        self.magnitude = Magnitude()
        self._once: dict[Any, Any] = {}
        self._last: tuple[np.ndarray, Places] | None = None  # the labels of an update of one item

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what can be computed again."""
        return {**self.__dict__, "_once": {}}

    @property
    def width(self) -> int:
        """The number of features of the moments, after a projection if there is one."""
        return self.projection.width

    @property
    def _with_values(self) -> bool:
        """True if labels are read as numbers too."""
        return self.raw or "values" in self.needs

    @property
    def note(self) -> str:
        """A note for the reader of scores of whole rows: projected features and rows left out; "" if none."""
        return joined(self.projection.note, self._note_of_rows)

    @property
    def note_of_drawn(self) -> str:
        """Return the same for scores of rows of ``drawn``, which a sample for scores of units has in full."""
        return self.note_to_compare if self.raw else self.note

    @property
    def note_to_compare(self) -> str:
        """Return the same for scores of ``rows_to_compare``."""
        return joined(self.projected_to_compare, self._note_of_rows)

    @property
    def projected_to_compare(self) -> str:
        """Return a note that ``rows_to_compare`` are projected, as before they came; "" if they are not."""
        are_whole = self.projected_from is None and (self.raw or self._keeps_whole_rows)
        return "" if are_whole else self.projection.note

    @property
    def _note_of_rows(self) -> str:
        return f"{self._left_out} of {self._arrived} rows left out: NaN or infinite" * bool(self._left_out)

    @property
    def by_class(self) -> bool:
        """True if ``rows_to_fit`` has other rows or features than the sample."""
        return False

    @property
    def thinned(self) -> bool:
        """True if sums of all rows are known, and some rows of each class."""
        return False

    @property
    def even(self) -> int:
        """The number of the first features of the moments that have all features of the layer alike."""
        return self.width

    @property
    def whole(self) -> int:
        """The number of features of the layer, before any projection."""
        return self.projection.features

    @property
    def projected(self) -> bool:
        """True if the moments are those of projected features."""
        return self.width < self.whole

    def _start(self, features: int, targets: tuple[str, ...], projected_from: int | None) -> None:
        self.features, self.targets, self.projected_from = features, targets, projected_from
        self.classes = {target: Classes() for target in targets}
        self.projection = Projection(features, self.seed, projected_from)
        self.tally = RowStatistics(features)
        self.steps = Steps(features if "steps" in self.needs else 0)
        width = self.width if "moments" in self.needs else 0
        self._moments = Moments(width, targets, whole="whole" in self.needs)
        sizes = (features, len(targets), len(self.given)) if "pairs" in self.needs else (0, 0)
        self.pairs = Pairs(*sizes)
        kept = features if self.raw else self.width
        of_label = CODE().itemsize * ("classes" in self.needs) + 8 * self._with_values
        row = 4 * kept + of_label * len(targets) + _PLACE
        self.sample = Sample(max(1024, self.sample_bytes // row), kept)
        most = self.sample_bytes // max(4 * features, 1)
        self._whole_rows = Sample(min(WHOLE_ROWS, max(LEAST_WHOLE, most)), features)

    # -- feeding -------------------------------------------------------------------------------------

    def update(
        self,
        behaviours: Any,
        labels: Any = None,
        items: Any = None,
        projected_from: int | None = None,
        summary: np.ndarray | None = None,
        groups: Any = None,
        types: Any = None,
        given: Any = None,
    ) -> None:
        """Add rows; see ``Scorer.update`` for the arguments."""
        x = _matrix(behaviours)
        targets = columns(labels, len(x))
        confounders = columns(given, len(x))
        if self.features < 0:
            self.given = tuple(confounders)
            self._start(x.shape[1], tuple(targets), projected_from)
        self._check(x.shape[1], tuple(targets), projected_from)
        ids = self._items(items, len(x))
        classed = "classes" in self.needs
        codes = {name: self.classes[name].encode(column) for name, column in targets.items() if classed}
        values = self._numbers(targets if self._with_values else {}, len(x))
        held_fixed = _confounders(confounders, len(x)) if self.given else None
        where = places(
            ids, self.seed, groups=_ids("groups", groups, len(x)), types=_ids("types", types, len(x))
        )
        bank, moved_from = self._moved_from(values, where) if "pairs" in self.needs else (values, None)
        self._once.clear()
        if "tally" in self.needs and summary is not None:
            self.tally.absorb(summary.astype(np.float64), where.group)
        size = max(1, _BLOCK // (8 * max(x.shape[1], 1)))
        for start in range(0, len(x), size):
            part = slice(start, start + size)
            self._add(
                x[part],
                Places(*(column[part] for column in where)),
                {name: column[part] for name, column in codes.items()},
                values[part],
                None if moved_from is None else taken(bank, moved_from[part]),
                None if held_fixed is None else held_fixed[part],
            )

    def add_steps(self, sums: StepSums) -> None:
        """Add rows that are the arrays of steps, by their sums."""
        if self.features < 0:
            self._start(len(sums.total), (), None)
        self._check(len(sums.total), (), None)
        finite, norms = sums.finite, sums.summary[:, SUMMARY.index("norm")]
        group = places(self._items(None, len(finite)), self.seed).group
        self._once.clear()
        self._left_out += int((~finite).sum())
        self.tally.absorb(sums.summary, group)
        self.tally.alive |= sums.alive
        if "steps" in self.needs:
            self.steps.add(int(finite.sum()), sums.total, float(norms[finite] @ norms[finite]))

    def _add(
        self,
        x: np.ndarray,
        where: Places,
        codes: dict[str, np.ndarray],
        values: np.ndarray,
        moved: np.ndarray | None,
        given: np.ndarray | None,
    ) -> None:
        x = x.astype(np.result_type(x.dtype, np.float32), copy=False)
        finite = _finite_rows(x)
        self._left_out += len(x) - int(finite.sum())
        matrix = values
        self.magnitude.update(x)
        with np.errstate(over="ignore", invalid="ignore"):
            if "pairs" in self.needs:
                self.pairs.update(x, matrix, where.group, moved, given)
            self._describe(x, finite, where)
            if not self.needs & {"moments", "sample"}:
                return
            labels = _stacked(codes, len(x))
            if self.raw:  # scores of units leave out rows per unit
                self._keep(where, x if finite.all() else np.where(np.isfinite(x), x, np.nan), labels, matrix)
            if not finite.all():
                x, where, labels, matrix = x[finite], where.take(finite), labels[finite], matrix[finite]
            if self._keeps_whole_rows:
                self._whole_rows.add(where, x, labels, matrix)
            narrow = self.projection.apply(x) if "moments" in self.needs or not self.raw else x
            if "moments" in self.needs:
                classed = {
                    name: labels[:, column]
                    for column, name in enumerate(codes)
                    if not self.classes[name].overflowed
                }
                self._moments.update(narrow, where.held, where.bucket, classed)
            if not self.raw:
                self._keep(where, narrow.astype(x.dtype), labels, matrix)

    def _describe(self, x: np.ndarray, finite: np.ndarray, where: Places) -> None:
        """Update the statistics that are computed in float64 from unprojected rows."""
        if not self.needs & {"tally", "steps"}:
            return
        x = x.astype(np.float64, copy=False)
        if "tally" in self.needs and self.projected_from is None:
            self.tally.update(x, finite, where.group)
        if "steps" in self.needs:
            self.steps.update(x[finite])

    def _keep(self, where: Places, rows: np.ndarray, labels: np.ndarray, values: np.ndarray) -> None:
        """Add rows to the sample, which may store the arrays without a copy."""
        if "sample" in self.needs:
            self.sample.add(where, rows, labels, values)

    @property
    def _keeps_whole_rows(self) -> bool:
        """Return whether ``rows_to_compare`` are not those of the sample, which are projected."""
        return "rows" in self.needs and not self.raw and self.width < self.projection.given

    def _items(self, items: Any, rows: int) -> np.ndarray:
        if items is None:
            items = np.arange(self._arrived, self._arrived + rows)
        ids = np.asarray(items, dtype=np.int64)
        if ids.shape != (rows,):
            raise InputError(f"items has shape {ids.shape}, but there are {rows} rows; give one id per row.")
        self._arrived += rows
        return ids

    def _moved_from(self, values: np.ndarray, where: Places) -> tuple[np.ndarray, np.ndarray]:
        """Return labels, and for each row the number of the row that has its moved labels, -1 for none.

        Labels are moved within the update. If that has one item, they are those of the update before.
        """
        if len(where.item) and (where.item != where.item[0]).any():
            self._last = None
            return values, sources(where)
        last, self._last = self._last, (values, where)
        if last is None or not len(where.item) or not len(last[0]):
            return values, np.full(len(values), -1)
        return last[0], sources_in(where, last[1])

    def _numbers(self, targets: dict[str, np.ndarray], rows: int) -> np.ndarray:
        """Return the labels as numbers, (rows, targets), NaN where there is none."""
        types = [column.dtype for column in targets.values()]
        small = all(one.kind == "b" or one.itemsize <= 2 or one == np.float32 for one in types)
        small &= "values" not in self.needs  # which are computed with in float64
        out = np.empty((rows, len(targets)), dtype=np.float32 if small else np.float64)
        for place, (name, column) in enumerate(targets.items()):
            as_numbers = column if column.dtype.kind in "fiub" else numbers(column)
            if as_numbers is None:
                self.not_numbers.add(name)
            out[:, place] = np.nan if as_numbers is None else as_numbers
        return out

    def _check(self, features: int, targets: tuple[str, ...], projected_from: int | None) -> None:
        if projected_from != self.projected_from:
            raise InputError(
                f"The first behaviours were projected from {self.projected_from or 'no'} features, these "
                f"from {projected_from or 'no'}; projections of different layers cannot be put together."
            )
        if features != self.features:
            raise InputError(
                f"The first behaviours had {self.features} features, these have {features}; one Scorer reads "
                "one layer."
            )
        if targets != self.targets:
            raise InputError(
                f"The first update had labels {list(self.targets)}, this one has {list(targets)}; give the "
                "same targets every time, None for rows without a label."
            )

    def merge(self, other: Statistics) -> None:
        """Add the statistics of ``other``; raises InputError unless its scores, seed and layer are equal."""
        if (self.needs, self.raw, self.seed) != (other.needs, other.raw, other.seed):
            raise InputError("Only scorers of the same scores and the same seed can be merged.")
        if other.features < 0:
            return
        if self.features < 0:
            self.given = other.given
            self._start(other.features, other.targets, other.projected_from)
        self._check(other.features, other.targets, other.projected_from)
        self._once.clear()
        codes = {target: self.classes[target].absorb(other.classes[target]) for target in self.targets}
        self.tally.merge(other.tally)
        self.steps.merge(other.steps)
        self._moments.merge(other._moments, codes)
        self.pairs.merge(other.pairs)
        self.magnitude.merge(other.magnitude)
        self.sample.merge(other.sample, list(codes.values()))
        self._whole_rows.merge(other._whole_rows, list(codes.values()))
        self.not_numbers |= other.not_numbers
        self._arrived += other._arrived
        self._left_out += other._left_out

    # -- reading -------------------------------------------------------------------------------------

    @property
    def moments(self) -> Moments:
        """The moments of all rows so far, of ``width`` features."""
        self._moments.settle()
        return self._moments

    def once(self, key: Any, compute: Callable[[], _T]) -> _T:
        """Return ``compute()``, cached under ``key`` until the next update, so that scores share results."""
        if key not in self._once:
            self._once[key] = compute()
        value: _T = self._once[key]
        return value

    def drawn(self) -> tuple[Places, np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows of the sample; see Sample.rows. The result is cached."""
        return self.once("drawn", self.sample.rows)

    def rows_to_compare(self) -> tuple[Places, np.ndarray]:
        """Return rows with the smallest keys, with all features that arrived, to compare with another layer.

        They are at least WHOLE_ROWS, if there are as many, or of very wide layers LEAST_WHOLE.
        """
        places, x, _, _ = self._whole_rows.rows() if self._keeps_whole_rows else self.drawn()
        return places, x

    def rows_to_fit(self, target: str) -> tuple[Places, np.ndarray, np.ndarray]:
        """Return places, behaviours and codes of the rows to fit classifiers on, if ``by_class``."""
        raise NotImplementedError


def _finite_rows(x: np.ndarray) -> np.ndarray:
    """Return which rows are finite; a sum that is finite shows it of all, faster."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(x.sum()):
            return np.ones(len(x), dtype=bool)
    return np.asarray(np.isfinite(x).all(axis=1))


def _stacked(codes: dict[str, np.ndarray], rows: int) -> np.ndarray:
    """Stack codes to a matrix (rows, targets); (rows, 0) if there are none."""
    return np.stack(list(codes.values())).T if codes else np.empty((rows, 0), CODE)


def _ids(name: str, given: Any, rows: int) -> np.ndarray | None:
    """Return ids of any type as int64 of shape (rows,), equal for equal ids; None for None."""
    if given is None:
        return None
    ids = np.asarray(given)
    if ids.shape != (rows,):
        raise InputError(f"{name} has shape {ids.shape}, but there are {rows} rows; give one id per row.")
    if ids.dtype.kind in "iub":
        return ids.astype(np.int64)
    texts = [f"{type(one).__name__}:{one}".encode() for one in ids.tolist()]
    return np.array(
        [int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True) for text in texts],
        dtype=np.int64,
    )


def _confounders(given: dict[str, np.ndarray], rows: int) -> np.ndarray:
    """Return confounders as numbers, (rows, confounders)."""
    out = np.empty((rows, len(given)))
    for place, (name, column) in enumerate(given.items()):
        found = numbers(column)
        if found is None:
            raise InputError(f"The confounder {name!r} has labels that are not numbers.")
        out[:, place] = found
    return out


def _matrix(behaviours: Any) -> np.ndarray:
    x = np.asarray(behaviours)
    if x.dtype.kind not in "fiub":
        raise InputError(f"Behaviours must be real numbers, got an array of {x.dtype}.")
    if x.ndim == 0:
        raise InputError(f"Behaviours need a row per item, got the single number {x!r}.")
    return x.reshape(len(x), -1) if len(x) else x.reshape(0, int(np.prod(x.shape[1:])))
