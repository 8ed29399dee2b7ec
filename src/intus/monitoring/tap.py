"""The tap: tags the tensors to record, copies them, and passes the records to the sender."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np

from ..backends.base import Backend, CapturedTensor, GraphRecorder, Operation
from ..core.probes_disabled import are_probes_disabled
from ..core.projection import project, summarize
from ..core.record import PROBE_SET_MODE, Record
from ..storage.codec import encode_graph
from .budget import Budget, Seconds
from .clocks import process_seconds, process_seconds_since, thread_seconds, thread_seconds_since
from .probe_set import ProbeSet
from .probe_set_runner import PassTags, ProbeSetRunner
from .row_order import RowOrder
from .schedule import Cut, Schedule
from .sender import Sender
from .sent_counts import EpochKey
from .warn_once import WarningLog, logger

if TYPE_CHECKING:
    from .statistics import Part, ProbeSetStatistics

_NO_BATCH = (
    "intus: which axis of the %s of %r of %s is the batch is not known, because it is inside of several "
    "transforms such as jax.vmap. It is recorded without ids of items and labels. Let one jax.vmap run over "
    "the batch, and the model itself over the other axis."
)
_SKIPPED = (
    "intus: the probe of %s skips passes to take at most %s of the training time, so labels cannot be "
    "matched to rows by order of arrival. Set Probe.items = ids before each call, pass a probe_set to "
    "probe(), or raise its budget=."
)


class ModelTap:
    """The tap of one probe. It has only a weak reference to the model.

    Args:
        model: The model.
        backend: Its backend.
        sender: Receives the records.
        schedule: Decides what is recorded.
        troubles: Counts and logs errors.
        run: The name of the training.
        name: The name of the model.
        wait: The maximum number of seconds to wait for room in the queue.
        structure: Records the graph of the first pass; None for no graph.
        budget: Decides which passes are recorded.
        probe_set: The fixed batch to record instead of the training's passes; None for the training's.
    """

    def __init__(
        self,
        model: Any,
        backend: Backend,
        sender: Sender,
        schedule: Schedule,
        troubles: WarningLog,
        *,
        run: str,
        name: str,
        wait: float,
        structure: GraphRecorder | None,
        budget: Budget,
        probe_set: ProbeSet | None,
    ) -> None:
        self.operations: tuple[str, ...] = ()
        self._chosen: dict[str, bool] = {}  # by address, including operations discovered during a pass
        self.sender, self.troubles = sender, troubles
        self.run, self.name = run, name
        self._epoch: float = 0
        self.step = self.passes = self.recorded = 0
        self.mode: str | None = None
        self.items: np.ndarray | None = None
        self.called: set[str] = set()
        self._model = weakref.ref(model)
        self._backend, self._schedule, self._wait = backend, schedule, wait
        self.statistics: ProbeSetStatistics | None = None  # None to send all rows of the probe set
        self._structure = structure  # None once the first pass has begun
        self._first = True  # no pass has ended yet
        self._traced: GraphRecorder | None = None
        self._traced_thread: int | None = None
        self._tags = PassTags(0, 0, "", None)
        self.budget, self.probe_runs = budget, ProbeSetRunner(self, model, backend, probe_set)
        self._order = RowOrder(name, troubles)
        self._pass_bytes = self._pass_rows = 0  # of the last recorded pass
        self._busy_before = sender.busy_seconds  # at the last payment to the budget

    def attach(self, known: Iterable[Operation], chosen: Iterable[Operation]) -> None:
        """Store the operations known before the first call, and those of them to record."""
        self.operations = tuple(operation.address for operation in chosen)
        self._chosen = {operation.address: False for operation in known} | dict.fromkeys(
            self.operations, True
        )

    @property
    def epoch(self) -> float:
        """The number of the epoch. Setting another one ends the current epoch."""
        return self._epoch

    @epoch.setter
    def epoch(self, value: float) -> None:
        if value != self._epoch:
            self.probe_runs.epoch_ends()
            self.change_epoch(self._epoch, value)
        self._epoch = value

    @property
    def framework(self) -> str:
        """The name of the model's framework."""
        return self._backend.name

    def change_epoch(self, old: float, new: float) -> None:
        """End an epoch of the records and begin another."""
        self.sender.end(EpochKey(self.run, self.name, old))
        self.sender.begin(EpochKey(self.run, self.name, new))

    def current_mode(self) -> str:
        """Return the caller's mode, or else that of the model."""
        model = self._model()
        return self.mode or (self._backend.mode(model) if model is not None else "")

    # -- called by the backend ------------------------------------------------------------------------

    def on_forward_start(self, inputs: Any) -> bool:
        """Tag a pass; False if it is not recorded."""
        if are_probes_disabled() and not self.probe_runs.running:  # trace or inspect
            return False
        if not self.probe_runs.running:
            self.probe_runs.step_begins(self.step)
        tags = self.probe_runs.tags(self.step) or self._training_tags(inputs)
        if tags is None:
            return False
        began = thread_seconds()
        self._tags = tags
        self._pass_bytes = self._pass_rows = 0
        self._end_structure(None)  # left by an interrupted pass
        structure, self._structure = self._structure, None
        if structure is not None:
            any_thread = getattr(structure, "any_thread", False)
            self._traced, self._traced_thread = structure, None if any_thread else threading.get_ident()
            structure.begin(self._model(), inputs)
        else:
            self.budget.pay(thread_seconds_since(began))
        return True

    def _training_tags(self, inputs: Any) -> PassTags | None:
        """Return the tags of a call of the training, or None if it is not recorded."""
        tags = PassTags(self.epoch, self.step, self.current_mode(), self.items)
        self.step += 1
        self.passes += 1
        self.items = None
        if self.probe_runs.replaces_training:
            return None
        busy, self._busy_before = self.sender.busy_seconds - self._busy_before, self.sender.busy_seconds
        self.budget.pay(Seconds(busy, busy))
        self.budget.adapt_rows(self._pass_bytes, self._pass_rows)
        watched = self.budget.allows(process_seconds(), (tags.epoch, tags.mode))
        if tags.items is None and self._order.is_new(tags.epoch, tags.mode):
            first = self._backend.order(inputs)
            self._order.on_forward_start(tags.epoch, tags.mode, first, self._backend.shuffled)
        if not watched and tags.items is None:
            self.troubles.warn_once(_SKIPPED, self.name, f"{self.budget.share:.0%}")
        ordered = tags.items is not None or self._order.is_known(tags.mode)
        return tags._replace(rows=self.budget.rows, ordered=ordered) if watched else None

    def wants(self, operation: Operation) -> PassTags | None:
        """Return the tags of the pass if the operation is recorded."""
        chosen = self._chosen.get(operation.address)
        if chosen is None:  # discovered during the pass
            chosen = self._chosen[operation.address] = self._schedule.chooses(self._model(), operation)
            self.operations += (operation.address,) if chosen else ()
        self.called.add(operation.address)
        return self._tags if chosen and self._schedule.wants(self._model(), operation) else None

    def on_tensor(self, ticket: PassTags, tensor: CapturedTensor) -> None:
        """Copy a tensor and pass the record to the sender, if the queue has room."""
        began = thread_seconds() if tensor.began is None else Seconds(*tensor.began)
        if not tensor.batch_known:
            self.troubles.warn_once(_NO_BATCH, tensor.kind, tensor.address, self.name)
        cut = self._schedule.cut(tensor, ticket.rows)
        if cut.axis is not None:
            self._pass_rows = max(self._pass_rows, tensor.shape[cut.axis])
            self._pass_bytes += math.ceil(
                cut.nbytes * tensor.shape[cut.axis] / (cut.rows or tensor.shape[cut.axis] or 1)
            )
        sums = self.statistics if ticket.mode == PROBE_SET_MODE else None
        for part in (sums.parts(tensor, cut) if sums is not None else ()) or (None,):
            nbytes = cut.nbytes if part is None else part.nbytes
            if not self.sender.reserve(nbytes, self._wait, EpochKey(self.run, self.name, ticket.epoch)):
                continue
            try:
                record = self._record(ticket, tensor, cut, part)
            except Exception:
                self.sender.release(nbytes)
                raise
            self.sender.gather(record, nbytes)
            self.recorded += 1
        since = thread_seconds_since if tensor.began is None else process_seconds_since
        self.budget.pay(since(began))

    def on_forward_end(self, output: Any) -> None:
        """Send the records of the pass, and the graph of the first one."""
        if self._first and output is not None:
            self._first = False
            self._warn_never_called()
        try:
            self._end_structure(output)
        finally:
            began = thread_seconds()
            self.sender.post()
            self.budget.pay(thread_seconds_since(began))

    def on_error(self, error: Exception) -> None:
        """Count an error, and log the first of its kind."""
        text = "intus could not record part of a pass and continues without it: %s: %s"
        self.troubles.count(f"hook {type(error).__name__}", text, type(error).__name__, error)

    # ------------------------------------------------------------------------------------------------

    def never_called(self) -> list[str]:
        """Return the addresses of recorded operations that never ran."""
        return [address for address in self.operations if address not in self.called]

    def _warn_never_called(self) -> None:
        """Warn if most operations did not run in the first pass."""
        never_called = self.never_called()
        if 2 * len(never_called) > len(self.operations):
            text = "intus: %s of %s operations of %s did not run in its first call, for example %r. %s"
            logger.warning(
                text,
                len(never_called),
                len(self.operations),
                self.name,
                never_called[0],
                self._backend.blind_spot,
            )

    def close(self) -> None:
        """Send the collected records, and end the recording of a graph."""
        if not self.passes and self.operations and self._first:
            logger.warning(
                "intus: %s was never called while it was probed. %s", self.name, self._backend.blind_spot
            )
        try:
            self.on_forward_end(None)
            self.sender.close_model(self.run, self.name)
        except Exception as error:
            self.on_error(error)

    def _origin(self, tags: PassTags, tensor: CapturedTensor) -> dict[str, Any]:
        """Return the fields of a record that say where it comes from, except the address."""
        return {
            "kind": tensor.kind,
            "run": self.run,
            "model": self.name,
            "step": tags.step,
            "epoch": tags.epoch,
            "mode": tags.mode,
            "index": tensor.index,
        }

    def _record(self, tags: PassTags, tensor: CapturedTensor, cut: Cut, part: Part | None) -> Record:
        """Copy a tensor into a record, or make statistics of it into one."""
        if part is not None and self.statistics is not None:
            kept, of_kept, statistics = self.statistics.made(part, tensor, cut.axis or 0)
            origin = self._origin(tags, tensor)
            return Record(kept, tensor.address, items=of_kept, statistics=statistics, **origin)
        items, axis, summary = tags.items, cut.axis, None
        if cut.projected_from is not None and tensor.project is not None:
            array, summary = tensor.project(cut.rows, axis or 0)
        else:
            array = tensor.copy(cut.rows, axis or 0)
            if cut.projected_from is not None:
                summary = summarize(np.moveaxis(array, axis or 0, 0).reshape(array.shape[axis or 0], -1))
                array = project(array if array.ndim == 3 else array.reshape(len(array), -1))
        if items is not None:  # a tensor with another number of rows has no ids
            fits = axis is not None and tensor.shape[axis] == len(items)
            items = items[: array.shape[axis]] if fits and axis is not None else None
        elif not tags.ordered and axis is not None:
            items = self._order.unknown_ids(array.shape[axis])
        return Record(
            array,
            tensor.address,
            batch_axis=axis,
            items=items,
            projected_from=cut.projected_from,
            summary=summary,
            **self._origin(tags, tensor),
        )

    def _end_structure(self, output: Any) -> None:
        """Send the graph of the first pass."""
        if self._traced is None or self._traced_thread not in (None, threading.get_ident()):
            return  # a pass on another thread is in progress
        structure, self._traced = self._traced, None
        graph = structure.end(output)
        if graph is not None:
            query = urlencode({"run": self.run, "model": self.name})
            self.sender.send(f"/graph?{query}", encode_graph(graph), topic="graph")
