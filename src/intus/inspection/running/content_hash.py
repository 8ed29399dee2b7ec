"""Hash what a call of ``inspect`` depends on, so that stored results are used for the same question only."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np


class NotHashableError(Exception):
    """Raised for a value whose content cannot be hashed."""


class ContentHash:
    """A hash of values by their content, fed step by step.

    Example:
        >>> one, other = ContentHash().add("a", [1, np.zeros(3)]), ContentHash().add("a", [1, np.zeros(3)])
        >>> one.digest() == other.digest() != ContentHash().add("a", [1, np.ones(3)]).digest()
        True
    """

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=20)

    def __copy__(self) -> ContentHash:
        other = ContentHash()
        other._hash = self._hash.copy()
        return other

    def add(self, *values: Any) -> ContentHash:
        """Add values and return self.

        Raises:
            NotHashableError: If a value is neither data nor can be pickled.
        """
        for value in values:
            self._add(value)
        return self

    def digest(self) -> str:
        """Return the hash of all values so far."""
        return self._hash.hexdigest()

    def _add(self, value: Any) -> None:
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        if isinstance(value, Mapping):
            self._tag("map", len(value))
            self.add(*(part for item in value.items() for part in item))
        elif isinstance(value, list | tuple):
            self._tag("list", len(value))
            self.add(*value)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self._tag("array", value.dtype.str, value.shape)
            self._hash.update(np.ascontiguousarray(value).data.cast("B") if value.size else b"")
        elif isinstance(value, np.ndarray):
            self._tag("objects", value.shape)
            self.add(*value.reshape(-1).tolist())
        elif isinstance(value, str | bytes | int | float | complex | bool | type(None) | slice):
            self._tag(type(value).__name__, repr(value))
        else:
            self._pickled(value)

    def _pickled(self, value: Any) -> None:
        try:
            content = pickle.dumps(value, protocol=4)
        except Exception as error:  # whatever __reduce__ raises
            raise NotHashableError(f"{type(value).__name__} cannot be hashed: {error}") from error
        self._tag("pickle", len(content))
        self._hash.update(content)

    def _tag(self, *facts: Any) -> None:
        self._hash.update(repr(facts).encode())
