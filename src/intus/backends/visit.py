"""A call of an operation that is observed, for backends that ask the tap at each call."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core.address import of_call


class Visit(NamedTuple):
    """One call of one operation that the tap wants.

    Attributes:
        ticket: The value that ``Tap.wants`` returned.
        address: The operation's address with its call.
        first: Whether it is the operation's first call of this pass.
        axis: The batch axis that the operation prescribes, or None.
    """

    ticket: Any
    address: str
    first: bool
    axis: int | None = None

    @classmethod
    def of(cls, ticket: Any, address: str, call: int, axis: int | None = None) -> Visit | None:
        """Return the visit of a call; None if the tap returned no ticket.

        Args:
            ticket: The value that ``Tap.wants`` returned.
            address: The operation's address.
            call: The number of its call in this pass, from 1.
            axis: The batch axis that the operation prescribes, or None.
        """
        return None if ticket is None else cls(ticket, of_call(address, call), call == 1, axis)
