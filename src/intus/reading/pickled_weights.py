"""Find which tensors of a file of ``torch.save`` are one, without running what its pickle names."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from .bounds import check_unpacked


def places(data: bytes) -> dict[str, Hashable]:
    """Return where the data of each tensor of a state dict are; tied weights have one place.

    Args:
        data: The bytes of the file.

    Returns:
        Places by the name of the tensor; empty if the file holds anything else than plain tensors.

    Example:
        >>> import torch
        >>> file, weight = io.BytesIO(), torch.ones(2)
        >>> torch.save({"a": weight, "b": weight, "c": torch.ones(2)}, file)
        >>> found = places(file.getvalue())
        >>> found["a"] == found["b"], found["a"] == found["c"]
        (True, False)
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            check_unpacked(archive, len(data), "its weights")
            (member,) = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
            found = _Places(io.BytesIO(archive.read(member))).load()
    except Exception:  # a pickle can fail in any way
        return {}
    if not isinstance(found, dict) or not all(isinstance(one, _Place) for one in found.values()):
        return {}
    return {str(name): one.key for name, one in found.items()}


class _Place:
    """Stands for a tensor."""

    def __init__(self, storage: Any, offset: int, size: Any, stride: Any, *_: Any) -> None:
        self.key = storage, offset, tuple(size), tuple(stride)


class _Storage:
    """Stands for a class of storages, such as ``torch.FloatStorage``."""


def _tensor(place: Any, *_: Any) -> Any:
    """Return the tensor that a parameter is."""
    return place


class _Places(pickle.Unpickler):
    """Unpickles dicts of tensors, with a place for each tensor. It calls and imports nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a class or function of torch."""
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _Place,
            ("torch._utils", "_rebuild_parameter"): _tensor,
        }
        if (module, name) in known:
            return known[module, name]
        if module in ("torch", "torch.storage") and name.endswith("Storage"):
            return _Storage
        raise pickle.UnpicklingError(f"{module}.{name} is no plain tensor")

    def persistent_load(self, pid: Any) -> Any:
        """Return the key of a storage."""
        return pid[2]
