"""Read the units of a row's layer, on the grid of its hypothesis's labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from ...core.errors import AddressError, InputError, did_you_mean
from ..alignment.align import fill
from ..alignment.padding import Padding
from ..behaviours import Records
from ..plan import Block, Plan
from ..reading import Behavior
from ..running.model_pass import ModelPass
from .unit_row import UnitRow


class UnitReader:
    """All units of the layer of a row.

    Args:
        plan: The plan of the table.
        row: The row.

    Attributes:
        plan: The plan, without scores.
        row: The row.
        model: The model.
        name: Its name.
        model_pass: The pass, which reads this layer alone.
        units: The number of units.

    Raises:
        AddressError: If the model has no such unit.
        InputError: If there is no such hypothesis, or the address is not one that the table has read.
    """

    def __init__(self, plan: Plan, row: UnitRow) -> None:
        self.plan, self.row = replace(plan, scores=()), row
        self.name, self.model = row.checkpoint.open()
        self.model_pass = ModelPass(self.model, self.name, self.plan)
        feeds = [feed for feed in self.model_pass.feeds if feed.group.shown == row.address]
        if not feeds:
            known = [feed.group.shown for feed in self.model_pass.feeds]
            raise InputError(
                f"{row.address!r} is no layer or operation whose units the table has read. "
                f"{did_you_mean(row.address, known)}"
            )
        self.feed = feeds[0]
        self.feed.group = replace(self.feed.group, units=None)
        self.model_pass.feeds = [self.feed]
        # The first block determines the layout of the output, and names the hypotheses.
        with self.reading() as read:
            self.units = read(self.plan.block(self.plan.order()[0])).shape[1]
        if row.unit >= self.units:
            raise AddressError(f"{row.address!r} has {self.units} units, so there is no unit {row.unit}.")
        if row.target not in self.plan.labels.names:
            raise InputError(
                f"There is no hypothesis {row.target!r}. {did_you_mean(row.target, self.plan.labels.names)}"
            )

    def of_activations(self) -> UnitReader:
        """Return a reader of activations, if this one reads gradients or attributions."""
        if self.plan.behavior.name == "activation":
            return self
        return UnitReader(replace(self.plan, behavior=Behavior()), self.row)

    @property
    def axis(self) -> int:
        """The axis of the units in the output of the layer."""
        return self.model_pass.unit_axis(self.feed.group)

    def labels(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the numbers of the records of each block, and their labels (records, …grid)."""
        for numbers in self.plan.order():
            labels = self.plan.labels.of(numbers, partial(self.plan.records.block, numbers))
            yield numbers, labels[self.row.target]

    @contextmanager
    def reading(self) -> Iterator[Callable[[Block], np.ndarray]]:
        """Return a context in which the model can be run over blocks.

        Yields:
            A function of a block that returns the output of the layer, (records, units, …positions).
        """
        with self.model_pass.reading() as read:
            yield lambda block: cast(np.ndarray, read(block)[0])  # a single layer is not left out

    def aligned(
        self, array: np.ndarray, block: Block, unit: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the behavior of one unit on the grid of the labels, some records at a time.

        The labels of a sequence are in the order of its symbols, without the padding before or between them.

        Args:
            array: The output of the layer, (records, units, …positions).
            block: The block.
            unit: The unit.

        Yields:
            The numbers of records, the behavior (records, …grid) and the labels (records, …grid).
        """
        labels = self.filled(block.labels[self.row.target], array, block)
        order = self.order(array, block)
        for part, behavior in self.on_grid(array[:, [unit]], labels.shape[1:], block):
            values, own = behavior[:, 0], labels[part]
            if order is not None:
                values, own = ordered(values, order[part]), ordered(own, order[part])
            yield block.numbers[part], values, own

    def order(self, array: np.ndarray, block: Block) -> np.ndarray | None:
        """Return the number of each position's label among those of its record, NaN for padding.

        Args:
            array: The output of the layer, (records, units, …positions).
            block: The block.

        Returns:
            The numbers, (records, positions); None if each position has the label of the same number.
        """
        labels = block.labels[self.row.target]
        if labels.ndim != 2:
            return None
        numbers = np.tile(np.arange(labels.shape[1], dtype=float), (len(labels), 1))
        if self.row.target in block.placed and block.padding.mask is not None:
            mask = block.padding.mask
            order = np.where(mask, mask.cumsum(axis=1) - 1, np.nan)
        else:
            order = self.filled(numbers, array, block)
        same = order.shape == numbers.shape and np.array_equal(order, numbers)
        return None if same else order

    def filled(self, labels: np.ndarray, array: np.ndarray, block: Block) -> np.ndarray:
        """Return the labels of sequences of different lengths, padded to the positions of the layer."""
        if block.symbols is not None or labels.ndim != 2 or array.ndim != 3:
            return labels
        name, ragged = self.row.target, self.row.target in self.plan.labels.ragged
        lengths = block.lengths.get(name)
        return block.padding.on_positions(name, labels, lengths, array.shape[2], self.row.address, ragged)

    def on_grid(
        self, array: np.ndarray, grid: tuple[int, ...], block: Block, start: int = 0
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the outputs of some records at a time, and which, on a grid of labels.

        Args:
            array: The outputs, (records, units, …positions).
            grid: The shape of the labels of one record.
            block: The block of the records.
            start: The place of the first of these records in the block. Default: 0.

        Yields:
            Which of the records, and their outputs (records, units, …grid), NaN for symbols without position.
        """
        positions = (block.symbols.longest,) if block.symbols is not None and len(grid) == 1 else grid
        array, _ = self.feed.vectors.lengths(array, positions, self.row.address, self.row.target)
        for part, aligned, has in self.feed.aligned(array, grid, self.row.target, block, start):
            yield part, aligned if has is None else np.where(has[:, None], aligned, np.nan)

    def block_of(self, numbers: Sequence[int], records: Sequence[Any]) -> Block:
        """Return a block of records that are not those of the data, without labels.

        Args:
            numbers: The numbers of the records that they were made of.
            records: The records, as the data would have them.
        """
        made, at = Records(list(records), self.plan.records.inputs), np.arange(len(records))
        inputs, given = made.model_input(at), self.plan.labels.symbols
        padding = Padding.of(np.asarray(numbers), inputs, made.lengths(at))
        symbols = None
        if given is not None:
            symbols = padding.of_symbols(given.of_changed(np.asarray(numbers), made.block(at)))
        return Block(
            np.asarray(numbers), inputs, {}, frozenset(), made.images(0), None, None, symbols, padding
        )


def annotated(labels: np.ndarray) -> np.ndarray:
    """Return which labels are neither NaN nor None.

    Example:
        >>> annotated(np.array([1.0, float("nan")])), annotated(np.array(["a", None]))
        (array([ True, False]), array([ True, False]))
    """
    if labels.dtype.kind == "O":
        return np.asarray(labels != np.array(None))
    return np.asarray(labels == labels)


def ordered(table: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return values of positions in the order of the labels, NaN or None for a label without a position.

    Args:
        table: The values, (records, positions).
        order: The number of each position's label, (records, positions), NaN for none.

    Example:
        >>> ordered(np.array([[0.0, 5.0, 7.0]]), np.array([[np.nan, 0.0, 1.0]]))
        array([[5., 7.]])
    """
    rows, places = np.nonzero(np.isfinite(order))
    numbers = order[rows, places].astype(int)
    out = fill(table[:, :0], int(numbers.max(initial=-1)) + 1)
    out[rows, numbers] = table[rows, places]
    return out
