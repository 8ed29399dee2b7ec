"""The token of a running server in a file that only its user can read, for clients on the same machine.

There is a file for each port: ``$XDG_STATE_HOME/intus/tokens/HOST-PORT``, by default in ``~/.local/state``.
The name of the machine is part of it, because machines of a cluster share home folders.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
from pathlib import Path
from typing import NamedTuple

#: Names of this machine that no other machine can connect to.
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Environment variable with a token: that of the server a client talks to, and the default of a server.
VARIABLE = "INTUS_TOKEN"


def token_path(port: int) -> Path:
    """Return the file for the token of a server of this user on a port of this machine."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "intus" / "tokens" / f"{socket.gethostname()}-{port}"


class TokenFile(NamedTuple):
    """A token file that this process wrote.

    Attributes:
        path: Its path, at which another server may have written another one since.
        identity: Its device, its number on that, and when it was written: what tells it from others.
    """

    path: Path
    identity: tuple[int, int, int]


def write_token(port: int, token: str) -> TokenFile:
    """Write the token of a server into its file, which only this user can read, and return the file.

    Raises:
        OSError: If it cannot be written.
    """
    path = token_path(port)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.parent.chmod(0o700)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(token)
    written = TokenFile(path, _identity(draft))
    draft.replace(path)
    return written


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


def read_token(host: str, port: int) -> str | None:
    """Return the token of a server of this user on this machine; None if there is none.

    A file that others could have written or read is ignored.

    Args:
        host: The server's host name. Only those of this machine alone have files.
        port: Its port.
    """
    if host not in LOOPBACK:
        return None
    try:
        with token_path(port).open(encoding="ascii") as file:
            found = os.fstat(file.fileno())
            if _distrust(found):
                return None
            return file.read() or None
    except (OSError, ValueError, RuntimeError):  # no file, or no home folder
        return None


def why_ignored(host: str, port: int) -> str:
    """Return a sentence on why the file of a server's token is ignored; "" if it is not, or there is none."""
    try:
        path = token_path(port)
        reason = _distrust(path.stat()) if host in LOOPBACK else ""
    except (OSError, RuntimeError):
        return ""
    return f"The file {path} is ignored because {reason}." if reason else ""


def _distrust(found: os.stat_result) -> str:
    """Return why a file is not trusted; "" if it is."""
    if not hasattr(os, "geteuid"):
        return ""
    if found.st_uid != os.geteuid():
        return "it belongs to another user; remove it, or set INTUS_TOKEN"
    return "others can read it; chmod 600" if stat.S_IMODE(found.st_mode) & 0o077 else ""


def remove_token(written: TokenFile) -> None:
    """Remove the token file of a server that ended, unless another server has written one, even the same."""
    with contextlib.suppress(OSError):
        if _identity(written.path) == written.identity:
            written.path.unlink()
