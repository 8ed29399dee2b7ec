"""The backend of TensorFlow: Sessions of version 1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...core.errors import InputError
from ...core.traced import Traced
from ..base import GraphRecorder, Handle, Operation, Tap
from .plan import observable
from .session import (
    SESSIONS,
    SessionAttachment,
    check_open,
    session_evaluation,
    session_mode,
    variables,
)
from .session_graph import SessionRecorder, trace_session
from .values import checksum, content_hash, first_batch, first_rows


class TensorFlowBackend:
    """Observes Sessions; see ``Backend`` for the contract of each method."""

    name = "tensorflow"
    blind_spot = (
        "Of a Session, what runs inside tf.cond and tf.while_loop is not recorded, nor is what make_callable "
        "and partial_run run."
    )

    def owns(self, model: Any) -> bool:
        """Return whether the model is a Session."""
        return isinstance(model, SESSIONS)

    def operations(self, model: Any) -> list[Operation]:
        """Return the operations of the graph that compute floating-point tensors from data."""
        check_open(model)
        return observable(model.graph)

    def parameters(self, operation: Operation) -> list[str]:
        """Return nothing: the variables of a graph belong to no operation."""
        return []

    def unit_axis(self, operation: Operation, shape: tuple[int, ...]) -> int | None:
        """Return the last axis of rows of features, or the axis of channels that the operation declares."""
        if 1 <= len(shape) <= 2:
            return len(shape) - 1
        op = operation.module
        layout = op.node_def.attr["data_format"].s.decode() if "data_format" in op.node_def.attr else ""
        if layout.startswith("NC"):
            return 1
        return len(shape) - 1 if layout.endswith("C") else None

    def mode(self, model: Any) -> str:
        """Return ``"train"`` while a run changes variables, else ``"eval"``."""
        return session_mode(model)

    def inner(self, model: Any, *, compiled: bool) -> Any:
        """Return the Session: there are no wrappers."""
        return model

    def rows(self, inputs: Any, axis: int) -> int | None:
        """Return the length along ``axis`` of the first array that is fed."""
        return first_rows(_arrays(inputs), axis)

    def order(self, inputs: Any) -> bytes | str | None:
        """Return a hash of the first array that is fed, or the reason why there is none."""
        return first_batch(_arrays(inputs))

    def shuffled(self) -> None:
        """Return None: what shuffles the rows is not known."""

    def version(self, model: Any) -> int:
        """Return a checksum of the values of all variables."""
        return checksum(variables(model) or ())

    def state(self, model: Any) -> Any:
        """Return a hash of the graph and the values of all variables; None if some have none."""
        values = variables(model)
        return None if values is None else content_hash([str(model.graph.as_graph_def()), *values])

    def inputs(self, model: Any, data: Any) -> Any:
        """Return feeds unchanged; an array as the feed of the only placeholder.

        Raises:
            InputError: If an array is given, and the graph has several placeholders.
        """
        if isinstance(data, Mapping):
            return data
        found = [op.outputs[0].name for op in model.graph.get_operations() if op.type == "Placeholder"]
        if len(found) != 1:
            raise InputError(
                f"The Session's graph has {len(found)} placeholders ({', '.join(map(repr, found[:6]))}). "
                "Pass inputs as a mapping of their names to arrays."
            )
        return {found[0]: data}

    def evaluation(self, model: Any) -> AbstractContextManager[Callable[[Any], Any]]:
        """Return the context manager ``session.session_evaluation``."""
        return session_evaluation(model)

    def graph_recorder(self, model: Any) -> GraphRecorder | None:
        """Return a recorder of the Session's graph."""
        return SessionRecorder()

    def trace(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
        """Run a Session with the arguments of its ``run``, and return the graph and the values.

        Raises:
            CaptureError: If it cannot run.
        """
        fetches, feeds = _arguments_of_run(*args, **kwargs)
        return trace_session(model, fetches, feeds or {})

    def attach(self, model: Any, operations: Iterable[Operation], kinds: Collection[str], tap: Tap) -> Handle:
        """Pass the tensors of operations to a tap, until the handle is removed."""
        return SessionAttachment(model, operations, kinds, tap)


def _arrays(inputs: Any) -> list[np.ndarray]:
    """Return the arrays of a feed_dict, which is the only argument of a pass, or of a mapping."""
    feeds = inputs if isinstance(inputs, Mapping) else inputs[0][0] or {}
    return [np.asarray(value) for value in feeds.values() if not callable(value)]


def _arguments_of_run(fetches: Any, feed_dict: Any = None, **options: Any) -> tuple[Any, Any]:
    return fetches, feed_dict
