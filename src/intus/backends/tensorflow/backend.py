"""The backend of TensorFlow: Sessions of version 1, and modules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from inspect import signature
from typing import Any

import numpy as np
import tensorflow as tf

from ...core.errors import InputError
from ...core.traced import Traced
from ..base import GraphRecorder, Handle, Operation, Tap
from .calls import KINDS, WITHOUT_GRADIENTS, mode_of
from .function_graph import FunctionRecorder, trace_function
from .gate import as_tensors
from .modules import attach_modules, is_function, module_evaluation, modules_of, structure_of, variables_of
from .plan import closed, observable
from .session import (
    SESSIONS,
    SessionAttachment,
    check_open,
    session_evaluation,
    session_mode,
    variables,
)
from .session_graph import SessionRecorder, trace_session
from .values import as_inputs, checksum, content_hash, first_batch, first_rows, possible_kinds

_MOST_NAMED = 6
_HIDDEN = (
    "Operations inside of {} are not recorded, because a loop, a branch or a function runs them. What it "
    "returns is, and all that follows."
)


class TensorFlowBackend:
    """Observes Sessions and ``tf.Module``; see ``Backend`` for the contract of each method."""

    name = "tensorflow"
    blind_spot = (
        "What runs inside tf.cond and tf.while_loop is not recorded. Of a Session, nor is what partial_run "
        "and make_callable without a feed_list run, and a probe set leaves out what needs a placeholder that "
        "it does not feed, or draws random numbers, such as all that follows a dropout. Of a module, a "
        "tf.function of yours is not recorded that was traced before probe() was called, or that XLA "
        "compiles (jit_compile=True)."
    )

    def owns(self, model: Any) -> bool:
        """Return whether the model is a Session or a module."""
        return isinstance(model, (*SESSIONS, tf.Module))

    def operations(self, model: Any) -> list[Operation]:
        """Return the modules; of a Session the operations that compute floats with axes from data."""
        if isinstance(model, tf.Module):
            return modules_of(model)
        check_open(model)
        return observable(model.graph)

    def parameters(self, operation: Operation) -> list[str]:
        """Return the names of a module's trainable variables; those of a graph belong to no operation."""
        return list(variables_of(operation.module)) if isinstance(operation.module, tf.Module) else []

    def unit_axis(self, operation: Operation, shape: tuple[int, ...]) -> int | None:
        """Return the last axis of rows of features, or the axis of channels that the operation declares."""
        if 1 <= len(shape) <= 2:
            return len(shape) - 1
        op = operation.module
        if isinstance(op, tf.Module):
            return None
        layout = op.node_def.attr["data_format"].s.decode() if "data_format" in op.node_def.attr else ""
        if layout.startswith("NC"):
            return 1
        return len(shape) - 1 if layout.endswith("C") else None

    def mode(self, model: Any) -> str:
        """Return ``"train"`` while a run changes variables or a tape records the call, else ``"eval"``."""
        return mode_of(model) if isinstance(model, tf.Module) else session_mode(model)

    def inner(self, model: Any, *, compiled: bool) -> Any:
        """Return the model: there are no wrappers."""
        return model

    def rows(self, inputs: Any, axis: int) -> int | None:
        """Return the length along ``axis`` of the first array."""
        return first_rows(inputs, axis)

    def order(self, inputs: Any, axis: int) -> bytes | str | None:
        """Return a hash of the first array, or the reason why there is none."""
        return first_batch(inputs, axis)

    def shuffled(self) -> None:
        """Return None: what shuffles the rows is not known."""

    def hidden(self, model: Any) -> str:
        """Return a sentence that names what hides operations of a Session's graph; ``""`` if nothing does."""
        names = [] if isinstance(model, tf.Module) else closed(model.graph)
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return _HIDDEN.format(", ".join(map(repr, names[:_MOST_NAMED])) + more) if names else ""

    def version(self, model: Any) -> int:
        """Return a checksum of the values of all variables; 0 if some have none yet."""
        values = _values(model)
        return 0 if values is None else checksum(values)

    def state(self, model: Any) -> Any:
        """Return a hash of a Session's graph and variables; None if some have no value, and of modules."""
        values = None if isinstance(model, tf.Module) else _values(model)
        return None if values is None else content_hash([str(model.graph.as_graph_def()), *values])

    def inputs(self, model: Any, data: Any) -> Any:
        """Return arrays for a module; for a Session its feeds, an array as that of the only placeholder.

        Raises:
            InputError: If an array is given, and the graph has several placeholders.
        """
        if isinstance(model, tf.Module):
            floats = [one.dtype.name for one in model.variables if one.dtype.is_floating]
            return as_tensors(as_inputs(data, floats[0] if floats else ""))
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
        """Return the context manager ``session_evaluation`` or ``module_evaluation``."""
        return module_evaluation(model) if isinstance(model, tf.Module) else session_evaluation(model)

    def graph_recorder(self, model: Any) -> GraphRecorder | None:
        """Return a recorder of the graph."""
        return FunctionRecorder(structure_of) if isinstance(model, tf.Module) else SessionRecorder()

    def trace(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
        """Call a module, or a Session's ``run``, with these arguments; return the graph and the values.

        Raises:
            CaptureError: If it cannot run.
        """
        if isinstance(model, tf.Module):
            with module_evaluation(model):
                return trace_function(model, structure_of(model), args, kwargs)
        fetches, feeds = _arguments_of_run(args, kwargs)
        return trace_session(model, fetches, feeds or {})

    def attach(self, model: Any, operations: Iterable[Operation], kinds: Collection[str], tap: Tap) -> Handle:
        """Pass the tensors of operations to a tap, until the handle is removed."""
        if isinstance(model, tf.Module):
            apart = is_function(model)  # gradients are computed by another function
            of = "a module whose __call__ is a tf.function" if apart else "a module"
            checked = possible_kinds(kinds, WITHOUT_GRADIENTS if apart else KINDS, of)
            return attach_modules(model, operations, checked, tap)
        return SessionAttachment(model, operations, kinds, tap)


def _values(model: Any) -> list[np.ndarray] | None:
    """Return the values of all variables, or None if some have none."""
    if isinstance(model, tf.Module):
        return [np.asarray(one.numpy()) for one in model.variables]
    return variables(model)


def _arguments_of_run(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the fetches and feeds among the arguments of a Session's ``run``.

    Raises:
        InputError: If ``run`` does not take them.
    """
    try:
        given = signature(tf.compat.v1.Session.run).bind(None, *args, **kwargs).arguments
    except TypeError as error:
        raise InputError(
            f"Of a Session, pass what you pass to its run, trace(session, fetches, feed_dict): {error}."
        ) from None
    return given["fetches"], given.get("feed_dict")
