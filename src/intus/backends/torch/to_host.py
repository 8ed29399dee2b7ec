"""Copy tensors of a device to the host without waiting for the device."""

from __future__ import annotations

import threading
import weakref
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_MOST_PINNED = 512 << 20  # bytes of pinned memory at once; more is copied to ordinary memory, with waiting


class _Piece(NamedTuple):
    """A part of a copied tensor.

    Attributes:
        group: The number of the copied tensor.
        start: Where the part begins.
        shape: Its shape.
    """

    group: int
    start: int
    shape: torch.Size


class Arriving:
    """Arrays on their way to the host.

    Args:
        copies: The flat tensors on the host.
        pieces: Which parts of them the arrays are, by name.
        event: Occurs when they are complete; None if they are.
    """

    def __init__(
        self, copies: list[Tensor], pieces: dict[str, _Piece], event: torch.cuda.Event | None
    ) -> None:
        self._copies, self._pieces, self._event = copies, pieces, event

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name, once they are there."""
        if self._event is not None:
            self._event.synchronize()
        flat = [one.numpy() for one in self._copies]
        return {
            name: flat[group][start : start + shape.numel()].reshape(shape)
            for name, (group, start, shape) in self._pieces.items()
        }


def to_host(tensors: dict[str, Tensor]) -> Arriving:
    """Begin to copy tensors that nothing else refers to, those of a dtype as one.

    Args:
        tensors: The tensors by name, all on one device.
    """
    groups: dict[torch.dtype, list[tuple[str, Tensor]]] = {}
    for name, tensor in tensors.items():
        groups.setdefault(tensor.dtype, []).append((name, tensor))
    pieces, flat = {}, []
    for number, group in enumerate(groups.values()):
        start = 0
        for name, tensor in group:
            pieces[name] = _Piece(number, start, tensor.shape)
            start += tensor.numel()
        parts = [tensor.reshape(-1) for _, tensor in group]
        flat.append(parts[0] if len(parts) == 1 else torch.cat(parts))
    if flat[0].device.type != "cuda":
        return Arriving([one.cpu() for one in flat], pieces, None)
    copies = _pinned(flat)
    if copies is None:
        return Arriving([one.cpu() for one in flat], pieces, None)
    main, own = torch.cuda.current_stream(flat[0].device), _stream(flat[0].device)
    own.wait_stream(main)
    with torch.cuda.stream(own):
        for here, there in zip(copies, flat, strict=True):
            here.copy_(there, non_blocking=True)
            there.record_stream(own)
        # The thread that waits for it sleeps.
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(own)
    return Arriving(copies, pieces, event)


def recorded_event(device: torch.device) -> torch.cuda.Event | None:
    """Return an event that tells when a GPU has done what it was told to so far; None for other devices."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


class _Pinned:
    """The bytes of pinned memory in use."""

    def __init__(self) -> None:
        self._lock, self._bytes = threading.RLock(), 0  # a finalizer may run in the middle of take

    def take(self, nbytes: int) -> bool:
        """Return whether there is room for so many bytes, which are then in use."""
        with self._lock:
            if self._bytes + nbytes > _MOST_PINNED:
                return False
            self._bytes += nbytes
            return True

    def give_back(self, nbytes: int) -> None:
        """End the use of so many bytes."""
        with self._lock:
            self._bytes -= nbytes


_PINNED = _Pinned()


def _pinned(tensors: list[Tensor]) -> list[Tensor] | None:
    """Return pinned memory for copies of tensors; None if too much is in use."""
    nbytes = sum(one.nbytes for one in tensors)
    if not _PINNED.take(nbytes):
        return None
    out = [torch.empty(one.shape, dtype=one.dtype, device="cpu", pin_memory=True) for one in tensors]
    for copy in out:
        weakref.finalize(copy, _PINNED.give_back, copy.nbytes).atexit = False
    return out


@lru_cache(maxsize=16)
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of copies from a device."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
