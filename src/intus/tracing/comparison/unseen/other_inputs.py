"""Run a model and its file on other inputs, where one pass of each cannot show what the file has fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ....core.errors import IntusError
from ....core.graph import INPUT, OUTPUT, Graph
from ..values.differences import difference
from ..values.elements import eps_of, plain

if TYPE_CHECKING:
    from ...results.trace import Trace

#: The relative difference of outputs that rounding explains, in float32 and in half precision.
_APART, _APART_HALF = 1e-3, 5e-2


class Called(NamedTuple):
    """A call of a model, and the file that is run on the same inputs.

    Attributes:
        trace: Traces the model on arguments.
        run: Returns the trace of the file on the inputs of a trace of the model.
        args: The arguments of the call.
        kwargs: Its keyword arguments.
    """

    trace: Callable[..., Trace]
    run: Callable[[Trace], Trace]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def on(self, change: Callable[[int, Any], Any]) -> Trace | None:
        """Return a trace of the model on other tensors; None if it raises, or its inputs are nested.

        Args:
            change: Returns another tensor for the number and the tensor of an input.
        """
        number = 0
        given: list[Any] = []
        for one in (*self.args, *self.kwargs.values()):
            is_tensor = hasattr(one, "new_empty")
            given.append(change(number, one) if is_tensor else one)
            number += is_tensor
            if isinstance(one, list | tuple | dict):
                return None
        kwargs = dict(zip(self.kwargs, given[len(self.args) :], strict=True))
        try:
            return self.trace(*given[: len(self.args)], **kwargs)
        except Exception:  # of the model, which may not take such inputs
            return None

    def agrees(self, traced: Trace) -> bool:
        """Return whether the file returns what a trace of the model did, on the same inputs."""
        try:
            other = self.run(traced)
        except IntusError:
            return False
        ends = traced.graph.rows_of(OUTPUT), other.graph.rows_of(OUTPUT)
        for row, end in zip(*ends, strict=False):
            x, y = plain(traced.values.get(row)), plain(other.values.get(end))
            if x is None or y is None or x.array.shape != y.array.shape:
                return False
            found = difference(x, y)
            is_half = max(eps_of(one.dtype) for one in (x, y)) > eps_of("float32")
            if found.lopsided or found.relative > (_APART_HALF if is_half else _APART):
                return False
        return len(ends[0]) <= len(ends[1])


def agrees_otherwise(called: Called, first: Trace) -> bool | None:
    """Return whether a file does what the model does where that decides otherwise by values of its inputs.

    Args:
        called: The call.
        first: The trace of the model.

    Returns:
        None if no inputs were found on which the model decides otherwise.
    """
    for change in (_mixed, _ones, _turned):
        traced = called.on(lambda _, t, change=change: change(t))  # type: ignore[misc]
        if traced is not None and _decisions(traced) != _decisions(first):
            return called.agrees(traced)
    return None


def _decisions(trace: Trace) -> list[tuple[Any, ...]]:
    """Return what Python code of a model took from the values of tensors."""
    values = (plain(trace.values.get(one.op.row)) for one in trace.conditionals)
    found = (() if value is None else tuple(value.array.reshape(-1)[:100].tolist()) for value in values)
    return [(one.kind, one.way, value) for one, value in zip(trace.conditionals, found, strict=True)]


def _is_mask(t: Any) -> bool:
    return t.numel() > 1 and bool(((t == 0) | (t == 1)).all())


def _mixed(t: Any) -> Any:
    """Return a mask whose last numbers are zeros, and floats with the other sign."""
    if _is_mask(t) and t.ndim:
        other = (t == t).to(t.dtype)
        other[..., -1:] = 0
        return other
    return -t if t.is_floating_point() else t


def _ones(t: Any) -> Any:
    """Return a mask of ones, and larger floats."""
    return (t == t).to(t.dtype) if _is_mask(t) else t * 3 if t.is_floating_point() else t


def _turned(t: Any) -> Any:
    """Return the numbers of a tensor in the opposite order."""
    return t.flip(tuple(range(t.ndim)))


def unlike_in_longer_batches(called: Called, declared: Graph) -> Iterator[str]:
    """Yield what is said of a file that takes batches of any size, and returns other numbers for another.

    Args:
        called: The call.
        declared: The graph of the file without values, in which lengths that are open are -1.
    """
    rows = declared.rows_of(INPUT)
    shapes = [declared.metas[int(declared.ops.meta[row])].shape for row in rows]
    is_open = [bool(shape) and shape[0] == -1 for shape in shapes]
    first = [one for one in (*called.args, *called.kwargs.values()) if hasattr(one, "new_empty")]
    if not any(is_open) or [one.ndim for one in first] != [len(shape) for shape in shapes]:
        return
    import torch

    lengths = [one.shape[0] for one, is_batch in zip(first, is_open, strict=True) if is_batch]
    longer = called.on(lambda n, t: torch.cat([t, t.flip(0), t]) if is_open[n] else t)
    if longer is not None and len(set(lengths)) == 1 and not called.agrees(longer):
        yield (
            f"The file takes any number of rows, and for {3 * lengths[0]} in place of {lengths[0]} it does "
            "not return what the model does"
        )
