"""``probe``: attach to a model in training and ship what its layers do."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ..backends.base import GraphRecorder, Handle, check_kinds, for_model, modules_graph
from ..core.errors import InputError, did_you_mean
from ..core.record import OF_PROBE_SET, PROBE_SET_MODE
from .budget import Budget, check_share
from .commands import HOST, PORT, queue_targets
from .probe_set import check_probe_set
from .schedule import Choice, Schedule, Which
from .sender import BLOCK_S, line
from .tap import ModelTap
from .warn_once import WarningLog, logger

_SETTINGS = ("epoch", "step", "mode", "items")
#: Numbers of a row that is sent as it is, unless the caller says otherwise.
WIDTH = 4096
#: What a call without gradients and without an optimizer shows.
WITHOUT_TRAINING = ("output", "input", "parameter")


def probe(
    model: Any,
    host: str = HOST,
    port: int = PORT,
    *,
    name: str | None = None,
    run: str | None = None,
    which: Which | None = None,
    when: Choice | None = None,
    kinds: Collection[str] = ("output",),
    rows: int | None = None,
    width: float = WIDTH,
    batch_axis: int = 0,
    block: bool = False,
    queue_mb: float | None = None,
    structure: GraphRecorder | bool = True,
    budget: float | None = None,
    probe_set: tuple[Any, Mapping[str, Any]] | None = None,
    every: int | None = None,
) -> Probe:
    """Watch a model while it trains: each call of it sends what its operations did to a server.

    ``name``   what the model is called on the page, by default its class
    ``run``    names this training; by default the time and four letters
    ``which``  which operations are attached to: a function ``which(model, operation)``, asked once for each,
    or
        module addresses: ``"fc1"``, ``"h.*.attn"``, ``["conv1", "Linear"]``. All by default
    ``when``   ``when(model, operation)``, asked at each call before any work: is it sent? Always by default
    ``kinds``  of ``output``, ``input``, ``grad_output``, ``grad_input``, ``parameter``, ``parameter_grad``
        and ``update``: parameters after an optimizer's step minus before
    ``rows``   at most so many rows of each batch; targets then need ``Probe.items``
    ``width``  rows of more numbers than this, 4,096 by default, are projected at random to 1,024, which keeps
        what can be read from them; their mean, norm and the like are measured before. ``math.inf`` for never
    ``block``  when the queue is full: wait, up to 30 s at a standstill, instead of dropping
    ``queue_mb``  megabytes of the queue, 256 by default; probes to one server share it, the largest counts
    ``budget``  the share of the training's time that watching may take, 0.02 by default; by passes left out,
        then by rows. The first second is free. No bound with ``block``, or as ``math.inf``
    ``probe_set``  ``(inputs, {"digit": labels})``, a fixed batch, as the model is called with it, and what
        its rows are: watched instead of the training's own passes. It is run in eval mode at the end of each
        epoch (when ``Probe.epoch`` is set, in ``flush``, and at ``remove``), or before every
        ``every``-th call of the model, where its points then stand at the number of the call
    ``structure``  whether the first call's graph is recorded on the side, for the page to show; a model
        that leads to a function made by ``torch.compile`` is left alone, and has no graph: watched, such code
        would run uncompiled (so does what is only compiled during the first call: then say False)

    The training is never harmed: nothing raises into it, results are the same to the last bit, and with
    no server up it goes on while one warning says that nothing is recorded. An operation is a module; one
    that runs outside a call of ``model`` itself is not seen, nor is anything inside ``torch.compile``.

    Raises InputError when the arguments, not the training, are at fault.

    >>> with probe(model, "127.0.0.1", 8082) as watch:  # doctest: +SKIP
    ...     for watch.epoch in range(5):
    ...         train(model)
    """
    backend = for_model(model)
    model = backend.inner(model, compiled=probe_set is not None)
    troubles = WarningLog()
    schedule = Schedule(which, when, rows, batch_axis, troubles, width)
    is_size = isinstance(queue_mb, int | float) and not isinstance(queue_mb, bool) and queue_mb > 0
    if queue_mb is not None and not is_size:
        raise InputError(f"queue_mb={queue_mb!r} is not a size. Write the megabytes that may wait.")
    kinds = check_kinds(kinds)
    share = check_share(budget, block=block)
    fixed = check_probe_set(probe_set, every, lambda inputs: backend.rows(inputs, batch_axis))
    if fixed is not None and (lost := [kind for kind in kinds if kind not in WITHOUT_TRAINING]):
        raise InputError(f"kinds has {lost[0]!r}, which a probe set has not: it is run without gradients.")
    sender = line(host, port, queue_mb or 0.0)
    tap = ModelTap(
        model,
        backend,
        sender,
        schedule,
        troubles,
        run=_word("run", run) or f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}",
        name=_word("name", name) or type(model).__name__,
        wait=BLOCK_S if block else 0.0,
        structure=backend.graph_recorder(model) if structure is True else structure or None,
        budget=Budget(share),
        probe_set=fixed,
    )
    known = backend.operations(model)
    operations = schedule.chosen(model, known, modules_graph(backend, tap.name, known))
    if known and not operations:
        logger.warning("intus: which chose no operation of %s: nothing is recorded.", tap.name)
    tap.attach(known, operations)
    watch = Probe(tap, backend.attach(model, operations, kinds, tap))
    for target, labels in (fixed.labels if fixed else {}).items():
        whose = {"model_pattern": f"^{re.escape(tap.name)}$", "run_pattern": f"^{re.escape(tap.run)}$"}
        owner = f"{sender.id}{OF_PROBE_SET}{tap.run} {tap.name}"  # the process may train others beside
        queue_targets(sender, target, labels, owner=owner, **whose)
    if fixed is not None:
        sender.before_flush.add(tap)
    return watch


class Probe:
    """A probe at work; made by ``probe``, removed by ``remove`` or at the end of a ``with``.

    ``epoch``  number of the epoch, 0 until set; a complete data point is one epoch
    ``step``   number of the next call of the model, from 0; counts by itself
    ``mode``   ``"train"`` or ``"eval"`` from the model's training flag, unless set
    ``items``  ids of the next call's rows, ints; taken by that call, then None again
    """

    def __init__(self, tap: ModelTap, attachment: Handle) -> None:
        self._tap, self._attachment = tap, attachment

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in _SETTINGS:
            raise InputError(
                f"A probe has no {name!r} that can be set. {did_you_mean(name, _SETTINGS)}"
                + (f" {name!r} is given to probe(...) when it begins." if name in ("run", "model") else "")
            )
        super().__setattr__(name, value)

    @property
    def run(self) -> str:
        """The name of this training."""
        return self._tap.run

    @property
    def model(self) -> str:
        """What the model is called on the page."""
        return self._tap.name

    @property
    def operations(self) -> tuple[str, ...]:
        """Addresses of what is watched."""
        return self._tap.operations

    @property
    def epoch(self) -> float:
        """Number of the epoch."""
        return self._tap.epoch

    @epoch.setter
    def epoch(self, value: float) -> None:
        self._tap.epoch = _number("epoch", value)

    @property
    def step(self) -> int:
        """Number of the next call of the model."""
        return self._tap.step

    @step.setter
    def step(self, value: int) -> None:
        self._tap.step = int(_number("step", value))

    @property
    def mode(self) -> str:
        """``"train"``, ``"eval"`` or the caller's own word; set None to follow the model again."""
        return self._tap.current_mode()

    @mode.setter
    def mode(self, value: str | None) -> None:
        if value is not None and not isinstance(value, str):
            raise InputError(f"mode={value!r} is not a word. Write 'train', 'eval', your own, or None.")
        if value == PROBE_SET_MODE:
            raise InputError(f"mode={value!r} is the word for passes of a probe set. Write another.")
        self._tap.mode = value

    @property
    def items(self) -> np.ndarray | None:
        """Ids of the next call's rows."""
        return self._tap.items

    @items.setter
    def items(self, value: Any) -> None:
        self._tap.items = None if value is None else _ids(value)

    def status(self) -> dict[str, Any]:
        """What became of the records: of this probe ``passes`` (calls of the model), ``skipped`` (those left
        out for the budget), ``recorded`` and ``troubles`` (hooks, which
        or when that raised) and ``never_called``, the operations that never ran; of the line to the server,
        which all probes of the process share, ``sent``, ``dropped``, ``failed``, ``waiting`` and
        ``server``."""
        tap, counts = self._tap, self._tap.sender.counts()
        return {
            "passes": tap.passes,
            "skipped": tap.budget.skipped,
            "recorded": tap.recorded,
            "troubles": tap.troubles.total(),
            "never_called": tap.never_called(),
            "sent": counts.sent,
            "dropped": counts.dropped,
            "failed": counts.failed,
            "waiting": counts.waiting,
            "server": tap.sender.state,
        }

    def run_probe_set(self) -> None:
        """Run the probe set now, as this epoch's; once an epoch, for two states of a model are not one.
        Looked at before the training, the untrained model is epoch 0, and the first epoch is 1.
        Raises InputError where there is no probe set."""
        if not self._tap.probe_runs.instead:
            raise InputError("There is no probe set to look at: probe(model, probe_set=(inputs, labels)).")
        self._tap.probe_runs.run()

    def remove(self) -> None:
        """Take every hook off the model; what was recorded still goes out. Twice is harmless."""
        self._tap.probe_runs.training_ends()
        self._attachment.remove()
        self._tap.close()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        where = f"{self._tap.sender.host}:{self._tap.sender.port}"
        return f"<Probe of {self.model}: {len(self.operations)} operations to {where}, run {self.run!r}>"


def _word(what: str, value: str | None) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise InputError(f"{what}={value!r} is not a name. Write some text, or None for the default.")
    return value


def _number(what: str, value: Any) -> float:
    """A finite number, also out of a numpy scalar or a tensor."""
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not abs(plain) < 2**53:
        raise InputError(f"{what}={value!r} is not a number. Count it from 0.")
    return plain


def _ids(value: Any) -> np.ndarray:
    """Item ids as int64 of shape (rows,), from a list, an array or a tensor on any device."""
    try:
        ids = np.asarray(value.tolist() if hasattr(value, "tolist") else list(value))
    except (TypeError, ValueError) as error:
        raise InputError(f"items={value!r} is not a list of ids: {error}.") from None
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(
            f"items must be the rows' ids, one int each, got shape {ids.shape} of dtype {ids.dtype}."
        )
    return ids.astype(np.int64)
