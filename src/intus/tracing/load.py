"""``load``: read a trace back from a file or a folder."""

from __future__ import annotations

from pathlib import Path

from .results.files import read
from .results.trace import Trace


def load(path: str | Path) -> Trace:
    """Read a trace that ``Trace.save`` wrote, or the folder that one was streamed into (``store=``).

    Args:
        path: The file or folder.

    Returns:
        The trace. Its values are read when they are asked for, so the file may be larger than memory. It
        cannot be validated or rerun: functions do not travel.

    Raises:
        CodecError: If it is neither, or of a version that cannot be read.

    Example:
        >>> import os, tempfile, torch
        >>> from intus import trace
        >>> path = os.path.join(tempfile.mkdtemp(), "net.trace")
        >>> trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).save(path)
        >>> load(path)["linear_1"].value.shape
        torch.Size([1, 1])
    """
    saved = read(Path(path))
    trace = Trace(saved.graph, saved.values, saved.maybe_modified)
    trace.gradients = saved.gradients
    return trace
