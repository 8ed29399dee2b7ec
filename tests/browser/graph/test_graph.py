"""The interactive graph in a real browser: layout, mouse, keyboard, colors and unusual models."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page, expect
from torch import Tensor, nn
from waiting import redrawn, until
from zoo import MODELS as ZOO
from zoo import Chain, graph_of

from intus.core.graph import Graph
from intus.tracing.run import trace
from intus.viewing.html import View
from intus.viewing.scene import scene

pytestmark = pytest.mark.browser
VIEW = "document.querySelector('#intus-graph').intusView"
Open = Callable[..., Page]


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()),
        )
        self.fc1 = nn.Linear(16 * 16, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(self.features(x).flatten(1))))


class Residual(nn.Module):
    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        wide = width * stride
        self.conv1 = nn.Conv2d(width, wide, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(wide)
        self.conv2 = nn.Conv2d(wide, wide, 3, 1, 1)
        self.down = (
            nn.Sequential(nn.Conv2d(width, wide, 1, stride), nn.BatchNorm2d(wide)) if stride > 1 else None
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(torch.relu(self.bn1(self.conv1(x))))
        return torch.relu(y + (x if self.down is None else self.down(x)))


def digits() -> Graph:
    return graph_of(Digits(), torch.zeros(4, 1, 8, 8))


def resnet() -> Graph:
    blocks = [Residual(8, 1), Residual(8, 2), *(Residual(16, 1) for _ in range(4)), Residual(16, 2)]
    return graph_of(nn.Sequential(nn.Conv2d(3, 8, 3), *blocks), torch.zeros(1, 3, 16, 16))


MODELS: dict[str, Callable[[], Graph]] = {
    "digits": digits,
    "resnet": resnet,
    **{name: ZOO[name] for name in ("gpt2", "llama", "encoder", "lstm", "one operation", "wild 1", "wild 4")},
}


def boxes(page: Page) -> list[dict[str, Any]]:
    until(page, f"{VIEW}.still")
    return page.evaluate(f"{VIEW}.boxes()")


def box(page: Page, address: str) -> dict[str, Any]:
    return next(found for found in boxes(page) if found["address"] == address)


def area(page: Page) -> dict[str, float]:
    found = page.locator(".ig-canvas").bounding_box()
    assert found is not None
    return found


def press_button(page: Page, address: str) -> tuple[float, float]:
    """Click the part of a box that opens and closes it, and return the position in the canvas."""
    at, canvas = box(page, address), area(page)
    x, y = at["x"] + 16, at["y"] + 14
    page.mouse.click(canvas["x"] + x, canvas["y"] + y)
    return x, y


def addresses(page: Page) -> set[str]:
    return {found["address"] for found in boxes(page)}


# -- layout ---------------------------------------------------------------------------------------------


def contains(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return (
        a["x"] <= b["x"] + 0.01
        and a["y"] <= b["y"] + 0.01
        and b["x"] + b["width"] <= a["x"] + a["width"] + 0.01
        and b["y"] + b["height"] <= a["y"] + a["height"] + 0.01
    )


def apart(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return (
        a["x"] + a["width"] <= b["x"]
        or b["x"] + b["width"] <= a["x"]
        or a["y"] + a["height"] <= b["y"]
        or b["y"] + b["height"] <= a["y"]
    )


@pytest.mark.parametrize("name", MODELS)
def test_boxes_do_not_overlap_and_data_flows_down(open_graph: Open, name: str) -> None:
    graph = MODELS[name]()
    page = open_graph(View(graph, depth=99, rolled=False))
    page.evaluate(f"{VIEW}.openToDepth(Infinity)")
    all_boxes = boxes(page)
    leaves = [found for found in all_boxes if not found["open"]]
    for number, a in enumerate(all_boxes):
        for b in all_boxes[number + 1 :]:
            assert apart(a, b) or (a["open"] and contains(a, b)) or (b["open"] and contains(b, a)), (a, b)

    names = page.evaluate(
        f"Object.fromEntries({VIEW}.tree.nodes.flatMap(n => n.names.map(a => [a, n.address])))"
    )
    place = {found["address"]: found for found in leaves}
    compared = 0
    for src, dst in zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True):
        if graph.ops.kind[src] == 3:  # a buffer may be part of the box that reads it
            continue
        a, b = names[graph.labels[src]], names[graph.labels[dst]]
        if a != b:
            assert place[a]["y"] + place[a]["height"] < place[b]["y"], (a, b)
            compared += 1
    assert compared > 0
    assert len(leaves) >= min(3, len(graph))


@pytest.mark.long
@pytest.mark.parametrize("name", ["resnet", "gpt2", "llama", "wild 1", "wild 4"])
def test_edges_avoid_boxes(open_graph: Open, name: str) -> None:
    page = open_graph(View(MODELS[name](), rolled=False))
    page.evaluate(f"{VIEW}.openToDepth(Infinity)")
    leaves = [found for found in boxes(page) if not found["open"]]
    routes = page.evaluate(f"{VIEW}.routes()")
    straight = 0
    for route in routes:
        points = list(zip(route["points"][::2], route["points"][1::2], strict=True))
        for (x1, y1), (x2, y2) in itertools.pairwise(points):
            if abs(x1 - x2) > 0.5:
                continue  # curves are between the ranks, where there are no boxes
            straight += 1
            for leaf in leaves:
                inside = leaf["x"] + 1 < x1 < leaf["x"] + leaf["width"] - 1
                crosses = min(y1, y2) < leaf["y"] + leaf["height"] - 1 and max(y1, y2) > leaf["y"] + 1
                assert not (inside and crosses), (route["from"], route["to"], leaf["address"])
    assert straight > len(leaves) / 2


@pytest.mark.parametrize("name", ["digits", "resnet", "gpt2", "llama"])
def test_graph_opens_readable_at_the_top(open_graph: Open, name: str) -> None:
    page = open_graph(View(MODELS[name]()))
    first = boxes(page)
    assert 3 <= len(first) <= 40
    entry = next(found for found in first if found["kind"] == "input")
    assert 0 <= entry["y"] < 60
    assert 0 < entry["x"] < area(page)["width"]
    assert entry["height"] >= 17  # its text is at least 7.5 px high


# -- mouse, touch and keyboard --------------------------------------------------------------------------


@pytest.mark.parametrize("motion", [False, True])
def test_click_opens_and_closes_box_in_place(open_graph: Open, motion: bool) -> None:
    page = open_graph(View(digits(), depth=0), motion=motion)
    assert addresses(page) == {"input_1", "features", "flatten_1_7", "fc1", "relu_3_9", "fc2", "output_1"}
    x, y = press_button(page, "features")
    opened = box(page, "features")
    assert opened["open"]
    assert {f"features.{i}" for i in range(6)} < addresses(page)
    assert opened["x"] <= x <= opened["x"] + opened["width"]
    assert opened["y"] <= y <= opened["y"] + 30  # still on the header, so that a second click closes it
    canvas = area(page)
    page.mouse.click(canvas["x"] + x, canvas["y"] + y)
    closed = box(page, "features")
    assert not closed["open"]
    assert closed["x"] <= x <= closed["x"] + closed["width"]
    assert closed["y"] <= y <= closed["y"] + closed["height"]


@pytest.mark.long
def test_every_box_of_gpt2_opens_and_closes(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"](), depth=0))
    count = page.evaluate(
        f"""() => {{
            const view = {VIEW}, start = view.boxes().length;
            let toggled = 0;
            for (const node of view.tree.nodes) {{
                if (!node.children.length || !node.address) continue;
                view.open(node.address);
                const there = new Map(view.boxes().map((b) => [b.address, b]));
                const first = view.tree.nodes[node.children[0]];
                const hidden = first.address && !there.has(first.address);
                if (!there.get(node.address).open || hidden) return node.address;
                view.close(node.address);
                if (view.boxes().find((b) => b.address === node.address).open) return node.address;
                toggled++;
            }}
            return toggled;
        }}"""
    )
    assert isinstance(count, int), count
    assert count > 60


def test_drag_wheel_and_pinch(open_graph: Open) -> None:
    page = open_graph(View(digits()))
    canvas, before = area(page), box(page, "input_1")
    page.mouse.move(canvas["x"] + 60, canvas["y"] + 300)
    page.mouse.down()
    page.mouse.move(canvas["x"] + 100, canvas["y"] + 330, steps=4)
    page.mouse.up()
    dragged = box(page, "input_1")
    assert dragged["x"] - before["x"] == pytest.approx(40, abs=1)
    assert dragged["y"] - before["y"] == pytest.approx(30, abs=1)
    page.mouse.wheel(0, 50)
    assert box(page, "input_1")["y"] - dragged["y"] == pytest.approx(-50, abs=1)
    at = box(page, "features.0")
    x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
    page.mouse.move(canvas["x"] + x, canvas["y"] + y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    zoomed = box(page, "features.0")
    assert zoomed["width"] > 1.2 * at["width"]
    assert zoomed["x"] + zoomed["width"] / 2 == pytest.approx(x, abs=1)  # it zooms about the pointer
    assert zoomed["y"] + zoomed["height"] / 2 == pytest.approx(y, abs=1)


def test_pinch_events_of_safari(open_graph: Open) -> None:
    """Chromium has no such events; they are sent as Safari sends them, also together with touch pointers."""
    page = open_graph(View(digits()))
    at = box(page, "features.0")
    x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
    send = """([x, y, scales]) => {
        const canvas = document.querySelector('.ig-canvas'), from = canvas.getBoundingClientRect();
        const place = { clientX: from.x + x, clientY: from.y + y, bubbles: true, cancelable: true };
        return scales.map((scale, i) => {
            const event = new MouseEvent(i ? 'gesturechange' : 'gesturestart', place);
            return canvas.dispatchEvent(Object.assign(event, { scale }));
        });
    }"""
    assert page.evaluate(send, [x, y, [1, 1.2, 1.5]]) == [False] * 3  # else Safari zooms the page
    zoomed = box(page, "features.0")
    assert zoomed["width"] == pytest.approx(1.5 * at["width"], rel=0.01)
    assert zoomed["x"] + zoomed["width"] / 2 == pytest.approx(x, abs=1)
    page.evaluate(send, [x, y, [1, 0.5]])  # every pinch begins at 1
    assert box(page, "features.0")["width"] == pytest.approx(0.75 * at["width"], rel=0.01)
    page.locator(".ig-canvas").hover(position={"x": 40, "y": 300})
    page.mouse.down()
    page.evaluate(send, [x, y, [1, 2]])
    page.mouse.up()
    assert box(page, "features.0")["width"] == pytest.approx(0.75 * at["width"], rel=0.01)


def test_too_old_browser_gets_a_message(new_page: Callable[..., Page], tmp_path: Path) -> None:
    """A browser without light-dark() would show a black page."""
    page = new_page()
    page.add_init_script(
        "CSS.supports = (name, value) => name !== 'color' || !value.startsWith('light-dark')"
    )
    page.goto(View(digits()).save(tmp_path / "graph.html").as_uri())
    expect(page.locator("#intus-graph")).to_contain_text("this browser is too old. It needs Chrome 123")


def test_panel_of_a_module(open_graph: Open) -> None:
    page = open_graph(View(digits()))
    at, canvas = box(page, "fc1"), area(page)
    page.mouse.click(canvas["x"] + at["x"] + at["width"] / 2, canvas["y"] + at["y"] + at["height"] / 2)
    panel = page.locator(".ig-panel")
    text = panel.inner_text()
    for fact in ("fc1", "Linear", "in_features=256, out_features=32", "fc1.weight", "32×256", "float32"):
        assert fact in text
    assert "test_graph.py" in text  # the line of the user's code
    panel.get_by_role("button", name="flatten_1_7").click()
    assert page.locator(".ig-panel h2").inner_text() == "flatten_1_7"
    page.get_by_role("button", name="Close details").click()
    assert page.locator(".ig-panel").count() == 0


def test_search_selects_and_opens_modules_around(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"](), depth=0))
    assert "transformer.h.7.mlp.c_fc" not in addresses(page)
    field = page.get_by_role("combobox", name="Find in the graph")
    field.fill("h.7.mlp c_fc")
    page.keyboard.press("Enter")
    found = box(page, "transformer.h.7.mlp.c_fc")
    canvas = area(page)
    assert 0 <= found["x"] < canvas["width"]
    assert 0 <= found["y"] < canvas["height"]
    assert page.locator(".ig-panel h2").inner_text() == "transformer.h.7.mlp.c_fc"
    field.fill("no such thing")
    assert page.get_by_text("Nothing found").is_visible()


def test_keyboard_navigation_in_the_outline(open_graph: Open) -> None:
    page = open_graph(View(digits(), depth=0))
    tree = page.get_by_role("tree", name="Outline of the model")
    tree.focus()
    page.keyboard.press("ArrowDown")
    features = page.get_by_role("treeitem", name="features")
    assert features.get_attribute("aria-expanded") == "false"
    assert tree.get_attribute("aria-activedescendant") == features.get_attribute("id")
    page.keyboard.press("Enter")
    assert box(page, "features")["open"]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    assert page.locator(".ig-panel h2").inner_text() == "output_1"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert not box(page, "features")["open"]


def test_keyboard_navigation_in_the_picture(open_graph: Open) -> None:
    page = open_graph(View(resnet(), depth=0))
    page.locator(".ig-canvas").focus()
    walked = []
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
        walked.append(page.locator(".ig-panel h2").inner_text())
    assert walked == ["input_1", "0", "1", "0"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert box(page, "1")["open"]
    page.keyboard.press("Escape")
    assert page.locator(".ig-panel").count() == 0
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"


# -- colors ---------------------------------------------------------------------------------------------


def test_paint_colors_boxes_and_shows_missing_values(open_graph: Open) -> None:
    page = open_graph(View(digits()))
    assert {found["colour"] for found in boxes(page)} == {None}
    page.evaluate(
        f"{VIEW}.paint({{title: 'f1', low: 0, high: 1, "
        "values: new Map([['features.0', 0], ['fc1', 0.5], ['fc2', 1], ['features.4', null]])})"
    )
    colours = {found["address"]: found["colour"] for found in boxes(page)}
    assert colours["features.0"] == "rgb(68, 1, 84)"
    assert colours["fc2"] == "rgb(253, 231, 37)"
    assert colours["fc1"] not in (colours["features.0"], colours["fc2"], None, "missing")
    assert colours["features.4"] == colours["features.1"] == "missing"
    assert colours["input_1"] is None
    legend = page.locator(".ig-legend").inner_text()
    assert "f1" in legend
    assert "no value" in legend
    assert drawn(page, "features.0") == (68, 1, 84)
    page.evaluate(f"{VIEW}.paint(null)")
    assert {found["colour"] for found in boxes(page)} == {None}
    assert drawn(page, "features.0") != (68, 1, 84)


def drawn(page: Page, address: str) -> tuple[int, ...]:
    """Return the color on the canvas inside a box, away from its text."""
    at = box(page, address)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    canvas = "document.querySelector('.ig-canvas').getContext('2d')"
    read = f"(at) => Array.from({canvas}.getImageData(at[0], at[1], 1, 1).data)"
    return tuple(page.evaluate(read, [round(at["x"] + 8), round(at["y"] + at["height"] / 2)])[:3])


def test_saved_file_contains_the_overlay(open_graph: Open) -> None:
    page = open_graph(View(digits(), overlay={"fc1": 2.0, "fc2": 3.0}))
    assert box(page, "fc2")["colour"] == "rgb(253, 231, 37)"
    page.get_by_label("Color by").select_option("parameters")
    assert box(page, "fc1")["colour"] == "rgb(253, 231, 37)"  # it has the most parameters
    assert box(page, "features.2")["colour"] == "missing"  # a ReLU has none


def test_wide_range_has_a_logarithmic_scale_by_default(open_graph: Open) -> None:
    page = open_graph(View(digits(), overlay={"features.0": 1e-3, "fc1": 1.0, "fc2": 1e3}))
    halfway = "rgb(33, 144, 141)"
    assert box(page, "fc1")["colour"] == halfway
    assert page.locator(".ig-tick").all_inner_texts() == ["0.01", "1", "100"]
    button = page.get_by_role("button", name="log")
    button.focus()
    page.keyboard.press("Enter")
    assert box(page, "fc1")["colour"] == box(page, "features.0")["colour"] == "rgb(68, 1, 84)"
    assert page.locator(".ig-tick").count() == 0
    page.keyboard.press("Enter")  # the button has kept the focus
    assert box(page, "fc1")["colour"] == halfway
    page.evaluate(f"{VIEW}.paint({{title: 'cosine', low: -1, high: 1, values: new Map([['fc1', 0]])}})")
    assert box(page, "fc1")["colour"] == halfway
    assert button.count() == 0  # negative values have no logarithm


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_theme_follows_system_and_button(open_graph: Open, scheme: str) -> None:
    page = open_graph(View(digits()), color_scheme=scheme)
    ground = "Array.from(document.querySelector('.ig-canvas').getContext('2d').getImageData(3, 3, 1, 1).data)"
    first = page.evaluate(ground)[0]
    assert (first > 200) == (scheme == "light")
    page.get_by_role("button", name="Light or dark").click()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert (page.evaluate(ground)[0] > 200) != (scheme == "light")


# -- unusual models -------------------------------------------------------------------------------------


def test_failed_pass_selects_the_operation_that_raised(open_graph: Open) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(9, 2), nn.ReLU()))
    graph = trace(model, torch.zeros(3, 4), save="none", on_error="keep").graph
    page = open_graph(View(graph, depth=0))
    alert = page.get_by_role("alert").inner_text()
    assert "mat1 and mat2 shapes cannot be multiplied (3x8 and 9x2)" in alert
    panel = page.locator(".ig-panel").inner_text()  # the operation that raised is selected
    assert "failed here" in panel
    assert "3×8" in panel


def test_hostile_names_are_not_executed(open_graph: Open) -> None:
    name = "</script><img src=x onerror=hurt=1>"

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parts = (name, "a&\"'`${1}", "x[0]:1", "\u202eevil", "n" * 10_000, "<b>b</b>")
            for number, part in enumerate(parts):
                self.add_module(part, nn.Linear(2, 2) if number % 2 else nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            for part in self.children():
                x = part(x)
            return x

    Odd.__name__ = name
    page = open_graph(View(graph_of(Odd(), torch.zeros(1, 2))))
    assert name in addresses(page)
    page.evaluate(f"(name) => {VIEW}.select(name)", name)
    assert page.locator(".ig-panel h2").inner_text() == name
    page.get_by_role("combobox", name="Find in the graph").fill("img")
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0


SHOW = """(scene) => {
    const host = document.createElement('div');
    host.style.cssText = 'height: 600px; width: 900px';
    document.body.append(host);
    const view = new intus.GraphView(host, scene);
    view.openToDepth(Infinity);
    view.fit();
    view.paintBuiltIn('time');
    for (const name of view.addresses.slice(0, 12)) {
        view.select(name);
        view.close(name);
        view.open(name);
    }
    const shown = [view.boxes().length, host.innerText];
    view.destroy();
    host.remove();
    return shown;
}"""


def test_graph_without_operations(open_graph: Open) -> None:
    page = open_graph(View(digits()))
    nothing = scene(digits())
    nothing["ops"] = {key: [] for key in nothing["ops"]}
    nothing["edges"] = {key: [] for key in nothing["edges"]}
    nothing["opParams"] = {key: [] for key in nothing["opParams"]}
    nothing["error"] = "ValueError: before the first operation"
    count, text = page.evaluate(SHOW, nothing)
    assert count == 0
    assert "No operation ran." in text
    assert "ValueError: before the first operation" in text


@pytest.mark.long
def test_random_scenes_with_valid_indices(open_graph: Open) -> None:
    """A server shows any graph that it receives, even with loops, backward edges and odd nesting."""
    page = open_graph(View(digits()))
    whole = scene(MODELS["encoder"]())
    rows, calls = len(whole["ops"]["kind"]), len(whole["calls"]["parent"])
    for seed in range(25):
        pick = random.Random(seed)
        odd = copy.deepcopy(whole)
        for _ in range(pick.randint(1, 60)):
            row, edge = pick.randrange(rows), pick.randrange(len(odd["edges"]["src"]))
            call = pick.randrange(1, calls)
            odd["edges"][pick.choice(("src", "dst"))][edge] = row
            odd["ops"]["call"][row] = pick.randrange(-1, calls)
            odd["ops"]["kind"][pick.randrange(rows)] = pick.randrange(4)
            odd["ops"]["event"][pick.randrange(rows)] = pick.randrange(-1, 5)
            odd["calls"]["parent"][call] = pick.randrange(-1, call)
        count, _ = page.evaluate(SHOW, odd)
        assert count > 5, seed


@pytest.mark.long
def test_select_in_a_long_chain(open_graph: Open) -> None:
    page = open_graph(View(graph_of(Chain(10_000), torch.zeros(1)), rolled=False))
    assert len(boxes(page)) == 10_002
    for number in (1, 5_001, 10_000):
        page.evaluate(f"{VIEW}.select(`neg_1_1:{number}`)")
        expect(page.locator(".ig-panel h2")).to_have_text(f"neg_1_1:{number}")


def test_notebook_cell(new_page: Callable[..., Page], tmp_path: Any) -> None:
    cell = tmp_path / "cell.html"
    cell.write_text(f"<!doctype html><meta charset=utf-8>{View(digits())._repr_html_()}", encoding="utf-8")
    page = new_page(offline=True)
    page.goto(cell.as_uri())
    frame = page.frame_locator("iframe")
    frame.get_by_role("treeitem", name="fc1").click()
    assert frame.locator(".ig-panel h2").inner_text() == "fc1"


@pytest.mark.parametrize("framed", [True, False])
def test_wheel_scrolls_the_notebook_until_the_graph_is_clicked(
    new_page: Callable[..., Page], tmp_path: Any, framed: bool
) -> None:
    cell, rest = tmp_path / "cell.html", "<p style='height: 4000px'>More cells"
    html = View(digits())._repr_html_() if framed else WIDGET.format(View(digits()).html())
    cell.write_text(f"<!doctype html><meta charset=utf-8>{html}{rest}", encoding="utf-8")
    page = new_page(offline=True, viewport={"width": 1200, "height": 800})
    page.goto(cell.as_uri())
    frame = page.frames[1] if framed else page.main_frame
    until(frame, f"Boolean({VIEW}?.options.isGuest && {VIEW}.still)")
    y = f"{VIEW}.boxes().find(({{ address }}) => address === 'input_1').y"
    before = frame.evaluate(y)
    page.mouse.move(600, 400)
    page.mouse.wheel(0, 150)
    until(page, "scrollY === 150")
    assert frame.evaluate(y) == before
    page.keyboard.down("Control")
    page.mouse.wheel(0, -60)
    page.keyboard.up("Control")
    until(frame, f"{y} !== {before}")  # zoomed
    zoomed = frame.evaluate(y)
    page.mouse.click(600, 400)
    page.mouse.wheel(0, 50)
    until(frame, f"Math.abs({y} - {zoomed} + 50) < 1")
    assert page.evaluate("scrollY") == 150


WIDGET = """{}<script>
const shown = setInterval(() => {{
    const old = document.querySelector("#intus-graph");
    if (!old?.intusView) return;
    clearInterval(shown);
    const {{ scene }} = old.intusView;
    old.intusView.destroy();
    old.style.height = "640px";
    new intus.GraphView(old, scene, {{ isGuest: true }});
}}, 20);
</script>"""
LATE = """() => {
    const old = document.querySelector('#intus-graph');
    const host = document.createElement('div');
    host.id = 'intus-graph';
    host.style.cssText = 'width: 0; height: 0';
    const { scene } = old.intusView;
    old.intusView.destroy();
    old.replaceWith(host);
    new intus.GraphView(host, scene);
}"""
WIDE = (
    "(width) => { document.querySelector('#intus-graph').style.cssText = `width: ${width}px; height: 600px` }"
)


@pytest.mark.parametrize("width", [1100, 900])
def test_element_without_size_shows_graph_once_sized(open_graph: Open, width: int) -> None:
    """A notebook's frame or a hidden tab may have no size until long after the graph was created."""
    page = open_graph(View(digits()))
    page.evaluate(LATE)
    redrawn(page)
    outline = page.get_by_role("tree")
    expect(outline).to_be_hidden()
    page.evaluate(WIDE, width)
    expect(outline).to_be_visible(visible=width >= 1000)
    canvas = page.locator(".ig-canvas")
    until(page, f"{VIEW}.still && {VIEW}.viewport.width > 0")
    entry = next(box for box in boxes(page) if box["address"] == "input_1")
    middle = entry["x"] + entry["width"] / 2
    assert abs(middle - canvas.evaluate("(canvas) => canvas.clientWidth / 2")) < 2
    assert 0 < entry["y"] < 60


def test_outline_follows_width_until_toggled(open_graph: Open) -> None:
    page = open_graph(View(digits()))
    outline, button = page.get_by_role("tree"), page.get_by_role("button", name="Show or hide the outline")
    for width, shown in ((1280, True), (900, False), (1100, True)):
        page.set_viewport_size({"width": width, "height": 820})
        expect(outline).to_be_visible(visible=shown)
    button.click()
    expect(outline).to_be_hidden()
    page.set_viewport_size({"width": 1280, "height": 820})
    expect(outline).to_be_hidden()
    button.click()
    page.set_viewport_size({"width": 600, "height": 820})
    expect(outline).to_be_visible()
    page.get_by_role("treeitem", name="fc1").click()
    expect(page.locator(".ig-panel h2")).to_have_text("fc1")


class Long(nn.Module):
    """Modules and parameters with long names."""

    def __init__(self) -> None:
        super().__init__()
        self.text_encoder_of_the_student = nn.Sequential()
        attention = nn.Sequential()
        attention.register_module("query_key_value_projection_before_rotation", nn.Linear(2, 2))
        self.text_encoder_of_the_student.register_module("multi_head_self_attention", attention)

    def forward(self, x: Tensor) -> Tensor:
        return self.text_encoder_of_the_student(x)


# The characters before and after each line break of a text.
BREAKS = """(element) => {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    const letters = [];
    for (let node; (node = walker.nextNode()); ) {
        for (let i = 0; i < node.length; i++) {
            const range = document.createRange();
            range.setStart(node, i);
            range.setEnd(node, i + 1);
            letters.push([node.data[i], range.getBoundingClientRect().top]);
        }
    }
    const breaks = letters.slice(1).map(([letter, top], i) => [letters[i][0] + letter, top - letters[i][1]]);
    return breaks.filter(([, down]) => down > 4).map(([pair]) => pair);
}"""


def test_long_names_break_between_their_parts(open_graph: Open) -> None:
    page = open_graph(View(graph_of(Long(), torch.zeros(1, 2))))
    name = "text_encoder_of_the_student.multi_head_self_attention.query_key_value_projection_before_rotation"
    page.evaluate(f"(name) => {VIEW}.select(name)", name)
    title, weight = page.locator(".ig-panel h2"), page.locator(".ig-panel .ig-shape", has_text=".weight")
    expect(title).to_have_text(name)
    expect(weight).to_have_text(f"{name}.weight")
    other_names = page.locator(".ig-panel dd", has_text=name.rpartition(".")[0])
    for element in (title, weight, other_names):
        breaks = element.evaluate(BREAKS)
        assert len(breaks) >= 2
        assert {pair[0] for pair in breaks} <= set("._ "), breaks
    narrow = page.locator(".ig-panel").evaluate("(panel) => panel.scrollWidth <= panel.clientWidth")
    assert narrow
