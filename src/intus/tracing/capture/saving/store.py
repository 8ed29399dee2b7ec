"""Write values to safetensors files while the pass runs, and read them back on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ....core.errors import CodecError, InputError
from ....core.shared_array import shared_array
from ....storage.tensors import CheckedFile, Entry, rename_tensors, write_tensors
from ....storage.value_folder import INDEX, read_index, write_index
from ..memory import inner_of, memory_of
from ..recording import ROW
from .kept import Kept

SHARD_BYTES = 256 * 2**20
_ALIGNMENT = 64  # bytes; kernels may treat memory that starts at a multiple of it differently

_KINDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.bool: "BOOL", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip


def unstorable(t: Tensor) -> str:
    """Return why a tensor cannot be written to a safetensors file; ``""`` if it can.

    Example:
        >>> unstorable(torch.ones(2)), unstorable(torch.ones(2).to_sparse())
        ('', 'is torch.sparse_coo')
    """
    if t.is_nested:
        return "is nested"
    if t.is_meta or t.is_quantized or t.layout != torch.strided:
        return f"is {'on meta' if t.is_meta else 'quantized' if t.is_quantized else t.layout}"
    if t.dtype not in _KINDS:
        return f"is {str(t.dtype).removeprefix('torch.')}, which safetensors files lack"
    if inner_of(t) is not None:
        return f"is a {type(t).__name__}, which safetensors files lack"
    return "" if memory_of(t) is not None else f"is a {type(t).__name__} without plain memory"


def tensor_entry(name: str, t: Tensor) -> Entry:
    """Return the file entry of a tensor that is not ``unstorable``; its bytes are read when it is written."""
    return Entry(name, _KINDS[t.dtype], tuple(t.shape), lambda: (_bytes(t),))


class Place(NamedTuple):
    """The location of a value on disk, and the layout it had in memory.

    Attributes:
        file: The file.
        name: Its name in the file.
        stride: Its strides; None to read it contiguously.
        offset: The distance in bytes of its first byte from a multiple of 64.
        label: What errors call it; by default its name.
    """

    file: Path
    name: str
    stride: tuple[int, ...] | None = None
    offset: int = 0
    label: str = ""


class _Stamp(NamedTuple):
    """The identity of a file, also under the same name: its device, number, size and last write."""

    device: int
    inode: int
    size: int
    written_ns: int


def _stamp(path: Path) -> _Stamp | None:
    """Return the stamp of a file; None if there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return _Stamp(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)


class Files:
    """The safetensors files of a trace, which are memory-mapped when they are first used.

    A file that another one replaces remains readable once it is mapped. What was replaced before that, or is
    overwritten in place, is refused.

    Args:
        paths: The paths of the files as they are now.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._seen = {path: _stamp(path) for path in set(paths)}
        self._opened: dict[Path, tuple[Any, CheckedFile]] = {}

    def open(self, path: Path) -> tuple[Any, CheckedFile]:
        """Map a file, and return it with its header.

        Raises:
            CodecError: If it was replaced, or cannot be read.
        """
        opened = self._opened.get(path)
        if opened is None:
            self._check_stamp(path, mapped=False)
            checked = CheckedFile(path)
            opened = safe_open(path, framework="pt"), checked
            self._check_stamp(path, mapped=False)  # the file was opened twice
            self._opened[path] = opened
        return opened

    def read(self, place: Place) -> Tensor:
        """Return the value at a place, once it has been compared with its checksum.

        Raises:
            CodecError: If the file was replaced, or the value cannot be read or is damaged.
        """
        try:
            file, checked = self.open(place.file)
            self._check_stamp(place.file, mapped=True)
            value: Tensor = file.get_tensor(place.name)
        except SafetensorError as error:
            raise CodecError(
                f"{place.label or place.name!r} of {place.file} cannot be read: {error}."
            ) from None
        checked.check(place.name, place.label, _bytes(value))
        return value

    def _check_stamp(self, path: Path, *, mapped: bool) -> None:
        """Raise CodecError if a file is not as it was; once mapped, another of its name does no harm."""
        now, seen = _stamp(path), self._seen.get(path)
        if now is None or now == seen or (mapped and seen is not None and now[:2] != seen[:2]):
            return
        raise CodecError(f"{path} was replaced since it was loaded. Load it again.")

    def __getstate__(self) -> dict[Path, _Stamp | None]:
        return self._seen

    def __setstate__(self, seen: dict[Path, _Stamp | None]) -> None:
        self._seen, self._opened = seen, {}


class Stored(MutableMapping[int, Tensor]):
    """Values by row in files; values that are set stay in memory.

    Each value is compared with its checksum before it is first returned.

    Args:
        places: The locations of the values, by graph row.
        exact: Whether to copy each value to memory with the strides and alignment it had, because the
            rounding of kernels may depend on them.
        files: The files. Default: those of the places, as they are now.
    """

    def __init__(
        self, places: Mapping[int, Place], *, exact: bool = False, files: Files | None = None
    ) -> None:
        self._places, self._exact = dict(places), exact
        self._set: dict[int, Tensor] = {}
        self._files = files or Files(place.file for place in places.values())
        self._loaded: WeakValueDictionary[int, Tensor] = WeakValueDictionary()

    def __getitem__(self, row: int) -> Tensor:
        if row in self._set:
            return self._set[row]
        loaded = self._loaded.get(row)
        if loaded is not None:
            return loaded  # the same object each time, because functions test whether arguments are identical
        place = self._places[row]
        value = self._files.read(place)
        self._loaded[row] = value = _with_layout(value, place) if self._exact else value
        return value

    def __setitem__(self, row: int, value: Tensor) -> None:
        self._places.setdefault(row, Place(Path(), ""))
        self._set[row] = value

    def __delitem__(self, row: int) -> None:
        del self._places[row]
        self._set.pop(row, None)

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, row: object) -> bool:
        return row in self._places

    def only(self, rows: set[int]) -> Stored:
        """Return the values of the given rows, without those that were set."""
        places = {row: place for row, place in self._places.items() if row in rows}
        return Stored(places, files=self._files)

    def for_replay(self) -> Stored:
        """Return an independent copy with ``exact`` values, to run operations on."""
        stored = Stored(self._places, exact=True, files=self._files)
        stored._set = dict(self._set)
        return stored

    def __getstate__(self) -> tuple[Any, ...]:
        return self._places, self._exact, self._set, self._files

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        places, exact, values, files = state
        Stored.__init__(self, places, exact=exact, files=files)
        self._set = values


def for_replay(values: Mapping[int, Tensor]) -> MutableMapping[int, Tensor]:
    """Return a copy of values by row, to run operations on and to change."""
    return values.for_replay() if isinstance(values, Stored | Kept) else dict(values)


class Store:
    """Writes the values of one pass to a folder.

    Files are written one after another, each completely or not at all. ``index.json`` lists their tensors in
    the format of Hugging Face's sharded checkpoints.

    Args:
        folder: The folder; created if it does not exist.
        limit: The size in bytes at which values that wait in memory are written to a file.

    Raises:
        InputError: If ``limit`` is not a positive int, ``folder`` is not a path or is a file, or it contains
            the values of another trace.

    Attributes:
        places: The locations of the values that were written, by offset.
        skipped: Why values could not be written, by offset; see ``unstorable``.
        maybe_modified: The offsets of values whose memory was written by something the recorder did not see
            before they were written to disk.
    """

    def __init__(self, folder: str | Path, limit: int) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InputError(f"shard_bytes must be a positive integer, got {limit!r}.")
        if not isinstance(folder, str | os.PathLike):
            raise InputError(f"store must be the path of a folder, got {folder!r}.")
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(
                f"store must be a folder, got the file {str(folder)!r}. A new folder need not exist yet."
            )
        if (self.folder / INDEX).exists():
            raise InputError(
                f"store={str(folder)!r} has the values of another trace. Delete it or name another folder."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self.limit = limit
        self.places: dict[int, Place] = {}
        self.skipped: dict[int, str] = {}
        self.maybe_modified: set[int] = set()
        self._counted: set[int | None] = set()  # the memories of the values that wait to be written
        self._waiting_bytes = 0  # their total size
        self._files: list[Path] = []

    def count(self, t: Tensor) -> bool:
        """Count the memory of a tensor that waits to be written; return whether ``limit`` is reached."""
        memory = memory_of(t)
        if memory not in self._counted:
            self._counted.add(memory)
            self._waiting_bytes += t.untyped_storage().nbytes()
        return self._waiting_bytes >= self.limit

    def write(self, values: Mapping[int, Tensor], type_of: Callable[[int], str]) -> None:
        """Write values to a new file.

        Args:
            values: The values, by offset.
            type_of: Returns the name of an offset's type.

        Raises:
            OSError: If the disk is full.
        """
        self._counted.clear()
        self._waiting_bytes = 0
        if not values:
            return
        path = self.folder / f"values-{len(self._files) + 1:05}.safetensors"
        names = {offset: f"{offset // len(ROW)}.{type_of(offset)}" for offset in values}
        # ``close`` renames the tensors to their labels, which are at most two numbers longer: conv2d_3_7:2.
        write_tensors(
            path, [tensor_entry(names[offset], t) for offset, t in values.items()], spare=40 * len(values)
        )
        self._files.append(path)
        self.places |= {
            offset: Place(path, names[offset], _stride(t), t.data_ptr() % _ALIGNMENT)
            for offset, t in values.items()
        }
        self._write_index()

    def discard(self, offset: int) -> None:
        """Discard a value. If it was written it remains in its file, but not in the index."""
        self.places.pop(offset, None)

    def close(self, labels: Mapping[int, str]) -> None:
        """Rename the tensors to their labels when the pass is over, and remove all others from the index.

        Args:
            labels: The labels, by offset.
        """
        for path in self._files:
            here = {offset: place.name for offset, place in self.places.items() if place.file == path}
            rename_tensors(path, {name: labels[offset] for offset, name in here.items() if offset in labels})
        self.places = {offset: self.places[offset]._replace(name=label) for offset, label in labels.items()}
        self._write_index()

    def _write_index(self) -> None:
        size = sum(path.stat().st_size for path in self._files)
        write_index(self.folder, {place.name: place.file.name for place in self.places.values()}, size)


def from_folder(folder: Path, labels: Iterable[str], *, checked: bool) -> Stored:
    """Return the values in a folder that a ``Store`` wrote.

    Args:
        folder: The folder.
        labels: The labels of the graph's rows, in order.
        checked: Whether the folder must have checksums, as those of format 2 have.

    Raises:
        CodecError: If the index of the folder cannot be read, or is not as it was written.
    """
    files = read_index(folder, checked=checked)
    return Stored(
        {row: Place(folder / files[label], label) for row, label in enumerate(labels) if label in files}
    )


def _stride(t: Tensor) -> tuple[int, ...] | None:
    """Return the strides of a tensor if it is not contiguous but nearly as dense, else None."""
    span = 1 + sum((length - 1) * stride for length, stride in zip(t.shape, t.stride(), strict=True))
    return None if t.is_contiguous() or 0 in t.stride() or span > 2 * t.numel() else t.stride()


def _with_layout(t: Tensor, place: Place) -> Tensor:
    """Return the tensor with the strides and the alignment that its place states."""
    if (place.stride is None and t.data_ptr() % _ALIGNMENT == place.offset) or t.numel() == 0:
        return t
    stride = place.stride or t.stride()
    span = 1 + sum((length - 1) * step for length, step in zip(t.shape, stride, strict=True))
    memory = t.new_empty(span + _ALIGNMENT // t.element_size())
    first = (place.offset - memory.data_ptr()) % _ALIGNMENT // t.element_size()
    return memory.as_strided(t.shape, stride, first).copy_(t)


def _bytes(t: Tensor) -> Any:
    plain = t.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    # A dimension of length 1 may have any stride.
    return shared_array(plain.as_strided((plain.numel(),), (1,)).view(torch.uint8))
