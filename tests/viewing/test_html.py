"""The saved page: complete, offline, small, and safe against hostile names."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from drafts import digits_cnn, gpt2, hostile

from intus.core.errors import InputError, IntusError
from intus.viewing import assets, html
from intus.viewing.html import View, page
from intus.viewing.scene import scene


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data


def content(text: str) -> dict[str, object]:
    packed = re.search(r'<script id="intus-data"[^>]*>([A-Za-z0-9+/=]+)</script>', text)
    assert packed
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))


def test_page_contains_the_scene() -> None:
    graph = digits_cnn()
    data = content(page(graph, overlay={"fc1": 0.5}, depth=2))
    assert data["scene"] == json.loads(json.dumps(scene(graph)))
    assert data["depth"] == 2
    assert data["paint"]["values"] == {"fc1": 0.5}


def test_page_references_no_external_resource() -> None:
    for tag, attributes in Tags(page(digits_cnn())).tags:
        for name in ("src", "href", "action", "data"):
            assert (attributes.get(name) or "data:").startswith("data:"), (tag, attributes)
    assert "@import" not in html.asset("intus.css")
    assert "url(" not in html.asset("intus.css")


def test_page_escapes_hostile_names() -> None:
    plain, odd = Tags(page(digits_cnn())), Tags(page(hostile()))
    assert [tag for tag, _ in odd.tags] == [tag for tag, _ in plain.tags]
    assert len(odd.scripts) == len(plain.scripts) == 4
    for program in (0, 2, 3):  # 1 is the data
        assert odd.scripts[program] == plain.scripts[program]
    assert content(page(hostile()))["scene"]["model"] == "</script><img src=x onerror=alert(1)>"


def test_bundle_cannot_close_its_element() -> None:
    assert "</script" not in html.asset("intus.js").lower()
    assert "<!--" not in html.asset("intus.js")
    assert "</style" not in html.asset("intus.css").lower()


def test_page_is_deterministic() -> None:
    assert page(gpt2(layers=2)) == page(gpt2(layers=2))


def test_page_sizes_within_budget() -> None:
    assert len(base64.b64decode(html.packed_assets())) <= 47_700  # as in web/build.mjs
    assert len(page(gpt2()).encode()) <= 90_000
    ten = "".join(View(gpt2(), rolled=bool(number % 2))._repr_html_() for number in range(10))
    assert len(ten.encode()) <= 900_000  # ten cells of a notebook


def test_file_contains_only_the_graph_program() -> None:
    _, program = gzip.decompress(base64.b64decode(html.packed_assets())).decode().split("\0")
    assert "/api/" not in program
    assert "/api/" in html.asset("page.js")
    assert "roundRect" in program  # it draws the graph
    assert "Go to the first difference" not in program
    assert "Go to the first difference" in html.asset("sides.js")
    assert "roundRect" not in html.asset("page.js")


def test_save_and_notebook_cell(tmp_path: Path) -> None:
    view = View(digits_cnn(), title="A <b>title</b>", height=400)
    path = view.save(tmp_path / "graph.html")
    assert path.read_text(encoding="utf-8") == view.html()
    assert "<title>A &lt;b&gt;title&lt;/b&gt;</title>" in view.html()
    cell = Tags(view._repr_html_())
    assert [tag for tag, _ in cell.tags] == ["style", "iframe"]
    frame = cell.tags[1][1]
    assert frame["srcdoc"] == view.html()
    assert "allow-same-origin" not in frame["sandbox"]
    assert "height:400px" in frame["style"]
    assert repr(view).startswith("<View of A <b>title</b>: 11 operations")


def test_view_refuses_wrong_overlay_when_created() -> None:
    with pytest.raises(InputError, match="overlay='speed'"):
        View(digits_cnn(), overlay="speed")


def test_missing_bundle_error_names_the_build_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(assets, "files", lambda package: tmp_path)
    html.asset.cache_clear()
    html.packed_assets.cache_clear()
    try:
        with pytest.raises(IntusError, match=r"intus\.css of the built page is missing.*make web"):
            page(digits_cnn())
    finally:
        html.asset.cache_clear()
