"""Processes of this machine, as ``/proc`` has them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path


def _fields(pid: int | str) -> list[str]:
    """Return the state, the parent and more of a process; raises OSError if there is none."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def runs_now(pid: int) -> bool:
    """Return whether a process has not ended."""
    try:
        return _fields(pid)[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """Return the processes that a process started, and those that these started."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(name)] = int(_fields(name)[1])
        except OSError:  # it has ended since
            continue
    found, more = set(), {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more} - found
        found |= more
    return found


def wait_for_end(pids: Iterable[int], seconds: float = 60.0) -> None:
    """Wait until processes have ended; raises AssertionError if one has not."""
    deadline = time.monotonic() + seconds
    for pid in pids:
        while runs_now(pid):
            assert time.monotonic() < deadline, f"process {pid} did not end"
            time.sleep(0.1)
