"""Compare the rows of a batch with the samples that a collate function made it of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.nested import leaves

#: The most rows of a batch that is looked at: each is compared with each.
MOST = 256


def is_reordered(samples: Sequence[Any], tensors: Sequence[Tensor]) -> bool:
    """Return whether the rows of a batch are its samples in another order, which is then known.

    A row is a sample if it begins with a tensor of it, behind which there may be padding. If some row is none
    of the samples, or may be two of them, nothing is known, nor of a batch of more than ``MOST`` rows.

    Args:
        samples: What the dataset gave, in the order of the sampler.
        tensors: Tensors of the batch that collate made.

    Example:
        >>> samples = [torch.tensor([1, 2]), torch.tensor([3, 4, 5])]
        >>> batch = torch.tensor([[3, 4, 5], [1, 2, 0]])
        >>> is_reordered(samples, [batch]), is_reordered(samples[::-1], [batch])
        (True, False)
    """
    if len(samples) > MOST:
        return False
    parts = [_arrays(sample) for sample in samples]
    if len({len(each) for each in parts}) != 1:
        return False
    return any(
        len(tensor) == len(samples) and _is_permuted([each[place] for each in parts], tensor)
        for tensor in tensors
        if tensor.ndim > 1 and tensor.device.type == "cpu"
        for place in range(len(parts[0]))
    )


def _arrays(sample: Any) -> list[Tensor]:
    """Return the tensors and arrays of a sample that have axes."""
    arrays = [one for one in leaves(sample, np.ndarray) if one.dtype.kind in "fiub"]
    return [one for one in (*leaves(sample, Tensor), *map(torch.as_tensor, arrays)) if one.ndim]


def _is_permuted(samples: Sequence[Tensor], rows: Tensor) -> bool:
    """Return whether rows are samples in another order, each of them one."""
    if all(_begins_with(row, sample) for row, sample in zip(rows, samples, strict=True)):
        return False
    found = [[number for number, sample in enumerate(samples) if _begins_with(row, sample)] for row in rows]
    return all(len(each) == 1 for each in found) and len({each[0] for each in found}) == len(samples)


def _begins_with(row: Tensor, sample: Tensor) -> bool:
    """Return whether a row has a sample at its begin, along each axis, in any type of numbers."""
    if row.ndim != sample.ndim or any(own < of for own, of in zip(row.shape, sample.shape, strict=True)):
        return False
    begin = row[tuple(slice(size) for size in sample.shape)]
    return bool(sample.numel()) and torch.equal(begin, sample.to(begin.dtype))
