"""Run the page's program to draw a graph, or to list what is visible of it."""

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
    """Return the picture that a saved page would show.

    Args:
        content: The input of the page's program; see ``html.content``.
        title: The heading of the picture.
        summary: A description in one or two sentences, for screen readers.
        direction: The direction of the data flow: ``"down"`` or ``"right"``.
        dark: Whether to use the dark theme's colors.

    Raises:
        InputError: ``direction`` is something else.
        MissingExtraError: QuickJS is not installed.
        IntusError: The graph is too large for one picture.
    """
    return picture_of(run("draw", _task(content, title, summary, direction, dark)))


def diagram(
    content: Mapping[str, Any], *, title: str, direction: str = "down", dark: bool = False
) -> dict[str, Any]:
    """Return the contents of the same picture as data.

    Arguments and exceptions are those of ``draw``.

    Returns:
        A dict as ``Diagram`` in ``web/src/pictures/diagram.ts`` declares it: ``boxes`` with their texts,
        positions and colors, ``edges`` between closed boxes, and the ``routes`` of all edges.
    """
    result: dict[str, Any] = run("diagram", _task(content, title, "", direction, dark))
    return result


def _task(content: Mapping[str, Any], title: str, summary: str, direction: str, dark: bool) -> dict[str, Any]:
    if direction not in DIRECTIONS:
        raise InputError(f"direction={direction!r} is not a direction. {did_you_mean(direction, DIRECTIONS)}")
    return {
        "content": content,
        "rightward": direction == "right",
        "theme": theme(dark),
        "title": title,
        "summary": summary,
    }
