"""Mark calls of models that are not part of the training: evaluation, and the tracing of a graph."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

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


@contextmanager
def randomness_kept() -> Iterator[None]:
    """Restore the random states of Python, numpy and eager TensorFlow at the end."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    eager = sys.modules.get("tensorflow.python.eager.context")
    generator = getattr(eager.context(), "_rng", None) if eager is not None else None
    eager_state = generator.getstate() if generator is not None else None
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        if generator is not None and eager_state is not None:
            generator.setstate(eager_state)
