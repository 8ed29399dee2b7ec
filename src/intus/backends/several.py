"""Tell the tap of operations that return several tensors, of which one is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Several:
    """Tells a tap once of each operation that returns packed items, or more than the recorded tensor.

    Args:
        tap: The observer; see ``ModelTap.returned``.
    """

    def __init__(self, tap: Any) -> None:
        self._told: set[str] = set()
        self._returned: Callable[..., None] | None = getattr(tap, "returned", None)

    def tell(self, address: str, names: Sequence[str], recorded: int, *, packed: bool = False) -> None:
        """Tell of a call of an operation.

        Args:
            address: The operation.
            names: The paths of the tensors in what it returned; ``""`` for one whose path is its number.
            recorded: The number of the one that is recorded.
            packed: Whether that one is packed items.
        """
        if address in self._told or not (packed or len(names) > 1):
            return
        self._told.add(address)
        if self._returned is not None:
            named = [name or str(number) for number, name in enumerate(names)]
            others = [name for number, name in enumerate(named) if number != recorded]
            self._returned(address, named[recorded], others, packed=packed)
