"""Values on disk: written to safetensors files while the pass runs, read back when someone looks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from safetensors import safe_open
from torch import Tensor

from ....core.errors import InputError
from ....storage.tensors import Entry, rename_tensors, write_tensors
from ..memory import memory_of
from ..recording import ROW

INDEX = "index.json"
GRAPH = "graph.safetensors"
SHARD_BYTES = 256 * 2**20
_LINE = 64  # bytes: kernels tell memory that begins at a multiple of it from other

_KINDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.bool: "BOOL", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip


def unstorable(t: Tensor) -> str:
    """Why a tensor has no place in a safetensors file; ``""`` if it has.

    >>> unstorable(torch.ones(2)), unstorable(torch.ones(2).to_sparse())
    ('', 'is torch.sparse_coo')
    """
    if t.is_nested:
        return "is nested"
    if t.is_meta or t.is_quantized or t.layout != torch.strided:
        return f"is {'on meta' if t.is_meta else 'quantized' if t.is_quantized else t.layout}"
    if t.dtype not in _KINDS:
        return f"is {str(t.dtype).removeprefix('torch.')}, which safetensors files lack"
    return "" if memory_of(t) is not None else f"is a {type(t).__name__} without plain memory"


def tensor_entry(name: str, t: Tensor) -> Entry:
    """What writes a tensor that is not ``unstorable``, when its turn comes."""
    return Entry(name, _KINDS[t.dtype], tuple(t.shape), lambda: (_bytes(t),))


class Place(NamedTuple):
    """Where a value is: its file and its name there, and how it lay in memory: its strides, None for the
    usual ones, and its first byte's distance from a multiple of 64."""

    file: Path
    name: str
    stride: tuple[int, ...] | None = None
    offset: int = 0


class Stored(MutableMapping[int, Tensor]):
    """Values by row that lie in files, each read when it is asked for, and then as far as it is looked at:
    they are mapped into memory. What is set is held beside them. With ``exact`` each is copied to where it
    lies as it did: a kernel may round by that."""

    def __init__(self, places: Mapping[int, Place], *, exact: bool = False) -> None:
        self._places, self._exact = dict(places), exact
        self._own: dict[int, Tensor] = {}
        self._files: dict[Path, Any] = {}
        self._living: WeakValueDictionary[int, Tensor] = WeakValueDictionary()

    def __getitem__(self, row: int) -> Tensor:
        if row in self._own:
            return self._own[row]
        seen = self._living.get(row)
        if seen is not None:
            return seen  # functions ask whether two arguments are the same
        place = self._places[row]
        if place.file not in self._files:
            self._files[place.file] = safe_open(place.file, framework="pt")
        value: Tensor = self._files[place.file].get_tensor(place.name)
        self._living[row] = value = _laid(value, place) if self._exact else value
        return value

    def __setitem__(self, row: int, value: Tensor) -> None:
        self._places.setdefault(row, Place(Path(), ""))
        self._own[row] = value

    def __delitem__(self, row: int) -> None:
        del self._places[row]
        self._own.pop(row, None)

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, row: object) -> bool:
        return row in self._places

    def only(self, rows: set[int]) -> Stored:
        """Those of some rows."""
        return Stored({row: place for row, place in self._places.items() if row in rows})

    def to_run(self) -> Stored:
        """The same to run operations on, which what is set there does not change here."""
        stored = Stored(self._places, exact=True)
        stored._own = dict(self._own)
        return stored

    def __getstate__(self) -> tuple[Any, ...]:
        return self._places, self._exact, self._own

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        places, exact, own = state
        Stored.__init__(self, places, exact=exact)
        self._own = own


def to_run(values: Mapping[int, Tensor]) -> MutableMapping[int, Tensor]:
    """Values by row to run operations on, and to change."""
    return values.to_run() if isinstance(values, Stored) else dict(values)


class Store:
    """A folder that is being filled during one pass: ``places`` says where each row's value is.

    Files of about ``limit`` bytes are written one after another, each whole or not at all, and named in
    ``index.json`` as Hugging Face's sharded checkpoints are. ``skipped`` tells of rows that have no place in
    such a file why.
    """

    def __init__(self, folder: str | Path, limit: int) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InputError(f"shard_bytes must be a whole number of bytes above 0, got {limit!r}.")
        if not isinstance(folder, str | os.PathLike):
            raise InputError(f"store must be the path of a folder, got {folder!r}.")
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"store={str(folder)!r} is a file. Name a folder, which need not exist yet.")
        if (self.folder / INDEX).exists():
            raise InputError(
                f"store={str(folder)!r} holds the values of another trace. Delete it or name another folder."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self.limit = limit
        self.places: dict[int, Place] = {}
        self.skipped: dict[int, str] = {}
        self.maybe_modified: set[int] = set()
        self._held: set[int | None] = set()  # the memories of what waits to be written
        self._waiting = 0  # their bytes
        self._files: list[Path] = []

    def hold(self, t: Tensor) -> bool:
        """Count the memory of a tensor that waits to be written; whether it is time to write."""
        memory = memory_of(t)
        if memory not in self._held:
            self._held.add(memory)
            self._waiting += t.untyped_storage().nbytes()
        return self._waiting >= self.limit

    def write(self, values: Mapping[int, Tensor], type_of: Callable[[int], str]) -> None:
        """Write values by row into a file of their own; raises OSError where the disk is full."""
        self._held.clear()
        self._waiting = 0
        if not values:
            return
        path = self.folder / f"values-{len(self._files) + 1:05}.safetensors"
        names = {row: f"{row // len(ROW)}.{type_of(row)}" for row in values}
        # Names become labels when the pass is over: conv2d_3_7:2, or longer by at most two numbers.
        write_tensors(
            path, [tensor_entry(names[row], t) for row, t in values.items()], spare=40 * len(values)
        )
        self._files.append(path)
        self.places |= {
            row: Place(path, names[row], _stride(t), t.data_ptr() % _LINE) for row, t in values.items()
        }
        self._write_index()

    def forget(self, row: int) -> None:
        """The value of a row is not wanted any more; what is written stays in its file, unnamed."""
        self.places.pop(row, None)

    def close(self, labels: Mapping[int, str]) -> None:
        """The pass is over: the tensors of these rows bear their labels, and no others are in the index."""
        for path in self._files:
            here = {row: place.name for row, place in self.places.items() if place.file == path}
            rename_tensors(path, {name: labels[row] for row, name in here.items() if row in labels})
        self.places = {row: self.places[row]._replace(name=label) for row, label in labels.items()}
        self._write_index()

    def _write_index(self) -> None:
        size = sum(path.stat().st_size for path in self._files)
        index = {
            "metadata": {"total_size": size},
            "weight_map": {place.name: place.file.name for place in self.places.values()},
        }
        partial = self.folder / f"{INDEX}.partial"
        try:
            partial.write_text(json.dumps(index, indent=1, ensure_ascii=False), encoding="utf-8")
            os.replace(partial, self.folder / INDEX)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise


def from_folder(folder: Path, labels: Iterable[str]) -> Stored:
    """The values in a folder, by the rows whose labels name them."""
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
    return Stored(
        {row: Place(folder / index[label], label) for row, label in enumerate(labels) if label in index}
    )


def _stride(t: Tensor) -> tuple[int, ...] | None:
    """The strides of a tensor that lies otherwise than usual, and nearly as densely."""
    span = 1 + sum((length - 1) * stride for length, stride in zip(t.shape, t.stride(), strict=True))
    return None if t.is_contiguous() or 0 in t.stride() or span > 2 * t.numel() else t.stride()


def _laid(t: Tensor, place: Place) -> Tensor:
    """The tensor as its place says that it lay in memory."""
    if (place.stride is None and t.data_ptr() % _LINE == place.offset) or t.numel() == 0:
        return t
    stride = place.stride or t.stride()
    span = 1 + sum((length - 1) * step for length, step in zip(t.shape, stride, strict=True))
    room = t.new_empty(span + _LINE // t.element_size())
    first = (place.offset - room.data_ptr()) % _LINE // t.element_size()
    return room.as_strided(t.shape, stride, first).copy_(t)


def _bytes(t: Tensor) -> Any:
    plain = t.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8).numpy()  # a length of 1 has any stride
