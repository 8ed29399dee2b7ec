"""Find out that a file that is open was deleted or replaced: what is written to it would be lost."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ..core.errors import IntusError

#: Bytes of the least index of a write-ahead log, twice, as a system may count in larger blocks.
_INDEX_BYTES = 64 << 10
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: The device and the number of a file on it; None if there is no file.
Identity = tuple[int, int] | None


class ReplacedError(IntusError, OSError):
    """Raised if a file that is in use was deleted or replaced, so that nothing more can be stored in it."""


def identity(file: Path | int) -> Identity:
    """Return which file is at a path, or open as a descriptor.

    >>> identity(Path("nowhere")) is None
    True
    """
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def want_of_room(folder: Path) -> str:
    """Return why a file cannot grow in a folder for want of room, in the system's words; "" if it can.

    SQLite calls that an input/output error where it cannot make the index of its log.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            left = _INDEX_BYTES
            while left > 0:
                left -= file.write(b"x" * left) or 0
    except OSError as error:
        return error.strerror or "" if error.errno in _NO_ROOM else ""
    return ""


class WatchedFiles:
    """Files that are open and must stay at their paths.

    A number may be given to another file only when nobody has the first one open.

    Args:
        paths: The paths. There may be no file yet; then there must be none later.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._files = {path: identity(path) for path in paths}

    def still(self, path: Path) -> bool:
        """Return whether the file at a path is the same."""
        try:
            return path in self._files and identity(path) == self._files[path]
        except OSError:
            return False

    def change(self) -> str:
        """Return what happened to the first file that is not the same; "" if all are."""
        for path, before in self._files.items():
            try:
                now = identity(path)
            except OSError as error:
                return f"The file {str(path)!r} cannot be found any more ({error.strerror})"
            if now != before:
                what = "deleted or moved" if now is None else "replaced by another"
                return f"The file {str(path)!r} was {what} while it was in use"
        return ""
