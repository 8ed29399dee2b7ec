"""Parse the header of a GGUF file, the format of llama.cpp.

docs/gguf.md of github.com/ggml-org/ggml describes it: a magic number, the version, the counts of tensors and
of metadata, the metadata, then the name, shape, type and position of every tensor.
"""

from __future__ import annotations

import mmap
import struct
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import CodecError

#: The types of tensors: their name, and how many numbers take how many bytes.
_TYPES = {
    0: ("float32", 1, 4),
    1: ("float16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    9: ("q8_1", 32, 40),
    10: ("q2_k", 256, 84),
    11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176),
    14: ("q6_k", 256, 210),
    15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("int8", 1, 1),
    25: ("int16", 1, 2),
    26: ("int32", 1, 4),
    27: ("int64", 1, 8),
    28: ("float64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bfloat16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18),
}
#: The types of metadata, as ``struct`` writes them.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_FEW = 16  # elements of an array of metadata that are kept
_DEEPEST = 8
_MOST = 2_000_000  # tensors, entries of metadata and strings in one, so that no damaged count takes hours


class Header(NamedTuple):
    """The header of a GGUF file.

    Attributes:
        version: The version of the format.
        metadata: The metadata; long arrays as the text ``"32,000 strings"``.
        tensors: The name, shape, type and size in bytes of every tensor. The size is None if the type is not
            known, whose name is then ``"type 99"``.
    """

    version: int
    metadata: dict[str, Any]
    tensors: list[tuple[str, tuple[int, ...], str, int | None]]


def read_header(path: Path) -> Header:
    """Read the header of a GGUF file.

    Args:
        path: The file.

    Raises:
        CodecError: If it is damaged, truncated or of a version that is not known.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = _Reader(data, path)
        try:
            return reader.header()
        except struct.error:
            raise CodecError(f"{str(path)!r} is truncated: it ends in its header.") from None


class _Reader:
    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data, self._path, self._at, self._order = data, path, 4, "<"

    def header(self) -> Header:
        version = self._number("I")
        if version & 0xFFFF == 0:  # written by a machine of the other byte order
            self._order = ">"
            self._at = 4
            version = self._number("I")
        if version not in (2, 3):
            raise CodecError(f"{str(self._path)!r} has version {version} of GGUF; intus reads 2 and 3.")
        tensors, entries = self._count("tensors"), self._count("entries of metadata")
        metadata = {}
        for _ in range(entries):
            key = self._text()
            metadata[key] = self._value(self._number("I"), 0)
        infos = [self._tensor() for _ in range(tensors)]
        names: set[str] = set()
        for name, *_ in infos:
            if name in names:
                raise CodecError(f"{str(self._path)!r} is damaged: it has two tensors of the name {name!r}.")
            names.add(name)
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise CodecError(f"{str(self._path)!r} is damaged: its alignment is {alignment!r}.")
        start = -(-self._at // alignment) * alignment
        for name, _, _, size, offset in infos:
            end = start + offset + (size or 0)
            if end > len(self._data):
                raise CodecError(
                    f"{str(self._path)!r} is truncated: {name!r} ends at byte {end:,}, but the file has "
                    f"{len(self._data):,}."
                )
        return Header(version, metadata, [info[:4] for info in infos])

    def _tensor(self) -> tuple[str, tuple[int, ...], str, int | None, int]:
        name = self._text()
        axes = self._number("I")
        if axes > 8:
            raise CodecError(f"{str(self._path)!r} is damaged: {name!r} has {axes:,} axes.")
        shape = tuple(self._number("Q") for _ in range(axes))[::-1]  # the file has the last axis first
        kind, offset = self._number("I"), self._number("Q")
        if max(shape, default=0) >= 2**63:
            raise CodecError(f"{str(self._path)!r} is damaged: {name!r} has the shape {shape}.")
        dtype, block, size = _TYPES.get(kind, (f"type {kind}", 1, 0))
        return name, shape, dtype, prod(shape) // block * size if size else None, offset

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY or depth > _DEEPEST:
            raise CodecError(f"{str(self._path)!r} is damaged: it has metadata of the unknown type {kind}.")
        inner, length = self._number("I"), self._number("Q")
        if length <= _FEW:
            return [self._value(inner, depth + 1) for _ in range(length)]
        if inner in _NUMBERS:
            self._skip(length * struct.calcsize(f"={_NUMBERS[inner]}"))
            return f"{length:,} numbers"
        if length > _MOST:
            raise CodecError(f"{str(self._path)!r} is damaged: its metadata has a list of {length:,}.")
        for _ in range(length):
            self._value(inner, depth + 1)
        return f"{length:,} {'strings' if inner == _STRING else 'lists'}"

    def _count(self, what: str) -> int:
        count: int = self._number("Q")
        if count > _MOST:
            raise CodecError(f"{str(self._path)!r} is damaged: it has {count:,} {what}.")
        return count

    def _text(self) -> str:
        length = self._number("Q")
        start = self._at
        self._skip(length)
        return self._data[start : self._at].decode("utf-8", errors="replace")

    def _number(self, kind: str) -> Any:
        (value,) = struct.unpack_from(f"{self._order}{kind}", self._data, self._at)
        self._at += struct.calcsize(f"={kind}")
        return value

    def _skip(self, size: int) -> None:
        if self._at + size > len(self._data):
            raise struct.error
        self._at += size
