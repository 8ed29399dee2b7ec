"""Write a graph as one HTML file that works offline and makes no network request; the class ``View``."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from ..core.errors import InputError, check_folder
from ..core.graph import Graph
from .assets import asset
from .cell import cell
from .outline import headline
from .overlay import AUTOGRAD, Overlay, kept_by_autograd, must_know, needs_values, paint
from .scene import scene

# With the Content-Security-Policy the browser itself refuses network requests. The program is compressed like
# the data, which halves the size of a page: ten self-contained cells in a notebook are under a megabyte.
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
<script>{incomplete}</script>
<script id="intus-data" type="application/octet-stream">{data}</script>
{program}
<template id="intus-end"></template>
</body>
</html>
"""
# Comes before the data, so that it also runs in a file of which the end is missing.
_INCOMPLETE = """
addEventListener("DOMContentLoaded", () => {
  if (!document.getElementById("intus-end"))
    document.getElementById("intus-graph").textContent =
      "This graph cannot be shown: the end of the file is missing. Save or copy it again.";
});
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

DEEPEST = 1_000_000  # this depth opens every module

#: What the boxes show besides their names; see ``View``.
DETAILS = ("full", "parameters")


def page(
    graph: Graph,
    *,
    title: str = "",
    overlay: Overlay = None,
    depth: int | str | None = None,
    rolled: bool | None = None,
    details: str | None = None,
    values: Mapping[str, Any] | None = None,
    assets: str | None = None,
) -> str:
    """Return an HTML page of a graph.

    Data and program are embedded as gzip in base64, so no name in a model can break out of its element.

    Args:
        graph: The graph to show.
        title: The title of the page. Default: the model's name.
        overlay: What colors the boxes; see ``overlay.paint``.
        depth: How many levels of modules are open at first, or ``"all"``. Default: as many as are readable.
        rolled: Whether the passes of a recurrent layer are one box. Default: where there would be too many
            boxes to read.
        details: ``"full"`` or ``"parameters"``; see ``View``. Default: names.
        values: Columns that summarize the saved activations; see ``scene.scene``.
        assets: A folder, relative to the page, that holds ``intus.css`` and ``intus.js``, for pages of one
            site that share them. Default: the page contains them.
    """
    data = content(graph, overlay=overlay, depth=depth, rolled=rolled, details=details, values=values)
    return document(data, title=title or graph.model, summary=headline(graph), assets=assets)


def document(
    data: Mapping[str, Any], *, title: str, summary: str, assets: str | None = None, also: str = ""
) -> str:
    """Return the HTML document around the data of the page's program.

    Args:
        data: The input of the program; see ``content``.
        title: The title of the page.
        summary: A sentence for browsers without JavaScript.
        assets: A folder with the program's files, as in ``page``.
        also: The name of a second program that the page needs: ``"sides"``.
    """
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
        incomplete=_INCOMPLETE,
        origin=origin,
    )


def content(
    graph: Graph,
    *,
    overlay: Overlay = None,
    depth: int | str | None = None,
    rolled: bool | None = None,
    details: str | None = None,
    values: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the input of the page's program, with the options of ``page``, as JSON-able data."""
    return {
        "scene": scene(graph, values=values),
        "paint": paint(overlay),
        "depth": DEEPEST if depth == "all" else depth,
        "rolled": rolled,
        "details": details or "names",
    }


def packed(value: Any) -> str:
    """Return a value as JSON, compressed with gzip, in base64. Equal values give equal text."""
    return _compressed(json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False))


def _compressed(text: str) -> str:
    data = text.encode("utf-8", "backslashreplace")  # JSON reads an escaped lone surrogate as itself
    return base64.b64encode(gzip.compress(data, compresslevel=9, mtime=0)).decode("ascii")


@cache
def packed_assets(also: str = "") -> str:
    """Return the style sheet and the program of the page, compressed, after those of the program ``also``.

    A NUL separates the style sheet from the program. JSON would need an escape for each of their many quotes.
    """
    style, script = (asset(f"{also}.{kind}") if also else "" for kind in ("css", "js"))
    return _compressed(f"{asset('intus.css')}{style}\0{script}{asset('intus.js')}")


class View:
    """A graph to show: in a notebook cell, as a page, as a widget or as a still picture.

    ``view``, ``Trace.show`` and ``intus view`` make Views. In a notebook, a View that ends a cell shows
    itself.

    Args:
        graph: The graph to show.
        title: The title of pages and pictures. Default: the model's name.
        overlay: What colors the boxes. One of the names ``"time"``, ``"memory"``, ``"parameters"`` and
            ``"flops"``; ``"autograd"`` (bytes that autograd keeps for the backward pass; needs a trace with
            ``grads=True``); ``"mean"``, ``"std"``, ``"zero"`` or ``"nan"`` (of saved activations; needs
            ``values``); a dict or pandas Series from address to number; or ``Results`` (or the DataFrame of
            ``intus.inspect``) with one score of whole layers, of which the latest epoch counts. Default: no
            overlay, so colors show the kinds of boxes.
        depth: How many levels of modules are open at first: 0 or more, or ``"all"``. Default: as many as are
            readable.
        rolled: Whether the passes of a recurrent layer are one box. Default: where there would be too many
            boxes to read.
        details: ``"full"`` to write on every box its labels, the shape and size of its values, the shapes of
            its parameters and its address. Labels and addresses are what ``save=`` takes. ``"parameters"``
            also draws every parameter that an operation reads as a box. Default: names.
        values: Columns that summarize the saved activations; see ``intus.viewing.scene``. Default: none.
        height: The height of the notebook cell and of the widget in CSS pixels.

    Attributes:
        graph: The graph that is shown.
        title: The title of pages and pictures.
        overlay: The values that color the boxes. ``"autograd"`` is replaced by its numbers.
        depth: As given.
        rolled: As given.
        details: As given.
        values: As given.
        height: As given.

    Raises:
        InputError: ``overlay`` is none of these, names no address of the graph, or needs what the graph does
            not have; ``depth`` is not a number of levels; or ``details`` is neither of ``"full"`` and
            ``"parameters"``, nor None.

    Example:
        >>> from intus import trace
        >>> graph = trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).graph
        >>> View(graph, overlay="parameters")  # doctest: +ELLIPSIS
        <View of Linear: 1 operation, 0 modules, 3 parameters (12 B), ...>
        >>> View(graph).save("model.svg")  # doctest: +SKIP
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
        details: str | None = None,
        values: Mapping[str, Any] | None = None,
        height: int = 640,
    ) -> None:
        if isinstance(overlay, str) and overlay == AUTOGRAD:
            overlay = kept_by_autograd(graph)
        painted = paint(overlay)  # raises for a wrong overlay here rather than when the cell is shown
        if isinstance(painted, dict):
            must_know(graph, painted)
        elif needs_values(overlay) and not values:
            raise InputError(
                f"overlay={overlay!r} colors by saved values, and none were saved. Trace with save='all'."
            )
        if not (depth is None or depth == "all" or (isinstance(depth, int) and depth >= 0)):
            raise InputError(f"depth must be a number of levels (0 or more) or 'all', got {depth!r}.")
        if details not in (None, *DETAILS):
            raise InputError(f"details must be 'full', 'parameters' or None, got {details!r}.")
        self.graph = graph
        self.title = title or graph.model
        self.overlay = overlay
        self.depth = depth
        self.rolled = rolled
        self.details = details
        self.values = values
        self.height = height

    def html(self, *, rolled: bool | None = None) -> str:
        """Return the page as HTML text.

        Args:
            rolled: Whether the passes of a recurrent layer are one box. Default: as the View says.

        Returns:
            A self-contained HTML document that makes no network request.
        """
        return page(
            self.graph,
            title=self.title,
            overlay=self.overlay,
            depth=self.depth,
            rolled=self.rolled if rolled is None else rolled,
            details=self.details,
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

        A still picture shows what the page shows when it opens: the same boxes at the same places, the same
        edges, labels and colors. It needs no browser and no Graphviz (see ``docs/pictures.md``). A picture
        that exceeds the limits of PNG or PDF is made smaller, with a warning that says by how much.

        Args:
            path: The file. Its extension selects the format: ``.html`` is the interactive page, which works
                offline; ``.svg``, ``.png`` and ``.pdf`` are still pictures; ``.dot`` is Graphviz's language;
                ``.json`` is the whole scene (see ``intus.viewing.scene``).
            rolled: Whether the passes of a recurrent layer are one box. Default: as the View says.
            direction: The direction of the data flow in a picture: ``"down"`` or ``"right"``.
            dark: Whether a picture uses the dark theme.
            scale: Pixels of a PNG per pixel of the picture, between 0 and 100 (both excluded).

        Returns:
            The path that was written.

        Raises:
            InputError: The extension is none of these, or an option has an impossible value.
            FileNotFoundError: The folder does not exist.
            MissingExtraError: A still picture or ``.dot`` needs ``intus[draw]`` (QuickJS, and matplotlib for
                ``.png`` and ``.pdf``), which is not installed.
            IntusError: The graph is too large to be drawn as one picture.

        Example:
            >>> import os, tempfile
            >>> from intus import view
            >>> path = os.path.join(tempfile.mkdtemp(), "model.html")
            >>> view(torch.nn.Linear(2, 1), torch.ones(1, 2)).save(path).name
            'model.html'
        """
        path = Path(path)
        check_folder(path)
        if path.suffix == ".html":
            if direction != "down" or dark:
                raise InputError(f"{path.name}: direction and dark are for still pictures, not for a page.")
            path.write_text(self.html(rolled=rolled), encoding="utf-8", errors="backslashreplace")
            return path
        from .pictures.save import FORMATS, save

        if path.suffix not in FORMATS:
            raise InputError(f"path must end in .html, {', '.join(FORMATS)}, got {str(path)!r}.")
        shows_values = path.suffix == ".json" or needs_values(self.overlay)
        data = content(
            self.graph,
            overlay=self.overlay,
            depth=self.depth,
            rolled=self.rolled if rolled is None else rolled,
            details=self.details,
            values=self.values if shows_values else None,
        )
        return save(
            data,
            path,
            title=self.title,
            summary=f"{headline(self.graph)}. {self.graph.error}".strip(),
            direction=direction,
            dark=dark,
            scale=scale,
        )

    def widget(self) -> Any:
        """Return the graph as a notebook widget whose selection Python reads and sets.

        Returns:
            A widget with the traits ``selected`` (the address of the selected box, or None) and ``height``
            (CSS pixels), and the method ``select(address)``, which also opens the modules around the box.

        Raises:
            MissingExtraError: anywidget is not installed (``intus[widget]``).

        Example:
            >>> w = view(model, x).widget()  # doctest: +SKIP
            >>> w.select("conv1")  # doctest: +SKIP
            >>> w.selected  # doctest: +SKIP
            'conv1'
        """
        from .widget import widget

        return widget(self)

    def _repr_html_(self) -> str:
        return cell(self.html(), title=self.title, height=int(self.height))

    def __repr__(self) -> str:
        return f"<View of {self.title}: {headline(self.graph)}>"
