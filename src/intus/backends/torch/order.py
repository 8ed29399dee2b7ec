"""The batch axis of a module's tensors, and a hash that shows whether data comes in the same order."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...core.nested import leaves
from ...core.shared_array import shared_array
from ...core.sketch import hashes_of_rows
from ..host_arrays import ALIKE, NO_ARRAYS, step_of_sample

_TRANSFORMERS = (
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
#: Modules whose batch is axis 0 by definition, and the dimensions that the end of their name tells.
_ROWS_FIRST = (
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
)
_DIMENSIONS = {"1d": 1, "2d": 2, "3d": 3}


def batch_axis(module: nn.Module) -> int | None:
    """Return the batch axis of a module's inputs and outputs, or None if the module does not determine it.

    Recurrent layers and attention have time first unless ``batch_first``.

    Example:
        >>> batch_axis(nn.LSTM(2, 3)), batch_axis(nn.GRU(2, 3, batch_first=True)), batch_axis(nn.Linear(2, 3))
        (1, 0, None)
    """
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return 0 if module.batch_first else 1
    return None


def batch_axes(model: nn.Module) -> dict[str, int]:
    """Return the batch axes of PyTorch's transformers and of all modules inside, by name.

    They are those of their attention. A transformer with modules of other classes may move its axes.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 8)
        >>> batch_axes(nn.Sequential(nn.Linear(8, 8), layer))["1.linear1"]
        1
    """
    found: dict[str, int] = {}
    for name, module in model.named_modules():
        if type(module) in _TRANSFORMERS and all(map(_is_of_torch, module.modules())):
            for axis in {batch_axis(one) for one in module.modules()} - {None}:
                assert axis is not None
                found.update((child, axis) for child, _ in module.named_modules(prefix=name))
    return found


def _is_of_torch(module: nn.Module) -> bool:
    """Return whether the class of a module is PyTorch's own, so that it is known what it does to axes."""
    return type(module).__module__.startswith("torch.nn.modules.")


def is_time_first(model: nn.Module) -> bool:
    """Return whether a module of the model has its batch along axis 1."""
    return any(batch_axis(module) == 1 for module in model.modules())


def has_recurrent(model: nn.Module) -> bool:
    """Return whether a module of the model may get packed items: PyTorch's recurrent layers do."""
    return any(isinstance(module, nn.RNNBase) for module in model.modules())


def keeps_rows(module: nn.Module) -> bool:
    """Return whether a module leaves its rows where they are, so that one inside moves none for it.

    A module without others inside is assumed to, and those of PyTorch do.
    """
    return next(module.children(), None) is None or _is_of_torch(module)


def final_states(module: nn.Module, made: Any) -> list[Tensor]:
    """Return the hidden states of the last layer of a recurrent module of PyTorch, with rows along axis 0.

    Example:
        >>> gru = nn.GRU(2, 3, bidirectional=True)
        >>> [tuple(state.shape) for state in final_states(gru, gru(torch.zeros(5, 4, 2)))]
        [(4, 3), (4, 3)]
    """
    if not isinstance(module, nn.RNNBase) or not _is_of_torch(module):
        return []
    states = made[1][0] if isinstance(made[1], tuple) else made[1]
    return list(states[-2 if module.bidirectional else -1 :]) if states.ndim == 3 else []


def kept_axis(module: nn.Module, given: Any, made: Tensor | None, axis: int | None) -> int | None:
    """Return the batch axis of what a module of PyTorch made; None if it does not follow from its input.

    Args:
        module: The module.
        given: Its input, of which one that is no tensor shows nothing.
        made: Its output.
        axis: The batch axis of the input; None if it is not known.

    Example:
        >>> words = torch.zeros(5, 2, 4)
        >>> kept_axis(nn.Linear(4, 3), words, torch.zeros(5, 2, 3), 1)
        1
    """
    if not isinstance(given, Tensor) or made is None or not _is_of_torch(module):
        return None
    dimensions = _DIMENSIONS.get(type(module).__name__[-2:], 0)
    if isinstance(module, _ROWS_FIRST) and made.ndim == dimensions + 2:
        return 0
    leaf = next(module.children(), None) is None
    same = axis is not None and made.ndim >= given.ndim and made.shape[: axis + 1] == given.shape[: axis + 1]
    return axis if leaf and same else None


def first_rows(inputs: Any, axis: int) -> int | None:
    """Return the length along ``axis`` of the first tensor of the arguments that has that axis, or None."""
    return next((t.shape[axis] for t in leaves(inputs, Tensor) if t.ndim > axis), None)


def row_contents(inputs: Any, axis: int) -> np.ndarray | None:
    """Return a hash of each row of a call's arguments, uint64 of shape (rows,), equal for equal rows.

    It is None if there are no rows, or one of the tensors has no plain memory. Arguments of another length
    along ``axis`` are the same for all rows.

    Example:
        >>> one, other, same = row_contents(torch.tensor([[1, 2], [3, 4], [1, 2]]), 0)
        >>> bool(one == same), bool(one == other)
        (True, False)
    """
    rows = first_rows(inputs, axis)
    own = [one.detach() for one in leaves(inputs, Tensor) if one.ndim > axis and one.shape[axis] == rows]
    if not rows or any(one.layout != torch.strided or one.is_meta for one in own):
        return None
    flat = (one.movedim(axis, 0).reshape(rows, -1).contiguous() for one in own)
    try:
        return hashes_of_rows(
            rows, (shared_array(one.cpu().view(torch.uint8)) for one in flat if one.numel())
        )
    except (RuntimeError, TypeError, BufferError):  # a tensor without plain memory
        return None


def first_batch(inputs: Any, axis: int) -> bytes | str:
    """Return a hash of the tensors of a call's arguments, as ``host_arrays.order_of_rows`` does.

    With several processes, return the reason why there is none: each gets a part of the data that only its
    sampler knows.
    """
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return "several processes train it, each on a part of the rows"
    tensors = [one.detach() for one in leaves(inputs, Tensor) if one.ndim]
    if not tensors:
        return NO_ARRAYS
    digest, are_alike = hashlib.blake2b(digest_size=16), None
    for tensor in tensors:
        flat = tensor.reshape(-1)[:: step_of_sample(tensor.numel())].cpu()
        digest.update(f"{tensor.shape} {tensor.dtype} ".encode())
        digest.update(shared_array(flat.contiguous().view(torch.uint8)).tobytes())
        if are_alike is not False and tensor.ndim > axis and tensor.shape[axis] > 1:
            are_alike = _are_alike(tensor, axis)
    return ALIKE if are_alike else digest.digest()


def _are_alike(tensor: Tensor, axis: int) -> bool:
    """Return whether all rows of a tensor are equal. Most batches show in the second that they are not."""
    first = tensor.narrow(axis, 0, 1)
    return torch.equal(first, tensor.narrow(axis, 1, 1)) and bool((tensor == first).all())
