"""Collect the activations of many batches in one file: the function ``collect``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..core.address import is_pattern, matches
from ..core.errors import AddressError, CodecError, InputError, did_not_run, did_you_mean
from ..core.graph import Graph
from ..core.selection import Selection, match
from ..storage.tensors import CheckedFile, Entry, write_tensors
from .capture.saving.choose import Chooser, parts_of
from .capture.saving.form import To
from .capture.saving.store import tensor_entry, unstorable
from .front_door import Arguments, arguments, front_door
from .models import must_be_torch
from .progress_bar import progress
from .run import trace

_CHUNK = 2**20
#: An address without its pass, and the pass.
_Key = tuple[str, int]


def _opened(file: Path) -> Any:
    return safe_open(file, framework="pt")


class Collected(Mapping[str, Tensor]):
    """A mapping from address to the activations of many batches, in one safetensors file.

    Each tensor is read when it is accessed; its file is memory-mapped, so only the pages that are used are
    loaded. That is why its checksum is not compared then: ``intus verify FILE`` does.

    Args:
        file: A file that ``collect`` wrote.

    Attributes:
        file: The path of the file.
        parts: For each address the batches that its rows come from, as pairs (number of the batch, rows).

    Raises:
        CodecError: If ``collect`` did not write the file, or its header is damaged.
    """

    def __init__(self, file: str | Path) -> None:
        self.file = Path(file)
        try:
            metadata = CheckedFile(self.file).metadata
            self._open = _opened(self.file)
            parts_by_address = json.loads(metadata["collected"])
        except CodecError as error:
            raise CodecError(
                f"{str(file)!r} is no file that collect has written, or is damaged: {error}"
            ) from None
        except (SafetensorError, KeyError, ValueError) as error:
            raise CodecError(f"{str(file)!r} is no file that collect has written: {error!r}.") from None
        self.parts: dict[str, list[tuple[int, int]]] = {
            address: [(batch, rows) for batch, rows in parts] for address, parts in parts_by_address.items()
        }

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows of each address."""
        return {address: sum(rows for _, rows in parts) for address, parts in self.parts.items()}

    def __getitem__(self, address: str) -> Tensor:
        for name in (address, f"{address}:1", address.removesuffix(":1")):
            if name in self.parts:
                value: Tensor = self._open.get_tensor(name)
                return value
        raise AddressError(f"{self.file.name} has no {address!r}. {did_you_mean(str(address), self.parts)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["file"])  # type: ignore[misc]

    def __repr__(self) -> str:
        shown = ", ".join(f"{address} {count:,}" for address, count in list(self.counts.items())[:6])
        more = f" and {len(self) - 6} more" if len(self) > 6 else ""
        return f"<Collected in {self.file.name}, rows: {shown or 'none'}{more}>"


@front_door
def collect(
    model: Callable[..., Any],
    /,
    batches: Iterable[Any],
    save: Selection,
    file: str | Path,
    *,
    inputs: Callable[[Any], Any] | None = None,
    to: To | None = None,
    transform: Callable[[Tensor], Tensor] | None = None,
    seed: int = 0,
    kwargs: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Collected:
    """Trace a model on every batch and append the chosen activations along axis 0, by address, in one file.

    One batch is in memory at a time. Gradients are off. The file is written under its name when all batches
    are done: a file of that name is replaced then, and left alone if something fails. A bar shows the
    progress if tqdm (``intus[progress]``) is installed and standard error is a terminal or a notebook.

    Args:
        model: A module, a function, or a bound method.
        batches: A DataLoader, a list, or another iterable of batches. A batch is what ``trace`` takes: a
            tensor, a tuple of positional arguments, or a mapping of keyword arguments.
        save: Which activations to collect, as in ``trace``. The addresses in the file are the names written
            here; what is chosen otherwise (by a predicate, an ordinal or a type) is filed under its label.
            The passes of a recurrent layer are separate (``"cell:1"``, ``"cell:2"``).
        file: The safetensors file to write; its folder must exist.
        inputs: Takes the model's inputs out of a batch that holds more, such as labels
            (``lambda batch: batch[0]``). Default: the batch is the model's input.
        to: As in ``trace``.
        transform: As in ``trace``. Use it to give tensors a common shape beyond axis 0
            (``lambda t: t.flatten(0, 1)``).
        seed: Batch number n, from 0, runs with the seed ``seed + n``. Default: 0.
        kwargs: Keyword arguments of the model whose names are also options, as in ``trace``.
        **keywords: The model's keyword arguments, the same for every batch.

    Returns:
        A mapping from address to tensor; each tensor is read from the file when it is accessed.

    Raises:
        InputError: If there is no batch, an option has an impossible value, a keyword is neither an option
            nor a parameter of the model or is both, a tensor has another dtype or another shape beyond axis 0
            than in an earlier batch, or a tensor cannot be stored.
        AddressError: If a name in ``save`` is missing in a batch. A pass that only some batches reach has
            fewer rows; a pass that no batch reached is an error.

    Example:
        >>> import os, tempfile
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
        >>> file = os.path.join(tempfile.mkdtemp(), "acts.safetensors")
        >>> acts = collect(net, torch.ones(5, 4).split(2), ["0", "relu_1"], file)
        >>> acts
        <Collected in acts.safetensors, rows: 0 5, relu_1 5>
        >>> acts["0"].shape, acts.parts["0"]
        (torch.Size([5, 3]), [(0, 2), (1, 2), (2, 1)])
    """
    must_be_torch("collect", model, Arguments((batches,), {}))
    if isinstance(batches, Tensor | str | bytes | Mapping) or not isinstance(batches, Iterable):
        raise InputError(
            f"batches must be several: a DataLoader or a list, got {type(batches).__name__}. For one batch "
            "call trace, or write [batch]."
        )
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"seed must be a whole number, to which each batch's number is added, got {seed!r}.")
    file, selection = Path(file), parts_of(save)
    if not file.parent.is_dir():
        raise InputError(f"There is no folder {str(file.parent)!r} to write {file.name!r} into.")
    with TemporaryDirectory(prefix=f"{file.name}.", dir=file.parent) as folder:
        spools, missing = _Spools(Path(folder)), None
        for number, batch in enumerate(progress(batches, "collect", "batches")):
            given = arguments((_model_inputs(batch, inputs),), kwargs)
            chooser = Chooser(selection, all_passes=False)
            with torch.no_grad():
                t = trace(
                    model,
                    given,
                    save=chooser,
                    to=to,
                    transform=transform,
                    seed=seed + number,
                    kwargs={},
                )
            missing = chooser.missing if missing is None else missing & chooser.missing
            keys = _keys(t.graph, selection)
            for row, value in t.values.items():
                for key in keys.get(row) or [_label(t.graph, row)]:
                    spools.add(key, number, value)
        if missing is None:
            raise InputError(
                "batches holds no batch: it is empty, or a generator that was used up before. Pass a list, a "
                "DataLoader or a new generator."
            )
        if missing:
            raise _missing(t.graph, sorted(map(str, missing)))
        spools.finish(file)
    return Collected(file)


def _missing(graph: Graph, names: list[str]) -> AddressError:
    """Return the error that names were selected in no batch: they are wrong, or did not run."""
    for name in names:
        before, colon, _ = name.rpartition(":")  # a pass that no batch has
        try:
            match(graph, before if colon else name)
        except AddressError as error:
            if str(error) != did_not_run(name):
                return error
    return AddressError(" ".join(did_not_run(name, "in any batch") for name in names))


class _Spools:
    """Temporary files of plain bytes, one per address, to which rows are appended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._first: dict[_Key, tuple[int, Entry]] = {}  # the first batch with the address, and its tensor
        self._parts: dict[_Key, list[tuple[int, int]]] = {}
        self._numbers: dict[_Key, int] = {}

    def add(self, key: _Key, batch: int, value: Tensor) -> None:
        """Append the rows of one value.

        Raises:
            InputError: If the value cannot be stored, or does not match the earlier ones.
        """
        name = _text(key) if key[1] > 1 else key[0]
        why = unstorable(value) or ("" if value.dim() else "has no axis 0")
        if why:
            raise InputError(f"The value of {name!r} in batch {batch} {why}, so it cannot be collected.")
        entry = tensor_entry(name, value)
        first, like = self._first.setdefault(key, (batch, entry))
        if (entry.kind, entry.shape[1:]) != (like.kind, like.shape[1:]):
            raise InputError(
                f"{name!r} is {_form(entry)} in batch {batch} and was {_form(like)} in batch {first}. "
                "Rows are concatenated, so the dtype and every axis but axis 0 must agree. Make them agree "
                "with transform=, for example lambda t: t.flatten(0, 1) or lambda t: t.mean(1)."
            )
        self._parts.setdefault(key, []).append((batch, value.shape[0]))
        with self._path(key).open("ab") as spool:
            for part in entry.data():
                spool.write(part)

    def finish(self, file: Path) -> None:
        """Write all addresses into one safetensors file."""
        several = {base for base, passno in self._parts if passno > 1}
        names = {key: key[0] if key[0] not in several else _text(key) for key in self._parts}
        entries = []
        for key, (_, like) in self._first.items():
            shape = (sum(rows for _, rows in self._parts[key]), *like.shape[1:])
            entries.append(Entry(names[key], like.kind, shape, partial(_consume, self._path(key))))
        parts = {names[key]: parts for key, parts in self._parts.items()}
        write_tensors(file, entries, {"intus": "1", "collected": json.dumps(parts, ensure_ascii=False)})

    def _path(self, key: _Key) -> Path:
        return self._folder / str(self._numbers.setdefault(key, len(self._numbers)))


def _consume(path: Path) -> Iterator[bytes]:
    """Yield the contents of a temporary file in pieces, then delete it."""
    with path.open("rb") as spool:
        while piece := spool.read(_CHUNK):
            yield piece
    path.unlink()


def _model_inputs(batch: Any, inputs: Callable[[Any], Any] | None) -> Any:
    if inputs is not None:
        return inputs(batch)
    if isinstance(batch, list):
        raise InputError(
            f"A batch is a list of {len(batch)}, as a DataLoader of data and labels yields. Choose what the "
            "model receives: inputs=lambda batch: batch[0], or inputs=tuple for every item as an argument."
        )
    return batch


def _keys(graph: Graph, selection: list[Any]) -> dict[int, list[_Key]]:
    """Return the addresses under which the values of rows are stored.

    These are all names in the selection that mean the row; if there is none, the innermost module that
    returns it and that a pattern or a class in the selection means.
    """
    found: dict[int, list[_Key]] = {}
    written = {part for part in selection if isinstance(part, str) and not is_pattern(part)}
    classes = {part for part in written if graph.rows(part) is None and part not in graph.types}
    globs = [part for part in selection if isinstance(part, str) and is_pattern(part)]
    calls = [(call, rows[0]) for call, rows in sorted(graph.call_outputs.items()) if len(rows) == 1]
    for call, row in reversed(calls):  # inner modules first
        key = graph.modules[int(graph.calls.module[call])].address, int(graph.calls.passno[call])
        names = {key[0], _text(key)}
        selected = graph.modules[int(graph.calls.module[call])].type in classes or any(
            matches(glob, name) for name in names for glob in globs
        )
        if (selected and row not in found) or names & written:
            found.setdefault(row, []).append(key)
    modules = {module.address for module in graph.modules}
    for name in written:
        base, _, passno = name.rpartition(":")
        base = base if base and passno.isdecimal() else name
        rows = graph.rows(name) or []
        passes = [int(graph.ops.passno[row]) for row in rows]
        if base not in modules and len(set(passes)) == len(passes):  # a buffer, a short label
            for row, number in zip(rows, passes, strict=True):
                found.setdefault(row, []).append((base, number))
    return found


def _label(graph: Graph, row: int) -> _Key:
    return graph.label(row).partition(":")[0], int(graph.ops.passno[row])


def _text(key: _Key) -> str:
    return f"{key[0]}:{key[1]}"


def _form(entry: Entry) -> str:
    return f"{entry.kind} of shape {entry.shape}"
