"""Read a trace back from a file or a folder: the function ``load``."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import CodecError
from ..reading import ENDINGS, check_is_read
from .read import is_model_file
from .results.files import read
from .results.trace import Trace

#: Endings of files that hold weights, or models in formats that are not read.
WEIGHTS = (".pth", ".bin", ".ckpt", ".h5", ".keras")


def load(path: str | Path) -> Trace:
    """Read a trace that ``Trace.save`` wrote, or one whose values were stored in a folder (``store=``).

    Args:
        path: The file or the folder.

    Returns:
        The trace. Each value is read when it is accessed, so the file may be larger than memory. A file
        that is saved again under its name leaves earlier loaded traces unchanged. The trace cannot be
        validated or rerun, because files do not contain the functions that were called. Values are torch
        tensors if the trace is of PyTorch and it is installed, else numpy arrays.

    Raises:
        CodecError: If the path holds no trace, or one of a version that cannot be read. Later, if a value
            is read whose file was overwritten in place, or replaced before it was first opened (``store=``).

    Example:
        >>> import os, tempfile, torch
        >>> from intus import trace
        >>> path = os.path.join(tempfile.mkdtemp(), "net.trace")
        >>> trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).save(path)
        >>> load(path)["linear_1"].value.shape
        torch.Size([1, 1])
    """
    try:
        saved = read(Path(path))
    except CodecError as error:
        if is_model_file(path):
            raise CodecError(
                f"{str(path)!r} is a file of a model or of weights, and load reads what Trace.save wrote. "
                "Use intus.read for its graph, with inputs for values, or intus.view to show it."
            ) from None
        if Path(path).suffix not in WEIGHTS:
            raise
        raise CodecError(
            f"{error} It may hold weights, but load reads a trace that Trace.save wrote. Make the model in "
            "Python, load the weights into it, and pass the model to trace or view."
        ) from None
    trace = Trace(saved.graph, saved.values, saved.maybe_modified)
    trace.gradients = saved.gradients
    return trace


def load_to_show(path: str | Path) -> Trace:
    """Return the trace that a path holds, for ``view``, which also shows model files.

    Args:
        path: The file or the folder; no model file.

    Raises:
        CodecError: If the path holds no trace. Of a file in a format that is not read it says so, as ``read``
            does.
        InputError: If it is no file, or there is none.
    """
    path = Path(path)
    is_other = path.suffix != ".trace" and not path.is_dir()
    if is_other and not path.is_file():  # opening a pipe would wait for who writes to it
        check_is_read(path)
    try:
        return load(path)
    except CodecError as error:
        if path.is_dir():
            raise CodecError(f"{error} A model file ends in {', '.join(ENDINGS)}.") from None
        if is_other:
            check_is_read(path)
        raise
