"""One HTML file that holds a graph and everything needed to walk in it: offline, no request to anywhere."""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from ..core.errors import IntusError
from ..core.graph import Graph
from .overlay import AUTOGRAD, Overlay, kept_by_autograd, paint
from .scene import scene
from .text import headline

# The policy makes "no request to anywhere" the browser's promise rather than ours.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; \
style-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body class="intus-file">
<noscript>This graph needs JavaScript. {summary}</noscript>
<div id="intus-graph"></div>
<script id="intus-data" type="application/octet-stream">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(graph: Graph, *, title: str = "", overlay: Overlay = None, depth: int | None = None) -> str:
    """One self-contained HTML page of the graph.

    ``overlay`` colours the boxes (see ``overlay.paint``); ``depth`` is how many levels of modules stand open
    at first, as many as stay readable by default. The data travels as gzip in base64, so no name in a model
    can break out of it.
    """
    content = {
        "scene": scene(graph),
        "paint": paint(overlay),
        "depth": depth,
    }
    packed = gzip.compress(
        json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(),
        compresslevel=9,
        mtime=0,  # the same graph gives the same bytes
    )
    return _PAGE.format(
        title=escape(title or graph.model),
        summary=escape(headline(graph)),
        style=asset("intus.css"),
        script=asset("intus.js"),
        data=base64.b64encode(packed).decode("ascii"),
    )


@cache
def asset(name: str) -> str:
    """The text of a file of the built page; raises IntusError naming the command that builds it."""
    try:
        return (files("intus") / "_static" / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise IntusError(f"{name} of the built page is missing. Build it with: make web") from None


class View:
    """A graph to look at: shows itself in a notebook, saves itself as one HTML file.

    >>> View(graph, overlay="time").save("model.html")     # doctest: +SKIP
    PosixPath('model.html')
    """

    def __init__(
        self,
        graph: Graph,
        *,
        title: str = "",
        overlay: Overlay = None,
        depth: int | None = None,
        height: int = 640,
    ) -> None:
        if isinstance(overlay, str) and overlay == AUTOGRAD:
            overlay = kept_by_autograd(graph)
        paint(overlay)  # a wrong overlay is told where it was written, not when the cell is shown
        self.graph = graph
        self.title = title or graph.model
        self.overlay = overlay
        self.depth = depth
        self.height = height

    def html(self) -> str:
        """The page as text."""
        return page(self.graph, title=self.title, overlay=self.overlay, depth=self.depth)

    def save(self, path: str | Path) -> Path:
        """Write the page to ``path`` and return it."""
        path = Path(path)
        path.write_text(self.html(), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        # An iframe keeps the page's styles and scripts away from the notebook's, and the sandbox keeps the
        # notebook's cookies away from the page.
        return (
            f'<iframe srcdoc="{escape(self.html())}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{int(self.height)}px;border:0;border-radius:8px" '
            f'title="{escape(self.title)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<View of {self.title}: {headline(self.graph)}>"
