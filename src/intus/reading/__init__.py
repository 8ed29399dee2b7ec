"""Read model files without running code from them: their graph, and values where inputs are given.

``read`` finds the format by the first bytes of the file, and by its ending where those do not tell. Each
format has a module or folder of its own.
"""

from __future__ import annotations

import errno
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import CodecError, InputError, IntusError, check_installed
from ..core.traced import Traced
from . import export
from .bounds import check_unpacked

#: The endings of files that ``read`` reads.
ENDINGS = (".onnx", ".pt2", ".pt", "-symbol.json", ".safetensors", ".safetensors.index.json", ".gguf")

_Reader = Callable[[Path, tuple[Any, ...] | None, Mapping[str, Any]], Traced]

_IN_PYTHON = "Make the model in Python, load the weights into it, and pass the model to intus."
_IN_KERAS = "Load it with Keras, and pass the model to intus."
#: First bytes of files in formats that are not read, with what to do instead.
_OTHERS = {
    b"\x80": f"It is a pickle, which can run code when it is loaded. {_IN_PYTHON}",
    b"\x89HDF": f"It is an HDF5 file. {_IN_KERAS}",
    b"ORTM": "It is in the format of onnxruntime. Name the ONNX file that it was made from.",
    b"TFL3": "It is a TFLite file, which intus does not read. Pass the model that it was made from.",
}

#: What parsing raises if a file contradicts itself; anything else is not of the file.
_OF_DAMAGE = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    EOFError,
    OSError,
    RuntimeError,
    SyntaxError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def read(path: Path, inputs: tuple[Any, ...] | None = None, named: Mapping[str, Any] | None = None) -> Traced:
    """Return the graph of a model file and, if inputs are given, the values of its operations.

    Args:
        path: The file.
        inputs: The inputs of the model in the order of the file; ``()`` computes the values of a model
            that takes none.
        named: Inputs by name.

    Raises:
        CodecError: If the file is in no format that can be read, or is damaged.
        InputError: If there is no such file, or the inputs do not fit the model.
        MissingExtraError: If the package that reads the format is not installed.
    """
    _check_is_file(path)
    try:
        return _reader(path)(path, inputs, named or {})
    except (IntusError, ImportError, MemoryError):
        raise
    except _OF_DAMAGE as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # EINVAL: a position that is none
            raise
        raise CodecError(f"{str(path)!r} is damaged, or of a version that intus does not know.") from error


def check_is_read(path: Path) -> None:
    """Raise the error of ``read`` if a path is no file, or one in a format that is not read.

    Args:
        path: The path.
    """
    _check_is_file(path)
    _reader(path)


def _check_is_file(path: Path) -> None:
    if not path.exists():
        raise InputError(f"There is no file {str(path)!r}.")
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder. Name a file that ends in {', '.join(ENDINGS)}.")
    if not path.is_file():
        raise InputError(f"{str(path)!r} is no regular file but a pipe or device, which is not read.")


def _reader(path: Path) -> _Reader:
    with path.open("rb") as file:
        start = file.read(16)
    if not start:
        raise CodecError(f"{str(path)!r} is empty.")
    for magic, advice in _OTHERS.items():
        # The length of a safetensors header, which any number of bytes may be, comes before its brace.
        if start[8:9] != b"{" and (start.startswith(magic) or start[4:].startswith(magic)):
            raise CodecError(f"{str(path)!r} cannot be read. {advice}")
    if path.name.endswith("-symbol.json"):
        from .mxnet import read as read_mxnet

        return read_mxnet
    if path.suffix == ".gguf" and not start.startswith(b"GGUF") and start[8:9] != b"{":
        raise CodecError(f"{str(path)!r} is no GGUF file, or is damaged: it begins with {start[:4]!r}.")
    if start.startswith(b"GGUF") or start[8:9] == b"{" or path.name.endswith(ENDINGS[4:]):
        from .weights import read as read_weights

        return read_weights
    if start.startswith(b"PK\3\4"):
        return _of_archive(path)
    if path.suffix == ".onnx":
        check_installed("Reading an ONNX file", ["onnx"], "onnx")
        from .onnx import read as read_onnx

        return read_onnx
    raise CodecError(
        f"{str(path)!r} is in no format that intus reads. It reads files that end in {', '.join(ENDINGS)}."
    )


def _of_archive(path: Path) -> _Reader:
    """Return the reader of a zip file: an exported program or TorchScript."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_unpacked(archive, path.stat().st_size, str(path))
            names = archive.namelist()
            offsets = [member.header_offset for member in archive.infolist()]
            if min(offsets, default=0) > 0:  # the end of another archive, which was inside
                raise zipfile.BadZipFile("its beginning is not that of the archive at its end")
            if export.model_of(archive):
                return export.read
    except (zipfile.BadZipFile, OSError) as error:
        raise CodecError(f"{str(path)!r} is damaged or truncated: {error}.") from None
    if any("/code/" in name and name.endswith(".py") for name in names):
        check_installed("Reading TorchScript", ["torch"], "torch")
        from .torchscript import read as read_torchscript

        return read_torchscript
    if "config.json" in names:
        raise CodecError(f"{str(path)!r} cannot be read. It is a Keras file. {_IN_KERAS}")
    if any(name.endswith("data.pkl") for name in names):
        raise CodecError(
            f"{str(path)!r} cannot be read. It has pickled weights, which can run code when they are loaded. "
            f"{_IN_PYTHON}"
        )
    raise CodecError(f"{str(path)!r} is a zip file without a model that intus reads.")
