"""Values in safetensors files, which are read when they are accessed: as torch tensors or numpy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from safetensors import SafetensorError, safe_open

from ....core.errors import CodecError
from ....core.shared_array import shared_array
from ....storage.tensors import CheckedFile, array_of
from ....storage.value_folder import read_index

if TYPE_CHECKING:
    from torch import Tensor

#: A torch tensor, or a numpy array in a trace of another framework; a union would make every caller check.
Value = Any

ALIGNMENT = 64  # bytes; kernels may treat memory that starts at a multiple of it differently


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


class _Arrays:
    """Reads the tensors of a file as numpy arrays, also of dtypes that safetensors refuses to numpy.

    Args:
        checked: The file, which is memory-mapped.
    """

    def __init__(self, checked: CheckedFile) -> None:
        self._checked, self._data = checked, np.memmap(checked.path, np.uint8, "r")

    def get_tensor(self, name: str) -> np.ndarray:
        about, (start, stop) = self._checked.about[name], self._checked.spans[name]
        try:
            return array_of(about["dtype"], about["shape"], self._data[start:stop])
        except CodecError as error:
            raise SafetensorError(str(error).removesuffix(".")) from None


class Files:
    """The safetensors files of a trace, which are memory-mapped when they are first used.

    A file that another one replaces remains readable once it is mapped. What was replaced before that, or is
    overwritten in place, is refused.

    Args:
        paths: The paths of the files as they are now.

    Attributes:
        as_numpy: Whether values are read as numpy arrays instead of torch tensors.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.as_numpy = False
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
            opened = (_Arrays(checked) if self.as_numpy else safe_open(path, framework="pt")), checked
            self._check_stamp(path, mapped=False)  # the file was opened twice
            self._opened[path] = opened
        return opened

    def read(self, place: Place) -> Value:
        """Return the value at a place, once it has been compared with its checksum.

        Raises:
            CodecError: If the file was replaced, or the value cannot be read or is damaged.
        """
        try:
            file, checked = self.open(place.file)
            self._check_stamp(place.file, mapped=True)
            value: Value = file.get_tensor(place.name)
        except SafetensorError as error:
            raise CodecError(
                f"{place.label or place.name!r} of {place.file} cannot be read: {error}."
            ) from None
        checked.check(place.name, place.label, bytes_of(value))
        return value

    def _check_stamp(self, path: Path, *, mapped: bool) -> None:
        """Raise CodecError if a file is not as it was; once mapped, another of its name does no harm."""
        now, seen = _stamp(path), self._seen.get(path)
        if now is None or now == seen or (mapped and seen is not None and now[:2] != seen[:2]):
            return
        raise CodecError(f"{path} was replaced since it was loaded. Load it again.")

    def __getstate__(self) -> tuple[dict[Path, _Stamp | None], bool]:
        return self._seen, self.as_numpy

    def __setstate__(self, state: tuple[dict[Path, _Stamp | None], bool]) -> None:
        (self._seen, self.as_numpy), self._opened = state, {}


class Stored(MutableMapping[int, Value]):
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
        self._set: dict[int, Value] = {}
        self._files = files or Files(place.file for place in places.values())
        self._loaded: WeakValueDictionary[int, Value] = WeakValueDictionary()

    def __getitem__(self, row: int) -> Value:
        if row in self._set:
            return self._set[row]
        loaded = self._loaded.get(row)
        if loaded is not None:
            return loaded  # the same object each time, because functions test whether arguments are identical
        place = self._places[row]
        value = self._files.read(place)
        self._loaded[row] = value = _with_layout(value, place) if self._exact else value
        return value

    def __setitem__(self, row: int, value: Value) -> None:
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


def from_folder(folder: Path, labels: Iterable[str], *, checked: bool, as_numpy: bool) -> Stored:
    """Return the values in a folder that a ``Store`` wrote.

    Args:
        folder: The folder.
        labels: The labels of the graph's rows, in order.
        checked: Whether the folder must have checksums, as those of format 2 have.
        as_numpy: Whether values are read as numpy arrays.

    Raises:
        CodecError: If the index of the folder cannot be read, or is not as it was written.
    """
    names = read_index(folder, checked=checked)
    places = {row: Place(folder / names[label], label) for row, label in enumerate(labels) if label in names}
    files = Files(place.file for place in places.values())
    files.as_numpy = as_numpy
    return Stored(places, files=files)


def _with_layout(t: Tensor, place: Place) -> Tensor:
    """Return the tensor with the strides and the alignment that its place states."""
    if (place.stride is None and t.data_ptr() % ALIGNMENT == place.offset) or t.numel() == 0:
        return t
    stride = place.stride or t.stride()
    span = 1 + sum((length - 1) * step for length, step in zip(t.shape, stride, strict=True))
    memory = t.new_empty(span + ALIGNMENT // t.element_size())
    first = (place.offset - memory.data_ptr()) % ALIGNMENT // t.element_size()
    return memory.as_strided(t.shape, stride, first).copy_(t)


def bytes_of(value: Value) -> Any:
    """Return the bytes of a tensor or array in row-major order, as a flat array."""
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    import torch

    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    # A dimension of length 1 may have any stride.
    return shared_array(plain.as_strided((plain.numel(),), (1,)).view(torch.uint8))
