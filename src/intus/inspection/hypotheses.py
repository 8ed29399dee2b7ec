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
    """A name and how to label record number i: ``label(i, record)``; ``kind`` is one of KINDS or ""."""

    name: str
    label: Callable[[int, Any], Any]
    kind: str = ""

    def of(self, number: int, record: Any) -> np.ndarray:
        """The labels of one record, of any shape; NaN (None for strings) where not annotated."""
        try:
            labels = np.asarray(self.label(number, record))
        except Exception as error:
            error.add_note(f"in the hypothesis {self.name!r}, on record {number}")
            raise
        if labels.dtype.kind not in "fiubUSO":
            raise InputError(
                f"The hypothesis {self.name!r} gave {labels.dtype} for record {number}; give numbers, bools "
                "or strings."
            )
        if self.kind == "categorical" and labels.dtype.kind != "O":
            named = labels.astype(str).astype(object)
            named[labels != labels] = None
            return named
        if self.kind == "binary" and not np.isin(labels[labels == labels], (0, 1)).all():
            raise InputError(
                f"The hypothesis {self.name!r} is binary, but record {number} got more than 0 and 1."
            )
        return labels


def hypothesis(name: str | None = None, kind: str = "") -> Callable[[_F], _F]:
    """Name a hypothesis function, and say what its labels are.

    ``kind`` is ``"binary"`` (0, 1 and NaN alone: checked), ``"categorical"`` (labels are names, also where
    they are numbers) or ``"real"``; without it labels speak for themselves.

    >>> @hypothesis("ink", kind="binary")
    ... def f(image):
    ...     return image > 0
    >>> as_hypotheses(f, 0)[0].name
    'ink'
    """
    if kind and kind not in KINDS:
        raise InputError(f"kind={kind!r} of the hypothesis is not one of {', '.join(KINDS)}.")

    def mark(function: _F) -> _F:
        function.__dict__["__hypothesis__"] = (name or function.__name__, kind)
        return function

    return mark


def as_hypotheses(wrote: Any, records: int) -> list[Hypothesis]:
    """What the caller wrote, one or many functions or labelled arrays, as hypotheses with unlike names."""
    if isinstance(wrote, Mapping):
        made = [_one(what, str(name), records) for name, what in wrote.items()]
    elif callable(wrote) or hasattr(wrote, "__array__"):
        made = [_one(wrote, "", records)]
    elif isinstance(wrote, Sequence) and not isinstance(wrote, str):
        parts = [wrote] if wrote and all(np.isscalar(part) for part in wrote) else wrote
        made = [_one(part, "", records, number) for number, part in enumerate(parts)]
    else:
        raise InputError(
            "Hypotheses are functions of a record, labelled arrays, a list or a dict of these; "
            f"got {wrote!r}."
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
        raise InputError(f"The labels {name!r} are ragged; give a function of the record instead.") from None
    if labels.ndim == 0 or len(labels) != records:
        raise InputError(
            f"The labels {name!r} have shape {labels.shape}, but there are {records} records; give one label "
            "(or one grid of labels) per record."
        )
    return Hypothesis(name, lambda i, _: labels[i])


class Labels:
    """Labels of blocks of records, remembered up to 256 MB, so that a second model costs none.

    ``ragged`` names the hypotheses whose records were seen to differ in length.
    """

    def __init__(self, hypotheses: Sequence[Hypothesis]) -> None:
        self.hypotheses = list(hypotheses)
        self._blocks: dict[int, dict[str, np.ndarray]] = {}
        self._room = _CACHE
        self._lengths: dict[str, int] = {}
        self.ragged: set[str] = set()

    def of(self, start: int, block: Callable[[], Sequence[Any]]) -> dict[str, np.ndarray]:
        """``{name: (records, …)}`` for the block whose first record has that number; ``block()`` gives
        its records where they are needed."""
        if start in self._blocks:
            return self._blocks[start]
        records, made = block(), {}
        for h in self.hypotheses:
            found = [h.of(start + i, one) for i, one in enumerate(records)]
            self._compare_lengths(h.name, found)
            made[h.name] = stack(h.name, start, found)
        size = sum(column.nbytes for column in made.values())
        if size <= self._room:
            self._room -= size
            self._blocks[start] = made
        return made

    def _compare_lengths(self, name: str, found: Sequence[np.ndarray]) -> None:
        lengths = {len(one) for one in found if one.ndim == 1}
        if lengths and lengths != {self._lengths.setdefault(name, min(lengths))}:
            self.ragged.add(name)


def stack(name: str, start: int, labels: Sequence[np.ndarray]) -> np.ndarray:
    """Labels of several records as one array; sequences of unlike length are filled up with NaN (None).

    Raises InputError, naming both shapes, where records disagree otherwise.
    """
    shapes = [one.shape for one in labels]
    odd = next((i for i, shape in enumerate(shapes) if len(shape) != len(shapes[0])), None)
    if odd is None and len(set(shapes)) > 1 and len(shapes[0]) > 1:
        odd = next(i for i, shape in enumerate(shapes) if shape != shapes[0])
    if odd is not None:
        raise InputError(
            f"The hypothesis {name!r} gave labels of shape {shapes[0]} for record {start} and {shapes[odd]} "
            f"for record {start + odd}; the shape must be the same for all (sequences may differ in length)."
        )
    if len(set(shapes)) <= 1:
        return np.stack(labels)
    text = any(one.dtype.kind in "USO" for one in labels)
    out = np.full((len(labels), max(shapes)[0]), None if text else np.nan, dtype=object if text else float)
    for row, one in zip(out, labels, strict=True):
        row[: len(one)] = one
    return out
