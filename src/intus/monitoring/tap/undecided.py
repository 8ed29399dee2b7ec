"""Keep passes in evaluation mode of which it is not known yet whether they train the model.

A pass with gradients may train a model that is in evaluation mode, as ``from_pretrained`` returns it, or may
be an evaluation without ``no_grad``. It trains if a step of an optimizer follows a backward pass through it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ...backends.feeds import Undecided
from ...core.record import Record
from .pass_tags import PassTags

#: Passes that wait at most, as those whose gradients accumulate for one step.
_MOST = 64


@dataclass(frozen=True, slots=True)
class Kept:
    """A record of an undecided pass.

    Attributes:
        make: Returns the record, always the same one, of the tags that the pass has at the first request.
        nbytes: The room that was reserved for it.
        contents: What its arrays were made of; None if that may have changed.
    """

    make: Callable[[], Record]
    nbytes: int
    contents: Hashable | None = None


@dataclass(slots=True, eq=False)
class UndecidedPass:
    """A pass in evaluation mode that may train the model.

    Attributes:
        tags: Its tags, of which epoch, mode, ids and facts are set once it is decided.
        inputs: The arguments of the call.
        by: What tells whether it trains the model.
        mode_of_training: Its mode if it trains.
        is_recorded: Whether its tensors are recorded.
        writes: The number of writes to the parameters before it.
        drawn: Why its rows do not come in the order of their dataset, or None; empty if not looked at.
        records: Its records so far.
        parameters: What records its parameters at the end of the epoch, by address.
    """

    tags: PassTags
    inputs: Any
    by: Undecided
    mode_of_training: str
    is_recorded: bool = False
    writes: int = 0
    drawn: list[str | None] = field(default_factory=list)
    records: list[Kept] = field(default_factory=list)
    parameters: dict[str, Callable[[], bool]] = field(default_factory=dict)

    def repeat(self, contents: Hashable, **place: Any) -> bool:
        """Keep the record of a tensor once more, as that of another with the same contents.

        Args:
            contents: What its arrays were made of.
            **place: Fields of the record that say which tensor the other is.

        Returns:
            False if there is no such record.
        """
        known = next((kept for kept in self.records if kept.contents == contents), None)
        if known is None:
            return False
        make = known.make
        self.records.append(Kept(cache(lambda: replace(make(), **place)), 0))
        return True

    @property
    def has_come(self) -> bool:
        """True if a backward pass came through it."""
        return self.by.backward.has_come

    @property
    def may_train(self) -> bool:
        """True if a step may still apply gradients that came through it."""
        return self.by.backward.has_come or self.by.backward.may_come()


class UndecidedPasses:
    """The passes of one model that wait until it is known whether they train it.

    Args:
        capacity: The bytes that their records take at most.
        expects_step: Returns whether an optimizer may step the model; None if that is not known.
        on_unproven: Called once passes are decided although a step may still follow.
    """

    def __init__(
        self,
        capacity: float,
        expects_step: Callable[[], bool | None],
        on_unproven: Callable[[], None],
    ) -> None:
        self._capacity, self._expects_step, self._on_unproven = capacity, expects_step, on_unproven
        self._waiting: dict[PassTags, UndecidedPass] = {}
        self._have_trained = False  # whether those before the last step did
        self._train = False  # whether one does that waits no more, since then
        self._is_overlooked = False  # whether some were decided because no optimizer was known

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def are_expected_to_train(self) -> bool:
        """True if the passes before the last step trained."""
        return self._have_trained

    def of(self, tags: PassTags) -> UndecidedPass | None:
        """Return the pass that has these tags; None if it is decided."""
        return self._waiting.get(tags)

    def have(self, tags: PassTags) -> bool:
        """Return whether the pass that has these tags waits."""
        return tags in self._waiting

    def add(self, one: UndecidedPass) -> None:
        """Let a pass wait."""
        self._waiting[one.tags] = one

    def before_step(self) -> Iterator[tuple[UndecidedPass, bool]]:
        """Yield all passes before a step of an optimizer, in their order, and whether they train.

        A step of a model through which no backward pass came follows passes in training mode.
        """
        if self._is_overlooked:
            self._on_unproven()
        self._have_trained = self._train or any(one.has_come for one in self._waiting.values())
        self._train = self._is_overlooked = False
        while self._waiting:
            one = self._pop()
            yield one, one.has_come

    def known(self, stepped: int) -> Iterator[tuple[UndecidedPass, bool]]:
        """Yield those that are decided by now, in their order, and whether they train.

        Gradients of one that no step has applied may accumulate for it, if those before did.

        Args:
            stepped: The number of steps of optimizers so far.
        """
        while self._waiting:
            one = next(iter(self._waiting.values()))
            is_known = one.by.at.stepped < stepped or (one.has_come and self._have_trained)
            if one.may_train and not is_known:
                expects_step = self._expects_step()
                if expects_step and len(self._waiting) <= _MOST and self._nbytes <= self._capacity:
                    return
                if expects_step:
                    self._on_unproven()
                self._is_overlooked = expects_step is None
            self._pop()
            yield one, self._trains(one, stepped)

    def all(self, stepped: int) -> Iterator[tuple[UndecidedPass, bool]]:
        """Yield all passes, because no step is expected of them any more, and whether they train.

        Args:
            stepped: The number of steps of optimizers so far.
        """
        while self._waiting:
            one = self._pop()
            yield one, self._trains(one, stepped)

    def _trains(self, one: UndecidedPass, stepped: int) -> bool:
        """Return whether a pass trains: a step ran it, as a closure, or would have applied its gradients."""
        if one.has_come and one.by.at.stepped < stepped:
            self._have_trained = True
        trains = one.has_come and self._have_trained
        self._train = self._train or trains
        return trains

    @property
    def _nbytes(self) -> int:
        return sum(kept.nbytes for one in self._waiting.values() for kept in one.records)

    def _pop(self) -> UndecidedPass:
        return self._waiting.pop(next(iter(self._waiting)))
