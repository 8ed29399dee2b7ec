"""Overlays: the numbers that colour a graph's boxes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.errors import InputError, did_you_mean
from ..core.graph import Graph
from ..core.results import COLUMNS, Results

#: Overlays the page works out by itself, from what the graph knows.
BUILT_IN = ("time", "memory", "parameters", "flops")

#: An overlay that only a trace with gradients has: what autograd keeps for the backward pass, in bytes.
AUTOGRAD = "autograd"

#: Overlays of what was saved: a figure of each value.
OF_VALUES = {
    "mean": "Mean of values",
    "std": "Spread of values",
    "zero": "Share of zeros",
    "nan": "NaN and infinite",
}

#: A name; a mapping from address to number, or a pandas Series; Results, or their DataFrame; None.
Overlay = str | Mapping[str, float] | Results | Any | None


class Column(dict[str, float]):
    """Numbers by address, with what they are."""

    def __init__(self, name: str, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self.name = name


def paint(overlay: Overlay, *, title: str = "") -> dict[str, Any] | str | None:
    """What the page needs to paint: a built-in overlay's name, or title, values by address, low and high.

    A mapping, or a pandas Series, goes from address to number; Results, or their DataFrame, must hold one
    score of whole layers, and the latest epoch of each address counts. NaN and infinities are missing values,
    and shown as such. Amounts that span more than two decades are coloured by their powers; scores never are
    (``log`` is False).

    >>> paint({"conv1": 0.5, "fc": float("nan")}, title="mean")
    {'title': 'mean', 'values': {'conv1': 0.5, 'fc': None}, 'low': 0.5, 'high': 0.5}
    """
    if overlay is None:
        return None
    if isinstance(overlay, str):
        if overlay not in BUILT_IN and overlay not in OF_VALUES:
            names = (*BUILT_IN, *OF_VALUES, AUTOGRAD, "gradient")
            raise InputError(
                f"overlay={overlay!r} is not a built-in overlay. {did_you_mean(overlay, names)} "
                "Or pass Results, or a dict from address to number."
            )
        return overlay
    overlay = _plain(overlay)
    is_score = isinstance(overlay, Results)
    if isinstance(overlay, Results):
        title, overlay = title or _score_of(overlay), _latest(overlay)
    if not isinstance(overlay, Mapping):
        raise InputError(
            f"overlay must be a dict or Series from address to number, Results, or one of "
            f"{', '.join((*BUILT_IN, *OF_VALUES))}; got {type(overlay).__name__}."
        )
    title = title or str(getattr(overlay, "name", ""))
    values = {str(address): _number(address, value) for address, value in overlay.items()}
    known = [value for value in values.values() if value is not None]
    return {
        "title": title or "value",
        "values": values,
        "low": min(known, default=0.0),
        "high": max(known, default=1.0),
        **({"log": False} if is_score else {}),
    }


def _plain(overlay: Any) -> Any:
    """A pandas Series as a Column, a DataFrame as Results; anything else as it is."""
    if isinstance(overlay, Mapping | Results):
        return overlay
    if hasattr(overlay, "columns"):
        lacking = {"address", "value"} - set(overlay.columns)
        if lacking:
            raise InputError(
                f"overlay is a DataFrame without the column {min(lacking)!r}. It takes what intus.inspect "
                "gives; of any other, pass one column: frame.set_index('address')['accuracy']."
            )
        return Results({name: overlay[name].to_numpy() for name in COLUMNS if name in overlay.columns})
    if hasattr(overlay, "index") and hasattr(overlay, "items"):
        wrong = next((key for key in overlay.index if not isinstance(key, str)), None)
        if wrong is not None:
            raise InputError(
                f"overlay is a Series over {wrong!r}, not over addresses. "
                "Take frame.set_index('address')['value'], or a groupby('address')."
            )
        return Column(overlay.name or "", dict(overlay.items()))
    return overlay


def to_save(overlay: Overlay) -> str:
    """What ``trace`` is to save for an overlay: ``"all"`` or ``"none"``."""
    return "all" if needs_values(overlay) else "none"


def needs_values(overlay: Overlay) -> bool:
    """Whether an overlay colours by what was saved."""
    return isinstance(overlay, str) and overlay in OF_VALUES


def must_know(graph: Graph, painted: Mapping[str, Any]) -> None:
    """Raise InputError where nothing in the graph answers to any of a paint's addresses."""
    wanted = painted["values"]
    known = {*graph.names(), *(module.address for module in graph.modules)}
    known |= {re.sub(r":\d+$", "", name) for name in known}
    if wanted and not any(address in known for address in wanted):
        first = next(iter(wanted))
        raise InputError(f"overlay: nothing in this graph is called {first!r}. {did_you_mean(first, known)}")


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
    if len(results) and not (results["unit"] == -1).any():
        raise InputError(
            "An overlay shows whole layers, and these Results score units. Make one number of each layer's: "
            "frame.groupby('address')['value'].max()."
        )
    order = np.argsort(np.nan_to_num(results["epoch"], nan=-np.inf), kind="stable")
    return {
        results["address"][row]: float(results["value"][row]) for row in order if results["unit"][row] == -1
    }
