"""Let autograd, or a trace, follow the functions that ``torch.cond`` and torch's loops are given.

torch compiles a call of these, by which all that the functions read from around them becomes an operand. In a
pass nothing is compiled. Then the operators find no gradient of what the functions read, or raise
AssertionError. But torch has for each of them one that runs the functions as Python does, which autograd
follows as it does any other code.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch._C import DispatchKey

#: The names of the operators among those of torch that are given functions.
_OPERATORS = ("cond", "while_loop", "scan", "map_impl")

_lock = threading.Lock()
_active = 0
_originals: dict[Any, Callable[..., Any]] = {}


@contextmanager
def followed() -> Iterator[None]:
    """Let autograd follow the functions inside of the block. All threads share the operators."""
    global _active
    with _lock:
        _active += 1
        if _active == 1:
            for operator in filter(None, map(torch._ops._higher_order_ops.get, _OPERATORS)):
                kernels: dict[Any, Callable[..., Any]] = operator.py_kernels
                original, plain = (
                    kernels[DispatchKey.Autograd],
                    kernels[DispatchKey.CompositeExplicitAutograd],
                )
                _originals[operator] = original
                _set(operator, _either(original, plain))
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            while _originals and not _active:
                _set(*_originals.popitem())


def _set(operator: Any, kernel: Callable[..., Any]) -> None:
    operator.py_kernels[DispatchKey.Autograd] = kernel
    operator._dispatch_cache.clear()


def _either(original: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        # A mode, such as that of the compiler in another thread, takes the operator and not what it runs.
        is_plain = torch.is_grad_enabled() and not torch._C._len_torch_dispatch_stack()
        return (plain if is_plain else original)(*args, **kwargs)

    return kernel


class Branching(NamedTuple):
    """A ``torch.cond`` that ran; the same code may run several times.

    Attributes:
        code: Where the functions of both branches are.
        number: How often the same had run before.
        depth: How many others it is inside of.
    """

    code: tuple[Any, Any]
    number: int
    depth: int


class _Inlined:
    def __init__(self) -> None:
        self.ways: dict[Branching, bool] = {}
        self._before: Counter[tuple[Any, Any]] = Counter()
        self._depth = 0

    def call(self, condition: Any, one: Callable[..., Any], other: Callable[..., Any], operands: Any) -> Any:
        code = _place(one), _place(other)
        way = bool(condition)
        self.ways[Branching(code, self._before[code], self._depth)] = way
        self._before[code] += 1
        self._depth += 1
        try:
            return (one if way else other)(*operands)
        finally:
            self._depth -= 1


_inlined: ContextVar[_Inlined | None] = ContextVar("intus_inlined", default=None)


@contextmanager
def inlined() -> Iterator[dict[Branching, bool]]:
    """Let a trace in this thread record what each ``torch.cond`` runs, and not the operator.

    Yields:
        The ways that they took, which are added as they run.
    """
    operator = type(torch._ops._higher_order_ops["cond"])
    original: Any = operator.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        current = _inlined.get()
        return original(self, *args, **kwargs) if current is None else current.call(*args, **kwargs)

    current = _Inlined()
    token = _inlined.set(current)
    operator.__call__ = call  # type: ignore[method-assign]
    try:
        yield current.ways
    finally:
        operator.__call__ = original  # type: ignore[method-assign]
        _inlined.reset(token)


def _place(function: Any) -> Any:
    """Return where the code of a function is, which may be made anew for each call."""
    code = getattr(function, "__code__", None)
    return id(function) if code is None else (code.co_filename, code.co_firstlineno, code.co_code)
