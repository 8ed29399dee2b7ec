"""Random numbers: which functions may draw them, from what, and leaving the generators as they were."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor


def generators(kwargs: Mapping[str, Any]) -> Iterator[torch.Generator]:
    """The generators a call with these keywords may draw from."""
    own = kwargs.get("generator")
    if isinstance(own, torch.Generator):
        yield own
    else:
        yield from common_generators()


def common_generators() -> Iterator[torch.Generator]:
    """The generators that everything draws from which is not given one of its own: one for each device."""
    yield torch.default_generator
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        yield from torch.cuda.default_generators


@contextmanager
def put_back(used: Iterable[torch.Generator]) -> Iterator[None]:
    """Whatever is drawn inside, these generators are afterwards as they were before.

    >>> with put_back([torch.default_generator]):
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
    """Leave torch's, numpy's and Python's random state as they were; ``seed`` holds for torch inside."""
    ours = random.getstate()
    numpys = sys.modules.get("numpy.random")  # numpy imports it when it is first asked for
    theirs = numpys.get_state(legacy=False) if numpys is not None else None
    with put_back(common_generators()):
        if seed is not None:
            torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(ours)
            if numpys is not None:
                numpys.set_state(theirs)


def has_moved(generator: torch.Generator, before: Tensor) -> bool:
    """Whether a generator has been drawn from since its state was ``before``."""
    return bytes(before.numpy().data) != bytes(generator.get_state().numpy().data)


def may_draw(func: Any) -> bool:
    """Whether a function may draw random numbers: torch tags its own; of others it is not known.

    >>> may_draw(torch.add), may_draw(torch.rand), may_draw(torch.Tensor.normal_)
    (False, True, True)
    """
    if isinstance(func, FunctionType):
        return not func.__module__.startswith("torch.") or _names_what_draws(func)
    name = getattr(func, "__name__", "").partition(".")[0]
    if name.startswith("__"):
        return False
    packet = getattr(torch.ops.aten, name, None)
    return packet is None or _is_seeded(packet)


@cache
def _names_what_draws(func: FunctionType) -> bool:
    """Whether a Python function of torch's, or one that it names in turn, names what draws."""
    todo, seen = [func], set[FunctionType]()
    while todo:
        one = todo.pop()
        if one in seen or one.__module__ == "torch.overrides":
            continue
        seen.add(one)
        near = [one.__globals__.get(name) for name in one.__code__.co_names]
        near += [cell.cell_contents for cell in one.__closure__ or ()]
        todo += [other for other in near if isinstance(other, FunctionType)]
    names = {name for one in seen for name in one.__code__.co_names}
    return any(_is_seeded(getattr(torch.ops.aten, name, None)) for name in names)


def _is_seeded(packet: Any) -> bool:
    overloads = packet.overloads() if hasattr(packet, "overloads") else ()
    return any(torch.Tag.nondeterministic_seeded in getattr(packet, o).tags for o in overloads)
