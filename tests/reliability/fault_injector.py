"""Count the calls of a server to the operating system, the database and memory, and make chosen ones fail.

The calls of SQLite itself fail below it, through the table of system calls that its own tests use
(``xSetSystemCall``), so the errors that Python sees are SQLite's own. Arrays fail in numpy's allocator (NEP
49). Everything else is replaced in the module that the server calls: ``os``, ``io`` and ``sqlite3``.
"""

from __future__ import annotations

import _sqlite3
import builtins
import contextlib
import ctypes
import errno
import io
import os
import signal
import sqlite3
import sqlite3.dbapi2
import sys
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

#: The kinds of calls, and the errors that they raise in turn: numbers of the operating system, or exceptions.
_IO, _FULL, _FILES = errno.EIO, errno.ENOSPC, errno.EMFILE
_DISK = (
    sqlite3.OperationalError("disk I/O error"),
    sqlite3.OperationalError("database or disk is full"),
    sqlite3.OperationalError("database is locked"),
    sqlite3.DatabaseError("database disk image is malformed"),
)
KINDS = {
    "open": (_FILES, _FULL, _IO),
    "read": (_IO,),
    "write": (_FULL, _IO),
    "truncate": (_IO,),
    "fsync": (_IO, _FULL),
    "mkdir": (_FULL, _IO),
    "unlink": (_IO, errno.EACCES),
    "rename": (_FULL, _IO),
    "list": (_IO, _FILES),
    "stat": (_IO,),
    "sqlite open": (_FILES, _IO),
    "sqlite read": (_IO,),
    "sqlite write": (_FULL, _IO),
    "sqlite truncate": (_FULL, _IO),
    "sqlite unlink": (_IO,),
    "connect": (sqlite3.OperationalError("unable to open database file"),),
    "execute": _DISK,
    "commit": _DISK,
    "committed": _DISK[:1],  # it was done, and the answer is an error
    "array": (MemoryError("an array"),),
}
#: What becomes of the calls: one fails, all from one on fail, or the process dies in one.
MODES = ("once", "lasting", "crash")

_REAL_OPEN = io.open
_PACKAGE = f"{os.sep}intus{os.sep}"


@dataclass(frozen=True)
class Fault:
    """A fault at the call number ``at`` (from 1) of a kind."""

    kind: str
    at: int
    mode: str


class Injector:
    """Counts calls while it is ``active``, and makes those of its fault fail.

    Args:
        folder: Calls for paths elsewhere are not counted.
        fault: The fault; None to count only.
        places: Whether to note the place in the package that each call came from.
    """

    def __init__(self, folder: Path, fault: Fault | None = None, places: bool = False) -> None:
        self.folder, self.fault, self.active, self.fired = str(folder), fault, False, False
        self.counts: Counter[str] = Counter()
        self.places: dict[str, list[int]] | None = defaultdict(list) if places else None
        self._lock = threading.RLock()

    @property
    def lasts(self) -> bool:
        """True while calls fail."""
        return self.active and self.fired and self.fault is not None and self.fault.mode == "lasting"

    def call(self, kind: str) -> bool:
        """Count a call, and return whether it must fail; a crash does not return."""
        if not self.active:
            return False
        with self._lock:
            self.counts[kind] += 1
            number = self.counts[kind]
        if self.places is not None:
            self.places[kind].append(hash(_place(sys._getframe(1))))
        fault = self.fault
        if fault is None or fault.kind != kind or number < fault.at:
            return False
        if fault.mode != "lasting" and number > fault.at:
            return False
        self.fired = True
        return True

    def check(self, kind: str, path: object = None) -> None:
        """Count a call, and raise its error or die if it must fail."""
        if self.call(kind):
            self.crash()
            error = self.error(kind)
            raise (OSError(error, os.strerror(error), path) if isinstance(error, int) else error)

    def error(self, kind: str) -> int | Exception:
        """Return the error of the fault, another for the next call."""
        errors = KINDS[kind]
        chosen = errors[self.fault.at % len(errors)]
        return chosen if isinstance(chosen, int) else type(chosen)(*chosen.args)

    def crash(self) -> None:
        """Die if the fault is a crash, as by ``kill -9``."""
        if self.fault.mode == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    def watches(self, path: object, options: dict) -> bool:
        """Return whether a path is one of the server's."""
        if options.get("dir_fd") is not None or (isinstance(path, int) and not isinstance(path, bool)):
            return True
        with contextlib.suppress(TypeError):
            return os.fspath(path).startswith(self.folder)
        return False

    def install(self) -> None:
        """Replace the calls in this process, for good."""
        _install_os(self)
        _install_driver(self)
        _install_sqlite(self)
        _install_numpy(self)


def _place(frame) -> tuple:
    """Return the lines of the package that a call came from."""
    lines = []
    while frame is not None:
        if _PACKAGE in frame.f_code.co_filename and "reliability" not in frame.f_code.co_filename:
            lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)


# -- the operating system ------------------------------------------------------------------------------


class _File(io.FileIO):
    """A file whose reads, writes and truncations can fail; of a failed write a part may be in the file."""

    injector: Injector
    buffered = False

    def write(self, data) -> int:
        if self.injector.call("write"):
            crashes = self.injector.fault.mode == "crash"
            if crashes or not self.buffered:  # a buffer would write the whole again when it is closed
                super().write(bytes(data)[: len(data) // 2])
            self.injector.crash()
            number = self.injector.error("write")
            raise OSError(number, os.strerror(number))
        return super().write(data)

    def truncate(self, size=None) -> int:
        self.injector.check("truncate")
        return super().truncate(size)

    def readall(self) -> bytes:
        self.injector.check("read")
        return super().readall()

    def readinto(self, buffer) -> int:
        self.injector.check("read")
        return super().readinto(buffer)


def _install_os(injector: Injector) -> None:
    _File.injector = injector

    def opened(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *more, **options):
        if not injector.active or isinstance(file, int) or not injector.watches(file, options):
            return _REAL_OPEN(file, mode, buffering, encoding, errors, newline, *more, **options)
        injector.check("open", file)
        raw = _File(os.fspath(file), mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        raw.buffered = True
        kind = io.BufferedRandom if raw.readable() and raw.writable() else None
        kind = kind or (io.BufferedWriter if raw.writable() else io.BufferedReader)
        buffered = kind(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    io.open = builtins.open = opened
    for name, kind in {
        "open": "open",
        "mkdir": "mkdir",
        "unlink": "unlink",
        "remove": "unlink",
        "rmdir": "unlink",
        "replace": "rename",
        "rename": "rename",
        "truncate": "truncate",
        "scandir": "list",
        "listdir": "list",
        "stat": "stat",
    }.items():
        setattr(os, name, _checked(injector, kind, getattr(os, name)))
    real_fsync = os.fsync

    def fsync(descriptor) -> None:
        injector.check("fsync")
        real_fsync(descriptor)

    os.fsync = os.fdatasync = fsync


def _checked(injector: Injector, kind: str, real):
    def call(path=".", *arguments, **options):
        if injector.active and injector.watches(path, options):
            injector.check(kind, path)
        return real(path, *arguments, **options)

    return call


# -- the driver of SQLite ------------------------------------------------------------------------------


def _install_driver(injector: Injector) -> None:
    real = sqlite3.connect

    class Cursor(sqlite3.Cursor):
        def execute(self, *arguments):
            injector.check("execute")
            return super().execute(*arguments)

        def executemany(self, *arguments):
            injector.check("execute")
            return super().executemany(*arguments)

    class Connection(sqlite3.Connection):
        def cursor(self, factory=Cursor):
            return super().cursor(factory)

        def commit(self) -> None:
            injector.check("commit")
            super().commit()
            injector.check("committed")

    def connect(*arguments, **options):
        injector.check("connect")
        return real(*arguments, **{"factory": Connection} | options)

    sqlite3.connect = sqlite3.dbapi2.connect = connect


class _Vfs(ctypes.Structure):
    """The begin of ``sqlite3_vfs`` (https://sqlite.org/c3ref/vfs.html) up to the calls of version 3."""

    _fields_ = [
        ("version", ctypes.c_int),
        ("sizes", ctypes.c_int * 2),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("methods", ctypes.c_void_p * 13),
        (
            "set_system_call",
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
        ),
        ("get_system_call", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)),
    ]


_KEPT = []  # callbacks that C holds


def _install_sqlite(injector: Injector) -> None:
    """Replace system calls of SQLite's own files, as far as its library can be reached and has them."""
    library = ctypes.CDLL(_sqlite3.__file__)
    if not hasattr(library, "sqlite3_vfs_find"):
        return
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None)
    i, n, p, s = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_ssize_t
    for name, kind, result, arguments in [
        (b"open", "sqlite open", i, (ctypes.c_char_p, i, i)),
        (b"pread64", "sqlite read", s, (i, p, n, ctypes.c_int64)),
        (b"pwrite64", "sqlite write", s, (i, p, n, ctypes.c_int64)),
        (b"ftruncate", "sqlite truncate", i, (i, ctypes.c_int64)),
        (b"unlink", "sqlite unlink", i, (ctypes.c_char_p,)),
    ]:
        prototype = ctypes.CFUNCTYPE(result, *arguments, use_errno=True)
        found = vfs.contents.get_system_call(vfs, name)
        if not found:
            continue
        callback = prototype(_system_call(injector, kind, prototype(found)))
        _KEPT.append(callback)
        assert vfs.contents.set_system_call(vfs, name, ctypes.cast(callback, ctypes.c_void_p)) == 0


def _system_call(injector: Injector, kind: str, real):
    def call(*arguments):
        if injector.call(kind):
            if kind == "sqlite write":
                descriptor, data, size, offset = arguments
                real(descriptor, data, size // 2, offset)
            injector.crash()
            ctypes.set_errno(injector.error(kind))
            return -1
        return real(*arguments)

    return call


# -- memory --------------------------------------------------------------------------------------------


class _Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]


class _Handler(ctypes.Structure):
    """``PyDataMem_Handler`` (https://numpy.org/doc/stable/reference/c-api/data_memory.html)."""

    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("allocator", _Allocator)]


_SET_HANDLER = 304  # its place in numpy's table of functions, which never changes


def _install_numpy(injector: Injector) -> None:
    """Replace numpy's allocator in every thread."""
    n, p = ctypes.c_size_t, ctypes.c_void_p
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.calloc.restype = libc.realloc.restype = p
    libc.malloc.argtypes, libc.calloc.argtypes, libc.realloc.argtypes = [n], [n, n], [p, n]

    def failing() -> bool:
        if not injector.call("array"):
            return False
        injector.crash()
        return True

    callbacks = [
        ctypes.CFUNCTYPE(p, p, n)(lambda context, size: None if failing() else libc.malloc(size)),
        ctypes.CFUNCTYPE(p, p, n, n)(lambda context, m, size: None if failing() else libc.calloc(m, size)),
        ctypes.CFUNCTYPE(p, p, p, n)(
            lambda context, old, size: None if failing() else libc.realloc(old, size)
        ),
    ]
    # Arrays are freed while an exception is on its way, where no Python code may run. The processes
    # are short: they free nothing, by a function that does nothing with its arguments.
    allocator = _Allocator(None, *(ctypes.cast(each, p).value for each in [*callbacks, libc.getpid]))
    handler = _Handler(b"faults", 1, allocator)
    core = np._core if hasattr(np, "_core") else np.core
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = (
        p,
        [ctypes.py_object, ctypes.c_char_p],
    )
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [p, ctypes.c_char_p, p]
    table = api.PyCapsule_GetPointer(core._multiarray_umath._ARRAY_API, None)
    function = ctypes.cast(table, ctypes.POINTER(p))[_SET_HANDLER]
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(function)
    capsule = api.PyCapsule_New(ctypes.addressof(handler), b"mem_handler", None)
    _KEPT.extend([*callbacks, allocator, handler, capsule])
    set_handler(capsule)
    real = threading.Thread.run

    def run(thread) -> None:
        set_handler(capsule)
        real(thread)

    threading.Thread.run = run
