"""A server of this process alone, for ``probe(model, to=...)``."""

from __future__ import annotations

import atexit
import re
import subprocess
import sys
import threading
from typing import IO

from ..core.errors import IN_USE, SERVER, ServeError, check_installed
from .commands import flush
from .sender import get_sender
from .warn_once import log_of_server

#: Seconds in which a server ends that has nothing left to score.
_END_S = 10.0
_READY = re.compile(r"probes send to (?P<host>\S+):(?P<port>\d+)")
_IN_USE = (
    "Another process writes to={0!r}: one that called probe(to=...), or `intus serve`. Each process needs a "
    'database of its own, such as to="runs-1.db". To have the runs of several processes in one, start '
    "`intus serve {0}`, and call probe(model, host, port) with its host and port in each of them."
)


class PrivateServer:
    """A server in a process of its own, which scores and writes into a database.

    It listens on a free port of this machine. It ends when this process ends, by whatever cause, after it has
    scored what it received. What a crash left unscored stays in its journal beside the database. A process
    that ends by itself first runs its probe sets, and waits until all is scored.

    Args:
        database: A path or a URL; None for a temporary one, which ends with the server.

    Attributes:
        host: The host that probes send to.
        port: The port that probes send to.
        process: The process.

    Raises:
        MissingExtraError: If a package that a server needs is not installed.
        ServeError: If it does not start. The text is that of the server's error.
    """

    def __init__(self, database: str | None) -> None:
        where = "" if database is None else f" for to={database!r}"
        check_installed(f"The server that scores{where}", SERVER, "server")
        of_database = [] if database is None else [f"--database={database}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "intus.serving.private", "--port=0", *of_database],
            stdin=subprocess.PIPE,  # closed when this process ends, which ends the server
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl+C in a terminal ends the training alone
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        try:
            line = self.process.stdout.readline()
        except BaseException:  # Ctrl+C while it starts
            self.process.kill()
            raise
        ready = _READY.search(line)
        if ready is None:
            _, complaint = self.process.communicate()
            last = (complaint.strip() or line.strip()).splitlines()[-1:]
            if database is not None and IN_USE in "".join(last):
                raise ServeError(_IN_USE.format(database))
            raise ServeError(f"The server that scores{where} did not start: {''.join(last)}")
        self.host, self.port = ready["host"], int(ready["port"])
        streams = self.process.stdout, self.process.stderr
        self._readers = [threading.Thread(target=_discard, args=(one,), daemon=True) for one in streams]
        for reader in self._readers:
            reader.start()

    @property
    def runs(self) -> bool:
        """True while the process runs."""
        return self.process.poll() is None

    def close(self) -> None:
        """End the server, and wait a while until it has scored what it received; else it goes on alone."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return
        for reader in self._readers:
            reader.join(_END_S)


def _discard(stream: IO[str]) -> None:
    """Read a pipe, which would stop the server when it is full; pass on warnings that are not a probe's."""
    with stream:
        for line in map(str.strip, stream):
            if line.startswith(("WARNING", "ERROR")):
                log_of_server(line.partition(": ")[2])


#: The servers of this process, by database.
_SERVERS: dict[str | None, PrivateServer] = {}
_LOCK = threading.Lock()


def private_server(database: str | None) -> tuple[str, int]:
    """Return the host and port of this process's server for a database, started on first use.

    Args:
        database: An absolute path or a URL; None for a temporary one.

    Raises:
        ServeError: If the server does not start.
    """
    with _LOCK:
        server = _SERVERS.get(database)
        if server is None or not server.runs:
            server = _SERVERS[database] = PrivateServer(database)
            atexit.register(server.close)  # what is registered later runs before it: the sender's end, and
            get_sender(server.host, server.port)
            atexit.register(flush, server.host, server.port)  # before that
    return server.host, server.port
