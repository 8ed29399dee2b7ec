"""The protocol that makes a framework observable, and the registry that finds its backend by a model's type.

A backend lists a model's operations, runs it, records its graph, and passes the tensors of a forward pass to
a *tap*. The monitor (``probe``) and ``inspect`` reach models only through this protocol. A backend knows
nothing of schedules, queues or servers: the tap decides, the backend observes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ..core.errors import InputError
from ..core.graph import Graph
from ..core.record import KINDS
from .row_sums import Summing

ENTRY_POINTS = "intus.backends"


class Operation(NamedTuple):
    """A place in a model that can be observed.

    Attributes:
        address: Its address (``features.0``; ``""`` for the model itself).
        type: The name of its class or kind.
        module: The framework's own object, which only its backend accesses.
        apart: If it is only observed where the caller selects it, what that changes, as a sentence; else
            ``""``.
    """

    address: str
    type: str
    module: Any
    apart: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class CapturedTensor:
    """A tensor of a forward or backward pass, valid only inside ``Tap.on_tensor`` and copied only on request.

    Attributes:
        address: The operation with its call (``fc1:2``), or the parameter (``fc1.weight``).
        kind: One of ``core.record.KINDS``.
        index: The index among several tensors of one module call.
        shape: Its shape.
        nbytes: The size of a complete copy, in bytes.
        copy: ``copy(rows, axis)`` returns a numpy array of at most the first ``rows`` along ``axis``,
            selected before anything is copied; None for all rows.
        batch_axis: The axis of its rows if the operation determines it, else None.
        project: ``project(rows, axis)`` of the same rows returns them projected to ``PROJECTED`` features,
            and their ``SUMMARY``. None if the framework has no implementation, so that numpy is used.
        began: When the work for this tensor began, ``(time.perf_counter(), time.process_time())``, for a
            backend that computes it apart from the training, on any thread of the process. None if
            ``on_tensor`` is all the work.
        pass_apart: Whether the whole pass is apart from the training, so that all of its time is the
            probe's.
        sums: Computes sums of the rows on the tensor's device; None if the framework has no implementation,
            or the tensor is not of floats.
        accelerated: Whether the tensor is on an accelerator, such as a GPU.
        without_rows: Why nothing says which of its axes is the batch, so that it has no rows; "" if it has.
        fingerprints: ``fingerprints(axis)`` returns ``core.fingerprints.fingerprints`` of the rows, computed
            on the tensor's device; None if the framework has no implementation.
        contents: Equal for two tensors only if they are the same memory and nothing was written to it in
            between, as far as the framework counts writes. None if that cannot be shown.
        channels_first: Whether the second of its three axes is known to be that of channels, behind which
            that of positions comes.
    """

    address: str
    kind: str
    index: int
    shape: tuple[int, ...]
    nbytes: int
    copy: Callable[[int | None, int], np.ndarray]
    batch_axis: int | None = None
    project: Callable[[int | None, int], tuple[np.ndarray, np.ndarray]] | None = None
    began: tuple[float, float] | None = None
    pass_apart: bool = False
    without_rows: str = ""
    sums: Summing | None = None
    accelerated: bool = False
    contents: Hashable | None = None
    fingerprints: Callable[[int], np.ndarray] | None = None
    channels_first: bool = False

    @property
    def has_batch(self) -> bool:
        """True if the tensor can have a batch axis, which parameters and scalars cannot."""
        return (
            not self.without_rows
            and bool(self.shape)
            and self.kind not in ("parameter", "parameter_grad", "update")
        )


#: Why a backend refuses a call of a model that overlaps another one.
OVERLAPS = (
    "A call of the model is not recorded while another thread's call of it is, so that every record is of "
    "one call. Rows have no labels by order of arrival then. To record all of them, call it one at a time."
)


class Tap(Protocol):
    """The observer of a model's tensors.

    Its exceptions never reach the model; the backend passes them to ``on_error``. One that calls the model
    by ``Backend.evaluation`` in the course of a training has a true attribute ``evaluates``, so that a
    backend whose models are values can tell which is the trained one. It may have methods ``leave_out``, for
    a backend to which the report of a call is expensive, ``refuse_call``, for a call that cannot be recorded,
    ``at_epoch_end``, ``prepared``, ``ran_outside``, ``sent_elsewhere``, ``note``, ``warn`` and ``met``; see
    ``monitoring.tap.ModelTap``.
    """

    def on_forward_start(self, inputs: Any) -> bool | None:
        """Handle the start of a call of the model.

        Args:
            inputs: The arguments of the call, nested as the framework passes them.

        Returns:
            False to skip this call: its end is then not reported either.
        """

    def wants(self, operation: Operation) -> Any | None:
        """Decide whether a call of an operation is observed, before any work on its tensors.

        Args:
            operation: The operation.

        Returns:
            None to skip the call. Anything else is a ticket, which is passed to ``on_tensor`` with each
            tensor of that call, including its gradients later.
        """

    def on_tensor(self, ticket: Any, tensor: CapturedTensor) -> None:
        """Receive a tensor of a call that ``wants`` accepted.

        Args:
            ticket: The value that ``wants`` returned.
            tensor: The tensor.
        """

    def on_forward_end(self, output: Any) -> None:
        """Handle the end of a call of the model.

        It runs on the thread of ``on_forward_start``. Calls on several threads may overlap.

        Args:
            output: The value it returned; None if it raised or was interrupted.
        """

    def on_error(self, error: Exception) -> None:
        """Handle an exception of another method, or of reading a tensor. Must not raise."""


class Handle(Protocol):
    """The result of ``Backend.attach``."""

    def remove(self) -> None:
        """Detach from the model. Calling it again has no effect."""


@runtime_checkable
class StepHandle(Handle, Protocol):
    """The handle of a framework in which a model is a value, so that training steps are observed instead."""

    def through(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls ``step`` and passes the tensors of the model in it to the tap.

        Args:
            step: A compiled training step.

        Raises:
            InputError: If the step cannot be observed.
        """


class GraphRecorder(Protocol):
    """Records the graph of one call of a model that runs in any case.

    A recorder with a true attribute ``any_thread`` may be ended on another thread than it began on.
    """

    def begin(self, model: Any, inputs: Any) -> None:
        """Start recording; called from ``Tap.on_forward_start``.

        Args:
            model: The model.
            inputs: The inputs passed to ``Tap.on_forward_start``.
        """

    def end(self, output: Any) -> Graph | None:
        """Stop recording, on the thread that began.

        Args:
            output: The value that the call returned; None if it raised.

        Returns:
            The graph, or None if it could not be recorded.
        """


class Backend(Protocol):
    """The adapter of one framework.

    Attributes:
        name: The framework's name.
        blind_spot: A sentence for a user whose operations were never called, on what this framework hides
            from observers; ``""`` if nothing.
    """

    name: str
    blind_spot: str

    def owns(self, model: Any) -> bool:
        """Return whether this is a model of the framework that can be attached to."""

    def operations(self, model: Any) -> list[Operation]:
        """Return the operations known before the first call, in order of declaration, the model itself first.

        The list is empty for a framework that creates operations during the first call. ``Tap.wants`` is then
        called for each of them as it runs.
        """

    def parameters(self, operation: Operation) -> Sequence[str]:
        """Return the names of an operation's own parameters (``weight``)."""

    def unit_axis(self, operation: Operation, shape: tuple[int, ...]) -> int | None:
        """Return the unit axis of an operation's output, as determined by its type alone.

        It is used if no graph determines the axis.

        Args:
            operation: The operation.
            shape: The shape of its output.

        Returns:
            The axis, or None if the type does not determine it. It must not be a guess.
        """

    def mode(self, model: Any) -> str:
        """Return ``"train"`` or ``"eval"``."""

    def inner(self, model: Any, *, compiled: bool) -> Any:
        """Return the model without wrappers.

        Args:
            model: The model.
            compiled: Whether to unwrap a compiled model too, and not only data parallelism.
        """

    def rows(self, inputs: Any, axis: int) -> int | None:
        """Return the length along ``axis`` of the first tensor in these arguments, or None."""

    def order(self, inputs: Any, axis: int) -> bytes | str | None:
        """Return a hash of all data in these arguments, to test whether epochs begin with the same batch.

        Args:
            inputs: The arguments.
            axis: The axis of their rows. A batch whose rows are all alike shows nothing of their order.

        Returns:
            A hash; or the reason why rows cannot be identified by their order of arrival, as text; or None if
            the framework cannot compute one.
        """

    def shuffled(self) -> str | None:
        """Return a description of what shuffles the rows at present, or None if nothing is known to."""

    def version(self, model: Any) -> int:
        """Return a number that changes if the parameters change."""

    def state(self, model: Any) -> Any:
        """Return all that decides a model's output besides its input, as arrays and text in containers.

        Two models with equal state are taken for the same. Return None if that cannot be known.
        """

    def inputs(self, model: Any, data: Any) -> Any:
        """Return data as inputs of the model: arrays become tensors on its device, floats in its dtype.

        Args:
            model: The model.
            data: An array or tensor, a tuple of positional arguments, or a mapping of keyword arguments.
        """

    def evaluation(self, model: Any) -> AbstractContextManager[Callable[[Any], Any]]:
        """Return a context in which the model is in evaluation mode, without gradients.

        It yields a function that calls the model with inputs (a tensor, a tuple of positional arguments, or a
        mapping of keyword arguments) and returns the output. At the end all is restored that calls changed in
        the model, and random states; a model is refused of which that is known to be impossible.
        """

    def graph_recorder(self, model: Any) -> GraphRecorder | None:
        """Return a recorder for the graph of the next call, or None if it cannot be recorded."""

    def attach(self, model: Any, operations: Iterable[Operation], kinds: Collection[str], tap: Tap) -> Handle:
        """Pass the tensors of some operations to a tap, until the handle is removed.

        Args:
            model: The model.
            operations: The operations to observe.
            kinds: The kinds of tensors, of ``core.record.KINDS``.
            tap: The observer.
        """


def modules_graph(backend: Backend, model: str, operations: Sequence[Operation]) -> Graph:
    """Return a graph of a model's operations by name alone, to look up addresses before the model has run.

    Args:
        backend: The model's backend.
        model: The model's name.
        operations: Its operations.
    """
    return Graph.of_modules(
        model,
        [(operation.address, operation.type) for operation in operations],
        [(at, name) for at, operation in enumerate(operations) for name in backend.parameters(operation)],
    )


#: Name of a framework's top package -> what makes its backend, or "module:attribute" to import it from.
_BACKENDS: dict[str, Callable[[], Backend] | str] = {
    "equinox": f"{__package__}.jax:JaxBackend",
    "flax": f"{__package__}.jax:JaxBackend",
    "keras": f"{__package__}.tensorflow.keras:KerasBackend",
    "mxnet": f"{__package__}.mxnet:MXNetBackend",
    "tensorflow": f"{__package__}.tensorflow.backend:TensorFlowBackend",
    "torch": f"{__package__}.torch:TorchBackend",
}


def register(framework: str, load: Callable[[], Backend] | str) -> None:
    """Register the backend of a framework for ``probe`` and ``inspect``.

    The last registration of a name is used.

    A package may instead declare an entry point with that name in the group ``intus.backends``.

    Args:
        framework: The name of the framework's top-level package (``"paddle"``). A model belongs to it if its
            class or a base class is defined in that package.
        load: A function without arguments that returns the backend (see ``Backend``), or its location as
            ``"package.module:Class"``, which is imported when the first such model is used.

    Example:
        >>> register("paddle", "intus_paddle.backend:PaddleBackend")
        >>> "paddle" in known()
        True
        >>> del _BACKENDS["paddle"]
    """
    _BACKENDS[framework] = load


def known() -> list[str]:
    """Return the names of the supported frameworks, including those declared by other packages."""
    return sorted({*_BACKENDS, *_declared(tuple(sys.path))})


@cache
def _declared(search: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Return the entry points of installed packages by name; ``search`` is where packages are looked for.

    To read them takes milliseconds, and a model's backend is found several times in a call.
    """
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def find(model: Any) -> Backend | None:
    """Return the backend of a model, without importing any framework to find it; None if it has none.

    Args:
        model: The model.
    """
    for framework in frameworks_of(type(model)):
        if (backend := _load(framework)).owns(model):
            return backend
    return None


def frameworks_of(cls: type) -> list[str]:
    """Return the supported frameworks whose packages define a class or one of its bases, nearest base first.

    A model of Keras is a module of PyTorch or Flax too, if it runs on these.
    """
    packages = dict.fromkeys(base.__module__.partition(".")[0] for base in cls.__mro__)
    frameworks = known()
    return [package for package in packages if package in frameworks]


def refuse_functions(model: Any) -> None:
    """Raise InputError for an object of TensorFlow that is no model, but that is taken for one.

    These are functions and what a SavedModel was loaded as, which have no layers, and what runs a Session.

    Args:
        model: What the caller passed as a model.
    """
    name, module = type(model).__name__.lstrip("_"), type(model).__module__
    is_function = callable(model) or ".saved_model." in module
    runs_session = ".monitored_session" in module
    if not (is_function or runs_session) or "tensorflow" not in frameworks_of(type(model)):
        return
    if runs_session:
        raise InputError(
            f"A {name} of TensorFlow runs a Session, which it may replace by another one. Pass the Session: "
            "a tf.compat.v1.Session of yours, or raw_session() of a SingularMonitoredSession."
        )
    if find(model) is None:
        raise InputError(
            f"A {name} of TensorFlow is not supported: a function (tf.function, or of a SavedModel) has no "
            "layers. Pass the Keras model or tf.Module that it was made of, made by its code or loaded from "
            "a .keras file."
        )


def for_model(model: Any) -> Backend:
    """Return the backend of a model, without importing any framework to find it.

    Args:
        model: The model.

    Raises:
        InputError: If no backend supports its type. The message names the supported frameworks.
    """
    backend = find(model)
    if backend is not None:
        return backend
    refuse_functions(model)
    raise InputError(
        f"A model of type {type(model).__module__}.{type(model).__qualname__} cannot be observed. "
        f"Pass a model of one of these frameworks: {', '.join(known())}."
    )


def check_kinds(kinds: Collection[str]) -> tuple[str, ...]:
    """Validate kinds of tensors.

    Args:
        kinds: A kind or several, of ``core.record.KINDS``.

    Returns:
        The kinds, without duplicates.

    Raises:
        InputError: If a kind does not exist, or there are none.

    Example:
        >>> check_kinds(["output", "output"])
        ('output',)
    """
    if isinstance(kinds, str):
        kinds = (kinds,)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        got = repr(unknown[0]) if unknown else "nothing"
        raise InputError(f"kinds must be one or more of {', '.join(KINDS)}, got {got}.")
    return tuple(dict.fromkeys(kinds))


def _load(framework: str) -> Backend:
    load = _BACKENDS.get(framework)
    if load is None:
        load = _declared(tuple(sys.path))[framework].load()
    if isinstance(load, str):
        module, _, attribute = load.partition(":")
        load = getattr(importlib.import_module(module), attribute)
    return load()
