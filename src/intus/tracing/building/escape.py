"""Escape lone surrogates: characters that Python strings can have and UTF-8 cannot encode.

They come from file names that are not UTF-8, and from names cut in the middle of a character.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ...core.graph import Graph

_FIELDS = (
    "model", "types", "sites", "args", "params", "modules", "buffers", "settings", "error", "facts",
)  # fmt: skip


def escaped(graph: Graph) -> Graph:
    r"""Return a graph whose names UTF-8 can encode: the lone surrogate U+D800 becomes the text ``\ud800``.

    Every file, page and terminal can show the names then. The same graph is returned if all of them can be
    encoded, which is nearly always so.

    Args:
        graph: The graph.

    Example:
        >>> escaped(Graph.of_modules("Net", [("a\ud800b", "Linear")])).modules[0].address
        'a\\ud800b'
    """
    if _is_encodable(graph):
        return graph
    return replace(graph, **{name: _escape(getattr(graph, name)) for name in _FIELDS})


def _is_encodable(graph: Graph) -> bool:
    """Return whether UTF-8 can encode all names of a graph; fast, because every trace calls it."""
    names = [graph.model, graph.error, *graph.types, *graph.args, *graph.settings]
    names += [param[0] for params in (graph.params, graph.buffers) for param in params]
    for module in graph.modules:
        names += module[:3]  # address, type, args
    for site in graph.sites:
        names += (site[0], site[2])  # file, function
    try:
        ("".join(names) + json.dumps(dict(graph.facts), ensure_ascii=False)).encode()
    except UnicodeEncodeError:
        return False
    return True


def _escape(value: Any) -> Any:
    """Return a string, or nested containers of strings, with lone surrogates escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, tuple | list):
        parts = [_escape(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return {_escape(key): _escape(part) for key, part in value.items()} if isinstance(value, dict) else value
