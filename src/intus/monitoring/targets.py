"""Convert targets to plain JSON, and validate them. It is pure."""

from __future__ import annotations

import math
import re
from typing import Any

from ..core.errors import InputError

_MAX_AXES = 8


def plain_labels(name: str, targets: Any) -> list[Any]:
    """Convert labels to rectangular nested lists of ints, floats, strings, bools and None.

    Args:
        name: The name of the target, for error messages.
        targets: A list, numpy array, torch tensor, pandas Series, or anything else with ``tolist``. NaN and
            pandas' missing values become None, which means no label.

    Raises:
        InputError: If the targets are empty, ragged or of another type, or contain no label.

    Example:
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
        raise InputError(f"targets of {name!r} contain no label: all entries (shape {shape}) are missing.")
    return labels


def check_pattern(name: str, pattern: Any) -> str:
    """Validate a regular expression.

    Args:
        name: The name of the argument, for error messages.
        pattern: The caller's value.

    Returns:
        The pattern.

    Raises:
        InputError: If it is not a regular expression.
    """
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InputError(f"{name} must be a regular expression, got {pattern!r}: {error}.") from None
    if not isinstance(pattern, str):
        raise InputError(f"{name} must be a string, got {pattern!r}.")
    return pattern


def _plain(name: str, label: Any, position: tuple[int, ...]) -> Any:
    if hasattr(label, "tolist"):  # a numpy scalar, an array in a list, a tensor
        label = label.tolist()
    if isinstance(label, list | tuple):
        if len(position) >= _MAX_AXES:
            raise InputError(f"targets of {name!r} must be nested at most {_MAX_AXES} lists deep.")
        return [_plain(name, part, (*position, number)) for number, part in enumerate(label)]
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(label, float):
        if math.isinf(label):
            raise InputError(f"targets of {name!r} must be finite, got {label!r} at {_brackets(position)}.")
        return None if math.isnan(label) else float(label)
    if isinstance(label, bool | int | str):
        return label
    raise InputError(
        f"targets of {name!r} must be int, float, str or bool, or None for no label, got {label!r} of type "
        f"{type(label).__name__} at {_brackets(position)}."
    )


def _shape(name: str, labels: list[Any]) -> tuple[int, ...]:
    """Return the shape of nested lists; InputError names the rows if they are ragged."""
    parts = [_shape(name, part) if isinstance(part, list) else () for part in labels]
    for row, part in enumerate(parts):
        if part != parts[0]:
            raise InputError(
                f"targets of {name!r} are ragged: entry 0 has shape {parts[0]}, entry {row} has {part}. "
                "Pad the shorter ones with None, which means no label."
            )
    return (len(labels), *(parts[0] if parts else ()))


def _any_label(labels: list[Any]) -> bool:
    return any(_any_label(part) if isinstance(part, list) else part is not None for part in labels)


def _brackets(position: tuple[int, ...]) -> str:
    return "".join(f"[{number}]" for number in position)
