"""Targets: what the rows are labelled with, as plain JSON. Pure."""

from __future__ import annotations

import math
import re
from typing import Any

from ..core.errors import InputError

_MOST_AXES = 8


def plain_labels(name: str, targets: Any) -> list[Any]:
    """Labels as nested lists of ints, floats, strings, bools and None, rectangular.

    Takes lists, numpy arrays, torch tensors and pandas Series (anything with ``tolist``). NaN and pandas'
    missing values become None: no label. Raises InputError for anything empty, ragged or of another kind,
    and where not one label is left.

    >>> plain_labels("pos", [["N", "V"], ["V", float("nan")]])
    [['N', 'V'], ['V', None]]
    """
    given = targets.tolist() if hasattr(targets, "tolist") else targets
    if not isinstance(given, list | tuple):
        raise InputError(
            f"targets of {name!r} must be a list or an array of labels, got {type(targets).__name__}."
        )
    labels: list[Any] = [_plain(name, label, (row,)) for row, label in enumerate(given)]
    shape = _shape(name, labels)
    if 0 in shape:
        raise InputError(f"targets of {name!r} are empty: shape {shape}. Give one label per row.")
    if not _any_label(labels):
        raise InputError(f"targets of {name!r} hold no label: every one of shape {shape} is missing.")
    return labels


def check_pattern(name: str, pattern: Any) -> str:
    """A regular expression the caller wrote; raises InputError when it is none."""
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InputError(f"{name}={pattern!r} is not a regular expression: {error}.") from None
    if not isinstance(pattern, str):
        raise InputError(f"{name}={pattern!r} must be text.")
    return pattern


def _plain(name: str, label: Any, place: tuple[int, ...]) -> Any:
    if hasattr(label, "tolist"):  # a numpy scalar, an array in a list, a tensor
        label = label.tolist()
    if isinstance(label, list | tuple):
        if len(place) >= _MOST_AXES:
            raise InputError(f"targets of {name!r} are nested deeper than {_MOST_AXES} lists.")
        return [_plain(name, part, (*place, number)) for number, part in enumerate(label)]
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(label, float):
        if math.isinf(label):
            raise InputError(f"targets of {name!r} at {_at(place)} are {label!r}, which is no label.")
        return None if math.isnan(label) else float(label)
    if isinstance(label, bool | int | str):
        return label
    raise InputError(
        f"targets of {name!r} at {_at(place)} are {label!r} of type {type(label).__name__}. A label is an "
        "int, a float, a string or a bool; None stands for no label."
    )


def _shape(name: str, labels: list[Any]) -> tuple[int, ...]:
    """Shape of nested lists; raises InputError, naming the rows, where they are ragged."""
    parts = [_shape(name, part) if isinstance(part, list) else () for part in labels]
    for row, part in enumerate(parts):
        if part != parts[0]:
            raise InputError(
                f"targets of {name!r} are ragged: entry 0 has shape {parts[0]}, entry {row} has {part}. "
                "Pad the shorter ones with None, which stands for no label."
            )
    return (len(labels), *(parts[0] if parts else ()))


def _any_label(labels: list[Any]) -> bool:
    return any(_any_label(part) if isinstance(part, list) else part is not None for part in labels)


def _at(place: tuple[int, ...]) -> str:
    return "".join(f"[{number}]" for number in place)
