"""What a stranger's request may hold: names that can be stored and shown, numbers that can be compared."""

from __future__ import annotations

import json
from typing import Any

from ..core.errors import CodecError, InputError
from ..core.record import Record

_LONGEST_NAME = 1000
_MOST_AXES = 8
_LARGEST_EPOCH = 1e15


def check_text(value: Any, what: str, *, empty: bool = True) -> str:
    """A string that any database can hold; raises InputError that names ``what``."""
    if not isinstance(value, str):
        raise InputError(f"{what} must be a string, got {type(value).__name__}.")
    if not value and not empty:
        raise InputError(f"{what} must not be empty.")
    if len(value) > _LONGEST_NAME:
        raise InputError(f"{what} has {len(value)} characters; the most is {_LONGEST_NAME}.")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{what} {value!r} holds a NUL or half a surrogate pair, which cannot be stored.")
    return value


def check_count(value: Any, what: str) -> int:
    """A count; raises InputError that names ``what``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise InputError(f"{what} must be a count, got {value!r}.")
    return value


def check_epoch(value: Any, what: str) -> float | None:
    """An epoch, None where it is unknown; raises InputError that names ``what``."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and abs(value) < _LARGEST_EPOCH):
        raise InputError(f"{what} must have an epoch that is a finite number, got {value!r}.")
    return value  # type: ignore[no-any-return]


def check_record(record: Record) -> None:
    """Raise InputError for a record that later steps could not work with."""
    for name in ("run", "model", "address", "mode"):
        check_text(getattr(record, name), f"A record's {name}")
    epoch = record.epoch
    if epoch is not None and not abs(epoch) < _LARGEST_EPOCH:
        raise InputError(f"The record at {record.address!r} has epoch {epoch}, not a finite number.")
    if record.step is not None and not -1 <= record.step < 2**62:
        raise InputError(f"The record at {record.address!r} has step {record.step}, not a count.")
    if not 0 <= record.index < 2**31:
        raise InputError(f"The record at {record.address!r} has index {record.index}, not a count.")
    if record.array.ndim > _MOST_AXES:
        raise InputError(
            f"The array at {record.address!r} has {record.array.ndim} axes; the most is {_MOST_AXES}."
        )


def read_json(body: bytes) -> dict[str, Any]:
    """A JSON object, NaN and its like refused; raises CodecError."""
    value = _parse(body or b"{}")
    if not isinstance(value, dict):
        raise CodecError(f"Expected a JSON object, got {type(value).__name__}.")
    return value


def read_names(body: bytes) -> list[str]:
    """A JSON list of names; raises CodecError or InputError."""
    names = _parse(body)
    if not isinstance(names, list):
        raise CodecError(f"Expected a JSON list of names, got {type(names).__name__}.")
    return [check_text(name, "A name") for name in names]


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"Malformed JSON: {error}.") from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON; write null")
