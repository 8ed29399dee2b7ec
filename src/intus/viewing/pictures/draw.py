"""Ask the page's program for a picture of a graph, or for what is visible of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import InputError, did_you_mean
from .engine import run
from .shapes import Picture, picture_of
from .theme import theme

DIRECTIONS = ("down", "right")


def draw(
    content: Mapping[str, Any], *, title: str, summary: str = "", direction: str = "down", dark: bool = False
) -> Picture:
    """Return the picture of what a saved page would show.

    Args:
        content: What the page would be given: scene, paint, depth, and whether rolled (``html.content``).
        title: The heading of the picture.
        summary: What it shows, in a sentence or two, for who cannot see it.
        direction: Where the data flows: ``"down"`` or ``"right"``.
        dark: Whether to draw in the dark theme's colours.

    Raises:
        InputError: ``direction`` is neither.
        MissingExtraError: QuickJS is not installed.
    """
    return picture_of(run("draw", _task(content, title, summary, direction, dark)))


def diagram(
    content: Mapping[str, Any], *, title: str, direction: str = "down", dark: bool = False
) -> dict[str, Any]:
    """Return what the same picture shows, in words and numbers.

    Takes what ``draw`` takes. The result is ``Diagram`` in ``web/src/pictures/diagram.ts``: ``boxes`` with
    their words, places and colours, ``edges`` between closed boxes, and ``routes`` of all lines.
    """
    found: dict[str, Any] = run("diagram", _task(content, title, "", direction, dark))
    return found


def _task(content: Mapping[str, Any], title: str, summary: str, direction: str, dark: bool) -> dict[str, Any]:
    if direction not in DIRECTIONS:
        raise InputError(f"direction={direction!r} is no direction. {did_you_mean(direction, DIRECTIONS)}")
    return {
        "content": content,
        "rightward": direction == "right",
        "theme": theme(dark),
        "title": title,
        "summary": summary,
    }
