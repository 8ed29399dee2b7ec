"""``intus demo``: start a server and a training, and pass on what it prints."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..core.errors import ServeError
from ..engines.on_demand import default_workers
from ..serving.started import Server

#: The other process, which gets its arguments once the server is there. What an optimizer of PyTorch and
#: the first pass would import is imported before, while the server starts: the first curve comes sooner.
_SCRIPT = (
    "import json, sys; import intus.demo.story, torch._dynamo, intus.tracing.run; "
    "print('ready', flush=True); intus.demo.story.tell(**json.loads(sys.stdin.readline()))"
)
#: Every process of the demo computes on one core, because a small network gains nothing from more.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def demo(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    epochs: int = 6,
    database: str | None = None,
    wait: bool = True,
) -> int:
    """Run the demo: train a network on real digits with a probe, inspect its units, and print what was found.

    This process imports nothing that computes: what one imports costs seconds in each process.

    Args:
        host: The address to serve on.
        port: The port of the page; a free one is used if it is taken.
        epochs: The number of epochs.
        database: The file for the scores. Default: a temporary one.
        wait: Whether to keep the page up until Ctrl+C.

    Returns:
        The exit code, 0.

    Raises:
        KeyboardInterrupt: If Ctrl+C is pressed before the demo is done.
        ServeError: If the server cannot start, or the training script fails.
    """
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="intus-demo-") as folder, _script() as script:
        # one process to score in, beside the training, would cost its start and leave the server idle
        engine = None if default_workers() > 1 else "local"
        store = database or str(Path(folder) / "demo.db")
        free = port if _is_free(host, port) else 0
        with Server(host=host, port=free, database=store, engine=engine) as server:
            try:
                script.stdout.readline()  # it has imported what it needs
                print(f"Watch it learn: {server.page_url}\n", flush=True)
                _tell(
                    script,
                    host=server.host,
                    port=server.port,
                    page=server.page_url,
                    epochs=epochs,
                    run=f"digits {time.strftime('%H:%M:%S')}",
                    store=store,
                    checkpoints=folder,
                    began=began,
                )
            except KeyboardInterrupt:
                server.process.kill()  # without waiting for the scores that are left
                raise
            if wait:
                with contextlib.suppress(KeyboardInterrupt):
                    print("\nThe page stays up; press Ctrl+C to end.", flush=True)
                    server.process.wait()
    return 0


@contextlib.contextmanager
def _script() -> Iterator[Any]:
    """Start the other process, which imports what it needs while the server starts."""
    script = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, **ONE_THREAD, "PYTHONIOENCODING": "utf-8"},
        start_new_session=True,  # Ctrl+C reaches the demo only, which then ends the script
    )
    try:
        yield script
    finally:
        script.kill()
        with contextlib.suppress(OSError):
            script.communicate()


def _tell(script: Any, **arguments: Any) -> None:
    """Give the other process its arguments, and print what it prints.

    Raises:
        ServeError: If it fails.
    """
    with contextlib.suppress(BrokenPipeError):
        script.stdin.write(json.dumps(arguments) + "\n")
        script.stdin.close()
    script.stdin = None
    for line in script.stdout:
        print(line, end="", flush=True)
    script.wait()
    if script.returncode:
        raise ServeError(
            f"The training script ended with exit code {script.returncode}. Its output is above."
        )


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
