"""A PostgreSQL server of the tests' own: begun in a new folder, reached by a socket, stopped in the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest


def _tool(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not found and shutil.which(name) is None:
        pytest.skip("needs PostgreSQL; `make test-postgres` installs Debian's")
    return str(found[-1]) if found else name


def _run(*command: str) -> None:
    """Run it as another user than root, whom PostgreSQL refuses."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    done = subprocess.run([*prefix, *command], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def postgres() -> Iterator[Callable[[], str]]:
    """A function that makes a new, empty database and returns its URL."""
    pytest.importorskip("psycopg", reason="part of the extra postgres")
    import psycopg

    control, user = _tool("pg_ctl"), "intus"
    folder = Path(tempfile.mkdtemp(prefix="intus-pg-"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    data = folder / "data"
    _run(_tool("initdb"), "-D", str(data), "-U", user, "-A", "trust", "-E", "UTF8", "--no-sync")
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    _run(control, "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
    numbers = count(1)

    def make() -> str:
        name = f"db{next(numbers)}"
        with psycopg.connect(f"host={folder} user={user} dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://{user}@/{name}?host={folder}"

    try:
        yield make
    finally:
        _run(control, "-D", str(data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder, ignore_errors=True)
