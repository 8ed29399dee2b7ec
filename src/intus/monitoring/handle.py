"""``probe``: attach to a model in training and send what its layers compute to a server."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..backends.base import Backend, GraphRecorder, Handle, StepHandle, check_kinds, for_model, modules_graph
from ..backends.sharding import Shards
from ..core.errors import InputError, did_you_mean
from ..core.findings import Finding
from ..core.names import check_name
from ..core.record import OF_PROBE_SET, PROBE_SET_MODE
from .budget import Budget, check_share
from .clocks import process_seconds
from .commands import HOST, PORT, flush, queue_targets, register_targets
from .follower import Follower
from .private_server import private_server
from .probe_set import check_probe_set, check_statistics
from .refusal import refusal
from .scalars import ScalarLog, check_facts
from .schedule import Choice, Schedule, Which
from .sender import BLOCK_S, get_sender
from .tap import ModelTap
from .trackers import Place, TrackedRun, open_tracker, places
from .warn_once import WarningLog

_NO_JOB = (
    "intus: which processes belong to the training of run %r is not known, because the store of "
    "torch.distributed does not answer. They are taken for one training as long as they send at the same "
    "time. Call probe() while the process group exists, and give each training its own run=."
)
_REMOVED = (
    "intus: the probe of %s records no more passes, whatever is set on it or goes through it: it was "
    "removed, or another one took its place. Call probe() again."
)
_SETTINGS = ("epoch", "step", "mode", "items")
#: The default of ``width``: rows with more features are projected.
WIDTH = 4096
#: The kinds of tensors that exist without gradients and without an optimizer.
WITHOUT_TRAINING = ("output", "input", "parameter")
_COPIES = (
    "{} of the {} rows of the probe set are exact copies of others. Copies are one group, so that no row is "
    "tested on its copy: they are held out together, and intervals count groups."
)


def probe(
    model: Any,
    host: str = HOST,
    port: int = PORT,
    which: Which | None = None,
    when: Choice | None = None,
    *,
    name: str | None = None,
    run: str | None = None,
    kinds: Collection[str] = ("output",),
    rows: int | None = None,
    width: float = WIDTH,
    batch_axis: int = 0,
    block: bool = False,
    queue_mb: float | None = None,
    structure: GraphRecorder | bool = True,
    budget: float | None = None,
    probe_set: tuple[Any, Mapping[str, Any]] | tuple[Any, Mapping[str, Any], Mapping[str, Any]] | None = None,
    every: int | None = None,
    statistics: bool | Literal["auto"] = "auto",
    ranks: tuple[int, int] | None = None,
    config: Mapping[str, Any] | None = None,
    tags: Collection[str] | None = None,
    to: str | Path | Collection[str | Path] | None = None,
    on_finding: Callable[[Finding], Any] | None = None,
) -> Probe:
    """Attach to a model in training: each call of the model sends the outputs of its operations to a server.

    The training is not affected. Monitoring errors are never raised into it, its results stay bitwise
    identical, and without a server it continues while one warning says that nothing is recorded. In
    TensorFlow they may differ by rounding where it would optimize across what is recorded. An operation of
    a PyTorch model is a module. Modules that run outside a call of ``model`` itself, or inside
    ``torch.compile``, are not recorded. A model of JAX is a value without calls of its own: its training
    step is observed, see ``Probe.through``.

    Args:
        model: The model. Of a wrapper for data parallelism, the module inside is probed, and with a
            ``probe_set`` also that of a compiled model.
        host: The server's host name.
        port: The server's port for probes, 8082 by default.
        which: The operations to attach to: a function ``which(model, operation)``, called once for each, or
            one or several module addresses, patterns or classes (``"fc1"``, ``"h.*.attn"``, ``["conv1",
            "Linear"]``). All by default.
        when: A function ``when(model, operation)``, called at each call of an operation, that returns whether
            to record it. Always by default.
        name: The name of the model on the page; the name of its class by default.
        run: The name of this training; by default the time and four random characters.
        kinds: One or more of ``"output"``, ``"input"``, ``"grad_output"``, ``"grad_input"``, ``"parameter"``,
            ``"parameter_grad"`` and ``"update"`` (parameters after an optimizer's step minus before).
        rows: The maximum number of rows of each batch to record; targets then require ``Probe.items``. All by
            default.
        width: Rows with more features than this, 4,096 by default, are randomly projected to 1,024, which
            nearly preserves how well labels can be decoded. Mean, norm and similar statistics are computed
            before. ``math.inf`` for never; a server still projects for scores other than these and CKA.
        batch_axis: The axis of the rows, 0 by default. Recurrent layers and attention of PyTorch determine
            their own.
        block: Whether to wait if the queue is full, instead of dropping records. It waits for at most 30 s if
            nothing moves. False by default.
        queue_mb: The size of the queue in megabytes, 256 by default. Probes to one server share a queue of
            the largest size requested.
        structure: Whether to record the graph of the first call for the page, True by default, or a recorder
            to use. A model that reaches a function made by ``torch.compile`` is not traced, because tracing
            would run that function uncompiled. Pass False if something is compiled only during the first
            call.
        budget: The share of the training's time that monitoring may take, 0.02 by default. Beyond it, passes
            are skipped and then rows. The first 0.85 s are lent: short trainings are recorded completely, and
            long ones repay it. ``math.inf`` for no bound, the default with ``block``.
        probe_set: A fixed batch ``(inputs, {"digit": labels})`` to record instead of the training's own
            passes: inputs as the model is called with (a tensor, a tuple of positional arguments or a dict of
            keyword arguments), and one label per row for each target. It is run in evaluation mode at the end
            of each epoch: when ``Probe.epoch`` is set, in ``flush``, and in ``Probe.remove``. A third part
            ``{"groups": ids, "types": ids, "layers": {"digit": pattern}}`` says which rows belong together,
            what each label's row is an instance of, and which layers a target is for, as for
            ``register_targets``; ``types`` may also be a dict with those of each target. Of inputs of token
            ids, these are the types by default. The processes that share a sharded model must all call
            ``probe`` with it, and one of them sends.
        every: Run the probe set before every ``every``-th call of the model instead, and record it under the
            number of that call instead of the epoch.
        statistics: Whether to send statistics of passes, made on the model's device, instead of activations:
            sums and some rows, sketched to at most 1,024 features, which the server scores. By default,
            ``"auto"``, they are sent of a probe set from accelerators, with ``ranks``, and of tensors that
            would take more than their share of the queue. True also sends them of the training's own passes
            whose item ids are known, with the labels that this process has registered. PyTorch only.
        ranks: In data-parallel training in which every process probes, with the same ``run`` and the whole
            probe set: the rank of this process and the number of processes, such as ``(0, 4)``. Each runs and
            sends its share of the probe set's rows, and none waits for another.
        config: The configuration of the training, a dict of JSON values such as ``{"lr": 0.1, "seed": 3}``.
            It is stored with the run. Runs whose configurations differ only in ``seed`` form a group.
        tags: Words to find the run by, stored with it.
        to: Where to write the scores, instead of sending to a server: a database such as ``"runs.db"``, which
            ``intus serve runs.db`` shows later; a tracker: ``"wandb"``, ``"tensorboard"`` or ``"mlflow"``; or
            a list of a database and trackers. After a colon may stand where the tracker begins a run: a
            project (``"wandb:digits"``), a folder (``"tensorboard:runs/mine"``), an experiment
            (``"mlflow:digits"``). Otherwise its active run is used. A server of its own scores in another
            process, and ends after this one. It takes some seconds to start.
        on_finding: A function that is called with each finding once (a text with ``kind``, ``target``,
            ``address``, ``epoch``, ``step`` and ``model``; see ``Run.findings``), such as "NaN or infinite
            values began in h.3 at epoch 2". What is ``"learned"`` with a probe set is ``"risen"`` in a
            training's own passes, between whose rows the weights change. It is called on a thread of its
            own, a second or two after the scores of an epoch are computed, and in ``flush`` before that
            returns. Its errors are logged.

    Returns:
        The probe, which is also a context manager that removes it.

    Raises:
        InputError: If an argument is invalid, or the model's framework is not supported.
        AddressError: If an address of ``which`` does not exist, or is not a whole module.
        ServeError: If the server for ``to`` does not start, or a tracker refuses.
        MissingExtraError: If a tracker is not installed.

    Example:
        >>> watch = probe(model, "127.0.0.1", 8082)  # doctest: +SKIP
        >>> train(model)  # doctest: +SKIP
    """
    backend = for_model(model)
    model = backend.inner(model, compiled=probe_set is not None)
    troubles = WarningLog()
    schedule = Schedule(which, when, rows, batch_axis, troubles, width)
    is_size = isinstance(queue_mb, int | float) and not isinstance(queue_mb, bool) and queue_mb > 0
    if queue_mb is not None and not is_size:
        raise InputError(f"queue_mb must be a positive number of megabytes, got {queue_mb!r}.")
    kinds = check_kinds(kinds)
    share = check_share(budget, block=block)
    facts = check_facts(config, tags)
    checked_set = check_probe_set(probe_set, every, lambda inputs: backend.rows(inputs, batch_axis))
    if checked_set is not None and (contents_of := getattr(backend, "row_contents", None)) is not None:
        together_set = checked_set.with_copies_together(contents_of(checked_set.inputs, batch_axis))
        if together_set is not checked_set and together_set.groups is not None:
            copies = len(together_set.groups) - len(set(together_set.groups))
            troubles.inform("groups", _COPIES.format(copies, len(together_set.groups)))
        checked_set = together_set
    if checked_set is not None and (unavailable := [kind for kind in kinds if kind not in WITHOUT_TRAINING]):
        raise InputError(
            f"kinds must be of {', '.join(WITHOUT_TRAINING)} with a probe set, which runs without gradients, "
            f"got {unavailable[0]!r}."
        )
    able = getattr(backend, "makes_statistics", False)
    choice = check_statistics(statistics, able=able, framework=backend.name)
    if (reason := refusal(backend, model, kinds, has_set=checked_set is not None)) is not None:
        raise InputError(reason)
    together = None
    if isinstance(backend, Shards) and checked_set is not None:
        together = backend.together(model, checked_set.outline)
    sends = together is None or together.sends or ranks is not None
    if ranks is not None:
        if checked_set is None or run is None:
            raise InputError(
                f"ranks={ranks!r} shares a probe set among processes of one run. Pass probe_set= and run=, "
                "the same in every process."
            )
        checked_set = checked_set.share(ranks, batch_axis)
    if on_finding is not None and not callable(on_finding):
        raise InputError(f"on_finding must be a function that takes a finding, got {on_finding!r}.")
    default = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    named_run = check_name("run", default if run is None else run, ", or None for the default")
    default = _class_name(backend, model)
    named_model = check_name("name", default if name is None else name, ", or None for the default")
    named: list[Place] = []
    if to is not None:
        if (host, port) != (HOST, PORT):
            raise InputError(f"Pass either to={to!r} or the host and port of a server, not both.")
        database, named = places(to)
        host, port = private_server(database)
    sender = get_sender(host, port, queue_mb or 0.0)
    tap = ModelTap(
        model,
        backend,
        sender,
        schedule,
        troubles,
        run=named_run,
        name=named_model,
        wait=BLOCK_S if block else 0.0,
        structure=(backend.graph_recorder(model) if structure is True else structure or None)
        if sends
        else None,
        budget=Budget(share),
        probe_set=checked_set,
        together=together,
        kinds=kinds,
    )
    job = backend.job() if isinstance(backend, Shards) else ""
    if job is None:
        troubles.warn_once(_NO_JOB, named_run)
    tap.replace_earlier(job or "")
    try:
        known = backend.operations(model)
        operations = schedule.chosen(model, known, modules_graph(backend, tap.name, known))
        if known and not operations:
            troubles.warn_once("intus: which= selects no operation of %s, so nothing is recorded.", tap.name)
        if apart := next((op.apart for op in operations if op.apart), ""):
            troubles.warn_once(f"intus: {apart}")
        tap.warn_unobserved(model)
        hidden = getattr(backend, "hidden", None)
        if hidden is not None and (reason := hidden(model)):
            troubles.warn_once(f"intus: {reason}")
        operations = operations if sends else []
        tap.followed.attach(known, operations)
        for target in sender.targets.values() if checked_set is None else ():
            tap.targets.check(target)
        for of, pattern in checked_set.layers.items() if checked_set is not None else ():
            tap.targets.check_layers(f"layers[{of!r}]", pattern)
        if choice is not False and (checked_set is not None or choice is True):
            from .statistics import PassStatistics  # the scores, which other probes do not need

            share = sender.capacity / max(len(operations), 1)
            tap.statistics = (
                PassStatistics(choice, share)
                if checked_set is None
                else PassStatistics.of_probe_set(checked_set, choice, share)
            )
        if facts and sends:
            about = {"run": tap.run, "model": tap.name}
            sender.send_json("/run", about | facts, topic=json.dumps(list(about.values())))
        attachment = backend.attach(model, operations, kinds, tap)
        if sends:
            tap.followed.begin(attachment, operations)
        try:
            follower = _follower(tap, named, facts, on_finding) if sends else None
        except BaseException:
            attachment.remove()
            raise
        watch = Probe(tap, attachment, follower)
    except BaseException:
        tap.source.remove()
        raise
    if checked_set is not None and sends:
        patterns = {"model_pattern": f"^{re.escape(tap.name)}$", "run_pattern": f"^{re.escape(tap.run)}$"}
        owner = f"{sender.id}{OF_PROBE_SET}{tap.run} {tap.name}"  # the process may train other models too
        for of, labels in checked_set.labels.items():
            tap.targets.check_shape(of, labels)
            queue_targets(
                sender,
                of,
                labels,
                groups=checked_set.groups,
                types=checked_set.types[of],
                typed=checked_set.typed,
                layer_pattern=checked_set.layers.get(of, ".*"),
                owner=owner,
                **patterns,
            )
    sender.taps.add(tap)
    return watch


def _follower(
    tap: ModelTap,
    named: Collection[Place],
    facts: Mapping[str, Any],
    on_finding: Callable[[Finding], Any] | None,
) -> Follower | None:
    """Open the trackers, and return what hands on to them and to the callback; None if there is neither."""
    if not named and on_finding is None:
        return None
    run = TrackedRun(tap.run, tap.name, facts.get("config", {}), facts.get("tags", ()))
    trackers = [(place, open_tracker(place, run)) for place in named]
    return Follower(tap.sender, tap.run, tap.name, trackers, tap.troubles, on_finding)


class Probe:
    """A probe attached to a model; returned by ``probe``.

    ``epoch``, ``step``, ``mode`` and ``items`` may be set at any time and apply to the next call of the
    model. As a context manager it removes itself at the end of the ``with`` block.

    Attributes:
        epoch: The number of the epoch. A complete data point is one epoch. Until it is set, epochs are found
            (with PyTorch): epoch 0 is the model before its training, and another begins when the training's
            DataLoader is iterated anew, or when the first batch comes again.
        step: The number of the next call of the model, from 0. It increases automatically.
        mode: ``"train"`` or ``"eval"``, from the model's training flag, unless set. Passes under ``no_grad``
            of a model whose other passes have gradients are of ``"eval"``, and passes in evaluation mode that
            a step of an optimizer shows to be of the training are of ``"train"`` (with PyTorch).
        items: The integer ids of the next call's rows, or None. That call resets them to None. Until they are
            set, ids are the indices that the sampler of the training's DataLoader gave (with PyTorch).
        run: The name of this training.
        model: The name of the model on the page.
        operations: The addresses of the recorded operations.

    Example:
        >>> watch = probe(model, "127.0.0.1", 8082)  # doctest: +SKIP
        >>> for watch.epoch in range(5):  # doctest: +SKIP
        ...     for items, rows in loader:
        ...         watch.items = items
        ...         train_step(model, rows)
        >>> watch.remove()  # doctest: +SKIP
    """

    def __init__(self, tap: ModelTap, attachment: Handle, follower: Follower | None = None) -> None:
        self._tap, self._attachment, self._follower = tap, attachment, follower
        self._log = ScalarLog(tap.sender, tap.run, tap.name, tap.troubles, follower)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in _SETTINGS:
            raise InputError(
                f"A Probe has no {name!r} that can be set. {did_you_mean(name, _SETTINGS)}"
                + (f" Pass the name of the {name} to probe(...)." if name in ("run", "model") else "")
            )
        super().__setattr__(name, value)
        if name in _SETTINGS:
            self._warn_if_over()

    def _warn_if_over(self) -> None:
        """Say once that the probe records nothing more."""
        if self._tap.is_over:
            self._tap.troubles.warn_once(_REMOVED, self._tap.name)

    @property
    def run(self) -> str:
        """The name of this training."""
        return self._tap.run

    @property
    def model(self) -> str:
        """The name of the model on the page."""
        return self._tap.name

    @property
    def operations(self) -> tuple[str, ...]:
        """The addresses of the recorded operations."""
        return self._tap.coverage.operations

    @property
    def epoch(self) -> float:
        """The number of the epoch. Setting another one ends the current epoch."""
        return self._tap.epoch

    @epoch.setter
    def epoch(self, value: float) -> None:
        self._tap.source.epochs_are_set()
        self._tap.epoch = _check_number("epoch", value)

    @property
    def step(self) -> int:
        """The number of the next call of the model."""
        return self._tap.step

    @step.setter
    def step(self, value: int) -> None:
        self._tap.step = int(_check_number("step", value))

    @property
    def mode(self) -> str:
        """``"train"``, ``"eval"`` or a word of your own; set None to follow the model's training flag."""
        return self._tap.current_mode()

    @mode.setter
    def mode(self, value: str | None) -> None:
        if value is not None and not isinstance(value, str):
            raise InputError(f"mode must be a string such as 'train' or 'eval', or None, got {value!r}.")
        if value:
            check_name("mode", value)
        if value == PROBE_SET_MODE:
            raise InputError(f"mode={value!r} is reserved for passes of a probe set. Write another word.")
        self._tap.mode = value

    @property
    def items(self) -> np.ndarray | None:
        """The ids of the next call's rows."""
        return self._tap.items

    @items.setter
    def items(self, value: Any) -> None:
        self._tap.items = None if value is None else _check_ids(value)
        self._tap.source.items_are_set()

    def status(self) -> dict[str, Any]:
        """Return the state of the probe.

        Returns:
            A dict. About this probe: ``passes``, the calls of the model; ``skipped``, those skipped for the
            budget; ``skipped_epochs``, the epochs that are over and in which all passes were skipped,
            training and evaluation counted apart; ``next_s``, about how many seconds by the wall clock the
            training goes on until the budget affords the first pass of an epoch, 0 if it does now; ``spent``,
            the processor seconds that monitoring took, as the budget counts them; ``recorded``, the records
            made; ``troubles``, the errors in hooks, ``which`` or ``when``, where what the framework does not
            allow to record counts once for each reason; ``never_called``, the addresses of operations that
            never ran; ``silent``, of those that recorded nothing; ``epochs`` and ``items``, how these are
            found, in words; ``faults``, every warning so far, why the server refuses what this process sends,
            which labels it cannot match to rows, what it cannot score, and which layers of earlier epochs
            sent it nothing, as sentences. About the queue to
            the server, which all probes of the process share: ``sent``, ``dropped``, ``failed`` and
            ``waiting``, in records; ``server``, ``"up"``, ``"down"``, ``"refused"`` (the token is wrong) or
            ``"untried"``. ``log_waiting``, how many values of ``log`` the server has not received from this
            probe. About this model's records on the server: ``ledger``, a dict of how many it
            ``kept``, and of these are ``scored``, ``waiting`` (``seconds_left`` at the measured rate),
            ``failed`` or ``lost``, with what is ``under_way``, ``refused`` and ``unknown``, as in "What
            became of every array" of docs/serving.md. It is asked for at each call, for which it waits up to
            2 s; None if it did not answer or does not know.

        Example:
            >>> watch.status()["dropped"]  # doctest: +SKIP
            0
        """
        tap, counts = self._tap, self._tap.sender.counts()
        return {
            "passes": tap.passes,
            "skipped": tap.budget.skipped,
            "skipped_epochs": tap.budget.skipped_periods,
            "next_s": tap.budget.seconds_until_next(process_seconds()),
            "spent": tap.budget.spent.processor,
            "recorded": tap.recorded,
            "troubles": tap.troubles.total(),
            "never_called": tap.coverage.never_called(),
            "silent": tap.coverage.silent(),
            "epochs": tap.source.epochs,
            "items": tap.source.items,
            "faults": tap.troubles.faults() + tap.sender.faults() + tap.sender.no_scores(tap.run, tap.name),
            "sent": counts.sent,
            "dropped": counts.dropped,
            "failed": counts.failed,
            "waiting": counts.waiting,
            "log_waiting": self._log.waiting(),
            "server": tap.sender.state,
            "ledger": tap.sender.ledger(tap.run, tap.name),
        }

    def through(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a training step that is observed; for JAX, where a model is a value that a step takes.

        Args:
            step: The compiled step (``jax.jit``, ``nnx.jit``, ``eqx.filter_jit``), which has the model or its
                parameters among its arguments.

        Returns:
            A function with the arguments and results of ``step``, which it calls unchanged. Each call is a
            pass of the probe.

        Raises:
            InputError: If the model is of another framework, or the step cannot be observed.

        Example:
            >>> watch = probe(model, "127.0.0.1", 8082)  # doctest: +SKIP
            >>> train_step = watch.through(train_step)  # doctest: +SKIP
        """
        if not isinstance(self._attachment, StepHandle):
            raise InputError(
                f"through is for JAX. The calls of {self.model}, a model of {self._tap.framework}, are "
                "recorded without it: leave it out."
            )
        self._warn_if_over()
        return self._attachment.through(step)

    def log(
        self,
        values: Mapping[str, Any] | None = None,
        /,
        *,
        step: int | None = None,
        epoch: float | None = None,
        **named: Any,
    ) -> None:
        """Record values of your own, such as losses, to see them beside the scores.

        It returns at once, and never raises because of a value: NaN and infinities are recorded as such, and
        what is not a number is left out with a warning, once per name. A tensor on a GPU is waited for.
        After ``remove`` values are recorded as before; a tracker has them until ``flush``, which closes it,
        and then a warning says so.

        Args:
            values: Numbers by name, for names that are no identifiers (``{"val/loss": 0.3}``).
            step: Their step. By default that of the last call of the model.
            epoch: Their epoch. By default ``Probe.epoch``: if epochs are found, the one before until the
                first call of the next one.
            **named: Numbers by name. Scalars of numpy and tensors with one element are numbers too.

        Raises:
            InputError: If ``values`` is no dict, or the step or epoch is not a number.

        Example:
            >>> watch.log(loss=loss, accuracy=0.9)  # doctest: +SKIP
        """
        if values is not None and not isinstance(values, Mapping):
            raise InputError(f"watch.log takes numbers by name, such as loss=0.3, got {values!r:.80}.")
        at = max(self._tap.step - 1, 0) if step is None else int(_check_number("step", step))
        when = self._tap.epoch if epoch is None else _check_number("epoch", epoch)
        self._log.add({**(values or {}), **named}, at, when)

    def run_probe_set(self) -> None:
        """Run the probe set now, for the current epoch.

        Two states of the model cannot share an epoch. If it has run in this one and parameters or buffers
        changed since, the model is shown as the next epoch where epochs are found. Where the script sets
        ``epoch``, it is not run, and a warning says so. If nothing changed, it is not run, and a notice says
        so. To record the untrained model, run it as epoch 0 before the training, and number the epochs of the
        training from 1.

        Raises:
            InputError: If the probe has no probe set.
        """
        if not self._tap.probe_runs.replaces_training:
            raise InputError(
                "This probe has no probe set to run. Pass probe_set=(inputs, labels) to probe()."
            )
        self._tap.decide_all()
        self._tap.probe_runs.run_on_request()

    def register_targets(
        self, *, name: str, targets: Any, groups: Any = None, types: Any = None, layer_pattern: str = ".*"
    ) -> bool:
        """Register labels for this run with the probe's server, also if ``to=`` started it.

        Args:
            name: The name of the target.
            targets: The labels, as in ``intus.register_targets``.
            groups: What items belong to, likewise.
            types: What each label's row is an instance of, likewise.
            layer_pattern: Regular expression for the addresses of layers. All by default.

        Returns:
            Whether the server has received them; else they wait in the queue.

        Raises:
            InputError: If the labels or the pattern cannot be used.

        Example:
            >>> watch.register_targets(name="digit", targets=[3, 1, 4])  # doctest: +SKIP
            True
        """
        return register_targets(
            self._tap.sender.host,
            self._tap.sender.port,
            name=name,
            targets=targets,
            groups=groups,
            types=types,
            layer_pattern=layer_pattern,
            run_pattern=f"^{re.escape(self.run)}$",
        )

    def flush(self, timeout: float = 120.0) -> bool:
        """Wait until everything that this process recorded is scored and stored; see ``intus.flush``.

        Args:
            timeout: The maximum number of seconds to wait.

        Returns:
            Whether all is scored.
        """
        return flush(self._tap.sender.host, self._tap.sender.port, timeout=timeout)

    def remove(self) -> None:
        """Remove all hooks from the model.

        Records in the queue are still sent, and ``log`` records values still. Calling it again has no effect.
        It records no more passes: one warning says so if its epoch, step, mode or items are set later, or a
        step goes through.
        """
        self._tap.decide_all()
        self._tap.probe_runs.ends()
        self._attachment.remove()
        self._log.post()
        self._tap.end()
        if self._follower is not None:
            self._follower.removed = True

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        where = f"{self._tap.sender.host}:{self._tap.sender.port}"
        return f"<Probe of {self.model}: {len(self.operations)} operations to {where}, run {self.run!r}>"


def _class_name(backend: Backend, model: Any) -> str:
    """Return the name of the model's class, without what a framework puts around it to share it."""
    return backend.class_name(model) if isinstance(backend, Shards) else type(model).__name__


def _check_number(what: str, value: Any) -> float:
    """Return a finite number from 0 as a plain one; numpy scalars and tensors are accepted."""
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not 0 <= plain < 2**53:
        raise InputError(f"{what} must be a number, counted from 0, got {value!r}.")
    return plain


def _check_ids(value: Any) -> np.ndarray:
    """Return item ids as int64 of shape (rows,), from a list, an array or a tensor on any device."""
    try:
        ids = np.asarray(value.tolist() if hasattr(value, "tolist") else list(value))
    except (TypeError, ValueError) as error:
        raise InputError(f"items must be a list of integer ids, got {value!r}: {error}.") from None
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(
            f"items must be a list of integer ids, one per row, got shape {ids.shape} and dtype {ids.dtype}."
        )
    return ids.astype(np.int64)
