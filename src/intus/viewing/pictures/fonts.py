"""Choose a font for each character: matplotlib's default, else another font of this machine."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any

OWN = ""  # used as the file name of matplotlib's DejaVu Sans
MISSING = "\N{WHITE VERTICAL RECTANGLE}"
_UNSUITABLE = re.compile("LastResort|Emoji.*Color|Color.*Emoji|Mono|Serif", re.IGNORECASE)


def runs(words: str) -> Iterator[tuple[str, str]]:
    """Split a text into runs, each with the file of the font to draw it in.

    Args:
        words: The text. A character that no font of this machine has is replaced by an empty box, ▯.

    Yields:
        A run and the file of its font; ``OWN`` for matplotlib's default font.
    """
    if words.isascii():
        yield words, OWN
        return
    known = _characters(_own())
    files: list[str | None] = []
    for character in words:
        if unicodedata.combining(character) and files:
            files.append(files[-1])
        else:
            files.append(OWN if ord(character) in known else _file_with(ord(character)))
    pairs = [(c if file is not None else MISSING, file or OWN) for c, file in zip(words, files, strict=True)]
    for file, part in groupby(pairs, key=lambda pair: pair[1]):
        yield _left_to_right("".join(character for character, _ in part)), file


def _left_to_right(words: str) -> str:
    """Mark a run with right-to-left characters so that runs still follow one another from left to right."""
    has_rtl = any(unicodedata.bidirectional(character) in ("R", "AL") for character in words)
    return f"\u200e{words}" if has_rtl else words


@cache
def _file_with(code: int) -> str | None:
    """Return the first font of this machine that has a character, or None."""
    return next((file for file in _files() if code in _characters(file)), None)


@cache
def _files() -> tuple[str, ...]:
    """Return the files of this machine's fonts, plain sans serif fonts first.

    matplotlib's cached list of fonts would lack fonts that were installed later.
    """
    from matplotlib.font_manager import findSystemFonts

    def order(file: str) -> tuple[bool, bool, bool, str]:
        return bool(_UNSUITABLE.search(file)), "Sans" not in file, "Regular" not in file, file

    return tuple(sorted(findSystemFonts(), key=order))


@cache
def _characters(file: str) -> frozenset[int]:
    """Return the characters that a font can draw as outlines; none if it is unreadable or a bitmap font."""
    from matplotlib.font_manager import get_font

    try:
        font: Any = get_font(file)
        return frozenset(font.get_charmap()) if font.scalable and "LastResort" not in file else frozenset()
    except (RuntimeError, OSError):
        return frozenset()


def _own() -> str:
    from matplotlib.font_manager import FontProperties, findfont

    return findfont(FontProperties(family="DejaVu Sans"))
