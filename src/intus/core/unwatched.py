"""Looking at a model without being looked at: while ``trace`` or ``inspect`` runs a model that a probe
watches, the probe looks away, for what they run is no part of the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_unwatched: ContextVar[bool] = ContextVar("intus_unwatched", default=False)


@contextmanager
def unwatched() -> Iterator[None]:
    """Probes look away, in this thread, until the block ends.

    >>> with unwatched():
    ...     is_unwatched()
    True
    >>> is_unwatched()
    False
    """
    token = _unwatched.set(True)
    try:
        yield
    finally:
        _unwatched.reset(token)


def is_unwatched() -> bool:
    """Whether probes should look away."""
    return _unwatched.get()
