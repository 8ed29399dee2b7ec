"""One model's pass over the records: which units are read, and the scorers that they feed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any

import numpy as np

from ..backends.base import Backend, for_model, modules_graph
from ..core.errors import CaptureError
from ..core.units import UnitAxes
from ..scores import ScoreColumns
from .axes import Vectors, arrange, batch_axis
from .behaviours import reader, record_graph
from .feed import BlockFeed
from .places import places_of
from .plan import Block, Plan
from .traced import Output
from .units import UnitGroup, resolve

_SAMPLES = 512 << 20  # bytes of all samples together


class ModelPass:
    """The units of one model that a plan asks for, with their scorers.

    Args:
        model: The model.
        name: Its name.
        plan: What is asked of it.

    Attributes:
        graph: The graph of a pass of the first record; None if it is not known.
        feeds: The scorers of each group of units.
        done: The number of records that were read.
    """

    def __init__(self, model: Any, name: str, plan: Plan) -> None:
        self.model, self.done = model, 0
        backend = for_model(model)
        operations = backend.operations(model)
        self.graph = record_graph(model, backend, lambda: plan.records.model_input(plan.order()[0][:1]))
        graph = self.graph or modules_graph(backend, name, operations)
        self._axes = None if self.graph is None else UnitAxes(self.graph)
        groups = resolve(plan.units, graph, operations, backend)
        self.feeds = [
            BlockFeed(
                group,
                plan.scores,
                plan.seed,
                _SAMPLES // len(groups),
                self._places(group),
                plan.observed.confounders,
                Vectors.of(self.graph, group.row, group.axis),
            )
            for group in groups
        ]
        self._layouts: dict[UnitGroup, tuple[int, int]] = {}  # the axis of the records, and that of the units

    def _places(self, group: UnitGroup) -> Any:
        return None if self.graph is None else places_of(self.graph, group.row)

    def run(self, blocks: Iterable[Block]) -> Iterator[int]:
        """Run the model over blocks and feed the scorers; yield the number of records read so far.

        Raises:
            CaptureError: If an address was not reached, or its output cannot be read.
        """
        for block, arrays in self.arrays(blocks):
            for feed, array in zip(self.feeds, arrays, strict=True):
                feed.update(array, block)
            self.done += len(block)
            yield self.done

    def arrays(self, blocks: Iterable[Block]) -> Iterator[tuple[Block, list[np.ndarray]]]:
        """Run the model over blocks; yield each with the outputs of all groups of units.

        An output is arranged as (records, units, …positions).

        Raises:
            CaptureError: If an address was not reached, or its output cannot be read.
        """
        backend = for_model(self.model)
        addresses = list(dict.fromkeys(feed.group.address for feed in self.feeds))
        operations = {feed.group.address: feed.group.row for feed in self.feeds if feed.group.operation}
        with reader(self.model, backend, addresses, operations=operations, graph=self.graph) as read:
            for block in blocks:
                outputs = read(block.inputs)
                if missing := [address for address in addresses if address not in outputs]:
                    raise CaptureError(
                        f"{missing[0]!r} did not run for record {block.numbers[0]}, or returned no tensor. "
                        "Choose a layer that every record passes through."
                    )
                arrays = []
                for feed in self.feeds:
                    output = outputs[feed.group.address]
                    layout = self._layout(feed.group, output, backend, len(block))
                    arrays.append(arrange(output.array, len(block), *layout, feed.group.address))
                yield block, arrays

    def _layout(self, group: UnitGroup, output: Output, backend: Backend, records: int) -> tuple[int, int]:
        """Return the axes of the records and of the units in a layer's output."""
        if group not in self._layouts:
            shape = output.array.shape
            units = group.unit_axis(self._axes, backend.unit_axis(output.operation, shape), shape)
            self._layouts[group] = (
                batch_axis(group.address, shape, records, units, output.batch_axis),
                units,
            )
        return self._layouts[group]

    def unit_axis(self, group: UnitGroup) -> int:
        """Return the axis of the units in the output of a layer that was read."""
        return self._layouts[group][1]

    def empty(self) -> ModelPass:
        """Return a pass of the same model and units without any rows, for a worker."""
        other = copy(self)
        other.done, other.feeds = 0, [feed.empty() for feed in self.feeds]
        return other

    def merge(self, feeds: Iterable[BlockFeed], records: int) -> None:
        """Add the scorers that a worker fed from ``records`` other records."""
        for feed, other in zip(self.feeds, feeds, strict=True):
            feed.merge(other)
        self.done += records

    def columns(self) -> tuple[np.ndarray, ScoreColumns]:
        """Return all results as columns, and the address of each."""
        parts = [feed.columns() for feed in self.feeds]
        addresses = np.array([feed.group.address for feed in self.feeds], dtype=object)
        return np.repeat(addresses, [len(part) for part in parts]), ScoreColumns.concat(parts)
