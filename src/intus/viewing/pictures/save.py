"""Write one graph into one file: the ending says which kind."""

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
    """Write a graph as a still picture, as Graphviz's text or as its scene in JSON, and return the path.

    ``draw.draw`` says what the options mean; ``scale`` is pixels of a PNG per pixel of the picture. ``.json``
    holds the whole graph whatever stands open.
    """
    if path.suffix == ".json":
        text = json.dumps(content["scene"], ensure_ascii=False, allow_nan=False)
        path.write_text(text.encode("utf-8", "replace").decode(), encoding="utf-8")
        return path
    if not (isinstance(scale, int | float) and 0 < scale < 100):
        raise InputError(f"scale={scale!r} is not a number between 0 and 100.")
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
