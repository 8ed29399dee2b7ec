"""The demo's summary: three sentences with figures from the scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.results import Results

#: The first and the last layer of the network.
FIRST, LAST = "features.0", "classifier.3"


def sentences(points: Results, units: Results, accuracy: str, epochs: int) -> list[str]:
    """Return three sentences: on the task, on a property of the input, and on units that match hypotheses.

    Where scores are missing, a sentence says which.

    Args:
        points: The scores of layers.
        units: The scores of units.
        accuracy: The accuracy of the network, in words.
        epochs: The number of the last epoch.
    """
    return [_task(points, accuracy, epochs), _input_property(points, epochs), _responses(units)]


class _Score(NamedTuple):
    """A value with its 95 % interval and its baseline."""

    value: float
    low: float
    high: float
    baseline: float


def _task(points: Results, accuracy: str, epochs: int) -> str:
    digit = points.where(target="digit", score="linear_f1")
    known = {(layer, epoch): _at(digit, layer, epoch) for layer in (LAST, FIRST) for epoch in (0, epochs)}
    if missing := [f"{layer} at epoch {epoch}" for (layer, epoch), score in known.items() if score is None]:
        return (
            f"The network classifies {accuracy} correctly. The scores of the digit are missing on "
            f"{', '.join(missing)}, so what its layers learned is not known. The notices on the page say why."
        )
    last, trained_last, first, trained_first = (score for score in known.values() if score is not None)
    return (
        f"Over {epochs} epochs, the held-out macro F1 of a linear classifier of the digit on the last layer, "
        f"{LAST}, {_change(last, trained_last)}, and on the first layer, {FIRST}, "
        f"{_change(first, trained_first)} (chance: {trained_last.baseline:.2f}). The network itself "
        f"classifies {accuracy} correctly."
    )


def _input_property(points: Results, epochs: int) -> str:
    what = "Whether there is more ink above the middle, which the network was not trained on,"
    ink = points.where(target="ink above the middle", score="linear_f1")
    here, there = _at(ink, FIRST, epochs), _at(ink, LAST, epochs)
    if here is None or there is None:
        missing = " and ".join(layer for layer, score in ((FIRST, here), (LAST, there)) if score is None)
        return f"{what} has no score on {missing} at epoch {epochs}. The notices on the page say why."
    is_lost = _direction(here, there) < 0
    verdict = "this property of the input is lost with depth" if is_lost else "no loss beyond the intervals"
    return (
        f"{what} is predicted with {here.value:.2f} from {FIRST} and {there.value:.2f} from {LAST} (baseline "
        f"{there.baseline:.2f}): {verdict}."
    )


def _responses(units: Results) -> str:
    """Return, for each hypothesis, the unit with the best score at the last checkpoint."""
    epochs = sorted(set(units["epoch"].tolist()))
    if not epochs or np.isnan(units["value"]).all():
        return "The scores of units are missing."
    count = len(set(zip(units["address"].tolist(), units["unit"].tolist(), strict=True)))
    parts = [
        _response(units.where(target=name), epochs[-1]) for name in dict.fromkeys(units["target"].tolist())
    ]
    return (
        f"Of {count} units, inspected at epochs {', '.join(f'{epoch:g}' for epoch in epochs)}, the best for "
        f"each hypothesis (IoU; in brackets the best for a shuffled mask): {'; '.join(parts)}."
    )


def _response(units: Results, epoch: float) -> str:
    last = units.where(epoch=epoch)
    best = int(np.nanargmax(last["value"]))
    address, unit, chance = last["address"][best], int(last["unit"][best]), float(last["baseline"][best])
    curve = units.where(address=address, unit=unit)
    values = curve["value"][np.argsort(curve["epoch"])]
    shown = " → ".join("-" if np.isnan(value) else f"{value:.2f}" for value in values)
    return f"{last['target'][0].replace('_', ' ')} {address}[{unit}] {shown} ({chance:.2f})"


def _change(before: _Score, after: _Score) -> str:
    """Return how a score changed, in words."""
    if direction := _direction(before, after):
        return f"{'rose' if direction > 0 else 'fell'} from {before.value:.2f} to {after.value:.2f}"
    return f"did not change beyond its interval ({before.value:.2f}, then {after.value:.2f})"


def _direction(one: _Score, other: _Score) -> int:
    """Return 1 if the interval of ``other`` is above that of ``one``, as in findings, -1 if below, else 0."""
    return (other.low > one.high) - (other.high < one.low)


def _at(table: Results, address: str, epoch: float) -> _Score | None:
    """Return the score of a layer at an epoch; None if it is missing."""
    found = table.where(address=address, epoch=float(epoch))
    if not len(found) or np.isnan(found["value"][0]):
        return None
    return _Score(*(float(found[name][0]) for name in _Score._fields))
