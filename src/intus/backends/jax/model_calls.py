"""Tell the rows of the calls of a model in one step: which are the same, and along which axis they are.

A step may call its model several times, on the same rows or on others (a discriminator, on real rows and on
generated ones), and under ``jax.vmap``, whose axis is that of the rows or of the members of an ensemble. What
a call gets, and the arrays of the model in it, are marked; the jaxpr then shows both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from itertools import count
from operator import itemgetter
from typing import Any

import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Literal

from .arrays import is_array, mapped
from .tap_primitive import VALUE, Mark, tap, tap_p

#: The kinds of the marks of the arrays that a call of the model gets, of the model's own, and of its result,
#: which also shows whether a step takes gradients.
DATA, STATE, END = "data", "state", "end"
_SEVERAL = (
    "it is inside of several transforms such as jax.vmap. Let one jax.vmap run over the batch, and the model "
    "itself over the other axis"
)
MEMBERS = (
    "jax.vmap runs over the model, or over what is not its data, so that its axis is that of the members of "
    "an ensemble, or of samples. Probe one member, in a step of its own"
)
#: Primitives whose result has the rows of what they are given.
SAME = frozenset({"convert_element_type", "copy", "copy_p"})
#: Primitives that take parts of a key of random numbers, or change its shape.
_PARTS = frozenset(
    {"slice", "squeeze", "reshape", "dynamic_slice", "gather", "broadcast_in_dim", "transpose"}
)


def mark_all(value: Any, kind: str, call: int, is_leaf: Callable[[Any], bool]) -> Any:
    """Mark all traced arrays in a value; others are the same in every call."""
    numbers = count()

    def marked(leaf: Any) -> Any:
        if not isinstance(leaf, Tracer) or not is_array(leaf) or not (leaf.ndim or kind == STATE):
            return leaf
        if kind == STATE and not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf  # of generators of random numbers
        return tap(leaf, Mark("", kind, call, next(numbers)))

    return mapped(marked, value, is_leaf)


class ModelCalls:
    """The calls of a model in a step.

    Args:
        flat: The jaxpr of the step, with marks.
        within: By the address and number of a call of a module, the number of the model's call around it.

    Attributes:
        data: The variables of the arrays that the first call gets, without keys of random numbers.
    """

    def __init__(self, flat: ClosedJaxpr, within: Mapping[tuple[str, int], int]) -> None:
        self._within = within
        found: dict[tuple[str, int], dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
        batches: dict[tuple[str, int], int] = defaultdict(int)  # the most jax.vmap of a kind in a call
        keys = _keys(flat)
        self._repeats: dict[tuple[str, int], int] = defaultdict(int)
        for equation in flat.jaxpr.eqns:
            if equation.primitive is not tap_p or equation.params["stage"] != VALUE:
                continue
            mark, value = equation.params["mark"], equation.outvars[0]
            if mark.kind == "output":
                self._repeats[mark.address, mark.call] += 1
            if mark.kind not in (DATA, STATE, END) or value in keys:
                continue
            at = mark.kind, mark.call
            found[at][mark.which].append(value)
            batches[at] = max(batches[at], equation.params["batches"])
        self._batches = batches
        data = {call: given for (kind, call), given in found.items() if kind == DATA}
        self.data = [values[0] for values in data[min(data)].values()] if data else []
        number = _values(flat)
        #: What each call gets, each time that it runs.
        self._given: dict[int, list[tuple[Hashable, ...]]] = {
            call: list(zip(*([number[one] for one in values] for values in given.values()), strict=False))
            for call, given in data.items()
        }
        self._first = self._given[min(data)][0] if data else ()

    @property
    def maps_model(self) -> bool:
        """True if the model is under a ``jax.vmap`` that does not run over its data alone."""
        return any(map(self._is_mapped, self._given))

    def without_rows(self, mark: Mark, batches: int) -> str:
        """Return why nothing says which axis of a marked value is the batch; "" if it is known.

        Args:
            mark: Its mark.
            batches: The number of ``jax.vmap`` that it is under.
        """
        if batches and self._is_mapped(self._within.get((mark.address, mark.call), 0)):
            return MEMBERS
        return _SEVERAL if batches > 1 else ""

    def has_other_rows(self, mark: Mark, repeat: int) -> bool:
        """Return whether a call of a module is not known to have the rows of the model's first call.

        Of a step that does not call the model itself, all calls are taken to have the same.

        Args:
            mark: The mark of its result.
            repeat: How often the same code ran before, in a compiled function that is called several times.
        """
        if not self._first:
            return False
        place = mark.address, mark.call
        given = self._given.get(self._within.get(place, 0), [])
        if len(given) == self._repeats[place]:
            return given[repeat] != self._first
        return not given or any(one != self._first for one in given)

    def _is_mapped(self, call: int) -> bool:
        over_data = self._batches.get((DATA, call), 0) or not self._batches.get((END, call), 0)
        return bool(self._batches.get((STATE, call), 0)) or not over_data


def _values(flat: ClosedJaxpr) -> dict[Any, Hashable]:
    """Return a number of each variable, equal for those that are computed alike from the same."""
    known: dict[Hashable, int] = {}
    number: dict[Any, Hashable] = {}

    def of(variable: Any) -> Hashable:
        if isinstance(variable, Literal):
            return "literal", str(variable.val), str(variable.aval)
        return number.setdefault(variable, variable)

    for equation in flat.jaxpr.eqns:
        given = tuple(map(of, equation.invars))
        if equation.primitive is tap_p or equation.primitive.name in SAME:
            number[equation.outvars[0]] = given[0]
            continue
        try:
            key: Hashable = (
                equation.primitive,
                tuple(sorted(equation.params.items(), key=itemgetter(0))),
                given,
            )
            made = known.setdefault(key, len(known)) if not equation.effects else id(equation)
        except TypeError:  # parameters that cannot be compared
            made = id(equation)
        number.update((variable, (made, at)) for at, variable in enumerate(equation.outvars))
    return number


def _keys(flat: ClosedJaxpr) -> set[Any]:
    """Return the variables that are keys of random numbers in the form of plain arrays."""
    keys: set[Any] = set()
    for equation in flat.jaxpr.eqns:  # those that come from a key
        given = [one for one in equation.invars[:1] if not isinstance(one, Literal)]
        passes = equation.primitive is tap_p or equation.primitive.name in _PARTS
        if equation.primitive.name == "random_unwrap" or (passes and not keys.isdisjoint(given)):
            keys.update(equation.outvars)
    for equation in reversed(flat.jaxpr.eqns):  # and those that become one
        passes = equation.primitive is tap_p or equation.primitive.name in _PARTS
        if equation.primitive.name == "random_wrap" or (passes and not keys.isdisjoint(equation.outvars)):
            keys.update(one for one in equation.invars[:1] if not isinstance(one, Literal))
    return keys
