"""Hypotheses: what a unit might respond to, as a label for every symbol of a record or for the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..core.errors import InputError

KINDS = ("binary", "categorical", "real")
_F = TypeVar("_F", bound=Callable[..., Any])
_CACHE = 256 << 20  # bytes of labels kept between models


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A named function that labels records.

    Attributes:
        name: The name.
        label: ``label(number, record)`` returns the labels of a record.
        kind: One of ``KINDS``, or ``""`` if the labels determine it.
    """

    name: str
    label: Callable[[int, Any], Any]
    kind: str = ""

    def of(self, number: int, record: Any) -> np.ndarray:
        """Return the labels of one record.

        Args:
            number: The number of the record.
            record: The record.

        Returns:
            An array of any shape; NaN (None among strings) where not annotated.

        Raises:
            InputError: If the labels are no numbers, booleans or strings, or not of the declared kind.
        """
        try:
            labels = np.asarray(self.label(number, record))
        except Exception as error:
            error.add_note(f"in the hypothesis {self.name!r}, on record {number}")
            raise
        if labels.dtype.kind not in "fiubUSO":
            raise InputError(
                f"The hypothesis {self.name!r} gave {labels.dtype} for record {number}. Return numbers, "
                "booleans or strings."
            )
        if self.kind == "categorical" and labels.dtype.kind != "O":
            named = labels.astype(str).astype(object)
            named[labels != labels] = None
            return named
        if self.kind == "binary" and not np.isin(labels[labels == labels], (0, 1)).all():
            raise InputError(
                f"The hypothesis {self.name!r} is binary, but record {number} got more than 0 and 1. Return "
                "0, 1 or NaN, or leave out kind='binary'."
            )
        return labels


def hypothesis(name: str | None = None, kind: str = "") -> Callable[[_F], _F]:
    """Name a hypothesis function and declare the kind of its labels; a decorator.

    A hypothesis is a function of one record that returns a label for each of its symbols (an array of the
    shape of the pixels or positions) or one label for the record. NaN, or None among strings, means not
    annotated. ``inspect`` takes plain functions too; the decorator is for a name or a kind.

    Args:
        name: The name in the table, column ``target``. Default: the name of the function.
        kind: ``"binary"`` (0, 1 and NaN only, which is checked), ``"categorical"`` (labels are names, even if
            they are numbers) or ``"real"``. Default: the labels determine it.

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        InputError: If ``kind`` is not one of these.

    Example:
        >>> @hypothesis("ink", kind="binary")
        ... def f(image):
        ...     return image > 0
        >>> as_hypotheses(f, 0)[0].name
        'ink'

    References:
        Sellam et al. (2019), "DeepBase: Deep Inspection of Neural Networks", SIGMOD: hypothesis functions.
    """
    if kind and kind not in KINDS:
        raise InputError(f"kind={kind!r} of the hypothesis is not one of {', '.join(map(repr, KINDS))}.")

    def mark(function: _F) -> _F:
        function.__dict__["__hypothesis__"] = (name or function.__name__, kind)
        return function

    return mark


def as_hypotheses(given: Any, records: int) -> list[Hypothesis]:
    """Return the hypotheses that the caller passed.

    Args:
        given: One or several functions or labeled arrays; several as a list, or as a dict by name.
        records: The number of records.

    Raises:
        InputError: If it is something else, an array has another length, or two have the same name.
    """
    if isinstance(given, Mapping):
        made = [_one(what, str(name), records) for name, what in given.items()]
    elif callable(given) or hasattr(given, "__array__"):
        made = [_one(given, "", records)]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        parts = [given] if given and all(np.isscalar(part) for part in given) else given
        made = [_one(part, "", records, number) for number, part in enumerate(parts)]
    else:
        raise InputError(
            "hypotheses must be functions of a record, labeled arrays, or a list or dict of these, "
            f"got {given!r}."
        )
    names = [h.name for h in made]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"Two hypotheses are called {name!r}. Name them: inspect(…, hypotheses={{'a': f, 'b': g}})."
            )
    return made


def _one(what: Any, name: str, records: int, number: int = 0) -> Hypothesis:
    if callable(what):
        own, kind = getattr(what, "__hypothesis__", (getattr(what, "__name__", type(what).__name__), ""))
        if not name and own == "<lambda>":
            own = f"lambda_{number}"
        return Hypothesis(name or own, lambda _, record: what(record), kind)
    name = name or f"labels_{number}"
    try:
        labels = np.asarray(what)
    except ValueError:
        raise InputError(
            f"The labels {name!r} are ragged. Pass a function of the record that returns them instead."
        ) from None
    if labels.ndim == 0 or len(labels) != records:
        raise InputError(
            f"The labels {name!r} have shape {labels.shape}, but there are {records} records; give one label "
            "(or one grid of labels) per record."
        )
    return Hypothesis(name, lambda i, _: labels[i])


class Labels:
    """The labels of blocks of records, cached up to 256 MB so that they are computed once for all models.

    Args:
        hypotheses: The hypotheses.

    Attributes:
        ragged: The names of hypotheses whose records were found to differ in length.
    """

    def __init__(self, hypotheses: Sequence[Hypothesis]) -> None:
        self.hypotheses = list(hypotheses)
        self._blocks: dict[bytes, dict[str, np.ndarray]] = {}
        self._free = _CACHE  # bytes
        self._lengths: dict[str, int] = {}
        self.ragged: set[str] = set()

    def of(self, numbers: np.ndarray, block: Callable[[], Sequence[Any]]) -> dict[str, np.ndarray]:
        """Return the labels of a block.

        Args:
            numbers: The numbers of the records.
            block: Returns the records; called only if the labels are not cached.

        Returns:
            An array (records, …) by the name of the hypothesis.
        """
        key = numbers.tobytes()
        if key in self._blocks:
            return self._blocks[key]
        records, columns = block(), {}
        for h in self.hypotheses:
            labels = [h.of(n, record) for n, record in zip(numbers.tolist(), records, strict=True)]
            self._compare_lengths(h.name, labels)
            columns[h.name] = stack(h.name, numbers, labels)
        size = sum(column.nbytes for column in columns.values())
        if size <= self._free:
            self._free -= size
            self._blocks[key] = columns
        return columns

    def _compare_lengths(self, name: str, labels: Sequence[np.ndarray]) -> None:
        lengths = {len(one) for one in labels if one.ndim == 1}
        if lengths and lengths != {self._lengths.setdefault(name, min(lengths))}:
            self.ragged.add(name)


def stack(name: str, numbers: np.ndarray, labels: Sequence[np.ndarray]) -> np.ndarray:
    """Return the labels of several records as one array; shorter sequences are padded with NaN or None.

    Args:
        name: The name of the hypothesis, for the message.
        numbers: The numbers of the records, for the message.
        labels: The labels of each record.

    Raises:
        InputError: If the shapes of two records do not agree otherwise.
    """
    shapes = [one.shape for one in labels]
    odd = next((i for i, shape in enumerate(shapes) if len(shape) != len(shapes[0])), None)
    if odd is None and len(set(shapes)) > 1 and len(shapes[0]) > 1:
        odd = next(i for i, shape in enumerate(shapes) if shape != shapes[0])
    if odd is not None:
        raise InputError(
            f"The hypothesis {name!r} gave labels of shape {shapes[0]} for record {numbers[0]} and "
            f"{shapes[odd]} for record {numbers[odd]}. Return the same shape for all (sequences may "
            "differ in length)."
        )
    if len(set(shapes)) <= 1:
        return np.stack(labels)
    text = any(one.dtype.kind in "USO" for one in labels)
    out = np.full((len(labels), max(shapes)[0]), None if text else np.nan, dtype=object if text else float)
    for row, one in zip(out, labels, strict=True):
        row[: len(one)] = one
    return out
