"""Find the functions that may draw random numbers, and the generators they use; preserve random state."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from ....core import restoring


def generators(kwargs: Mapping[str, Any]) -> Iterator[torch.Generator]:
    """Yield the generators that a call with these keywords may draw from."""
    generator = kwargs.get("generator")
    if isinstance(generator, torch.Generator):
        yield generator
    else:
        yield from common_generators()


def common_generators() -> Iterator[torch.Generator]:
    """Yield the default generators, one for each device."""
    yield torch.default_generator
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        yield from torch.cuda.default_generators


def is_generator(value: Any) -> bool:
    """Return whether a value is a random generator of torch, numpy or Python."""
    return isinstance(value, torch.Generator) or restoring.is_generator(value)


def restorer_of(generator: Any) -> Callable[[], Any]:
    """Return a function that gives a generator (see ``is_generator``) its present state again."""
    if isinstance(generator, torch.Generator):
        return partial(generator.set_state, generator.get_state())
    return restoring.restorer_of(generator)


@contextmanager
def preserve_generators(used: Iterable[torch.Generator]) -> Iterator[None]:
    """Restore the states of the given generators after the ``with`` block.

    Example:
        >>> with preserve_generators([torch.default_generator]):
        ...     one = torch.rand(2)
        >>> torch.equal(one, torch.rand(2))
        True
    """
    states = [(generator, generator.get_state()) for generator in used]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


@contextmanager
def same_random_state(seed: int | None) -> Iterator[None]:
    """Restore the random states of torch, numpy and Python after the ``with`` block.

    Args:
        seed: Seeds torch inside the block; None for no seed.
    """
    python_state = random.getstate()
    numpy_random = sys.modules.get("numpy.random")  # numpy imports it on first use
    numpy_state = numpy_random.get_state(legacy=False) if numpy_random is not None else None
    with preserve_generators(common_generators()):
        if seed is not None:
            torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy_random is not None:
                numpy_random.set_state(numpy_state)


def has_moved(generator: torch.Generator, before: Tensor) -> bool:
    """Return whether a generator was used since its state was ``before``."""
    return bytes(before.numpy().data) != bytes(generator.get_state().numpy().data)


def may_draw(func: Any) -> bool:
    """Return whether a function may draw random numbers.

    torch tags its own operators that do; functions from elsewhere are assumed to.

    Example:
        >>> may_draw(torch.add), may_draw(torch.rand), may_draw(torch.Tensor.normal_)
        (False, True, True)
    """
    if isinstance(func, FunctionType):
        return not func.__module__.startswith("torch.") or _names_seeded_operator(func)
    name = getattr(func, "__name__", "").partition(".")[0]
    if name.startswith("__"):
        return False
    packet = getattr(torch.ops.aten, name, None)
    return packet is None or _is_seeded(packet)


@cache
def _names_seeded_operator(func: FunctionType) -> bool:
    """Return whether a Python function, or one that it names in turn, names an operator that draws."""
    todo, visited = [func], set[FunctionType]()
    while todo:
        one = todo.pop()
        if one in visited or one.__module__ == "torch.overrides":
            continue
        visited.add(one)
        named = [one.__globals__.get(name) for name in one.__code__.co_names]
        named += [cell.cell_contents for cell in one.__closure__ or ()]
        todo += [other for other in named if isinstance(other, FunctionType)]
    names = {name for one in visited for name in one.__code__.co_names}
    return any(_is_seeded(getattr(torch.ops.aten, name, None)) for name in names)


def _is_seeded(packet: Any) -> bool:
    overloads = packet.overloads() if hasattr(packet, "overloads") else ()
    return any(torch.Tag.nondeterministic_seeded in getattr(packet, o).tags for o in overloads)
