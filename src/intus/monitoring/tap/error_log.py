"""Log the errors of passes: each new text, but refusals for one reason only once."""

from __future__ import annotations

import re

from ...core.errors import IntusError
from ..row_check import listed
from ..warn_once import WarningLog

_FAILED = "intus could not record part of a pass and continues without it: %s: %s"
_ALSO = "intus: what an earlier warning says of {} of {} is so of {} more: {}."
#: What differs between refusals for one reason: the names of layers, and numbers.
_NAMES = re.compile(r"'[^']*'|\d+")
_MOST_ERRORS = 8  # different texts of one class of errors that are logged
_MOST_REFUSED = 1000  # names that are kept for one reason


class ErrorLog:
    """The errors of the passes of one model.

    A refusal, which is an ``IntusError``, comes in each pass again, and often for many layers.

    Args:
        name: The name of the model.
        troubles: Counts and logs the errors.

    Example:
        >>> troubles = WarningLog()
        >>> errors = ErrorLog("net", troubles)
        >>> for layer in ("fc1", "fc2", "fc3"):
        ...     errors.log(IntusError(f"{layer!r} is sparse."))
        >>> errors.tell()
        >>> troubles.faults()[-1]
        "What an earlier warning says of 'fc1' of net is so of 2 more: 'fc2' and 'fc3'."
    """

    def __init__(self, name: str, troubles: WarningLog) -> None:
        self._name, self._troubles = name, troubles
        # By the reason of a refusal, the names in its warning, and all names with whether they were told.
        self._refused: dict[str, tuple[str, dict[str, bool]]] = {}

    def log(self, error: Exception) -> None:
        """Count and log an error, if its text is new; a refusal, if its reason is."""
        refused = isinstance(error, IntusError)
        code = _NAMES.sub("", str(error)) if refused else type(error).__name__
        of = type(error).__name__, error
        if refused:
            self._note_refused(code, str(error))
        self._troubles.count(f"hook {code}", _FAILED, *of, once=refused, most=1 if refused else _MOST_ERRORS)

    def tell(self) -> None:
        """Name the layers that were refused for the reason of an earlier warning."""
        for first, told in list(self._refused.values()):
            if others := [name for name, is_told in list(told.items()) if not is_told]:
                told.update(dict.fromkeys(others, True))
                names = listed(name[1:-1] for name in others)
                self._troubles.warn_once(_ALSO.format(first, self._name, len(others), names))

    def _note_refused(self, code: str, text: str) -> None:
        """Note the layers that a refusal names."""
        names = [name for name in _NAMES.findall(text) if name.startswith("'")]
        first = ", ".join(names)
        _, told = self._refused.setdefault(code, (first, dict.fromkeys(names, True)))
        if len(told) < _MOST_REFUSED:
            for name in names:
                told.setdefault(name, False)
