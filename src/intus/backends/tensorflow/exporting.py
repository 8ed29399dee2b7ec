"""Keep the operations of intus out of functions that are made to be exported.

A function of TensorFlow that calls an observed model calls the host, which no other process has. What is
exported (a SavedModel, a TFLite model, a frozen graph) comes from ``get_concrete_function``: TensorFlow's own
``tf.saved_model.save`` and Keras's ``export`` take it from there as well. So a model is not observed in a
function that is traced there; and one that was traced for a training, which TensorFlow would take from its
cache, is traced again.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.core.function.polymorphism.function_cache import FunctionCache
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from .function_calls import tell, untell

NOT_RECORDED = (
    "Calls of what get_concrete_function returns are not recorded, because it may be exported, and an export "
    "cannot call Python. To record them, call the tf.function itself."
)
_MAKES = "_get_concrete_function_garbage_collected"
_EXPORTERS = ("keras.src.export.", "tensorflow.lite.", "tensorflow.python.saved_model.", "tf2onnx.")
_MARK = "_intus_gate"
_local = threading.local()
_installed: list[bool] = []
_tapped: weakref.WeakSet[Any] = weakref.WeakSet()  # functions that call the host


class _Export:
    """The making of one concrete function.

    Attributes:
        is_asked: Whether the script asked for it, and not what is known to export.
        is_apart: Whether something in it is not as in a function of the training.
    """

    def __init__(self, is_asked: bool) -> None:
        self.is_asked, self.is_apart = is_asked, False


def mark(variable: Any, *, is_open: bool) -> None:
    """Let functions be known by a variable that they read to call the host.

    Args:
        variable: The variable.
        is_open: Whether they call the host, of which they tell then; see ``function_calls``.
    """
    for one in getattr(variable, "_values", None) or [variable]:  # of a strategy, a variable on each device
        setattr(one.handle, _MARK, is_open)
    if not _installed:
        _installed.append(True)
        _install()
    for function in list(_tapped):
        if not any(_marks(function)):
            untell(function)
            _tapped.discard(function)


def left_out() -> str | None:
    """Return None unless a function is made for an export now; then what is to be said, maybe ``""``."""
    export = _current()
    if export is None:
        return None
    export.is_apart = True
    return NOT_RECORDED if export.is_asked else ""


def _current() -> _Export | None:
    """Return the making of a concrete function that this thread is inside of."""
    return getattr(_local, "export", None)


@contextmanager
def _exporting() -> Iterator[None]:
    before = _current()
    _local.export = before or _Export(not _is_of_exporter())
    try:
        yield
    finally:
        _local.export = before


def _is_of_exporter() -> bool:
    """Return whether a function that exports asks for the concrete function."""
    frame = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_EXPORTERS):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _marks(concrete: Any) -> list[bool]:
    """Return, of each gate that a function was traced with, whether it is open."""
    captures = concrete.graph.external_captures
    return [getattr(one, _MARK) for one in captures if hasattr(one, _MARK)]


def _apart(context: Any) -> Any:
    """Return the key in a cache of functions that are made for exports."""
    return context._replace(scope_type=("intus", context.scope_type))


def _install() -> None:
    """Give TensorFlow's functions and their caches methods that know of exports.

    They stay, because functions that were traced while a model was observed do. For all other functions they
    do what TensorFlow's own do.
    """
    makes = getattr(polymorphic_function.Function, _MAKES)
    lookup, add = FunctionCache.lookup, FunctionCache.add

    @functools.wraps(makes)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _exporting():
            return makes(self, *args, **kwargs)

    @functools.wraps(lookup)
    def looked_up(self: Any, function_type: Any, context: Any = None) -> Any:
        found = lookup(self, function_type, context)
        export = _current()
        if export is None or context is None or (found is not None and not _marks(found)):
            return found
        found = lookup(self, function_type, _apart(context))
        export.is_apart |= found is not None
        return found

    @functools.wraps(add)
    def added(self: Any, fn: Any, context: Any = None) -> None:
        export = _current()
        is_apart = export is not None and context is not None and export.is_apart
        if any(_marks(fn)):
            _tapped.add(fn)
            tell(fn)
        add(self, fn, _apart(context) if is_apart else context)

    for of, name, function in (
        (polymorphic_function.Function, _MAKES, made),
        (FunctionCache, "lookup", looked_up),
        (FunctionCache, "add", added),
    ):
        setattr(of, name, function)
