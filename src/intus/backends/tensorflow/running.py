"""Mark calls of models that are not part of the training: evaluation, and the tracing of a graph."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_local = threading.local()


@contextmanager
def evaluated() -> Iterator[None]:
    """Mark calls on this thread as evaluation."""
    before, _local.evaluated = is_evaluated(), True
    try:
        yield
    finally:
        _local.evaluated = before


def is_evaluated() -> bool:
    """Return whether calls on this thread are evaluation."""
    return bool(getattr(_local, "evaluated", False))


@contextmanager
def unobserved() -> Iterator[None]:
    """Keep attachments from observing calls on this thread."""
    before, _local.unobserved = is_unobserved(), True
    try:
        yield
    finally:
        _local.unobserved = before


def is_unobserved() -> bool:
    """Return whether calls on this thread are not observed."""
    return bool(getattr(_local, "unobserved", False))
