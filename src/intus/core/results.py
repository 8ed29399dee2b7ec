"""Results: a tidy table of scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InputError, did_you_mean, require

if TYPE_CHECKING:
    import pandas

#: Every column with the value that means "does not apply".
COLUMNS: dict[str, Any] = {
    "run": "",
    "model": "",
    "epoch": np.nan,
    "step": -1,
    "address": "",
    "unit": -1,
    "kind": "output",
    "mode": "",
    "target": "",
    "score": "",
    "value": np.nan,
    "low": np.nan,
    "high": np.nan,
    "baseline": np.nan,
    "n": 0,
    "note": "",
    "training": np.nan,
}
#: What the note of a score says that another training under the same name has left in place.
EARLIER = "of an earlier training under the same run="


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """The classes that a classifier predicted on held-out rows, from which its scores are computed.

    Attributes:
        run: The run.
        model: The model.
        epoch: The epoch; NaN if unknown.
        step: The step, -1 for a whole epoch.
        address: The layer.
        kind: The kind of array.
        target: The target.
        score: The score that is computed from them.
        classes: The labels, in order.
        items: The id of what each row belongs to, int64 of shape (rows,): its group, or else its item.
        truth: The class of each row as its number in ``classes``, int64 of shape (rows,).
        guess: The predicted class of each row, likewise.
    """

    run: str
    model: str
    epoch: float
    step: int
    address: str
    kind: str
    target: str
    score: str
    classes: tuple[Any, ...]
    items: np.ndarray
    truth: np.ndarray
    guess: np.ndarray


class Results:
    """A table of scores with one row per score of one address.

    The columns are:

    - ``run``, ``model``: the training run (or inspection) and the model
    - ``epoch``, ``step``: when; NaN and -1 if unknown
    - ``address``: the operation or module
    - ``unit``: the unit, counted from 0; -1 for a score of the whole layer
    - ``kind``: the kind of array that was scored, such as ``"output"``; of another mode than the run's first
      records, with it: ``"output@eval"``
    - ``mode``: the mode of the model: ``"train"``, ``"eval"``, ``"probe"`` of a probe set; ``""`` if unknown
    - ``target``: the labels that it was scored against; ``""`` if none
    - ``score``: the name of the score
    - ``value``: the score; NaN if it could not be computed
    - ``low``, ``high``: bounds of the 95 % confidence interval
    - ``baseline``: the value that the same score has without information about the labels
    - ``n``: the number of rows it was computed from
    - ``note``: the reason why ``value`` is NaN, or a caveat
    - ``training``: when the training began that it is of, in seconds since 1970; NaN if unknown. Trainings
      under one name differ in it

    ``table[column]`` returns a column as a numpy array, ``len(table)`` the number of rows, and iteration
    yields the rows as dicts, with None for what does not apply.

    Args:
        columns: Arrays or lists of equal length, by column name. Missing columns are filled with the value
            that means "does not apply".

    Raises:
        InputError: If there is no such column, or the columns differ in length.

    Example:
        >>> table = Results.from_rows([{"address": "fc1", "score": "mean", "value": 0.5, "n": 10}])
        >>> len(table), table["value"].tolist(), table["unit"].tolist()
        (1, [0.5], [-1])
    """

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, Any] | None = None) -> None:
        columns = dict(columns or {})
        for name in columns:
            if name not in COLUMNS:
                raise InputError(f"Results has no column {name!r}. {did_you_mean(name, COLUMNS)}")
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            raise InputError(f"Columns of Results must be equally long, got lengths {sorted(lengths)}.")
        length = lengths.pop() if lengths else 0
        self._columns = {
            name: np.asarray(columns[name], dtype=_dtype(missing))
            if name in columns
            else np.full(length, missing, dtype=_dtype(missing))
            for name, missing in COLUMNS.items()
        }

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Results:
        """Build a table from dicts, one per row.

        Args:
            rows: Dicts by column name. A missing key or None means "does not apply".

        Raises:
            InputError: If there is no such column.
        """
        rows = list(rows)
        for row in rows:
            for name in row:
                if name not in COLUMNS:
                    raise InputError(f"Results has no column {name!r}. {did_you_mean(name, COLUMNS)}")
        return cls(
            {
                name: [missing if (value := row.get(name)) is None else value for row in rows]
                for name, missing in COLUMNS.items()
            }
        )

    @classmethod
    def concat(cls, tables: Iterable[Results]) -> Results:
        """Concatenate tables. An empty sequence gives an empty table."""
        tables = list(tables)
        if not tables:
            return cls()
        return cls({name: np.concatenate([t[name] for t in tables]) for name in COLUMNS})

    def __len__(self) -> int:
        return len(self._columns["value"])

    def __getitem__(self, column: str) -> np.ndarray:
        if column not in self._columns:
            raise InputError(f"Results has no column {column!r}. {did_you_mean(column, COLUMNS)}")
        return self._columns[column]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dicts of Python values; what does not apply is None."""
        names = list(COLUMNS)
        for values in zip(*(self._columns[name].tolist() for name in names), strict=True):
            yield {
                name: None if _is_missing(value, COLUMNS[name]) else value
                for name, value in zip(names, values, strict=True)
            }

    def where(self, **equal: Any) -> Results:
        """Return the rows whose columns equal the given values.

        Args:
            **equal: A value for each column to compare, or a slice of numbers: from its start up to its stop,
                without it.

        Raises:
            InputError: If there is no such column.

        Example:
            >>> Results.from_rows([{"score": "mean"}, {"score": "std"}]).where(score="std")["score"].tolist()
            ['std']
            >>> table = Results.from_rows([{"epoch": epoch} for epoch in range(5)])
            >>> table.where(epoch=slice(3, None))["epoch"].tolist()
            [3.0, 4.0]
        """
        keep = np.ones(len(self), dtype=bool)
        for name, value in equal.items():
            keep &= _within(self[name], value) if isinstance(value, slice) else self[name] == value
        return Results({name: column[keep] for name, column in self._columns.items()})

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a DataFrame with every column; its arrays are copies.

        Raises:
            MissingExtraError: If pandas is not installed.
        """
        pd = require("pandas", extra="inspect", why="to turn Results into a DataFrame")
        return pd.DataFrame({name: column.copy() for name, column in self._columns.items()})

    def __repr__(self) -> str:
        scores = sorted(set(self["score"].tolist()))
        addresses = len(set(self["address"].tolist()))
        return f"<Results: {len(self)} rows, {addresses} addresses, scores {', '.join(scores) or '-'}>"


def _within(column: np.ndarray, numbers: slice) -> np.ndarray:
    """Return which numbers of a column are in a slice."""
    low = -np.inf if numbers.start is None else numbers.start
    high = np.inf if numbers.stop is None else numbers.stop
    within: np.ndarray = (column >= low) & (column < high)
    return within


def _dtype(missing: Any) -> Any:
    return {str: object, int: np.int64, float: np.float64}[type(missing)]


def _is_missing(value: Any, missing: Any) -> bool:
    if isinstance(missing, float):
        return isinstance(value, float) and value != value
    return bool(value == missing) and missing in ("", -1)
