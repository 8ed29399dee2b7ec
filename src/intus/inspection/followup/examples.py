"""Find the records on which a unit is largest, and those that speak against a hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ...core.errors import InputError
from ...scores.statistics.pairs import Pairs, correlation
from ..plan import Plan
from .symbols import symbols_of
from .unit_reader import UnitReader, annotated
from .unit_row import UnitRow

#: The kinds of examples, in the order of the table.
KINDS = ("top", "active without the hypothesis", "silent with it", "random")
_AROUND = 20  # characters or tokens of a snippet on either side


@dataclass(frozen=True, slots=True)
class _Example:
    """A record with one of its symbols.

    Attributes:
        rank: The order among its kind, the smallest first.
        record: The number of the record.
        place: The index of the symbol among the labels of the record; empty if there is one label.
        behavior: The behavior of the unit there.
        label: The label there.
    """

    rank: float
    record: int
    place: tuple[int, ...]
    behavior: float
    label: Any


@dataclass(slots=True)
class _Best:
    """The examples with the smallest ranks, at most ``count``, of different records."""

    count: int
    kept: list[_Example] = field(default_factory=list)

    def add(
        self,
        ranks: np.ndarray,
        numbers: np.ndarray,
        grid: tuple[int, ...],
        values: np.ndarray,
        labels: np.ndarray,
        of_records: np.ndarray | None = None,
    ) -> None:
        """Add the symbol with the smallest rank of each record.

        Args:
            ranks: The ranks, (records, symbols); infinite for a symbol that does not count.
            numbers: The numbers of the records.
            grid: The shape of the labels of one record.
            values: The behaviors, (records, symbols).
            labels: The labels, (records, symbols).
            of_records: The ranks of the records, (records,). Default: those of their first symbols.
        """
        first = ranks.argmin(axis=1)
        least = ranks[np.arange(len(ranks)), first]
        if of_records is not None:
            least = np.where(least < np.inf, of_records, np.inf)
        for row in np.argsort(least, kind="stable")[: self.count]:
            if least[row] < np.inf:
                at = int(first[row])
                place = tuple(int(one) for one in np.unravel_index(at, grid))
                one = _Example(
                    float(least[row]), int(numbers[row]), place, float(values[row, at]), labels[row, at]
                )
                self.kept.append(one)
        self.kept = sorted(self.kept, key=lambda one: (one.rank, one.record))[: self.count]


def examples_of(plan: Plan, row: UnitRow, k: int, seed: int | None) -> pd.DataFrame:
    """Return examples of a unit in one pass over the data; see ``Inspection.examples``.

    Args:
        plan: The plan of the table.
        row: The unit and the hypothesis.
        k: The number of examples of each kind.
        seed: The seed of the random ones; None for that of the plan.

    Raises:
        InputError: If ``k`` is not positive.
    """
    if k < 1:
        raise InputError(f"k={k!r} must be 1 or more.")
    reader = UnitReader(plan, row)
    random = np.random.default_rng(plan.seed if seed is None else seed)
    # A unit may be lower where a label is larger, which is known only at the end, so that both are kept.
    best = {(kind, sign): _Best(k) for kind in KINDS[:3] for sign in (1, -1)}
    drawn, sums, binary = _Best(k), Pairs(1, 1), True
    with_and_without = np.zeros((2, 2))  # the sums of the behavior, and the numbers of symbols
    with reader.reading() as read:
        for block in reader.plan.blocks():
            for numbers, values, labels in reader.aligned(read(block), block, row.unit):
                grid = labels.shape[1:]
                values, labels = values.reshape(len(values), -1), labels.reshape(len(labels), -1)
                counts = annotated(labels) & np.isfinite(values)
                holds, lacks = _is(labels, 1) & counts, _is(labels, 0) & counts
                binary = binary and bool((holds | lacks)[counts].all())
                for sums_of, chosen in zip(with_and_without, (holds, lacks), strict=True):
                    sums_of += values[chosen].sum(dtype=float), chosen.sum()
                if labels.dtype.kind in "fiub":
                    pairs = values[counts].astype(float)[:, None], labels[counts].astype(float)[:, None]
                    sums.update(*pairs, np.zeros(len(pairs[0]), dtype=np.int64))
                for sign in (1, -1):
                    down = -sign * values
                    best["top", sign].add(_where(counts, down), numbers, grid, values, labels)
                    best[KINDS[1], sign].add(_where(lacks, down), numbers, grid, values, labels)
                    best[KINDS[2], sign].add(_where(holds, -down), numbers, grid, values, labels)
                symbols = _where(counts, random.random(counts.shape))
                drawn.add(symbols, numbers, grid, values, labels, random.random(len(numbers)))
    sign = -1 if correlation(sums.total())[0, 0] < 0 else 1
    kinds = {kind: best[kind, sign].kept for kind in (KINDS[:3] if binary else KINDS[:1])}
    if binary:
        with np.errstate(invalid="ignore"):
            between = (with_and_without[:, 0] / with_and_without[:, 1]).mean()
        kinds[KINDS[1]] = [one for one in kinds[KINDS[1]] if sign * one.behavior > sign * between]
        kinds[KINDS[2]] = [one for one in kinds[KINDS[2]] if sign * one.behavior < sign * between]
    rows = [(kind, one) for kind, kept in (kinds | {"random": drawn.kept}).items() for one in kept]
    table = {
        "kind": [kind for kind, _ in rows],
        "record": [one.record for _, one in rows],
        "position": [_position(one.place) for _, one in rows],
        "behavior": [one.behavior for _, one in rows],
        "label": [one.label for _, one in rows],
    }
    snippets = [_snippet(plan, row.target, one) for _, one in rows]
    if rows and all(text is not None for text in snippets):
        table["text"] = snippets
    return pd.DataFrame(table)


def _is(labels: np.ndarray, value: int) -> np.ndarray:
    if labels.dtype.kind not in "fiub":
        return np.zeros(labels.shape, dtype=bool)
    return np.asarray(labels == value)


def _where(chosen: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    return np.where(chosen, ranks, np.inf)


def _position(place: tuple[int, ...]) -> int | tuple[int, ...] | None:
    if not place:
        return None
    return place[0] if len(place) == 1 else place


def _snippet(plan: Plan, target: str, one: _Example) -> str | None:
    number = np.array([one.record])
    (record,) = plan.records.block(number)
    labels = plan.labels.of(number, lambda: [record])[target]
    return snippet(record, one.place[0] if len(one.place) == 1 else None, labels.shape[-1])


def snippet(record: Any, at: int | None, count: int) -> str | None:
    """Return the text around a symbol, which is marked; None if the record is no text.

    Args:
        record: A text, or a list of words.
        at: The index of the symbol; None for the start of the record, without a mark.
        count: The number of symbols of the record.

    Example:
        >>> snippet("f(a, b)", 1, 7), snippet("the cat sat", 1, 3), snippet(["the", "cat"], 1, 2)
        ('f»(«a, b)', 'the »cat« sat', 'the »cat«')
    """
    symbols = symbols_of(record, count)
    if symbols is None and isinstance(record, str):
        symbols, at = list(record), None
    if symbols is None or not all(isinstance(one, str) for one in symbols):
        return None
    gap = "" if isinstance(record, str) and len(symbols) == len(record) else " "
    if at is None or at >= len(symbols):
        start, stop = 0, min(len(symbols), 3 * _AROUND)
        marked = symbols[:stop]
    else:
        start, stop = max(0, at - _AROUND), min(len(symbols), at + _AROUND + 1)
        marked = symbols[start:stop]
        marked[at - start] = f"»{marked[at - start]}«"
    text = gap.join(marked).replace("\n", "↵").replace("\t", "⇥")
    return ("…" if start else "") + text + ("…" if stop < len(symbols) else "")
