"""Put examples and a verification of a unit in the form that is stored and shown on the page."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from ...core.errors import InputError
from ...core.followup import UnitExample, UnitExamples
from ...core.png import data_url
from ..alignment.align import covers
from ..plan import Plan
from .unit_over import UnitOver, is_binary, nearest, picture, unit_over
from .unit_reader import UnitReader
from .unit_row import UnitRow

#: The most examples of each kind that are stored.
MOST = 10
_AROUND = 80  # symbols on either side of the chosen one
_LONGEST = 60  # characters of a symbol or a label
_PIXELS = 96  # the width or height of a stored picture
_OPACITY = 200  # of 255, where the behavior is largest
_POSITIVE, _NEGATIVE = (255, 106, 0), (0, 120, 255)
_WHITE, _BLACK = (255, 255, 255, 255), (0, 0, 0, 255)


def check_count(k: int) -> None:
    """Raise InputError if so many examples of each kind are not stored."""
    if k > MOST:
        raise InputError(
            f"k={k!r} with store=True: at most {MOST} examples of each kind are stored. Pass a smaller k, or "
            "leave out store=True."
        )


def stored_examples(plan: Plan, row: UnitRow, found: pd.DataFrame) -> tuple[str, UnitExamples]:
    """Return the name of the model, and the examples that were found with the behavior over their records.

    Args:
        plan: The plan of the table.
        row: The unit and the hypothesis.
        found: The examples, as ``Inspection.examples`` returns them.
    """
    reader = UnitReader(plan, row)
    over = {record: unit_over(reader, record) for record in found.record.unique().tolist()}
    shades = [np.ravel(one.values) for one in over.values() if one.values is not None]
    sizes = np.abs(np.concatenate([*shades, found.behavior.to_numpy(float)]))
    largest = float(sizes[np.isfinite(sizes)].max(initial=0))
    binary = all(is_binary(one.labels) for one in over.values())
    examples = [_example(one, over[one.record], largest or 1, binary) for one in found.itertuples()]
    outlined = binary and any(_is_outlined(one) for one in over.values())
    legend = _legend(np.concatenate([*shades, np.zeros(0)]), largest, examples, outlined)
    return reader.name, UnitExamples(examples, largest, legend)


def _legend(shades: np.ndarray, largest: float, examples: list[UnitExample], outlined: bool) -> str:
    """Return what the colors and marks of examples mean."""
    means = {
        f"orange: up to {largest:.3g}": bool((shades > 0).any()),
        f"blue: down to −{largest:.3g}": bool((shades < 0).any()),
        "boxed: the symbol of the value": any(one.at is not None for one in examples),
        "underlined: the hypothesis holds": any(one.holds for one in examples),
        "outlined: the hypothesis holds": outlined,
    }
    return ", ".join(text for text, applies in means.items() if applies)


def _example(row: Any, over: UnitOver, largest: float, binary: bool) -> UnitExample:
    behavior = float(row.behavior) if math.isfinite(row.behavior) else None
    about = str(row.kind), int(row.record), behavior, _text(row.label)
    if over.size:
        return UnitExample(*about, [], "", [], [], None, (False, False), *_pictures(over, largest, binary))
    symbols = [_text(one).replace("\n", "↵").replace("\t", "⇥") for one in over.symbols or ()]
    at = int(row.position) if _is_number(row.position) and row.position < len(symbols) else None
    start, stop = (0, 2 * _AROUND) if at is None else (max(0, at - _AROUND), at + _AROUND + 1)
    shades = np.zeros(0) if over.values is None else over.values / largest
    percent = np.nan_to_num(100 * shades, posinf=0, neginf=0).round().astype(int)
    of_symbols = over.labels.ndim == 1
    holds = (over.labels == 1).tolist() if of_symbols and binary else []
    labels = [_text(one) for one in over.labels[start:stop]] if of_symbols and not binary else []
    gap = "" if isinstance(over.shown, str) and len(over.shown) == len(symbols) else " "
    return UnitExample(
        *about,
        symbols[start:stop],
        gap,
        percent[start:stop].tolist(),
        holds[start:stop],
        None if at is None else at - start,
        (start > 0, stop < len(symbols)),
        "",
        "",
        labels,
    )


def _pictures(over: UnitOver, largest: float, binary: bool) -> tuple[str, str]:
    """Return an image, and the behavior with the outline of the hypothesis over it, as ``data:`` URLs."""
    longest = max(over.size)
    step, times = -(-longest // _PIXELS), max(1, _PIXELS // longest)

    def scaled(pixels: np.ndarray) -> np.ndarray:
        return pixels[::step, ::step].repeat(times, axis=0).repeat(times, axis=1)

    image = scaled(np.nan_to_num(picture(over.shown, over.size)))
    image = image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2)
    below = data_url((255 * image).round().astype(np.uint8))
    outlined = binary and _is_outlined(over)
    if over.values is None and not outlined:
        return below, ""
    values = np.zeros(over.size) if over.values is None else np.nan_to_num(over.values / largest)
    shade = scaled(values)[..., None]
    above = np.concatenate([np.where(shade > 0, _POSITIVE, _NEGATIVE), _OPACITY * np.abs(shade)], axis=2)
    if outlined:
        mask = scaled(nearest(over.labels == 1, over.size))
        above[_edge(mask)], above[_edge(~mask) & ~mask] = _WHITE, _BLACK
    return below, data_url(above.clip(0, 255).round().astype(np.uint8))


def _is_outlined(over: UnitOver) -> bool:
    """Return whether a record is an image, and the labels are of its pixels."""
    return len(over.size) == over.labels.ndim == 2 and covers(over.labels.shape, over.size)


def _edge(mask: np.ndarray) -> np.ndarray:
    """Return the pixels of a mask beside pixels outside of it; the border of the image is no edge."""
    wide = np.pad(mask, 1, mode="edge")
    inside = wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]
    return np.asarray(mask & ~inside)


def _is_number(position: Any) -> bool:
    return isinstance(position, int | float | np.number) and position == position


def _text(value: Any) -> str:
    """Return a symbol or label as text that any database can store."""
    value = value.item() if isinstance(value, np.generic) else value
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
