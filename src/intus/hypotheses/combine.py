"""Make hypotheses from others: labels of a later symbol, and their logical combinations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..core.errors import InputError
from .columns import checked
from .declaration import Declaration, numbered
from .source import Source, as_array, as_source, by_record

_Change = Callable[..., np.ndarray]  # of the labels and the number of the record


def lag(hypothesis: Any, k: int, *, over: Sequence[Any] | None = None, groups: Any = None) -> Any:
    """Return a hypothesis that has the label of the symbol ``k`` places later.

    A unit that responds to it anticipates what comes (``k`` > 0) or remembers what was (``k`` < 0). Symbols
    at the end, or the start, that have no such symbol are not annotated.

    Args:
        hypothesis: A hypothesis with a label for each symbol of a sequence, or many: a function, labels, or a
            result of this package.
        k: The number of symbols.
        over: The data, if its records are the steps of a sequence, such as the frames of a game: record i
            then has the labels of record i + k, of any shape. Default: None, the symbols of a record are the
            steps.
        groups: The sequence, such as the episode, that each record of ``over`` belongs to, (records,). A
            record gets no label of another sequence. Default: all are of one.

    Returns:
        A hypothesis, or many, whose names end in ``+k`` or ``-k``.

    Raises:
        InputError: If ``k`` is no integer, labels are no sequences, or ``groups`` has another length.

    Example:
        >>> later = lag(lambda text: [c == "(" for c in text], 1)
        >>> later("f(x)").tolist()
        [1.0, 0.0, 0.0, nan]

    References:
        The "ghost in N steps" of Sellam et al. (2019), "DeepBase: Deep Inspection of Neural Networks".
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise InputError(f"The lag must be a whole number of symbols, got {k!r}.")
    source = as_source(hypothesis)
    if over is not None:
        return _of_later_records(source, int(k), over, groups)
    if groups is not None:
        raise InputError(
            "groups of lag are those of records. Pass the data too: lag(…, over=data, groups=…)."
        )

    def shift(labels: np.ndarray, number: int) -> np.ndarray:
        if labels.ndim != 1:
            kind = "one label" if not labels.ndim else f"labels of shape {labels.shape}"
            raise InputError(
                f"lag needs a label for each symbol of a sequence, but {source.name!r} has {kind} for record "
                f"{number}."
            )
        out = _blank(labels)
        out = out if out.dtype == object else out.astype(np.result_type(labels, np.float32))
        if abs(k) < len(labels):
            out[max(0, -k) : len(labels) - max(0, k)] = labels[max(0, k) : len(labels) - max(0, -k)]
        return out

    return _changed(source, shift, lambda name: f"{name}{k:+d}", source.kind)


def _of_later_records(source: Source, k: int, over: Sequence[Any], groups: Any) -> Any:
    """Return a hypothesis that gives each record the labels of the record ``k`` places later."""
    count = len(over)
    sequence = np.zeros(count) if groups is None else np.asarray(groups)
    if sequence.shape != (count,) or source.length not in (None, count):
        raise InputError(
            f"lag has {count} records in over, groups of shape {sequence.shape}, and labels of "
            f"{source.length or count} records. Give one entry for each record."
        )

    def rename(name: str) -> str:
        return f"{name}{k:+d}"

    def answers(numbers: np.ndarray, records: Sequence[Any]) -> list[Any]:
        later = np.clip(numbers + k, 0, count - 1)
        exists = (later == numbers + k) & (sequence[later] == sequence[numbers])
        later = np.where(exists, later, numbers)  # its own labels have the shape of those that do not exist
        found = by_record(source, source.answers(later, [_as_numpy(over[n]) for n in later]), len(later))
        return [
            _each(answer, rename, np.asarray if one else _blank)
            for answer, one in zip(found, exists, strict=True)
        ]

    names = tuple(map(rename, source.names))
    return numbered(answers, Declaration(rename(source.name), source.kind, names=names, length=count))


def _as_numpy(record: Any) -> Any:
    return record.detach().cpu().numpy() if hasattr(record, "detach") else record


def _blank(labels: np.ndarray) -> np.ndarray:
    """Return labels of the same shape that are not annotated."""
    text = labels.dtype.kind in "USO"
    return np.full(labels.shape, None if text else np.nan, dtype=object if text else np.float32)


def negate(hypothesis: Any) -> Any:
    """Return a binary hypothesis with 0 and 1 exchanged.

    Args:
        hypothesis: A binary hypothesis, or many: a function, labels, or a result of this package.

    Returns:
        A hypothesis, or many, whose names start with ``not``.

    Raises:
        InputError: If labels are not 0, 1 or NaN.

    Example:
        >>> negate(lambda text: [c.isupper() for c in text])("Ab").tolist()
        [0.0, 1.0]
    """
    source = as_source(hypothesis)
    return _changed(
        source, lambda labels, number: 1 - _truth(labels, source.name), lambda name: f"not {name}", "binary"
    )


def both(a: Any, b: Any) -> Any:
    """Return a hypothesis that is 1 where two binary hypotheses are, NaN where one is not annotated.

    It is NaN also where the other is 0, so that all its labels are of symbols that both annotate.

    Args:
        a: A binary hypothesis, or many: a function, labels, or a result of this package.
        b: A binary hypothesis.

    Returns:
        A hypothesis, or one for each of ``a``, whose names are ``a and b``.

    Raises:
        InputError: If labels are not 0, 1 or NaN, or of different shapes.

    Example:
        >>> upper = lambda text: [c.isupper() for c in text]
        >>> a = lambda text: [c in "aA" for c in text]
        >>> both(upper, a)("AaB").tolist()
        [1.0, 0.0, 0.0]
    """
    return _of_two(a, b, np.multiply, "and")


def either(a: Any, b: Any) -> Any:
    """Return a hypothesis that is 1 where one of two binary hypotheses is, NaN where one is not annotated.

    It is NaN also where the other is 1, so that all its labels are of symbols that both annotate.

    Args:
        a: A binary hypothesis, or many: a function, labels, or a result of this package.
        b: A binary hypothesis.

    Returns:
        A hypothesis, or one for each of ``a``, whose names are ``a or b``.

    Raises:
        InputError: If labels are not 0, 1 or NaN, or of different shapes.

    Example:
        >>> upper = lambda text: [c.isupper() for c in text]
        >>> a = lambda text: [c in "aA" for c in text]
        >>> either(upper, a)("AaBb").tolist()
        [1.0, 1.0, 1.0, 0.0]
    """
    return _of_two(a, b, np.maximum, "or")


def _truth(labels: np.ndarray, name: str) -> np.ndarray:
    """Return labels as floats; raises InputError if they are not 0, 1 or NaN."""
    return checked(name, labels, "binary", "a record").astype(np.float32)


def _changed(source: Source, change: _Change, rename: Callable[[str], str], kind: str) -> Any:
    """Return a hypothesis whose labels of each record are changed."""

    def answers(numbers: np.ndarray, records: Sequence[Any]) -> list[Any]:
        found = by_record(source, source.answers(numbers, records), len(records))
        return [
            _each(answer, rename, partial(change, number=n)) for n, answer in zip(numbers, found, strict=True)
        ]

    names = tuple(map(rename, source.names))
    return numbered(answers, Declaration(rename(source.name), kind, names=names, length=source.length))


def _of_two(a: Any, b: Any, operate: Callable[..., np.ndarray], word: str) -> Any:
    one, other = as_source(a), as_source(b)
    if len({one.length, other.length} - {None}) > 1:
        raise InputError(
            f"{one.name!r} has labels of {one.length} records and {other.name!r} of {other.length}. Combine "
            "labels of the same records."
        )

    def rename(name: str) -> str:
        return f"{name} {word} {other.name}"

    def combine(labels: np.ndarray, beside: np.ndarray, number: int) -> np.ndarray:
        left, right = _truth(labels, one.name), _truth(beside, other.name)
        if left.shape != right.shape:
            raise InputError(
                f"{one.name!r} has labels of shape {left.shape} for record {number} and {other.name!r} of "
                f"shape {right.shape}. Combine labels of the same symbols."
            )
        return operate(left, right)

    def answers(numbers: np.ndarray, records: Sequence[Any]) -> list[Any]:
        left = by_record(one, one.answers(numbers, records), len(records))
        right = by_record(other, other.answers(numbers, records), len(records))
        several = next((answer for answer in right if isinstance(answer, Mapping)), None)
        if several is not None:
            raise InputError(
                f"The second hypothesis, {other.name!r}, gives several: {list(several)}. Pass several as the "
                "first only."
            )
        return [
            None
            if beside is None
            else _each(answer, rename, partial(combine, beside=as_array(beside), number=n))
            for n, answer, beside in zip(numbers, left, right, strict=True)
        ]

    length = one.length if one.length is not None else other.length
    names = tuple(map(rename, one.names))
    return numbered(answers, Declaration(rename(one.name), "binary", names=names, length=length))


def _each(answer: Any, rename: Callable[[str], str], change: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Return the changed labels of a record, or of each name."""
    if answer is None:
        return None
    if isinstance(answer, Mapping):
        return {rename(str(key)): _each(labels, rename, change) for key, labels in answer.items()}
    return change(as_array(answer))
