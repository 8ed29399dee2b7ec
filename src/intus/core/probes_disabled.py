"""Disable probes in this thread while ``trace`` or ``inspect`` runs a model."""

from __future__ import annotations

from contextvars import ContextVar, Token

_disabled: ContextVar[bool] = ContextVar("intus_probes_disabled", default=False)


class probes_disabled:  # noqa: N801 - used like a function
    """Context manager that disables probes in the current thread (or asynchronous task).

    What runs inside is not part of the training. It is a class because ``contextlib.contextmanager`` would
    modify the traceback of an exception that passes through.

    Example:
        >>> with probes_disabled():
        ...     are_probes_disabled()
        True
        >>> are_probes_disabled()
        False
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token: Token[bool] = _disabled.set(True)

    def __exit__(self, *error: object) -> None:
        _disabled.reset(self._token)


def are_probes_disabled() -> bool:
    """Return whether probes are disabled in the current thread."""
    return _disabled.get()
