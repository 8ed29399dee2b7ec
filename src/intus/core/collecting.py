"""Tell whether the garbage collector runs, where hardly any code is safe, and run code when an object ends.

The collector runs in the middle of other code of the same thread, wherever that makes an object: while a lock
is held that is not to be taken twice, or while a dict is read that is not to change. At the exit of the
interpreter objects end after the modules whose code would run: what that code refers to is None by then.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

_threads: set[int] = set()  # in which it runs


def is_collecting() -> bool:
    """Return whether the caller is run by the garbage collector, as at the end of an object in a cycle.

    >>> is_collecting()
    False
    """
    return threading.get_ident() in _threads


def when_gone(
    thing: _T,
    call: Callable[[weakref.ref[_T]], object],
    *,
    is_exiting: Callable[[], bool] = sys.is_finalizing,
) -> weakref.ref[_T]:
    """Return a weak reference that calls a function with itself when its object ends before the interpreter.

    Args:
        thing: The object.
        call: The function.
        is_exiting: Returns whether the interpreter ends. It is held here, as no module may be left then.

    Raises:
        TypeError: If there is no weak reference to such an object.

    Example:
        >>> class Model: pass
        >>> model, ended = Model(), []
        >>> reference = when_gone(model, ended.append)
        >>> del model
        >>> ended == [reference]
        True
    """

    def gone(reference: weakref.ref[_T]) -> None:
        if not is_exiting():
            call(reference)

    return weakref.ref(thing, gone)


def _note_phase(
    phase: str, info: Any, get_ident: Callable[[], int] = threading.get_ident, threads: set[int] = _threads
) -> None:
    # The collector calls this also while the interpreter clears this module, so it refers to nothing in it.
    (threads.add if phase == "start" else threads.discard)(get_ident())


gc.callbacks.append(_note_phase)
