"""Ctrl+C that ends the demo whatever code it falls into."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Raise KeyboardInterrupt where Ctrl+C is pressed, as ever, and again by what it yields and at the end:
    libraries that are being imported swallow it (``except:`` around an import of theirs), or turn it into an
    error of another kind. Only for the main thread.
    """
    pressed = False

    def press(signum: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield check
    except Exception:
        check()
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    check()
