"""Write safetensors files of any size, one tensor at a time, with checksums; read and check these.

The safetensors library writes only data that is in memory as a whole. It can read the files written here.
Their metadata has two more entries: ``crc32``, the CRC-32 of each tensor in the order of the header, and
``header_crc32``, the CRC-32 of the header itself with zeros in its place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import numpy as np

from ..core.errors import CodecError, check_folder

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
_KINDS = {"b": "BOOL", "f": "F", "i": "I", "u": "U", "c": "C"}
#: The types of the package ml_dtypes that safetensors has, by its name for them.
_EXTENDED = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_NO_CHECKSUM = "0" * 8
_HEADER_CHECKSUM = b'"header_crc32":"'  # quotes in names are escaped, so this occurs once in a header
_CHUNK = 2**20


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
    kind = kind_of(array.dtype)
    if not kind:
        raise CodecError(f"{name!r} has dtype {array.dtype}, which safetensors cannot store.")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return Entry(name, kind, array.shape, lambda: (np.ascontiguousarray(array).reshape(-1).view(np.uint8),))


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return the safetensors name of a dtype; ``""`` if it has none.

    Example:
        >>> kind_of(np.dtype(np.float32)), kind_of(np.dtype(bool)), kind_of(np.dtype(object))
        ('F32', 'BOOL', '')
    """
    for kind, name in _EXTENDED.items():
        if dtype.name == name:
            return kind
    kind = _KINDS.get(dtype.kind, "")
    kind += "" if kind == "BOOL" else str(8 * dtype.itemsize)
    return kind if kind in SIZES else ""


def array_of(kind: str, shape: Sequence[int], data: np.ndarray) -> np.ndarray:
    """Return the array that bytes of a file are.

    Args:
        kind: The safetensors name of its dtype.
        shape: Its shape.
        data: Its bytes, as ``uint8``.

    Returns:
        A copy. The dtypes bfloat16 and float8 are those of the package ml_dtypes.

    Raises:
        CodecError: If numpy lacks the dtype and ml_dtypes is not installed, or the bytes have another length.

    Example:
        >>> array_of("F32", [2], np.array([0, 0, 128, 63, 0, 0, 0, 64], np.uint8)).tolist()
        [1.0, 2.0]
    """
    try:
        if kind in _EXTENDED:
            dtype = np.dtype(getattr(import_module("ml_dtypes"), _EXTENDED[kind]))
        else:
            letter = next(letter for letter, name in _KINDS.items() if kind.startswith(name))
            dtype = np.dtype(f"{letter}{SIZES[kind]}")
        array: np.ndarray = np.array(data).view(dtype).reshape(shape)
        return array
    except ImportError:
        raise CodecError(
            f"It is of dtype {_EXTENDED[kind]}, which numpy has only with the package ml_dtypes. Install it: "
            "pip install ml_dtypes"
        ) from None
    except (ValueError, KeyError, StopIteration):
        raise CodecError(f"Its {data.size:,} bytes are no {kind} of shape {tuple(shape)}.") from None


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
    ordered, spans = _laid_out(entries)
    reserved = {"header_crc32": _NO_CHECKSUM, "crc32": ",".join(_NO_CHECKSUM for _ in ordered)}
    header: dict[str, Any] = {"__metadata__": reserved | dict(metadata or {})} | spans
    check_folder(path)
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            room = _write_header(file, header, spare=spare)
            checksums = [_write_data(file, entry) for entry in ordered]
            header["__metadata__"]["crc32"] = ",".join(f"{checksum:08x}" for checksum in checksums)
            file.seek(0)
            _write_header(file, header, room=room)
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def tensors_blob(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> memoryview:
    """Return arrays in the format of a safetensors file, without checksums.

    Each is copied once, by numpy, while other threads may run.

    Args:
        arrays: The arrays by name.
        metadata: The metadata.

    Raises:
        CodecError: If safetensors has no such dtype.

    Example:
        >>> from safetensors.numpy import load
        >>> load(bytes(tensors_blob({"a": np.ones((2, 3))}, {})))["a"].shape
        (2, 3)
    """
    ordered, spans = _laid_out(array_entry(name, array) for name, array in arrays.items())
    header = json.dumps({"__metadata__": dict(metadata)} | spans, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    head = len(header).to_bytes(8, "little") + header
    blob = np.empty(len(head) + sum(entry.nbytes for entry in ordered), np.uint8)
    blob[: len(head)] = np.frombuffer(head, np.uint8)
    at = len(head)
    for entry in ordered:
        for part in entry.data():
            blob[at : at + len(part)] = part
            at += len(part)
    return blob.data


def _laid_out(entries: Iterable[Entry]) -> tuple[list[Entry], dict[str, Any]]:
    """Return tensors in the order of a file, aligned to their item sizes, and their entries in its header."""
    ordered = sorted(entries, key=lambda entry: -SIZES[entry.kind])
    spans: dict[str, Any] = {}
    end = 0
    for entry in ordered:
        start, end = end, end + entry.nbytes
        spans[entry.name] = {"dtype": entry.kind, "shape": list(entry.shape), "data_offsets": [start, end]}
    return ordered, spans


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
) -> int:
    """Write a header with its checksum, and return the number of bytes of its text."""
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    if room is None:
        room = -(-(len(text) + spare) // 8) * 8
    if len(text) > room:
        raise CodecError(
            f"The header has no room for the new names: {len(text)} bytes needed, {room} available."
        )
    before, checksum, after = _split(text.ljust(room))
    if checksum:  # a file of another program has none
        checksum = f"{_header_checksum(before, after):08x}".encode()
    file.write(room.to_bytes(8, "little") + before + checksum + after)
    return room


def _write_data(file: BinaryIO, entry: Entry) -> int:
    """Write the data of a tensor, and return its checksum."""
    checksum = 0
    for part in entry.data():
        file.write(part)
        checksum = crc32(part, checksum)
    return checksum


def _split(text: bytes) -> tuple[bytes, bytes, bytes]:
    """Return what precedes the checksum in a header, the checksum (empty if none), and what follows it."""
    at = text.find(_HEADER_CHECKSUM)
    if at < 0:
        return text, b"", b""
    start = at + len(_HEADER_CHECKSUM)
    stop = start + len(_NO_CHECKSUM)
    return text[:start], text[start:stop], text[stop:]


def _header_checksum(before: bytes, after: bytes) -> int:
    return crc32(after, crc32(_NO_CHECKSUM.encode(), crc32(before)))


class CheckedFile:
    """The header of a safetensors file, and the checksums in it.

    Args:
        path: The file.

    Attributes:
        path: The file.
        metadata: Its metadata, without checksums.
        about: What the header has of each tensor: ``dtype``, ``shape``, ``data_offsets``.
        spans: For each tensor the positions of its first byte and of its end in the file.
        has_checksums: Whether it has checksums: files of intus before format 2, and files of other programs,
            have none.

    Raises:
        CodecError: If it is no safetensors file, or its header or its length is not as it was written.
        OSError: If it cannot be read.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.safetensors"
        >>> write_tensors(path, [array_entry("a", np.ones((2, 3)))])
        >>> CheckedFile(path).check("a")
        >>> _ = path.write_bytes(path.read_bytes()[:-1] + b"x")
        >>> CheckedFile(path).check("a")
        Traceback (most recent call last):
          ...
        intus.core.errors.CodecError: ...a.safetensors is damaged: ...
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            room = int.from_bytes(file.read(8), "little")
            if size < 8 or room > size - 8:
                raise CodecError(f"{str(path)!r} is not a safetensors file, or only the beginning of one.")
            text = file.read(room)
        before, checksum, after = _split(text)
        if checksum and checksum != f"{_header_checksum(before, after):08x}".encode():
            raise self._damage("its header is not as it was written")
        try:
            header = json.loads(text)
            self.metadata: dict[str, str] = dict(header.pop("__metadata__", {}))
            self.about: dict[str, dict[str, Any]] = header
            self.spans = {
                name: (8 + room + about["data_offsets"][0], 8 + room + about["data_offsets"][1])
                for name, about in header.items()
            }
            self.metadata.pop("header_crc32", None)
            written = self.metadata.pop("crc32", "") if checksum else ""
            checksums = [int(one, 16) for one in written.split(",") if one]
            self._checksums = dict(zip(self.spans, checksums, strict=bool(checksum)))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise CodecError(f"{str(path)!r} is not a safetensors file: {error!r}.") from None
        self.has_checksums = bool(checksum)
        if self.has_checksums and size != max((stop for _, stop in self.spans.values()), default=8 + room):
            raise self._damage(f"it has {size:,} bytes, not as many as were written")

    def check(self, name: str, label: str = "", data: Any = None) -> None:
        """Compare a tensor with its checksum, once; do nothing if the file has no checksums.

        Args:
            name: The name of the tensor.
            label: What to call it in the error. Default: its name.
            data: Its bytes, as a buffer. Default: they are read from the file.

        Raises:
            CodecError: If the tensor is not as it was written.
        """
        if name not in self._checksums:
            return
        checksum = self._read_checksum(name) if data is None else crc32(data)
        if checksum != self._checksums.pop(name):
            self._checksums[name] = -1  # so that it is refused again
            raise self._damage(f"{label or f'the tensor {name!r}'} is not as it was written (CRC-32)")

    def _read_checksum(self, name: str) -> int:
        start, stop = self.spans[name]
        checksum = 0
        with self.path.open("rb") as file:
            file.seek(start)
            while start < stop and (part := file.read(min(_CHUNK, stop - start))):
                checksum = crc32(part, checksum)
                start += len(part)
        return checksum

    def _damage(self, what: str) -> CodecError:
        return CodecError(f"{self.path} is damaged: {what}. Restore the file from a copy, or write it again.")
