"""The journal: records on disk until they are scored, so that a killed server loses no acknowledged one.

Each (run, model) has a folder with files of frames. Frames are appended and never changed. A frame is one
request, or a *snapshot* of the run: the state that follows from frames of deleted files. Every file begins
with a snapshot, so a file whose records are all scored can be deleted.

Disks lose and change bytes, most often in a power cut. Damage costs the frames that it hits: reading goes on
at the next whole frame, and the bytes between are kept in a file ``NUMBER.CRC.damaged`` beside. So that
nothing is missing in silence, frames are numbered, a snapshot lists the older files with their sizes, and a
file that was followed by another ends with a frame that says so.

A file that is deleted while a server runs is noticed, since no other is at its path. The server still has
everything in memory, and writes it anew.
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
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...core.errors import IN_USE, CodecError, ServeError
from ...storage.codec import decode_records
from ...storage.same_file import Identity, identity
from ..errors import FullError
from ..options import ServerOptions
from .window import RunKey

_log = logging.getLogger("intus.serving")
_FRAME = struct.Struct("<4sIQI")  # magic, bytes of the head (JSON), bytes of the body, CRC-32 of both
_MAGIC = b"ints"
#: Version of the format, in the file ``format`` of the folder. In version 1, which had no such file, frames
#: have no number, and snapshots do not say which files there are and how many records each window holds.
FORMAT = 2
FILE_BYTES = 64 << 20
#: The end of a file's name until it has its snapshot, and of a folder's until its first file has one. A kill
#: leaves nothing else behind that is not whole and was not acknowledged, so an empty file was damaged.
NEW = ".new"
#: Most files that are open at once. A server sees any number of runs, and a process has few descriptors.
MOST_OPEN = 32
#: Most logs without unscored records that are looked at each second. All of many runs would take long.
IDLE_LOOKS = 50
#: Bytes that small requests may take beyond the limit: they may report the end of an epoch, which frees
#: bytes.
_SLACK = 1 << 20


class JournalFrame(NamedTuple):
    """A frame: ``head`` is JSON, ``body`` the body of a request."""

    head: dict[str, Any]
    body: bytes


def pack(head: Mapping[str, Any], body: bytes = b"") -> list[bytes]:
    """Return a frame's bytes, with the body apart so that a large one is not copied.

    What has no body is written in one call, which a kill does not halve.

    >>> [len(part) for part in pack({}, b"body")]
    [22, 4]
    """
    text = json.dumps(head, separators=(",", ":")).encode()
    return [_FRAME.pack(_MAGIC, len(text), len(body), zlib.crc32(body, zlib.crc32(text))) + text, body]


class Piece(NamedTuple):
    """A part of a file: a frame, or bytes that are none."""

    start: int
    end: int
    frame: JournalFrame | None


def unpack(data: bytes) -> Iterator[Piece]:
    """Yield the pieces of a file's content, which cover it from its begin to its end.

    >>> whole = b"".join(pack({"frame": 0})) + b"".join(pack({"frame": 1}, b"body"))
    >>> [piece.frame and piece.frame.head for piece in unpack(whole[:10] + whole)]
    [None, {'frame': 0}, {'frame': 1}]
    """
    at = 0
    while at < len(data):
        piece = _frame_at(data, at) or Piece(at, _after_damage(data, at), None)
        yield piece
        at = piece.end


def _frame_at(data: bytes, at: int) -> Piece | None:
    """Return the frame that begins at ``at``; None if there is no whole one."""
    end = _said_end(data, at)
    if end is None or end > len(data):
        return None
    _, head_bytes, _, crc = _FRAME.unpack_from(data, at)
    body_at = at + _FRAME.size + head_bytes
    head, body = data[at + _FRAME.size : body_at], data[body_at:end]
    if zlib.crc32(body, zlib.crc32(head)) != crc:
        return None
    try:
        facts = json.loads(head)
    except ValueError:
        return None
    return Piece(at, end, JournalFrame(facts, body)) if isinstance(facts, dict) else None


def _said_end(data: bytes, at: int) -> int | None:
    """Return where a frame at ``at`` ends by its lengths; None if no frame begins there."""
    if len(data) - at < _FRAME.size:
        return None
    magic, head_bytes, body_bytes, _ = _FRAME.unpack_from(data, at)
    head_at = at + _FRAME.size
    # a head is JSON, never empty: the zeros that a power cut leaves at the end have the CRC-32 of nothing
    begins = magic == _MAGIC and data[head_at : head_at + 1] == b"{"
    return head_at + head_bytes + body_bytes if begins else None


def _after_damage(data: bytes, at: int) -> int:
    """Return where the first whole frame after ``at`` begins, or the end."""
    end = _said_end(data, at)
    if end is not None and (end == len(data) or (end < len(data) and _frame_at(data, end))):
        return end  # its lengths are whole, and what looks like a frame in its body is none
    at = data.find(_MAGIC, at + 1)
    while at >= 0 and _frame_at(data, at) is None:
        at = data.find(_MAGIC, at + 1)
    return at if at >= 0 else len(data)


class OpenFiles:
    """The files that are open for writing, at most MOST_OPEN; those used last stay open."""

    def __init__(self) -> None:
        self._files: dict[Path, BinaryIO] = {}

    def open(self, path: Path, end: int) -> BinaryIO:
        """Return the file, positioned at ``end``."""
        file = self._files.pop(path, None) or path.open("r+b", buffering=0)
        file.seek(end)
        self._files[path] = file
        while len(self._files) > MOST_OPEN:
            self.close(next(iter(self._files)))
        return file

    def close(self, path: Path) -> None:
        """Close a file if it is open."""
        if file := self._files.pop(path, None):
            file.close()


class Log:
    """The frames of one (run, model). Not thread-safe.

    Args:
        folder: The folder of its files.
        fsync: Whether to sync to disk before ``append`` returns.
        files: The open files, which several logs may share.
    """

    def __init__(self, folder: Path, fsync: bool, files: OpenFiles | None = None) -> None:
        self._folder, self._fsync, self._files = folder, fsync, files or OpenFiles()
        self._begun = False
        self._number = 0
        self._frames = 0  # number of frames in the newest file
        self._sizes: dict[int, int] = {}  # bytes of each file
        self._identities: dict[int, Identity] = {}  # of each file
        self._windows: dict[int, set[int]] = {}  # the windows each file has records of
        self.damage: list[str] = []  # what ``frames`` found damaged or missing, each as a clause
        self.read = 0  # bytes that ``frames`` has read

    @property
    def nbytes(self) -> int:
        """Bytes of all its files."""
        return sum(self._sizes.values())

    @property
    def is_open(self) -> bool:
        """True if frames can be appended."""
        return self._begun

    def frames(self) -> Iterator[tuple[int, JournalFrame | None]]:
        """Yield (number of the file, frame), the oldest first, with None in place of frames that are lost.

        Raises:
            ServeError: If a file cannot be read at all.
        """
        for unfinished in self._folder.glob(f"*{NEW}"):  # nothing in it was acknowledged
            with contextlib.suppress(OSError):
                unfinished.unlink()
        files = {int(p.stem): p for p in sorted(self._folder.glob("*.log")) if p.stem.isdigit()}
        damaged, listed, followed = set(), dict[int, int](), False
        for number, path in files.items():
            self._number, self._windows[number] = number, set()
            data, expected, lost, followed = _read(path), 0, False, False
            self._sizes[number], self._identities[number] = len(data), identity(path)
            if not data:
                self._report(f"{path.name} is empty")
                yield number, None
            before = self.read
            for start, end, frame in unpack(data):
                self.read = before + end
                given = frame.head.get("frame", expected) if frame is not None else expected
                if frame is None or given < expected:  # a frame that was written before came again
                    damaged.add(number)
                    self._set_aside(
                        number, data[start:end], f"{end - start:,} bytes of {path.name} are no request"
                    )
                    yield number, None
                    lost = True
                    continue
                if given > expected and not lost:
                    self._report(f"{given - expected} requests of {path.name} are missing")
                    yield number, None
                expected, lost, followed = given + 1, False, "next" in frame.head
                listed = frame.head.get("files", listed)
                if not followed:
                    yield number, frame
        for name, size in listed.items():
            number = int(name)
            if number not in files:
                self._report(f"{number:010}.log is missing")
            elif self._sizes[number] < size and number not in damaged and self._sizes[number]:
                self._report(
                    f"{size - self._sizes[number]:,} bytes at the end of {number:010}.log are missing"
                )
        if followed:
            self._report(f"the file after {self._number:010}.log is missing")
            yield self._number, None
        if not files and self._folder.exists() and not any(self._folder.iterdir()):
            self._report("its folder has no file")

    def reject(self, number: int, frame: JournalFrame, reason: str) -> None:
        """Keep a whole frame that cannot be used beside the file, and report it."""
        what = f"a request of {number:010}.log cannot be used ({reason[:200]})"
        self._set_aside(number, b"".join(pack(frame.head, frame.body)), what)

    def _set_aside(self, number: int, content: bytes, what: str) -> None:
        """Write damaged bytes into a file of their own, as far as the disk has room, and report them."""
        path = self._folder / f"{number:010}.{zlib.crc32(content):08x}.damaged"
        try:
            if not path.exists():  # an earlier start found them
                path.write_bytes(content)
            self._report(f"{what} (kept as {path})")
        except OSError as error:
            self._report(f"{what} (and could not be kept: {error})")

    def _report(self, clause: str) -> None:
        self.damage.append(clause)
        _log.warning("Journal %s: %s.", self._folder, clause)

    def begin(self, snapshot: Mapping[str, Any], without: Collection[int] = ()) -> None:
        """Start a new file with a snapshot; the older files stay. An OSError leaves all files unchanged.

        Args:
            snapshot: The state of the run.
            without: Numbers of the older files that are about to be deleted.
        """
        # a folder without a file says that its file was deleted, so it gets its name with the first one
        first = not self._folder.exists()
        folder = self._folder.with_name(self._folder.name + NEW) if first else self._folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self._path(self._number + 1).name
        older = [number for number in self._sizes if number not in without]
        unnamed = path.with_suffix(NEW)
        try:
            with unnamed.open("wb", buffering=0) as file:
                head = {"frame": 0, "state": dict(snapshot), "files": self._listed(older)}
                size, written = _write(file, pack(head), self._fsync), identity(file.fileno())
            unnamed.replace(path)
            if self._fsync:
                _sync_folder(folder)
            if first:
                folder = folder.rename(self._folder)
                path = folder / path.name
                if self._fsync:
                    _sync_folder(folder.parent)
        except OSError:
            with contextlib.suppress(OSError):
                unnamed.unlink(missing_ok=True)
                path.unlink(missing_ok=True)
                if first:
                    folder.rmdir()
            raise
        if self._number in older:
            self._end(self._number)
        self.close()
        self._begun, self._frames = True, 1
        self._number += 1
        self._sizes[self._number], self._windows[self._number] = size, set()
        self._identities[self._number] = written

    def _end(self, number: int) -> None:
        """Write into a file that another follows, so that a start notices if that one is gone."""
        path, end = self._path(number), self._sizes[number]
        with contextlib.suppress(OSError):
            file = self._files.open(path, end)
            try:
                self._sizes[number] += _write(file, pack({"next": number + 1}), self._fsync)
            except OSError:
                file.truncate(end)
        self._files.close(path)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010}.log"

    def _listed(self, numbers: Iterable[int]) -> dict[str, int]:
        return {str(number): self._sizes[number] for number in numbers}

    def append(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        """Append a frame to the newest file. An OSError leaves the file unchanged."""
        assert self._begun
        end = self._sizes[self._number]
        file = self._files.open(self._path(self._number), end)
        try:
            packed = pack({"frame": self._frames, **head}, body)
            self._sizes[self._number] = end + _write(file, packed, self._fsync)
            self._frames += 1
        except OSError:
            file.truncate(end)
            raise

    def renew(
        self, snapshot: Mapping[str, Any], windows: Iterable[tuple[int, Mapping[str, Any], bytes]]
    ) -> None:
        """Write everything that is needed into a new file, in place of the others.

        Args:
            snapshot: The state of the run, with all windows that are not done.
            windows: The number of each of them with the head and the body of a frame of all its records.

        Raises:
            OSError: If it cannot be written. Then ``change`` says the same as before.
        """
        older = list(self._sizes)
        self.begin(snapshot, older)
        for number, head, body in windows:
            self.append(head, body)
            self.hold([number])
        for number in older:
            self._path(number).unlink(missing_ok=True)
            del self._windows[number], self._sizes[number]

    def change(self, *, newest: bool = False) -> str:
        """Return which file was deleted or replaced by another; "" for none.

        Args:
            newest: Whether to look at the newest file alone.
        """
        for number in [self._number] if newest else self._sizes:
            path = self._path(number)
            try:
                now = identity(path)
            except OSError as error:
                return f"The file {str(path)!r} of the journal cannot be found any more ({error.strerror})"
            if now is None or now != self._identities[number]:
                what = "deleted or moved" if now is None else "replaced by another"
                return f"The file {str(path)!r} of the journal was {what} while it was in use"
        return ""

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
        done = [number for number, left in needed.items() if not left]
        if self._number in done:
            self.begin(snapshot, done)
            needed[self._number] = set()
        else:
            kept = [number for number in needed if number not in done and number != self._number]
            self.append({"state": dict(snapshot), "files": self._listed(kept)})
        self._windows = needed
        for number in done:
            self._path(number).unlink(missing_ok=True)
            del self._windows[number], self._sizes[number]

    def close(self) -> None:
        """Close the newest file, to which nothing is appended any more."""
        self._files.close(self._path(self._number))
        self._begun = False

    def clear(self) -> None:
        """Delete the files, none of which has a usable frame; what was damaged stays beside them."""
        for number in self._sizes:
            self._path(number).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it has damaged bytes
            self._folder.rmdir()

    def remove(self) -> None:
        """Delete everything; an OSError may leave a part."""
        self.close()
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._folder)
        self._sizes, self._windows = {}, {}


class Journal:
    """The logs of all runs in one folder, which one server at a time may use.

    Args:
        folder: The folder; it is created if it does not exist.
        max_bytes: Most bytes of all files together.
        fsync: Whether to sync to disk before each acknowledgement. That is needed to survive a power failure,
            but not to survive a kill of the process.

    Raises:
        ServeError: If another server uses the folder, it cannot be written, or a newer version wrote it.

    Attributes:
        damage: What ``replay`` found damaged or missing: clauses for each (run, model), or for the folder of
            one whose name is lost.
        unread: Number of bytes that ``replay`` has still to read.
    """

    def __init__(
        self, folder: str | Path, *, max_bytes: int = ServerOptions.journal_bytes, fsync: bool = False
    ) -> None:
        self.folder, self.max_bytes, self._fsync = Path(folder), max_bytes, fsync
        self._logs: dict[RunKey, Log] = {}
        self._files = OpenFiles()
        self._turn: list[RunKey] = []  # those that ``changed`` has still to look at in this round
        self._seen: tuple[int, int] | None = None  # the folder, when it last looked at it
        self.damage: dict[RunKey | Path, list[str]] = {}
        try:
            self._lock = self._take_folder()
        except BlockingIOError:
            raise ServeError(
                f"The journal {str(self.folder)!r} {IN_USE}. Stop that one (that of a "
                "script or notebook which called probe(to=...) ends with it), or choose another folder "
                "for this one (--journal FOLDER)."
            ) from None
        except OSError as error:
            raise ServeError(
                f"The journal {str(self.folder)!r} cannot be written: {error}. Choose another folder "
                "(--journal FOLDER)."
            ) from error
        self._check_format(self.folder / "format")
        try:
            for unfinished in self.folder.glob(f"*{NEW}"):  # nothing in it was acknowledged
                shutil.rmtree(unfinished, ignore_errors=True)
            files = (path for path in self.folder.glob("*/*.log") if path.parent != self.spool)
            self.unread = sum(path.stat().st_size for path in files)
        except OSError as error:
            self._lock.close()
            raise unusable(self.folder, error) from error

    def _take_folder(self) -> BinaryIO:
        """Make the folder if there is none, and lock it; raises BlockingIOError if another server has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = (self.folder / "lock").open("wb")
        try:
            _lock(lock)
        except OSError:
            lock.close()
            raise
        return lock

    def check_folder(self) -> None:
        """Make the folder again if it was deleted, so that it is this server's.

        Raises:
            OSError: If it is another folder now, or cannot be made.
        """
        path = self.folder / "lock"
        now = identity(path)
        if now == identity(self._lock.fileno()):
            return
        if now is not None:
            raise FileExistsError(
                f"The folder {str(self.folder)!r} was replaced by another while it was in use. Put it back, "
                "or end this server and start it again"
            )
        lock = self._take_folder()
        self._lock.close()
        self._lock = lock
        (self.folder / "format").write_text(f"{FORMAT}\n")

    def changed(
        self, run_keys: Collection[RunKey] | None = None, *, every: bool = False
    ) -> list[tuple[RunKey, Log, str]]:
        """Return the logs that lack a file they wrote, with what happened to it.

        Args:
            run_keys: The (run, model) to look at. By default those with unscored records, and some others in
                turn: they have a file too, with their counts and the numbers of the requests received. If a
                folder was added or removed, all.
            every: Whether the default is all.
        """
        if run_keys is None:
            run_keys = [*self._logs] if self._folder_changed() or every else self._in_turn()
        logs = [(key, log) for key in run_keys if (log := self._logs.get(key)) is not None and log.is_open]
        return [(key, log, change) for key, log in logs if (change := log.change())]

    def _folder_changed(self) -> bool:
        """Return whether the folder lists other names than at the last call."""
        found, before = os.stat(self.folder), self._seen
        self._seen = found.st_ino, found.st_mtime_ns
        return self._seen != before

    def _in_turn(self) -> list[RunKey]:
        self._turn = self._turn or [*self._logs]
        now, self._turn = self._turn[:IDLE_LOOKS], self._turn[IDLE_LOOKS:]
        return list(dict.fromkeys([*(key for key, log in self._logs.items() if log.windows()), *now]))

    def _check_format(self, path: Path) -> None:
        """Raise ServeError if a newer version wrote the journal; else write the number of this one."""
        try:
            found = path.read_text(errors="replace").strip() if path.exists() else ""
            newer = found.isdecimal() and int(found) > FORMAT
            if not newer and found != str(FORMAT):
                path.write_text(f"{FORMAT}\n")
        except OSError as error:
            self._lock.close()
            raise ServeError(
                f"The journal's file {str(path)!r} cannot be used: {error}. Mend that, or choose another "
                "folder (--journal FOLDER)."
            ) from error
        if newer:
            self._lock.close()
            raise ServeError(
                f"The journal {str(self.folder)!r} was written by a newer version of intus, in format "
                f"{found}; this one reads formats up to {FORMAT}. Start that version, or choose another "
                "folder (--journal FOLDER)."
            )

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
            self._logs[run_key] = Log(self.folder / name, self._fsync, self._files)
        return self._logs[run_key]

    def replay(self) -> Iterator[tuple[RunKey, int, JournalFrame | None]]:
        """Yield ((run, model), number of the file, frame) of all frames, those of each run in order.

        Frames that are lost are None, several as one. ``damage`` says what was lost.

        Raises:
            ServeError: If a file cannot be read at all.
        """
        folders = (
            path
            for path in self.folder.iterdir()
            if path.is_dir() and path != self.spool and path.suffix != NEW
        )
        unread = self.unread
        for folder in sorted(folders):
            log, run_key, lost = Log(folder, self._fsync, self._files), None, False
            for number, frame in log.frames():
                self.unread = unread - log.read
                if run_key is None and frame is not None:
                    try:
                        run_key = self._register(_owner(frame), log)
                    except (CodecError, KeyError, TypeError, ValueError, IndexError) as error:
                        log.reject(number, frame, str(error))
                        frame = None
                if frame is None:
                    lost = True
                    continue
                assert run_key is not None
                if lost:
                    yield run_key, number, None
                    lost = False
                yield run_key, number, frame
            if run_key is not None and lost:
                yield run_key, number, None
            unread -= log.read
            if log.damage:
                self.damage[run_key or folder] = log.damage
            if run_key is None:
                log.clear()

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
        """Delete the log of a (run, model); an OSError may leave a part, which a start would read."""
        self.log(run_key).remove()
        del self._logs[run_key]

    def close(self) -> None:
        """Close all files; they stay on disk."""
        for log in self._logs.values():
            log.close()
        self._lock.close()


def unusable(folder: Path, error: Exception) -> ServeError:
    """Return the error of a start that cannot read or continue a journal."""
    why = str(error) or type(error).__name__
    return ServeError(
        f"The journal {str(folder)!r} cannot be read: {why}. What is in it is kept. Mend that and start "
        "again, or choose another folder (--journal FOLDER)."
    )


def _owner(frame: JournalFrame) -> RunKey:
    """Return the (run, model) of a frame: of a snapshot, or of a request if the snapshot is lost."""
    if "state" in frame.head:
        run, model = frame.head["state"]["group"]
        return run, model
    records, envelope = decode_records(frame.body)
    if records:
        return records[0].run, records[0].model
    return envelope["epochs"][0]["run"], envelope["epochs"][0]["model"]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ServeError(
            f"The journal's file {str(path)!r} cannot be read: {error}. Mend that and start again, or choose "
            "another folder (--journal FOLDER)."
        ) from error


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
