"""Write safetensors files of any size, one tensor at a time, without a copy of everything in memory.

The safetensors library writes only data that is in memory as a whole. The files are identical, and it can
read both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..core.errors import CodecError

#: Bytes of one number, by safetensors' name for its dtype.
SIZES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "C64": 8,
    "BOOL": 1,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
}
_KINDS = {"b": "BOOL", "f": "F", "i": "I", "u": "U"}


class Entry(NamedTuple):
    """A tensor to write.

    Attributes:
        name: Its name.
        kind: The safetensors name of its dtype, as ``"F32"``.
        shape: Its shape.
        data: A function that returns its bytes in parts, called when it is written.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    data: Callable[[], Iterable[Any]]

    @property
    def nbytes(self) -> int:
        """Its size in the file, in bytes."""
        return SIZES[self.kind] * prod(self.shape)


def array_entry(name: str, array: np.ndarray) -> Entry:
    """Return the entry of a numpy array.

    Args:
        name: The name of the tensor.
        array: The array.

    Raises:
        CodecError: If safetensors has no such dtype.
    """
    kind = _KINDS.get(array.dtype.kind, "")
    kind += "" if kind == "BOOL" else str(8 * array.dtype.itemsize)
    if kind not in SIZES:
        raise CodecError(f"{name!r} has dtype {array.dtype}, which safetensors cannot store.")
    return Entry(name, kind, array.shape, lambda: (np.ascontiguousarray(array).reshape(-1).view(np.uint8),))


def write_tensors(
    path: Path, entries: Iterable[Entry], metadata: Mapping[str, str] | None = None, *, spare: int = 0
) -> None:
    """Write a safetensors file.

    The file appears under its name once it is complete. If writing fails, nothing is left behind and an
    existing file is unchanged.

    Args:
        path: The file.
        entries: The tensors.
        metadata: Metadata of the file.
        spare: Bytes to reserve in the header for ``rename_tensors``.

    Raises:
        OSError: If the file cannot be written, for instance because the disk is full.

    Example:
        >>> import tempfile
        >>> from safetensors.numpy import load_file
        >>> path = Path(tempfile.mkdtemp()) / "a.safetensors"
        >>> write_tensors(path, [array_entry("a", np.ones((2, 3)))])
        >>> load_file(path)["a"].shape
        (2, 3)
    """
    ordered = sorted(entries, key=lambda entry: -SIZES[entry.kind])  # aligns each tensor to its item size
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for entry in ordered:
        start, end = end, end + entry.nbytes
        header[entry.name] = {
            "dtype": entry.kind,
            "shape": list(entry.shape),
            "data_offsets": [start, end],
        }
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            _write_header(file, header, spare=spare)
            for entry in ordered:
                for part in entry.data():
                    file.write(part)
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def rename_tensors(path: Path, names: Mapping[str, str]) -> None:
    """Rename tensors of a file in place.

    Args:
        path: The file.
        names: New names by old names; others stay.

    Raises:
        CodecError: If the header has no room for the new names.
    """
    with path.open("r+b") as file:
        room = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(room))
        file.seek(0)
        _write_header(file, {names.get(name, name): about for name, about in header.items()}, room=room)


def _write_header(
    file: BinaryIO, header: Mapping[str, Any], *, spare: int = 0, room: int | None = None
) -> None:
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    if room is None:
        room = -(-(len(text) + spare) // 8) * 8
    if len(text) > room:
        raise CodecError(
            f"The header has no room for the new names: {len(text)} bytes needed, {room} available."
        )
    file.write(room.to_bytes(8, "little") + text.ljust(room))
