"""Let Ctrl+C end the demo even if a library swallows it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Raise KeyboardInterrupt for Ctrl+C reliably inside the context; only for the main thread.

    Libraries that are being imported may swallow it (``except:`` around an import) or turn it into another
    exception. It is therefore raised again at the end of the context, and by the function that the context
    yields.

    Yields:
        A function that raises KeyboardInterrupt if Ctrl+C was pressed.
    """
    pressed = False

    def press(signum: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, press)
    try:
        yield check
    except Exception:
        check()
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
    check()
