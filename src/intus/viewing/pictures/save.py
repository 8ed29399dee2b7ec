"""Write a graph into a file in the format that its extension names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from .dot import dot
from .draw import diagram, draw
from .matplotlib_writer import write
from .svg import svg

FORMATS = (".svg", ".png", ".pdf", ".dot", ".json")


def save(
    content: Mapping[str, Any],
    path: Path,
    *,
    title: str,
    summary: str,
    direction: str = "down",
    dark: bool = False,
    scale: float = 2.0,
) -> Path:
    """Write a graph as a still picture, in Graphviz's language or as JSON.

    Args:
        content: The input of the page's program; see ``html.content``.
        path: The file, which ends in one of ``FORMATS``. ``.json`` is the whole scene, whatever is open.
        title: The heading of the picture.
        summary: A description in one or two sentences.
        direction: The direction of the data flow: ``"down"`` or ``"right"``.
        dark: Whether to use the dark theme's colors.
        scale: Pixels of a PNG per pixel of the picture.

    Returns:
        The path.

    Raises:
        InputError: ``scale`` or ``direction`` has an impossible value.
        MissingExtraError: QuickJS or matplotlib is needed and not installed.
    """
    if path.suffix == ".json":
        text = json.dumps(content["scene"], ensure_ascii=False, allow_nan=False)
        path.write_text(text.encode("utf-8", "replace").decode(), encoding="utf-8")
        return path
    if not (isinstance(scale, int | float) and 0 < scale < 100):
        raise InputError(f"scale must be a number between 0 and 100, got {scale!r}.")
    if path.suffix == ".dot":
        text = dot(
            diagram(content, title=title, direction=direction, dark=dark), direction=direction, dark=dark
        )
        path.write_text(text, encoding="utf-8")
        return path
    picture = draw(content, title=title, summary=summary, direction=direction, dark=dark)
    if path.suffix == ".svg":
        path.write_text(svg(picture), encoding="utf-8")
    else:
        write(picture, path, scale=scale)
    return path
