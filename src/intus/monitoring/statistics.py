"""Statistics of a probe set's passes, made where the model runs and sent instead of its activations.

Only here does monitoring import from ``scores``: what it sends is what a server merges.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from ..backends.base import CapturedTensor
from ..backends.row_sums import RowPlan
from ..core.projection import PROJECTED
from ..core.record import LayerStatistics
from ..core.sketch import UNITS
from ..scores.statistics.labels import as_wide, id_table, label_array
from ..scores.statistics.sent import KnownRows
from .probe_set import ProbeSet, StatisticsChoice
from .schedule import Cut

_SEED = 0  # of the split, which is that of a server by default


class Part(NamedTuple):
    """Rows of a tensor whose statistics are sent as one record.

    Attributes:
        known: The rows.
        positions: Whether each position of an item is a row.
        nbytes: The bytes of the record, at most.
    """

    known: KnownRows
    positions: bool
    nbytes: int


class ProbeSetStatistics:
    """Makes the statistics of a probe set's passes.

    Args:
        probe_set: The probe set.
        choice: Whether to make them.
        share: The bytes of a tensor from which on they are made on a CPU too, with "auto".
    """

    def __init__(self, probe_set: ProbeSet, choice: StatisticsChoice, share: float) -> None:
        self._set, self._choice, self._share = probe_set, choice, share
        self._units: dict[Hashable, np.ndarray] = {}  # by tensor; chosen in the last pass
        self._known: dict[int | None, KnownRows | None] = {}
        labels = {name: label_array(name, given) for name, given in probe_set.labels.items()}
        self._of_items = [name for name, table in labels.items() if table.ndim == 1]
        self._of_positions = [name for name, table in labels.items() if table.ndim == 2]
        self._labels = labels

    def parts(self, tensor: CapturedTensor, cut: Cut) -> list[Part]:
        """Return the rows of which statistics are sent instead of a tensor; none if its rows are sent.

        Labels of items need a row for each item, labels of positions one for each position.
        """
        if tensor.sums is None or cut.axis is None or cut.rows is not None or not self._is_due(tensor):
            return []
        if tensor.shape[cut.axis] != len(self._set.items):
            return []
        shape = (len(self._set.items), *(n for axis, n in enumerate(tensor.shape) if axis != cut.axis))
        out = []
        with_positions = bool(self._of_positions) and len(shape) == 3
        if self._of_items or not with_positions:
            out.append(self._part(None, math.prod(shape[1:])))
        if with_positions:
            out.append(self._part(shape[1], shape[2]))
        found = [part for part in out if part is not None]
        return found if len(found) == len(out) else []

    def made(
        self, part: Part, tensor: CapturedTensor, axis: int
    ) -> tuple[np.ndarray, np.ndarray, LayerStatistics]:
        """Return the kept rows of a tensor, the ids of their items, and the statistics.

        Of a layer that is sketched, the units that had the most to do with the labels in the pass before are
        kept beside the sketch. Several processes would choose different ones, so they keep none.

        Args:
            part: The rows.
            tensor: The tensor, whose framework can compute sums.
            axis: The axis of its rows.
        """
        assert tensor.sums is not None
        known = part.known
        place = tensor.address, tensor.kind, tensor.index, tensor.shape, part.positions
        units = self._units.get(place, np.empty(0, np.int64))
        by = known.trained if self._set.ranks == 1 else ()
        plan = RowPlan(part.positions, known.kept, known.masks, known.classes, _SEED, units, by)
        sums = tensor.sums(plan, axis)
        self._units[place] = sums.best
        ranks = {"rank": self._set.rank, "ranks": self._set.ranks}
        return known.packed(sums, positions=part.positions, **ranks)

    def _is_due(self, tensor: CapturedTensor) -> bool:
        if self._choice != "auto":
            return self._choice
        return tensor.accelerated or self._set.ranks > 1 or tensor.nbytes > self._share

    def _part(self, positions: int | None, features: int) -> Part | None:
        if positions not in self._known:
            self._known[positions] = self._rows(positions)
        known = self._known[positions]
        if known is None:
            return None
        nbytes = known.nbytes(min(features, PROJECTED + UNITS)) + features // 8 + 1
        return Part(known, positions is not None, nbytes)

    def _rows(self, positions: int | None) -> KnownRows | None:
        """Return the rows of items, or of so many positions of each; None if labels are of further ones."""
        items = self._set.items
        if positions is None:
            names, repeats = self._of_items, 1
            tables = {name: self._labels[name][items] for name in names}
        else:
            names, repeats = self._of_positions, positions
            tables = {}
            for name in names:
                table = self._labels[name][items].astype(object)
                beyond = any(label is not None for label in table[:, positions:].ravel())
                if beyond or table.shape[1] < positions:  # the server says whether and how they fit
                    return None
                tables[name] = as_wide(table, positions, None).reshape(-1)
        groups = id_table("", "groups", self._set.groups, np.empty(len(self._set.groups or ())), False)
        return KnownRows(
            np.repeat(items, repeats),
            tables,
            groups=None if groups is None else np.repeat(groups[items], repeats),
            types=self._types(names, positions),
            seed=_SEED,
        )

    def _types(self, names: list[str], positions: int | None) -> np.ndarray | None:
        """Return the types of rows, if they are the same for all targets."""
        given = [self._set.types[name] for name in names]
        if not given or given[0] is None or any(one != given[0] for one in given):
            return None
        labels = self._labels[names[0]]
        table = id_table(names[0], "types", given[0], labels, positions is not None)
        if table is None:
            return None
        rows = table[self._set.items]
        return rows if positions is None else as_wide(rows, positions, -1).reshape(-1)
