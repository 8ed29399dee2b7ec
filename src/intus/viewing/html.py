"""One HTML file that holds a graph and everything needed to walk in it: offline, no request to anywhere."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..core.graph import Graph
from .assets import asset
from .cell import cell
from .outline import headline
from .overlay import AUTOGRAD, Overlay, kept_by_autograd, must_know, needs_values, paint
from .scene import scene

# The policy makes "no request to anywhere" the browser's promise rather than ours. The program travels packed
# like the data: a page is half as large, and ten in a notebook, each whole in itself, are under a megabyte.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'{origin}; \
style-src 'unsafe-inline'{origin}; img-src data: blob:; worker-src blob:{origin}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>:root {{ color-scheme: light dark }} body {{ margin: 0 }}</style>
</head>
<body class="intus-file">
<noscript>This graph needs JavaScript. {summary}</noscript>
<div id="intus-graph"></div>
<script id="intus-data" type="application/octet-stream">{data}</script>
{program}
</body>
</html>
"""
_START = """
(async () => {
  if (!CSS.supports("color", "light-dark(red, red)"))
    throw new Error("this browser is too old. It needs Chrome 123, Firefox 120, Safari 17.5 or newer.");
  const text = document.getElementById("intus-assets").textContent;
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const [style, script] = (await new Response(stream).text()).split("\\0");
  for (const [tag, text] of Object.entries({ style, script })) {
    const element = document.createElement(tag);
    element.textContent = text;
    document.head.append(element);
  }
})().catch((error) => {
  document.getElementById("intus-graph").textContent = `This graph could not be shown: ${error.message}`;
});
"""

DEEPEST = 1_000_000  # a depth that opens every module


def page(
    graph: Graph,
    *,
    title: str = "",
    overlay: Overlay = None,
    depth: int | str | None = None,
    rolled: bool | None = None,
    values: Mapping[str, Any] | None = None,
    assets: str | None = None,
) -> str:
    """One self-contained HTML page of the graph; or one that takes ``intus.css`` and ``intus.js`` from the
    folder ``assets``, relative to it, as pages of one site do.

    ``overlay`` colours the boxes (see ``overlay.paint``); ``depth`` is how many levels of modules stand open
    at first, as many as stay readable by default, ``"all"`` for every one; ``rolled`` whether the passes of a
    recurrent layer are one box, by default where there are too many to read; ``values`` what saved
    activations looked like (see ``scene``). Data and program travel as gzip in base64, so no name in a model
    can break out of them.
    """
    data = content(graph, overlay=overlay, depth=depth, rolled=rolled, values=values)
    return document(data, title=title or graph.model, summary=headline(graph), assets=assets)


def document(
    data: Mapping[str, Any], *, title: str, summary: str, assets: str | None = None, also: str = ""
) -> str:
    """The HTML around what the page's program is given; ``summary`` is for who has no JavaScript, ``also``
    the name of a program that is needed too."""
    if assets is None:
        own = f'<script id="intus-assets" type="application/octet-stream">{packed_assets(also)}</script>\n'
        program, origin = f"{own}<script>{_START}</script>", ""
    else:
        folder = escape(assets)
        program = (
            f'<link rel="stylesheet" href="{folder}/intus.css">\n<script src="{folder}/intus.js"></script>'
        )
        origin = " 'self' file:"
    return _PAGE.format(
        title=escape(title),
        summary=escape(summary),
        data=packed(data),
        program=program,
        origin=origin,
    )


def content(
    graph: Graph,
    *,
    overlay: Overlay = None,
    depth: int | str | None = None,
    rolled: bool | None = None,
    values: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What the page's program is given: the scene, its paint, how deep it stands open, whether rolled."""
    return {
        "scene": scene(graph, values=values),
        "paint": paint(overlay),
        "depth": DEEPEST if depth == "all" else depth,
        "rolled": rolled,
    }


def packed(value: Any) -> str:
    """A value as JSON in gzip in base64; the same value gives the same text."""
    return _zipped(json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False))


def _zipped(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode("ascii")


@cache
def packed_assets(also: str = "") -> str:
    """The page's style and program with those of the program ``also``, a NUL between: JSON would have to mark
    each of their many quotes."""
    style, script = (asset(f"{also}.{kind}") if also else "" for kind in ("css", "js"))
    return _zipped(f"{asset('intus.css')}{style}\0{script}{asset('intus.js')}")


class View:
    """A graph to look at: shows itself in a notebook, saves itself as a page or as a picture.

    >>> View(graph, overlay="time").save("model.svg")     # doctest: +SKIP
    PosixPath('model.svg')
    """

    def __init__(
        self,
        graph: Graph,
        *,
        title: str = "",
        overlay: Overlay = None,
        depth: int | str | None = None,
        rolled: bool | None = None,
        values: Mapping[str, Any] | None = None,
        height: int = 640,
    ) -> None:
        if isinstance(overlay, str) and overlay == AUTOGRAD:
            overlay = kept_by_autograd(graph)
        painted = paint(overlay)  # a wrong overlay is told where it was written, not when the cell is shown
        if isinstance(painted, dict):
            must_know(graph, painted)
        elif needs_values(overlay) and not values:
            raise InputError(
                f"overlay={overlay!r} colours by saved values, and this holds none. Trace with save='all'."
            )
        if not (depth is None or depth == "all" or (isinstance(depth, int) and depth >= 0)):
            raise InputError(f"depth={depth!r} is not a number of levels, 0 or more, or 'all'.")
        self.graph = graph
        self.title = title or graph.model
        self.overlay = overlay
        self.depth = depth
        self.rolled = rolled
        self.values = values
        self.height = height

    def html(self, *, rolled: bool | None = None) -> str:
        """The page as text; ``rolled`` as the View's own where None."""
        return page(
            self.graph,
            title=self.title,
            overlay=self.overlay,
            depth=self.depth,
            rolled=self.rolled if rolled is None else rolled,
            values=self.values,
        )

    def save(
        self,
        path: str | Path,
        *,
        rolled: bool | None = None,
        direction: str = "down",
        dark: bool = False,
        scale: float = 2.0,
    ) -> Path:
        """Write the graph into a file and return its path.

        A picture shows what the page opens: the same boxes at the same places, edges, words and colours. It
        needs no browser and no Graphviz (``docs/pictures.md``). One too large for its format is made smaller,
        with a warning.

        Args:
            path: The ending says as what: ``.html`` is the page to walk in, offline; ``.svg``, ``.png`` and
                ``.pdf`` are still pictures; ``.dot`` is Graphviz's text, ``.json`` the scene.
            rolled: Whether the passes of a recurrent layer are one box; None: as the View says.
            direction: Where the data flows in a picture: ``"down"`` or ``"right"``.
            dark: Whether a picture has the dark theme's colours.
            scale: Pixels of a PNG per pixel of the picture.

        Returns:
            The path.

        Raises:
            InputError: The ending is another, or an option has a value that it cannot have.
            MissingExtraError: ``intus[draw]`` is not installed: QuickJS or, for ``.png`` and ``.pdf``,
                matplotlib.
        """
        path = Path(path)
        if path.suffix == ".html":
            if direction != "down" or dark:
                raise InputError(f"{path.name}: direction and dark are for still pictures, not for a page.")
            path.write_text(self.html(rolled=rolled), encoding="utf-8")
            return path
        from .pictures.save import FORMATS, save

        if path.suffix not in FORMATS:
            raise InputError(
                f"{str(path)!r} does not say what to draw: end it in .html, {', '.join(FORMATS)}."
            )
        shows_values = path.suffix == ".json" or needs_values(self.overlay)
        held = content(
            self.graph,
            overlay=self.overlay,
            depth=self.depth,
            rolled=self.rolled if rolled is None else rolled,
            values=self.values if shows_values else None,
        )
        return save(
            held,
            path,
            title=self.title,
            summary=f"{headline(self.graph)}. {self.graph.error}".strip(),
            direction=direction,
            dark=dark,
            scale=scale,
        )

    def widget(self) -> Any:
        """The graph as a notebook's widget, whose ``selected`` box Python reads and sets.

        >>> w = View(graph).widget()                          # doctest: +SKIP
        >>> w.select("conv1")                                 # doctest: +SKIP

        Raises MissingExtraError where anywidget is not installed (``intus[widget]``).
        """
        from .widget import widget

        return widget(self)

    def _repr_html_(self) -> str:
        return cell(self.html(), title=self.title, height=int(self.height))

    def __repr__(self) -> str:
        return f"<View of {self.title}: {headline(self.graph)}>"
