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


def rows_in_order(samples: Sequence[Any], tensors: Sequence[Tensor]) -> dict[tuple[int, int], bool]:
    """Return which tensors of a batch have the samples as rows, in their order.

    Args:
        samples: What the dataset gave, in the order of the sampler; at most ``MOST``.
        tensors: Tensors of the batch that collate made.

    Returns:
        By the number of such a tensor, and that of the tensor in each sample which its row begins with:
        whether these are all different, so that the order is shown by them alone.

    Example:
        >>> samples = [torch.tensor([1, 2]), torch.tensor([3, 4])]
        >>> noise, batch = torch.tensor([[7, 8], [9, 7]]), torch.tensor([[1, 2], [3, 4]])
        >>> rows_in_order(samples, [noise, batch]), rows_in_order(samples[::-1], [noise, batch])
        ({(1, 0): True}, {})
    """
    parts = _parts(samples)
    return {
        (number, place): len({_content(each[place]) for each in parts}) == len(parts)
        for number, tensor in _comparable(tensors, len(parts))
        for place in range(len(parts[0]))
        if _are_in_order([each[place] for each in parts], tensor)
    }


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
    parts = _parts(samples)
    return any(
        _is_permuted([each[place] for each in parts], tensor)
        for _, tensor in _comparable(tensors, len(parts))
        for place in range(len(parts[0]))
    )


def _parts(samples: Sequence[Any]) -> list[list[Tensor]]:
    """Return the tensors of each sample; none if they are not equally many, or the samples too many."""
    parts = [_arrays(sample) for sample in samples[: MOST + 1]]
    return parts if len(parts) <= MOST and len({len(each) for each in parts}) == 1 else []


def _comparable(tensors: Sequence[Tensor], rows: int) -> list[tuple[int, Tensor]]:
    """Return the tensors whose rows can be compared with so many samples, with their numbers."""
    return [
        (number, tensor)
        for number, tensor in enumerate(tensors)
        if rows and tensor.ndim > 1 and len(tensor) == rows and tensor.device.type == "cpu"
    ]


def _arrays(sample: Any) -> list[Tensor]:
    """Return the tensors and arrays of a sample that have axes."""
    arrays = [one for one in leaves(sample, np.ndarray) if one.dtype.kind in "fiub"]
    return [one for one in (*leaves(sample, Tensor), *map(torch.as_tensor, arrays)) if one.ndim]


def _is_permuted(samples: Sequence[Tensor], rows: Tensor) -> bool:
    """Return whether rows are samples in another order, each of them one."""
    if _are_in_order(samples, rows):
        return False
    found = [[number for number, sample in enumerate(samples) if _begins_with(row, sample)] for row in rows]
    return all(len(each) == 1 for each in found) and len({each[0] for each in found}) == len(samples)


def _are_in_order(samples: Sequence[Tensor], rows: Tensor) -> bool:
    return all(_begins_with(row, sample) for row, sample in zip(rows, samples, strict=True))


def _content(sample: Tensor) -> tuple[Any, ...]:
    plain = sample.detach().cpu().contiguous()
    return plain.shape, plain.dtype, plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def _begins_with(row: Tensor, sample: Tensor) -> bool:
    """Return whether a row has a sample at its begin, along each axis, in any type of numbers."""
    if row.ndim != sample.ndim or any(own < of for own, of in zip(row.shape, sample.shape, strict=True)):
        return False
    begin = row[tuple(slice(size) for size in sample.shape)]
    return bool(sample.numel()) and torch.equal(begin, sample.to(begin.dtype))
