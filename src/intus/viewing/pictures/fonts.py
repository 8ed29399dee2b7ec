"""Which font each character is drawn in: matplotlib's own, else another of the machine's."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any

OWN = ""  # matplotlib's DejaVu Sans
MISSING = "\N{WHITE VERTICAL RECTANGLE}"
_NO_WORDS = re.compile("LastResort|Emoji.*Color|Color.*Emoji|Mono|Serif", re.IGNORECASE)


def runs(words: str) -> Iterator[tuple[str, str]]:
    """Words in parts, each with the file of the font that it is drawn in; ``OWN`` for matplotlib's.

    A character that no font of this machine has is shown as an empty box, ▯.
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
    """Words whose parts follow one another as in a browser, though each is written in its own direction."""
    turned = any(unicodedata.bidirectional(character) in ("R", "AL") for character in words)
    return f"\u200e{words}" if turned else words


@cache
def _file_with(code: int) -> str | None:
    """The first of the machine's fonts that has a character."""
    return next((file for file in _files() if code in _characters(file)), None)


@cache
def _files() -> tuple[str, ...]:
    """The machine's fonts, plain sans serif ones first; asked for where matplotlib's own lacks something.

    matplotlib's own list is not asked: it is made once and does not know what was installed since.
    """
    from matplotlib.font_manager import findSystemFonts

    def order(file: str) -> tuple[bool, bool, bool, str]:
        return bool(_NO_WORDS.search(file)), "Sans" not in file, "Regular" not in file, file

    return tuple(sorted(findSystemFonts(), key=order))


@cache
def _characters(file: str) -> frozenset[int]:
    """What a font can draw as outlines; nothing where it is none or only has pictures."""
    from matplotlib.font_manager import get_font

    try:
        font: Any = get_font(file)
        return frozenset(font.get_charmap()) if font.scalable and "LastResort" not in file else frozenset()
    except (RuntimeError, OSError):
        return frozenset()


def _own() -> str:
    from matplotlib.font_manager import FontProperties, findfont

    return findfont(FontProperties(family="DejaVu Sans"))
