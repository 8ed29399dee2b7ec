"""Hash what a call of ``inspect`` depends on, so that stored results are used for the same question only."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from hashlib import blake2b
from types import FunctionType
from typing import Any

import numpy as np

from ...backends.content import is_module_of_caller, is_of_caller

_ARRAYS = (np.ndarray, np.memmap)  # masked arrays are pickled with their masks
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


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
            value = self._array(value.detach().cpu())
        if isinstance(value, Mapping):
            self._tag("map", type(value).__qualname__, len(value))
            self.add(*(part for item in value.items() for part in item))
        elif isinstance(value, list | tuple):
            self._tag(type(value).__qualname__, len(value))
            self.add(*value)
        elif type(value) in _ARRAYS and not value.dtype.hasobject:
            self._tag("array", repr(value.dtype), value.shape)
            self._hash.update(np.ascontiguousarray(value).data.cast("B") if value.size else b"")
        elif type(value) in _ARRAYS and value.dtype == object:
            self._tag("objects", value.shape)
            self.add(*value.reshape(-1).tolist())
        elif type(value) in _PLAIN or isinstance(value, slice):
            self._tag(type(value).__name__, repr(value))
        else:
            self._pickled(value)

    def _array(self, tensor: Any) -> Any:
        """Return a tensor as an array; numpy has no bfloat16, whose values float has, too."""
        self._tag("tensor", str(tensor.dtype))
        try:
            return tensor.numpy()
        except TypeError:
            return tensor.float().numpy()

    def _pickled(self, value: Any) -> None:
        content = io.BytesIO()
        try:
            _DataPickler(content, protocol=4).dump(value)
        except Exception as error:  # whatever __reduce__ raises
            raise NotHashableError(f"{type(value).__name__} cannot be hashed: {error}") from error
        self._tag("pickle", content.tell())
        self._hash.update(content.getbuffer())

    def _tag(self, *facts: Any) -> None:
        self._hash.update(repr(facts).encode())


class _DataPickler(pickle.Pickler):
    """Refuses functions and classes of the caller, which pickle names without their code."""

    def reducer_override(self, value: Any) -> Any:
        """Raise NotHashableError for such an object, and leave others to pickle."""
        of_caller = isinstance(value, FunctionType) and is_of_caller(value)
        if of_caller or (isinstance(value, type) and is_module_of_caller(value.__module__)):
            raise NotHashableError(f"the code of {value.__qualname__} may change")
        return NotImplemented
