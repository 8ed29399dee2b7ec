"""Say that layers of a model are others than before, and note it on their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...core.address import without_call
from ...core.doubt import Doubt
from ..row_check import listed
from ..warn_once import WarningLog

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


class ModelChanges:
    """The changes of one model's modules since it is probed.

    Args:
        name: The name of the model.
        doubt: Receives notes on scores.
        recorded_at: Returns the addresses that recorded something.
        troubles: Receives the warnings.
    """

    def __init__(
        self,
        name: str,
        doubt: Callable[[Doubt], None],
        recorded_at: Callable[[], Iterable[str]],
        troubles: WarningLog,
    ) -> None:
        self._name, self._doubt, self._recorded_at, self._troubles = name, doubt, recorded_at, troubles
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
            self._addresses.update(self._recorded_at())
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
        for address in sorted(self._addresses.union(self._recorded_at())) if others else ():
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
