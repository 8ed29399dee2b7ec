"""The exceptions of the servers, and what each means to who sent a request."""

from __future__ import annotations

from ..core.errors import IntusError, ServeError


class BusyError(IntusError):
    """Too much is waiting to be scored; the same request may work in a second (HTTP 429)."""


class FullError(IntusError):
    """There is no room on disk to keep what was sent, so it was not accepted (HTTP 507)."""


class AwayError(ServeError):
    """The next server does not answer or cannot store anything now; what it should get is kept (HTTP 502)."""


class MisfitError(IntusError):
    """The labels of a target do not fit the rows of a data point; becomes a notice."""
