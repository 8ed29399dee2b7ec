"""Tell whether the garbage collector runs, in which hardly any code is safe.

It runs in the middle of other code of the same thread, wherever that makes an object: while a lock is held
that is not to be taken twice, or while a dict is read that is not to change.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

_threads: set[int] = set()  # in which it runs


def is_collecting() -> bool:
    """Return whether the caller is run by the garbage collector, as at the end of an object in a cycle.

    >>> is_collecting()
    False
    """
    return threading.get_ident() in _threads


def _note_phase(phase: str, info: Any) -> None:
    (_threads.add if phase == "start" else _threads.discard)(threading.get_ident())


gc.callbacks.append(_note_phase)
