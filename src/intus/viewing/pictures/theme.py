"""Read the page's colors from its style sheet."""

from __future__ import annotations

import re
from functools import cache

from ..assets import asset

_TOKEN = re.compile(r"--([\w-]+):\s*light-dark\((#\w+),\s*(#\w+)\)")


@cache
def theme(dark: bool = False) -> dict[str, str]:
    """Return the colors of a theme as ``#rrggbb``, by their names in the style sheet."""
    colors = {name: (light, night)[dark] for name, light, night in _TOKEN.findall(asset("intus.css"))}
    return colors | {"font": "sans-serif"}
