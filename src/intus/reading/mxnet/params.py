"""Read MXNet's files of parameters, without MXNet."""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import CodecError

_LIST = 0x112
_VERSIONS = (0xF993FAC9, 0xF993FACA)
_DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")


class Array(NamedTuple):
    """An array in a file.

    Attributes:
        path: The file.
        offset: The position of its first byte.
        meta: Its shape and dtype.
    """

    path: Path
    offset: int
    meta: tuple[tuple[int, ...], str]

    def read(self) -> np.ndarray:
        """Return the array."""
        shape, dtype = self.meta
        return np.fromfile(self.path, dtype, prod(shape), offset=self.offset).reshape(shape)


def headers(path: Path) -> dict[str, Array]:
    """Return where the arrays of a file are, by name without ``arg:`` and ``aux:``.

    Raises:
        CodecError: If the file is damaged, or holds sparse arrays.
    """
    size = path.stat().st_size
    with path.open("rb") as file:

        def take(form: str) -> tuple[Any, ...]:
            data = file.read(struct.calcsize(form))
            return struct.unpack(form, data)

        try:
            magic, _, count = take("<QQQ")
            if magic != _LIST or count > size:
                raise CodecError(f"{str(path)!r} is no file of MXNet's parameters, or is damaged.")
            arrays: list[Array] = []
            for _ in range(count):
                version, sparse, rank = take("<IiI")
                if version not in _VERSIONS or sparse != 0 or rank > 32:
                    raise CodecError(
                        f"{str(path)!r} holds an array that is sparse, or of a version that intus does not "
                        "know. Save the model again with MXNet 1.9."
                    )
                *shape, _, _, dtype = take(f"<{rank}qiii")
                if not 0 <= dtype < len(_DTYPES) or min(shape, default=0) < 0:
                    raise CodecError(f"{str(path)!r} is damaged: an array has no dtype or shape.")
                one = Array(path, file.tell(), (tuple(shape), _DTYPES[dtype]))
                arrays.append(one)
                end = one.offset + prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
                if end > size:
                    raise CodecError(f"{str(path)!r} is truncated: it ends in the midst of an array.")
                file.seek(end)
            (names,) = take("<Q")
            if names != count:
                raise CodecError(f"{str(path)!r} is damaged: it has {count} arrays and {names} names.")
            found: dict[str, Array] = {}
            for one in arrays:
                (length,) = take("<Q")
                if file.tell() + length > size:
                    raise CodecError(f"{str(path)!r} is truncated: it ends in the midst of a name.")
                name = file.read(length).decode()
                found[name.removeprefix("arg:").removeprefix("aux:")] = one
        except (struct.error, UnicodeDecodeError) as error:
            raise CodecError(f"{str(path)!r} is damaged or truncated: {error}.") from None
    return found
