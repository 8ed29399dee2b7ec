"""Examples and the verification of a unit, stored by a real inspection, on a real server in Chromium."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from page_server import PageServer
from playwright.sync_api import Locator, Page, expect
from waiting import eventually

from intus import inspect
from intus.inspection.results.table import Inspection

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"
LINK = "#run=t&model=Sequential&score=correlation&address=0[1]"
MARKUP = '<img src=x onerror="document.title=1">('
TEXTS = ["print((1))", "x = f(a)", "none here", MARKUP, "a" * 300 + "(" + "b" * 300] * 4


def opens(text: str) -> list[bool]:
    return [c == "(" for c in text]


def encode(texts: list[str]) -> torch.Tensor:
    longest = max(map(len, texts))
    return torch.tensor([[ord(c) for c in text.ljust(longest)] for text in texts])


def inspected(server: PageServer, seed: int = 0) -> Inspection:
    """Inspect two checkpoints; unit 1 is 2 at an opening bracket, -1 at "x", and 0 elsewhere."""

    def model() -> torch.nn.Module:
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Embedding(128, 4), torch.nn.Linear(4, 2))
        with torch.no_grad():
            net[0].weight[:, 1] = 0
            net[0].weight[ord("("), 1], net[0].weight[ord("x"), 1] = 2, -1
        return net

    store = str(server.database.url.database)
    return inspect(
        {0: model(), 10: model()},
        {"opens": opens},
        "correlation",
        TEXTS,
        "0",
        inputs=encode,
        store=store,
        run="t",
    )


@pytest.fixture
def server() -> PageServer:
    return PageServer()


def of_epoch(table: Inspection, epoch: int) -> object:
    return table[(table.unit == 1) & (table.epoch == epoch)].iloc[0]


def shades(item: Locator) -> list[str]:
    return item.locator(".tokens span").evaluate_all(
        "all => all.map(one => getComputedStyle(one).backgroundColor)"
    )


@pytest.mark.long
def test_unit_leads_to_its_examples_and_verification(visit: Callable[..., Page], server: PageServer) -> None:
    table = inspected(server)
    page = visit(server, "#score=correlation")
    expect(page.locator(".units tbody tr")).to_have_count(4)
    panel = page.locator(".panel.followups")
    expect(panel).to_be_hidden()  # nothing is stored

    found = table.examples(of_epoch(table, 10), k=3, store=True)
    page.get_by_role("button", name="details", exact=True).click()  # without a reload
    expect(panel.locator("h2")).to_have_text("Examples and verification of 0[1] for opens")
    expect(panel.locator("h2")).to_be_in_viewport()
    expect(page.locator(".layers [aria-selected=true]")).to_have_attribute("data-key", "0[1]")
    assert [text.lower() for text in panel.locator("h3").all_inner_texts()] == found.kind.unique().tolist()
    items = panel.locator("li")
    expect(items).to_have_count(len(found))
    assert items.locator("b").all_inner_texts() == [
        "0" if one == 0 else f"{one:.3f}".replace("-", "−") for one in found.behavior
    ]
    for item, one in zip(items.all(), found.itertuples(), strict=True):
        text, at = TEXTS[one.record], one.position
        start = max(0, at - 80)
        shown = item.locator(".tokens")
        cut = text[start : at + 81]
        expect(shown).to_have_text("…" * (start > 0) + cut + "…" * (at + 81 < len(text)), use_inner_text=True)
        assert shown.locator(".holds").all_inner_texts() == ["("] * cut.count("(")
        assert shown.locator(".at").evaluate("at => [...at.parentNode.children].indexOf(at)") == at - start
        colors = dict(zip(cut, shades(item), strict=True))
        assert len({colors[c] for c in colors if c not in "(x"}) <= 1
        if "x" in colors and "(" in colors:
            assert len(set(colors.values())) == 3
    assert page.title() != "1"  # no markup of a text was run
    assert page.locator(".followups img").count() == 0

    verified = table.verify(of_epoch(table, 10), store=True, records=20)
    lines = panel.locator("tbody tr")
    expect(lines).to_have_count(7)
    assert verified.ablation is not None
    effect = verified.ablation.effect
    row = lines.filter(has_text="difference")
    numbers = [float(text.replace("−", "-")) for text in re.findall(r"−?\d+\.?\d*", row.inner_text())][:3]
    assert numbers == pytest.approx([effect.value, effect.low, effect.high], abs=6e-4)
    assert len(row.locator("svg line").all()) == len(verified.ablation.others) + 1
    assert verified.perturbation is not None
    expect(panel).to_contain_text("follows the hypothesis")
    expect(panel).to_contain_text(f"silhouette {verified.perturbation.silhouette:.2f}, rank 1 of 4 units")


@pytest.mark.long
def test_examples_belong_to_unit_and_epoch(visit: Callable[..., Page], server: PageServer) -> None:
    table = inspected(server)
    table.examples(of_epoch(table, 0), k=1, store=True)
    page = visit(server, LINK)
    panel = page.locator(".panel.followups")
    title = panel.locator("h2")
    expect(page.locator(".timeline output")).to_have_text("epoch 10 of 10")
    expect(title).to_have_text("Examples and verification")  # those stored are of another epoch
    expect(panel.locator("li")).to_have_count(0)
    expect(page.get_by_role("button", name="details", exact=True)).to_have_count(0)
    panel.get_by_label("Unit").select_option("0[1], epoch 0")
    expect(title).to_have_text("Examples and verification of 0[1] for opens")
    expect(page.locator(".timeline output")).to_have_text("epoch 0 of 10")
    expect(panel.locator("h3")).to_have_text(["top", "random"])  # the unit is never silent with "("
    expect(panel.locator("li")).to_have_count(2)
    page.locator(".layers li[data-key='0[2]']").click()
    expect(title).to_have_text("Examples and verification")
    expect(panel.locator("li")).to_have_count(0)
    page.locator(".layers li[data-key='0[1]']").click()
    expect(panel.locator("li")).to_have_count(2)
    inspected(server, seed=1)  # other weights
    expect(panel).to_be_hidden()


def test_examples_of_real_labels_show_them(visit: Callable[..., Page], server: PageServer) -> None:
    def depth(text: str) -> np.ndarray:
        return np.cumsum([(c == "(") - (c == ")") for c in text]) / 2

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Embedding(128, 4))
    store = str(server.database.url.database)
    table = inspect(net, {"depth": depth}, "correlation", TEXTS, "0", inputs=encode, store=store, run="t")
    found = table.examples(1, k=3, store=True)
    page = visit(server, LINK)
    items = page.locator(".followups li")
    expect(items).to_have_count(len(found))
    for item, one in zip(items.all(), found.itertuples(), strict=True):
        expect(item.locator(".facts")).to_contain_text(f"record {one.record}, label {one.label:.4g}")
        titles = item.locator(".tokens span").evaluate_all("all => all.map(one => one.title)")
        labels = [float(title.partition(", label ")[2]) for title in titles]
        start = max(0, one.position - 80)
        assert labels == depth(TEXTS[one.record])[start : one.position + 81].tolist()


def test_reason_of_a_blank_interval(visit: Callable[..., Page], server: PageServer) -> None:
    """One record in 200 with the hypothesis gives a correlation, and no interval."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(200, 3)).astype(np.float32)
    ideas = {"rare": np.arange(200) == 7, "half": np.arange(200) % 2}
    net = torch.nn.Sequential(torch.nn.Identity())
    store = str(server.database.url.database)
    table = inspect(net, ideas, "correlation", data, "0[:@1]", store=store, run="r")
    row = table[(table.target == "rare") & (table.unit == 1)].iloc[0]
    assert np.isfinite(row.value)
    assert np.isnan(row.low)
    assert row.note
    page = visit(server, "#run=r&model=Sequential&score=correlation&target=rare&address=0[1]")
    chosen = page.locator(".units tr.on")
    page.locator(".units").get_by_label("Hypothesis").select_option("rare")
    expect(chosen).to_contain_text("0[1]")
    expect(chosen.locator("td").nth(2)).to_have_text("–")
    expect(chosen).to_have_attribute("title", row.note)
    expect(page.locator(".panel.units > p")).to_have_text(f"0[1]: {row.note}")
    page.locator(".units").get_by_label("Hypothesis").select_option("half")
    expect(chosen.locator("td").nth(2)).not_to_have_text("–")
    expect(page.locator(".panel.units > p")).to_have_text("")


@pytest.mark.long
def test_pictures_of_examples(visit: Callable[..., Page], server: PageServer) -> None:
    images = np.random.default_rng(0).random((30, 1, 8, 8)).astype(np.float32)
    store = str(server.database.url.database)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1))
    table = inspect(
        net, {"ink": lambda image: image[0] > 0.5}, "correlation", images, "0", store=store, run="i"
    )
    found = table.examples(0, k=2, store=True)
    page = visit(server, "#run=i&model=Sequential&score=correlation&address=0[0]")
    pictures = page.locator(".followups .picture")
    expect(pictures).to_have_count(len(found), timeout=30_000)
    shown = pictures.locator("img")
    eventually(page, lambda: shown.evaluate_all("all => all.every(image => image.complete)"))
    sizes = shown.evaluate_all("all => all.map(i => [i.naturalWidth, i.width, i.height])")
    assert sizes == [[96, 96, 96]] * 2 * len(found)
    over = pictures.first.locator("img").last
    expect(over).to_have_css("opacity", "1")
    pictures.first.hover()
    expect(over).to_have_css("opacity", "0")  # the image alone


@pytest.mark.long
@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: run `npm ci` in web/")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_followups(
    visit: Callable[..., Page], server: PageServer, theme: str
) -> None:
    table = inspected(server)
    table.examples(of_epoch(table, 10), store=True)
    table.verify(of_epoch(table, 10), store=True, records=20)
    page = visit(server, LINK)
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    expect(page.locator(".followups tbody tr")).to_have_count(7)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    run = "axe.run({ include: ['.followups', '.units'] }, { resultTypes: ['violations'] })"
    found = page.evaluate(f"{run}.then((r) => r.violations)")
    assert [
        f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found if one["impact"] != "minor"
    ] == []
    page.set_viewport_size({"width": 700, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    rights = "all => all.map(one => one.getBoundingClientRect().right)"
    assert max(page.locator(".followups .tokens").evaluate_all(rights)) < 690  # long texts are wrapped
