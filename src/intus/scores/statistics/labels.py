"""Encode labels of any type as class codes, and as floats where they are numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from ...core.errors import InputError

MISSING = -1  #: the code of a row without a label
MOST = 1000  #: a target with more distinct labels is not treated as classes
CODE = np.int16  #: the type of codes


class Classes:
    """The distinct labels of one target, numbered in order of first appearance.

    Labels are ints, floats, strings or bools; None and NaN mean "no label".

    Attributes:
        overflowed: Whether there were more than MOST distinct labels. Further ones are encoded as MISSING.
    """

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self.overflowed = False

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def are_measured(self) -> bool:
        """True if the labels are measurements: numbers that are not whole, or more than 50 distinct ones."""
        if any(isinstance(value, str | bool) for value in self._codes):
            return False
        return len(self._codes) > 50 or any(value != int(value) for value in self._codes)  # type: ignore[call-overload]

    def encode(self, labels: np.ndarray) -> np.ndarray:
        """Return the codes (rows,) of labels (rows,), int16, MISSING for rows without a label."""
        if labels.dtype == bool:
            first = MISSING if labels.all() else self._code(False)
            second = self._code(True) if labels.any() else MISSING
            return np.asarray(labels * CODE(second - first) + CODE(first))
        if labels.dtype == object:
            values = [None if _is_null(value) else _plain(value) for value in labels.tolist()]
            return np.array([self._code(value) for value in values], dtype=CODE)
        distinct, inverse = np.unique(labels, return_inverse=True)
        codes = [MISSING if _is_null(value) else self._code(value) for value in distinct.tolist()]
        return np.array(codes, dtype=CODE)[inverse.reshape(-1)]

    def _code(self, value: Hashable) -> int:
        if value is None:
            return MISSING
        if value not in self._codes:
            if len(self._codes) == MOST:
                self.overflowed = True
                return MISSING
            self._codes[value] = len(self._codes)
        return self._codes[value]

    def absorb(self, other: Classes) -> np.ndarray:
        """Add the labels of ``other`` and return the code here of each of its codes.

        The last entry is MISSING, so that indexing with a missing code (-1) gives MISSING.
        """
        codes = [self._code(value) for value in other._codes]
        self.overflowed |= other.overflowed
        return np.array([*codes, MISSING], dtype=np.int64)

    def names(self) -> list[Any]:
        """Return the labels, sorted: numbers before strings."""
        return sorted(self._codes, key=lambda value: (isinstance(value, str), value))

    def order(self) -> np.ndarray:
        """Return the codes sorted by their labels, so that results do not depend on the order of arrival."""
        return np.array([self._codes[value] for value in self.names()], dtype=np.int64)


def columns(labels: Any, rows: int) -> dict[str, np.ndarray]:
    """Convert labels to ``{target: array of shape (rows,)}``.

    Args:
        labels: A mapping from target to labels, which keeps its names; one column, which is named
            ``"target"``; a matrix (rows, targets), whose columns are named ``"0"``, ``"1"`` …; or None.
        rows: The number of rows.

    Raises:
        InputError: If a column does not have one label per row.
    """
    if labels is None:
        return {}
    if isinstance(labels, Mapping):
        out = {str(name): _column(values) for name, values in labels.items()}
    else:
        matrix = _column(labels)
        if matrix.ndim <= 1:
            out = {"target": matrix}
        else:
            out = {str(number): matrix[:, number] for number in range(matrix.shape[1])}
    for name, column in out.items():
        if column.shape != (rows,):
            raise InputError(
                f"The labels {name!r} have shape {column.shape}, but there are {rows} rows of behaviours; "
                "give one label per row, None where there is none."
            )
    return out


def numbers(column: np.ndarray) -> np.ndarray | None:
    """Return the column as float64 with NaN for missing labels, or None if the labels are not numbers."""
    if column.dtype.kind in "fiub":
        return column.astype(np.float64)
    if column.dtype == object and not any(isinstance(value, str) for value in column):
        try:
            return np.array([np.nan if value is None else value for value in column], dtype=np.float64)
        except (TypeError, ValueError):
            return None
    return None


def _column(values: Any) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values
    values = list(values) if not hasattr(values, "__array__") else np.asarray(values)
    if isinstance(values, np.ndarray):
        return values
    mixed = any(value is None for value in values) or len({isinstance(value, str) for value in values}) > 1
    return np.array(values, dtype=object) if mixed else np.asarray(values)


def _plain(value: Any) -> Hashable:
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, Hashable):
        raise InputError(f"A label must be a number, a string or a bool, got {plain!r}.")
    return plain


def _is_null(value: Any) -> bool:
    return value is None or value != value
