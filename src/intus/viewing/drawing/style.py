"""Colours: the page's own, read from its style sheet, and how each kind of box looks."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from ...core.graph import CREATED, FAILED
from ..assets import asset
from .tree import Node

Theme = dict[str, str]

_TOKEN = re.compile(r"--([\w-]+):\s*light-dark\((#\w+),\s*(#\w+)\)")
_DECISION = {"decision-fill": ("#fff2b3", "#463a10"), "decision-line": ("#c99700", "#d9ae2b")}

# Viridis (CC0, Smith and van der Walt 2015) at nine places: perceptually uniform, safe for the colour-blind.
_SCALE = (
    *((68, 1, 84), (71, 44, 122), (59, 81, 139), (44, 113, 142), (33, 144, 141)),
    *((39, 173, 129), (92, 200, 99), (170, 220, 50), (253, 231, 37)),
)


@cache
def theme(dark: bool = False) -> Theme:
    """The page's colours by their names in its style sheet."""
    own = {name: pair[dark] for name, pair in _DECISION.items()}
    return own | {name: (light, night)[dark] for name, light, night in _TOKEN.findall(asset("intus.css"))}


class BoxStyle(NamedTuple):
    """How a box is drawn."""

    fill: str
    line: str
    ink: str
    weight: float = 1.0
    dashed: bool = False


def look_of(node: Node, colours: Theme, *, decides: bool = False) -> BoxStyle:
    """The visual code of the TorchLens paper (Taylor and Kriegeskorte 2023): green in, red out, grey with
    parameters, light grey for buffers, yellow where a decision is taken, dashed where made from nothing."""
    text = colours["text"]
    end = node.kind if node.kind in ("input", "output") else node.subtitle if node.kind == "group" else ""
    if end in ("input", "output"):
        look = BoxStyle(colours[f"{end}-fill"], colours[f"{end}-line"], colours[f"{end}-text"])
    elif decides:
        look = BoxStyle(colours["decision-fill"], colours["decision-line"], text)
    elif node.kind in ("buffer", "constant"):
        dashed = node.kind == "constant"
        look = BoxStyle(colours["buffer-fill"], colours["buffer-line"], colours["text-soft"], dashed=dashed)
    elif node.children:
        look = BoxStyle(colours["module-fill"], colours["module-line"], text, 1.25)
    elif node.has_params:
        look = BoxStyle(colours["param-fill"], colours["param-line"], text)
    else:
        look = BoxStyle(colours["op-fill"], colours["op-line"], text)
    if node.flags & FAILED:
        return look._replace(line=colours["error"], ink=colours["error"], weight=2.0)
    return look._replace(dashed=True) if node.flags & CREATED else look


def scale_colour(share: float) -> str:
    """The colour of a share between 0 and 1.

    >>> scale_colour(0), scale_colour(1)
    ('#440154', '#fde725')
    """
    at = min(1.0, max(0.0, share)) * (len(_SCALE) - 1)
    i = min(int(at), len(_SCALE) - 2)
    mixed = (round(a + (b - a) * (at - i)) for a, b in zip(_SCALE[i], _SCALE[i + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on a colour (WCAG relative luminance).

    >>> ink_on("#440154"), ink_on("#fde725")
    ('#ffffff', '#10131a')
    """
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return "#10131a" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#ffffff"
