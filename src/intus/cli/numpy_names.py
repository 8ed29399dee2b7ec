"""The names of numpy for ``--inputs`` where torch is not installed, with functions that torch has too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def numpy_names() -> dict[str, Any]:
    """Return the names of numpy and ``numpy.random``, among which some functions take what torch's take.

    >>> names = numpy_names()
    >>> names["ones"](2, 4).shape, names["zeros"]((2, 4), dtype=names["int64"]).dtype
    ((2, 4), dtype('int64'))
    >>> names["randn"]([3]).dtype, names["randint"](5, (2, 3)).shape
    (dtype('float32'), (2, 3))
    """
    made: dict[str, Callable[[Any], Any]] = {"ones": np.ones, "zeros": np.zeros}
    made |= {"rand": np.random.random_sample, "randn": np.random.standard_normal}
    return {
        **vars(np.random),
        **vars(np),
        "np": np,
        **{name: _taking_lengths(make) for name, make in made.items()},
        "randint": _randint,
    }


def _taking_lengths(make: Callable[[Any], Any]) -> Callable[..., np.ndarray]:
    """Return a function that takes a shape or its lengths, and a dtype, which is that of torch by default."""

    def called(*size: Any, dtype: Any = np.float32, **given: Any) -> np.ndarray:
        if size and isinstance(size[-1], type | str | np.dtype):  # as numpy has it: ones((2, 4), float32)
            *size, dtype = size  # type: ignore[assignment]
        shape = given.pop("size", size[0] if len(size) == 1 else size)
        if given:
            raise TypeError(f"{next(iter(given))}= is an argument of torch, which is not installed")
        return np.asarray(make(shape), dtype)

    return called


def _randint(low: Any = 0, high: Any = None, size: Any = None, dtype: Any = np.int64) -> np.ndarray:
    """Return integers below a bound, or from a first bound on: ``randint(5, (2, 3))``."""
    if isinstance(high, Sequence):
        high, size = None, high
    return np.asarray(np.random.randint(low, high, size), dtype)
