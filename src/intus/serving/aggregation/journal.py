"""The journal: records on disk until they are scored, so that a killed server loses no acknowledged one.

Each (run, model) has a folder with files of frames. Frames are appended and never changed. A frame is one
request, or a *snapshot* of the run: the state that follows from frames of deleted files. Every file begins
with a snapshot, so a file whose records are all scored can be deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...core.errors import ServeError
from ..errors import FullError
from ..options import ServerOptions
from .window import RunKey

_log = logging.getLogger("intus.serving")
_FRAME = struct.Struct("<4sIQI")  # magic, bytes of the head (JSON), bytes of the body, CRC-32 of both
_MAGIC = b"ints"
FILE_BYTES = 64 << 20
#: Bytes that small requests may take beyond the limit: they may report the end of an epoch, which frees
#: bytes.
_SLACK = 1 << 20


class JournalFrame(NamedTuple):
    """A frame: ``head`` is JSON, ``body`` the body of a request."""

    head: dict[str, Any]
    body: bytes


def pack(head: Mapping[str, Any], body: bytes = b"") -> list[bytes]:
    """Return a frame's bytes, in parts so that a large body is not copied.

    >>> [len(part) for part in pack({}, b"body")]
    [20, 2, 4]
    """
    text = json.dumps(head, separators=(",", ":")).encode()
    return [_FRAME.pack(_MAGIC, len(text), len(body), zlib.crc32(body, zlib.crc32(text))), text, body]


def unpack(file: BinaryIO) -> Iterator[tuple[int, JournalFrame]]:
    """Yield (offset of its end, frame) of each frame, up to the first that is damaged."""
    size, end = os.fstat(file.fileno()).st_size, 0
    while len(prefix := file.read(_FRAME.size)) == _FRAME.size:
        magic, head_bytes, body_bytes, crc = _FRAME.unpack(prefix)
        end += _FRAME.size + head_bytes + body_bytes
        if magic != _MAGIC or end > size:
            return
        head, body = file.read(head_bytes), file.read(body_bytes)
        if zlib.crc32(body, zlib.crc32(head)) != crc:
            return
        yield end, JournalFrame(json.loads(head), body)


class Log:
    """The frames of one (run, model). Not thread-safe."""

    def __init__(self, folder: Path, fsync: bool) -> None:
        self._folder, self._fsync = folder, fsync
        self._file: BinaryIO | None = None
        self._number = 0
        self._sizes: dict[int, int] = {}  # bytes of each file
        self._windows: dict[int, set[int]] = {}  # the windows each file has records of

    @property
    def nbytes(self) -> int:
        """Bytes of all its files."""
        return sum(self._sizes.values())

    @property
    def is_open(self) -> bool:
        """True if frames can be appended."""
        return self._file is not None

    def frames(self) -> Iterator[tuple[int, JournalFrame]]:
        """Yield (number of the file, frame), the oldest first; truncate files at damaged frames."""
        for path in sorted(self._folder.glob("*.log")):
            number, end = int(path.stem), 0
            self._number = max(self._number, number)
            self._windows[number] = set()
            with path.open("rb") as file:
                for end, frame in unpack(file):
                    self._sizes[number] = end
                    yield number, frame
            if path.stat().st_size > end:
                _log.warning("Cut %s bytes off %s: a frame was damaged.", path.stat().st_size - end, path)
                os.truncate(path, end)
            self._sizes[number] = end

    def begin(self, snapshot: Mapping[str, Any]) -> None:
        """Start a new file with a snapshot; the older files stay. An OSError leaves all files unchanged."""
        made = not self._folder.exists()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._number + 1:010}.log"
        file = path.open("xb", buffering=0)
        try:
            size = _write(file, pack({"state": dict(snapshot)}), self._fsync)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        if self._fsync:
            for folder in [self._folder, self._folder.parent] if made else [self._folder]:
                _sync_folder(folder)
        self.close()
        self._file = file
        self._number += 1
        self._sizes[self._number], self._windows[self._number] = size, set()

    def append(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        """Append a frame to the newest file. An OSError leaves the file unchanged."""
        assert self._file is not None
        end = self._sizes[self._number]
        try:
            self._sizes[self._number] = end + _write(self._file, pack(head, body), self._fsync)
        except OSError:
            self._file.truncate(end)
            self._file.seek(end)
            raise

    def full(self) -> bool:
        """Return whether the newest file has reached FILE_BYTES."""
        return self._sizes[self._number] >= FILE_BYTES

    def hold(self, windows: Iterable[int], file: int | None = None) -> None:
        """Mark a file, by default the newest, as having records of these windows."""
        self._windows[self._number if file is None else file].update(windows)

    def windows(self) -> set[int]:
        """Return all windows that its files have records of."""
        return set().union(*self._windows.values())

    @property
    def holds(self) -> bool:
        """True if the newest file has records of windows that are not released."""
        return bool(self._windows.get(self._number))

    def release(self, windows: Iterable[int], snapshot: Mapping[str, Any]) -> None:
        """Delete the files that have records of these windows only.

        Args:
            windows: The numbers of windows whose scores are stored.
            snapshot: The state of the run, with these windows done.

        Raises:
            OSError: If the snapshot cannot be written. Then no file is deleted.
        """
        released = set(windows)
        needed = {number: numbers - released for number, numbers in self._windows.items()}
        if needed.get(self._number):
            self.append({"state": dict(snapshot)})
        else:
            self.begin(snapshot)
            needed[self._number] = set()
        self._windows = needed
        for number in [number for number, left in needed.items() if not left and number != self._number]:
            (self._folder / f"{number:010}.log").unlink(missing_ok=True)
            del self._windows[number], self._sizes[number]

    def close(self) -> None:
        """Close the newest file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Delete everything."""
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._sizes, self._windows = {}, {}


class Journal:
    """The logs of all runs in one folder, which one server at a time may use.

    Args:
        folder: The folder; it is created if it does not exist.
        max_bytes: Most bytes of all files together.
        fsync: Whether to sync to disk before each acknowledgement. That is needed to survive a power failure,
            but not to survive a kill of the process.

    Raises:
        ServeError: If another server uses the folder, or it cannot be written.
    """

    def __init__(
        self, folder: str | Path, *, max_bytes: int = ServerOptions.journal_bytes, fsync: bool = False
    ) -> None:
        self.folder, self.max_bytes, self._fsync = Path(folder), max_bytes, fsync
        self._logs: dict[RunKey, Log] = {}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("wb")
            _lock(self._lock)
        except BlockingIOError:
            self._lock.close()
            raise ServeError(
                f"The journal {str(self.folder)!r} is used by another server. Stop that one, or choose "
                "another folder for this one (--journal FOLDER)."
            ) from None
        except OSError as error:
            raise ServeError(
                f"The journal {str(self.folder)!r} cannot be written: {error}. Choose another folder "
                "(--journal FOLDER)."
            ) from error

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(log.nbytes for log in self._logs.values())

    @property
    def spool(self) -> Path:
        """The folder of the messages that are queued for the next server."""
        return self.folder / "spool"

    def log(self, run_key: RunKey) -> Log:
        """Return the log of a (run, model)."""
        if run_key not in self._logs:
            name = hashlib.blake2b(json.dumps(run_key).encode(), digest_size=10).hexdigest()
            self._logs[run_key] = Log(self.folder / name, self._fsync)
        return self._logs[run_key]

    def replay(self) -> Iterator[tuple[RunKey, int, JournalFrame]]:
        """Yield ((run, model), number of the file, frame) of all frames, those of each run in order."""
        folders = (path for path in self.folder.iterdir() if path.is_dir() and path != self.spool)
        for folder in sorted(folders):
            log, run_key = Log(folder, self._fsync), None
            for number, frame in log.frames():
                if run_key is None:
                    run, model = frame.head["state"]["group"]
                    run_key = self._register((run, model), log)
                yield run_key, number, frame
            if run_key is None:  # the server was killed while it wrote the first frame
                log.remove()

    def _register(self, run_key: RunKey, log: Log) -> RunKey:
        self._logs[run_key] = log
        return run_key

    def check_room(self, nbytes: int) -> None:
        """Raise FullError if ``nbytes`` more exceed ``max_bytes``."""
        if self.nbytes + nbytes > self.max_bytes + (_SLACK if nbytes < _SLACK // 16 else 0):
            raise FullError(
                f"The journal holds {self.nbytes:,} of at most {self.max_bytes:,} bytes (--journal-bytes): "
                "send this again later. It becomes smaller as epochs are scored."
            )

    def forget(self, run_key: RunKey) -> None:
        """Delete the log of a (run, model)."""
        self._logs.pop(run_key, self.log(run_key)).remove()

    def close(self) -> None:
        """Close all files; they stay on disk."""
        for log in self._logs.values():
            log.close()
        self._lock.close()


def _write(file: BinaryIO, parts: Iterable[bytes], fsync: bool) -> int:
    written = 0
    for part in parts:
        left = memoryview(part)
        while left:
            done = file.write(left)
            written += done
            left = left[done:]
    if fsync:
        os.fsync(file.fileno())
    return written


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(file: BinaryIO) -> None:
    """Lock the folder for this process; raises BlockingIOError if another has it."""
    try:
        import fcntl
    except ImportError:  # on Windows the journal is not protected against a second server
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
