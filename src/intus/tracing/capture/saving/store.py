"""Write values to safetensors files while the pass runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

import torch
from torch import Tensor

from ....core.errors import InputError
from ....storage.tensors import Entry, rename_tensors, write_tensors
from ....storage.value_folder import INDEX, write_index
from ..memory import inner_of, memory_of
from ..recording import ROW
from .kept import Kept
from .stored import ALIGNMENT, Place, Stored, bytes_of

_KINDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.bool: "BOOL", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip


def unstorable(t: Tensor) -> str:
    """Return why a tensor cannot be written to a safetensors file; ``""`` if it can.

    Example:
        >>> unstorable(torch.ones(2)), unstorable(torch.ones(2).to_sparse())
        ('', 'is torch.sparse_coo')
    """
    if t.is_nested:
        return "is nested"
    if t.is_meta or t.is_quantized or t.layout != torch.strided:
        return f"is {'on meta' if t.is_meta else 'quantized' if t.is_quantized else t.layout}"
    if t.dtype not in _KINDS:
        return f"is {str(t.dtype).removeprefix('torch.')}, which safetensors files lack"
    if inner_of(t) is not None:
        return f"is a {type(t).__name__}, which safetensors files lack"
    return "" if memory_of(t) is not None else f"is a {type(t).__name__} without plain memory"


def tensor_entry(name: str, t: Tensor) -> Entry:
    """Return the file entry of a tensor that is not ``unstorable``; its bytes are read when it is written."""
    return Entry(name, _KINDS[t.dtype], tuple(t.shape), lambda: (bytes_of(t),))


def for_replay(values: Mapping[int, Tensor]) -> MutableMapping[int, Tensor]:
    """Return a copy of values by row, to run operations on and to change."""
    return values.for_replay() if isinstance(values, Stored | Kept) else dict(values)


class Store:
    """Writes the values of one pass to a folder.

    Files are written one after another, each completely or not at all. ``index.json`` lists their tensors in
    the format of Hugging Face's sharded checkpoints.

    Args:
        folder: The folder; created if it does not exist.
        limit: The size in bytes at which values that wait in memory are written to a file.

    Raises:
        InputError: If ``limit`` is not a positive int, ``folder`` is not a path or is a file, or it contains
            the values of another trace.

    Attributes:
        places: The locations of the values that were written, by offset.
        skipped: Why values could not be written, by offset; see ``unstorable``.
        maybe_modified: The offsets of values whose memory was written by something the recorder did not see
            before they were written to disk.
    """

    def __init__(self, folder: str | Path, limit: int) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InputError(f"shard_bytes must be a positive integer, got {limit!r}.")
        if not isinstance(folder, str | os.PathLike):
            raise InputError(f"store must be the path of a folder, got {folder!r}.")
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(
                f"store must be a folder, got the file {str(folder)!r}. A new folder need not exist yet."
            )
        if (self.folder / INDEX).exists():
            raise InputError(
                f"store={str(folder)!r} has the values of another trace. Delete it or name another folder."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self.limit = limit
        self.places: dict[int, Place] = {}
        self.skipped: dict[int, str] = {}
        self.maybe_modified: set[int] = set()
        self._counted: set[int | None] = set()  # the memories of the values that wait to be written
        self._waiting_bytes = 0  # their total size
        self._files: list[Path] = []

    def count(self, t: Tensor) -> bool:
        """Count the memory of a tensor that waits to be written; return whether ``limit`` is reached."""
        memory = memory_of(t)
        if memory not in self._counted:
            self._counted.add(memory)
            self._waiting_bytes += t.untyped_storage().nbytes()
        return self._waiting_bytes >= self.limit

    def write(self, values: Mapping[int, Tensor], type_of: Callable[[int], str]) -> None:
        """Write values to a new file.

        Args:
            values: The values, by offset.
            type_of: Returns the name of an offset's type.

        Raises:
            OSError: If the disk is full.
        """
        self._counted.clear()
        self._waiting_bytes = 0
        if not values:
            return
        path = self.folder / f"values-{len(self._files) + 1:05}.safetensors"
        names = {offset: f"{offset // len(ROW)}.{type_of(offset)}" for offset in values}
        # ``close`` renames the tensors to their labels, which are at most two numbers longer: conv2d_3_7:2.
        write_tensors(
            path, [tensor_entry(names[offset], t) for offset, t in values.items()], spare=40 * len(values)
        )
        self._files.append(path)
        self.places |= {
            offset: Place(path, names[offset], _stride(t), t.data_ptr() % ALIGNMENT)
            for offset, t in values.items()
        }
        self._write_index()

    def discard(self, offset: int) -> None:
        """Discard a value. If it was written it remains in its file, but not in the index."""
        self.places.pop(offset, None)

    def close(self, labels: Mapping[int, str]) -> None:
        """Rename the tensors to their labels when the pass is over, and remove all others from the index.

        Args:
            labels: The labels, by offset.
        """
        for path in self._files:
            here = {offset: place.name for offset, place in self.places.items() if place.file == path}
            rename_tensors(path, {name: labels[offset] for offset, name in here.items() if offset in labels})
        self.places = {offset: self.places[offset]._replace(name=label) for offset, label in labels.items()}
        self._write_index()

    def _write_index(self) -> None:
        size = sum(path.stat().st_size for path in self._files)
        write_index(self.folder, {place.name: place.file.name for place in self.places.values()}, size)


def _stride(t: Tensor) -> tuple[int, ...] | None:
    """Return the strides of a tensor if it is not contiguous but nearly as dense, else None."""
    span = 1 + sum((length - 1) * stride for length, stride in zip(t.shape, t.stride(), strict=True))
    return None if t.is_contiguous() or 0 in t.stride() or span > 2 * t.numel() else t.stride()
