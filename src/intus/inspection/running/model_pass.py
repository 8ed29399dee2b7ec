"""One model's pass over the records: which units are read, and the scorers that they feed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np

from ...backends.base import Backend, Operation, for_model, modules_graph
from ...core.errors import AddressError, CaptureError, InputError
from ...core.probes_disabled import probes_disabled
from ...core.units import UnitAxes
from ...core.vocabularies import is_translated
from ...scores import ScoreColumns
from ..alignment.axes import Vectors, arrange, batch_axis
from ..alignment.places import places_of
from ..behaviours import reader, record_graph
from ..directions import Directions
from ..plan import Block, Plan
from ..reading import Output
from ..units import UnitGroup, resolve
from .cache import KeptOutputs
from .feed import BlockFeed, Scoring

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
        kept: Outputs in the cache, which are read from there; None for none.
    """

    def __init__(self, model: Any, name: str, plan: Plan) -> None:
        self.model, self.done, self.behavior = model, 0, plan.behavior
        backend = for_model(model)
        operations = _operations(model, backend, plan)
        self.graph = record_graph(model, backend, lambda: plan.records.model_input(plan.order()[0][:1]))
        graph = self.graph or modules_graph(backend, name, operations)
        self._axes = UnitAxes(self.graph) if self.graph is not None else None
        groups = resolve(plan.units, graph, operations, backend, plan.seed)
        for group in groups:
            _check_behavior(group, plan.behavior.name)
        scoring = Scoring(
            plan.scores, plan.seed, _SAMPLES // len(groups), plan.observed.confounders, plan.splits, plan.null
        )
        self.feeds = [
            BlockFeed(group, scoring, self._places(group), Vectors.of(self.graph, group.row, group.axis))
            for group in groups
        ]
        self.kept: KeptOutputs | None = None
        self._layouts: dict[UnitGroup, tuple[int, int]] = {}  # the axis of the records, and that of the units

    def _places(self, group: UnitGroup) -> Any:
        """Return where the positions of a layer lie in the image; None if that is not known."""
        if self.graph is None or group.row < 0 or self.behavior.at_image or is_translated(self.graph):
            return None  # only of PyTorch's operations is it known how they move positions
        return places_of(self.graph, group.row)

    def run(self, blocks: Iterable[Block]) -> Iterator[int]:
        """Run the model over blocks and feed the scorers; yield the number of records read so far.

        Raises:
            CaptureError: If an address was not reached, or its output cannot be read.
        """
        with self.reading() as read:
            for block in blocks:
                for feed, array in zip(self.feeds, read(block), strict=True):
                    with self.optional(feed):
                        if array is not None:
                            feed.update(array, block)
                self.done += len(block)
                yield self.done

    @contextmanager
    def reading(self) -> Iterator[Callable[[Block], list[np.ndarray | None]]]:
        """Return a context in which the model can be run over blocks.

        Yields:
            A function of a block that returns the outputs of all groups of units, each arranged as (records,
            units, …positions); None for those that are left out. It raises CaptureError if an address was
            not reached, or its output cannot be read.
        """
        backend = for_model(self.model)
        addresses = list(dict.fromkeys(feed.group.address for feed in self.feeds))
        operations = {feed.group.address: feed.group.row for feed in self.feeds if feed.group.operation}
        rows = {feed.group.address: feed.group.row for feed in self.feeds if feed.group.row >= 0}
        with reader(
            self.model,
            backend,
            addresses,
            operations=operations,
            graph=self.graph,
            rows=rows,
            behavior=self.behavior,
        ) as read_layers:
            outputs_of = self.kept.reading(read_layers) if self.kept is not None else read_layers

            def read(block: Block) -> list[np.ndarray | None]:
                outputs = outputs_of(block.inputs, block.numbers)
                return [self._array(feed, outputs, backend, block) for feed in self.feeds]

            yield read

    def _array(
        self, feed: BlockFeed, outputs: Mapping[str, Output], backend: Backend, block: Block
    ) -> np.ndarray | None:
        """Return the output of a group of units, (records, units, …positions); None if it is left out."""
        address = feed.group.address
        with self.optional(feed):
            if feed.left_out is not None:
                return None
            if address not in outputs:
                raise CaptureError(
                    f"{address!r} did not run for record {block.numbers[0]}, or returned no tensor. Choose a "
                    "layer that every record passes through."
                )
            output = outputs[address]
            layout = self.layout(feed.group, output, backend, len(block))
            return feed.group.compute(arrange(output.array, len(block), *layout, address))
        return None

    @contextmanager
    def optional(self, feed: BlockFeed) -> Iterator[None]:
        """Leave a feed out if it cannot be read and the caller did not name it, unless all cannot be read."""
        try:
            yield
        except (AddressError, CaptureError, InputError) as error:
            if not feed.group.optional:
                raise
            feed.leave_out(error)
            if all(one.left_out is not None for one in self.feeds):
                raise self.feeds[0].left_out from None  # type: ignore[misc]

    def precise(self, eps: float | None, top: int | None) -> bool:
        """Return whether all results are precise enough to stop reading.

        Args:
            eps: The half-width of intervals that is enough; None if it does not matter.
            top: The number of strongest units that must be known; None if it does not matter.
        """
        scorers = [scorer for feed in self.feeds for scorer in feed.all_scorers()]
        if eps is not None and not all(scorer.converged(eps) for scorer in scorers):
            return False
        of_units = [one for one in scorers if any(score.per == "unit" for score in one.scores)]
        return top is None or all(scorer.separated(top) for scorer in of_units)

    def layout(self, group: UnitGroup, output: Output, backend: Backend, records: int) -> tuple[int, int]:
        """Return the axes of the records and of the units in a layer's output."""
        if group not in self._layouts:
            shape = output.array.shape
            units = group.unit_axis(self._axes, backend.unit_axis(output.operation, shape), shape)
            if self.behavior.channels_second and len(shape) > 2 and units != 1:
                raise InputError(
                    f"behavior={self.behavior.name!r} averages gradients over the positions of maps "
                    f"(records, units, …positions), but the units of {group.address!r} are on axis {units} "
                    f"of {shape}. Use behavior='activation*gradient'."
                )
            self._layouts[group] = (
                batch_axis(group.address, shape, records, units, self._declared(group, output)),
                units,
            )
        return self._layouts[group]

    def unit_axis(self, group: UnitGroup) -> int:
        """Return the axis of the units in the output of a layer that was read."""
        return self._layouts[group][1]

    def _declared(self, group: UnitGroup, output: Output) -> int | None:
        """Return the axis of the records if the layer declares it, or a pass of one record determines it."""
        if output.batch_axis is not None or self.graph is None or group.row < 0:
            return output.batch_axis
        one = self.graph.metas[int(self.graph.ops.meta[group.row])].shape
        single = [axis for axis in (0, 1) if axis < len(one) and one[axis] == 1]
        return single[0] if len(single) == 1 and len(one) == output.array.ndim else None

    def empty(self) -> ModelPass:
        """Return a pass of the same model and units without any rows, for a worker."""
        other = copy(self)
        other.done, other.feeds = 0, [feed.empty() for feed in self.feeds]
        return other

    def merge(self, feeds: Iterable[BlockFeed], records: int) -> None:
        """Add the scorers that a worker fed from ``records`` other records."""
        for feed, other in zip(self.feeds, feeds, strict=True):
            with self.optional(feed):
                feed.merge(other)
        self.done += records

    def columns(self) -> tuple[np.ndarray, np.ndarray, ScoreColumns]:
        """Return all results as columns, with the address of each and the number of its group of units."""
        parts = [feed.columns() for feed in self.feeds]
        addresses = np.array([feed.group.shown for feed in self.feeds], dtype=object)
        together = np.array([feed.shown for feed in self.feeds], dtype=object)
        groups = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        columns = ScoreColumns.concat(parts)
        return np.where(columns.unit < 0, together[groups], addresses[groups]), groups, columns


def _operations(model: Any, backend: Backend, plan: Plan) -> list[Operation]:
    """Return the operations of a model, after a first call if it creates them then."""
    operations = backend.operations(model)
    if operations:
        return operations
    with probes_disabled(), backend.evaluation(model) as run:
        run(backend.inputs(model, plan.records.model_input(plan.order()[0][:1])))
    return backend.operations(model)


def _check_behavior(group: UnitGroup, behavior: str) -> None:
    """Raise InputError if directions or features of a behavior would be another quantity than they say.

    The gradient along a direction is that direction of the layer's gradient. The product of both, and what a
    dictionary computes of a gradient, are not those of the unit.
    """
    if group.basis is None or behavior == "activation":
        return
    if isinstance(group.basis, Directions) and behavior == "gradient":
        return
    kind = type(group.basis).__name__
    raise InputError(
        f"behavior={behavior!r} is not defined for the units of a {kind}. Use behavior='activation', or "
        "for the gradient along features Directions(decoder) with behavior='gradient'."
    )
