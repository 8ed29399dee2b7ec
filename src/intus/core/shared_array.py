"""Read a framework's tensor as a numpy array without a copy and without side effects."""

from __future__ import annotations

from typing import Any

import numpy as np


def shared_array(tensor: Any) -> np.ndarray:
    """Return a numpy array that shares the memory of a CPU tensor.

    ``Tensor.numpy()`` of PyTorch marks the tensor's storage as not resizable, for good. Whoever frees or
    resizes it later (FSDP, an offloader, ``Tensor.resize_``) would get an exception. DLPack does not.

    Args:
        tensor: A CPU tensor of numbers that does not require gradients. Boolean tensors need NumPy 1.25.

    Raises:
        RuntimeError: If the tensor is of a subclass that handles torch's operators itself, because such a
            tensor may have no memory of its own (a FakeTensor). Other subclasses have plain memory.

    Example:
        >>> import torch
        >>> t = torch.ones(2)
        >>> shared_array(t).tolist(), t.untyped_storage().resizable()
        ([1.0, 1.0], True)
    """
    if type(tensor).__torch_dispatch__.__name__ != "_disabled_torch_dispatch_impl":
        raise RuntimeError(f"A {type(tensor).__name__} has no plain memory.")
    return np.from_dlpack(tensor)
