"""Accessibility of the graph page: axe-core, the outline as a tree, focus, contrast, small screens, print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page
from torch import nn
from waiting import until
from zoo import MODELS

from intus.tracing.run import trace
from intus.viewing.html import View

pytestmark = pytest.mark.browser
AXE = Path(__file__).parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"
VIEW = "document.querySelector('#intus-graph').intusView"
Open = Callable[..., Page]
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: run `npm ci` in web/")


def violations(page: Page) -> list[str]:
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = page.evaluate(
        "axe.run(document, { resultTypes: ['violations'] }).then((result) => result.violations)"
    )
    return [
        f"{one['id']}: {one['help']} {[node['html'][:120] for node in one['nodes']]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.long
@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(open_graph: Open, scheme: str) -> None:
    t = trace(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 2))), torch.randn(3, 4))
    page = open_graph(t.show(overlay={"0": 1.0, "1": 2.0}), color_scheme=scheme)
    page.evaluate(f"{VIEW}.select('0')")
    page.get_by_role("combobox", name="Find in the graph").fill("linear")
    assert violations(page) == []
    page = open_graph(View(MODELS["gpt2"](), depth=2), color_scheme=scheme)
    page.evaluate(f"{VIEW}.select('transformer.h.0')")
    assert violations(page) == []


@pytest.mark.long
@needs_axe
def test_axe_finds_no_serious_violation_in_a_failed_pass_on_a_phone(open_graph: Open) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(9, 2))
    graph = trace(model, torch.zeros(3, 4), save="none", on_error="keep").graph
    page = open_graph(View(graph), viewport={"width": 390, "height": 700})
    assert violations(page) == []


def test_keys_work_in_a_page_where_nothing_has_the_focus(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"]()))
    boxes = f"{VIEW}.viewport.visible.boxes.length"
    before = page.evaluate(boxes)
    assert page.evaluate("document.activeElement === document.body")
    page.keyboard.press("*")
    until(page, f"{boxes} > {before}")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.tagName") == "INPUT"
    page.keyboard.type("mlp*1")
    assert page.evaluate("document.activeElement.value") == "mlp*1"


@pytest.mark.long
def test_keyboard_navigation_keeps_focus(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"]()))
    tree = page.get_by_role("tree", name="Outline of the model")
    tree.focus()
    for key in ("ArrowDown", "Enter", "Enter", "End", "Home"):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.getAttribute('role')") == "tree"
    active = tree.get_attribute("aria-activedescendant")
    assert page.locator(f"[id='{active}']").get_attribute("aria-level") == "1"
    page.locator(".ig-canvas").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter", "]", "Escape", "ArrowDown"):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.className") == "ig-canvas"


def test_outline_items_have_aria_levels_and_states(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"](), depth=1))
    items = page.get_by_role("treeitem")
    fold = items.filter(has_text="12 × GPT2Block")
    assert fold.get_attribute("aria-expanded") == "false"
    assert fold.get_attribute("aria-level") == "2"
    fold.dblclick()
    assert fold.get_attribute("aria-expanded") == "true"
    assert items.filter(has_text="GPT2Block").count() == 2  # the fold and the member shown


def test_outline_row_scrolled_during_a_press_is_selected(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"](), depth="all"))
    tree = page.get_by_role("tree", name="Outline of the model")
    row = page.get_by_role("treeitem").filter(has_text="ln_1").first
    place = row.bounding_box()
    assert place
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.mouse.down()
    before = tree.evaluate("tree => tree.scrollTop")
    tree.evaluate("tree => { tree.scrollTop += 6; tree.dispatchEvent(new Event('scroll')); }")
    assert tree.evaluate("tree => tree.scrollTop") == before + 6
    page.mouse.up()
    assert page.locator(".ig-panel h2").inner_text() == row.get_attribute("data-address")

    rows = "[...document.querySelectorAll('.ig-row')].map((row) => parseInt(row.style.top) / 26)"
    for top in (400, 520, 130, 4000, 3900):
        tree.evaluate("(tree, top) => { tree.scrollTop = top; }", top)
        until(page, f"{rows}.includes({top // 26} + 1)")
        shown = page.evaluate(rows)
        assert shown == list(range(shown[0], shown[-1] + 1)), "each row once, in order"


COLOURS = """() => {
  const { width, height } = document.querySelector(".ig-canvas");
  const { data } = document.querySelector(".ig-canvas").getContext("2d").getImageData(0, 0, width, height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


def contrast_of_boxes(page: Page) -> float:
    """Return the median difference in lightness between closed boxes and their background, of 255."""
    found: list[float] = page.evaluate(f"""() => {{
        const canvas = document.querySelector(".ig-canvas"), ctx = canvas.getContext("2d");
        const shade = (x, y) => ctx.getImageData(x, y, 1, 1).data.slice(0, 3).reduce((a, b) => a + b) / 3;
        const boxes = {VIEW}.boxes().filter((box) => !box.open && box.y > 60 && box.y < canvas.height - 60);
        return boxes.map(({{ x, y, width, height }}) =>
            shade(x - 3, y - 3) - shade(x + width / 4, y + height / 4));
    }}""")
    assert len(found) > 10
    return sorted(map(abs, found))[len(found) // 2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tiny_boxes_contrast_with_the_background(open_graph: Open, scheme: str) -> None:
    page = open_graph(View(MODELS["unet"](), depth="all"), color_scheme=scheme)
    page.evaluate(f"{VIEW}.fit(), {VIEW}.paintNow()")
    until(page, f"{VIEW}.still")
    assert page.evaluate(f"{VIEW}.viewport.camera.scale") < 0.35
    assert contrast_of_boxes(page) > 40


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_picture_in_forced_colors_mode(open_graph: Open, scheme: str) -> None:
    plain = open_graph(View(MODELS["unet"]()), color_scheme=scheme).evaluate(COLOURS)
    assert plain > 50
    forced = open_graph(View(MODELS["unet"]()), color_scheme=scheme, forced_colors="active")
    assert forced.evaluate("matchMedia('(forced-colors: active)').matches")
    assert forced.evaluate(COLOURS) == pytest.approx(plain, rel=0.2)


def test_fit_leaves_room_for_a_legend_of_several_lines(open_graph: Open) -> None:
    page = open_graph(View(MODELS["llama"](), depth=1), viewport={"width": 1000, "height": 800})
    page.evaluate(f"{VIEW}.fit()")
    until(page, f"{VIEW}.still")
    legend = page.locator(".ig-legend")
    lines = legend.locator(".ig-pair").evaluate_all("(all) => all.map((one) => one.getBoundingClientRect())")
    assert len({line["top"] for line in lines}) > 1
    assert all(line["height"] < 20 for line in lines), "a key and its label are on one line"
    top = legend.evaluate("(e) => e.getBoundingClientRect().top")
    corner = page.locator(".ig-canvas").evaluate("(e) => e.getBoundingClientRect().top")
    boxes = page.evaluate(f"{VIEW}.boxes()")
    assert corner + max(box["y"] + box["height"] for box in boxes) < top


def test_short_trail_shows_whole_names(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"]()))
    steps = page.locator(".ig-trail li > *")
    assert steps.all_inner_texts() == ["GPT2LMHeadModel", "transformer"]
    assert steps.evaluate_all("(all) => all.every((step) => step.scrollWidth === step.clientWidth)")


@pytest.mark.long
@pytest.mark.parametrize("width", [390, 760, 1280])
def test_trail_is_readable_on_a_phone(open_graph: Open, width: int) -> None:
    page = open_graph(View(MODELS["gpt2"]()), viewport={"width": width, "height": 800})
    page.evaluate(f"{VIEW}.select('transformer.h.7.attn.c_attn')")
    trail = page.get_by_role("navigation", name="Breadcrumb")
    steps = trail.get_by_role("listitem")
    assert [steps.nth(n).inner_text() for n in (0, -1)] == ["GPT2LMHeadModel", "c_attn"]
    frame = trail.bounding_box()
    assert frame
    edges = [steps.nth(n).bounding_box() for n in range(steps.count())]
    assert all(
        edge and edge["width"] > 30 and edge["x"] + edge["width"] <= frame["x"] + frame["width"]
        for edge in edges
    )
    name = steps.last.locator("span")
    assert name.evaluate("(e) => e.clientWidth") > 34  # for six letters
    steps.nth(1).get_by_role("button").click()
    assert page.locator(".ig-panel h2").inner_text() == "transformer"


def test_print_shows_only_picture_and_legend(open_graph: Open) -> None:
    page = open_graph(View(MODELS["unet"]()))
    page.emulate_media(media="print")
    assert [page.locator(one).is_visible() for one in (".ig-canvas", ".ig-legend")] == [True, True]
    assert [page.locator(one).is_visible() for one in (".ig-toolbar", ".ig-outline", ".ig-minimap")] == [
        False
    ] * 3


def test_dark_page_is_printed_light(open_graph: Open) -> None:
    page = open_graph(View(MODELS["unet"]()), color_scheme="dark")
    ground = "document.querySelector('.ig-canvas').getContext('2d').getImageData(3, 3, 1, 1).data[0]"
    assert page.evaluate(ground) < 40
    page.evaluate(f"addEventListener('beforeprint', () => (window.printed = {ground}))")
    page.pdf()  # prints the page
    assert page.evaluate("window.printed") > 230
    assert page.evaluate(ground) < 40
    page.emulate_media(media="print", color_scheme="dark")
    assert (
        page.locator(".ig-legend").evaluate("(e) => getComputedStyle(e).backgroundColor")
        == "rgb(255, 255, 255)"
    )


def test_folded_legend_stays_folded(open_graph: Open) -> None:
    page = open_graph(View(MODELS["unet"]()))
    legend = page.locator(".ig-legend")
    title = legend.get_by_role("button", name="Legend")
    assert "with parameters" in legend.inner_text()
    title.click()
    assert legend.inner_text().strip() == "Legend"
    assert title.get_attribute("aria-expanded") == "false"
    page.get_by_label("Color by").select_option("parameters")
    assert legend.inner_text().strip() == "Parameters"
    assert legend.locator("canvas, .ig-bar-scale").count() == 0
    title = legend.get_by_role("button", name="Parameters")
    title.press("Enter")
    assert legend.locator(".ig-bar-scale").is_visible()
    assert title.evaluate("(e) => e === document.activeElement")
    title.press(" ")
    assert legend.inner_text().strip() == "Parameters"


def test_wide_graph_on_a_phone_begins_at_its_edge_below_the_trail(open_graph: Open) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fcs = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))

        def forward(self, *xs: torch.Tensor) -> torch.Tensor:
            return torch.cat([fc(x) for fc, x in zip(self.fcs, xs, strict=True)])

    xs = tuple(torch.ones(1, 4) for _ in range(6))
    page = open_graph(trace(Wide(), xs).show(), viewport={"width": 390, "height": 800})
    boxes = page.evaluate(f"{VIEW}.boxes()")
    assert 0 <= min(box["x"] for box in boxes) < 40
    assert min(box["y"] for box in boxes) > 36


def test_long_name_is_truncated_in_the_trail_and_selectable_in_the_panel(open_graph: Open) -> None:
    name = "a" * 2000
    model = nn.Sequential()
    model.add_module(name, nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    page = open_graph(trace(model, torch.ones(1, 4)).show())
    page.evaluate(f"{VIEW}.select({name!r})")
    last = page.get_by_role("navigation", name="Breadcrumb").get_by_role("listitem").last
    trail, end = page.locator(".ig-trail").bounding_box(), last.bounding_box()
    assert trail
    assert end
    assert end["x"] + end["width"] <= trail["x"] + trail["width"]
    page.locator(".ig-panel h2").click()
    assert page.evaluate("getSelection().toString()").strip() == name
