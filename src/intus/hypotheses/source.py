"""Read hypotheses as the caller wrote them: functions, labels, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import InputError
from .declaration import DeclaredLabels, declaration_of


class Whole(NamedTuple):
    """The labels of several records as one array, or as one array per name.

    Attributes:
        values: An array (records, …), or a dict of such arrays by name.
    """

    values: Any


#: One answer for each record (labels, a dict of labels by name, or a row for each declared name), or a Whole.
Answers = list[Any] | Whole


@dataclass(frozen=True, slots=True)
class Source:
    """A source of labels: one hypothesis, or many from one parse.

    Attributes:
        name: The name.
        answers: ``answers(numbers, records)`` returns the labels of the records with these numbers.
        kind: One of ``KINDS``, or ``""`` if the labels determine it.
        names: The names of its hypotheses, if they are declared.
        length: The number of records that it has labels for; None for any.
    """

    name: str
    answers: Callable[[np.ndarray, Sequence[Any]], Answers]
    kind: str = ""
    names: tuple[str, ...] = ()
    length: int | None = None


def as_hypotheses(given: Any, records: int) -> list[Source]:
    """Return the hypotheses that the caller passed.

    Args:
        given: One or several functions, labels or tables; several as a list, or as a dict by name.
        records: The number of records.

    Raises:
        InputError: If it is something else, or there are labels for another number of records.
    """
    if isinstance(given, Mapping):
        made = [as_source(what, str(name)) for name, what in given.items()]
    elif callable(given) or hasattr(given, "__array__") or isinstance(given, DeclaredLabels):
        made = [as_source(given)]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        flat = given and all(part is None or np.isscalar(part) for part in given)
        made = [as_source(part, number=n) for n, part in enumerate([given] if flat else given)]
    else:
        raise InputError(
            "hypotheses must be functions of a record, labeled arrays, or a list or dict of these, "
            f"got {given!r}."
        )
    for source in made:
        if source.length not in (None, records):
            raise InputError(
                f"The labels {source.name!r} have {source.length} entries, but there are {records} records; "
                "give one label (or one grid of labels) per record."
            )
    return made


def as_source(what: Any, name: str = "", number: int = 0) -> Source:
    """Return one hypothesis, or many from one parse.

    Args:
        what: A function, labels with an entry for each record, or a pandas Series or DataFrame.
        name: The name that the caller wrote; ``""`` if none.
        number: The place among the hypotheses, for a name if there is no other.
    """
    if isinstance(what, DeclaredLabels):
        source = as_source(what.labels, name or what.declaration.name, number)
        if callable(what.labels):
            return source
        return Source(
            source.name, source.answers, what.declaration.kind or source.kind, source.names, source.length
        )
    if callable(what):
        declared = declaration_of(what)
        own = f"lambda_{number}" if declared.name == "<lambda>" else declared.name
        answers = declared.answers or (
            _of_batch(what) if declared.batch else _of_record(declared.rows or what, declared.name)
        )
        return Source(name or own, answers, declared.kind, declared.names, declared.length)
    if hasattr(what, "isna") and hasattr(what, "to_numpy"):
        return _of_pandas(what, name, number)
    return _of_labels(what, name or f"labels_{number}")


def _of_record(function: Callable[[Any], Any], name: str) -> Callable[[np.ndarray, Sequence[Any]], Answers]:
    def answers(numbers: np.ndarray, records: Sequence[Any]) -> Answers:
        out = []
        for number, record in zip(numbers.tolist(), records, strict=True):
            try:
                out.append(function(record))
            except Exception as error:
                error.add_note(f"in the hypothesis {name!r}, on record {number}")
                raise
        return out

    return answers


def _of_batch(function: Callable[[Any], Any]) -> Callable[[np.ndarray, Sequence[Any]], Answers]:
    name = declaration_of(function).name

    def answers(numbers: np.ndarray, records: Sequence[Any]) -> Answers:
        where = span(numbers)
        shapes = {record.shape if isinstance(record, np.ndarray) else None for record in records}
        given = np.stack(records) if len(shapes) == 1 and None not in shapes else list(records)
        try:
            found = function(given)
        except Exception as error:
            error.add_note(f"in the hypothesis {name!r}, on {where}")
            raise
        if hasattr(found, "columns") and hasattr(found, "isna"):
            found = {str(key): as_array(found[key]) for key in found.columns}
        parts = found if isinstance(found, Mapping) else {"": found}
        for key, part in parts.items():
            count = len(part) if hasattr(part, "__len__") else None
            if count != len(records):
                of = f"labels {key!r}" if key else "labels"
                got = "no list" if count is None else f"those of {count}"
                raise InputError(
                    f"The hypothesis {name!r} must return the {of} of {len(records)} records ({where}), got "
                    f"{got}. Return one entry for each record, in their order."
                )
        columns = {str(key): entries(part) for key, part in parts.items()}
        if columns and all(isinstance(column, np.ndarray) for column in columns.values()):
            return Whole(columns if isinstance(found, Mapping) else columns[""])
        if not isinstance(found, Mapping):
            return list(columns[""])
        return [{key: column[i] for key, column in columns.items()} for i in range(len(records))]

    return answers


def _of_pandas(what: Any, name: str, number: int) -> Source:
    """Read a Series as one hypothesis and a DataFrame as one for each column."""
    if not hasattr(what, "columns"):
        own = getattr(what, "name", "")
        own = own if isinstance(own, str) else ""
        labels = as_array(what)
        kind = "categorical" if str(what.dtype) == "category" else ""
        return Source(name or own or f"labels_{number}", _slices(labels), kind, (), len(labels))
    names = tuple(map(str, what.columns))
    if len(set(names)) < len(names) or not names:
        raise InputError(f"A DataFrame of labels must have columns of different names, got {list(names)}.")
    columns = {str(key): _categories(what[key]) for key in what.columns}
    if name and len(names) == 1:
        return Source(name, _slices(columns[names[0]]), "", (), len(what))
    own = name or f"labels_{number}"
    return Source(
        own,
        lambda numbers, _: Whole({key: column[numbers] for key, column in columns.items()}),
        "",
        names,
        len(what),
    )


def _categories(series: Any) -> np.ndarray:
    labels = as_array(series)
    is_category = str(series.dtype) == "category" and labels.dtype.kind in "fiub"
    return as_names(labels) if is_category else labels


def _of_labels(what: Any, name: str) -> Source:
    labels = entries(what)
    if labels is None or getattr(labels, "ndim", 1) == 0:
        raise InputError(f"The labels {name!r} must have an entry for each record, got {what!r}.")
    if isinstance(labels, np.ndarray):
        return Source(name, _slices(labels), "", (), len(labels))
    return Source(
        name, lambda numbers, _: [labels[number] for number in numbers.tolist()], "", (), len(labels)
    )


def _slices(labels: np.ndarray) -> Callable[[np.ndarray, Sequence[Any]], Answers]:
    return lambda numbers, _: Whole(labels[numbers])


def by_record(source: Source, answers: Answers, records: int) -> list[Any]:
    """Return the labels of each record: an array, a dict of arrays by name, or None.

    Args:
        source: The hypothesis.
        answers: What it returned.
        records: The number of records.
    """
    if isinstance(answers, Whole):
        if not isinstance(answers.values, Mapping):
            return list(map(np.asarray, answers.values))
        return [
            {key: np.asarray(values[i]) for key, values in answers.values.items()} for i in range(records)
        ]
    if not source.names:
        return answers
    return [
        answer
        if answer is None or isinstance(answer, Mapping)
        else dict(zip(source.names, answer, strict=True))
        for answer in answers
    ]


def span(numbers: np.ndarray) -> str:
    """Return the numbers of records for a message.

    Args:
        numbers: The numbers.

    Example:
        >>> span(np.array([3])), span(np.array([3, 4, 5])), span(np.array([9, 2, 5, 1]))
        ('record 3', 'records 3 to 5', 'records 9, 2, 5 …')
    """
    if len(numbers) == 1:
        return f"record {numbers[0]}"
    if (np.diff(numbers) == 1).all():
        return f"records {numbers[0]} to {numbers[-1]}"
    return f"records {', '.join(map(str, numbers[:3]))}{' …' if len(numbers) > 3 else ''}"


def entries(what: Any) -> Any:
    """Return labels of several records as an array (records, …), or as a list if their shapes differ.

    None if they have no length.

    Args:
        what: The labels.
    """
    if not hasattr(what, "__len__") and not hasattr(what, "__array__"):
        return None
    if not hasattr(what, "__array__") and any(isinstance(one, Mapping) for one in what):
        return list(what)
    try:
        return as_array(what)
    except ValueError:
        return list(what)


def as_array(labels: Any) -> np.ndarray:
    """Return labels as an array; what is missing is NaN, and None among strings.

    Args:
        labels: The labels; an array, a tensor, a list, a scalar or a pandas Series.

    Example:
        >>> as_array(["a", float("nan")]).tolist()
        ['a', None]
    """
    if hasattr(labels, "isna") and hasattr(labels, "to_numpy"):
        missing = np.asarray(labels.isna())
        if labels.dtype.kind in "fiub" if hasattr(labels.dtype, "kind") else False:
            return np.asarray(
                labels.to_numpy(dtype=float, na_value=np.nan) if missing.any() else labels.to_numpy()
            )
        values = np.array(labels.to_numpy(dtype=object))  # a copy
        if all(isinstance(value, int | float | np.number | np.bool_) for value in values[~missing]):
            return np.asarray(
                [np.nan if gone else value for value, gone in zip(values, missing, strict=True)]
            )
        values[missing] = None
        return values
    if hasattr(labels, "detach"):
        labels = labels.detach().cpu()
        labels = labels.float() if str(labels.dtype) == "torch.bfloat16" else labels  # numpy has no such type
    if isinstance(labels, np.ma.MaskedArray):
        numeric = labels.dtype.kind in "fiub"
        masked, labels = np.ma.getmaskarray(labels), labels.data.astype(float if numeric else object)
        labels[masked] = np.nan if numeric else None
    array = np.asarray(labels)
    if array.dtype.kind == "U" and not hasattr(labels, "dtype") and (array == "nan").any():
        array = np.asarray(labels, dtype=object)  # numpy writes a NaN among strings as "nan"
    if array.dtype.kind == "O":
        gone = np.asarray(np.frompyfunc(lambda one: one is not None and one != one, 1, 1)(array), dtype=bool)
        if gone.any():
            array = array.copy()
            array[gone] = None
    return array


def as_names(labels: np.ndarray) -> np.ndarray:
    """Return numbers as names; a whole number has the same name as an integer and as a float.

    Args:
        labels: The numbers; NaN becomes None.

    Example:
        >>> as_names(np.array([3.0, float("nan"), 2.5])).tolist()
        ['3', None, '2.5']
    """
    values, codes = np.unique(labels, return_inverse=True)
    names = [
        None if v != v else str(int(v)) if isinstance(v, float) and v.is_integer() else str(v)
        for v in values.tolist()
    ]
    return np.array(names, dtype=object)[codes.ravel()].reshape(labels.shape)
