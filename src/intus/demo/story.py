"""What the demo tells at its end: three sentences with figures, out of the scores."""

from __future__ import annotations

import numpy as np

from ..core.results import Results


def sentences(points: Results, units: Results, accuracy: str) -> list[str]:
    """What the layers know of the task, what they keep of the surface, which unit answers."""
    return [_learned(points, accuracy), _surface(points), _unit(units)]


def _learned(points: Results, accuracy: str) -> str:
    digit = points.where(target="digit", score="linear_f1")
    first, last = float(digit["epoch"].min()), float(digit["epoch"].max())
    before, after = digit.where(epoch=first), digit.where(epoch=last)
    deep = _names(after)[-1]
    best = int(np.nanargmax(after["value"]))
    return (
        f"From the untrained network to epoch {last:g} a linear probe of the digit on the last layer "
        f"({deep}) rose from {_at(before, deep):.2f} to {_at(after, deep):.2f} macro F1 (baseline "
        f"{_at(after, deep, 'baseline'):.2f}), best at {after['address'][best] or 'the output'} with "
        f"{after['value'][best]:.2f}; the network itself is right on {accuracy}."
    )


def _surface(points: Results) -> str:
    ink = points.where(target="ink above the middle", score="linear_f1")
    after = ink.where(epoch=float(ink["epoch"].max()))
    names = _names(after)
    first, last = names[0], names[-1]
    return (
        f"Whether there is more ink above the middle, which the task never asked, is readable at {first} "
        f"with {_at(after, first):.2f} and at {last} still with {_at(after, last):.2f} (baseline "
        f"{_at(after, last, 'baseline'):.2f}): what the network does not need fades with depth."
    )


def _unit(units: Results) -> str:
    if not len(units):
        return "No unit could be asked about the stroke's upper loop."
    last = units.where(epoch=float(units["epoch"].max()))
    best = int(np.nanargmax(last["value"]))
    address, unit = last["address"][best], int(last["unit"][best])
    curve = units.where(address=address, unit=unit)
    values = " → ".join(f"{v:.2f}" for v in curve["value"][np.argsort(curve["epoch"])])
    epochs = ", ".join(f"{epoch:g}" for epoch in sorted(set(units["epoch"].tolist())))
    return (
        f"Of {len(last)} units, unit {unit} of {address} answers best to the stroke's upper loop: IoU "
        f"{values} at the checkpoints of epochs {epochs} (chance {last['baseline'][best]:.2f})."
    )


def _names(table: Results) -> list[str]:
    """Addresses in the order they were stored, which is the network's, the whole model aside."""
    return list(dict.fromkeys(address for address in table["address"].tolist() if address))


def _at(table: Results, address: str, column: str = "value") -> float:
    return float(table.where(address=address)[column][0])
