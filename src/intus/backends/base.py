"""What a framework must offer to be watched, and the registry that finds it by the model's type.

A backend lists a model's operations and lets a *tap* see the tensors that pass through them. It knows
nothing of schedules, queues or servers: the tap decides, the backend looks.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..core.errors import InputError
from ..core.record import KINDS

ENTRY_POINTS = "intus.backends"


class Operation(NamedTuple):
    """One place in a model that can be watched.

    ``address`` is its place (``features.0``, ``""`` for the model itself), ``type`` the name of its class,
    ``module`` the framework's own object.
    """

    address: str
    type: str
    module: Any


@dataclass(frozen=True, slots=True, eq=False)
class CapturedTensor:
    """A tensor as it passes by: valid only while ``Tap.on_tensor`` runs, copied only if asked.

    ``address`` names the operation with its call (``fc1:2``), or the parameter (``fc1.weight``); ``index``
    tells which of several tensors it is; ``nbytes`` is the size of the whole copy. ``copy(rows, axis)``
    gives the numpy array, cut to at most ``rows`` along ``axis`` before anything is copied; ``project``
    of the same gives the rows projected to ``PROJECTED`` features, and what ``SUMMARY`` names of them.
    ``batch_axis`` is where its rows lie, if the operation says so.
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
    """What looks at the tensors. Its exceptions never reach the model: they come back to ``on_error``."""

    def on_forward_start(self, inputs: Any) -> bool | None:
        """The model is being called with these arguments, nested as the framework passes them. False where
        nothing of this call is wanted: the tap hears no more of it, not even its end."""

    def wants(self, operation: Operation) -> Any | None:
        """Asked once per call of an operation, before any work on tensors. None means no; anything
        else is a ticket, handed back with each tensor of that call, also later with its gradients."""

    def on_tensor(self, ticket: Any, seen: CapturedTensor) -> None:
        """A tensor of a call that was wanted."""

    def on_forward_end(self, output: Any) -> None:
        """The model's call is over and returned this; None when it raised or was interrupted. Comes on the
        thread that ``on_forward_start`` came on; calls on several threads may overlap."""

    def on_error(self, error: Exception) -> None:
        """Something above, or reading a tensor, raised. Must not raise itself."""


class Handle(Protocol):
    """What ``attach`` returns."""

    def remove(self) -> None:
        """Take everything off the model again; doing so twice is harmless."""


class Backend(Protocol):
    """One framework."""

    name: str

    def owns(self, model: Any) -> bool:
        """Whether this is a model of the framework that can be attached to."""

    def operations(self, model: Any) -> list[Operation]:
        """Every operation that can run, in the order the model declares them, the model itself first."""

    def mode(self, model: Any) -> str:
        """``"train"`` or ``"eval"``."""

    def inner(self, model: Any, *, compiled: bool) -> Any:
        """The model itself, where data parallelism has put something around it; with ``compiled``, or a
        compiler."""

    def rows(self, inputs: Any, axis: int) -> int | None:
        """How many rows the first tensor of these arguments has along ``axis``; None where there is none."""

    def order(self, inputs: Any) -> bytes | None:
        """A hash of the data in these arguments, by which an epoch that begins otherwise is known; None where
        the order of arrival tells nothing."""

    def shuffled(self) -> str | None:
        """What brings rows in random order just now, in words; None where nothing is known to."""

    def version(self, model: Any) -> int:
        """A number that changes when the parameters do."""

    def run(self, model: Any, inputs: Any) -> None:
        """Call it once in eval mode for those who watch it, and leave everything as it was."""

    def attach(self, model: Any, operations: Iterable[Operation], kinds: Collection[str], tap: Tap) -> Handle:
        """Let ``tap`` see the tensors of ``kinds`` at ``operations`` until the handle is removed."""


#: Name of a framework's top package -> what makes its backend, or "module:attribute" to import it from.
_BACKENDS: dict[str, Callable[[], Backend] | str] = {"torch": f"{__package__}.torch:TorchBackend"}


def register(framework: str, load: Callable[[], Backend] | str) -> None:
    """Teach intus a framework; the last registration of a name wins.

    ``framework`` is the framework's top package (``"mxnet"``): a model belongs to it when a class it
    derives from does. ``load`` makes the backend, or names it as ``"package.module:Class"``; nothing is
    imported before such a model comes along. Packages may instead declare an entry point of that name
    in the group ``intus.backends``.
    """
    _BACKENDS[framework] = load


def known() -> list[str]:
    """Names of the frameworks that can be watched, also those that other packages declare."""
    return sorted({*_BACKENDS, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def for_model(model: Any) -> Backend:
    """The backend of a model, found by its type; no framework is imported to find it.

    Raises InputError naming the type and the frameworks known.
    """
    tops = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    for framework in known():
        if framework in tops and (backend := _load(framework)).owns(model):
            return backend
    raise InputError(
        f"A model of type {type(model).__module__}.{type(model).__qualname__} cannot be watched. "
        f"Pass a model of one of these frameworks: {', '.join(known())}."
    )


def check_kinds(kinds: Collection[str]) -> tuple[str, ...]:
    """The kinds a caller wrote, each once; raises InputError for one that does not exist.

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
