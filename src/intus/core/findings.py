"""Findings: sentences that follow from the scores of a training and their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .results import COLUMNS, Results

#: The scores that findings are about: of each target the first one that it has, and the count of NaN.
SCORES = ("linear_f1", "lda_f1", "logistic_f1", "r2", "nonfinite")
#: How far a score must be above its baseline, in multiples of the distance from the score to the lower bound
#: of its 95 % interval. A run has hundreds of intervals, so the plain bound would be passed by chance.
MARGIN = 1.5
#: How many points in a row, up to the newest, must agree.
STREAK = 2
#: By how much the upper bound of a later layer may be above the score of a layer over which it adds nothing.
TOLERANCE = 0.02

#: The code of the notice that many items are copies of others, and the note on scores of labels of these.
COPIES, COPIES_NOTE = "copies", "many held-out rows are exact copies of fitted ones: pass groups="


class Finding(NamedTuple):
    """A sentence about a run, and what it is about.

    Attributes:
        kind: ``"nonfinite"``, ``"learned"``, ``"decodable"``, ``"fell"``, ``"idle"`` or ``"logged"``.
        text: The sentence.
        target: The target; ``""`` if none.
        address: The layer; of ``"logged"`` the name of the value.
        epoch: The epoch in which it began; NaN if unknown.
        step: The step in which it began; -1 for a whole epoch.
    """

    kind: str
    text: str
    target: str
    address: str
    epoch: float
    step: int

    def __str__(self) -> str:
        return self.text


class _Grid:
    """The points of one score of one target, by layer in network order and by time."""

    def __init__(self, table: Results, addresses: Sequence[str]) -> None:
        rank = {address: place for place, address in enumerate(addresses)}
        names, epochs, steps = (table[name].tolist() for name in ("address", "epoch", "step"))
        self.addresses = sorted(dict.fromkeys(names), key=lambda name: rank.get(name, len(rank)))
        self.times = sorted(set(zip(epochs, steps, strict=True)))
        row = {address: place for place, address in enumerate(self.addresses)}
        column = {time: place for place, time in enumerate(self.times)}
        at = (
            np.array([row[name] for name in names], dtype=np.int64),
            np.array([column[time] for time in zip(epochs, steps, strict=True)], dtype=np.int64),
        )
        grids = {
            name: np.full((len(row), len(column)), np.nan) for name in ("value", "low", "high", "baseline")
        }
        for name, grid in grids.items():
            grid[at] = table[name]
        self.value, self.low, self.high, self.baseline = grids.values()
        self.score = str(table["score"][0])

    def above(self) -> np.ndarray:
        """Return where the score is above its baseline by ``MARGIN`` times the width to its lower bound."""
        above: np.ndarray = self.value - self.baseline > MARGIN * np.maximum(self.value - self.low, 0)
        return above

    def reach(self) -> np.ndarray:
        """Return the upper bounds, or where no score can be higher than 1, what they would be without this.

        Of 1.00 [0.67, 1.00] the upper bound says nothing on how much better another layer may be.
        """
        reach: np.ndarray = np.maximum(self.high, 2 * self.value - self.low)
        return reach

    def risen(self) -> np.ndarray:
        """Return where the lower bound is above the layer's first value."""
        first = [next((v for v in values if v == v), np.nan) for values in self.value.tolist()]
        return self.low > np.array(first)[:, None]

    def when(self, time: int) -> str:
        """Return the words for a time: ``epoch 3`` or ``step 4,210``."""
        epoch, step = self.times[time]
        return when(epoch, step)

    def bounds(self, layer: int, time: int) -> str:
        """Return a value with its interval and its baseline, in words."""
        value, low, high = (grid[layer, time] for grid in (self.value, self.low, self.high))
        return f"{self.score} {value:.2f} [{low:.2f}, {high:.2f}], baseline {self.baseline[layer, time]:.2f}"

    def finding(self, kind: str, text: str, target: str, layer: int, time: int) -> Finding:
        """Return a finding about a layer that began at a time."""
        return Finding(kind, text, target, self.addresses[layer], *self.times[time])


def findings(
    results: Results, addresses: Sequence[str], log: Iterable[tuple[str, int, float | None, float]] = ()
) -> list[Finding]:
    """Return what follows from the scores of a training, each as a sentence with its numbers.

    - *NaN began*: the first layer, in network order, of the first point that has NaN or infinite values; also
      the first logged value of each name that is NaN or infinite.
    - *A target is learned*: a layer's score is above its baseline by 1.5 times the width to its lower
      bound, and its lower bound is above its first value, from some point on and at the two newest points
      at least. If the score was as high from the start, the target is only *decodable*, as it can be from an
      untrained layer.
    - *A target fell to its baseline*: it was above as before at two points in a row, and at the newest two or
      more points the interval contains the baseline, or is below, and its upper bound is below the earlier
      value.
    - *Layers add nothing*: at the newest two or more points no later layer's upper bound is above the layer's
      score by more than 0.02, and the layer's score is above its baseline as before. The bound is as far from
      the score as the lower one, where that is farther. Few rows have wide intervals, so then it is not said.

    Scores with ``COPIES_NOTE`` show only that rows are recognized, so nothing follows from them.

    Args:
        results: The scores of one run and model: all rows, or those of ``SCORES``.
        addresses: Its layers, in network order.
        log: The logged values as (name, step, epoch, value), ordered by step.

    Returns:
        The findings, ordered by target. They may change with every new point: what no longer holds is left
        out.

    Example:
        >>> rows = [
        ...     {"address": "fc1", "target": "digit", "score": "linear_f1", "epoch": epoch, "value": value,
        ...      "low": value - 0.05, "high": value + 0.05, "baseline": 0.1}
        ...     for epoch, value in enumerate([0.1, 0.6, 0.8])
        ... ]
        >>> print(*findings(Results.from_rows(rows), ["fc1"]))
        digit is learned in fc1 from epoch 1: linear_f1 0.60 [0.55, 0.65], baseline 0.10; 0.10 at first.
    """
    found = _nonfinite(results.where(score="nonfinite"), addresses)
    outputs = results.where(kind="output", unit=-1)
    keep = np.array([COPIES_NOTE not in note for note in outputs["note"].tolist()], bool)
    outputs = Results({name: outputs[name][keep] for name in COLUMNS})
    for target in sorted(set(outputs["target"].tolist()) - {""}):
        of_target = outputs.where(target=target)
        known = set(of_target["score"].tolist())
        score = next((name for name in SCORES if name in known), None)
        if score is not None:
            grid = _Grid(of_target.where(score=score), addresses)
            found += [*_learned(grid, target), *_fell(grid, target), *_idle(grid, target)]
    return found + _logged(log)


def when(epoch: float, step: int) -> str:
    """Return the words for a point in time.

    >>> when(3, -1), when(0.5, -1), when(0, 4210)
    ('epoch 3', 'epoch 0.5', 'step 4,210')
    """
    return f"step {step:,}" if step >= 0 else f"epoch {epoch:g}"


def _streak_start(holds: np.ndarray) -> int | None:
    """Return where the run of True that reaches the end begins; None if it is shorter than ``STREAK``."""
    false = np.flatnonzero(~holds)
    start = int(false[-1]) + 1 if len(false) else 0
    return start if len(holds) - start >= STREAK else None


def _name(address: str) -> str:
    return address or "the model's output"


def _others(count: int) -> str:
    return f" and {count} more layer{'s' * (count != 1)}" if count else ""


def _nonfinite(table: Results, addresses: Sequence[str]) -> list[Finding]:
    rank = {address: place for place, address in enumerate(addresses)}
    bad = []
    for row in table:
        address, step = row["address"] or "", -1 if row["step"] is None else row["step"]
        if (row["value"] or 0) > 0:
            place = row["epoch"] or 0.0, step, rank.get(address, len(rank))
            bad.append((*place, row["kind"] or "", address, int(row["value"])))
    if not bad:
        return []
    epoch, step, _, kind, address, count = min(bad)
    of = "" if kind == "output" else f" ({kind.replace('_', ' ')})"
    values = f"{count:,} value{'s' * (count != 1)}"
    text = f"NaN or infinite values began in {_name(address)}{of} at {when(epoch, step)}: {values}."
    return [Finding("nonfinite", text, "", address, epoch, step)]


def _learned(grid: _Grid, target: str) -> list[Finding]:
    above = grid.above()
    for kind, holds in (("learned", above & grid.risen()), ("decodable", above)):
        starts = [
            (start, layer) for layer, row in enumerate(holds) if (start := _streak_start(row)) is not None
        ]
        if not starts:
            continue
        start, layer = min(starts)
        where = _name(grid.addresses[layer]) + _others(sum(at == start for at, _ in starts) - 1)
        since, bounds = grid.when(start), grid.bounds(layer, start)
        if kind == "learned":
            first = next(v for v in grid.value[layer].tolist() if v == v)
            text = f"{target} is learned in {where} from {since}: {bounds}; {first:.2f} at first."
        else:
            text = f"{target} can be decoded from {where} since {since}: {bounds}. It has not risen since."
        return [grid.finding(kind, text, target, layer, start)]
    return []


def _fell(grid: _Grid, target: str) -> list[Finding]:
    above, within = grid.above(), grid.low <= grid.baseline
    fallen = []
    for layer in range(len(grid.addresses)):
        twice = np.flatnonzero(above[layer, 1:] & above[layer, :-1])
        if not len(twice):
            continue
        last = int(twice[-1]) + 1
        start = _streak_start(within[layer])
        if start is not None and start > last and (grid.high[layer, start:] < grid.value[layer, last]).all():
            fallen.append((start, layer, last))
    if not fallen:
        return []
    start, layer, last = min(fallen)
    where = _name(grid.addresses[layer]) + _others(sum(at == start for at, *_ in fallen) - 1)
    side = "below" if grid.high[layer, start] < grid.baseline[layer, start] else "to"
    text = (
        f"{target} fell {side} its baseline in {where} at {grid.when(start)}: {grid.bounds(layer, start)}; "
        f"it was {grid.value[layer, last]:.2f} at {grid.when(last)}."
    )
    return [grid.finding("fell", text, target, layer, start)]


def _idle(grid: _Grid, target: str) -> list[Finding]:
    above, reach = grid.above(), grid.reach()
    for layer in range(len(grid.addresses) - 1):
        later = reach[layer + 1 :]
        known = np.isfinite(later).any(axis=0)
        highest = np.where(known, np.where(np.isfinite(later), later, -np.inf).max(axis=0), np.inf)
        start = _streak_start(above[layer] & (highest <= grid.value[layer] + TOLERANCE))
        if start is None:
            continue
        names = [_name(address) for address in grid.addresses[layer + 1 :]]
        which = (
            f"{names[0]} adds"
            if len(names) == 1
            else f"The {len(names)} layers from {names[0]} to {names[-1]} add"
        )
        over, since = _name(grid.addresses[layer]), grid.when(start)
        text = (
            f"{which} nothing about {target} over {over} since {since}, or {TOLERANCE} at most: "
            f"{grid.bounds(layer, start)}; the highest upper bound of later layers is "
            f"{min(highest[start], 1.0):.2f}."
        )
        return [grid.finding("idle", text, target, layer, start)]
    return []


def _logged(log: Iterable[tuple[str, int, float | None, float]]) -> list[Finding]:
    first: dict[str, Finding] = {}
    last: dict[str, str] = {}
    for name, step, epoch, value in log:
        if name in first:
            continue
        if math.isfinite(value):
            last[name] = f" It was {value:.4g} at step {step:,}."
        else:
            text = (
                f"{name} is {'NaN' if value != value else 'infinite'} at step {step:,}.{last.get(name, '')}"
            )
            at = math.nan if epoch is None else epoch
            first[name] = Finding("logged", text, "", name, at, step)
    return list(first.values())
