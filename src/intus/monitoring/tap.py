"""What the hooks talk to: tags every tensor that is wanted and hands its copy to the line."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

import numpy as np

from ..backends.base import Backend, CapturedTensor, GraphRecorder, Operation
from ..core.probes_disabled import are_probes_disabled
from ..core.projection import project, summarize
from ..core.record import Record
from ..storage.codec import encode_graph
from .budget import Budget, Seconds
from .clocks import of_process, of_thread, since
from .probe_set import ProbeSet
from .probe_set_runner import PassTags, ProbeSetRunner
from .row_order import Order
from .schedule import Cut, Schedule
from .sender import Sender
from .sent_counts import EpochKey
from .warn_once import WarningLog, logger

_LEFT_OUT = (
    "intus: to take at most %s of the time, the probe of %s leaves passes out. Labels by order of arrival "
    "then fit no epoch: say which rows come (Probe.items = ids), let the probe run a probe_set, "
    "or give it more (budget=)."
)


class ModelTap:
    """One probe's eye. Holds the model weakly: a probe keeps nothing alive."""

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
        self._chosen: dict[str, bool] = {}  # by address, also of operations that are met while they run
        self.sender, self.troubles = sender, troubles
        self.run, self.name = run, name
        self._epoch: float = 0
        self.step = self.passes = self.recorded = 0
        self.mode: str | None = None
        self.items: np.ndarray | None = None
        self.heard: set[str] = set()
        self._model = weakref.ref(model)
        self._backend, self._schedule, self._wait = backend, schedule, wait
        self._structure = structure  # until the first pass begins
        self._first = True  # no pass has ended yet
        self._traced: GraphRecorder | None = None
        self._tracer: int | None = None  # the thread whose pass is traced
        self._facts = PassTags(0, 0, "", None)
        self.budget, self.probe_runs = budget, ProbeSetRunner(self, model, backend, probe_set)
        self._order = Order(name, troubles)
        self._held = self._most = 0  # bytes and rows of the pass watched last
        self._known = sender.worked  # when the budget last heard of it

    def attach(self, known: Iterable[Operation], chosen: Iterable[Operation]) -> None:
        """Note the operations known before the first call, and those of them that are attached to."""
        self.operations = tuple(operation.address for operation in chosen)
        self._chosen = {operation.address: False for operation in known} | dict.fromkeys(
            self.operations, True
        )

    @property
    def epoch(self) -> float:
        """Number of the epoch; to set another ends it."""
        return self._epoch

    @epoch.setter
    def epoch(self, value: float) -> None:
        if value != self._epoch:
            self.probe_runs.epoch_ends()
            self.turn(self._epoch, value)
        self._epoch = value

    def turn(self, old: float, new: float) -> None:
        """One span of the records ends and another begins."""
        self.sender.end(EpochKey(self.run, self.name, old))
        self.sender.begin(EpochKey(self.run, self.name, new))

    def current_mode(self) -> str:
        """The caller's word, else what the model is in."""
        model = self._model()
        return self.mode or (self._backend.mode(model) if model is not None else "")

    # -- what the backend calls ----------------------------------------------------------------------

    def on_forward_start(self, inputs: Any) -> bool:
        if are_probes_disabled() and not self.probe_runs.running:  # trace or inspect: no part of the training
            return False
        if not self.probe_runs.running:
            self.probe_runs.step_begins(self.step)
        facts = self.probe_runs.facts(self.step) or self._of_training(inputs)
        if facts is None:
            return False
        began = of_thread()
        self._facts = facts
        self._held = self._most = 0
        self._end_structure(None)  # of a pass that was interrupted
        structure, self._structure = self._structure, None
        if structure is not None:
            self._traced, self._tracer = structure, threading.get_ident()
            structure.begin(self._model(), inputs)
        else:
            self.budget.pay(since(began))
        return True

    def _of_training(self, inputs: Any) -> PassTags | None:
        """What a call of the training is tagged with; None where it is not watched."""
        facts = PassTags(self.epoch, self.step, self.current_mode(), self.items)
        self.step += 1
        self.passes += 1
        self.items = None
        if self.probe_runs.instead:
            return None
        worked, self._known = self.sender.worked - self._known, self.sender.worked
        self.budget.pay(Seconds(worked, worked))
        self.budget.passed(self._held, self._most)
        watched = self.budget.allows(of_process(), (facts.epoch, facts.mode))
        if facts.items is None and self._order.is_new(facts.epoch, facts.mode):
            first = self._backend.order(inputs)
            self._order.on_forward_start(facts.epoch, facts.mode, first, self._backend.shuffled)
        if not watched and facts.items is None:
            self.troubles.say(_LEFT_OUT, f"{self.budget.share:.0%}", self.name)
        ordered = facts.items is not None or self._order.holds(facts.mode)
        return facts._replace(rows=self.budget.rows, ordered=ordered) if watched else None

    def wants(self, operation: Operation) -> PassTags | None:
        chosen = self._chosen.get(operation.address)
        if chosen is None:  # its framework did not know it before it ran
            chosen = self._chosen[operation.address] = self._schedule.chooses(self._model(), operation)
            self.operations += (operation.address,) if chosen else ()
        self.heard.add(operation.address)
        return self._facts if chosen and self._schedule.wants(self._model(), operation) else None

    def on_tensor(self, ticket: PassTags, seen: CapturedTensor) -> None:
        began = of_thread()
        cut = self._schedule.cut(seen, ticket.rows)
        if cut.axis is not None:
            self._most = max(self._most, seen.shape[cut.axis])
            self._held += math.ceil(
                cut.nbytes * seen.shape[cut.axis] / (cut.rows or seen.shape[cut.axis] or 1)
            )
        if not self.sender.reserve(cut.nbytes, self._wait, EpochKey(self.run, self.name, ticket.epoch)):
            return
        try:
            record = self._record(ticket, seen, cut)
        except Exception:
            self.sender.release(cut.nbytes)
            raise
        self.sender.gather(record, cut.nbytes)
        self.recorded += 1
        self.budget.pay(since(began))

    def on_forward_end(self, output: Any) -> None:
        if self._first and output is not None:
            self._first = False
            self._say_silent()
        try:
            self._end_structure(output)
        finally:
            began = of_thread()
            self.sender.post()
            self.budget.pay(since(began))

    def on_error(self, error: Exception) -> None:
        text = "intus could not record something and goes on without: %s: %s"
        self.troubles.count(f"hook {type(error).__name__}", text, type(error).__name__, error)

    # ------------------------------------------------------------------------------------------------

    def never_called(self) -> list[str]:
        """The operations that are attached to and never ran."""
        return [address for address in self.operations if address not in self.heard]

    def _say_silent(self) -> None:
        silent = self.never_called()
        if 2 * len(silent) > len(self.operations):
            text = "intus: %s of %s operations of %s did not run in its first call, such as %r. %s"
            logger.warning(
                text, len(silent), len(self.operations), self.name, silent[0], self._backend.blind_spot
            )

    def close(self) -> None:
        """Send what was gathered; a pass that was being traced ends."""
        if not self.passes and self.operations and self._first:
            logger.warning(
                "intus: %s was never called while it was probed. %s", self.name, self._backend.blind_spot
            )
        try:
            self.on_forward_end(None)
            self.sender.leave(self.run, self.name)
        except Exception as error:
            self.on_error(error)

    def _record(self, facts: PassTags, seen: CapturedTensor, cut: Cut) -> Record:
        items, axis, summary = facts.items, cut.axis, None
        if cut.projected_from is not None and seen.project is not None:
            array, summary = seen.project(cut.rows, axis or 0)
        else:
            array = seen.copy(cut.rows, axis or 0)
            if cut.projected_from is not None:
                summary = summarize(np.moveaxis(array, axis or 0, 0).reshape(array.shape[axis or 0], -1))
                array = project(array if array.ndim == 3 else array.reshape(len(array), -1))
        if items is not None:  # ids belong to rows: a tensor with another number of rows has none of them
            fits = axis is not None and seen.shape[axis] == len(items)
            items = items[: array.shape[axis]] if fits and axis is not None else None
        elif not facts.ordered and axis is not None:
            items = self._order.unknown(array.shape[axis])
        return Record(
            array,
            seen.address,
            kind=seen.kind,
            run=self.run,
            model=self.name,
            step=facts.step,
            epoch=facts.epoch,
            mode=facts.mode,
            batch_axis=axis,
            index=seen.index,
            items=items,
            projected_from=cut.projected_from,
            summary=summary,
        )

    def _end_structure(self, output: Any) -> None:
        """Send the graph of the pass that was traced, the first; later ones are not traced."""
        if self._traced is None or self._tracer != threading.get_ident():
            return  # another thread's pass is its own to end
        structure, self._traced = self._traced, None
        graph = structure.end(output)
        if graph is not None:
            where = urlencode({"run": self.run, "model": self.name})
            self.sender.send(f"/graph?{where}", encode_graph(graph), topic="graph")
