"""One function call as it can be run again: the function, its arguments with slots where tensors went in,
the random state it drew from and the context state it ran in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .containers import ATOMS, NESTING
from .context.execution_context import ExecutionContext
from .memory import Geometry


class Patch(NamedTuple):
    """An argument that was not what its parent returned: its memory had been written to through a view.

    It was the value of row ``base``, with each of ``writes`` (the writer's row, and where it wrote; None
    where that is not known) put in its place. ``unseen`` means that something the recorder did not see wrote.
    """

    base: int
    writes: tuple[tuple[int, Geometry | None], ...]
    place: Geometry | None
    unseen: bool


class TensorArg(NamedTuple):
    """A place in the arguments where a tensor stood: ``arg`` is the number of the argument's name, ``source``
    the row it came from (below zero a parameter, -1 - its number), ``grad`` whether it required a gradient,
    ``left`` its value where its row is not in the graph."""

    arg: int
    source: int
    grad: bool
    patch: Patch | None
    left: Tensor | None = None


class Invocation(NamedTuple):
    """One call. In ``args`` and ``kwargs`` a ``PLACEHOLDER`` stands for each tensor_arg in turn; ``states``
    are the generators it drew from with what they held before; ``picks`` says which of the returned tensors
    are rows, None for all; ``context`` is None where nothing was out of the ordinary."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensor_args: tuple[TensorArg, ...]
    states: tuple[tuple[Any, Tensor], ...] = ()
    context: ExecutionContext | None = None
    picks: tuple[int, ...] | None = None


#: Stands in an argument where a tensor was; the tensor_args are numbered in the order of their slots. A bare
#: object, so that the garbage collector need not walk what holds it.
PLACEHOLDER: Any = object()


def flatten(value: Any, found: list[Tensor], depth: int = 0) -> Any:
    """An argument with slots for its tensors, which are added to ``found`` in the order of ``walk``.

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
    """The arguments of a call with ``tensors`` in their slots, in order."""
    rest = iter(tensors)
    return tuple([unflatten(value, rest) for value in args]), {
        k: unflatten(v, rest) for k, v in kwargs.items()
    }


def unflatten(value: Any, tensors: Iterator[Any], depth: int = 0) -> Any:
    """The argument again, with the next of ``tensors`` in each slot."""
    if value is PLACEHOLDER:
        return next(tensors)
    if type(value) in ATOMS:
        return value
    return _rebuilt(value, lambda part: unflatten(part, tensors, depth + 1), depth)


def _rebuilt(value: Any, each: Callable[[Any], Any], depth: int) -> Any:
    """A container of the same kind with ``each`` of its parts; anything else as it is."""
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
