"""``Server``: a server in a process of its own.

This module has light imports only: the process that starts a server scores nothing.
"""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import threading
from typing import Any
from urllib.parse import quote

from ..core.errors import ServeError
from ..storage.token_file import VARIABLE
from .options import ServerOptions, choose, takes_options

_READY = re.compile(r"Page: (?P<page>http://\S+) · probes send to (?P<host>\S+):(?P<port>\d+)")


class Server:
    """A server of all roles in a process of its own, for tests, demos and notebooks.

    It is a context manager. The server ends when the block ends, at ``stop()``, or when this process ends, by
    whatever cause; before, it scores what it received, for ten seconds at most. Ctrl+C, or interrupting a
    notebook's cell, does not end it.

    Args:
        options: The options, as for ``serve``; keyword arguments override single ones.

    Attributes:
        page_url: The address of the page, with the token.
        host: The host that probes send to.
        port: The port that probes send to.
        process: The process.

    Raises:
        InputError: If an option has a value that cannot work.
        ServeError: If the server did not start. The text is that of the server's error.

    Example:
        with Server(database="runs.db", port=0) as server:
            probe(model, server.host, server.port)
    """

    @takes_options
    def __init__(self, options: ServerOptions | None = None, /, **changes: Any) -> None:
        chosen = choose(options, changes)
        # every user of the machine can read command lines, but not the environment
        hidden = ("--token=", "--database=")
        arguments = [each for each in chosen.arguments() if not each.startswith(hidden)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "intus.serving.private", f"--database={chosen.database}", *arguments],
            stdin=subprocess.PIPE,  # closed when this process ends, which ends the server
            env=os.environ | ({VARIABLE: chosen.token} if chosen.token else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        atexit.register(self.stop)
        assert self.process.stdout is not None
        try:
            line = self.process.stdout.readline()
        except BaseException:  # Ctrl+C while it starts
            self.process.kill()
            raise
        ready = _READY.search(line)
        if ready is None:
            _, complaint = self.process.communicate()
            raise ServeError(f"The server did not start: {(line + complaint).strip()}")
        self.page_url, self.host, self.port = ready["page"], ready["host"], int(ready["port"])
        if chosen.token:
            self.page_url += f"?token={quote(chosen.token, safe='')}"
        self.log: list[str] = []
        for stream in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self._drain, args=(stream,), daemon=True).start()

    def stop(self, timeout: float = 60.0) -> None:
        """Ask the server to end, and kill it if it has not after ``timeout`` seconds."""
        atexit.unregister(self.stop)
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _drain(self, stream: Any) -> None:
        with stream:  # a pipe that nobody reads would fill up and stop the server
            self.log.extend(stream)
