"""The exceptions of the servers and their HTTP statuses."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.errors import IntusError, ServeError
from ..engines import WorkerDiedError


class BusyError(IntusError):
    """Raised if too many bytes wait to be scored; a retry in a second may succeed (HTTP 429)."""


class FullError(IntusError):
    """Raised if the disk or the journal is full; the request was not accepted (HTTP 507)."""


class ReadingError(IntusError):
    """Raised while the journal is read after a start; the request was not accepted (HTTP 503).

    Attributes:
        lasting: Whether it could not be read, and is not until the server is started again.
    """

    def __init__(self, text: str, *, lasting: bool = False) -> None:
        super().__init__(text)
        self.lasting = lasting


class AwayError(ServeError):
    """Raised if the next server does not answer or cannot store now; the data are kept (HTTP 502)."""


class UnansweredError(AwayError):
    """Raised if the next server gave no reply: it may still do what it was asked to."""


class HeldError(AwayError):
    """Raised if memory or a library is missing for one data point; it is kept, and others can be scored.

    Between two servers it is HTTP 507.
    """


class MisfitError(IntusError):
    """Raised if the labels of a target do not fit the rows of a data point; it becomes a notice."""


def fault(error: BaseException) -> str:
    """Return why an exception says nothing about the data that were scored; "" if it may.

    Without memory, disk or a library nothing can be scored, whatever the data are. An exception that was
    raised from another one is judged by that.

    >>> fault(MemoryError("Unable to allocate 3 GiB"))
    'The memory does not suffice: Unable to allocate 3 GiB.'
    >>> fault(ValueError("array of no rows"))
    ''
    """
    for each in _causes(error):
        said = (str(each) or type(each).__name__).strip().rstrip(".")
        if isinstance(each, AwayError):
            return str(each)
        if isinstance(each, MemoryError) or said == "can't start new thread":
            return f"The memory does not suffice: {said}."
        if isinstance(each, WorkerDiedError):
            return f"{said}, as happens without enough memory."
        if isinstance(each, ImportError):
            return f"A library is missing: {said}."
        if isinstance(each, OSError) and not isinstance(each, ServeError):
            return f"The operating system refuses: {said}."
    return ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(10):  # an exception may be its own cause
        if error is None:
            return
        yield error
        error = error.__cause__
