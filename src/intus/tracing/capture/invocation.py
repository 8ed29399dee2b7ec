"""One function call in a form that can be replayed.

An ``Invocation`` has the function, its arguments with placeholders for tensors, the random state it drew from
and the execution context it ran in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .containers import ATOMS, NESTING
from .context.execution_context import ExecutionContext
from .context.script_state import ScriptCall
from .memory import Geometry


class Patch(NamedTuple):
    """The difference between an argument and what its producer returned, made by writes in between.

    The argument's value is the value of ``base`` with the values of ``writes`` copied over it in order.
    Tensors are identified by offset in a ``CallLog``, by graph row in what ``Replays`` returns.

    Attributes:
        base: The tensor that had the argument's memory before the writes.
        writes: The tensors that were written there, each with the part of the memory it was written to; None
            for a write whose value is unknown.
        place: The part of the memory that the argument views.
        unseen: Whether something that the recorder did not see wrote to the memory.
        conversion: Makes the argument from the value of ``base`` instead: takes the tensor out of a wrapper
            subclass such as ``DTensor``, or wraps it again. None if it is not such an argument.
    """

    base: int
    writes: tuple[tuple[int, Geometry | None], ...]
    place: Geometry | None
    unseen: bool
    conversion: Callable[[Tensor], Tensor] | None = None


class TensorArg(NamedTuple):
    """A tensor among the arguments of a call.

    Attributes:
        arg: The number of the argument's name.
        source: The producer of the tensor: an offset in a ``CallLog``, a graph row in what ``Replays``
            returns, or negative for a parameter (-1 - its number).
        grad: Whether the tensor required a gradient.
        patch: How its value differed from what its producer returned; None if it did not.
        trimmed_value: Its value, if it was saved but its row was not kept in the graph.
    """

    arg: int
    source: int
    grad: bool
    patch: Patch | None
    trimmed_value: Tensor | None = None


class Invocation(NamedTuple):
    """One call that can be replayed.

    Attributes:
        func: The function or module.
        args: The positional arguments, with a ``PLACEHOLDER`` for each tensor.
        kwargs: The keyword arguments, with a ``PLACEHOLDER`` for each tensor.
        tensor_args: The tensors, in the order of their placeholders.
        states: The random generators it drew from, with their states before the call.
        context: The execution context it ran in; None for the default.
        picks: Which of the tensors that it returned or was given have rows, by position; None for those that
            it returned.
        script: The state of a ScriptModule before the call.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensor_args: tuple[TensorArg, ...]
    states: tuple[tuple[Any, Tensor], ...] = ()
    context: ExecutionContext | None = None
    picks: tuple[int, ...] | None = None
    script: ScriptCall | None = None


#: Replaces a tensor in an argument. It is a bare object, so that the garbage collector can ignore the tuples
#: that contain it.
PLACEHOLDER: Any = object()


def flatten(value: Any, found: list[Tensor], depth: int = 0) -> Any:
    """Return an argument with placeholders for its tensors.

    Args:
        value: The argument.
        found: Receives the tensors, in the order of ``containers.walk``.
        depth: The depth of ``value`` in its container.

    Example:
        >>> found = []
        >>> flatten((torch.ones(1), "mean"), found)[1], len(found)
        ('mean', 1)
    """
    if type(value) in ATOMS:
        return value
    if isinstance(value, Tensor):
        found.append(value)
        return PLACEHOLDER
    return _rebuilt(value, lambda part: flatten(part, found, depth + 1), depth)


def arguments(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], tensors: Iterable[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with placeholders replaced by ``tensors``, in order."""
    rest = iter(tensors)
    return tuple([unflatten(value, rest) for value in args]), {
        k: unflatten(v, rest) for k, v in kwargs.items()
    }


def unflatten(value: Any, tensors: Iterator[Any], depth: int = 0) -> Any:
    """Return an argument with each placeholder replaced by the next of ``tensors``."""
    if value is PLACEHOLDER:
        return next(tensors)
    if type(value) in ATOMS:
        return value
    return _rebuilt(value, lambda part: unflatten(part, tensors, depth + 1), depth)


def _rebuilt(value: Any, each: Callable[[Any], Any], depth: int) -> Any:
    """Return a container of the same type with ``each`` applied to its parts; other values unchanged."""
    if isinstance(value, tuple | list) and depth < NESTING:
        parts = [each(part) for part in value]
        if isinstance(value, list):
            return parts
        if type(value) is tuple or isinstance(value, torch.Size):
            return tuple(parts)
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict) and depth < NESTING:
        return {key: each(part) for key, part in value.items()}
    if isinstance(value, slice):
        return slice(each(value.start), each(value.stop), each(value.step))
    return value
