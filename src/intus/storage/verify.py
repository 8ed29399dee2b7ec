"""Compare saved files with their checksums: the function behind ``intus verify``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..core.errors import CodecError
from .codec import read_graph
from .tensors import CheckedFile
from .value_folder import GRAPH, INDEX, read_index


class Verified(NamedTuple):
    """The result of ``verify`` for a file or folder.

    Attributes:
        tensors: The number of tensors that were compared with their checksums.
        nbytes: Their size in bytes.
        faults: What is damaged or cannot be verified, each as a sentence; empty if all is as it was written.
    """

    tensors: int
    nbytes: int
    faults: list[str]


def verify(path: Path) -> Verified:
    """Compare every tensor of a file or folder with its checksum.

    Args:
        path: A file that ``Trace.save`` or ``collect`` wrote, or a folder of values that
            ``trace(…, store=…)`` wrote.

    Returns:
        What was found. A file without checksums, as intus wrote before format 2, is a fault too: nothing
        shows that it is as it was written.

    Raises:
        OSError: If it cannot be read.

    Example:
        >>> import tempfile
        >>> from intus.storage.tensors import array_entry, write_tensors
        >>> path = Path(tempfile.mkdtemp()) / "a.safetensors"
        >>> write_tensors(path, [array_entry("a", np.ones((2, 3)))], {"intus": "2"})
        >>> verify(path)
        Verified(tensors=1, nbytes=48, faults=[])
    """
    faults, tensors, nbytes = [], 0, 0
    files = [path]
    if path.is_dir():
        files = [path / GRAPH, *sorted(path.glob("values-*.safetensors"))]
        try:
            named = read_index(path, checked=CheckedFile(path / GRAPH).has_checksums)
            missing = sorted(set(named.values()) - {file.name for file in files})
            faults += [f"{path} has no file {name}, which {INDEX} names." for name in missing]
        except FileNotFoundError:
            return Verified(
                0, 0, [f"{path} is a folder, but none that trace(…, store=…) has finished writing."]
            )
        except CodecError as error:
            faults.append(str(error))
    for file in files:
        try:
            checked = CheckedFile(file)
        except CodecError as error:
            faults.append(str(error))
            continue
        if not checked.has_checksums:
            written = checked.metadata.get("intus")
            by = f"intus in format {written}" if written else "another program"
            faults.append(f"{file} was written by {by} and has no checksums, so it cannot be verified.")
            continue
        faults += _damaged(checked)
        tensors += len(checked.spans)
        nbytes += sum(stop - start for start, stop in checked.spans.values())
    return Verified(tensors, nbytes, list(dict.fromkeys(faults)))


def _damaged(checked: CheckedFile) -> Iterator[str]:
    """Yield a sentence for each tensor of a file that is not as it was written, and for an invalid graph."""
    labels: list[str] = []
    if "graph" in checked.metadata:
        try:
            labels = read_graph(checked.path)[0].labels
        except CodecError as error:
            yield str(error)
    for name in checked.spans:
        kind, _, row = name.partition("/")
        label = labels[int(row)] if row.isdecimal() and int(row) < len(labels) else ""
        try:
            checked.check(name, f"the {kind} of {label}" if label else "")
        except CodecError as error:
            yield str(error)
