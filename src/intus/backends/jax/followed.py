"""Follow a model whose steps return another one: which arrays it consists of now.

A model of JAX is a value. What is certain is which arrays go into a step, and that a part of a step's result
goes into the next. So the model is followed by the identity of its arrays, and never by their names or
shapes, which gradients, moments of an optimizer and moving averages share with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import jax

from ...core.errors import InputError

_FIRST = (
    "Which part of the step's result is the model is known once another step was given it. Call the step "
    "twice before the first look after the training began, or pass every= to probe(), to look before steps."
)
_OUTSIDE = (
    "The observed step does not return the model that the next step gets, so what the model is after a step "
    "is not known. Let the step that goes through Probe.through return the updated model."
)
_OTHER = (
    "The last observed step was given another model, or a copy: none of its arguments, or several, are the "
    "arrays that probe() was given or that a step returned. Call probe() with the model that goes into the "
    "first step, and give each model a probe and a step of its own."
)


class Followed:
    """The arrays of a model from step to step.

    Args:
        arrays: The arrays before the first step.

    Example:
        >>> followed = Followed([one := object()])
        >>> followed.begins("step", (one, "data"))
        >>> followed.ends("step", (two := object(), "loss"))
        >>> followed.begins("step", (two, "data"))
        >>> followed.ends("step", (three := object(), "loss"))
        >>> followed.arrays == [three]
        True
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._now: list[Any] | None = list(arrays)  # None if they are not known
        self._why = ""  # they are not known
        self._given: list[Any] = []  # in the last step that got the model
        self._result: tuple[Hashable, list[Any]] | None = None  # of that step
        self._is_given = False  # whether the last step got the model
        self._places: dict[Hashable, list[int]] = {}  # of the arrays among arguments
        self._sources: dict[Hashable, list[int | None]] = {}  # the same in results; None if it is not there

    @property
    def arrays(self) -> list[Any]:
        """The arrays of the model after the last step.

        Raises:
            InputError: If they are not known.
        """
        if self._why or self._now is None:
            raise InputError(self._why or _FIRST)
        return self._now

    def begins(self, step: Hashable, arguments: Any) -> None:
        """Find the model in the arguments of a step.

        Args:
            step: The step.
            arguments: Its arguments.
        """
        self._is_given = False
        leaves, tree = jax.tree.flatten(arguments)
        places = self._places.get((step, tree))
        if self._now is not None:
            if places is None or not _are_at(places, leaves, self._now):
                places = _places(self._now, leaves)
            if places is None:
                self._why = _OTHER
                return
            self._places[step, tree] = places
        elif places is None:
            return  # a step that has not been given the model before
        given = [leaves[place] for place in places]
        if self._now is None and not self._learn(given):
            self._why = _OUTSIDE
            return
        self._now = self._given = given
        self._is_given, self._why = True, ""

    def ends(self, step: Hashable, result: Any) -> None:
        """Find the model in the result of the step that began.

        Args:
            step: The step.
            result: Its result.
        """
        if not self._is_given:
            return
        leaves, tree = jax.tree.flatten(result)
        self._result = (step, tree), leaves
        sources = self._sources.get((step, tree))
        if sources is not None:
            self._now = [
                old if at is None else leaves[at] for old, at in zip(self._given, sources, strict=True)
            ]
        elif set(map(_form, leaves)).isdisjoint(map(_form, self._given)):
            self._now = self._given  # the result of an evaluation, which has no array of the model
        else:
            self._now = None

    def _learn(self, given: list[Any]) -> bool:
        """Find out what part of the last result a step is given; False if it is none."""
        assert self._result is not None
        key, leaves = self._result
        at = _positions(leaves)
        found = [at.get(id(array), []) for array in given]
        kept = [new is old for new, old in zip(given, self._given, strict=True)]
        if not all(len(where) == 1 or stays for where, stays in zip(found, kept, strict=True)):
            return False
        if not all(kept):  # otherwise the result was not used
            self._sources[key] = [where[0] if where else None for where in found]
        return True


def _positions(leaves: Sequence[Any]) -> dict[int, list[int]]:
    """Return the positions of each object, by its identity."""
    positions: dict[int, list[int]] = defaultdict(list)
    for position, leaf in enumerate(leaves):
        positions[id(leaf)].append(position)
    return positions


def _places(arrays: Sequence[Any], leaves: Sequence[Any]) -> list[int] | None:
    """Return the positions of arrays; None if one is missing, or there more often than among the arrays."""
    at, wanted = _positions(leaves), _positions(arrays)
    if any(len(at.get(array, ())) != len(numbers) for array, numbers in wanted.items()):
        return None
    pairs = ((numbers, at[array]) for array, numbers in wanted.items())
    places = {number: place for numbers, found in pairs for number, place in zip(numbers, found, strict=True)}
    return [places[number] for number in range(len(arrays))]


def _are_at(places: Sequence[int], leaves: Sequence[Any], arrays: Sequence[Any]) -> bool:
    return all(leaves[place] is array for place, array in zip(places, arrays, strict=True))


def _form(value: Any) -> Hashable:
    return getattr(value, "shape", None), str(getattr(value, "dtype", type(value)))
