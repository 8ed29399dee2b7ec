"""A server of one process: ``python -m intus.serving.private`` ends when its standard input is closed.

The system closes it when the process that started the server ends, also if that one is killed. Without
``--database``, the scores are temporary: they end with the server.
"""

import contextlib
import os
import signal
import sys
import tempfile
import threading

from .options import one_thread


def _end_with_parent() -> None:
    """Stop the server when the process that started it has ended, however it ended."""
    while os.read(0, 1024):  # sys.stdin would hold a lock that the end of the interpreter needs
        pass
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # nobody reads these pipes any more
        os.dup2(nowhere, stream)
    os.kill(os.getpid(), signal.SIGTERM)  # it finishes what it received


if __name__ == "__main__":
    one_thread()
    from .run import main

    with contextlib.ExitStack() as ending:
        arguments = sys.argv[1:]
        if not any(each.startswith("--database=") for each in arguments):
            # uvicorn raises the signal again once it has shut down, which would leave the folder
            signal.signal(signal.SIGTERM, lambda *_: sys.exit())
            folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="intus-"))
            arguments.append(f"--database={folder}/scores.db")
        threading.Thread(target=_end_with_parent, daemon=True).start()
        sys.exit(main(arguments))
