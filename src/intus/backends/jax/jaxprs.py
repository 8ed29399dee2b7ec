"""Evaluate a jaxpr one equation at a time, with the calls in it inlined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .internals import is_of_library, name_stack

#: Primitives that run a jaxpr once. Loops and branches are not among them.
_CALLS = frozenset({
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
    "remat", "remat2", "checkpoint",
})  # fmt: skip
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")


class Frame(NamedTuple):
    """The inlined calls around an equation.

    Attributes:
        names: The name stack at each call, outermost first, with a number that is unique to the call.
        recomputed: Whether a backward pass runs the equation again (``jax.checkpoint``).
        call: The outermost call of a function of JAX or its libraries; None if there is none.
    """

    names: tuple[tuple[str, int], ...] = ()
    recomputed: bool = False
    call: Any = None


#: Called with an equation that is no call, its inputs and the calls around it; returns its results.
Visit = Callable[[Any, list[Any], Frame], Sequence[Any]]


def evaluate(
    closed: ClosedJaxpr,
    inputs: Sequence[Any],
    visit: Visit,
    literal: Callable[[Any], Any] = lambda value: value,
    constant: Callable[[Any], Any] = lambda value: value,
) -> list[Any]:
    """Evaluate a jaxpr on values of any kind.

    Args:
        closed: The jaxpr.
        inputs: Its inputs.
        visit: Evaluates an equation.
        literal: Converts a number that is written in the jaxpr.
        constant: Converts an array that the function closed over.

    Returns:
        The outputs.
    """
    numbers = count()

    def run(jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[Any], frame: Frame) -> list[Any]:
        known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*map(constant, consts), *inputs], strict=True))

        def read(variable: Any) -> Any:
            return literal(variable.val) if isinstance(variable, Literal) else known[variable]

        for equation in jaxpr.eqns:
            given = [read(variable) for variable in equation.invars]
            body = _body(equation)
            if body is None:
                results = visit(equation, given, frame)
            else:
                recomputed = frame.recomputed or bool(equation.params.get("differentiated"))
                names = (*frame.names, (name_stack(equation), next(numbers)))
                call = frame.call or (equation if is_of_library(body.jaxpr) else None)
                results = run(body.jaxpr, body.consts, given, Frame(names, recomputed, call))
            known.update(zip(equation.outvars, results, strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    return run(closed.jaxpr, closed.consts, inputs, Frame())


def _body(equation: Any) -> ClosedJaxpr | None:
    """Return the jaxpr that an equation calls; None if it is no call."""
    if equation.primitive.name not in _CALLS:
        return None
    body = next((equation.params[name] for name in _BODIES if name in equation.params), None)
    return ClosedJaxpr(body, ()) if isinstance(body, Jaxpr) else body
