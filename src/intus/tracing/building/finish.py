"""Build a Trace from a finished capture: assign values and gradients to the rows of its graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from ...core.errors import AddressError, CaptureError, InputError, IntusError
from ...core.graph import Graph
from ...core.selection import Selection, select
from ...storage.value_folder import GRAPH
from ...viewing.repr_text import listed
from ..capture.interpose import Capture
from ..capture.memory import memory_of
from ..capture.saving.gradients import Nodes, code_in_backward, register_hooks, saved_bytes
from ..capture.saving.kept import Kept
from ..capture.saving.store import Store
from ..capture.saving.stored import Stored
from ..capture.saving.values import Values
from ..replaying.replay import Replays
from ..results.files import save
from ..results.op import Op
from ..results.trace import Trace
from .assemble import assemble

#: Buffers that BatchNorm writes in training and that no backward pass reads.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


_FREED = "was in memory that the model freed during the pass. Trace with copy=True to keep it"


def finish(
    capture: Capture, model: str, facts: dict[str, Any], grads: bool | Selection = False, output: Any = None
) -> Trace:
    """Build the trace of a finished capture.

    Args:
        capture: The capture.
        model: The name of the model.
        facts: Facts about the pass to store in the graph; the form of the values is added.
        grads: The ops whose gradients to save: True for all, or a selection.
        output: What the model returned.

    Raises:
        AddressError: If an address in ``save`` or ``grads`` is not in the graph.
        CaptureError: If values could not be written to the store, or if gradients would be wrong.
        InputError: If a function passed as ``save`` or ``transform`` raised.
    """
    values, recording = capture.values, capture.recording
    if lost := capture.not_restored():
        facts["not_restored"] = lost
    if values.form is not None and values.form.changes:
        facts["form"] = values.form.changes
    graph, graph_row = assemble(recording, model, facts)
    failed = recording.failure is not None
    recording.failure = None  # it refers to frames that refer to the recording: a cycle
    values.write()
    everything = values.chooser is None or values.chooser.everything
    store, call_log = values.store, capture.call_log
    kept = values.kept if store is None else Stored(store.places)
    maybe_modified = frozenset(row for offset in values.maybe_modified() if (row := graph_row(offset)) >= 0)
    replays = Replays(recording, call_log, graph_row, kept if everything else {}) if call_log else None
    result = Trace(graph, _values_by_row(capture, graph_row), maybe_modified, replays)
    result.not_stored = {row: _FREED for offset in values.freed if (row := graph_row(offset)) >= 0}
    if values.error is None and not everything:
        _discard_unselected(result, values, graph_row, failed)
    if store is not None:
        with _write_errors(store, quiet=failed or values.error is not None):
            _close(store, result, capture, graph_row)
    if values.error is not None and not failed:
        raise _saving_error(values.error, store, graph, graph_row)
    if values.nodes is not None and not failed:
        _add_gradients(result, capture, graph_row, grads, output)
    if store is not None:
        with _write_errors(store, quiet=failed):
            save(result, store.folder / GRAPH, values=False)
    return result


@contextmanager
def _write_errors(store: Store, *, quiet: bool) -> Iterator[None]:
    """Turn an OSError into a CaptureError; ignore it with ``quiet``, if a more important error follows."""
    try:
        yield
    except OSError as error:
        if not quiet:
            raise CaptureError(
                f"The store {str(store.folder)!r} could not be completed: {error}. Its values were written, "
                "and can be read with safetensors."
            ) from error


def _values_by_row(capture: Capture, graph_row: Callable[[int], int]) -> MutableMapping[int, Tensor]:
    """Return the saved values by graph row."""
    values = capture.values
    if values.store is not None:
        places = values.store.places
        return Stored({row: places[offset] for offset in sorted(places) if (row := graph_row(offset)) >= 0})
    kept, shared, exposed = dict[int, Tensor](), [], []
    watched = capture.recording.exposed | capture.recording.restorer.memories
    for offset in sorted(values.kept):
        row = graph_row(offset)
        if row >= 0:
            kept[row] = value = values.kept[offset]
            if values.is_shared(offset):
                shared.append(row)
                if memory_of(value) in watched:
                    exposed.append(row)
    return Kept(kept, shared, exposed)


def _close(store: Store, trace: Trace, capture: Capture, graph_row: Callable[[int], int]) -> None:
    """Rename the tensors of the store to the labels of their ops."""
    labels = {
        offset: trace.graph.label(graph_row(offset))
        for offset in store.places
        if graph_row(offset) in trace.values
    }
    try:
        store.close(labels)
    finally:
        trace.values = _values_by_row(capture, graph_row)
    for offset, why in store.skipped.items():
        if (row := graph_row(offset)) >= 0:
            trace.not_stored[row] = f"{why}. Trace without store= to keep it in memory"


def _discard_unselected(trace: Trace, values: Values, graph_row: Callable[[int], int], failed: bool) -> None:
    """Discard the values that were kept during the pass but are not selected."""
    assert values.chooser is not None
    try:
        chosen = values.chooser.rows(trace.graph, graph_row, lambda row: Op(trace, row))
    except AddressError:
        if not failed:
            raise
        return  # an op that the pass did not reach has no label; the model's exception is more important
    assert isinstance(trace.values, Stored | Kept)
    trace.values = trace.values.only(chosen)


def _saving_error(
    error: tuple[int, Exception], store: Store | None, graph: Graph, graph_row: Callable[[int], int]
) -> IntusError:
    """Return the error to raise for an exception that saving a value raised, with the label of the op."""
    offset, cause = error
    label = (
        repr(graph.label(graph_row(offset))) if graph_row(offset) >= 0 else "an op that is not in the graph"
    )
    result: IntusError
    if store is not None and isinstance(cause, OSError):
        result = CaptureError(
            f"The values from {label} on could not be written to {str(store.folder)!r}: {cause}. The "
            f"{len(store.places)} values before it were written and can be read with safetensors."
        )
    else:
        result = InputError(
            f"The function passed as save= or transform= failed at {label}: {type(cause).__name__}: {cause}"
        )
    result.__cause__ = cause
    return result


def _add_gradients(
    trace: Trace, capture: Capture, graph_row: Callable[[int], int], grads: bool | Selection, output: Any
) -> None:
    """Add what autograd saved to the graph's facts, and register the hooks that save gradients.

    Raises:
        CaptureError: If memory that backward needs was restored after the pass.
    """
    nodes, addresses = capture.values.nodes, capture.recording.addresses
    assert nodes is not None
    nodes.end()
    own = [t for _, t in (*addresses.params, *addresses.buffers)]
    sizes, stale = saved_bytes(nodes, own)
    statistics = {memory_of(t) for name, t in addresses.buffers if name.endswith(_STATISTICS)}
    if stale and (written := set(capture.restored) - statistics):
        tensors = (*addresses.params, *addresses.buffers)
        names = [name for name, t in tensors if memory_of(t) in written]
        raise CaptureError(
            f"The model writes into {listed(names) or 'an input or another tensor from before the pass'}, "
            "and autograd needs the written values. A trace restores such memory after the pass, so backward "
            "would fail. With grads=True give the model a clone to write into, or trace with grads=False."
        )
    _refuse_code_in_backward(capture, nodes, set(capture.restored) - statistics)
    autograd = {
        graph_row(offset): [node.name(), sizes.get(offset, 0)]
        for offset, (node, *_) in nodes.computed.items()
        if graph_row(offset) >= 0
    }
    facts = {**trace.graph.facts, "autograd": {str(row): autograd[row] for row in sorted(autograd)}}
    trace.graph = dataclasses.replace(trace.graph, facts=facts)
    every = range(len(trace.graph.ops))
    rows = every if grads is True else select(trace.graph, grads, handle=lambda row: Op(trace, row))
    trace.gradients = register_hooks(nodes, graph_row, rows)
    trace._output = output


def _refuse_code_in_backward(capture: Capture, nodes: Nodes, written: set[int | None]) -> None:
    """Raise CaptureError if the backward pass runs code of the model that may read restored state.

    Args:
        capture: The capture.
        nodes: The autograd nodes of the pass.
        written: The memories that were restored, except those of running statistics.
    """
    if not (written or capture.reassigned) or not (code := code_in_backward(nodes)):
        return
    addresses = capture.recording.addresses
    names = [name for name, t in (*addresses.params, *addresses.buffers) if memory_of(t) in written]
    names = list(dict.fromkeys([*names, *capture.reassigned]))
    raise CaptureError(
        f"The model changes {listed(names) or 'an input or another tensor from before the pass'}, and its "
        f"backward pass runs code that may read it: {code}. A trace restores such state after the pass, so "
        "the gradients could be wrong. Trace with grads=False."
    )
