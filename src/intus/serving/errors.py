"""The exceptions of the servers and their HTTP statuses."""

from __future__ import annotations

from ..core.errors import IntusError, ServeError


class BusyError(IntusError):
    """Raised if too many bytes wait to be scored; a retry in a second may succeed (HTTP 429)."""


class FullError(IntusError):
    """Raised if the disk or the journal is full; the request was not accepted (HTTP 507)."""


class ReadingError(IntusError):
    """Raised while the journal is read after a start; the request was not accepted (HTTP 503)."""


class AwayError(ServeError):
    """Raised if the next server does not answer or cannot store now; the data are kept (HTTP 502)."""


class MisfitError(IntusError):
    """Raised if the labels of a target do not fit the rows of a data point; it becomes a notice."""
