"""The gallery: every card leads to a page to walk in, offline, with one program for all."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page
from waiting import until

from intus import trace

sys.path.insert(0, str(Path(__file__).parents[2]))

from gallery.models import known
from gallery.site import add, index


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gallery")
    entries = []
    for one in known():
        if one.name in ("LeNet-5", "U-Net", "GRU, step by step", "DistilBERT"):
            model, inputs = one.build()
            graph = trace(model, inputs, save="none", if_meta=False).graph
            entries.append(add(out, one.family, one.name, graph))
    assert len(entries) == 4
    index(out, entries)
    return out


def test_known_sizes_are_the_published_ones(gallery: Path) -> None:
    text = (gallery / "index.html").read_text()
    facts = dict(re.findall(r"<strong>(.+?)</strong><small>([\d.]+[KM]) parameters", text))
    assert facts == {"DistilBERT": "66.4M", "LeNet-5": "61.7K", "U-Net": "31M", "GRU, step by step": "139K"}


def test_search_finds_and_a_click_opens(gallery: Path, new_page: Callable[..., Page]) -> None:
    page = new_page(offline=True)
    page.goto((gallery / "index.html").as_uri())
    assert page.locator("li:visible").count() == 4
    until(page, "[...document.images].every((image) => image.complete && image.naturalWidth > 200)")
    page.fill("input", "conv2d tanh")
    assert page.locator("li:visible strong").all_inner_texts() == ["LeNet-5"]
    assert page.locator("h2:visible").all_inner_texts() == ["Images"]
    page.fill("input", "nowhere")
    assert page.locator(".none").is_visible()
    page.fill("input", "recurrent")
    page.click("li:visible a")
    until(page, "Boolean(document.querySelector('#intus-graph').intusView)")
    assert page.title() == "GRU, step by step"
    assert len(page.content()) < 60_000  # the program is not in it
    page.go_back()
    assert page.locator("li:visible").count() == 1  # the search is in the address
