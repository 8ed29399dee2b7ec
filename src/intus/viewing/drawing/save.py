"""One graph, one file: the ending says which kind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.errors import InputError, did_you_mean
from ...core.graph import Graph
from ..overlay import Overlay
from ..scene import scene
from .dot import dot
from .matplotlib_writer import write
from .picture import picture, plan
from .svg import svg

FORMATS = (".svg", ".png", ".pdf", ".dot", ".json")
DIRECTIONS = ("down", "right")


def save(
    graph: Graph,
    path: Path,
    *,
    title: str = "",
    depth: int | str | None = None,
    rolled: bool = False,
    direction: str = "down",
    overlay: Overlay = None,
    values: Mapping[str, Any] | None = None,
    dark: bool = False,
    scale: float = 2.0,
) -> Path:
    """Write the graph as a still picture, as Graphviz's text or as its scene in JSON; ``picture.plan`` and
    ``paper.write`` say what the options mean. ``.json`` holds the whole graph whatever stands open, and
    ``values``, what saved activations looked like."""
    if path.suffix == ".json":
        text = json.dumps(scene(graph, values=values), ensure_ascii=False, allow_nan=False)
        path.write_text(text.encode("utf-8", "replace").decode(), encoding="utf-8")
        return path
    if direction not in DIRECTIONS:
        raise InputError(f"direction={direction!r} is no direction. {did_you_mean(direction, DIRECTIONS)}")
    if not (isinstance(scale, int | float) and 0 < scale < 100):
        raise InputError(f"scale={scale!r} is not a number between 0 and 100.")
    levels = math.inf if depth == "all" else depth
    laid_out = plan(graph, depth=levels, rolled=rolled, direction=direction, overlay=overlay)  # type: ignore[arg-type]
    if path.suffix == ".dot":
        path.write_text(dot(laid_out, title=title, dark=dark), encoding="utf-8")
        return path
    drawn = picture(laid_out, title=title, dark=dark)
    if path.suffix == ".svg":
        path.write_text(svg(drawn), encoding="utf-8")
    else:
        write(drawn, path, scale=scale)
    return path
