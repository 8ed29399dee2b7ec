"""The graph of a Session: its operations are modules, each by its name, and so are name scopes.

A scope ends in a slash (``norm/``) if an operation has its name, such as the last one of
``tf.nn.l2_normalize(name="norm")``, which is in the scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from ...core.address import Address
from ...core.building import GraphBuilder, Scope
from ...core.errors import CaptureError, InputError
from ...core.graph import Graph
from ...core.traced import Traced
from .graph import FACTS, HANDLES, PASSIVE, Rows, meta_of, name_of, values_by_row
from .plan import ancestors, can_fetch, elements, fetched_tensors, forward, is_random, observable
from .purpose import is_update
from .session import fed_names, plain_run

_DRAWN = "The run drew random numbers (%s). A Session cannot restore the state of its generators."


def trace_session(session: Any, fetches: Any, feeds: Mapping[Any, Any]) -> Traced:
    """Run a Session once, and return the graph of what it computes, without gradients and updates.

    Args:
        session: The Session.
        fetches: The fetches of ``run``; None for all that can be observed and computed from the feeds.
        feeds: The feeds of ``run``.

    Raises:
        InputError: If the fetches write a variable.
        CaptureError: If the fetches are not computed from the feeds.
    """
    graph = session.graph
    fed = frozenset(fed_names(graph, feeds))
    ends = elements(graph, fetches)
    needed = ancestors(ends, fed)
    if update := next((op for op in graph.get_operations() if op in needed and is_update(op)), None):
        raise InputError(
            f"The fetches need {update.name} ({update.type}), which writes a variable, and a trace must not "
            "train. Trace what computes the loss instead."
        )
    if unfed := sorted(op.outputs[0].name for op in needed if op.type == "Placeholder"):
        named, example = ", ".join(map(repr, unfed)), f"{{{unfed[0]!r}: …}}"
        raise CaptureError(
            f"The Session could not run the fetches: they need {named}, of which the feeds have no value. "
            f"Pass what you pass to run: trace(session, fetches, {example})."
        )
    builder, rows = _build(graph, ends, fed)
    _add_outputs(builder, rows, fetched_tensors(graph, fetches))
    operations = {tensor.op for tensor in (graph.as_graph_element(name) for name in rows.rows)}
    fetched = [
        name
        for name in rows.rows
        if (tensor := graph.as_graph_element(name)).op in operations
        and tensor.dtype not in HANDLES
        and can_fetch(tensor)
    ]
    try:
        arrays = plain_run(session, fetched, feeds)
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise CaptureError(f"The Session could not run the fetches: {_reason(error)}") from error
    drawn = sorted(op.name for op in needed if is_random(op))
    facts = {**FACTS, "not_restored": [_DRAWN % ", ".join(drawn)]} if drawn else FACTS
    built, order = _graph(graph, builder, rows, facts)
    values = {name: np.asarray(array) for name, array in zip(fetched, arrays, strict=True)}
    return Traced(built, values_by_row(rows.rows, values, order))


def _reason(error: Exception) -> str:
    """Return the line of an error of a Session that says what is wrong; where it was made comes before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    after = [at + 1 for at, line in enumerate(lines[:-1]) if line.startswith("Node: ")]
    return lines[after[0]] if after else next(iter(lines), type(error).__name__)


class SessionRecorder:
    """Records the graph of a run; see ``backends.base.GraphRecorder``."""

    any_thread = True

    def begin(self, model: Any, inputs: Any) -> None:
        """Note the Session."""
        self._session = model

    def end(self, output: Any) -> Graph | None:
        """Return the graph of all that can be observed."""
        graph = self._session.graph
        ends = [one.module for one in observable(graph)]
        builder, rows = _build(graph, ends, frozenset())
        return _graph(graph, builder, rows, FACTS)[0]


def _build(graph: Any, ends: Iterable[Any], fed: frozenset[str]) -> tuple[GraphBuilder, Rows]:
    builder = GraphBuilder("Session")
    needed = ancestors(ends, fed)
    variables, buffers = {}, {}
    trained = {id(one) for one in graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)}
    for variable in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES):
        handle = variable.handle if hasattr(variable, "handle") else variable.op.outputs[0]
        if handle.op in needed:
            variables[handle.name] = address = str(Address(variable.op.name))
            if id(variable) in trained:
                builder.param(address, variable.shape.as_list(), variable.dtype.base_dtype.name)
            else:
                buffers[address] = variable
    made = [op for op in forward(graph) if op in needed]
    names = {op.name for op in graph.get_operations()}
    opened = {scope for op in made if op.type not in PASSIVE for scope in _scopes_around(op.name)}

    def scope_of(op: Any) -> list[Scope]:
        around = [*_scopes_around(op.name), *([op.name] if op.name in opened else [])]
        scopes = [Scope(str(Address(f"{one}/" if one in names else one)), "scope") for one in around]
        return [*scopes, Scope(str(Address(op.name)), op.type)]

    rows = Rows(builder, variables, buffers, scope_of)
    for name in sorted(fed):
        tensor = graph.get_tensor_by_name(name)
        rows.rows[name] = builder.input(name_of(tensor), *meta_of(tensor))
    rows.add(made)
    for op in made:
        for tensor in op.outputs:
            if tensor.name in rows.rows and tensor.name not in fed:
                builder.returns(rows.rows[tensor.name], scope_of(op))
    return builder, rows


def _graph(graph: Any, builder: GraphBuilder, rows: Rows, facts: Mapping[str, Any]) -> tuple[Graph, Any]:
    """Return the built graph, which knows the names that TensorFlow gives to others than the graph does.

    TensorFlow calls the second product ``MatMul_1``, and the label of the first begins with that. The second
    output of an operation is ``split:1``, as is the first call of a module.
    """
    built, order = builder.graph(facts)
    others = {}
    for tensor in (tensor for op in graph.get_operations() for tensor in op.outputs):
        name = f"{Address(tensor.op.name)}:{tensor.value_index}".removesuffix(":0")
        meant = built.rows(name)
        row = rows.rows.get(tensor.name)
        if (name in built.types) if meant is None else (row is None or meant[0] != order[row]):
            others[name] = "" if row is None else built.label(int(order[row]))
    return (replace(built, facts={**built.facts, "other_names": others}) if others else built), order


def _scopes_around(name: str) -> list[str]:
    """Return the name scopes of an operation, outermost first: ``a`` and ``a/b`` of ``a/b/c``."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def _add_outputs(builder: GraphBuilder, rows: Rows, tensors: Iterable[Any]) -> None:
    """Declare the fetched tensors as outputs of the model."""
    for tensor in tensors:
        builder.output(name_of(tensor), rows.returned(tensor))
