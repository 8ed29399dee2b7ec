"""Two graphs side by side: marked differences, and one graph following the other."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page
from transformers import GPT2Config, GPT2LMHeadModel
from waiting import redrawn, until

from intus import view
from intus.viewing.side_by_side import Sides

pytestmark = pytest.mark.browser
RED, ORANGE = "rgb(198, 40, 40)", "rgb(245, 161, 79)"
VIEWS = "[...document.querySelectorAll('.ig-side')].map((side) => side.intusView)"
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def gpt2() -> Sides:
    """Compare a GPT-2 with a copy in which one weight of the third layer differs."""
    torch.manual_seed(0)
    ids = {"bos_token_id": 1, "eos_token_id": 2}
    a = GPT2LMHeadModel(
        GPT2Config(n_layer=4, n_head=2, n_embd=32, vocab_size=64, n_positions=16, use_cache=False, **ids)
    ).eval()
    b = copy.deepcopy(a)
    with torch.no_grad():
        b.transformer.h[2].mlp.c_fc.weight[0] += 0.5
    found = view(a, {"input_ids": torch.arange(8)[None]}, beside=b)
    assert isinstance(found, Sides)
    return found


def sides(page: Page) -> list[dict[str, dict[str, Any]]]:
    until(page, f"{VIEWS}.every((view) => view.still)")
    redrawn(page)  # the other graph follows in the next frame
    until(page, f"{VIEWS}.every((view) => view.still)")
    return [
        {box["address"]: box for box in side}
        for side in page.evaluate(f"{VIEWS}.map((view) => view.boxes())")
    ]


def same(page: Page) -> dict[str, dict[str, Any]]:
    """Return the boxes after checking that both sides have the same ones at the same positions."""
    a, b = sides(page)
    assert a.keys() == b.keys()
    for name, box in a.items():
        assert box["open"] == b[name]["open"], name
        assert max(abs(box[axis] - b[name][axis]) for axis in "xy") < 2, name
    return a


@pytest.mark.long
def test_first_difference_is_marked_and_one_side_follows_the_other(open_graph: Open, gpt2: Sides) -> None:
    page = open_graph(gpt2, motion=True, viewport={"width": 1400, "height": 900})
    boxes = same(page)
    assert boxes["transformer"]["colour"] == RED
    assert boxes["output_1"]["colour"] == ORANGE
    assert boxes["transformer.wte"]["colour"] is None
    assert (
        "They diverge at addmm_11_126 in transformer.h.2.mlp.c_fc"
        in page.locator(".ig-sides header").inner_text()
    )

    page.get_by_role("button", name="Go to the first difference").click()
    boxes = same(page)
    assert boxes["addmm_11_126"]["colour"] == boxes["transformer.h.2.mlp.c_fc"]["colour"] == RED
    assert boxes["transformer.h.2.ln_2"]["colour"] is None
    assert boxes["transformer.h.2.mlp.act"]["colour"] == ORANGE
    facts = page.locator(".ig-panel").all_inner_texts()
    assert len(facts) == 2
    assert all("first difference" in text and "8×128" in text for text in facts)

    canvas = page.locator(".ig-canvas").nth(1)  # now the right graph leads
    at = boxes["transformer.h.2.mlp.act"]
    assert not at["open"]
    canvas.dblclick(position={"x": at["x"] + at["width"] / 2, "y": at["y"] + at["height"] / 2})
    assert same(page)["transformer.h.2.mlp.act"]["open"]
    assert page.locator(".ig-panel h2").all_inner_texts() == ["transformer.h.2.mlp.act"] * 2
    page.mouse.wheel(0, 120)
    moved = same(page)["transformer.h.2.mlp.act"]["y"]
    page.mouse.wheel(0, 80)
    assert same(page)["transformer.h.2.mlp.act"]["y"] < moved - 40
    page.keyboard.press("Escape")
    assert page.locator(".ig-panel h2").all_inner_texts() == ["transformer.h.2.mlp"] * 2
    page.keyboard.press("Enter")
    assert not same(page)["transformer.h.2.mlp"]["open"]


class Passes(torch.nn.Module):
    """A cell with twenty passes, whose state is scaled once."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.factor = torch.nn.RNNCell(4, 4), factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(1, 4)
        for step in range(20):
            h = self.cell(x[:, step], h)
            h = h * (self.factor if step == 12 else 1.0)
        return h


def test_rolled_layer_has_the_mark_of_its_worst_pass(open_graph: Open) -> None:
    page = open_graph(view(Passes(1.0), torch.ones(1, 20, 4), beside=Passes(1.5)))
    assert [side["cell"]["colour"] for side in sides(page)] == [ORANGE] * 2
    page.evaluate(f"{VIEWS}[0].select('cell')")
    sides(page)
    facts = page.locator(".ig-panel").first.inner_text()
    assert "differs" in facts
    relative = re.search(r"Relative difference\s+(\S+)", facts)
    assert relative
    assert float(relative[1]) > 0  # it is 0 for its first pass, which is equal


def test_link_restores_both_sides(open_graph: Open, gpt2: Sides, tmp_path: Path) -> None:
    page = open_graph(gpt2)
    page.get_by_role("button", name="Go to the first difference").click()
    same(page)
    page.reload()
    until(page, f"{VIEWS}.length === 2 && {VIEWS}.every(Boolean)")
    assert same(page)["addmm_11_126"]["colour"] == RED


def test_other_implementation_follows_and_narrow_window_stacks_the_sides(open_graph: Open) -> None:
    torch.manual_seed(0)
    body, head = (
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.0), torch.nn.ReLU()),
        torch.nn.Linear(4, 2),
    )
    other = torch.nn.Sequential(copy.deepcopy(body[0]), torch.nn.ReLU(), copy.deepcopy(head))
    page = open_graph(
        view(torch.nn.Sequential(body, head), torch.ones(1, 4), beside=other),
        viewport={"width": 600, "height": 900},
    )
    tops = [page.locator(".ig-side").nth(n).bounding_box() for n in (0, 1)]
    assert tops[0]
    assert tops[1]
    assert tops[1]["y"] >= tops[0]["y"] + tops[0]["height"]
    assert tops[0]["width"] > 590
    page.evaluate(f"{VIEWS}[0].select('1')")
    a, b = sides(page)
    assert page.locator(".ig-panel h2").all_inner_texts() == ["1", "2"]
    assert abs(a["1"]["y"] - b["2"]["y"]) < 2
    assert a["0.1"]["colour"] == "rgb(201, 220, 255)"
    assert b["1"]["colour"] is None
    page.evaluate(f"{VIEWS}[0].select('0.1')")
    sides(page)
    assert page.locator(".ig-panel").count() == 1
    assert re.search(r"Counterpart in b\s+none", page.locator(".ig-panel").inner_text())
    assert a["0.1"]["hatched"]
    assert not a["1"]["hatched"]
    assert not any(box["hatched"] for box in b.values())


def test_paint_and_its_scale_are_shared(open_graph: Open, tmp_path: Path) -> None:
    narrow, wide = (
        torch.nn.Sequential(torch.nn.Linear(4, size), torch.nn.Linear(size, 4)) for size in (8, 64)
    )
    page = open_graph(view(narrow, torch.ones(1, 4), beside=wide, overlay="parameters"))
    colours = page.get_by_role("combobox", name="Color by")
    assert [colours.nth(n).input_value() for n in (0, 1)] == ["parameters"] * 2
    a, b = sides(page)
    assert a["0"]["colour"] != b["0"]["colour"]  # 40 and 320 parameters, each the maximum of its own graph
    scales = page.locator(".ig-scale-ends").all_inner_texts()
    assert len(scales) == 2
    assert scales[0] == scales[1]

    colours.nth(1).select_option("given")
    assert [colours.nth(n).input_value() for n in (0, 1)] == ["given"] * 2
    assert [side["0"]["colour"] for side in sides(page)] == [RED] * 2
    colours.nth(0).select_option("")
    assert [side["0"]["colour"] for side in sides(page)] == [None] * 2
    assert page.get_by_role("option", name="Differences").count() == 2


@pytest.mark.long
def test_selection_by_search_or_outline_is_shared(open_graph: Open, gpt2: Sides) -> None:
    page = open_graph(gpt2)
    search = page.get_by_role("combobox", name="Find in the graph")
    search.nth(1).fill("h.3.mlp.c_proj")
    search.nth(1).press("Enter")
    assert same(page)["transformer.h.3.mlp.c_proj"]
    assert page.locator(".ig-panel h2").all_inner_texts() == ["transformer.h.3.mlp.c_proj"] * 2
    page.get_by_role("button", name="Show or hide the outline").nth(0).click()
    page.locator(".ig-side").nth(0).get_by_role("treeitem").filter(has_text="ln_2").first.click()
    same(page)
    found = page.locator(".ig-panel h2").all_inner_texts()
    assert found[0] == found[1]
    assert found[0].endswith("ln_2")


def test_search_text_is_shared(open_graph: Open, gpt2: Sides) -> None:
    page = open_graph(gpt2)
    search, found = page.get_by_role("combobox", name="Find in the graph"), page.locator(".ig-found")
    search.nth(0).press_sequentially("h.1.ln")
    assert [search.nth(n).input_value() for n in (0, 1)] == ["h.1.ln"] * 2
    assert [found.nth(n).is_visible() for n in (0, 1)] == [
        True,
        False,
    ]  # only the field with the focus has a list
    search.nth(1).focus()
    assert [found.nth(n).is_visible() for n in (0, 1)] == [False, True]
    assert found.nth(1).locator("li").first.inner_text().startswith("transformer.h.1.ln_1")
    search.nth(1).press("Enter")
    assert page.locator(".ig-panel h2").all_inner_texts() == ["transformer.h.1.ln_1"] * 2
    search.nth(1).press("Escape")
    assert [search.nth(n).input_value() for n in (0, 1)] == [""] * 2


def test_logarithmic_scale_is_shared(open_graph: Open) -> None:
    narrow, wide = (
        torch.nn.Sequential(*(torch.nn.Linear(4, size), torch.nn.Linear(size, 4), torch.nn.Linear(4, 900)))
        for size in (8, 64)
    )
    page = open_graph(view(narrow, torch.ones(1, 4), beside=wide, overlay="parameters"))
    switch = page.get_by_role("button", name="log", exact=True)

    def state() -> tuple[list[str | None], list[str], list[Any]]:
        pressed = [switch.nth(n).get_attribute("aria-pressed") for n in (0, 1)]
        ends = page.locator(".ig-legend").all_inner_texts()
        return pressed, ends, [side["1"]["colour"] for side in sides(page)]

    before = state()
    switch.nth(0).click()
    after = state()
    for pressed, ends, _ in (before, after):
        assert pressed[0] == pressed[1]
        assert ends[0] == ends[1]
    assert before[0] != after[0]
    assert all(one != other for one, other in zip(before[2], after[2], strict=True))
    switch.nth(1).click()  # and back, on the other side
    assert state() == before
