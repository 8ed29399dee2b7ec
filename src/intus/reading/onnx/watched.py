"""Run a session of onnxruntime so that Ctrl-C ends it, and that it ends where it takes far too much memory.

onnxruntime computes outside of Python, which sees no signal meanwhile. So it runs in a thread of its own, and
is told to stop: it looks between two operations, also inside of loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Seconds between two looks at the memory of the process.
_EVERY = 0.05


def run(
    session: Any, runtime: Any, feeds: Mapping[str, Any], check: Callable[[int], None] = lambda _: None
) -> list[Any]:
    """Return the outputs of a session.

    Args:
        session: The session.
        runtime: The module ``onnxruntime``.
        feeds: The inputs by name.
        check: Is called with the bytes by which the process has grown, and raises if these are too many; not
            on systems that do not tell them.
    """
    options, before = runtime.RunOptions(), _resident()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.run, None, feeds, options)
        try:
            while not wait([running], _EVERY).done:
                check(_resident() - before)
        except BaseException:
            options.terminate = True
            raise
        return list(running.result())


def _resident() -> int:
    """Return the bytes of memory that the process holds; 0 if the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    return 0
