"""Read the files of the built page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from ..core.errors import IntusError


@cache
def asset(name: str) -> str:
    """Return the text of a file of the built page.

    Raises:
        IntusError: The file is missing. The message names the command that builds it.
    """
    try:
        return (files("intus") / "_static" / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise IntusError(f"{name} of the built page is missing. Build it with: make web") from None
