"""Tell whether the model that a step was given is the probed one, or another that is built alike.

A model that is a value has no identity but that of its arrays: those that ``probe`` was given, and those that
observed steps returned. Others may be the same model, updated where nothing shows it, or a moving average, a
target network, or one that was loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import jax

from ...core.errors import InputError

UNKNOWN = (
    "The arrays of the {1} that {0} was given are neither those of the probed one nor such as an observed "
    "step returned, so it may be another model, such as a moving average. Its values are recorded as those "
    "of the probed one. Give each model a probe and a step of its own; if it is the same, pass probe() the "
    "arrays that go into the first step, and what updates them through Probe.through."
)
SEVERAL = (
    "{0} was given a {1} with other arrays than before, and no observed step returned new ones in between. "
    "So one of the two is not the probed model as it is now, but for instance its moving average. The values "
    "of both are recorded as those of the probed one. Give each model a probe and a step of its own."
)
BESIDE = (
    "{0} was given another {1} of a step's result than the one that the step gets in its next call, such as "
    "a moving average. Its values are recorded as those of the probed one. Give each model a probe and a "
    "step of its own."
)


class Kin:
    """The arrays that are known to be of the probed model.

    Args:
        probed: Returns the arrays that the probed model has now.

    Example:
        >>> import numpy as np
        >>> kin = Kin(lambda: [first])
        >>> first, other = np.zeros(2), np.zeros(2)
        >>> kin.doubt("evaluate", [[first]]), kin.doubt("evaluate", [[other]]) == UNKNOWN
        ('', True)
    """

    def __init__(self, probed: Callable[[], Sequence[Any]]) -> None:
        self._probed = probed
        self._known: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._forms: set[Hashable] = set()
        self._without: set[Hashable] = set()  # functions that do not return the model
        self._places: dict[Hashable, set[int]] = {}  # of the model in the results of a function
        self._given: dict[Hashable, tuple[list[int], int]] = {}  # by function, with ``_returned`` of then
        self._results: dict[Hashable, Any] = {}  # the last of each step that returns the model
        self._returned = 0  # how many results such steps returned

    def doubt(self, function: Hashable, given: Sequence[Sequence[Any]], *, trains: bool = False) -> str:
        """Return why the model of a call may be another one; "" if it is not known to be.

        Args:
            function: The function that is called.
            given: The arrays of the model in each of its calls; empty for one that is made in the step.
            trains: Whether it takes gradients, so that the next model may be another one.
        """
        if not given or not all(given):
            return ""
        results = {name: jax.tree.leaves(result) for name, result in self._results.items()}
        for leaves in results.values():
            self._add(leaves)
        found = self._found(given)
        if found is None:
            try:
                self._add(self._probed())
            except InputError:  # a Linen module that is not bound: the first call tells
                if not self._known:
                    self._add(one for arrays in given for one in arrays)
            found = self._found(given)
        if found is None:
            return UNKNOWN
        self._add(found)
        self._forms = set(map(_form, found))
        ids = list(map(id, found))
        if self._is_beside(ids, results, trains=trains):
            return BESIDE
        before, self._given[function] = self._given.get(function), (ids, self._returned)
        is_other = before is not None and before[0] != ids and before[1] == self._returned
        return SEVERAL if is_other and not trains else ""

    def _found(self, given: Sequence[Sequence[Any]]) -> Sequence[Any] | None:
        """Return the arrays of the first call whose arrays are all known."""
        known = (arrays for arrays in given if all(self._known.get(id(one)) is one for one in arrays))
        return next(known, None)

    def _is_beside(
        self, ids: Sequence[int], results: Mapping[Hashable, Sequence[Any]], *, trains: bool
    ) -> bool:
        """Return whether arrays are in results, but not where steps that train take the model from."""
        for function, leaves in results.items():
            places = {at for at, leaf in enumerate(leaves) if id(leaf) in ids}
            if places and trains:
                self._places[function] = places
            elif not places <= self._places.get(function, places):
                return True
        return False

    def returns(self, function: Hashable, result: Any) -> None:
        """Keep the result of a call, if it has arrays like those of the model."""
        if not self._forms or function in self._without:
            return
        if function not in self._results and not self._forms <= set(map(_form, jax.tree.leaves(result))):
            self._without.add(function)
            return
        self._results[function] = result
        self._returned += 1

    def _add(self, arrays: Iterable[Any]) -> None:
        self._known.update((id(one), one) for one in arrays if type(one).__weakrefoffset__)


def _form(value: Any) -> Hashable:
    return getattr(value, "shape", None), str(getattr(value, "dtype", type(value)))
