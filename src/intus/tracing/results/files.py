"""Write a trace to one file, and read it back from a file or from the folder of its values."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from safetensors import SafetensorError

from ...core.errors import CodecError, InputError
from ...core.graph import Graph
from ...storage.codec import graph_parts, read_graph
from ...storage.tensors import CheckedFile, Entry, array_entry, kind_of, write_tensors
from ...storage.value_folder import GRAPH
from ..capture.saving.gradients_by_row import Gradients
from ..capture.saving.stored import Files, Place, Stored, Value, from_folder

if TYPE_CHECKING:
    from .trace import Trace

#: The framework whose values are tensors; those of others, and of model files, are numpy arrays.
TORCH = "torch"
#: The column of rows whose value may have been modified; the name is the same in files of all versions.
_MAYBE_MODIFIED = "unverified"


def save(trace: Trace, path: Path, *, values: bool = True) -> None:
    """Write a trace into one safetensors file.

    Args:
        trace: The trace.
        path: The file to write.
        values: Whether to write the saved values, besides the graph and the gradients.

    Raises:
        InputError: If a value or gradient cannot be stored in such a file.
    """
    columns, meta = graph_parts(trace.graph)
    columns[_MAYBE_MODIFIED] = np.array(sorted(trace.maybe_modified), dtype=np.int64)
    entries = [array_entry(name, column) for name, column in columns.items()]
    grads = trace.gradients.by_row if trace.gradients is not None else {}
    for kind, tensors in (("value", trace.values if values else {}), ("grad", grads)):
        for row, t in tensors.items():
            entry = _entry(f"{kind}/{row}", t)
            if isinstance(entry, str):
                raise InputError(
                    f"The {kind} of {trace.graph.label(row)} {entry} and cannot be written. Choose other ops "
                    "with save=, or none."
                )
            entries.append(entry)
    write_tensors(path, entries, meta)


def _entry(name: str, value: Value) -> Entry | str:
    """Return the file entry of a value, or why it cannot be written."""
    if isinstance(value, np.ndarray):
        lacking = f"is {value.dtype}, which safetensors files lack"
        return array_entry(name, value) if kind_of(value.dtype) else lacking
    from ..capture.saving.store import tensor_entry, unstorable

    return unstorable(value) or tensor_entry(name, value)


class Saved(NamedTuple):
    """The parts of a trace that was read from a file or folder.

    Attributes:
        graph: The graph.
        values: The saved values by row, each read when it is accessed: torch tensors if the trace is of
            PyTorch and it is installed, else numpy arrays.
        maybe_modified: The rows whose value may have been modified.
        gradients: The gradients by row, each read when it is accessed; None if the trace had none.
    """

    graph: Graph
    values: Stored
    maybe_modified: frozenset[int]
    gradients: Gradients | None


def read(path: Path) -> Saved:
    """Read a file that ``save`` wrote, or a folder of values that ``trace(…, store=…)`` wrote.

    Raises:
        CodecError: If the path is neither.
    """
    folder = path if path.is_dir() else None
    if folder is not None and not (folder / GRAPH).exists():
        raise CodecError(f"{str(path)!r} is a folder, but none that trace(…, store=…) has finished writing.")
    file = path if folder is None else folder / GRAPH
    files = Files([file])
    graph, others, maybe_modified = _read(file)
    files.as_numpy = graph.facts.get("framework", TORCH) != TORCH or find_spec(TORCH) is None
    if folder is None:
        values = _stored("value", others, graph, file, files)
    else:
        checked = CheckedFile(file).has_checksums
        values = from_folder(folder, graph.labels, checked=checked, as_numpy=files.as_numpy)
    grads = _stored("grad", others, graph, file, files)
    gradients = Gradients(grads) if grads or "autograd" in graph.facts else None
    return Saved(graph, values, maybe_modified, gradients)


def _read(file: Path) -> tuple[Graph, list[str], frozenset[int]]:
    graph, columns, others = read_graph(file)
    rows = columns.get(_MAYBE_MODIFIED, np.zeros(0, np.int64))
    return graph, others, frozenset(rows.tolist())


def _stored(kind: str, names: list[str], graph: Graph, file: Path, files: Files) -> Stored:
    """Return the values or gradients in a file by row; map the file, which may be replaced from now on."""
    what = {"value": "the value of", "grad": "the gradient of"}[kind]
    places = {}
    for name in names:
        if name.startswith(f"{kind}/"):
            row = _row(name, graph, file)
            places[row] = Place(file, name, label=f"{what} {graph.labels[row]}")
    if places:
        try:
            files.open(file)
        except SafetensorError as error:
            raise CodecError(f"{str(file)!r} is not a safetensors file: {error}.") from None
    return Stored(places, files=files)


def _row(name: str, graph: Graph, path: Path) -> int:
    kind, _, row = name.partition("/")
    if not row.isdecimal() or int(row) >= len(graph.ops):
        raise CodecError(f"{str(path)!r} holds a {kind} for row {row!r}, which its graph lacks.")
    return int(row)
