"""The demo's summary: three sentences with figures from the scores."""

from __future__ import annotations

import numpy as np

from ..core.results import Results


def sentences(points: Results, units: Results, accuracy: str) -> list[str]:
    """Return three sentences: on the task, on a property of the input, and on units that match hypotheses.

    Args:
        points: The scores of layers.
        units: The scores of units.
        accuracy: The accuracy of the network, in words.
    """
    return [_task(points, accuracy), _input_property(points), _responses(units)]


def _task(points: Results, accuracy: str) -> str:
    digit = points.where(target="digit", score="linear_f1")
    first, last = float(digit["epoch"].min()), float(digit["epoch"].max())
    before, after = digit.where(epoch=first), digit.where(epoch=last)
    shallow, deep = _ends(after)
    return (
        f"Over {last:g} epochs, the held-out macro F1 of a linear classifier of the digit on the last layer, "
        f"{deep}, rose from {_at(before, deep):.2f} to {_at(after, deep):.2f}, and on the first layer, "
        f"{shallow}, from {_at(before, shallow):.2f} to {_at(after, shallow):.2f} (chance: "
        f"{_at(after, deep, 'baseline'):.2f}). The network itself classifies {accuracy} correctly."
    )


def _input_property(points: Results) -> str:
    ink = points.where(target="ink above the middle", score="linear_f1")
    after = ink.where(epoch=float(ink["epoch"].max()))
    shallow, deep = _ends(after)
    here, there, chance = _at(after, shallow), _at(after, deep), _at(after, deep, "baseline")
    verdict = "lost with depth" if there < here - 0.02 else "kept to the end"
    return (
        "Whether there is more ink above the middle, which the network was not trained on, is predicted with "
        f"{here:.2f} from {shallow} and {there:.2f} from {deep} (baseline {chance:.2f}): this property of "
        f"the input is {verdict}."
    )


def _responses(units: Results) -> str:
    """Return, for each hypothesis, the unit with the best score at the last checkpoint."""
    epochs = sorted(set(units["epoch"].tolist()))
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


def _ends(table: Results) -> tuple[str, str]:
    """Return the first and the last layer in the order of the network, leaving out containers."""
    names = [name for name in dict.fromkeys(table["address"].tolist()) if name]
    leaves = [name for name in names if not any(other.startswith(f"{name}.") for other in names)]
    return leaves[0], leaves[-1]


def _at(table: Results, address: str, column: str = "value") -> float:
    return float(table.where(address=address)[column][0])
