"""Say which operations of a model were called, which recorded something, and what of them is not recorded."""

from __future__ import annotations

from collections.abc import Collection

from ...core.address import without_call
from ..row_check import listed
from ..warn_once import WarningLog

_SILENT = (
    "intus: %s of %s layers of %s have recorded nothing so far, for example %r. They did not run as modules, "
    "or what they return is no tensor that can be recorded. %s"
)
_NO_KIND = (
    "intus: nothing of kind %s of %s has been recorded so far: no layer had it in a recorded pass, as "
    "gradients that the training does not take, or takes where they cannot be seen. %s"
)
_OUTSIDE = (
    "intus: %s of %s layers of %s ran outside of a call of it, for example %r, as model.encode(x) runs them: "
    "only calls of the model itself are recorded. Call the model, or probe the part that is called."
)
_CHECKPOINTED = (
    "intus: %s of %s layers of %s, for example %r, have no gradients recorded: activation checkpointing runs "
    "them without gradients, and again in the backward pass, which is not observed. Pass use_reentrant=False "
    "to torch.utils.checkpoint."
)
_PARTS = (
    "{} of {} layers of {} return several tensors, of which the first with axes is recorded: of {!r} {!r}, "
    "and not {}. To record another, let the model pass it through a module of its own, such as nn.Identity."
)
_PACKED = (
    "Layers of {} that return a PackedSequence ({}) are recorded as pad_packed_sequence(…, batch_first=True) "
    "returns it: rows in the order of the batch, and zeros behind the end of each, which count in scores "
    "without labels, such as the mean."
)
_OF_PARAMETERS = frozenset({"parameter", "parameter_grad", "update"})


def _owners(address: str) -> list[str]:
    """Return the operations that may have a parameter.

    >>> _owners("body.0.weight")
    ['', 'body', 'body.0']
    """
    parts = address.split(".")
    return [".".join(parts[:end]) for end in range(len(parts))]


class Coverage:
    """The fate of the operations of one model that are to be recorded.

    Args:
        name: The name of the model.
        kinds: The kinds of tensors that are recorded.
        troubles: Logs warnings.
        blind_spot: What the framework cannot show, in words.

    Attributes:
        operations: The addresses of the operations to record.
        with_parameters: Those known to have parameters that none before has.
        kinds: The kinds of tensors that are recorded.
        called: The addresses that ran.
        outside: Those that ran outside of a call of the model.
        checkpointed: Those whose gradients are taken where they are not observed.
        recorded_at: The addresses with calls that recorded something.
        kinds_seen: The kinds of tensors that passes of the training had.
        kinds_elsewhere: Those that another process of the training sends.
        idle: Whether ``when`` declined all calls of an operation in this epoch, by address.
    """

    def __init__(self, name: str, kinds: Collection[str], troubles: WarningLog, blind_spot: str) -> None:
        self._name, self.kinds, self._troubles, self._blind_spot = name, kinds, troubles, blind_spot
        self.operations: tuple[str, ...] = ()
        self.with_parameters: frozenset[str] = frozenset()
        self.called: set[str] = set()
        self.outside: set[str] = set()
        self.checkpointed: set[str] = set()
        self.recorded_at: set[str] = set()
        self.kinds_seen: set[str] = set()
        self.kinds_elsewhere: set[str] = set()
        self.idle: dict[str, bool] = {}
        # By address that returns several tensors, the name of the recorded one and those of the others.
        self._several: dict[str, tuple[str, list[str]]] = {}
        self._packed: list[str] = []  # addresses that return packed items
        self._is_silence_known = False
        self._gone: set[str] = set()  # that the model has no longer, which is said

    def returned(self, address: str, recorded: str, others: list[str], *, packed: bool) -> None:
        """Register an operation that returns several tensors, or packed items, which the page shall say.

        Args:
            address: The operation.
            recorded: The path of the tensor that is recorded, in what the operation returns.
            others: Those of the others.
            packed: Whether it has packed items.
        """
        if others:
            self._several[address] = recorded, others
        if packed:
            self._packed.append(address)

    def forget(self, changed: Collection[str]) -> None:
        """Forget what these addresses did: other operations are there now, or none."""
        self.called.difference_update(changed)
        self.recorded_at = {one for one in self.recorded_at if without_call(one) not in changed}
        for address in changed:
            self.idle.pop(address, None)
        self._gone = self._gone.union(changed).difference(self.operations)

    def take_idle(self) -> set[str]:
        """Return the operations that an epoch, which ends, rightly lacks.

        These are those of which ``when`` declined all calls, and those that the model no longer has.
        """
        idle, self.idle = self.idle, {}
        return {address for address, declined in idle.items() if declined} | self._gone

    def tell(self, *, recorded: bool) -> None:
        """Say at the end of an epoch what is missing, each once.

        Args:
            recorded: Whether it recorded anything.
        """
        if recorded and not self._is_silence_known:
            self._warn_silent()
        self._tell_returned()
        if without := [one for one in self.operations if one in self.checkpointed]:
            counts = len(without), len(self.operations)
            self._troubles.warn_once(_CHECKPOINTED, *counts, self._name, without[0])
        if recorded:
            self._warn_kinds()

    def never_called(self) -> list[str]:
        """Return the addresses of recorded operations that never ran."""
        ran = self.called | self.outside
        return [address for address in self.operations if address not in ran]

    def warn_never_called(self) -> None:
        """Warn if most operations did not run in the first pass."""
        never_called = self.never_called()
        if 2 * len(never_called) > len(self.operations):
            text = "intus: %s of %s operations of %s did not run in its first call, for example %r. %s"
            counts = len(never_called), len(self.operations)
            self._troubles.warn_once(text, *counts, self._name, never_called[0], self._blind_spot)
            self._is_silence_known = True

    def silent(self) -> list[str]:
        """Return the addresses of chosen operations that have recorded nothing, but not for ``when``."""
        recorded = {without_call(address) for address in self.recorded_at}
        expected: Collection[str] = self.operations
        if _OF_PARAMETERS.issuperset(self.kinds):
            expected = self.with_parameters
            recorded |= {owner for address in recorded for owner in _owners(address)}
        return [
            address
            for address in self.operations
            if address in expected and address not in recorded and not self.idle.get(address, False)
        ]

    def _warn_silent(self) -> None:
        """Warn once of operations that recorded nothing in the first epoch."""
        if not any(kind in ("output", "input") for kind in self.kinds):
            return  # addresses of parameters are not those of operations
        self._is_silence_known = True
        self.warn_outside()
        if silent := [address for address in self.silent() if address not in self.outside]:
            counts = len(silent), len(self.operations)
            self._troubles.warn_once(_SILENT, *counts, self._name, silent[0], self._blind_spot)

    def _tell_returned(self) -> None:
        """Say once which tensors of operations are not recorded, and how packed items are."""
        several, self._several = self._several, {}
        packed, self._packed = self._packed, []
        if several:
            address, (recorded, others) = next(iter(several.items()))
            counts = len(several), len(self.operations)
            names = self._name, address, recorded, listed(others)
            self._troubles.inform("parts", _PARTS.format(*counts, *names))
        if packed:
            self._troubles.inform("packed", _PACKED.format(self._name, listed(packed)))

    def _warn_kinds(self) -> None:
        """Warn once of kinds that were asked for and that no layer had in a training that was recorded."""
        had = self.kinds_seen | self.kinds_elsewhere
        missing = [kind for kind in self.kinds if kind not in had]
        if missing and self.kinds_seen:
            self._troubles.warn_once(_NO_KIND, ", ".join(missing), self._name, self._blind_spot)

    def warn_outside(self) -> None:
        """Warn once of operations that ran only outside of a call of the model."""
        if outside := [one for one in self.operations if one in self.outside and one not in self.called]:
            counts = len(outside), len(self.operations)
            self._troubles.warn_once(_OUTSIDE, *counts, self._name, outside[0])
