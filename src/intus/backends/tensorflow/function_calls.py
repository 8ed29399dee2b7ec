"""Know which calls of functions of TensorFlow are under way: each tells of its begin and end, on its thread.

The operations of a function, and so its calls of the host, run on any thread, and an error ends a function
without a further call of the host. The frames of other threads would show both, but to read them while these
threads run may end the process.
"""

from __future__ import annotations

import threading
import weakref
from itertools import count
from typing import Any, NamedTuple

from .shuffling import loop_data

_CALL = "_call_flat"  # the method through which TensorFlow makes every call of a traced function
_numbers = count(1)
_lock = threading.Lock()
_under_way: dict[int, FunctionCall] = {}


class FunctionCall(NamedTuple):
    """A call of a function.

    Attributes:
        number: Its number; later calls have higher ones.
        thread: The thread that makes it.
        data: The data of the loop of Keras that makes it, or None.
    """

    number: int
    thread: int
    data: Any


def under_way() -> list[FunctionCall]:
    """Return the calls that are under way of functions that tell of them."""
    with _lock:
        return list(_under_way.values())


def tell(function: Any) -> None:
    """Let a traced function tell of its calls, until ``untell``."""
    from tensorflow.python.eager import context

    made = weakref.ref(function)  # what holds itself is freed late
    own = type(function)._call_flat

    def call(*args: Any, **kwargs: Any) -> Any:
        if not context.executing_eagerly():  # it becomes a part of another function, which tells
            return own(made(), *args, **kwargs)
        number = next(_numbers)
        with _lock:
            _under_way[number] = FunctionCall(number, threading.get_ident(), loop_data())
        try:
            return own(made(), *args, **kwargs)
        finally:
            with _lock:
                del _under_way[number]

    setattr(function, _CALL, call)


def untell(function: Any) -> None:
    """Undo ``tell``."""
    vars(function).pop(_CALL, None)
