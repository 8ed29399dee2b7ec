"""Find the operations of MXNet that draw random numbers, and refuse to run them.

MXNet does not give the state of its generators, so that what was drawn cannot be undone.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from mxnet import autograd
from mxnet.base import _LIB, check_call
from mxnet.gluon import HybridBlock, Parameter
from mxnet.ndarray import register
from mxnet.symbol import Symbol

from ...core.errors import InputError
from ...core.vocabularies.mxnet import DRAWING
from .symbols import nodes

_REFUSED = (
    "The model draws random numbers in evaluation mode, in {}, so it is not called: MXNet does not give the "
    "state of its generator, and what is drawn here would change the training. Draw them outside of the "
    "model and pass them as an input, or in training mode alone (autograd.is_training())."
)


def drawing(symbol: Symbol) -> list[str]:
    """Return the names of a graph's operations that draw random numbers in the mode of autograd."""
    return list(_drawing(nodes(symbol)))


def _drawing(table: list[dict[str, Any]]) -> Iterator[str]:
    for node in table:
        if _draws(node["op"], node.get("attrs", {})):
            yield node["name"]
        for graph in node.get("subgraphs", ()):  # the bodies of loops and branches
            yield from _drawing(graph["nodes"])


def _draws(operation: str, settings: Mapping[str, Any]) -> bool:
    """Return whether an operation draws random numbers in the mode of autograd."""
    name = operation.lower().strip("_")
    if name in ("dropout", "npx_dropout", "rnn", "npx_rnn"):
        drops = float(settings.get("p", 0 if name.endswith("rnn") else 0.5)) > 0
        return drops and (autograd.is_training() or settings.get("mode") == "always")
    if name.endswith(("leakyrelu", "leaky_relu")):
        return settings.get("act_type") == "rrelu" and autograd.is_training()
    return DRAWING.match(name) is not None


_FIRST_VALUES = Parameter._finish_deferred_init.__code__

_local = threading.local()
_LOCK = threading.Lock()
_own = register._imperative_invoke, HybridBlock._call_cached_op
_contexts = 0  # in which something is refused, on all threads


@contextmanager
def draws_refused(parameters: Collection[Parameter]) -> Iterator[None]:
    """Raise an error on this thread before an operation draws random numbers.

    Args:
        parameters: Parameters that may draw their initial values, as they do in a first call of a model.

    Raises:
        InputError: In place of the operation, or of the call of the hybridized block that has it.
    """
    before, _local.parameters = getattr(_local, "parameters", None), frozenset(map(id, parameters))
    _count(1)
    try:
        yield
    finally:
        _count(-1)
        _local.parameters = before


def refuse(names: list[str]) -> None:
    """Raise an error if there are names of operations that draw random numbers."""
    if names:
        raise InputError(_REFUSED.format(", ".join(map(repr, names))))


def _count(change: int) -> None:
    """Put the functions below in the place of MXNet's as long as there are contexts."""
    global _contexts
    with _LOCK:
        _contexts += change
        if _contexts == max(change, 0):
            invoke, call = (_invoke, _call_cached_op) if change > 0 else _own
            register._imperative_invoke, HybridBlock._call_cached_op = invoke, call


def _invoke(handle: int, ndargs: Any, keys: Any, vals: Any, *rest: Any) -> Any:
    if (parameters := getattr(_local, "parameters", None)) is not None:
        name = _name(handle)
        settings = {key: str(value) for key, value in zip(keys, vals, strict=True)}
        if _draws(name, settings) and not _is_initializing(parameters):
            refuse([name])
    return _own[0](handle, ndargs, keys, vals, *rest)


def _call_cached_op(block: HybridBlock, *args: Any) -> Any:
    if getattr(_local, "parameters", None) is not None:
        if block._cached_op is None:
            block._build_cache(*args)
        refuse(drawing(block._cached_graph[1]))
    return _own[1](block, *args)


def _is_initializing(parameters: frozenset[int]) -> bool:
    """Return whether one of the parameters gets its first values in a call around this one."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is _FIRST_VALUES and id(frame.f_locals["self"]) in parameters:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


@cache
def _name(handle: int) -> str:
    """Return the name of an operation."""
    name = ctypes.c_char_p()
    check_call(_LIB.MXSymbolGetAtomicSymbolName(ctypes.c_void_p(handle), ctypes.byref(name)))
    return (name.value or b"").decode()
