"""The depth control: mouse, keys, screen reader and address bar."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from waiting import until
from zoo import MODELS

from intus.viewing.html import View

pytestmark = pytest.mark.browser
VIEW = "document.querySelector('#intus-graph').intusView"
Open = Callable[..., Page]


def opened(page: Page) -> dict[str, int]:
    """Return the visible open modules with their depth."""
    until(page, f"{VIEW}.still")
    names = page.evaluate(f"{VIEW}.boxes().filter(b => b.open && b.kind === 'module').map(b => b.address)")
    return {name: sum(name.startswith(f"{other}.") for other in names) + 1 for name in names}


def closed_modules(page: Page) -> list[str]:
    """Return the visible closed modules that have contents."""
    return page.evaluate(
        f"{VIEW}.visible.boxes.filter(b => !b.open && b.node.kind === 'module' && b.node.children.length)"
        ".map(b => b.node.address)"
    )


@pytest.mark.long
def test_depth_control_opens_each_depth(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"](), depth=0))
    depth = page.get_by_label("Depth")
    expect(depth).to_have_value("0")
    choices = depth.locator("option:not([hidden])").all_inner_texts()
    assert choices == ["0", "1", "2", "3", "4", "all"]
    assert opened(page) == {}
    for choice in choices[1:-1]:
        depth.select_option(choice)
        assert set(opened(page).values()) == set(range(1, int(choice) + 1))
        expect(depth).to_have_value(choice)
        expect(page.locator(".ig-announcement")).to_contain_text(f"Open to depth {choice}: ")
    assert closed_modules(page) == []
    one_of_each = len(opened(page))
    depth.select_option("all")
    assert len(opened(page)) > 5 * one_of_each  # all members of folds
    assert closed_modules(page) == []
    page.get_by_role("button", name="Close one level").click()
    expect(depth).to_have_value("4")
    page.get_by_role("button", name="Close one level").click(modifiers=["Shift"])
    assert opened(page) == {}
    expect(depth).to_have_value("0")


def test_digit_keys_open_depths_in_picture_and_outline(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"](), depth=1))
    depth = page.get_by_label("Depth")
    expect(depth).to_have_value("1")
    page.locator(".ig-canvas").focus()
    page.keyboard.press("2")
    expect(depth).to_have_value("2")
    page.keyboard.press("*")
    expect(depth).to_have_value("all")
    page.get_by_role("tree").focus()
    page.keyboard.press("1")
    expect(depth).to_have_value("1")
    page.get_by_label("Find in the graph").fill("2")  # a digit typed into a text field is not a command
    expect(depth).to_have_value("1")


def test_depth_control_shows_depth_reached_by_other_means(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"](), depth=1))
    depth = page.get_by_label("Depth")
    page.evaluate(f"{VIEW}.close('transformer')")
    expect(depth).to_have_value("0")
    page.evaluate(f"{VIEW}.open('transformer.h.3.attn')")
    expect(depth).to_have_value("")  # the open boxes match no depth
    assert depth.locator("option:checked").inner_text() == "–"
    page.get_by_role("button", name="Open one level").click()
    expect(depth).to_have_value("4")


@pytest.mark.long
def test_address_bar_has_the_depth(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"]()))
    page.get_by_label("Depth").select_option("2")
    until(page, "location.hash === '#depth=2'")
    before = opened(page)
    url = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(url)
    until(page, "Boolean(document.querySelector('#intus-graph')?.intusView)")
    assert opened(page) == before
    expect(page.get_by_label("Depth")).to_have_value("2")
    page.evaluate("location.hash = '#depth=all'")
    expect(page.get_by_label("Depth")).to_have_value("all")
    page.evaluate("location.hash = '#depth=nonsense'")
    expect(page.get_by_label("Depth")).to_have_value("0")
