"""The protocol that makes a framework observable, and the registry that finds it by a model's type.

A backend lists a model's operations, runs it, records its graph, and lets a *tap* see the tensors that pass
through. The monitor (``probe``) and ``inspect`` reach models through this protocol alone. A backend knows
nothing of schedules, queues or servers: the tap decides, the backend observes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..core.errors import InputError
from ..core.graph import Graph
from ..core.record import KINDS

ENTRY_POINTS = "intus.backends"


class Operation(NamedTuple):
    """A place in a model that can be observed.

    Attributes:
        address: Its address (``features.0``, ``""`` for the model itself).
        type: The name of its class or kind.
        module: The framework's own object; only its backend looks inside.
    """

    address: str
    type: str
    module: Any


@dataclass(frozen=True, slots=True, eq=False)
class CapturedTensor:
    """A tensor as it passes by: valid only inside ``Tap.on_tensor``, copied only if asked.

    Attributes:
        address: The operation with its call (``fc1:2``), or the parameter (``fc1.weight``).
        kind: One of ``core.record.KINDS``.
        index: Which of several tensors it is.
        shape: Its shape.
        nbytes: The size of the whole copy.
        copy: ``copy(rows, axis)`` returns a numpy array, cut to at most ``rows`` along ``axis`` before
            anything is copied; ``rows`` None for all.
        batch_axis: The axis of its rows, if the operation tells; else None.
        project: ``project(rows, axis)`` of the same returns the rows projected to ``PROJECTED`` features, and
            their ``SUMMARY``; None where the framework has no way of its own, so that numpy does it.
    """

    address: str
    kind: str
    index: int
    shape: tuple[int, ...]
    nbytes: int
    copy: Callable[[int | None, int], np.ndarray]
    batch_axis: int | None = None
    project: Callable[[int | None, int], tuple[np.ndarray, np.ndarray]] | None = None

    @property
    def has_batch(self) -> bool:
        """Whether the tensor can have a batch axis: parameters and scalars cannot."""
        return bool(self.shape) and self.kind not in ("parameter", "parameter_grad", "update")


class Tap(Protocol):
    """What observes the tensors. Its exceptions never reach the model: they come back to ``on_error``."""

    def on_forward_start(self, inputs: Any) -> bool | None:
        """Called before each call of the model, with its arguments nested as the framework passes them.

        Returns:
            False if nothing of this call is wanted: the tap is then not told of its end either.
        """

    def wants(self, operation: Operation) -> Any | None:
        """Called once per call of an operation, before any work on tensors.

        Returns:
            None if it is not wanted; anything else is a ticket, which comes back with each tensor of that
            call, also later with its gradients.
        """

    def on_tensor(self, ticket: Any, tensor: CapturedTensor) -> None:
        """Called with each tensor of a call that was wanted."""

    def on_forward_end(self, output: Any) -> None:
        """Called after the model's call, with what it returned; None if it raised or was interrupted.

        Runs on the thread of ``on_forward_start``; calls on several threads may overlap.
        """

    def on_error(self, error: Exception) -> None:
        """Called when one of the above, or reading a tensor, raised. Must not raise itself."""


class Handle(Protocol):
    """What ``Backend.attach`` returns."""

    def remove(self) -> None:
        """Take everything off the model again. Doing so twice is harmless."""


class GraphRecorder(Protocol):
    """Records the graph of one call of a model that runs anyway."""

    def begin(self, model: Any, inputs: Any) -> None:
        """Start recording; called from ``Tap.on_forward_start`` with the same inputs."""

    def end(self, output: Any) -> Graph | None:
        """Stop recording, on the thread that began.

        Args:
            output: What the call returned; None if it raised.

        Returns:
            The graph, or None if nothing can be told.
        """


class Backend(Protocol):
    """One framework.

    Attributes:
        name: The framework's name.
        blind_spot: A sentence for the user whose operations were never called: what this framework hides
            from observers; ``""`` if nothing.
    """

    name: str
    blind_spot: str

    def owns(self, model: Any) -> bool:
        """Return whether this is a model of the framework that can be attached to."""

    def operations(self, model: Any) -> list[Operation]:
        """Return the operations known before the first call, in declaration order, the model itself first.

        A framework that learns of operations only while they run may return none: a tap is asked about
        each as it is met.
        """

    def parameters(self, operation: Operation) -> Sequence[str]:
        """Return the names of the parameters that an operation holds itself (``weight``)."""

    def unit_axis(self, operation: Operation, shape: tuple[int, ...]) -> int | None:
        """Return the axis of the units of an operation's output of this shape, from its kind alone.

        Asked where no graph tells. None if the kind does not tell: it must not guess.
        """

    def mode(self, model: Any) -> str:
        """Return ``"train"`` or ``"eval"``."""

    def inner(self, model: Any, *, compiled: bool) -> Any:
        """Return the model itself, without the wrapper of data parallelism or, with ``compiled``, a
        compiler.
        """

    def rows(self, inputs: Any, axis: int) -> int | None:
        """Return the length of the first tensor in these arguments along ``axis``; None if there is none."""

    def order(self, inputs: Any) -> bytes | str | None:
        """Return what identifies the data in these arguments, to see whether epochs begin alike.

        Returns:
            A hash; or, as text, the reason why the order of arrival tells nothing, to follow "its rows
            cannot be told by their order of arrival: "; or None if the framework cannot tell.
        """

    def shuffled(self) -> str | None:
        """Return what brings rows in random order now, in words; None if nothing is known to."""

    def version(self, model: Any) -> int:
        """Return a number that changes when the parameters do."""

    def inputs(self, model: Any, data: Any) -> Any:
        """Return data as the model takes them: arrays as tensors on its device, floats in its dtype.

        Args:
            model: The model.
            data: An array or tensor, a tuple of positional arguments, or a mapping of keywords.
        """

    def evaluation(self, model: Any) -> AbstractContextManager[Callable[[Any], Any]]:
        """Return a context in which the model is in evaluation mode, without gradients.

        It yields a function that calls the model with inputs (one, a tuple of arguments, or a mapping
        of keywords) and returns the output. Modes, buffers and random states are restored at the end.
        """

    def graph_recorder(self, model: Any) -> GraphRecorder | None:
        """Return what records the graph of the next call; None if the framework or model cannot be
        recorded.
        """

    def attach(self, model: Any, operations: Iterable[Operation], kinds: Collection[str], tap: Tap) -> Handle:
        """Let ``tap`` see the tensors of ``kinds`` at ``operations`` until the handle is removed."""


def modules_graph(backend: Backend, model: str, operations: Sequence[Operation]) -> Graph:
    """Return a graph of a model's operations by name alone, to look addresses up in before it has run."""
    return Graph.of_modules(
        model,
        [(operation.address, operation.type) for operation in operations],
        [(at, name) for at, operation in enumerate(operations) for name in backend.parameters(operation)],
    )


#: Name of a framework's top package -> what makes its backend, or "module:attribute" to import it from.
_BACKENDS: dict[str, Callable[[], Backend] | str] = {"torch": f"{__package__}.torch:TorchBackend"}


def register(framework: str, load: Callable[[], Backend] | str) -> None:
    """Register a framework; the last registration of a name wins.

    Packages may instead declare an entry point of that name in the group ``intus.backends``.

    Args:
        framework: The framework's top package (``"mxnet"``); a model belongs to it if a class that it
            derives from does.
        load: Makes the backend, or names it as ``"package.module:Class"``, which is imported when the
            first such model appears.
    """
    _BACKENDS[framework] = load


def known() -> list[str]:
    """Return the names of the frameworks that can be observed, including those that other packages
    declare.
    """
    return sorted({*_BACKENDS, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def for_model(model: Any) -> Backend:
    """Return the backend of a model, found by the model's type; no framework is imported to find it.

    Raises:
        InputError: If no backend knows the type; the message names the frameworks known.
    """
    tops = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    for framework in known():
        if framework in tops and (backend := _load(framework)).owns(model):
            return backend
    raise InputError(
        f"A model of type {type(model).__module__}.{type(model).__qualname__} cannot be observed. "
        f"Pass a model of one of these frameworks: {', '.join(known())}."
    )


def check_kinds(kinds: Collection[str]) -> tuple[str, ...]:
    """Return the kinds that a caller wrote, each once.

    Raises:
        InputError: If one does not exist, or there are none.

    Example:
        >>> check_kinds(["output", "output"])
        ('output',)
    """
    if isinstance(kinds, str):
        kinds = (kinds,)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        wrote = repr(unknown[0]) if unknown else "nothing"
        raise InputError(f"kinds has {wrote}. Write one or more of: {', '.join(KINDS)}.")
    return tuple(dict.fromkeys(kinds))


def _load(framework: str) -> Backend:
    load = _BACKENDS.get(framework)
    if load is None:
        (point, *_) = entry_points(group=ENTRY_POINTS, name=framework)
        load = point.load()
    if isinstance(load, str):
        module, _, attribute = load.partition(":")
        load = getattr(importlib.import_module(module), attribute)
    return load()
