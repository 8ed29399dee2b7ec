"""A server of one training: ``python -m intus.serving.private`` ends when its standard input is closed."""

import os
import signal
import sys
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

    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(main())
