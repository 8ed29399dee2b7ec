"""Find the parameters of a model in the jaxpr of a step, and their gradients.

What is marked is the array that a call of the model got. It is the parameter if the jaxpr shows that it is
an array that entered the step, unchanged or in another dtype. What a step computed of it, such as a kernel
with a pruning mask, is another tensor, with another gradient.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Literal

from .model_calls import SAME, STATE
from .tap_primitive import GRADIENT, VALUE, Mark, tap_p

#: Primitives that return the arrays that they are given, in their order.
_IDENTITIES = SAME | {"optimization_barrier", "sharding_constraint", "layout_constraint", "device_put",
                      "mesh_cast", "reshard"}  # fmt: skip
#: Primitives that take an array out of another, as of a vector of all parameters.
_PARTS = frozenset({"slice", "split", "squeeze", "reshape", "dynamic_slice"})


class Entry(NamedTuple):
    """A marked parameter, each time that a call of the model got it.

    Attributes:
        value: Its variable.
        gradient: The variable of its gradient in that call; None if there is none.
        level: How many derivatives the step takes by it.
    """

    value: Any
    gradient: Any
    level: int


class Parameter(NamedTuple):
    """The variables that a step has of a parameter.

    Attributes:
        value: The variable of the parameter as it entered; None if only what was computed of it is known.
        gradient: The variable of its whole gradient; None if there is none, or it is not known.
        is_changed: Whether there is a gradient, but of what was computed of it.
        has_several: Whether there are other gradients of it.
        lacks: Whether the step differentiates by it, and there is no gradient of its shape.
    """

    value: Any
    gradient: Any
    is_changed: bool = False
    has_several: bool = False
    lacks: bool = False


class _Origin(NamedTuple):
    """An array that entered the step.

    Attributes:
        variable: Its variable.
        dtypes: Its dtype, and those that it was converted to.
        is_moved: Whether ``jax.vmap`` moved an axis.
    """

    variable: Any
    dtypes: tuple[Any, ...]
    is_moved: bool = False


class Parameters:
    """Finds parameters of a model in a step.

    Args:
        flat: The step.
    """

    def __init__(self, flat: ClosedJaxpr) -> None:
        self._equations = flat.jaxpr.eqns
        self._readers: dict[Any, list[Any]] = defaultdict(list)
        for equation in self._equations:
            for variable in _read(equation):
                self._readers[variable].append(equation)
        entered = [*flat.jaxpr.invars, *flat.jaxpr.constvars]
        self._origins = {one: _Origin(one, (one.aval.dtype,)) for one in entered}
        self._parts = set(entered)
        for equation in self._equations:
            self._follow(equation)

    def is_used(self, entries: Sequence[Entry]) -> bool:
        """Return whether anything reads a parameter but the mark of all arrays of the model."""
        readers = [one for entry in entries for one in self._readers[entry.value]]
        return any(one.primitive is not tap_p or one.params["mark"].kind != STATE for one in readers)

    def of(self, entries: Sequence[Entry]) -> Parameter:
        """Return what a step has of a parameter that calls of the model got."""
        value = self._value(entries)
        whole, changed = list[Any](), list[Any]()
        for entry in entries:
            gradient = self._whole(entry)
            if gradient is not None:
                whole.append(gradient)
            elif entry.gradient is not None:
                changed.append(entry.gradient)
        if not whole:
            return Parameter(
                value, None, bool(changed), False, not changed and any(one.level for one in entries)
            )
        # A call may compute of a parameter what the next one gets: its gradient is part of the parameter's.
        on_the_way = self._before(whole[0]) if changed else set()
        several = any(one is not whole[0] for one in whole) or not on_the_way.issuperset(changed)
        return Parameter(value, whole[0], False, several)

    def _value(self, entries: Sequence[Entry]) -> Any:
        """Return the parameter of the first call that got it as it entered; None if none did."""
        for value in (entry.value for entry in entries):
            origin = self._origins.get(value)
            if origin is not None:
                return value if origin.is_moved else origin.variable
            if value in self._parts:
                return value
        return None

    def total(self, variable: Any) -> Any:
        """Return the sum in which a backward pass collects what is used repeatedly; None of None."""
        while variable is not None:
            sums = [one for one in self._readers[variable] if one.primitive.name == "add_any"]
            if len(sums) != 1:
                return variable
            variable = sums[0].outvars[0]
        return None

    def _follow(self, equation: Any) -> None:
        """Note which results of an equation are arrays that entered the step, or parts of them."""
        name, is_mark = equation.primitive.name, equation.primitive is tap_p
        if is_mark and equation.params["stage"] != VALUE:
            return
        if name in _PARTS and not self._parts.isdisjoint(_read(equation)[:1]):
            self._parts.update(equation.outvars)
        if name == "transpose" and all(map(_is_batched_mark, self._readers[equation.outvars[0]])):
            origin = self._origin(equation.invars[0])  # of an axis of jax.vmap
            if origin is not None:
                self._origins[equation.outvars[0]] = origin._replace(is_moved=True)
        if not is_mark and name not in _IDENTITIES:
            return
        for given, result in zip(equation.invars, equation.outvars, strict=False):
            origin = self._origin(given)
            if origin is not None:
                dtypes = origin.dtypes
                if result.aval.dtype != dtypes[-1]:
                    dtypes = *dtypes, result.aval.dtype
                self._origins[result] = origin._replace(dtypes=dtypes)
            if not isinstance(given, Literal) and given in self._parts:
                self._parts.add(result)

    def _origin(self, variable: Any) -> _Origin | None:
        return None if isinstance(variable, Literal) else self._origins.get(variable)

    def _whole(self, entry: Entry) -> Any:
        """Return the gradient of the array that entered; None if there is none or it is not known."""
        origin = self._origins.get(entry.value)
        if origin is None or entry.gradient is None:
            return None
        gradient = self.total(entry.gradient)
        for dtype in reversed(origin.dtypes[:-1]):
            readers = self._readers[gradient]
            found = [
                one
                for one in readers
                if one.primitive.name == "convert_element_type" and one.outvars[0].aval.dtype == dtype
            ]
            if len(found) != 1:
                return None
            gradient = self.total(found[0].outvars[0])
        return gradient

    def _before(self, variable: Any) -> set[Any]:
        """Return the variables that a variable is computed from, and itself."""
        found = {variable}
        for equation in reversed(self._equations):
            if not found.isdisjoint(equation.outvars):
                found.update(_read(equation))
        return found


def entries_of(
    marked: dict[tuple[Mark, str], list[Any]], levels: dict[Any, int]
) -> Iterator[tuple[Mark, Entry]]:
    """Yield the marked parameters of a step with their marks, in order."""
    for (mark, stage), values in marked.items():
        if stage != VALUE or mark.kind != "parameter":
            continue
        gradients = marked.get((mark, GRADIENT), [])
        for repeat, value in enumerate(values):
            gradient = gradient_of(value, gradients, len(values), repeat)
            yield mark, Entry(value, gradient, levels[value])


def gradient_of(value: Any, gradients: list[Any], values: int, repeat: int) -> Any:
    """Return the gradient of a marked value; None if there is none, or it is not clear which it is.

    Args:
        value: The variable of the value.
        gradients: The gradients of values with the same mark, in the order of the backward pass.
        values: How many values have that mark.
        repeat: Which of them it is.
    """
    gradients = [one for one in gradients if one.aval.shape == value.aval.shape]
    if len(gradients) == values:
        return gradients[values - 1 - repeat]
    return gradients[0] if gradients and values == 1 else None


def _is_batched_mark(equation: Any) -> bool:
    return equation.primitive is tap_p and equation.params["batches"] > 0


def _read(equation: Any) -> list[Any]:
    return [one for one in equation.invars if not isinstance(one, Literal)]
