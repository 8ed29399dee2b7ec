"""The demo's summary: three sentences with figures from the scores."""

from __future__ import annotations

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


def _task(points: Results, accuracy: str, epochs: int) -> str:
    digit = points.where(target="digit", score="linear_f1")
    known = {
        at: _at(digit, *at) for at in [(layer, epoch) for layer in (LAST, FIRST) for epoch in (0, epochs)]
    }
    if missing := [f"{layer} at epoch {epoch}" for (layer, epoch), value in known.items() if value is None]:
        return (
            f"The network classifies {accuracy} correctly. The scores of the digit are missing on "
            f"{', '.join(missing)}, so what its layers learned is not known. The notices on the page say why."
        )
    chance = _at(digit, LAST, epochs, "baseline")
    return (
        f"Over {epochs} epochs, the held-out macro F1 of a linear classifier of the digit on the last layer, "
        f"{LAST}, {_change(known[LAST, 0], known[LAST, epochs])}, and on the first layer, {FIRST}, "
        f"{_change(known[FIRST, 0], known[FIRST, epochs])} (chance: {_figure(chance)}). The network itself "
        f"classifies {accuracy} correctly."
    )


def _input_property(points: Results, epochs: int) -> str:
    what = "Whether there is more ink above the middle, which the network was not trained on,"
    ink = points.where(target="ink above the middle", score="linear_f1")
    here, there = _at(ink, FIRST, epochs), _at(ink, LAST, epochs)
    if here is None or there is None:
        missing = " and ".join(layer for layer, value in ((FIRST, here), (LAST, there)) if value is None)
        return f"{what} has no score on {missing} at epoch {epochs}. The notices on the page say why."
    verdict = "lost with depth" if there < here - 0.02 else "kept to the end"
    return (
        f"{what} is predicted with {here:.2f} from {FIRST} and {there:.2f} from {LAST} (baseline "
        f"{_figure(_at(ink, LAST, epochs, 'baseline'))}): this property of the input is {verdict}."
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


def _change(before: float | None, after: float | None) -> str:
    """Return how a figure changed, in words, as far as two decimals show."""
    first, last = _figure(before), _figure(after)
    if first == last:
        return f"stayed at {last}"
    return f"{'rose' if float(last) > float(first) else 'fell'} from {first} to {last}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _at(table: Results, address: str, epoch: float, column: str = "value") -> float | None:
    """Return the value of a layer at an epoch; None if it is missing."""
    values = table.where(address=address, epoch=float(epoch))[column]
    return float(values[0]) if len(values) and not np.isnan(values[0]) else None
