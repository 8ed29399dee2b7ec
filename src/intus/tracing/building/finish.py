"""From a finished capture to a Trace: values and gradients find their rows in the graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from ...core.errors import AddressError, CaptureError, InputError, IntusError
from ...core.graph import Graph
from ...core.selection import Selection, select
from ...viewing.repr_text import listed
from ..capture.interpose import Capture
from ..capture.memory import memory_of
from ..capture.saving.gradients import saved_bytes, waiting
from ..capture.saving.store import GRAPH, Store, Stored
from ..capture.saving.values import Values
from ..replaying.replay import Replays
from ..results.files import save
from ..results.op import Op
from ..results.trace import Trace
from .assemble import assemble

#: Written in training, and never read back in a backward pass.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def finish(
    capture: Capture, model: str, facts: dict[str, Any], grads: bool | Selection = False, output: Any = None
) -> Trace:
    """The trace of what ``capture`` saw of ``model``; ``output`` is what the model returned."""
    values, recording = capture.values, capture.recording
    if values.form is not None and values.form.changes:
        facts["form"] = values.form.changes
    graph, where = assemble(recording, model, facts)
    failed = recording.failure is not None
    recording.failure = None  # it holds frames, and they hold the recording: a cycle
    values.write()
    everything = values.wanted is None or values.wanted.everything
    store, call_log = values.store, capture.call_log
    kept = values.kept if store is None else Stored(store.places)
    maybe_modified = frozenset(place for row in values.maybe_modified() if (place := where(row)) >= 0)
    replays = Replays(recording, call_log, where, kept if everything else {}) if call_log else None
    result = Trace(graph, _placed(values, where), maybe_modified, replays)
    if values.trouble is None and not everything:
        _choose(result, values, where, failed)
    if store is not None:
        with _told(store, quiet=failed or values.trouble is not None):
            _close(store, result, values, where)
    if values.trouble is not None and not failed:
        raise _named(values.trouble, store, graph, where)
    if values.nodes is not None and not failed:
        _with_gradients(result, capture, where, grads, output)
    if store is not None:
        with _told(store, quiet=failed):
            save(result, store.folder / GRAPH, values=False)
    return result


@contextmanager
def _told(store: Store, *, quiet: bool) -> Iterator[None]:
    """A disk that is full at the very end; ``quiet`` where there is something more important to tell."""
    try:
        yield
    except OSError as error:
        if not quiet:
            raise CaptureError(
                f"{str(store.folder)!r} could not be finished: {error}. The values stand there, and can be "
                "read with safetensors."
            ) from error


def _placed(values: Values, where: Callable[[int], int]) -> MutableMapping[int, Tensor]:
    """What was kept, by the graph's rows."""
    if values.store is not None:
        places = values.store.places
        return Stored({place: places[row] for row in sorted(places) if (place := where(row)) >= 0})
    return {place: values.kept[row] for row in sorted(values.kept) if (place := where(row)) >= 0}


def _close(store: Store, trace: Trace, values: Values, where: Callable[[int], int]) -> None:
    """The tensors of a store get the labels of their ops."""
    labels = {row: trace.graph.label(where(row)) for row in store.places if where(row) in trace.values}
    try:
        store.close(labels)
    finally:
        trace.values = _placed(values, where)
    trace.not_stored = {where(row): why for row, why in store.skipped.items() if where(row) >= 0}


def _choose(trace: Trace, values: Values, where: Callable[[int], int], failed: bool) -> None:
    """Let go what was held in vain."""
    assert values.wanted is not None
    try:
        chosen = values.wanted.rows(trace.graph, where, lambda row: Op(trace, row))
    except AddressError:
        if not failed:
            raise
        return  # what the pass did not get to has no name; the model's exception matters
    if isinstance(trace.values, Stored):
        trace.values = trace.values.only(chosen)
    else:
        trace.values = {row: value for row, value in trace.values.items() if row in chosen}


def _named(
    trouble: tuple[int, Exception], store: Store | None, graph: Graph, where: Callable[[int], int]
) -> IntusError:
    """The exception that keeping a value raised, with the op's name."""
    row, error = trouble
    label = repr(graph.label(where(row))) if where(row) >= 0 else "an op that leads nowhere"
    named: IntusError
    if store is not None and isinstance(error, OSError):
        named = CaptureError(
            f"The values from {label} on could not be written to {str(store.folder)!r}: {error}. The "
            f"{len(store.places)} before them stand there and can be read with safetensors."
        )
    else:
        named = InputError(
            f"What save= or transform= was given failed at {label}: {type(error).__name__}: {error}"
        )
    named.__cause__ = error
    return named


def _with_gradients(
    trace: Trace, capture: Capture, where: Callable[[int], int], grads: bool | Selection, output: Any
) -> None:
    nodes, addresses = capture.values.nodes, capture.recording.addresses
    assert nodes is not None
    nodes.end()
    own = [t for _, t in (*addresses.params, *addresses.buffers)]
    sizes, stale = saved_bytes(nodes, own)
    statistics = {memory_of(t) for name, t in addresses.buffers if name.endswith(_STATISTICS)}
    if stale and (written := set(capture.restored) - statistics):
        held = (*addresses.params, *addresses.buffers)
        named = [name for name, t in held if memory_of(t) in written]
        raise CaptureError(
            f"The model writes into {listed(named) or 'an input or another tensor from outside'}, and "
            "autograd needs what was written there. A trace puts such memory back after the pass, so "
            "backward would fail: with grads=True give the model a clone to write into, or trace without."
        )
    told = {where(row): [nodes.made[row][0].name(), size] for row, size in sizes.items() if where(row) >= 0}
    told |= {
        where(row): [place[0].name(), sizes.get(row, 0)]
        for row, place in nodes.made.items()
        if where(row) >= 0
    }
    facts = {**trace.graph.facts, "autograd": {str(row): told[row] for row in sorted(told)}}
    trace.graph = dataclasses.replace(trace.graph, facts=facts)
    every = range(len(trace.graph.ops))
    rows = every if grads is True else select(trace.graph, grads, handle=lambda row: Op(trace, row))
    trace.gradients = waiting(nodes, where, rows)
    trace._output = output
