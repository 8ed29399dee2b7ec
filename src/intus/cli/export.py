"""``intus export``: write the scores of recorded trainings as a table."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError, did_you_mean
from ..core.results import COLUMNS

if TYPE_CHECKING:
    import pandas


def _write_json(table: pandas.DataFrame, out: Any) -> None:
    """Write a table as a list of objects; numbers have all digits, NaN and infinities are null."""
    columns = [[_plain(value) for value in column.tolist()] for _, column in table.items()]
    lines = (
        json.dumps(dict(zip(table.columns, row, strict=True)), ensure_ascii=False, allow_nan=False)
        for row in zip(*columns, strict=True)
    )
    Path(out).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Return a value as JSON has it.

    >>> _plain(0.1), _plain(float("nan")), _plain("a")
    (0.1, None, 'a')
    """
    return None if isinstance(value, float) and not math.isfinite(value) else value


#: How to write a table to a file or stream, by the file's ending.
_WRITERS: dict[str, Callable[[pandas.DataFrame, Any], Any]] = {
    ".csv": lambda table, out: table.to_csv(out, index=False),
    ".json": _write_json,
}
_SELECTED = ("model", "address", "kind", "target", "score")
_NUMBERS = ("epoch", "step")


def add(verbs: Any) -> None:
    """Add the command to the command line."""
    verb = verbs.add_parser(
        "export",
        help="write the scores of recorded trainings as a table",
        description="Reads scores from a database or from a server that runs, and writes one row per score: "
        f"{', '.join(COLUMNS)}. intus.runs(...) returns the same in Python.",
    )
    verb.add_argument("where", metavar="WHERE", help="a database (runs.db, a URL) or HOST:PORT of a server")
    verb.add_argument("--run", dest="only", metavar="NAME", help="only this run (default: all)")
    for name in _SELECTED:
        verb.add_argument(f"--{name}", metavar=name.upper(), help=f"only rows of this {name}")
    for name in _NUMBERS:
        verb.add_argument(
            f"--{name}",
            metavar="N[:M]",
            help=f"only this {name}, or from N up to M without M, as in Python; N: and :M are open",
        )
    verb.add_argument("--units", action="store_true", help="scores of single units instead of whole layers")
    verb.add_argument(
        "--out", metavar="FILE", help="file ending in .csv or .json (default: CSV on standard output)"
    )
    verb.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> None:
    from ..reporting import runs

    writer = _WRITERS[".csv"]
    if chosen.out is not None:
        ending = Path(chosen.out).suffix.lower()
        if ending not in _WRITERS:
            raise InputError(f"--out {chosen.out!r} must end in {' or '.join(_WRITERS)}.")
        writer = _WRITERS[ending]
    known = runs(chosen.where)
    selected: dict[str, Any] = {"level": "unit" if chosen.units else "layer"}
    selected |= {name: value for name in _SELECTED if (value := getattr(chosen, name)) is not None}
    selected |= {
        name: _numbers(name, value) for name in _NUMBERS if (value := getattr(chosen, name)) is not None
    }
    if chosen.only is None:
        table = known.scores(**selected)
    elif chosen.only in known:
        table = known[chosen.only].scores(**selected)
    else:
        raise InputError(f"{chosen.where} has no run {chosen.only!r}. {did_you_mean(chosen.only, known)}")
    if chosen.step and table.empty:
        raise InputError(
            f"{chosen.where} has no such scores at --step {chosen.step}. Scores of whole epochs have no step."
        )
    try:
        writer(table, chosen.out or sys.stdout)
    except OSError as error:
        if chosen.out is None:
            raise
        raise InputError(f"--out {chosen.out!r} cannot be written: {error}.") from None


def _numbers(name: str, text: str) -> float | slice:
    """Read a number, or a range of numbers as a slice.

    Example:
        >>> _numbers("epoch", "3"), _numbers("epoch", "3:10"), _numbers("step", "500:")
        (3.0, slice(3.0, 10.0, None), slice(500.0, None, None))
    """
    try:
        first, *rest = [float(part) if part else None for part in text.split(":")]
        bounds = [each for each in (first, *rest) if each is not None]
        is_ordered = len(bounds) < 2 or bounds[0] < bounds[1]
        if bounds and len(rest) < 2 and is_ordered and all(0 <= each < math.inf for each in bounds):
            return slice(first, *rest) if rest else bounds[0]
    except ValueError:
        pass
    raise InputError(
        f"--{name} {text!r} is neither a number, counted from 0, nor a range such as 3:10, 3: or :10, from a "
        "number up to a larger one."
    )
