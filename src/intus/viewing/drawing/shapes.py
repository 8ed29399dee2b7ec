"""What a picture is made of, whatever it is written as. Coordinates are pixels from the top left."""

from __future__ import annotations

import re
from typing import NamedTuple


class Rect(NamedTuple):
    """A box with round corners."""

    x: float
    y: float
    width: float
    height: float
    radius: float
    fill: str
    line: str
    weight: float = 1.0
    dashed: bool = False


class Curve(NamedTuple):
    """A line through ``points``: the first, then for every part either an end (x, y), or two control points
    and an end (six numbers)."""

    points: list[tuple[float, ...]]
    line: str
    weight: float = 1.25


class Polygon(NamedTuple):
    """A filled shape with straight sides."""

    points: list[tuple[float, float]]
    fill: str


class Text(NamedTuple):
    """One line of words around the height ``y``; ``anchor`` says which part of it stands at ``x``: start,
    middle or end. ``ground`` is the colour to set it off from what it lies on."""

    x: float
    y: float
    words: str
    size: float
    ink: str
    bold: bool = False
    anchor: str = "start"
    ground: str = ""


Shape = Rect | Curve | Polygon | Text


class Group(NamedTuple):
    """Shapes that are one thing, and what it is in words; ``""`` where it is decoration. ``x`` and ``y`` are
    added to all its coordinates."""

    title: str
    shapes: list[Shape]
    x: float = 0.0
    y: float = 0.0

    def moved(self, x: float, y: float) -> Group:
        """The group elsewhere."""
        return self._replace(x=self.x + x, y=self.y + y)


class Picture(NamedTuple):
    """``title`` and ``text`` say in words what it shows."""

    width: float
    height: float
    ground: str
    title: str
    text: str
    groups: list[Group]


_UNSHOWN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def shown(words: str) -> str:
    """Words with a sign in place of each character that would break a file or turn a line's direction.

    >>> shown("a\\x00b\\u202ec")
    'a�b�c'
    """
    return _UNSHOWN.sub("\ufffd", words)
