"""Paths of checkpoints: patterns, and the epochs that file names tell."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.errors import InputError

_EPOCH = re.compile(r"epoch[\s=_.-]*(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


def is_path(value: Any) -> bool:
    """Return whether a value is a path or a pattern of paths."""
    return isinstance(value, str | os.PathLike)


def paths(given: Any) -> list[Path]:
    """Return the paths that a path or a pattern means; a pattern's are sorted by the numbers in them.

    Raises:
        InputError: If there is no such file.
    """
    text = os.fspath(given)
    if Path(text).exists():
        return [Path(text)]
    found = sorted(map(Path, glob.glob(text, recursive=True)), key=_by_numbers)
    if not found:
        kind = "No file matches the pattern" if glob.has_magic(text) else "There is no file"
        raise InputError(f"{kind} {text!r}.")
    return found


def epochs(files: Sequence[Path]) -> list[float]:
    """Return the epoch of each file, from the names where they tell, otherwise 0, 1, 2 ….

    A name tells it by ``epoch=3`` or ``epoch_03``. Otherwise the names must differ in one number only.
    A single file whose name does not tell has epoch NaN.

    Example:
        >>> epochs([Path("ckpt-200.pt"), Path("ckpt-1200.pt")]), epochs([Path("a.pt"), Path("b.pt")])
        ([200.0, 1200.0], [0.0, 1.0])
        >>> epochs([Path("v2-epoch=3-step=90.ckpt"), Path("v2-epoch=4-step=120.ckpt")])
        [3.0, 4.0]
    """
    named = [_EPOCH.findall(file.stem) for file in files]
    if all(len(one) == 1 for one in named):
        found = [float(one[0]) for one in named]
    else:
        numbers = [_NUMBER.findall(file.stem) for file in files]
        frames = {_NUMBER.sub("#", str(file.with_suffix(""))) for file in files}
        same = len(frames) == 1 and len({len(one) for one in numbers}) == 1
        columns = list(zip(*numbers, strict=True)) if same else []
        differing = [column for column in columns if len(files) == 1 or len(set(column)) > 1]
        found = [float(number) for number in differing[0]] if len(differing) == 1 else []
    if len(set(found)) == len(files):
        return found
    return [float("nan")] if len(files) == 1 else [float(number) for number in range(len(files))]


def _by_numbers(path: Path) -> list[tuple[int, int, str]]:
    """Return a key that sorts ``epoch_10`` after ``epoch_9``."""
    parts = re.split(r"(\d+)", str(path))
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]
