"""What the demo tells at its end: three sentences with figures, out of the scores."""

from __future__ import annotations

import numpy as np

from ..core.results import Results


def sentences(points: Results, units: Results, accuracy: str) -> list[str]:
    """What the layers know of the task, what they keep of the surface, which units answer."""
    return [_learned(points, accuracy), _surface(points), _answers(units)]


def _learned(points: Results, accuracy: str) -> str:
    digit = points.where(target="digit", score="linear_f1")
    first, last = float(digit["epoch"].min()), float(digit["epoch"].max())
    before, after = digit.where(epoch=first), digit.where(epoch=last)
    shallow, deep = _ends(after)
    return (
        f"Over {last:g} epochs a linear classifier of the digit on the last layer, {deep}, rose from "
        f"{_at(before, deep):.2f} to {_at(after, deep):.2f} held-out macro F1, on the first, {shallow}, from "
        f"{_at(before, shallow):.2f} to {_at(after, shallow):.2f} (shuffled labels: "
        f"{_at(after, deep, 'baseline'):.2f}); the network itself is right on {accuracy}."
    )


def _surface(points: Results) -> str:
    ink = points.where(target="ink above the middle", score="linear_f1")
    after = ink.where(epoch=float(ink["epoch"].max()))
    shallow, deep = _ends(after)
    here, there, chance = _at(after, shallow), _at(after, deep), _at(after, deep, "baseline")
    verdict = "fades with depth" if there < here - 0.02 else "is still there at the end"
    return (
        f"Whether there is more ink above the middle, which nobody asked the network, reads {here:.2f} at "
        f"{shallow} and {there:.2f} at {deep} (baseline {chance:.2f}): the surface {verdict}."
    )


def _answers(units: Results) -> str:
    """For each idea the unit that answers best at the last checkpoint, and how it came to."""
    epochs = sorted(set(units["epoch"].tolist()))
    count = len(set(zip(units["address"].tolist(), units["unit"].tolist(), strict=True)))
    parts = [
        _answer(units.where(target=idea), epochs[-1]) for idea in dict.fromkeys(units["target"].tolist())
    ]
    return (
        f"Of {count} units, asked at epochs {', '.join(f'{epoch:g}' for epoch in epochs)} (IoU; in brackets "
        f"the best a shuffled mask gets): {'; '.join(parts)}."
    )


def _answer(units: Results, epoch: float) -> str:
    last = units.where(epoch=epoch)
    best = int(np.nanargmax(last["value"]))
    address, unit, chance = last["address"][best], int(last["unit"][best]), float(last["baseline"][best])
    curve = units.where(address=address, unit=unit)
    values = curve["value"][np.argsort(curve["epoch"])]
    shown = " → ".join("-" if np.isnan(value) else f"{value:.2f}" for value in values)
    return f"{last['target'][0].replace('_', ' ')} {address}[{unit}] {shown} ({chance:.2f})"


def _ends(table: Results) -> tuple[str, str]:
    """The first and the last layer, in the network's order; modules that only hold others aside."""
    names = [name for name in dict.fromkeys(table["address"].tolist()) if name]
    leaves = [name for name in names if not any(other.startswith(f"{name}.") for other in names)]
    return leaves[0], leaves[-1]


def _at(table: Results, address: str, column: str = "value") -> float:
    return float(table.where(address=address)[column][0])
