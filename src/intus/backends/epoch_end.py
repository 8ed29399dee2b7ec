"""Offer parameters to a tap: at the end of the epoch if it wants them then, else now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def show_parameter(
    tap: Any, ticket: Any, address: str, show: Callable[[], bool], now: Callable[[], Any] | None = None
) -> None:
    """Pass a parameter of a call to a tap, now or at the end of the epoch.

    Args:
        tap: The tap. If it has a method ``at_epoch_end``, that decides; see ``monitoring.tap.ModelTap``.
        ticket: The value that ``Tap.wants`` returned.
        address: The parameter.
        show: Passes its present value to the tap, and returns False if the parameter no longer exists.
        now: Passes the value of this call. Default: ``show``, for a parameter that can be read in the call.
    """
    later: Callable[..., bool] | None = getattr(tap, "at_epoch_end", None)
    if later is None or not later(ticket, address, show):
        (now or show)()
