"""The page's colours, read from its style sheet."""

from __future__ import annotations

import re
from functools import cache

from ..assets import asset

_TOKEN = re.compile(r"--([\w-]+):\s*light-dark\((#\w+),\s*(#\w+)\)")


@cache
def theme(dark: bool = False) -> dict[str, str]:
    """Return the page's colours by their names in its style sheet, as ``#rrggbb``."""
    found = {name: (light, night)[dark] for name, light, night in _TOKEN.findall(asset("intus.css"))}
    return found | {"font": "sans-serif"}
