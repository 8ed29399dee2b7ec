"""Turn the answers of a hypothesis into one array of labels per name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import InputError, did_you_mean
from .source import Answers, Source, Whole, as_array, as_names, span

Shape = tuple[int, ...]


class Part(NamedTuple):
    """The labels of one hypothesis for a block, before they are checked.

    Attributes:
        values: An array (records, …), or a list with the labels of each record, None if not annotated.
        lengths: The length of each record's sequence if ``values`` is padded, (records,); else None.
    """

    values: Any
    lengths: np.ndarray | None = None


class Column(NamedTuple):
    """The labels of one hypothesis for a block of records.

    Attributes:
        values: The labels, (records, …); shorter sequences are padded with NaN or None.
        lengths: The length of each record's sequence, (records,), -1 if the record is not annotated; None if
            labels are no sequences.
    """

    values: np.ndarray
    lengths: np.ndarray | None


def split(
    source: Source, answers: Answers, numbers: np.ndarray, keys: tuple[str, ...] | None = None
) -> dict[str, Part]:
    """Return the labels of a block by name.

    Args:
        source: The hypothesis, for messages, and for the names that it declares.
        answers: What it returned for the records.
        numbers: The numbers of the records.
        keys: The names of the first block, ``("",)`` if it had none; None for the first block.

    Raises:
        InputError: If the function returned a dict for some records only, or a name that it did not return
            for the first block.
    """
    parts, first = _parts(source, answers, numbers)
    count = len(answers) if isinstance(answers, list) else len(next(iter(parts.values())).values)
    if keys is None:
        keys = source.names or tuple(parts)
    if not keys:
        raise InputError(
            f"The hypothesis {source.name!r} returned an empty dict for each of the first {count} records. "
            "Declare the names that it may return: hypothesis(names=[…])."
        )
    new = next((key for key in first if key not in keys), None)
    if new is not None:
        raise InputError(_why_new(source, new, first[new], keys))
    return {key: parts.get(key, Part([None] * count)) for key in keys}


def _parts(source: Source, answers: Answers, numbers: np.ndarray) -> tuple[dict[str, Part], dict[str, int]]:
    """Return the labels by name, and the first record that has each name."""
    if isinstance(answers, Whole):
        given = answers.values if isinstance(answers.values, Mapping) else {"": answers.values}
        return {key: Part(values) for key, values in given.items()}, dict.fromkeys(given, int(numbers[0]))
    is_dict = [isinstance(answer, Mapping) for answer in answers]
    is_none = [answer is None for answer in answers]
    if any(is_dict):
        if not all(map(max, is_dict, is_none)):
            odd = next(i for i, answer in enumerate(answers) if not is_dict[i] and not is_none[i])
            raise InputError(
                f"The hypothesis {source.name!r} returned a dict of labels for record "
                f"{numbers[is_dict.index(True)]} and no dict for record {numbers[odd]}. Return a dict for "
                "all records, or for none."
            )
        first: dict[str, int] = {}
        for number, answer in zip(numbers.tolist(), answers, strict=True):
            for key in answer or ():
                first.setdefault(key, number)
        parts = {key: Part([(answer or {}).get(key) for answer in answers]) for key in first}
        return {str(key): part for key, part in parts.items()}, {str(key): n for key, n in first.items()}
    if source.names and not any(is_none):
        return _rows_by_name(source, answers, numbers), {}
    if source.names and not all(is_none):
        rows = [
            None if answer is None else dict(zip(source.names, answer, strict=True)) for answer in answers
        ]
        return _parts(source, rows, numbers)
    return {"": Part(answers)}, {} if source.names or all(is_none) else {
        "": int(numbers[is_none.index(False)])
    }


def _why_new(source: Source, new: str, record: int, keys: tuple[str, ...]) -> str:
    """Return the message that a function returned a name that is not among those of the first block."""
    if source.names and new == "":
        return (
            f"The hypothesis {source.name!r} declares {len(source.names)} names, but returned labels without "
            f"names for record {record}. Return a dict by name."
        )
    if keys == ("",) or new == "":
        before, now = ("labels", "a dict of labels") if new else ("a dict of labels", "labels")
        return (
            f"The hypothesis {source.name!r} returned {before} at first and {now} for record {record}. "
            "Return a dict for all records, or for none."
        )
    of = "that it declares" if source.names else "of the first records"
    return (
        f"The hypothesis {source.name!r} returned {new!r} for record {record}, which is not among the names "
        f"{of}. {did_you_mean(new, keys)} Declare all names: hypothesis(names=[…])."
    )


def _rows_by_name(source: Source, answers: Sequence[Any], numbers: np.ndarray) -> dict[str, Part]:
    """Return the rows of arrays (names, …) by name; sequences of different lengths are padded."""
    arrays = [as_array(answer) for answer in answers]
    for number, array in zip(numbers.tolist(), arrays, strict=True):
        if array.ndim == 0 or len(array) != len(source.names):
            raise InputError(
                f"The hypothesis {source.name!r} declares {len(source.names)} names, but returned an array "
                f"of shape {array.shape} for record {number}. Return a dict by name, or a row for each name."
            )
    shapes = {array.shape for array in arrays}
    if len(shapes) == 1:
        whole, lengths = np.stack(arrays), None
    elif {len(shape) for shape in shapes} == {2} and all(array.dtype.kind in "fiub" for array in arrays):
        lengths = np.array([array.shape[1] for array in arrays])
        dtype = np.result_type(np.float32, *(array.dtype for array in arrays))
        whole = np.full((len(arrays), len(source.names), lengths.max()), np.nan, dtype)
        for row, array in zip(whole, arrays, strict=True):
            row[:, : array.shape[1]] = array
    else:
        return {name: Part([array[j] for array in arrays]) for j, name in enumerate(source.names)}
    return {name: Part(whole[:, j], lengths) for j, name in enumerate(source.names)}


def names_of(sources: Sequence[Source], keys: Sequence[tuple[str, ...]]) -> list[dict[str, str]]:
    """Return the name of each hypothesis in the table, by its key, for each source.

    A key of a dict is the name unless another hypothesis has it: then ``source.key``.

    Args:
        sources: The sources.
        keys: The keys of each; ``("",)`` if it returns no dict.

    Raises:
        InputError: If two hypotheses have the same name.
    """
    short = Counter(key or source.name for source, own in zip(sources, keys, strict=True) for key in own)
    names = [
        {
            key: key if key and short[key] == 1 else f"{source.name}.{key}" if key else source.name
            for key in own
        }
        for source, own in zip(sources, keys, strict=True)
    ]
    count = Counter(name for own in names for name in own.values())
    for name, times in count.items():
        if times > 1:
            raise InputError(
                f"Two hypotheses are called {name!r}. Name them: inspect(…, hypotheses={{'a': f, 'b': g}})."
            )
    return names


def checked(name: str, value: Any, kind: str, where: str) -> np.ndarray:
    """Return labels as an array of numbers, truth values or strings, according to the declared kind.

    Args:
        name: The name of the hypothesis, for messages.
        value: The labels.
        kind: The declared kind, or ``""``.
        where: The records, for messages.

    Returns:
        An array of any shape; NaN, or None among strings, where not annotated.

    Raises:
        InputError: If the labels are no numbers, booleans or strings, or not of the declared kind.

    Example:
        >>> checked("digit", [3, float("nan")], "categorical", "record 0").tolist()
        ['3', None]
    """
    try:
        labels = as_array(value)
    except ValueError as error:
        raise InputError(
            f"The hypothesis {name!r} gave labels of no regular shape for {where}: {error}. Return a "
            "sequence, or an array of the shape of the pixels."
        ) from None
    if labels.dtype.kind == "O":
        labels = _from_objects(name, labels, kind, where)
    if labels.dtype.kind not in "fiubUSO":
        raise InputError(
            f"The hypothesis {name!r} gave {labels.dtype} for {where}. Return numbers, booleans or strings."
        )
    if kind == "categorical" and labels.dtype.kind in "fiub":
        return as_names(labels)
    if kind in ("binary", "real") and labels.dtype.kind in "USO":
        raise InputError(
            f"The hypothesis {name!r} is {kind}, but {where} got strings. Return numbers, or leave out "
            f"kind={kind!r}."
        )
    if kind == "real":
        return labels.astype(np.float64)
    if kind == "binary" and not np.isin(labels[labels == labels], (0, 1)).all():
        raise InputError(
            f"The hypothesis {name!r} is binary, but {where} got more than 0 and 1. Return "
            "0, 1 or NaN, or leave out kind='binary'."
        )
    return labels


def _from_objects(name: str, labels: np.ndarray, kind: str, where: str) -> np.ndarray:
    """Return objects as floats if they are numbers and None; else as names, each stored once."""
    flat = labels.ravel().tolist()
    types = {type(one) for one in flat if one is not None}
    if all(issubclass(one, int | float | np.number | np.bool_) for one in types):
        if kind == "categorical":
            return as_names(np.array([np.nan if one is None else one for one in flat], float)).reshape(
                labels.shape
            )
        return np.array([np.nan if one is None else one for one in flat], float).reshape(labels.shape)
    odd = next((one for one in types if not issubclass(one, str | bytes | int | float | np.generic)), None)
    if odd is not None:
        raise InputError(
            f"The hypothesis {name!r} gave {odd.__name__} objects as labels for {where}. Return numbers, "
            "booleans or strings; labels of a record must be of one shape."
        )
    pool: dict[str, str] = {}
    out = np.empty(len(flat), dtype=object)
    out[:] = [None if one is None else pool.setdefault(str(one), str(one)) for one in flat]
    return out.reshape(labels.shape)


class ShapeState(NamedTuple):
    """The shape of a hypothesis's labels, as far as it is known after some blocks.

    Attributes:
        first: The shape of its first annotated record; None if there is none so far.
        ragged: Whether its records were found to differ in length.
    """

    first: Shape | None
    ragged: bool


class Shapes:
    """The shapes of labels: what is not annotated gets the shape of what is.

    Attributes:
        ragged: The names of hypotheses whose records were found to differ in length.
    """

    def __init__(self) -> None:
        self.ragged: set[str] = set()
        self._first: dict[str, tuple[int, Shape]] = {}  # the first annotated record and its shape

    def state(self, name: str) -> ShapeState:
        """Return the shape of a hypothesis's labels, as far as it is known."""
        first = self._first.get(name)
        return ShapeState(None if first is None else first[1], name in self.ragged)

    def restore(self, name: str, state: ShapeState, number: int) -> None:
        """Take over what is known of a hypothesis after a block of the same labels.

        Args:
            name: The name of the hypothesis.
            state: What is known.
            number: The number of a record of the block.
        """
        if state.first is not None:
            self._first.setdefault(name, (number, state.first))
        if state.ragged:
            self.ragged.add(name)

    def columns(
        self, names: Mapping[str, str], parts: Mapping[str, Part], kind: str, numbers: np.ndarray
    ) -> dict[str, Column]:
        """Return the checked labels of one source's block by the name of the hypothesis.

        Args:
            names: The name of each hypothesis by its key.
            parts: The labels by key.
            kind: The declared kind.
            numbers: The numbers of the records.

        Raises:
            InputError: If labels have an impossible type or shape.
        """
        out: dict[str, Column] = {}
        lists: dict[str, list[np.ndarray | None]] = {}
        for key, (values, lengths) in parts.items():
            name = names[key]
            if isinstance(values, np.ndarray):
                array = checked(name, values, kind, span(numbers))
                for length in () if lengths is None else np.unique(lengths).tolist():
                    self._note(name, int(numbers[0]), (length,))
                if lengths is None:
                    self._note(name, int(numbers[0]), array.shape[1:])
                    lengths = np.full(len(array), array.shape[1]) if array.ndim == 2 else None
                out[name] = Column(array, lengths)
            else:
                lists[name] = [
                    None if one is None else checked(name, one, kind, f"record {number}")
                    for number, one in zip(numbers.tolist(), values, strict=True)
                ]
        for name, labels in lists.items():
            for number, one in zip(numbers.tolist(), labels, strict=True):
                if one is not None:
                    self._note(name, number, one.shape)
        for name, labels in lists.items():
            filled = [
                one
                if one is not None
                else self._blank(name, [other[i] for other in lists.values()], int(numbers[i]))
                for i, one in enumerate(labels)
            ]
            lengths = None
            if filled[0].ndim == 1:
                lengths = np.array([-1 if one is None else len(one) for one in labels])
            out[name] = Column(stack(filled), lengths)
        return {name: out[name] for name in names.values()}

    def _note(self, name: str, number: int, shape: Shape) -> None:
        """Raise an error if the shape does not agree with that of the first record."""
        record, first = self._first.setdefault(name, (number, shape))
        if len(first) == len(shape) == 1:
            if first != shape:
                self.ragged.add(name)
        elif first != shape:
            raise InputError(
                f"The hypothesis {name!r} gave labels of shape {first} for record {record} and {shape} "
                f"for record {number}. Return the same shape for all (sequences may differ in length)."
            )

    def _blank(self, name: str, beside: Sequence[np.ndarray | None], number: int) -> np.ndarray:
        """Return blank labels for a record; ``beside`` has its labels by the other names, or None."""
        shape = self._first[name][1] if name in self._first else None
        like = next(
            (one.shape for one in beside if one is not None and (shape is None or one.ndim == len(shape))),
            None,
        )
        if shape is not None and len(shape) == 1:
            shape = like or (0,)  # padded later
        elif shape is None:
            shape = like
        if shape is None:
            raise InputError(
                f"The hypothesis {name!r} annotates none of the first records, so the shape of its labels is "
                f"not known for record {number}. Return NaN for each symbol that is not annotated."
            )
        if name not in self._first:
            self._first[name] = number, shape
        if len(shape) == 1 and shape != self._first[name][1]:
            self.ragged.add(name)
        return np.full(shape, np.nan)


def stack(labels: Sequence[np.ndarray]) -> np.ndarray:
    """Return the labels of several records as one array; shorter sequences are padded with NaN or None.

    Args:
        labels: The labels of each record: sequences, or arrays of one shape.

    Example:
        >>> stack([np.array([1, 0]), np.array([1])]).tolist()
        [[1.0, 0.0], [1.0, nan]]
    """
    text = any(one.dtype.kind in "USO" for one in labels)
    if text:
        labels = [one if one.dtype.kind in "USO" else _as_text(one) for one in labels]
    if len({one.shape for one in labels}) <= 1:
        return np.stack(labels)
    number = np.result_type(np.float32, *(one.dtype for one in labels)) if not text else object
    out = np.full((len(labels), max(map(len, labels))), None if text else np.nan, dtype=number)
    for row, one in zip(out, labels, strict=True):
        row[: len(one)] = one
    return out


def _as_text(labels: np.ndarray) -> np.ndarray:
    """Return numbers among records of strings as objects; NaN as None."""
    out = labels.astype(object)
    out[labels != labels] = None
    return out
