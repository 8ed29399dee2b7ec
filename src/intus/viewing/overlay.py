"""Check overlays and turn them into paints: the numbers that color a graph's boxes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.errors import InputError, did_you_mean
from ..core.graph import Graph
from ..core.results import COLUMNS, Results

#: Overlays that the page computes from the graph itself.
BUILT_IN = ("time", "memory", "parameters", "flops")

#: The overlay of the bytes that autograd keeps for the backward pass; needs a trace with gradients.
AUTOGRAD = "autograd"

#: Overlays computed from saved activations, with their titles (`paint.ts` has the same).
OF_VALUES = {
    "mean": "Mean of values",
    "std": "Standard deviation",
    "zero": "Fraction of zeros",
    "nan": "NaN and infinite",
}

#: What a caller may pass as `overlay=`; see `paint`.
Overlay = str | Mapping[str, float] | Results | Any | None


class Column(dict[str, float]):
    """A mapping from address to number, with a name that titles the legend."""

    def __init__(self, name: str, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self.name = name


def paint(overlay: Overlay, *, title: str = "") -> dict[str, Any] | str | None:
    """Return what the page needs to color the boxes.

    Except for scores, the page uses a logarithmic scale if no value is negative and the positive ones span
    more than two orders of magnitude.

    Args:
        overlay: One of:

            - the name of a built-in overlay: a key of ``BUILT_IN`` or ``OF_VALUES``;
            - a mapping or a pandas Series from address to number; None, NaN and infinity mean a missing
              value;
            - ``Results``, or the DataFrame of ``intus.inspect``, with one score of whole layers (``unit`` is
              -1); the latest epoch of each address counts;
            - None for no overlay.
        title: The title of the legend. Default: the name of the Series or of the score.

    Returns:
        None for None; the name of a built-in overlay unchanged; otherwise a dict with ``title``, ``values``
        (by address, None where missing), ``low`` and ``high`` (the ends of the scale) and, for scores,
        ``log=False`` (never a logarithmic scale).

    Raises:
        InputError: ``overlay`` is none of these, or has several scores, targets, kinds, models or runs.

    Example:
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
    """Convert a pandas Series to a Column and a DataFrame to Results; return anything else unchanged."""
    if isinstance(overlay, Mapping | Results):
        return overlay
    if hasattr(overlay, "columns"):
        missing = {"address", "value"} - set(overlay.columns)
        if missing:
            raise InputError(
                f"overlay is a DataFrame without the column {min(missing)!r}. Pass the result of "
                "intus.inspect, or one column of another DataFrame: frame.set_index('address')['accuracy']."
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
    """Return the ``save`` option that ``trace`` needs for an overlay: ``"all"`` or ``"none"``."""
    return "all" if needs_values(overlay) else "none"


def needs_values(overlay: Overlay) -> bool:
    """Return whether an overlay colors by saved activations."""
    return isinstance(overlay, str) and overlay in OF_VALUES


def must_know(graph: Graph, painted: Mapping[str, Any]) -> None:
    """Raise InputError if none of a paint's addresses names anything in the graph."""
    values = painted["values"]
    known = {*graph.names(), *(module.address for module in graph.modules)}
    known |= {re.sub(r":\d+$", "", name) for name in known}
    if values and not any(address in known for address in values):
        first = next(iter(values))
        raise InputError(f"overlay: nothing in this graph is called {first!r}. {did_you_mean(first, known)}")


def kept_by_autograd(graph: Graph) -> dict[str, float]:
    """Return the bytes that autograd keeps for the backward pass, by operation and by module.

    Raises:
        InputError: The trace was taken without ``grads=True``.
    """
    recorded = graph.facts.get("autograd")
    if recorded is None:
        raise InputError(
            "overlay='autograd' needs a trace taken with grads=True: trace(model, x, grads=True)."
        )
    kept: dict[str, float] = {}
    for row in range(len(graph.ops)):
        size = recorded.get(str(row), ("", 0))[1]
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
    """Return the title of the one score in some Results, or raise InputError if there are several."""
    for column in ("score", "target", "kind", "model", "run"):
        several = sorted(set(results[column].tolist()))
        if len(several) > 1:
            shown = ", ".join(map(repr, several[:6])) + (", …" if len(several) > 6 else "")
            raise InputError(
                f"An overlay shows one {column}, and these Results contain {len(several)}: {shown}. "
                f"Pick one with results.where({column}=...)."
            )
    score, target = (results["score"][0], results["target"][0]) if len(results) else ("value", "")
    return f"{score} · {target}" if target else str(score)


def _latest(results: Results) -> dict[str, float]:
    """Return the value of each address in its latest epoch, for scores of whole layers."""
    if len(results) and not (results["unit"] == -1).any():
        raise InputError(
            "An overlay shows whole layers, and these Results score units. Aggregate them per layer first: "
            "frame.groupby('address')['value'].max()."
        )
    order = np.argsort(np.nan_to_num(results["epoch"], nan=-np.inf), kind="stable")
    return {
        results["address"][row]: float(results["value"][row]) for row in order if results["unit"][row] == -1
    }
