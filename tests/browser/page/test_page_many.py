"""The live page with ten thousand layers, five hundred runs and two hundred targets, sent to the server."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from page_server import PageServer
from playwright.sync_api import Locator, Page, expect
from waiting import answered, redrawn, until

pytestmark = [pytest.mark.browser, pytest.mark.long]
AXE = Path(__file__).parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"
Open = Callable[..., Page]

LAYERS = [
    f"encoder.{i // 4}.{part}" for i in range(0, 10_000, 4) for part in ("attn", "norm", "mlp.up", "mlp.down")
]
EPOCHS = 5


class Kept:
    """A server that stays open when a test ends."""

    def __init__(self, server: PageServer) -> None:
        self.server = server
        self.url = server.url

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def post(self, run: str, model: str, rows: Sequence[tuple[Any, ...]], **constant: Any) -> None:
        """Send rows of (address, epoch, value) as the evaluator does."""
        address, epoch, value = map(list, zip(*rows, strict=True))
        columns = {"address": address, "epoch": epoch, "value": value, "low": value, "high": value}
        constant = {"run": run, "model": model, "score": "linear_f1", "target": "digit", **constant}
        columns |= {name: [each] * len(rows) for name, each in constant.items()}
        body = json.dumps({"columns": columns}).encode()
        request = urllib.request.Request(f"{self.url}/results", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert reply.status == 200


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[[], Kept]]:
    """Return a function that starts a server for all tests of this file."""
    servers: list[PageServer] = []

    def started() -> Kept:
        servers.append(PageServer())
        servers[-1].start()
        return Kept(servers[-1])

    yield started
    for server in servers:
        server.__exit__()


def value(place: int, epoch: int) -> float:
    """Return a score that rises with depth and epoch, with a spread."""
    spread = 0.1 * math.sin(place * 2.4)
    return (0.45 + 0.35 * place / len(LAYERS) + spread) * (0.4 + 0.12 * epoch)


@pytest.fixture(scope="module")
def wide(start: Callable[[], Kept]) -> Kept:
    """Return a server with a run of ten thousand layers."""
    server = start()
    for epoch in range(EPOCHS):
        rows = [(name, epoch, value(place, epoch)) for place, name in enumerate(LAYERS)]
        server.post("wide", "Big", rows, baseline=0.1, n=1797)
    return server


@pytest.fixture(scope="module")
def many(start: Callable[[], Kept]) -> Kept:
    """Return a server with five hundred runs of two models; the newest has many targets and scores."""
    server = start()
    for number in range(500):
        name, model = f"lr={10 ** -(1 + number % 5):g} seed={number // 5}", ("Small", "Large")[number % 2]
        server.post(
            name, model, [(f"layer{i}", epoch, 0.1 * (i + epoch)) for i in range(3) for epoch in (0, 1)]
        )
    for number in range(200):
        server.post("newest", "Small", [("layer0", 0, number / 200)], target=f"concept {number:03d}")
    for number in range(30):
        server.post("newest", "Small", [("layer0", 0, number / 30)], score=f"mine {number:02d}", target="")
    server.post("newest", "Small", [("layer0", 0, 0.5)], score=f"mine, {'long ' * 12}")
    return server


def drawn(page: Page, layers: int) -> Page:
    expect(page.locator(".canvas [role=img]")).to_have_attribute(
        "aria-label", re.compile(f": {layers} layers over"), timeout=60_000
    )
    answered(page)
    return page


NODES = """(() => {
  const walker = document.createTreeWalker(document);
  let count = 1;
  while (walker.nextNode()) count++;
  return count;
})()"""

#: Counts the nodes that are added and removed, and the attributes and texts that change.
OBSERVE = """(() => {
  window.touched = 0;
  const size = (node) => 1 + [...node.childNodes].reduce((sum, child) => sum + size(child), 0);
  new MutationObserver((changes) => {
    for (const { addedNodes, removedNodes } of changes)
      window.touched += [...addedNodes, ...removedNodes].reduce((sum, node) => sum + size(node), 1);
  }).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
})()"""


def touched(page: Page) -> int:
    """Return how many nodes were touched since the previous call."""
    redrawn(page)
    return int(page.evaluate("[touched, touched = 0][0]"))


def test_nodes_of_ten_thousand_layers(visit: Open, wide: Kept) -> None:
    page = drawn(visit(wide), 10_000)
    assert page.evaluate(NODES) < 5000
    rows = page.locator(".layers li")
    expect(rows.first).to_have_attribute("data-key", LAYERS[0])
    expect(rows.first).to_have_attribute("aria-setsize", "10000")
    expect(page.get_by_label("Filter layers by name")).to_have_css("height", "30px")
    layers = page.locator(".layers")
    for place in (5000, 9999, 0):
        layers.evaluate("(list, share) => { list.scrollTop = share * list.scrollHeight }", place / 9999)
        row = page.locator(f".layers [data-key='{LAYERS[place]}']")
        expect(row).to_be_visible()
        expect(row).to_have_attribute("aria-posinset", str(place + 1))
        expect(row.locator(".value")).to_have_text(f"{value(place, EPOCHS - 1):.3f}")
    layers.focus()
    page.keyboard.press("End")
    chosen = page.locator(".layers [aria-selected=true]")
    expect(chosen).to_have_attribute("data-key", LAYERS[-1])
    expect(chosen).to_be_in_viewport()
    page.keyboard.press("PageUp")
    expect(chosen).to_have_attribute("data-key", LAYERS[-11])
    assert layers.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    assert page.evaluate(NODES) < 5000


def test_work_of_a_keystroke_and_of_the_pointer(visit: Open, wide: Kept) -> None:
    page = drawn(visit(wide), 10_000)
    page.evaluate(OBSERVE)
    field = page.get_by_label("Filter layers by name")
    field.focus()
    touched(page)
    for key, found in (
        ("7", sum("7" in name for name in LAYERS)),
        ("7", sum("77" in name for name in LAYERS)),
    ):
        page.keyboard.press(key)
        expect(page.locator(".plot .heading")).to_contain_text(f"{found:,} of 10,000 layers")
        assert 0 < touched(page) < 2500
    field.fill("")
    drawn(page, 10_000)
    touched(page)
    box = page.locator(".canvas .over").bounding_box()
    assert box is not None
    for step in range(5):
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * (0.4 + 0.05 * step))
        redrawn(page)
    assert touched(page) / 5 < 400


#: Counts the pixels of the lines' canvas: those in the color of a layer, and those of one color.
PIXELS = """(canvas, wanted) => {
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const columns = new Set();
  let coloured = 0;
  for (let at = 0; at < data.length; at += 4) {
    const [red, green, blue, alpha] = data.slice(at, at + 4);
    if (alpha > 60 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) coloured++;
    if (alpha > 230 && wanted.every((c, k) => Math.abs(c - data[at + k]) < 10)) columns.add((at / 4) % width);
  }
  return { coloured: coloured / (width * height), columns: columns.size / width };
}"""


def pixels(page: Page, colour: Sequence[int]) -> dict[str, float]:
    redrawn(page)
    return dict(page.locator(".canvas canvas").first.evaluate(PIXELS, list(colour)))


def swatch(page: Page, address: str) -> list[int]:
    style = page.locator(f".layers [data-key='{address}'] .swatch").get_attribute("style")
    found = re.search(r"rgb\((\d+), (\d+), (\d+)\)", str(style))
    assert found is not None
    return [int(each) for each in found.groups()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_chosen_curve_is_above_the_crowd_in_its_colour(visit: Open, wide: Kept, scheme: str) -> None:
    page = visit(wide, "#run=wide&model=Big&filter=norm")
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    drawn(page, 2500)
    address = "encoder.1212.norm"
    layers = page.locator(".layers")
    layers.evaluate("list => { list.scrollTop = 0.485 * list.scrollHeight }")
    colour = swatch(page, address)
    before = pixels(page, colour)
    assert 0.01 < before["coloured"] < 0.3  # lines, and not an area
    page.locator(f".layers [data-key='{address}']").click()
    page.mouse.move(5, 5)
    assert pixels(page, colour)["columns"] > 0.85  # from the first epoch to the last
    expect(page.locator(".plot .heading")).to_contain_text(
        "Gray: the range of all 10,000 layers, darker the middle half of the 2,500. Lines: 40 from input"
    )
    # another layer under the pointer does not hide the chosen one
    layers.evaluate("list => { list.scrollTop = 0 }")
    page.locator(".layers [data-key='encoder.3.norm']").hover()
    both = [pixels(page, each)["columns"] for each in (colour, swatch(page, "encoder.3.norm"))]
    assert min(both) > 0.7


def test_filtered_lines_are_all_drawn_above_the_range_of_all(visit: Open, wide: Kept) -> None:
    page = drawn(visit(wide, "#run=wide&model=Big&filter=encoder.77.,encoder.2400."), 8)
    expect(page.locator(".plot .heading")).to_contain_text("8 of 10,000 layers")
    expect(page.locator(".plot .heading")).to_contain_text("Gray: the range of all 10,000 layers.")
    for address in ("encoder.77.attn", "encoder.2400.mlp.down"):
        assert pixels(page, swatch(page, address))["columns"] > 0.7
    expect(page.locator(".heat .soft").first).to_have_text("")


def test_heat_map_and_downloads_have_all_layers(visit: Open, wide: Kept) -> None:
    page = drawn(visit(wide, f"#run=wide&model=Big&address={LAYERS[4321]}"), 10_000)
    expect(page.locator(".heat .head")).to_contain_text("color: mean of up to 25 layers")
    expect(page.locator(".heat canvas")).to_have_attribute(
        "aria-label", re.compile("10000 layers by 5 epochs")
    )
    saved = {}
    for form in ("CSV", "SVG", "PNG"):
        with page.expect_download(timeout=30_000) as download:
            page.get_by_role("button", name=f"Download the plot as {form}").click()
        saved[form] = Path(download.value.path()).read_bytes()
    table = list(csv.DictReader(io.StringIO(saved["CSV"].decode())))
    assert {(row["address"], float(row["epoch"])) for row in table} == {
        (name, epoch) for name in LAYERS for epoch in range(EPOCHS)
    }
    picture = saved["SVG"].decode()
    assert f">{LAYERS[4321]}<" in picture
    assert ">9,959 other layers (gray)<" in picture
    assert saved["PNG"].startswith(b"\x89PNG")


def test_link_shows_the_layer_in_a_long_list(visit: Open, wide: Kept) -> None:
    fragment = f"#run=wide&model=Big&score=linear_f1&target=digit&address={LAYERS[7777]}&epoch=2"
    page = drawn(visit(wide, fragment), 10_000)
    chosen = page.locator(".layers [aria-selected=true]")
    expect(chosen).to_have_attribute("data-key", LAYERS[7777])
    expect(chosen).to_be_in_viewport()
    expect(page.locator(".epoch")).to_have_text("epoch 2 of 4")
    expect(page).to_have_url(re.compile("address=encoder.1944.norm&epoch=2$"))


def options(page: Page) -> Locator:
    return page.locator("[role=option]:visible").and_(page.locator(".choices *"))


def test_nodes_of_five_hundred_runs_and_search_by_name_and_model(visit: Open, many: Kept) -> None:
    page = drawn(visit(many), 1)
    assert page.evaluate(NODES) < 1000
    runs = page.get_by_role("combobox", name="Run", exact=True)
    expect(runs).to_have_value("newest · Small")
    runs.click()
    expect(page.get_by_text("501 in all; type to search")).to_be_visible()
    assert page.evaluate(NODES) < 5000
    page.keyboard.type("seed=42 large")
    expect(page.get_by_text("2 of 501 match")).to_be_visible()
    expect(options(page)).to_have_text(["lr=0.01 seed=42 · Large", "lr=0.0001 seed=42 · Large"][::-1])
    active = page.locator(f"id={runs.get_attribute('aria-activedescendant')}")
    expect(active).to_have_text("lr=0.0001 seed=42 · Large")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(runs).to_have_value("lr=0.01 seed=42 · Large")
    expect(runs).to_have_attribute("aria-expanded", "false")
    expect(page).to_have_url(re.compile(r"run=lr%3D0.01\+seed%3D42&model=Large"))
    runs.press("ArrowDown")  # opens the list at the run
    expect(page.locator(".choices .active")).to_have_attribute("aria-selected", "true")
    page.keyboard.type("no such run")
    expect(page.get_by_text("0 of 501 match")).to_be_visible()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(runs).to_have_value("lr=0.01 seed=42 · Large")
    expect(options(page)).to_have_count(0)
    runs.press("ArrowDown")
    for _ in range(60):
        page.keyboard.press("PageDown")
    page.keyboard.press("Enter")
    expect(runs).to_have_value("lr=0.1 seed=0 · Small")  # the oldest


@pytest.mark.parametrize(
    ("label", "words", "match", "heading"),
    [
        ("Target", "19 concept", "concept 019", "Linear probe, macro F1 of concept 019"),
        ("Score", "mine 17", "mine 17", "mine 17"),
    ],
)
def test_search_in_targets_and_scores(
    visit: Open, many: Kept, label: str, words: str, match: str, heading: str
) -> None:
    page = drawn(visit(many), 1)
    field = page.get_by_role("combobox", name=label, exact=True)
    field.click()
    page.keyboard.type(words)
    expect(options(page).first).to_have_text(match)
    page.keyboard.press("Enter")
    expect(field).to_have_value(match)
    expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    field.click()
    options(page).last.click()
    expect(field).not_to_have_value(match)
    expect(field).to_have_attribute("aria-expanded", "false")


def test_search_in_runs_to_compare_with(visit: Open, many: Kept) -> None:
    page = drawn(visit(many, "#run=lr%3D0.1+seed%3D9&model=Large"), 3)
    field = page.get_by_role("combobox", name="Runs to compare with")
    field.click()
    page.keyboard.type("seed=7 lr=0.1")
    for key in ("Enter", "ArrowDown", "Enter"):  # switched on one after the other, as fast as keys come
        page.keyboard.press(key)
    expect(page.locator(".choices [aria-selected=true]")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(field).to_have_attribute("placeholder", "Compare: 2")
    expect(page.locator(".key li")).to_have_count(3)
    expect(page).to_have_url(re.compile("against=.*against="))  # written after a pause
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    drawn(page, 3)
    expect(page.locator(".key li")).to_have_count(3)
    field.click()
    page.keyboard.type(str(page.locator(".key li span").nth(1).text_content()).split(" · ")[0])
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator(".key li")).to_have_count(2)


def test_open_list_stays_as_it_is_while_runs_arrive(visit: Open, many: Kept) -> None:
    page = drawn(visit(many, "#run=newest&model=Small"), 1)
    expect(page.locator(".link")).to_have_text("Live")
    page.get_by_role("combobox", name="Run", exact=True).click()
    page.keyboard.type("seed=99")
    expect(page.get_by_text("5 of 501 match")).to_be_visible()
    many.post("later seed=99", "Small", [("layer0", 0, 0.5)])
    expect(page.get_by_text("6 of 502 match")).to_be_visible()
    expect(page.get_by_role("combobox", name="Run", exact=True)).to_have_value("seed=99")
    many.server.database.remove(run="later seed=99")


def test_runs_are_requested_once_and_no_change_is_missed(visit: Open, start: Callable[[], Kept]) -> None:
    server = start()
    server.post("first", "Net", [("a", 0, 0.5)])
    page = visit(server)
    drawn(page, 1)
    asked: list[str] = []
    page.on("request", lambda request: request.url.endswith("/api/runs") and asked.append(request.url))
    page.reload()
    drawn(page, 1)
    page.wait_for_timeout(2500)
    assert len(asked) == 1

    def late(route: Any) -> None:
        """Change something after the list of runs is answered and before the page hears of changes."""
        time.sleep(0.5)
        server.post("first", "Net", [("a", 1, 0.6)])
        route.continue_()

    page.route("**/api/stream", late)
    page.reload()
    expect(page.locator(".epoch")).to_have_text("epoch 1 of 1")


def test_units_are_shown_in_steps(visit: Open, start: Callable[[], Kept]) -> None:
    server = start()
    names = [("conv", 0, unit / 500) for unit in range(500)]
    rows = [
        {
            "run": "u",
            "model": "Net",
            "address": a,
            "epoch": e,
            "unit": i,
            "value": v,
            "score": "iou",
            "target": "t",
        }
        for i, (a, e, v) in enumerate(names)
    ]
    server.server.add(rows)
    page = visit(server)
    table = page.locator(".units tbody tr")
    expect(table).to_have_count(10)
    for label, shown in (
        ("Show 200 of 500 units", 200),
        ("Show 400 of 500 units", 400),
        ("Show all 500 units", 500),
        ("Show the top 10", 10),
    ):
        if shown == 200:
            assert page.evaluate(NODES) < 2500
        page.get_by_role("button", name=label).click()
        expect(table).to_have_count(shown)


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: run `npm ci` in web/")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_long_lists(visit: Open, many: Kept, wide: Kept, scheme: str) -> None:
    for server, layers, field in ((many, 1, "Score"), (many, 1, "Runs to compare with"), (wide, 10_000, "")):
        page = drawn(visit(server), layers)
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        if field:
            page.get_by_role("combobox", name=field, exact=True).click()
            expect(options(page).first).to_be_visible()
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations)")
        assert [
            f"{one['id']}: {one['help']} {[node['html'][:120] for node in one['nodes']]}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ] == []


@pytest.mark.parametrize("width", [1300, 950, 380])
def test_fields_of_header_do_not_overlap(visit: Open, many: Kept, width: int) -> None:
    page = visit(many)
    page.set_viewport_size({"width": width, "height": 800})
    drawn(page, 1)
    parts = page.locator(".page > header").locator(".search, .counts, .link, .quiet, h1").all()
    boxes = [box for box in (part.bounding_box() for part in parts) if box]
    assert len(boxes) == 6
    for one, other in itertools.combinations(boxes, 2):
        across = min(one["x"] + one["width"], other["x"] + other["width"]) - max(one["x"], other["x"])
        down = min(one["y"] + one["height"], other["y"] + other["height"]) - max(one["y"], other["y"])
        assert across <= 0 or down <= 0
    for name in ("Run", "Runs to compare with"):
        box = page.get_by_role("combobox", name=name, exact=True).bounding_box()
        assert box["width"] >= 120


@pytest.mark.parametrize("width", [1280, 420, 380])
def test_open_list_is_inside_the_window(visit: Open, many: Kept, width: int) -> None:
    page = visit(many)
    page.set_viewport_size({"width": width, "height": 800})
    drawn(page, 1)
    for name in ("Run", "Runs to compare with", "Score", "Target"):
        page.get_by_role("combobox", name=name, exact=True).click()
        until(page, "document.querySelectorAll('.choices [role=option]').length > 3")
        box = page.locator(".searched .choices:visible").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        page.keyboard.press("Escape")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
