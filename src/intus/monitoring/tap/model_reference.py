"""Refer to a model weakly, and to what it is made of until its last state is recorded.

A probe keeps no model: a script that drops one must get its memory back, or it may fail for want of it, which
is worse than to lack a point. But a model often ends with the function that trains it, and only then is it
known that no step follows. So its attributes are kept, the parameters among them, but not the model itself.
When it dies, a twin with the same attributes can run once more, and then all is let go, at once. Where the
garbage collector finds it, that waits for the next look: a flush, the next probe of any server, the removal
or the exit. So that it is looked at, the newest few that were not removed keep what they belong to.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ...core.collecting import is_collecting, when_gone

_MOST = 4
_kept: deque[tuple[ModelReference, Callable[[], None]]] = deque(maxlen=_MOST)
_awaited: weakref.WeakSet[ModelReference] = weakref.WeakSet()  # with an ``on_end`` that may be due


def end_dead() -> None:
    """Call ``on_end`` for each model that the garbage collector found, whichever probe it is of."""
    for reference in list(_awaited):
        if reference.is_dead:
            reference.end()


class ModelReference:
    """A weak reference to a model, which returns a twin of it after its end as long as its parts are kept.

    Args:
        model: The model.
        remains: A function that returns a twin, made of the parts of the model; None if there is none.
        on_end: A method, to be called when the model dies before ``release``, but not while the garbage
            collector runs, for no code of a model should run there.
        keeps: Whether the object of ``on_end`` is kept, of the newest few.

    Example:
        >>> class Model: pass
        >>> model, parts = Model(), [1, 2]
        >>> reference = ModelReference(model, lambda: parts)
        >>> del model
        >>> reference()
        [1, 2]
        >>> reference.release()
        >>> reference() is None
        True
    """

    def __init__(
        self,
        model: Any,
        remains: Callable[[], Any] | None = None,
        on_end: Callable[[], None] | None = None,
        *,
        keeps: bool = True,
    ) -> None:
        self._remains, self._twin, self._pid = remains, None, os.getpid()
        self._on_end = None if on_end is None else weakref.WeakMethod(on_end)
        if on_end is not None:
            _awaited.add(self)
            if keeps:
                _kept.append((self, on_end))
        own = weakref.ref(self)

        def ended(reference: Any) -> None:
            if (mine := own()) is not None:
                mine._ended()

        self._reference = when_gone(model, ended)

    def __call__(self) -> Any:
        """Return the model, or its twin; None if neither exists."""
        model = self._reference()
        if model is None and self._twin is None and self._remains is not None:
            self._twin = self._remains()
        return self._twin if model is None else model

    @property
    def is_dead(self) -> bool:
        """True if the model no longer exists."""
        return self._reference() is None

    def release(self) -> None:
        """Let go of what the model is made of, and do not call ``on_end`` any more."""
        self._remains = self._twin = self._on_end = None
        _awaited.discard(self)
        for each in [each for each in _kept if each[0] is self]:
            _kept.remove(each)

    def end(self) -> None:
        """Call ``on_end`` once, in the process that the model is of, and then let go of all."""
        if self._on_end is None or os.getpid() != self._pid:
            return
        if (on_end := self._on_end()) is not None:
            on_end()
        self.release()

    def _ended(self) -> None:
        if not is_collecting():
            self.end()
