"""Read a model file as a trace: the function ``read``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import reading
from ..core.errors import CodecError, InputError
from ..storage.tensors import CheckedFile
from .front_door import arguments
from .results.trace import Trace


def read(path: str | Path, /, *inputs: Any, **named_inputs: Any) -> Trace:
    """Read the graph of a model file, and the values of its operations if inputs are given.

    No code of the file runs. ``docs/files.md`` lists the formats and the packages that they need.

    Args:
        path: The file: an ONNX model (``.onnx``), for example.
        *inputs: Inputs of the model, in the order of the file, as arrays or tensors. A mapping alone gives
            inputs by name, and a tuple alone all of them. ``()`` computes the values of a
            model that takes none.
        **named_inputs: Inputs by name.

    Returns:
        The trace. Its values are numpy arrays; without inputs it has none. ``Trace.framework`` is the format.

    Raises:
        CodecError: If the file is in no format that can be read, or is damaged.
        InputError: If there is no such file, or the inputs do not fit the model.
        MissingExtraError: If the package that reads the format is not installed.

    Example:
        >>> read("net.onnx", np.ones((1, 3), np.float32))["fc"].value  # doctest: +SKIP
        array([[ 0.12, -0.48]], dtype=float32)
    """
    if not isinstance(path, str | Path):
        raise InputError(f"read takes the path of a model file, got a {type(path).__name__}.")
    path = Path(path)
    if _is_trace(path):
        raise InputError(f"{str(path)!r} is a saved trace. Use intus.load to read it, or intus.view.")
    given = arguments(inputs, named_inputs)
    found = reading.read(path, given.args if inputs or named_inputs else None, given.kwargs).with_shapes()
    format_ = found.graph.facts.get("format", path.suffix.removeprefix(".") or "a file")
    graph = replace(found.graph, facts={**found.graph.facts, "framework": format_})
    values = {row: np.asarray(v) for row, v in found.values.items()}
    return Trace(graph, values, params=found.params, parts=found.parts)


def is_model_file(path: Any) -> bool:
    """Return whether ``read`` reads a path, to judge by its ending; a saved trace may end as weights do."""
    if not isinstance(path, str | Path) or not str(path).lower().endswith(reading.ENDINGS):
        return False
    return not _is_trace(Path(path))


def _is_trace(path: Path) -> bool:
    if not path.is_file():  # opening a pipe would wait for who writes to it
        return False
    try:
        return "intus" in CheckedFile(path).metadata
    except (CodecError, OSError):  # no safetensors file, or none at all
        return False
