"""Results: one tidy table of scores, columns in and columns out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InputError, did_you_mean, require

if TYPE_CHECKING:
    import pandas

#: Every column with the value that stands for "does not apply".
COLUMNS: dict[str, Any] = {
    "run": "",
    "model": "",
    "epoch": np.nan,
    "step": -1,
    "address": "",
    "unit": -1,
    "kind": "output",
    "target": "",
    "score": "",
    "value": np.nan,
    "low": np.nan,
    "high": np.nan,
    "baseline": np.nan,
    "n": 0,
    "note": "",
}


class Results:
    """One row per score of one address: who, where, when, how much, how sure, against what.

    ``unit`` is -1 for a score of the whole layer, ``step`` -1 and ``epoch`` NaN where unknown; ``low`` and
    ``high`` bound a 95 % interval; ``baseline`` is what the same score gives without knowledge;
    ``n`` is how many rows were seen; ``note`` says why ``value`` is NaN.

    >>> table = Results.from_rows([{"address": "fc1", "score": "mean", "value": 0.5, "n": 10}])
    >>> len(table), table["value"].tolist(), table["unit"].tolist()
    (1, [0.5], [-1])
    """

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, Any] | None = None) -> None:
        given = dict(columns or {})
        for name in given:
            if name not in COLUMNS:
                raise InputError(f"Results has no column {name!r}. {did_you_mean(name, COLUMNS)}")
        sizes = {len(values) for values in given.values()}
        if len(sizes) > 1:
            raise InputError(f"Columns of Results must be equally long, got lengths {sorted(sizes)}.")
        size = sizes.pop() if sizes else 0
        self._columns = {
            name: np.asarray(given[name], dtype=_dtype(missing))
            if name in given
            else np.full(size, missing, dtype=_dtype(missing))
            for name, missing in COLUMNS.items()
        }

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Results:
        """Build from dicts; a missing key or None means "does not apply"."""
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
        """Stack tables; an empty sequence gives an empty table."""
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
        """The rows, as dicts of Python values; what does not apply is None."""
        names = list(COLUMNS)
        for values in zip(*(self._columns[name].tolist() for name in names), strict=True):
            yield {
                name: None if _is_missing(value, COLUMNS[name]) else value
                for name, value in zip(names, values, strict=True)
            }

    def where(self, **equal: Any) -> Results:
        """The rows whose columns equal the values given.

        >>> Results.from_rows([{"score": "mean"}, {"score": "std"}]).where(score="std")["score"].tolist()
        ['std']
        """
        keep = np.ones(len(self), dtype=bool)
        for name, value in equal.items():
            keep &= self[name] == value
        return Results({name: column[keep] for name, column in self._columns.items()})

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a DataFrame, every column present."""
        pd = require("pandas", extra="inspect", why="to turn Results into a DataFrame")
        return pd.DataFrame({name: column.copy() for name, column in self._columns.items()})

    def __repr__(self) -> str:
        scores = sorted(set(self["score"].tolist()))
        addresses = len(set(self["address"].tolist()))
        return f"<Results: {len(self)} rows, {addresses} addresses, scores {', '.join(scores) or '-'}>"


def _dtype(missing: Any) -> Any:
    return {str: object, int: np.int64, float: np.float64}[type(missing)]


def _is_missing(value: Any, missing: Any) -> bool:
    if isinstance(missing, float):
        return isinstance(value, float) and value != value
    return bool(value == missing) and missing in ("", -1)
