"""Cards: the facts about an operation or a module, as text and as HTML for notebooks."""

from __future__ import annotations

import linecache
from html import escape
from typing import NamedTuple

from ..core.graph import Source
from .thumbnail import ValueSummary, heat_map, histogram, sentence

_CARD = "font:13px/1.45 system-ui,sans-serif;max-width:64em"
_CELL = "text-align:left;vertical-align:top;background:none"
_NAME = f"{_CELL};font-weight:500;opacity:.7;padding:1px 1.2em 1px 0"
_FACT = f"{_CELL};padding:1px 0;overflow-wrap:anywhere"
_CODE = "font-family:ui-monospace,monospace;font-size:12px"


class Card(NamedTuple):
    """The facts about one thing.

    Attributes:
        title: Its name.
        kind: What it is, such as ``"operation"``.
        facts: Pairs of a name and a text; pairs with an empty text are left out.
        source: The line of code that made it, or None.
        values: A summary of its value, or None.
    """

    title: str
    kind: str
    facts: tuple[tuple[str, str], ...]
    source: Source | None = None
    values: ValueSummary | None = None


def text(card: Card) -> str:
    """Return a card as lines of text.

    >>> print(text(Card("relu_1_2", "operation", (("output", "2×3 float32"), ("used by", "")))))
    relu_1_2: operation
      output   2×3 float32
    """
    facts = [(name, fact) for name, fact in _facts(card) if fact]
    width = max((len(name) for name, _ in facts), default=0) + 2
    lines = [f"{card.title}: {card.kind}"]
    lines += [f"  {name:{width}} {fact}" for name, fact in facts]
    code = _source_line(card.source)
    return "\n".join([*lines, f"  {'':{width}} {code}"] if code else lines)


def html(card: Card) -> str:
    """Return a card as HTML in the colors of the surrounding page, with every name escaped."""
    rows = "".join(
        f'<tr><th style="{_NAME}">{escape(name)}</th><td style="{_FACT}">{escape(fact)}</td></tr>'
        for name, fact in _facts(card)
        if fact
    )
    code = _source_line(card.source)
    shown = f'<pre style="{_CODE};margin:.4em 0;white-space:pre-wrap">{escape(code)}</pre>' if code else ""
    return (
        f'<div style="{_CARD}"><div><b style="{_CODE};font-size:14px">{escape(card.title)}</b> '
        f'<span style="opacity:.7">{escape(card.kind)}</span></div>'
        f'<table style="border-collapse:collapse;margin:.3em 0;border:0">{rows}</table>'
        f"{shown}{_pictures(card.values)}</div>"
    )


def _pictures(values: ValueSummary | None) -> str:
    if values is None:
        return ""
    shown = histogram(values) + (heat_map(values.image) if values.image is not None else "")
    return f'<div style="display:flex;gap:1.5em;flex-wrap:wrap;margin:.5em 0">{shown}</div>'


def listed(names: list[str], most: int = 6) -> str:
    """Join names with commas, at most the first ``most``, and count the rest.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _facts(card: Card) -> list[tuple[str, str]]:
    source = card.source
    where = f"{source.file}:{source.line} in {source.function}" if source is not None and source.line else ""
    values = sentence(card.values) if card.values is not None else ""
    return [*card.facts, ("values", values), ("source", where)]


def _source_line(source: Source | None) -> str:
    return linecache.getline(source.file, source.line).strip() if source is not None else ""
