"""All names of JAX that are not public: a new release of JAX is adapted to here alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from jax._src.interpreters.batching import BatchTracer
from jax._src.source_info_util import user_frames
from jax.core import Tracer

from ...core.graph import Source

_LIBRARIES = ("jax", "jaxlib", "flax", "equinox", "optax", "jaxtyping")


def bind(equation: Any, values: Sequence[Any]) -> list[Any]:
    """Run one equation of a jaxpr on values, and return its results."""
    parameters = equation.primitive.get_bind_params(equation.params)
    functions: Sequence[Any] = ()
    if isinstance(parameters, tuple):  # JAX before 0.10 separates functions from the other parameters
        functions, parameters = parameters
    results = equation.primitive.bind(*functions, *values, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]


def name_stack(equation: Any) -> str:
    """Return the names of the scopes that an equation was traced in, relative to the call around it."""
    return str(equation.source_info.name_stack)


class Batched(NamedTuple):
    """A value inside of ``jax.vmap``.

    Attributes:
        shape: Its shape with the batch in front.
        axis_name: The name of the axis; None if it has none.
    """

    shape: tuple[int, ...]
    axis_name: Any


def batched(value: Any) -> Batched | None:
    """Return the batch that a traced value is one record of; None if it is none."""
    if not isinstance(value, BatchTracer) or not isinstance(value.batch_dim, int):
        return None
    shape = list(value.val.shape)
    size = shape.pop(value.batch_dim)
    name = value._trace.axis_data.name
    return Batched((size, *shape), name if isinstance(name, str) else None)


def is_of_trace(value: Any, other: Any) -> bool:
    """Return whether a value ends with the trace that another, which is traced too, ends with."""
    return isinstance(other, Tracer) and value._trace is other._trace


def site(equation: Any) -> Source | None:
    """Return the innermost line outside of JAX and its libraries that traced an equation."""
    frames: Iterator[Any] = user_frames(equation.source_info.traceback)
    for frame in frames:
        if not _is_library(frame.file_name):
            return Source(frame.file_name, frame.start_line, frame.function_name)
    return None


def is_of_library(jaxpr: Any) -> bool:
    """Return whether a jaxpr was traced from a function of JAX or its libraries.

    JAX traces such a function once, so its equations name the line that called it first.
    """
    return _is_library(jaxpr.debug_info.func_filename or "")


def _is_library(file: str) -> bool:
    return file.startswith(_folders())


@cache
def _folders() -> tuple[str, ...]:
    """Return the folders of the libraries, and of this backend, whose lines are not the user's."""
    specs = [find_spec(name) for name in _LIBRARIES]
    files = [spec.origin for spec in specs if spec is not None and spec.origin is not None]
    return tuple(f"{Path(file).parent}{os.sep}" for file in (*files, __file__))
