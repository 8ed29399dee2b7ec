"""Mark spans of symbols: all of their symbols, or the first and the last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core.errors import InputError

ENCODINGS = ("inside", "boundary")


def check_encoding(encoding: str, what: str) -> None:
    """Raise InputError if an encoding is unknown; ``what`` names the hypothesis."""
    if encoding not in ENCODINGS:
        raise InputError(f"encoding={encoding!r} of {what} must be 'inside' or 'boundary'.")


def mark(row: np.ndarray, spans: Iterable[tuple[int, int]], encoding: str) -> np.ndarray:
    """Set the symbols of spans to 1, and return the row.

    Args:
        row: The labels of the symbols, (symbols,).
        spans: The first symbol of each span, and the one after its last.
        encoding: ``"inside"`` for all symbols of a span, ``"boundary"`` for its first and last.

    Example:
        >>> mark(np.zeros(6, int), [(1, 5)], "boundary").tolist()
        [0, 1, 0, 0, 1, 0]
    """
    for first, end in spans:
        if first >= end:
            continue
        if encoding == "inside":
            row[first:end] = 1
        else:
            row[[first, end - 1]] = 1
    return row


def text_of(record: Any, what: str) -> str:
    """Return a record that is text; raises InputError if it is not."""
    if not isinstance(record, str):
        raise InputError(
            f"{what} reads text, but the record is a {type(record).__name__}. Pass strings as data."
        )
    return record
