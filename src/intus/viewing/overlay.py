"""Overlays: the numbers that colour a graph's boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.errors import InputError, did_you_mean
from ..core.graph import Graph
from ..core.results import Results

#: Overlays the page works out by itself, from what the graph knows.
BUILT_IN = ("time", "memory", "parameters", "flops")

#: An overlay that only a trace with gradients has: what autograd keeps for the backward pass, in bytes.
AUTOGRAD = "autograd"

Overlay = str | Mapping[str, float] | Results | None


def paint(overlay: Overlay, *, title: str = "") -> dict[str, Any] | str | None:
    """What the page needs to paint: a built-in overlay's name, or title, values by address, low and high.

    A mapping goes from address to number; Results must hold one score of whole layers, and the latest
    epoch of each address counts. NaN and infinities are missing values, and shown as such. Amounts that span
    more than two decades are coloured by their powers; scores never are (``log`` is False).

    >>> paint({"conv1": 0.5, "fc": float("nan")}, title="mean")
    {'title': 'mean', 'values': {'conv1': 0.5, 'fc': None}, 'low': 0.5, 'high': 0.5}
    """
    if overlay is None:
        return None
    if isinstance(overlay, str):
        if overlay not in BUILT_IN:
            names = (*BUILT_IN, AUTOGRAD, "gradient")
            raise InputError(
                f"overlay={overlay!r} is not a built-in overlay. {did_you_mean(overlay, names)} "
                "Or pass Results, or a dict from address to number."
            )
        return overlay
    is_score = isinstance(overlay, Results)
    if isinstance(overlay, Results):
        title, overlay = title or _score_of(overlay), _latest(overlay)
    if not isinstance(overlay, Mapping):
        raise InputError(
            f"overlay must be a dict from address to number, Results, or one of {', '.join(BUILT_IN)}; "
            f"got {type(overlay).__name__}."
        )
    values = {str(address): _number(address, value) for address, value in overlay.items()}
    known = [value for value in values.values() if value is not None]
    return {
        "title": title or "value",
        "values": values,
        "low": min(known, default=0.0),
        "high": max(known, default=1.0),
        **({"log": False} if is_score else {}),
    }


def kept_by_autograd(graph: Graph) -> dict[str, float]:
    """The bytes that autograd keeps until the backward pass, by operation and by module."""
    noted = graph.facts.get("autograd")
    if noted is None:
        raise InputError(
            "overlay='autograd' needs a trace taken with grads=True: trace(model, x, grads=True)."
        )
    kept: dict[str, float] = {}
    for row in range(len(graph.ops)):
        size = noted.get(str(row), ("", 0))[1]
        modules = {int(graph.calls.module[call]) for call in graph.enclosing_calls(row)}
        for address in (graph.label(row), *(graph.modules[module].address for module in modules)):
            kept[address] = kept.get(address, 0) + size
    return kept


def _number(address: object, value: object) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"overlay[{address!r}] is {value!r}, expected a number or None.") from None
    return number if math.isfinite(number) else None


def _score_of(results: Results) -> str:
    for column in ("score", "target", "kind", "model", "run"):
        several = sorted(set(results[column].tolist()))
        if len(several) > 1:
            shown = ", ".join(map(repr, several[:6])) + (", …" if len(several) > 6 else "")
            raise InputError(
                f"An overlay shows one {column}, and these Results hold {len(several)}: {shown}. "
                f"Pick one with results.where({column}=...)."
            )
    score, target = (results["score"][0], results["target"][0]) if len(results) else ("value", "")
    return f"{score} · {target}" if target else str(score)


def _latest(results: Results) -> dict[str, float]:
    """The last epoch's value of every address, for whole layers."""
    order = np.argsort(np.nan_to_num(results["epoch"], nan=-np.inf), kind="stable")
    return {
        results["address"][row]: float(results["value"][row]) for row in order if results["unit"][row] == -1
    }
