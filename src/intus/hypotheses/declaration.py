"""Declare the name and the kind of a hypothesis: the decorator ``hypothesis``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..core.errors import InputError

KINDS = ("binary", "categorical", "real")
_ATTRIBUTE = "__hypothesis__"
_T = TypeVar("_T")


class Declaration(NamedTuple):
    """The declaration of a hypothesis.

    Attributes:
        name: Its name; ``""`` for the name of the function.
        kind: One of ``KINDS``, or ``""`` if the labels determine it.
        batch: Whether the function gets the records of a batch instead of one record.
        names: The names of all hypotheses that the function returns; empty if it returns one, or if the
            records decide. A function that declares them may return an array with a row for each.
        answers: ``answers(numbers, records)`` returns a list with the labels of several records, whose
            numbers in the data are given; None if the function itself is called.
        length: The number of records that there are labels for; None for any.
        rows: A faster function of a record that returns an array with a row for each of ``names``; None if
            there is none.
    """

    name: str = ""
    kind: str = ""
    batch: bool = False
    names: tuple[str, ...] = ()
    answers: Callable[[np.ndarray, Sequence[Any]], list[Any]] | None = None
    length: int | None = None
    rows: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class DeclaredLabels:
    """Labels with their declaration."""

    labels: Any
    declaration: Declaration


def hypothesis(
    name: str | None = None, kind: str = "", *, batch: bool = False, names: Sequence[str] = ()
) -> Callable[[_T], _T]:
    """Name a hypothesis and declare the kind of its labels; a decorator.

    A hypothesis is a function of one record that returns a label for each of its symbols (an array of the
    shape of the pixels or positions) or one label for the record. NaN, or None among strings, means not
    annotated. A function may return many hypotheses from one parse: a dict of labels by name. A record whose
    dict lacks a name is not annotated for it. ``inspect`` takes plain functions too; the decorator is for a
    name, a kind or batches.

    Args:
        name: The name in the table, column ``target``. Default: the name of the function.
        kind: ``"binary"`` (0, 1 and NaN only, which is checked), ``"categorical"`` (labels are names, even if
            they are numbers) or ``"real"``. Default: the labels determine it.
        batch: Whether the function gets several records and returns the labels of all, in their order. It
            gets an array (records, …) if the records are arrays of one shape, else a list. Default: False.
        names: The names of all hypotheses that the function returns as a dict. Without them, the names in the
            first block of records count. A function with ``names`` may also return an array with a row for
            each name. Default: none.

    Returns:
        A decorator that returns the function. It also takes labels: an array, a list or a pandas Series or
        DataFrame with an entry for each record.

    Raises:
        InputError: If ``kind`` is not one of these.

    Example:
        >>> @hypothesis("ink", kind="binary")
        ... def f(image):
        ...     return image > 0
        >>> declaration_of(f).name
        'ink'
        >>> digit = hypothesis("digit", kind="categorical")([7, 1, 7])

    References:
        Sellam et al. (2019), "DeepBase: Deep Inspection of Neural Networks", SIGMOD: hypothesis functions.
    """
    if kind and kind not in KINDS:
        raise InputError(f"kind={kind!r} of the hypothesis is not one of {', '.join(map(repr, KINDS))}.")
    if isinstance(names, str):
        raise InputError(f"names={names!r} of the hypothesis must be a list of names.")
    declared = Declaration(name or "", kind, batch, tuple(names))
    return functools.partial(declare, declaration=declared)


def declare(what: Any, declaration: Declaration) -> Any:
    """Return a function, or labels, with a declaration.

    Args:
        what: A function, which is returned itself if it takes attributes; or labels.
        declaration: What to declare.
    """
    if not callable(what):
        return DeclaredLabels(what, declaration)
    try:
        setattr(what, _ATTRIBUTE, declaration)
    except (AttributeError, TypeError):  # a method, or a function written in C

        def call(*arguments: Any) -> Any:
            return what(*arguments)

        call.__name__ = getattr(what, "__name__", type(what).__name__)
        return declare(call, declaration)
    return what


def many(
    rows: Callable[[Any], np.ndarray], name: str, names: Sequence[str], kind: str = ""
) -> Callable[[Any], dict[str, np.ndarray]]:
    """Return a hypothesis function that returns a dict of labels by name.

    Args:
        rows: A function of a record that returns an array with a row for each name.
        name: The name of the function, which is used where names clash.
        names: The names.
        kind: The kind of the labels.
    """

    def hypotheses_of(record: Any) -> dict[str, np.ndarray]:
        return dict(zip(names, rows(record), strict=True))

    hypotheses_of.__name__ = name
    declared: Callable[[Any], dict[str, np.ndarray]] = declare(
        hypotheses_of, Declaration(name, kind, names=tuple(names), rows=rows)
    )
    return declared


def numbered(
    answers: Callable[[np.ndarray, Sequence[Any]], list[Any]], declaration: Declaration
) -> Callable[[Any], Any]:
    """Return a hypothesis function whose labels may depend on the number of the record.

    Args:
        answers: Returns the labels of several records, by their numbers and the records.
        declaration: What to declare.
    """

    def labels_of(record: Any) -> Any:
        if declaration.length is not None:
            raise InputError(
                f"{declaration.name!r} has labels by the number of the record. Pass it to inspect "
                "as a hypothesis."
            )
        return answers(np.array([0]), [record])[0]

    made: Callable[[Any], Any] = declare(labels_of, declaration._replace(answers=answers))
    return made


def declaration_of(function: Any) -> Declaration:
    """Return the declaration of a function, with its name filled in."""
    declared: Declaration = getattr(function, _ATTRIBUTE, Declaration())
    return declared._replace(
        name=declared.name or getattr(function, "__name__", "") or type(function).__name__
    )
