"""The names that can be stored: of runs, models, targets, tags and values.

A training refuses others before it sends anything, and a server refuses them in its requests.
"""

from __future__ import annotations

import re
from typing import Any

from .errors import InputError

#: Most characters of a name.
LONGEST = 1000
#: A pattern of what can be stored: PostgreSQL cannot store NUL, and no encoding half a surrogate pair.
STORABLE = r"^[^\x00\ud800-\udfff]*$"


def is_name(value: Any) -> bool:
    """Return whether a value is a name that can be stored.

    Example:
        >>> [is_name(value) for value in ("digit", "", 3, "a" * 1001, chr(0), chr(0xD800))]
        [True, False, False, False, False, False]
    """
    return isinstance(value, str) and 0 < len(value) <= LONGEST and re.search(STORABLE, value) is not None


def check_name(what: str, value: Any, hint: str = "") -> str:
    """Return a name that can be stored.

    Args:
        what: The argument, for the error message.
        value: The caller's value.
        hint: An example, or what stands for the default; it begins with a space or a comma.

    Raises:
        InputError: If it is something else.

    Example:
        >>> check_name("run", "first")
        'first'
    """
    if not is_name(value):
        shown = ascii(value) if isinstance(value, str) else repr(value)
        raise InputError(
            f"{what} must be a non-empty string of at most {LONGEST:,} characters, without NUL or half a "
            f"surrogate pair{hint}, got {shown if len(shown) <= 80 else shown[:60] + '…'}."
        )
    return str(value)
