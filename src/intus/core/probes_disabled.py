"""Looking at a model without being looked at: while ``trace`` or ``inspect`` runs a model that a probe
watches, the probe looks away, for what they run is no part of the training."""

from __future__ import annotations

from contextvars import ContextVar, Token

_unwatched: ContextVar[bool] = ContextVar("intus_unwatched", default=False)


class probes_disabled:  # noqa: N801 - used like a function
    """Probes look away, in this thread, until the block ends. A class, since contextlib's way of leaving a
    block would touch an exception that passes through.

    >>> with probes_disabled():
    ...     are_probes_disabled()
    True
    >>> are_probes_disabled()
    False
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token: Token[bool] = _unwatched.set(True)

    def __exit__(self, *error: object) -> None:
        _unwatched.reset(self._token)


def are_probes_disabled() -> bool:
    """Whether probes should look away."""
    return _unwatched.get()
