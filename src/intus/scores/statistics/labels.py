"""Encode labels of any type as class codes, and as floats where they are numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from ...core.errors import InputError

MISSING = -1  #: the code of a row without a label
MOST = 1000  #: a target with more distinct labels is not treated as classes
CODE = np.int16  #: the type of codes
IGNORED = -100  #: the class that PyTorch's losses ignore
#: Labels longer than this are kept as Python strings: an array of fixed width would take 4 bytes for each
#: character of the longest.
_WIDEST = 32


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
        """True if the labels may be measurements: numbers that are not whole, or more than 50 whole ones.

        The latter may be numbered classes just as well.
        """
        return self._are_numbers and (len(self._codes) > 50 or self.are_fractional)

    @property
    def are_fractional(self) -> bool:
        """True if the labels are numbers, and some are not whole."""
        return self._are_numbers and any(value % 1 != 0 for value in self._codes)  # type: ignore[operator]

    @property
    def _are_numbers(self) -> bool:
        return not any(isinstance(value, str | bool) for value in self._codes)

    def encode(self, labels: np.ndarray) -> np.ndarray:
        """Return the codes (rows,) of labels (rows,), int16, MISSING for rows without a label."""
        if labels.dtype == bool:
            first = MISSING if labels.all() else self._code(False)
            second = self._code(True) if labels.any() else MISSING
            return np.asarray(labels * CODE(second - first) + CODE(first))
        if labels.dtype == object:
            values = labels.tolist()
            found = {
                value: MISSING if _is_null(value) else self._code(_plain(value)) for value in _once(values)
            }
            return np.fromiter(map(found.__getitem__, values), CODE, len(values))
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

    def in_order(self) -> list[Any]:
        """Return the labels in the order of their codes."""
        return list(self._codes)

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
    values = column.tolist()
    if column.dtype != object or any(issubclass(kind, str) for kind in set(map(type, values))):
        return None
    try:
        return np.array(values, dtype=np.float64)  # None is NaN
    except (TypeError, ValueError):
        return None


def _column(values: Any) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values
    values = list(values) if not hasattr(values, "__array__") else np.asarray(values)
    if isinstance(values, np.ndarray):
        return values
    mixed = any(value is None for value in values) or len({isinstance(value, str) for value in values}) > 1
    return np.array(values, dtype=object) if mixed else np.asarray(values)


def _once(values: list[Any]) -> Iterable[Hashable]:
    """Return each of the values once, in order of first appearance; raises InputError if one is no label."""
    try:
        return dict.fromkeys(values)
    except TypeError:
        wrong = next(value for value in values if not isinstance(value, Hashable))
        raise InputError(f"A label must be a number, a string or a bool, got {wrong!r}.") from None


def _plain(value: Any) -> Hashable:
    """Return a label as Python's own number or string."""
    plain: Hashable = value.item() if isinstance(value, np.generic) else value
    return plain


def _is_null(value: Any) -> bool:
    return value is None or value != value


# -- registered labels --------------------------------------------------------------------------------


def label_array(name: str, labels: list[Any]) -> np.ndarray:
    """Return registered labels as an array, (items,), or (items, positions) for lists; None for no label.

    Raises:
        InputError: If some are lists and others are not.
    """
    nested = any(isinstance(label, list) for label in labels)
    return without_ignored(label_table(name, labels) if nested else label_column(labels))


def label_table(name: str, labels: Iterable[Any]) -> np.ndarray:
    """Return lists of labels as a rectangle, with None where an item has no such position."""
    rows = [[] if row is None else row for row in labels]
    if not all(isinstance(row, list) for row in rows):
        raise InputError(
            f"The target {name!r} mixes single labels with lists of labels. Use one or the other."
        )
    table = np.full((len(rows), max(map(len, rows))), None, dtype=object)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def label_column(labels: list[Any]) -> np.ndarray:
    """Return labels as an array of their own type if they have one, which is much faster to work with."""
    kinds = set(map(type, labels))
    if kinds in ({int}, {float}, {bool}) or (kinds == {str} and max(map(len, labels)) <= _WIDEST):
        typed = np.array(labels)
        if typed.dtype.kind in "ifUb":
            return typed
    return np.array(labels, dtype=object)


def without_ignored(labels: np.ndarray) -> np.ndarray:
    """Replace -100 by None among classes numbered from 0: PyTorch's losses ignore that class.

    The numbers may be floats, as those of a column of pandas in which some are missing.
    """
    if labels.dtype.kind in "Ub":
        return labels
    present = labels.ravel().tolist() if labels.dtype == object else np.unique(labels).tolist()
    found = {label for label in present if label is not None}
    numbered = all(_is_whole(label) and (label >= 0 or label == IGNORED) for label in found)
    if IGNORED not in found or not numbered:
        return labels
    labels = labels.astype(object)
    labels[labels == IGNORED] = None
    return labels


def _is_whole(label: Any) -> bool:
    return type(label) is int or (type(label) is float and label.is_integer())


def id_table(
    name: str, what: str, given: list[Any] | None, labels: np.ndarray, per_position: bool
) -> np.ndarray | None:
    """Return ids as int64, equal for equal ids; raises InputError if they do not fit the labels.

    Types have the shape of the labels, and may be None where there is no label. Strings are numbered.
    """
    if given is None:
        return None
    if len(given) != len(labels) or (list in set(map(type, given))) != per_position:
        each = "label" if what == "types" else "item"
        raise InputError(
            f"The target {name!r} has labels of shape {labels.shape}, but {len(given)} {what}, "
            f"{'lists of ids' if list in set(map(type, given)) else 'single ids'}. Give one for each {each}."
        )
    table = label_table(name, given) if per_position else np.array(given, dtype=object)
    if per_position and table.shape[1] > labels.shape[1]:
        raise InputError(
            f"The target {name!r} has labels for {labels.shape[1]} positions, but types for "
            f"{table.shape[1]}. Give one for each label."
        )
    table = as_wide(table, labels.shape[1], None) if per_position else table
    known = _present(table)
    missing = ~known & (_present(labels) if what == "types" else True)
    if missing.any():
        where = [int(number) for number in np.argwhere(missing)[0]]
        raise InputError(f"The target {name!r} has no id in {what} at {where}. Give one.")
    ids, present = np.full(table.shape, -1, np.int64), table[known].tolist()
    if all(type(one) is int and -(2**63) <= one < 2**63 for one in present):
        ids[known] = np.array(present, np.int64)
    else:
        texts = np.array([f"{type(one).__name__}:{one}" for one in present])
        ids[known] = np.unique(texts, return_inverse=True)[1]
    return ids


def as_wide(table: np.ndarray, width: int, missing: Any) -> np.ndarray:
    """Return (rows, positions) cut or padded to ``width`` positions."""
    out = np.full((len(table), width), missing, dtype=table.dtype)
    kept = min(width, table.shape[1])
    out[:, :kept] = table[:, :kept]
    return out


def _present(table: np.ndarray) -> np.ndarray:
    """Return True where an entry is not None."""
    return np.array([entry is not None for entry in table.ravel().tolist()], bool).reshape(table.shape)
