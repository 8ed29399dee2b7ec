"""``intus_tap``: an identity that marks a value in a jaxpr, and with it the value's gradient.

``intus_return`` marks what a module returned, of which no gradient is wanted.

It compiles to nothing. Its derivative is a mark too, whose transpose marks the gradient. Under ``jax.vmap``
one batched value is marked, with the batch as its first axis and the number of transforms as ``batches``:
with more than one, nothing says which of the axes in front is the batch. Each derivative of a value counts as
a level, the innermost first: of a loss of a derivative, the loss's gradient has the level that the value has
in the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

VALUE, TANGENT, GRADIENT = "value", "tangent", "gradient"


class Mark(NamedTuple):
    """The value that is marked.

    Attributes:
        address: The address of the module.
        kind: ``"output"``, ``"input"`` or ``"parameter"``.
        call: The number of the module's call, from 1.
        which: The index among several arrays of the call.
        name: The name of the parameter; ``""`` for other kinds.
    """

    address: str
    kind: str
    call: int
    which: int = 0
    name: str = ""


tap_p = Primitive("intus_tap")


def tap(value: Any, mark: Mark) -> Any:
    """Return an array, marked in the jaxpr that is being traced."""
    return tap_p.bind(value, mark=mark, stage=VALUE, batches=0, level=0)


def _differentiate(primals: Any, tangents: Any, *, stage: str, level: int, **marks: Any) -> tuple[Any, Any]:
    (value,), (tangent,) = primals, tangents
    if isinstance(tangent, ad.Zero) or stage != VALUE:
        return tap_p.bind(value, stage=stage, level=level, **marks), tangent
    result = tap_p.bind(value, stage=VALUE, level=level + 1, **marks)
    return result, tap_p.bind(tangent, stage=TANGENT, level=level + 1, **marks)


def _transpose(gradient: Any, _: Any, *, stage: str, **marks: Any) -> list[Any]:
    if isinstance(gradient, ad.Zero):
        return [gradient]
    return [tap_p.bind(gradient, stage=GRADIENT, **marks)]


def _batch(values: Any, axes: Any, *, batches: int, **marks: Any) -> tuple[Any, int]:
    value = jnp.moveaxis(values[0], axes[0], 0)
    return tap_p.bind(value, batches=batches + 1, **marks), 0


returned_p = Primitive("intus_return")


def returned(value: Any, call: int) -> Any:
    """Return an array, marked as one that a numbered call of a module returned."""
    return returned_p.bind(value, call=call)


returned_p.def_impl(lambda value, **_: value)
returned_p.def_abstract_eval(lambda value, **_: value)
mlir.register_lowering(returned_p, lambda context, value, **_: [value])
ad.primitive_jvps[returned_p] = lambda primals, tangents, **marks: (
    returned_p.bind(*primals, **marks),
    tangents[0],
)
batching.primitive_batchers[returned_p] = lambda values, axes, **marks: (
    returned_p.bind(*values, **marks),
    axes[0],
)

tap_p.def_impl(lambda value, **_: value)
tap_p.def_abstract_eval(lambda value, **_: value)
mlir.register_lowering(tap_p, lambda context, value, **_: [value])
ad.primitive_jvps[tap_p] = _differentiate
ad.primitive_transposes[tap_p] = _transpose
batching.primitive_batchers[tap_p] = _batch
