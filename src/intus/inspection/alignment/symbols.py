"""Align the positions of a layer with the symbols of the labels: subwords with words or characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core.errors import InputError
from ...hypotheses.columns import Column
from ...hypotheses.declaration import declaration_of
from ...hypotheses.symbols import Symbols
from . import align

_CACHE = 64 << 20  # bytes of alignments kept between models


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """The positions of each symbol of a block of records.

    Attributes:
        numbers: The numbers of the records, (records,).
        index: The positions of each symbol, (records, symbols, most), -1 where it has fewer.
        symbols: The number of symbols that positions refer to, (records,).
        positions: The number of positions that are given, (records,).
        of_characters: Whether symbols are characters, given by spans; else their numbers are given.
        reduce: How several positions of a symbol become one behavior.
    """

    numbers: np.ndarray
    index: np.ndarray
    symbols: np.ndarray
    positions: np.ndarray
    of_characters: bool
    reduce: str

    @property
    def longest(self) -> int:
        """The number of positions of the longest record."""
        return int(self.positions.max())

    def moved(self, places: Mapping[int, np.ndarray], length: int) -> Alignment:
        """Return the alignment with the positions of some records at other places.

        Args:
            places: The place of each position, (positions,), by the number of the record in the block.
            length: The number of places.
        """
        index, positions = self.index.copy(), self.positions.copy()
        for at, found in places.items():
            index[at] = np.where(index[at] >= 0, found[index[at]], -1)
            positions[at] = length
        return replace(self, index=index, positions=positions)

    def onto(
        self, behaviours: np.ndarray, part: slice, grid: align.Grid, address: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the behaviors of symbols, and which symbols have any.

        Args:
            behaviours: Those of the positions, (records, units, positions).
            part: The records among those of the block.
            grid: The number of symbols; empty for the mean over all positions that belong to a symbol.
            address: The address of the layer, for the message.

        Returns:
            An array (records, units, …grid), and a boolean one (records, …grid).

        Raises:
            InputError: If the layer has another number of positions.
        """
        longest, found = self.longest, behaviours.shape[2]
        if longest != found:
            raise InputError(
                f"symbols gives {longest} positions for record {self.numbers[self.positions.argmax()]}, but "
                f"{address!r} has {found}. Give one entry for each position, None for padding and special "
                "tokens."
            )
        index = self.index[part]
        if not grid:
            used = np.zeros((len(index), found + 1))
            np.put_along_axis(used, index.reshape(len(index), -1) % (found + 1), 1, axis=1)
            used = used[:, :-1]  # -1 fell on the last
            count = used.sum(axis=1)
            total = np.einsum("rup,rp->ru", behaviours, used.astype(behaviours.dtype))
            return total / np.maximum(count, 1)[:, None].astype(behaviours.dtype), count > 0
        index = index[:, : grid[0]]
        index = np.pad(index, ((0, 0), (0, grid[0] - index.shape[1]), (0, 0)), constant_values=-1)
        return align.reduce_positions(behaviours, index, self.reduce), index[:, :, 0] >= 0


class SymbolPositions:
    """Reads which symbols the positions belong to, block by block, and caches them up to 64 MB.

    Args:
        given: What the caller wrote.
        records: The number of records.

    Raises:
        InputError: If it is neither a function nor a list with an entry for each record.
    """

    def __init__(self, given: Any, records: int) -> None:
        symbols = given if isinstance(given, Symbols) else Symbols(given)
        self._given, self._reduce = symbols.positions, symbols.reduce
        if not callable(self._given):
            if isinstance(self._given, str) or not hasattr(self._given, "__len__"):
                raise InputError(
                    f"symbols must be a function of a record or a list for each record, got {self._given!r}."
                )
            if len(self._given) != records:
                raise InputError(
                    f"symbols has {len(self._given)} entries, but there are {records} records; give one list "
                    "of positions per record."
                )
        self._blocks: dict[bytes, Alignment] = {}
        self._free = _CACHE  # bytes

    def of(self, numbers: np.ndarray, block: Callable[[], Sequence[Any]]) -> Alignment:
        """Return the alignment of a block.

        Args:
            numbers: The numbers of the records.
            block: Returns the records; called only if they are not cached.
        """
        key = numbers.tobytes()
        if key not in self._blocks:
            made = self._read(numbers, block())
            if made.index.nbytes > self._free:
                return made
            self._free -= made.index.nbytes
            self._blocks[key] = made
        return self._blocks[key]

    def of_changed(self, numbers: np.ndarray, records: Sequence[Any]) -> Alignment:
        """Return the alignment of records that were changed.

        Args:
            numbers: The numbers of the records that they were made of.
            records: The changed records.

        Raises:
            InputError: If the positions were given for the records of the data alone.
        """
        if not callable(self._given):
            raise InputError(
                "symbols was given as a list for each record, so a changed record has none. Pass a function "
                "of a record as symbols."
            )
        return self._read(numbers, records)

    def _read(self, numbers: np.ndarray, records: Sequence[Any]) -> Alignment:
        lists = self._lists(numbers, records)
        spans = [spans_of(given, n) for given, n in zip(lists, numbers.tolist(), strict=True)]
        of_characters = {kind for _, kind in spans if kind is not None}
        if len(of_characters) > 1:
            raise InputError(
                "symbols gives numbers for some positions and spans for others. Give the number of the "
                "symbol for all, or its first character and the one after its last."
            )
        counts = np.array([max((end for _, _, end in one), default=0) for one, _ in spans])
        return Alignment(
            numbers,
            _index([one for one, _ in spans], counts),
            counts,
            np.array([len(given) for given in lists]),
            of_characters == {True},
            self._reduce,
        )

    def _lists(self, numbers: np.ndarray, records: Sequence[Any]) -> list[Any]:
        if not callable(self._given):
            return [self._given[n] for n in numbers.tolist()]
        if declaration_of(self._given).batch:
            lists = list(self._given(list(records)))
            if len(lists) != len(records):
                raise InputError(
                    f"symbols must return the positions of {len(records)} records, got those of {len(lists)}."
                )
            return lists
        out = []
        for number, record in zip(numbers.tolist(), records, strict=True):
            try:
                out.append(list(self._given(record)))
            except Exception as error:
                error.add_note(f"in symbols, on record {number}")
                raise
        return out

    def check(self, numbers: np.ndarray, records: Sequence[Any], columns: Mapping[str, Column]) -> None:
        """Raise an error if labels do not fit the symbols.

        Args:
            numbers: The numbers of the records.
            records: The records.
            columns: The labels by hypothesis.

        Raises:
            InputError: If there are more symbols than labels, or labels without a symbol.
        """
        alignment = self.of(numbers, lambda: records)
        for name, column in columns.items():
            if column.lengths is None or column.values.ndim != 2:
                continue
            for i, number in enumerate(numbers.tolist()):
                symbols, length = int(alignment.symbols[i]), int(column.lengths[i])
                if length < 0:
                    continue
                if alignment.of_characters:
                    symbols = max(symbols, len(records[i]) if isinstance(records[i], str) else 0)
                    fits = length == symbols if isinstance(records[i], str) else length >= symbols
                else:
                    extra = column.values[i, symbols:length]
                    fits = length >= symbols and not any(one is not None and one == one for one in extra)
                if not fits:
                    what = "characters" if alignment.of_characters else "symbols"
                    raise InputError(
                        f"The hypothesis {name!r} gives {length} labels for record {number}, but symbols "
                        f"counts {symbols} {what}. Label each of them, NaN where not annotated."
                    )


def spans_of(given: Sequence[Any], number: int) -> tuple[list[tuple[int, int, int]], bool | None]:
    """Return the positions that belong to symbols, and whether symbols are characters (None if unknown).

    Args:
        given: For each position the number of its symbol, or its first character and the one after its last;
            None, -1 or an empty span for no symbol.
        number: The number of the record, for the message.

    Returns:
        Triples of position, first symbol, and the symbol after the last.

    Example:
        >>> spans_of([None, 0, 0, 1, -1], 0)
        ([(1, 0, 1), (2, 0, 1), (3, 1, 2)], False)
        >>> spans_of([(0, 0), (0, 3), (4, 5)], 0)
        ([(1, 0, 3), (2, 4, 5)], True)
    """
    out: list[tuple[int, int, int]] = []
    kinds: set[bool] = set()
    for position, entry in enumerate(given):
        if entry is None:
            continue
        is_pair = hasattr(entry, "__len__") and len(entry) == 2
        try:
            first, end = (int(entry[0]), int(entry[1])) if is_pair else (int(entry), int(entry) + 1)
            whole = (first, end) == tuple(entry) if is_pair else first == entry
        except (TypeError, ValueError):
            whole, first, end = False, 0, 0
        if not whole or first < (0 if is_pair else -1) or end < first:
            raise InputError(
                f"symbols gives {entry!r} for position {position} of record {number}. Give the number of a "
                "symbol, its first character and the one after its last, or None."
            )
        kinds.add(is_pair)
        if first < 0 or end == first:
            continue
        if out and first < out[-1][1]:
            raise InputError(
                f"symbols goes back from {out[-1][1]} to {first} at position {position} of record {number}, "
                "as tokenizers do for the second of two texts, and in offsets of text that is split into "
                "words. Count on over the whole record."
            )
        out.append((position, first, end))
    if len(kinds) > 1:
        raise InputError(
            f"symbols gives numbers for some positions of record {number} and spans for others. Give "
            "one of both."
        )
    return out, next(iter(kinds), None)


def _index(spans: Sequence[Sequence[tuple[int, int, int]]], counts: np.ndarray) -> np.ndarray:
    """Return the positions of each symbol, (records, symbols, most), -1 where it has fewer."""
    filled = np.zeros((len(spans), int(counts.max(initial=0))), dtype=np.int64)
    for row, one in zip(filled, spans, strict=True):
        for _, first, end in one:
            row[first:end] += 1
    index = np.full((*filled.shape, max(1, int(filled.max(initial=0)))), -1, dtype=np.int32)
    filled[:] = 0
    for record, one in enumerate(spans):
        row, count = index[record], filled[record]
        for position, first, end in one:
            row[np.arange(first, end), count[first:end]] = position
            count[first:end] += 1
    return index
