"""Know the tensors whose axis 1 is that of channels, because PyTorch defines the axes of their modules."""

from __future__ import annotations

import weakref
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor, nn

from .captured_tensor import Part, main_tensor

#: Modules for any number of axes of positions; those for one have a name that ends with "1d".
_OF_CHANNELS = (nn.GroupNorm, nn.SyncBatchNorm, nn.LocalResponseNorm, nn.ChannelShuffle, nn.Upsample)
#: Where PyTorch has modules that compute with single entries or with the last axis alone.
_KEEPING = tuple(f"torch.nn.modules.{name}" for name in ("activation", "dropout", "linear", "normalization"))


@lru_cache(maxsize=1024)
def _are_of_channels(classes: tuple[type, ...]) -> bool:
    """Return whether PyTorch defines tensors of a module with these bases as (rows, channels, positions).

    >>> [_are_of_channels(one.__mro__) for one in (nn.Conv1d, nn.LazyBatchNorm1d, nn.GroupNorm, nn.Linear)]
    [True, True, True, False]
    """
    own = (one.__name__ for one in classes if one.__module__.startswith("torch."))
    return any(one in _OF_CHANNELS for one in classes) or any(name.endswith("1d") for name in own)


def _has_channels(module: nn.Module, at: int) -> bool:
    """Return whether a module is one of channels, or a sequence that begins (0) or ends (-1) with one.

    A sequence may be observed without its parts, and is given its input before they are.

    >>> _has_channels(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Conv1d(4, 4, 1), nn.ReLU())), -1)
    True
    """
    if getattr(type(module), "forward", None) is not nn.Sequential.forward:
        return _are_of_channels(type(module).__mro__)
    parts = [one for one in module._modules.values() if one is not None]
    of_axes = [one for one in parts if _has_channels(one, at) or not _keeps_axes(one)]
    return bool(of_axes) and _has_channels(of_axes[at], at)


def _keeps_axes(module: nn.Module) -> bool:
    return type(module).__module__ in _KEEPING and not module._modules


class _Known(NamedTuple):
    """A tensor, and what changes with the order of its axes."""

    tensor: weakref.ref[Tensor]
    stride: tuple[int, ...]


class ChannelsFirst:
    """The tensors of a pass that are known to have the axes (rows, channels, positions).

    They are what a convolution, pooling or norm of channels was given and made, and what an activation or
    another module of PyTorch that keeps the axes made of one of these. It keeps no reference to them.

    Example:
        >>> channels, conv, text = ChannelsFirst(), nn.Conv1d(4, 4, 1), torch.zeros(2, 4, 4)
        >>> made = conv(text)
        >>> channels.leave(conv, text, made)
        >>> channels.have(made), channels.have(made.transpose(1, 2))
        (True, False)
    """

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def clear(self) -> None:
        """Forget the tensors of the pass before."""
        self._known.clear()

    def enter(self, module: nn.Module, given: Any) -> None:
        """Take note of what a module is given."""
        if _has_channels(module, 0):
            self._add(_main(given))

    def leave(self, module: nn.Module, given: Any, made: Any) -> None:
        """Take note of what a module made."""
        if _has_channels(module, -1):
            self._add(_main(made))
        elif self._known and _keeps_axes(module):
            before = _main(given)
            if before is not None and self.have(before):
                self._add(_main(made))

    def have(self, part: Part) -> bool:
        """Return whether a tensor is one of them; packed items are not."""
        known = self._known.get(id(part))
        if known is None or not isinstance(part, Tensor):
            return False
        return known.tensor() is part and known.stride == part.stride()

    def _add(self, tensor: Tensor | None) -> None:
        if tensor is not None and tensor.ndim == 3:
            self._known[id(tensor)] = _Known(weakref.ref(tensor), tensor.stride())


def _main(value: Any) -> Tensor | None:
    found = main_tensor(value)
    return None if found is None else found[1]
