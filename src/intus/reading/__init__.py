"""Read model files without running code from them: their graph, and values where inputs are given.

``read`` finds the format by the first bytes of the file. Each format has a module or folder of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import CodecError, InputError, check_installed
from ..core.traced import Traced

#: The endings of files that ``read`` reads.
ENDINGS = (".onnx",)

#: First bytes of files in formats that are not read, with what to do instead.
_OTHERS = {
    b"\x80": "It is a pickle, which can run code when it is loaded. Make the model in Python, load the "
    "weights into it, and pass the model to intus.",
    b"\x89HDF": "It is an HDF5 file. Load it with Keras, and pass the model to intus.",
}


def read(path: Path, inputs: tuple[Any, ...] = (), named: Mapping[str, Any] | None = None) -> Traced:
    """Return the graph of a model file and, if inputs are given, the values of its operations.

    Args:
        path: The file.
        inputs: The inputs of the model in the order of the file.
        named: Inputs by name.

    Raises:
        CodecError: If the file is in no format that can be read, or is damaged.
        InputError: If there is no such file, or the inputs do not fit the model.
        MissingExtraError: If the package that reads the format is not installed.
    """
    named = named or {}
    if not path.exists():
        raise InputError(f"There is no file {str(path)!r}.")
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder. Name a model file: {', '.join(ENDINGS)}.")
    return _reader(path)(path, inputs, named)


def _reader(path: Path) -> Callable[[Path, tuple[Any, ...], Mapping[str, Any]], Traced]:
    with path.open("rb") as file:
        start = file.read(16)
    if not start:
        raise CodecError(f"{str(path)!r} is empty.")
    for magic, advice in _OTHERS.items():
        if start.startswith(magic):
            raise CodecError(f"{str(path)!r} cannot be read. {advice}")
    if path.suffix != ".onnx":
        raise CodecError(
            f"{str(path)!r} is in no format that intus reads. It reads files that end in "
            f"{', '.join(ENDINGS)}."
        )
    check_installed("Reading an ONNX file", ["onnx"], "onnx")
    from .onnx import read as read_onnx

    return read_onnx
