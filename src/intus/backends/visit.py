"""A call of an operation that is observed, for backends that ask the tap at each call."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core.address import of_call
from ..core.errors import CaptureError

_SEVERAL = (
    "{!r} was called several times, and several gradients of one call were computed. Only the first of them "
    "is recorded, because an address names either a call or one of several gradients."
)


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


def gradient_address(operation: str, call: str, number: int, calls: int) -> str:
    """Return the address of one of the gradients of a call, of which each backward pass computes one.

    Args:
        operation: The operation's address.
        call: Its address with the call.
        number: The number of the gradient, from 1.
        calls: How many calls of the operation there were in the pass.

    Raises:
        CaptureError: If a number would name another call.

    Example:
        >>> gradient_address("fc", "fc", 1, 1), gradient_address("fc", "fc", 2, 1)
        ('fc', 'fc:2')
    """
    if number > 1 and calls > 1:
        raise CaptureError(_SEVERAL.format(operation))
    return call if number == 1 else of_call(operation, number)
