"""Follow a model whose modules or parameters are replaced after ``probe()``.

Layers may be added, replaced or removed, and weights tied or untied. So before each pass that is recorded,
``FollowedModel.before_pass`` asks what observes the model for its layers, which takes little time while they
are the same. If they are others:

1. the operations to record are chosen anew: what was there before stays as it was chosen;
2. what observes the model (the attachment of PyTorch, no other) puts its hooks on these;
3. what was learned of the layers is forgotten;
4. the change is said, and noted on the scores of the epoch (``_Changes``).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ...backends.base import Backend, Operation
from ...core.address import without_call
from ...core.doubt import Doubt
from ..row_check import listed
from ..schedule import Schedule
from ..warn_once import WarningLog
from .coverage import Coverage

#: What a backend returns of a model: the module that has what is recorded, by address.
Places = Mapping[str, Any]

_CHANGED = (
    "intus: {} has other modules, seen in epoch {}: {}. It is recorded as it is now, so scores of an address "
    "before and after that may be of different modules. The graph of the page is that of its first call."
)
_CHANGED_BEFORE = "{} has other modules than when probe() was called: {}. It is recorded as it is now."
_MOST = 8  # sentences
_MORE = " Further changes are recorded likewise and are not said."
_OTHER = "another module than in epoch {}"
_MIXED = "another module took this address inside of the epoch"


class FollowedModel:
    """The layers of one model that are recorded, as it is now.

    Args:
        name: The name of the model.
        backend: Its backend.
        schedule: Chooses what is recorded.
        coverage: Receives which operations are recorded, and forgets those that are others now.
        forget: Called with a model that has other layers than before, to forget what else was learned of it.
        doubt: Receives notes on scores.
        troubles: Receives the warnings.

    Attributes:
        chosen: Whether an operation is recorded, by address, also of those discovered during a pass.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        schedule: Schedule,
        coverage: Coverage,
        forget: Callable[[Any], None],
        doubt: Callable[[Doubt], None],
        troubles: WarningLog,
    ) -> None:
        self._backend, self._schedule, self._coverage, self._forget = backend, schedule, coverage, forget
        self.chosen: dict[str, bool] = {}
        self._follow: Callable[[], Callable[..., Places] | None] = lambda: None
        self._changes = _Changes(name, coverage, doubt, troubles)

    def attach(self, known: Iterable[Operation], chosen: Iterable[Operation]) -> None:
        """Store the operations known before the first call, and those of them to record."""
        operations = tuple(operation.address for operation in chosen)
        self._coverage.operations = operations
        self.chosen = {operation.address: False for operation in known} | dict.fromkeys(operations, True)

    def begin(self, attachment: Any, operations: Iterable[Operation]) -> None:
        """Follow changes of the model by what observes it, if that can; it is referred to weakly.

        Args:
            attachment: What observes the model.
            operations: The operations that are recorded.
        """
        if (follow := getattr(attachment, "follow", None)) is None:
            of_backend = (one.address for one in operations if self._backend.parameters(one))
            self._coverage.with_parameters = frozenset(of_backend)
            return
        self._follow = weakref.WeakMethod(follow)
        self._changes.begin(attachment.places)
        self._note_parameters(attachment.places)

    def before_pass(self, model: Any, epoch: float, mode: str) -> bool:
        """Record the model as it is now, before a pass that is recorded, and say what is other than before.

        Args:
            model: The model; None if it no longer exists.
            epoch: The epoch of the pass.
            mode: Its mode.

        Returns:
            Whether layers have changed.
        """
        places = self.follow(model)
        if places is None:
            return False
        changed = self._changes.on_pass(places, epoch, mode)
        if changed:
            self._coverage.forget(changed)
            self._note_parameters(places)
            self._forget(model)
        return bool(changed)

    def follow(self, model: Any) -> Places | None:
        """Record the model as it is now, and return its modules by address; None if that is not followed."""
        follow = self._follow()
        return None if follow is None or model is None else follow(model, partial(self._choose, model))

    def discover(self, model: Any, operation: Operation) -> bool:
        """Return whether an operation is recorded that was not known before it ran."""
        chosen = self.chosen[operation.address] = self._schedule.chooses(model, operation)
        self._coverage.operations += (operation.address,) if chosen else ()
        return chosen

    def _choose(self, model: Any, is_same: Callable[[Operation], bool]) -> list[Operation]:
        """Return the operations to record of a model that has others than before."""
        known = self._backend.operations(model)
        chosen = [
            operation
            for operation in known
            if (
                self.chosen[operation.address]
                if operation.address in self.chosen and is_same(operation)
                else self._schedule.chooses(model, operation)
            )
        ]
        self.attach(known, chosen)
        return chosen

    def _note_parameters(self, places: Places) -> None:
        """Note which operations have parameters that are recorded."""
        parameters = places.keys() - set(self._coverage.operations)
        self._coverage.with_parameters = frozenset(one.rpartition(".")[0] for one in parameters)


class _Changes:
    """The changes of a model's layers since it is probed: what is said of them, and noted on scores.

    Args:
        name: The name of the model.
        coverage: Has the addresses that recorded something.
        doubt: Receives notes on scores.
        troubles: Receives the warnings.
    """

    def __init__(
        self, name: str, coverage: Coverage, doubt: Callable[[Doubt], None], troubles: WarningLog
    ) -> None:
        self._name, self._coverage, self._doubt, self._troubles = name, coverage, doubt, troubles
        self._last: Places = {}
        self._sentences = 0
        self._addresses: set[str] = set()  # that recorded something before the last change
        #: By mode, the modules and the epoch of its last pass.
        self._passes: dict[str, tuple[Places, float]] = {}

    def begin(self, places: Places) -> None:
        """Receive the modules of the model when it was probed."""
        self._last = places

    def on_pass(self, places: Places, epoch: float, mode: str) -> set[str]:
        """Compare the modules of a pass that is to be recorded with those before.

        Args:
            places: The modules, the same object as before if none has changed.
            epoch: The epoch.
            mode: The mode.

        Returns:
            The addresses at which there is another module than in the pass before, or none, or one is new.
        """
        changed: set[str] = set()
        if places is not self._last:
            self._addresses.update(self._coverage.recorded_at)
            changed = self._say(self._last, places, epoch)
            self._last = places
        before = self._passes.get(mode)
        if before is None or before != (places, epoch):
            if before is not None and before[0] is not places:
                self._note(*before, places, epoch, mode)
            self._passes[mode] = places, epoch
        return changed

    def _say(self, before: Places, now: Places, epoch: float) -> set[str]:
        """Say which addresses are others, new or gone, and return them."""
        other, new, gone = _others(before, now), _missing(now, before), _missing(before, now)
        facts = [
            f"{listed(heads)} {one if len(heads) == 1 else several}"
            for heads, one, several in (
                (_heads(other, now), "is another module", "are other modules"),
                (_heads(new, now), "is new", "are new"),
                (_heads(gone, before), "is gone", "are gone"),
            )
            if heads
        ]
        if facts and not self._addresses:
            self._troubles.inform("parts", _CHANGED_BEFORE.format(self._name, "; ".join(facts)))
        elif facts and self._sentences < _MOST:
            self._sentences += 1
            text = _CHANGED.format(self._name, f"{epoch:g}", "; ".join(facts))
            self._troubles.warn_once(text + _MORE * (self._sentences == _MOST))
        return {*other, *new, *gone}

    def _note(self, before: Places, last: float, now: Places, epoch: float, mode: str) -> None:
        """Note on scores of an epoch that layers are others than in the last, or became so inside of it."""
        others = set(_others(before, now))
        note = _MIXED if last == epoch else _OTHER.format(f"{last:g}")
        for address in sorted(self._addresses.union(self._coverage.recorded_at)) if others else ():
            if address in others or without_call(address) in others:
                after = math.nextafter(epoch, -math.inf)
                self._doubt(Doubt(note, after=after, until=epoch, modes=(mode,), address=address, every=True))


def _others(before: Places, now: Places) -> list[str]:
    """Return the addresses at which there is another module than before."""
    return [address for address, module in now.items() if before.get(address, module) is not module]


def _heads(addresses: list[str], places: Places) -> list[str]:
    """Return addresses without those of parameters whose modules are among them."""
    parents = {address: address.rpartition(".")[0] for address in addresses}
    return [
        address
        for address, parent in parents.items()
        if address == parent or parent not in parents or places[parent] is not places[address]
    ]


def _missing(these: Places, those: Places) -> list[str]:
    """Return the addresses that only the first have."""
    return [address for address in these if address not in those]
