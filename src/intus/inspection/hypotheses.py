"""Compute the labels of hypotheses, block by block, once for all models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from ..core.errors import InputError
from ..hypotheses.columns import Column, Part, Shapes, names_of, split
from ..hypotheses.declaration import hypothesis
from ..hypotheses.source import Source, as_hypotheses
from .alignment.symbols import SymbolPositions
from .running.cache import Cache
from .running.kept_labels import Kept, KeptLabels

__all__ = ["Labels", "Source", "as_hypotheses", "hypothesis"]

_CACHE = 256 << 20  # bytes of labels kept between models


class Labels:
    """The labels of blocks of records, cached so that they are computed once for all models.

    The cache takes at most 256 MB. Blocks beyond that are computed again for each model, so that memory is
    bounded by 256 MB and one block.

    Args:
        hypotheses: The hypotheses, or functions that return several.
        symbols: The symbols that the positions of layers belong to; None if positions are symbols.
        cache: A folder in which labels are kept for other sessions; None for none.

    Attributes:
        names: The names of all hypotheses, in the order of the table. They are known after the first block.
        ragged: The names of hypotheses whose records were found to differ in length.
    """

    def __init__(
        self,
        hypotheses: Sequence[Source],
        symbols: SymbolPositions | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.hypotheses, self.symbols = list(hypotheses), symbols
        self._kept = None if cache is None else KeptLabels(cache, self.hypotheses)
        self.names: list[str] = []
        self._names: list[dict[str, str]] = []  # of each source, by the key in the dict that it returns
        self._shapes = Shapes()
        self.ragged = self._shapes.ragged
        self._blocks: dict[bytes, dict[str, Column]] = {}
        self._free = _CACHE  # bytes

    def of(self, numbers: np.ndarray, block: Callable[[], Sequence[Any]]) -> dict[str, np.ndarray]:
        """Return the labels of a block, (records, …), by the name of the hypothesis; as ``columns``."""
        return {name: column.values for name, column in self.columns(numbers, block).items()}

    def columns(self, numbers: np.ndarray, block: Callable[[], Sequence[Any]]) -> dict[str, Column]:
        """Return the labels of a block.

        Args:
            numbers: The numbers of the records.
            block: Returns the records; called only if the labels are not cached.

        Returns:
            The labels (records, …) with their lengths, by the name of the hypothesis.

        Raises:
            InputError: If labels have an impossible type or shape or are not of the declared kind, or a
                function returns names that it did not return for the first block.
        """
        key = numbers.tobytes()
        if key in self._blocks:
            return self._blocks[key]
        found = self._columns(numbers, block())
        size = sum(column.values.nbytes for column in found.values())
        if size <= self._free:
            self._free -= size
            self._blocks[key] = found
        return found

    def of_changed(self, name: str, number: int, record: Any) -> np.ndarray:
        """Return the labels of a record that was changed.

        Args:
            name: The name of the hypothesis.
            number: The number of the record that was changed.
            record: The changed record.

        Raises:
            InputError: If the labels were given for the records of the data alone.
        """
        at = next(i for i, names in enumerate(self._names) if name in names.values())
        source, names, numbers = self.hypotheses[at], self._names[at], np.array([number])
        if source.length is not None:
            raise InputError(
                f"The labels {name!r} were given as an array, so a changed record has none. Pass a function "
                "of a record as the hypothesis."
            )
        part = split(source, source.answers(numbers, [record]), numbers, tuple(names))
        shapes = deepcopy(self._shapes)  # the lengths of changed records are no part of the data
        return np.asarray(shapes.columns(names, part, source.kind, numbers)[name].values[0])

    def _columns(self, numbers: np.ndarray, records: Sequence[Any]) -> dict[str, Column]:
        known = [tuple(names) for names in self._names] if self._names else [None] * len(self.hypotheses)
        states = [{key: self._shapes.state(name) for key, name in own.items()} for own in self._names]
        states = states or [{} for _ in self.hypotheses]
        kept = None if self._kept is None else self._kept.block(numbers, records, states)
        parts: list[dict[str, Kept] | dict[str, Part]] = []
        for at, (source, keys) in enumerate(zip(self.hypotheses, known, strict=True)):
            found = None if kept is None else kept.read(at, keys)
            parts.append(found or split(source, source.answers(numbers, records), numbers, keys))
        if not self._names:
            self._names = names_of(self.hypotheses, [tuple(part) for part in parts])
            self.names = [name for names in self._names for name in names.values()]
        out: dict[str, Column] = {}
        for at, part in enumerate(parts):
            labels = self._checked(at, part, numbers)
            out |= {self._names[at][key]: one.column for key, one in labels.items()}
            if kept is not None:
                kept.add(at, labels)
        if kept is not None:
            kept.write()
        if self.symbols is not None:
            self.symbols.check(numbers, records, out)
        return out

    def _checked(
        self, at: int, part: dict[str, Kept] | dict[str, Part], numbers: np.ndarray
    ) -> dict[str, Kept]:
        """Return the labels of one source after they are checked, those from the cache as they are."""
        names = self._names[at]
        found = {key: one for key, one in part.items() if isinstance(one, Kept)}
        for key, one in found.items():
            self._shapes.restore(names[key], one.state, int(numbers[0]))
        new = {key: one for key, one in part.items() if isinstance(one, Part)}
        columns = self._shapes.columns(names, new, self.hypotheses[at].kind, numbers) if new else {}
        return found | {key: Kept(columns[names[key]], self._shapes.state(names[key])) for key in new}
