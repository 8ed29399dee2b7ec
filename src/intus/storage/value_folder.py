"""The files of a folder of values; ``index.json`` names them in the format of Hugging Face."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from ..core.errors import CodecError

INDEX = "index.json"
GRAPH = "graph.safetensors"


def write_index(folder: Path, files: Mapping[str, str], size: int) -> None:
    """Write the index of a folder, with its checksum.

    Args:
        folder: The folder.
        files: The name of the file of each tensor, by the tensor's name.
        size: The size of all files, in bytes.

    Raises:
        OSError: If it cannot be written; an existing index is unchanged then.
    """
    metadata = {"total_size": size, "crc32": _checksum(files, size)}
    partial = folder / f"{INDEX}.partial"
    try:
        index = {"metadata": metadata, "weight_map": dict(files)}
        partial.write_text(json.dumps(index, indent=1, ensure_ascii=False), encoding="utf-8")
        os.replace(partial, folder / INDEX)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        raise


def read_index(folder: Path, *, checked: bool) -> dict[str, str]:
    """Return the name of the file of each tensor, by the tensor's name.

    Args:
        folder: The folder.
        checked: Whether the index must have a checksum, as those of format 2 have.

    Raises:
        CodecError: If the index cannot be read, or is not as it was written.
    """
    path = folder / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        files, metadata = dict(index["weight_map"]), index["metadata"]
        if checked and metadata["crc32"] != _checksum(files, metadata["total_size"]):
            raise CodecError(f"{path} is damaged. Restore it from a copy, or trace the model again.")
    except CodecError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CodecError(f"{str(path)!r} cannot be read: {error!r}.") from None
    return files


def _checksum(files: Mapping[str, str], size: Any) -> str:
    return f"{crc32(json.dumps([size, dict(files)]).encode()):08x}"
