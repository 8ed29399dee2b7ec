"""Tell the positions of records from those of padding, where a model reads records of different lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import InputError
from . import align
from .symbols import Alignment

#: The note of scores in which padding counts.
PADDED = "padding counts as positions"

_SYMBOLS = "Or pass symbols=, which says which symbol each position belongs to."


@dataclass(frozen=True, slots=True, eq=False)
class Padding:
    """The padding of a block of records, as far as it is known.

    Attributes:
        numbers: The numbers of the records, (records,).
        inputs: The model's input.
        lengths: The lengths of the records, (records,), -1 where a record has none.
        mask: Which positions are no padding, (records, positions), by the ``attention_mask`` of the model's
            input; None if it has none.
    """

    numbers: np.ndarray
    inputs: Any
    lengths: np.ndarray
    mask: np.ndarray | None

    @classmethod
    def of(cls, numbers: np.ndarray, inputs: Any, lengths: np.ndarray) -> Padding:
        """Return the padding of records with a model's input."""
        mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
        if mask is not None:
            array = _as_array(mask)
            mask = array != 0 if array.ndim == 2 and len(array) == len(numbers) else None
        return cls(numbers, inputs, lengths, mask)

    @property
    def at_start(self) -> bool:
        """True if the mask has padding before the first position of a record."""
        return self.mask is not None and bool((~self.mask[:, :1]).any())

    def masked(self, positions: int) -> np.ndarray | None:
        """Return the mask if it has padding and is of this number of positions; else None."""
        mask = self.mask
        return None if mask is None or mask.shape[1] != positions or mask.all() else mask

    def mean(self, behaviours: np.ndarray, records: slice) -> np.ndarray:
        """Return the mean over all positions that are no padding.

        Args:
            behaviours: The behaviors of some records, (records, units, …positions).
            records: Which records of the block they are.
        """
        axes = tuple(range(2, behaviours.ndim))
        weights = np.ones((len(behaviours), *(1 for _ in range(behaviours.ndim - 1))), dtype=bool)
        for axis in axes:
            mask = self.masked(behaviours.shape[axis])
            if mask is not None:
                part = mask[records]
                shape = [1] * behaviours.ndim
                shape[0], shape[axis] = part.shape
                weights = weights & part.reshape(shape)
        if weights.all():
            return np.asarray(behaviours.mean(axis=axes))
        weights = np.broadcast_to(weights, (len(behaviours), 1, *behaviours.shape[2:]))
        total = np.where(weights, behaviours, 0).sum(axis=axes)
        with np.errstate(invalid="ignore"):  # a record of padding alone has no mean
            return np.asarray(total / weights.sum(axis=axes)).astype(behaviours.dtype, copy=False)

    def by_mask(self, labels: np.ndarray, lengths: np.ndarray | None) -> np.ndarray | None:
        """Return labels on the positions that are no padding; None if they are not as many as these.

        Args:
            labels: The labels, (records, symbols).
            lengths: The number of labels of each record, (records,), -1 where it is not annotated.
        """
        if self.mask is None or lengths is None or labels.ndim != 2:
            return None
        counts = self.mask.sum(axis=1)
        if ((lengths >= 0) & (lengths != counts)).any():
            return None
        if self.mask.all() and (lengths >= 0).all():
            return labels
        out = align.fill(labels[:, :0], self.mask.shape[1])
        for row, one, length, places in zip(out, labels, lengths.tolist(), self.mask, strict=True):
            if length >= 0:
                row[places] = one[:length]
        return out

    def on_positions(
        self,
        name: str,
        labels: np.ndarray,
        lengths: np.ndarray | None,
        positions: int,
        address: str,
        ragged: bool,
    ) -> np.ndarray:
        """Return labels on the positions of a layer, not annotated where a record is padded.

        Args:
            name: The name of the hypothesis, for messages.
            labels: The labels, (records, symbols).
            lengths: The number of labels of each record, -1 where it is not annotated; None if not known.
            positions: The number of positions of the layer.
            address: Its address, for messages.
            ragged: Whether the labels of records differ in length.

        Returns:
            The labels, (records, positions); unchanged if they do not differ in length and do not fit.

        Raises:
            InputError: If labels differ in length, and it is not known which positions they belong to.
        """
        if lengths is None or labels.shape[1] > positions:
            return labels
        full = bool((lengths[lengths >= 0] == positions).all())
        if self.mask is not None and self.mask.shape[1] == positions:
            placed = self.by_mask(labels, lengths)
            if placed is not None:
                return placed
            if not ragged:
                return _without(labels, self.mask) if full else labels
            counts = self.mask.sum(axis=1)
            at = int(np.flatnonzero((lengths >= 0) & (lengths != counts))[0])
            raise InputError(
                f"The hypothesis {name!r} gives {lengths[at]} labels for record {self.numbers[at]}, which "
                f"has {counts[at]} positions in {address!r} by the attention_mask. Give one label for each "
                f"of these positions, special tokens too. {_SYMBOLS}"
            )
        if full:
            return align.fill(labels, positions) if labels.shape[1] < positions else labels
        why = self._not_first(name, lengths, positions, address)
        if why and ragged:
            raise InputError(why)
        return labels if why else align.fill(labels, positions)

    def _not_first(self, name: str, lengths: np.ndarray, positions: int, address: str) -> str:
        """Return why labels need not be those of the first positions of their records; else ``""``."""
        known = (lengths >= 0) & (self.lengths >= 0)
        wrong = np.flatnonzero(known & (lengths != self.lengths))
        short = np.flatnonzero((lengths >= 0) & (lengths < positions))
        at = int(wrong[0] if len(wrong) else short[0])
        what = f"The hypothesis {name!r} gives {lengths[at]} labels for record {self.numbers[at]}"
        if len(wrong):
            return (
                f"{what}, whose length is {self.lengths[at]}, but {address!r} has {positions} positions, so "
                "it is not known which of them the labels belong to. Give one label for each entry of the "
                "record, if these are the positions, or give the model's input an attention_mask. "
                f"{_SYMBOLS}"
            )
        entries = self._entries(positions)
        if entries is None:
            longest = int(np.maximum(self.lengths, lengths).max())
            return (
                ""
                if longest == positions
                else (
                    f"{what}, but {address!r} has {positions} positions, and the longest of these records "
                    f"{longest}, so it is not known which positions are padding. Give the model's input an "
                    f"attention_mask. {_SYMBOLS}"
                )
            )
        if all((entries[i, lengths[i] :] == entries[short[0], -1]).all() for i in short.tolist()):
            return ""
        return (
            f"{what}, but {address!r} has {positions} positions, and those of the model's input after the "
            f"first {lengths[at]} are not all the same, as padding would be. If records are padded at the "
            f"start, give the model's input an attention_mask. {_SYMBOLS}"
        )

    def of_symbols(self, alignment: Alignment) -> Alignment:
        """Return an alignment whose lists of positions are those of the model's input.

        A list that leaves out the padding is that of the positions of the mask.

        Args:
            alignment: The alignment of the same records, as ``symbols=`` gives it.

        Raises:
            InputError: If a list is shorter than the input, and the positions of its entries are not known.
        """
        counts = alignment.positions
        if self.mask is None:
            positions = int(counts.max())
            wrong = np.flatnonzero(~self._ends_in_padding(counts, positions))
            if len(wrong):
                raise InputError(
                    f"symbols gives {counts[wrong[0]]} positions for record {self.numbers[wrong[0]]} and "
                    f"{positions} for another, but the model's input after these positions is not all the "
                    "same, as padding would be. If records are padded at the start, give the model's input "
                    "an attention_mask, or give None for the padding too: hypothesis(batch=True) gets all "
                    "records of a batch."
                )
            return alignment
        positions = self.mask.shape[1]
        moved, at_end = {}, self._ends_in_padding(counts, positions)
        for at, (row, count) in enumerate(zip(self.mask, counts.tolist(), strict=True)):
            places = np.flatnonzero(row)
            if len(places) == count < positions:
                moved[at] = places
            elif count < positions and not (at_end[at] and row[:count].all()):
                raise InputError(
                    f"symbols gives {count} positions for record {self.numbers[at]}, which has {len(places)} "
                    f"by the attention_mask, of {positions} with padding. Give one entry for each of either, "
                    "special tokens too."
                )
        return alignment.moved(moved, positions) if moved else alignment

    def _ends_in_padding(self, counts: np.ndarray, positions: int) -> np.ndarray:
        """Return whether the model's input is the same in all records after these positions, (records,).

        Args:
            counts: The number of first positions of each record, (records,).
            positions: The number of all positions.
        """
        entries, short = self._entries(positions), np.flatnonzero(counts < positions)
        if entries is None or not len(short):
            return np.ones(len(counts), dtype=bool)
        last = entries[short[0], -1]
        return np.array([(row[count:] == last).all() for row, count in zip(entries, counts, strict=True)])

    def _entries(self, positions: int) -> np.ndarray | None:
        """Return a part of the model's input with these positions, (records, positions, …); else None."""
        given = self.inputs
        parts = (
            given.values() if isinstance(given, Mapping) else given if isinstance(given, tuple) else [given]
        )
        count = len(self.numbers)
        for part in parts:
            shape = tuple(getattr(part, "shape", ()))
            if len(shape) in (2, 3) and shape[:2] == (count, positions):
                return _as_array(part)
            if len(shape) in (2, 3) and shape[:2] == (positions, count):
                return np.swapaxes(_as_array(part), 0, 1)
        return None

    def is_sequence(self, positions: int) -> bool:
        """Return whether the model's input has this number of positions, as one sequence for each record."""
        return self._entries(positions) is not None


class Lengths:
    """The lengths of records and of a layer over several blocks, to know whether means include padding."""

    def __init__(self) -> None:
        self._records: set[int] = set()
        self._positions: set[int] = set()
        self._uneven = False  # whether the records of one block differ in length
        self._masked = False

    def add(self, array: np.ndarray, padding: Padding) -> None:
        """Add a block of outputs (records, units, …positions)."""
        if array.ndim != 3:
            return
        self._positions.add(array.shape[2])
        self._masked |= padding.masked(array.shape[2]) is not None
        known = padding.lengths[padding.lengths >= 0]
        has_mask = padding.mask is not None and padding.mask.shape[1] == array.shape[2]
        if len(known) and not has_mask and padding.is_sequence(array.shape[2]):
            found = set(np.unique(known).tolist())
            self._uneven |= len(found) > 1
            self._records |= found

    def merge(self, other: Lengths) -> None:
        """Add the blocks of another."""
        self._records |= other._records
        self._positions |= other._positions
        self._uneven |= other._uneven
        self._masked |= other._masked

    def note(self, address: str, whole: bool) -> str:
        """Return a note if padding counts in means over positions, or in scores of a whole layer.

        Args:
            address: The address of the layer, for the message.
            whole: Whether the scores are of the whole layer, which has padding even where it is masked.

        Raises:
            InputError: If the number of positions, and so that of padding, depends on the block.
        """
        padded = self._uneven or (whole and self._masked)
        if padded and len(self._positions) > 1:
            few, many = min(self._positions), max(self._positions)
            what = "scores of the whole layer read" if whole else "means over positions include"
            how = (
                "" if whole else "Give the model's input an attention_mask, pass symbols=, give a label for "
            )
            how += "" if whole else "each symbol, or pad all records to one length."
            raise InputError(
                f"{address!r} has {few} positions for some blocks of records and {many} for others, and "
                f"{what} the padding of shorter records, so that the result would depend on batch=. "
                + (how or "Pad all records to one length, or leave out the scores of whole layers.")
            )
        if padded or (len(self._records) > 1 and len(self._positions) == 1):
            return PADDED
        return ""


def _without(labels: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return labels of all positions, not annotated where they are padding."""
    if mask.all():
        return labels
    out = align.fill(labels, labels.shape[1])
    out[~mask] = None if out.dtype.kind == "O" else np.nan
    return out


def _as_array(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
