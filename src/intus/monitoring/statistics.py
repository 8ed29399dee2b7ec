"""Statistics of passes, made where the model runs and sent instead of its activations.

Only here does monitoring import from ``scores``: what it sends is what a server merges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..backends.base import CapturedTensor
from ..backends.row_sums import LateSums, RowPlan
from ..core.projection import PROJECTED
from ..core.record import LayerStatistics
from ..core.sketch import UNITS
from ..scores.statistics.labels import as_wide, id_table, label_array
from ..scores.statistics.sent import KnownRows
from .probe_set import ProbeSet, StatisticsChoice
from .row_check import Place
from .schedule import Cut
from .targets import RegisteredTarget, are_ragged

_SEED = 0  # of the split, which is that of a server by default


class Part(NamedTuple):
    """Rows of a tensor whose statistics are sent as one record.

    Attributes:
        known: The rows.
        plan: The sums to compute of them.
        nbytes: The bytes of the record, at most.
    """

    known: KnownRows
    plan: RowPlan
    nbytes: int


#: The kept rows of a tensor, the ids of their items, and the statistics.
Made = tuple[np.ndarray, np.ndarray, LayerStatistics]


class Labels:
    """The labels that statistics are made of, by target, as arrays with an entry for each item.

    Groups are those of the first target; targets with other groups are left out.

    Args:
        targets: The targets by name.
        of_one_batch: Whether all items come in one batch, so that each is padded to the longest of all.

    Attributes:
        left_out: The names of the targets that are left out.
    """

    def __init__(self, targets: Mapping[str, RegisteredTarget], *, of_one_batch: bool = False) -> None:
        groups = next((target.groups for target in targets.values()), None)
        used = {name: target for name, target in targets.items() if target.groups == groups}
        self.left_out = [name for name in targets if name not in used]
        self._given, self._targets = dict(targets), used
        self._tables = {name: label_array(name, target.labels) for name, target in used.items()}
        self._groups = id_table("", "groups", groups, np.empty(len(groups or ())), False)
        self._lengths = {
            name: np.array([len(row) for row in target.labels])
            for name, target in used.items()
            if are_ragged(target.labels) and not of_one_batch
        }
        self._types: dict[str, np.ndarray | None] = {}
        self._names: dict[str, tuple[list[str], list[str]]] = {}  # of items and of positions, by address

    def are_of(self, targets: Mapping[str, RegisteredTarget]) -> bool:
        """Return whether they are the labels of these very targets."""
        return [*self._given] == [*targets] and all(self._given[name] is targets[name] for name in targets)

    def names_for(self, address: str) -> tuple[list[str], list[str]]:
        """Return the targets that are meant for a layer: those of items, and those of positions."""
        if address not in self._names:
            chosen = [name for name, one in self._targets.items() if re.search(one.layer_pattern, address)]
            self._names[address] = (
                [name for name in chosen if self._tables[name].ndim == 1],
                [name for name in chosen if self._tables[name].ndim == 2],
            )
        return self._names[address]

    @property
    def exist(self) -> bool:
        """True if there are any."""
        return bool(self._tables)

    def have(self, items: np.ndarray) -> bool:
        """Return whether every target has a label, or None, for each of some items."""
        if not len(items) or int(items.min()) < 0:
            return False
        return all(int(items.max()) < len(table) for table in self._tables.values())

    def rows(self, names: list[str], items: np.ndarray, positions: int | None) -> KnownRows | None:
        """Return the rows of items, or of so many positions of each; None if the labels do not fit.

        Args:
            names: The names of the targets.
            items: The ids of the items.
            positions: The number of positions; None if each item is a row.
        """
        repeats = positions or 1
        if positions is None:
            tables = {name: self._tables[name][items] for name in names}
        else:
            tables = {}
            for name in names:
                table, lengths = self._tables[name][items].astype(object), self._lengths.get(name)
                given = table.shape[1] if lengths is None else int(lengths[items].max(initial=0))
                if given != positions:  # the server says whether and how they fit
                    return None
                tables[name] = as_wide(table, positions, None).reshape(-1)
        return KnownRows(
            np.repeat(items, repeats),
            tables,
            groups=None if self._groups is None else np.repeat(self._groups[items], repeats),
            types=self._types_of(names, items, positions),
            seed=_SEED,
        )

    def _types_of(self, names: list[str], items: np.ndarray, positions: int | None) -> np.ndarray | None:
        """Return the types of rows, if they are the same for all targets."""
        given = [self._targets[name].types for name in names]
        if not given or given[0] is None or any(one != given[0] for one in given):
            return None
        name = names[0]
        if name not in self._types:
            self._types[name] = id_table(name, "types", given[0], self._tables[name], positions is not None)
        table = self._types[name]
        if table is None:
            return None
        rows = table[items]
        return rows if positions is None else as_wide(rows, positions, -1).reshape(-1)


#: An epoch and a mode.
Period = tuple[float, str]


class PassStatistics:
    """Makes the statistics of passes whose items and labels are known.

    Args:
        choice: Whether to make them.
        share: The bytes of a tensor from which on they are made on a CPU too, with "auto".
        rank: The number of the process among those that share the rows of each pass.
        ranks: The number of these processes.
        repeats: Whether every pass has the same rows.
    """

    def __init__(
        self, choice: StatisticsChoice, share: float, *, rank: int = 0, ranks: int = 1, repeats: bool = False
    ) -> None:
        self._choice, self._share, self._rank, self._ranks = choice, share, rank, ranks
        self._repeats = repeats
        self._units: dict[Hashable, Any] = {}  # by tensor; chosen in the last pass
        self._known: dict[Hashable, tuple[KnownRows, RowPlan] | None] = {}  # of the present pass
        self._pass: tuple[Labels, np.ndarray] | None = None
        self._period: Period | None = None
        #: Tensors of which rows were sent in a period, with which statistics of later passes do not go.
        self._as_rows: set[tuple[Period, Place]] = set()
        self._as_statistics: set[tuple[Period, Place]] = set()  # of which statistics were
        self._mixed: dict[str, dict[str, None]] = {}  # layers of which rows followed statistics, by mode
        self._labels = Labels({})

    @classmethod
    def of_probe_set(cls, probe_set: ProbeSet, choice: StatisticsChoice, share: float) -> PassStatistics:
        """Return what makes the statistics of a probe set's passes."""
        own = cls(choice, share, rank=probe_set.rank, ranks=probe_set.ranks, repeats=True)
        own._labels = Labels(
            {
                name: RegisteredTarget(
                    name,
                    given,
                    probe_set.groups,
                    probe_set.types[name],
                    layer_pattern=probe_set.layers.get(name, ".*"),
                )
                for name, given in probe_set.labels.items()
            },
            of_one_batch=True,
        )
        return own

    def labels_in(self, period: Period, targets: Mapping[str, RegisteredTarget]) -> Labels:
        """Return the labels of a period: the targets that were registered when it began.

        Args:
            period: The epoch and the mode.
            targets: The targets that are registered now.
        """
        if period != self._period:
            self._period = period
            self._as_rows, self._as_statistics = (
                {one for one in sent if one[0][0] == period[0]}
                for sent in (self._as_rows, self._as_statistics)
            )
            if not self._labels.are_of(targets):
                self._labels = Labels(targets)
        return self._labels

    def parts(
        self,
        tensor: CapturedTensor,
        cut: Cut,
        period: Period,
        items: np.ndarray | None,
        labels: Labels | None = None,
    ) -> list[Part]:
        """Return the rows of which statistics are sent instead of a tensor; none if its rows are sent.

        Rows and statistics of the passes of one period cannot be put together: once rows of a tensor were
        sent, they are sent until its end. If rows of a pass follow statistics, the layer has no scores, which
        ``take_mixed`` tells.

        Args:
            tensor: The tensor.
            cut: The part of it that is recorded.
            period: The epoch and the mode.
            items: The ids of the items of the pass; None if they are not those of its rows.
            labels: Their labels, by default those of the probe set.
        """
        labels = self._labels if self._repeats else labels
        key = period, Place.of(tensor)
        if items is None or labels is None or key in self._as_rows:
            found = []
        else:
            found = self._found(tensor, cut, items, labels)
        if found and not self._repeats:
            self._as_statistics.add(key)
        elif not self._repeats:
            self.rows_are_sent(*key)
        return found

    def rows_are_sent(self, period: Period, place: Place) -> None:
        """Register that rows of a tensor are sent in a period, with which later statistics do not go."""
        self._as_rows.add((period, place))
        if (period, place) in self._as_statistics:
            self._mixed.setdefault(period[1], {})[place.address] = None

    def take_mixed(self) -> dict[str, list[str]]:
        """Return the layers of which rows followed statistics in a period since the last call, by mode."""
        mixed, self._mixed = self._mixed, {}
        return {mode: list(layers) for mode, layers in mixed.items()}

    def _found(self, tensor: CapturedTensor, cut: Cut, items: np.ndarray, labels: Labels) -> list[Part]:
        """Return the parts: labels of items need a row for each item, those of positions one for each."""
        if tensor.sums is None or cut.axis is None or not self._is_due(tensor):
            return []
        if tensor.shape[cut.axis] != len(items) or (cut.rows is not None and self._repeats):
            return []
        if self._pass is None or self._pass[0] is not labels or self._pass[1] is not items:
            self._pass, self._known = (labels, items), {}
        count = cut.rows or len(items)
        shape = (count, *(n for axis, n in enumerate(tensor.shape) if axis != cut.axis))
        of_items, of_positions = labels.names_for(tensor.address)
        out = []
        with_positions = bool(of_positions) and len(shape) == 3 and not tensor.channels_first
        if of_items or not with_positions:
            out.append(self._part(of_items, cut.rows, None, math.prod(shape[1:])))
        if with_positions:
            out.append(self._part(of_positions, cut.rows, shape[1], shape[2]))
        found = [part for part in out if part is not None]
        return found if len(found) == len(out) else []

    @property
    def _keeps_units(self) -> bool:
        return self._repeats and self._ranks == 1

    def begin(
        self, part: Part, tensor: CapturedTensor, axis: int, on_device: Callable[[float], None]
    ) -> Callable[[], Made]:
        """Begin to make statistics of a tensor, which may change after that.

        Of a layer that is sketched, the units that had the most to do with the labels in the pass before are
        kept beside the sketch. Several processes, and passes of other rows, would choose different ones, so
        they keep none.

        Args:
            part: The rows.
            tensor: The tensor, whose framework can compute sums.
            axis: The axis of its rows.
            on_device: Called with the seconds that the tensor's device took beside this thread.

        Returns:
            A function that returns them once the tensor's device has made them. Any thread may call it, once.
        """
        assert tensor.sums is not None
        place = tensor.address, tensor.kind, tensor.index, tensor.shape, part.plan.positions
        plan = replace(part.plan, units=self._units[place]) if place in self._units else part.plan
        sums = tensor.sums(plan, axis)
        if self._keeps_units:
            self._units[place] = sums.best
        return partial(_made, part, sums, self._rank, self._ranks, on_device)

    def _is_due(self, tensor: CapturedTensor) -> bool:
        if self._choice != "auto":
            return self._choice
        return tensor.accelerated or self._ranks > 1 or tensor.nbytes > self._share

    def _part(self, names: list[str], count: int | None, positions: int | None, features: int) -> Part | None:
        assert self._pass is not None
        labels, items = self._pass
        key = tuple(names), count, positions
        if key not in self._known:
            found = labels.rows(names, items[:count], positions)
            self._known[key] = None if found is None else (found, self._plan(found, count, positions))
        known = self._known[key]
        if known is None:
            return None
        nbytes = known[0].nbytes(min(features, PROJECTED + UNITS)) + features // 8 + 1
        return Part(*known, nbytes)

    def _plan(self, known: KnownRows, count: int | None, positions: int | None) -> RowPlan:
        return RowPlan(
            positions is not None,
            known.kept,
            known.masks,
            known.classes,
            _SEED,
            chosen_by=known.trained if self._keeps_units else (),
            items=count,
            groups=known.groups,
        )


def _made(part: Part, late: LateSums, rank: int, ranks: int, on_device: Callable[[float], None]) -> Made:
    sums = late.result()
    on_device(sums.seconds)
    return part.known.packed(sums, positions=part.plan.positions, rank=rank, ranks=ranks)
