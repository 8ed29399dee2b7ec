"""Number datasets, so that two have the same number only if they are known to hold the same rows."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Hashable
from itertools import count
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from ...core.collecting import when_gone

#: The most entries of a list or dict that are compared.
_MOST = 1000
#: Datasets without weak references, such as lists, that are kept alive so that no other takes their memory.
_KEPT = 8


class Datasets:
    """The numbers of datasets.

    A dataset is the same if it is the same living object, or if it is of the same class and has the same
    living tensors, arrays and other objects in its attributes: ``TensorDataset(x, y)``, made in each epoch of
    the same ``x`` and ``y``. Addresses of dead objects are never compared, since memory is used again.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> datasets, x, y = Datasets(), torch.ones(3), torch.zeros(3)
        >>> one, same, other = TensorDataset(x), TensorDataset(x), TensorDataset(y)
        >>> datasets.number(one) == datasets.number(same), datasets.number(one) == datasets.number(other)
        (True, False)
    """

    def __init__(self) -> None:
        self._count = count(1)
        self._objects: dict[int, tuple[weakref.ref[Any], int]] = {}  # by id(), as long as they live
        self._kept: deque[tuple[Any, int]] = deque(maxlen=_KEPT)
        self._numbers: dict[int, int] = {}  # of a dataset, by the number of the object
        self._contents: dict[Hashable, int] = {}  # of a dataset, by its contents
        self._alive: dict[int, weakref.ref[Any]] = {}  # the newest object of a dataset, by its number

    def number(self, dataset: Any) -> int:
        """Return the number of a dataset; one that is not known to be an earlier one has a new number."""
        own = self._object(dataset)
        if own is None:
            return self._of_kept(dataset)
        if own not in self._numbers:
            contents = self._contents_of(dataset)
            self._numbers[own] = own if contents is None else self._contents.setdefault(contents, own)
        number = self._numbers[own]
        self._alive[number] = self._objects[id(dataset)][0]
        return number

    def is_gone(self, number: int) -> bool:
        """Return whether no object of a dataset exists any more."""
        known = self._alive.get(number)
        return known is not None and known() is None

    def _of_kept(self, dataset: Any) -> int:
        for one, number in self._kept:
            if one is dataset:
                return number
        self._kept.append((dataset, next(self._count)))
        return self._kept[-1][1]

    def _object(self, thing: Any) -> int | None:
        """Return a number that no other object has or gets; None if its end cannot be observed."""
        key = id(thing)
        known = self._objects.get(key)
        if known is not None and known[0]() is thing:
            return known[1]
        objects, number = self._objects, next(self._count)

        def ended(reference: weakref.ref[Any]) -> None:
            if key in objects and objects[key][0] is reference:
                del objects[key]

        try:
            objects[key] = when_gone(thing, ended), number
        except TypeError:
            return None
        return number

    def _contents_of(self, dataset: Any) -> Hashable | None:
        """Return what a dataset is made of; None if that is not known."""
        try:
            return self._sketch(dataset)
        except (TypeError, AttributeError, RuntimeError):  # slots, recursion, an inference tensor
            return None

    def _sketch(self, value: Any) -> Hashable:
        """Return what a value is made of; raises TypeError if that is not known."""
        if value is None or type(value) in (bool, int, float, str, bytes):
            return type(value), value
        if isinstance(value, Dataset):
            return "dataset", self._living(type(value)), self._sketch(vars(value))
        if isinstance(value, list | tuple | dict) and type(value) in (list, tuple, dict):
            if len(value) > _MOST:
                raise TypeError(f"{len(value)} entries")
            parts = value.items() if isinstance(value, dict) else value
            return type(value), tuple(self._sketch(part) for part in parts)
        if isinstance(value, Tensor):
            base = value if value._base is None else value._base
            place = value.storage_offset(), tuple(value.shape), value.stride(), value.dtype
            return "tensor", self._living(base), value._version, place
        if isinstance(value, np.ndarray):
            owner = value
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            facts = value.__array_interface__
            place = facts["data"], facts["strides"], facts["shape"], value.dtype.str
            return "array", self._living(owner), place
        return "object", self._living(value)

    def _living(self, thing: Any) -> int:
        number = self._object(thing)
        if number is None:
            raise TypeError(f"no weak reference to {type(thing).__name__}")
        return number
