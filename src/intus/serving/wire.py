"""Results and notices as JSON, and back with every value checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..core.errors import InputError
from ..core.record import Record
from ..core.results import COLUMNS, Results
from .checks import check_text
from .data_point import DataPoint, Key, Notice


def results_to_json(results: Results, names: Iterable[str] = COLUMNS) -> dict[str, list[Any]]:
    """Columns as lists; NaN and infinities become None.

    >>> results_to_json(Results.from_rows([{"score": "mean", "n": 3}]), ["score", "value", "n"])
    {'score': ['mean'], 'value': [None], 'n': [3]}
    """
    out = {}
    for name in names:
        column = results[name]
        values: list[Any] = column.tolist()
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            values = [value if math.isfinite(value) else None for value in values]
        out[name] = values
    return out


def results_from_json(packet: Mapping[str, Any]) -> Results:
    """Read ``{"columns": {...}}``; raises InputError for anything that is not a table of results."""
    columns = packet.get("columns")
    if not isinstance(columns, dict):
        raise InputError('Expected {"columns": {...}}.')
    checked = {name: _column(name, values) for name, values in columns.items() if name in COLUMNS}
    return Results(checked | {name: values for name, values in columns.items() if name not in COLUMNS})


def notices_from_json(packet: Mapping[str, Any]) -> list[Notice]:
    """Read ``{"notices": [...]}``; raises InputError."""
    rows = packet.get("notices")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError('Expected {"notices": [{...}, ...]}.')
    out = []
    for row in rows:
        facts = {name: row.get(name, Notice._field_defaults.get(name)) for name in Notice._fields}
        for name in ("code", "level", "run", "model"):
            check_text(facts[name], f"A notice's {name}")
        if not isinstance(facts["text"], str) or facts["level"] not in ("info", "warning", "error"):
            raise InputError("A notice has a text, and the level info, warning or error.")
        check_text(facts["text"][:1000], "A notice's text")
        out.append(Notice(**(facts | {"text": facts["text"][:1000]})))
    return out


def point_from_wire(records: list[Record], envelope: Mapping[str, Any]) -> tuple[DataPoint, bool]:
    """A data point as the aggregator sends it, and whether it is the last of its batch."""
    keys = {Key.of(record) for record in records}
    if len(keys) != 1:
        raise InputError(f"A data point holds records of one address and kind, got {len(keys)} of them.")
    kind = check_text(envelope.get("kind"), "A data point's kind", empty=False)
    step, lacks, last = (envelope.get(name) for name in ("step", "lacks", "last"))
    if not isinstance(lacks, str) or not isinstance(last, bool) or not _is_int(step):
        raise InputError("A data point's envelope has a step (int), lacks (str) and last (bool).")
    check_text(lacks, "What a data point lacks")
    clients, began = envelope.get("clients", []), envelope.get("began", 0.0)
    if not isinstance(clients, list) or not _is_number(began):
        raise InputError("A data point's envelope has clients (a list) and began (a time).")
    names = tuple(check_text(client, "A data point's client") for client in clients)
    return DataPoint(
        keys.pop(), kind, records[0].epoch, int(step or 0), tuple(records), lacks, 0, names, float(began)
    ), last


def _column(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise InputError(f"The column {name} must be a list.")
    missing = COLUMNS[name]
    fine: Callable[[Any], bool] = {str: _is_text, int: _is_int, float: _is_number}[type(missing)]
    for value in values:
        if value is not None and not fine(value):
            raise InputError(f"The column {name} holds {value!r}; expected {type(missing).__name__} or null.")
    return [missing if value is None else value for value in values]


def _is_text(value: Any) -> bool:
    return bool(check_text(value, "A text of the results") is not None)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e300
