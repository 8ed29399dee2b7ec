"""The gallery: cards that link to interactive pages, offline, with one program for all pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
import torch
from PIL import Image
from playwright.sync_api import Page
from torch import Tensor, nn
from waiting import until

from intus import trace

sys.path.insert(0, str(Path(__file__).parents[2]))

from gallery.models import known
from gallery.site import add, index

pytestmark = pytest.mark.long


class Wide(nn.Module):
    """A hundred parallel operations, far wider than a card."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([torch.sin(x + n) for n in range(100)])


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gallery")
    entries = []
    for one in known():
        if one.name in ("LeNet-5", "U-Net", "GRU, step by step", "DistilBERT"):
            model, inputs = one.build()
            graph = trace(model, inputs, save="none", meta_value=False).graph
            entries.append(add(out, one.family, one.name, graph))
    assert len(entries) == 4
    entries.append(add(out, "Odd", "Wide", trace(Wide(), torch.ones(1), save="none").graph))
    entries.append(add(out, "Odd", "Narrow", trace(torch.tanh, torch.ones(1), save="none").graph))
    index(out, entries)
    return out


def test_parameter_counts_equal_published_ones(gallery: Path) -> None:
    text = (gallery / "index.html").read_text()
    facts = dict(re.findall(r"<strong>(.+?)</strong><small>([\d.]+[KM]) parameters", text))
    assert facts == {"DistilBERT": "66.4M", "LeNet-5": "61.7K", "U-Net": "31M", "GRU, step by step": "139K"}


def test_search_filters_cards_and_click_opens_a_page(gallery: Path, new_page: Callable[..., Page]) -> None:
    page = new_page(offline=True)
    page.goto((gallery / "index.html").as_uri())
    assert page.locator("li:visible").count() == 6
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
    assert len(page.content()) < 60_000  # the program is not embedded
    page.go_back()
    assert page.locator("li:visible").count() == 1  # the address contains the search


PLACES = """() => [...document.images].map((image) => {
    const [shown, card] = [image, image.closest("picture")].map((element) => element.getBoundingClientRect());
    return {
        name: image.closest("li").querySelector("strong").textContent,
        scale: shown.width / image.naturalWidth,
        left: shown.left - card.left,
        right: card.right - shown.right,
        top: shown.top - card.top,
    };
})"""


@pytest.mark.parametrize("width", [360, 800, 1500])
def test_thumbnail_is_readable_and_shows_the_models_input(
    gallery: Path, new_page: Callable[..., Page], width: int
) -> None:
    page = new_page(offline=True, viewport={"width": width, "height": 3000})
    page.goto((gallery / "index.html").as_uri())
    until(page, "[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    places = {place.pop("name"): place for place in page.evaluate(PLACES)}
    assert len(places) == 6
    for name, place in places.items():
        assert 0.61 <= place["scale"] <= 1.01, name
        assert abs(place["top"]) < 0.5
        # The whole picture, centered, or a part that fills the card.
        inside = place["left"] > -0.5 and abs(place["left"] - place["right"]) < 1
        assert inside or (place["left"] < 0.5 and place["right"] < 0.5), name
    assert places["Wide"]["left"] < -500  # its input is in the middle of thousands of pixels
    card = page.locator("li", has_text="Wide").locator("picture")
    green = Image.open(BytesIO(card.screenshot())).convert("RGB")
    assert any(g > r + 40 and g > b + 20 for _, (r, g, b) in green.getcolors(1 << 20) or [])
