"""The site: one index with a search box and pictures, a page to walk in for each, one program for all."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

from intus.core.graph import Graph
from intus.viewing.assets import asset
from intus.viewing.html import content, page
from intus.viewing.outline import headline
from intus.viewing.pictures.draw import draw
from intus.viewing.pictures.svg import svg
from intus.viewing.scene import totals

READABLE = 0.62  # the least scale of a thumbnail, as of a page that opens

_INDEX = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Gallery of architectures</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="assets/intus.css">
<style>{style}</style>
</head>
<body class="gallery">
<header>
<h1>Gallery of architectures</h1>
<p>{summary}</p>
<input type="search" placeholder="Find name, family or function" aria-label="Find a model" autofocus>
<p class="none" role="status" hidden>Nothing is called so.</p>
</header>
<main>
{sections}
</main>
<script>{script}</script>
</body>
</html>
"""
_STYLE = """
.gallery { max-width: 1480px; margin: 0 auto; padding: 28px 24px 60px; }
.gallery h1 { font-size: 26px; margin: 0; letter-spacing: -0.02em; }
.gallery header p { color: var(--text-soft); margin: 4px 0 16px; }
.gallery input { width: min(420px, 100%); height: 40px; padding: 0 14px; font: inherit; color: inherit;
  background: var(--surface); border: 1px solid var(--line-strong); border-radius: 10px; }
.gallery h2 { font-size: 15px; color: var(--text-soft); font-weight: 600; margin: 28px 0 10px; }
.gallery ul { list-style: none; margin: 0; padding: 0; display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); }
.gallery a { display: block; color: inherit; text-decoration: none; background: var(--surface);
  overflow: hidden; border: 1px solid var(--line); border-radius: var(--radius); }
.gallery a:hover, .gallery a:focus-visible { border-color: var(--accent); outline: none;
  box-shadow: var(--shadow); }
/* As wide as the card, but neither enlarged nor too small to read; if wider, where the model begins. */
.gallery picture { display: block; position: relative; height: 260px; overflow: hidden;
  background: var(--bg); border-bottom: 1px solid var(--line); }
.gallery img { --shown: min(var(--whole), max(100%, var(--least)));
  position: absolute; top: 0; width: var(--shown);
  left: clamp(min(0px, 100% - var(--shown)), 50% - var(--entry), max(0px, (100% - var(--shown)) / 2)); }
.gallery strong { display: block; padding: 10px 12px 0; font-weight: 600; }
.gallery small { display: block; padding: 2px 12px 12px; color: var(--text-soft); font-size: 12px; }
.gallery [hidden] { display: none; }
"""
_SCRIPT = """
const field = document.querySelector("input");
const cards = [...document.querySelectorAll("li")];
const search = () => {
  const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
  for (const card of cards) card.hidden = !words.every((word) => card.dataset.words.includes(word));
  for (const section of document.querySelectorAll("section")) {
    section.hidden = !section.querySelector("li:not([hidden])");
  }
  document.querySelector(".none").hidden = cards.some((card) => !card.hidden);
  history.replaceState(null, "", field.value ? `#${encodeURIComponent(field.value)}` : location.pathname);
};
field.value = decodeURIComponent(location.hash.slice(1));
field.addEventListener("input", search);
search();
"""


class Entry(NamedTuple):
    """An architecture in the gallery: where its files are, and what it is found by."""

    family: str
    name: str
    file: str
    facts: str
    words: str
    picture: Thumbnail


class Thumbnail(NamedTuple):
    """How wide a picture is, and where across it the model begins, in its own pixels."""

    width: float
    entry: float


def add(out: Path, family: str, name: str, graph: Graph) -> Entry:
    """Write an architecture's page and its two pictures."""
    file = re.sub(r"\W+", "-", f"{family} {name}".lower()).strip("-")
    for folder in ("graphs", "pictures"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    (out / "graphs" / f"{file}.html").write_text(
        page(graph, title=name, assets="../assets"), encoding="utf-8"
    )
    shown = content(graph)
    for dark in (True, False):
        drawn = draw(shown, title=name, summary=f"{headline(graph)}.", dark=dark)
        path = out / "pictures" / f"{file}{'-dark' if dark else ''}.svg"
        path.write_text(svg(drawn), encoding="utf-8")
    sums = totals(graph)
    facts = f"{_short(sums['parameters'])} parameters · {sums['operations']:,.0f} operations"
    found_by = {family, name, graph.model, *graph.types, *(module.type for module in graph.modules)}
    return Entry(
        family, name, file, facts, " ".join(sorted(found_by)).lower(), Thumbnail(drawn.width, drawn.entry)
    )


def index(out: Path, entries: list[Entry]) -> Path:
    """Write the index of everything added, and the program that all pages share."""
    (out / "assets").mkdir(parents=True, exist_ok=True)
    for name in ("intus.css", "intus.js"):
        (out / "assets" / name).write_text(asset(name), encoding="utf-8")
    families = dict.fromkeys(entry.family for entry in entries)
    sections = "\n".join(_section(f, [e for e in entries if e.family == f]) for f in families)
    summary = (
        f"{len(entries)} models, run once each on the meta device: structure alone. Open one to walk in it."
    )
    path = out / "index.html"
    filled = _INDEX.format(style=_STYLE, script=_SCRIPT, summary=summary, sections=sections)
    path.write_text(filled, encoding="utf-8")
    return path


def _section(family: str, entries: list[Entry]) -> str:
    cards = "\n".join(map(_card, sorted(entries, key=lambda entry: entry.name.lower())))
    return f"<section>\n<h2>{escape(family)}</h2>\n<ul>\n{cards}\n</ul>\n</section>"


def _card(entry: Entry) -> str:
    drawn = f"pictures/{entry.file}"
    width, begins = entry.picture
    place = f"--whole: {width:.0f}px; --least: {width * READABLE:.0f}px; --entry: {begins * READABLE:.0f}px"
    return (
        f'<li data-words="{escape(entry.words)}"><a href="graphs/{entry.file}.html">'
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{drawn}-dark.svg">'
        f'<img src="{drawn}.svg" style="{place}" loading="lazy" alt=""></picture>'
        f"<strong>{escape(entry.name)}</strong><small>{escape(entry.facts)}</small></a></li>"
    )


def _short(number: float) -> str:
    for unit, scale in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g}{unit}"
    return f"{number:.0f}"
