"""The numbers of large tensors, some at a time: no copy of the whole is made, and a block stays in cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

BLOCK = 32_768  # numbers; as float64 a quarter of a megabyte


def blocks(*tensors: Tensor) -> Iterator[tuple[np.ndarray, ...]]:
    """The numbers of tensors of one size on the CPU, side by side, as flat float64 arrays of at most 32,768.

    >>> [(x.tolist(), y.tolist()) for x, y in blocks(torch.ones(1, 2), torch.zeros(2, 1))]
    [([1.0, 1.0], [0.0, 0.0])]
    """
    for parts in zip(*(torch.split(tensor.reshape(-1), BLOCK) for tensor in tensors), strict=True):
        yield tuple(part.to(torch.float64).numpy() for part in parts)
