"""The pages in Firefox and in WebKit, Safari's engine, as they are in Chromium: `make test-engines`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from html import escape
from pathlib import Path
from typing import Any

import pytest
import torch
from engines import KINDS, MISSING, SIZE, VIEW, Engine, with_ears
from page_server import LAYERS, STATIC, plausible
from torch import nn
from zoo import MODELS, Chain, graph_of

from intus import trace, view
from intus.serving.http import page_routes
from intus.viewing.cell import cell
from intus.viewing.html import View

pytestmark = [pytest.mark.browser, pytest.mark.engines]
DARK = "matchMedia('(prefers-color-scheme: dark)').matches"
#: How light a colour is, from 0 to 255.
LIGHTNESS = (
    "(colour => colour.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3)"
)
PLACES = f"""JSON.stringify([
    {VIEW}.visible.boxes.map(b => [b.node.id, b.x, b.y, b.width, b.height, b.open]),
    {VIEW}.visible.lines.map(l => [l.container, l.x, l.y, ...l.route]),
])"""


class Net(nn.Module):
    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.paint = nn.Conv2d(8, 3, 1)
        self.head = nn.Linear(3 * 64 - fails, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.paint(self.features(x)).flatten(1))


def traced(model: nn.Module, **named: Any) -> Any:
    torch.manual_seed(0)
    return trace(model.eval(), torch.randn(2, 3, 8, 8), **named)


def _beside() -> View:
    one = Net()
    other = deepcopy(one)
    nn.init.zeros_(other.head.bias)
    return view(traced(one), beside=traced(other))


#: What is opened, and how many boxes it then shows.
PAGES: dict[str, tuple[Callable[[], View], int]] = {
    "folded": (lambda: View(MODELS["gpt2"]()), 17),
    "all open": (lambda: View(MODELS["gpt2"](), depth="all"), 629),
    "values": (lambda: traced(Net()).show(), 9),
    "overlay": (lambda: traced(Net()).show(overlay="time"), 9),
    "failing": (lambda: traced(Net(fails=True), on_error="keep").show(), 8),
    "rolled": (lambda: View(MODELS["recurrent"](), rolled=True), 11),
    "side by side": (_beside, 9),
    "large": (lambda: View(graph_of(Chain(10_000), torch.zeros(1)), depth="all", rolled=False), 10_002),
}


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Engine]]:
    begun: list[Engine] = []

    def launched(name: str, **asked: bool) -> Engine:
        if MISSING[name]:
            pytest.skip(MISSING[name])
        begun.append(KINDS[name](tmp_path_factory.mktemp(name) / "profile", **asked))
        return begun[-1]

    yield launched
    for engine in begun:
        engine.close()


@pytest.fixture(scope="module", params=KINDS)
def browser(request: pytest.FixtureRequest, begin: Callable[..., Engine]) -> Engine:
    return begin(request.param)


@pytest.fixture
def engine(browser: Engine) -> Iterator[Engine]:
    """The browser at its size; afterwards: nothing held down, and no complaint of the page."""
    browser.resize(**SIZE)
    yield browser
    browser.release()
    assert browser.js("window.troubles") == []


Open = Callable[..., Engine]


@pytest.fixture
def show(engine: Engine, tmp_path: Path) -> Open:
    """Save a page, open the file, and wait until its graph stands."""

    def shown(view: View, fragment: str = "", script: str = "") -> Engine:
        path = tmp_path / "graph.html"
        path.write_text(with_ears(view.html(), script), encoding="utf-8")
        engine.goto(path.as_uri() + fragment)
        engine.until("document.querySelector('#intus-graph')?.intusView?.still", 60)
        return engine

    return shown


def box(engine: Engine, address: str) -> dict[str, Any]:
    """A box, where it stands in the window."""
    engine.until(f"{VIEW}.still")
    found = next(found for found in engine.js(f"{VIEW}.boxes()") if found["address"] == address)
    left, top, _, _ = engine.rect(".ig-canvas")
    return found | {"x": found["x"] + left, "y": found["y"] + top}


def middle(engine: Engine, address: str) -> tuple[float, float]:
    at = box(engine, address)
    return at["x"] + at["width"] / 2, at["y"] + at["height"] / 2


def addresses(engine: Engine) -> set[str]:
    engine.until(f"{VIEW}.still")
    return {found["address"] for found in engine.js(f"{VIEW}.boxes()")}


def chosen(engine: Engine) -> str:
    return str(engine.js(f"{VIEW}.place.at"))


@pytest.mark.parametrize("name", PAGES)
def test_a_saved_page_opens_with_its_words_inside_its_boxes(show: Open, name: str) -> None:
    made, count = PAGES[name]
    workers = (
        "var made = 0; window.Worker = class extends Worker { constructor(url) { super(url); made++; } }"
    )
    engine = show(made(), script=workers)
    engine.until(f"{VIEW}.visible.count === {count}")
    assert engine.js("made") == (name == "large")
    widest = engine.js(
        f"""((view) => {{
            const word = view.root.appendChild(document.createElement("span"));
            word.style.cssText = "position: absolute; white-space: pre; font-size: 13px; font-weight: 600";
            const closed = view.boxes().filter((box) => !box.open).slice(0, 300);
            const shares = closed.map(({{ label, width }}) => {{
                word.textContent = label;
                return word.getBoundingClientRect().width * view.cameraControl.camera.scale / width;
            }});
            word.remove();
            return Math.max(...shares);
        }})({VIEW})"""
    )
    assert 0.3 < widest < 1
    shades = engine.js(
        """((canvas) => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size;
        })(document.querySelector(".ig-canvas"))"""
    )
    assert shades > 30  # boxes, lines and smooth words


def test_clicks_and_keys_walk_in_it_and_the_address_leads_back(show: Open) -> None:
    graph = View(MODELS["gpt2"]())
    engine = show(graph)
    for opened in (False, True):
        at = box(engine, "transformer")
        engine.click(at["x"] + 16, at["y"] + 14)
        assert ("transformer.wte" in addresses(engine)) == opened
        moved = box(engine, "transformer")
        assert [moved["x"], moved["y"]] == pytest.approx([at["x"], at["y"]], abs=1)  # it stays under the hand
    engine.click(*middle(engine, "transformer.wte"))
    assert chosen(engine) == "transformer.wte"
    assert engine.js("document.querySelector('.ig-panel h2').textContent") == "transformer.wte"
    for key, then in {"ArrowDown": "add_2_8", "ArrowUp": "to_1_7", "Escape": "transformer"}.items():
        engine.press(key)
        assert chosen(engine) == then
    engine.press("Enter")
    assert "transformer.wte" not in addresses(engine)
    for key, count in {"3": 48, "*": 629, "1": 17}.items():
        engine.press(key)
        engine.until(f"{VIEW}.still && {VIEW}.boxes().length === {count}")
    engine.press("+")
    assert engine.until(f"{VIEW}.still && {VIEW}.cameraControl.camera.scale") == pytest.approx(1.25)

    engine.press("/", *"h.9 attn")  # Firefox has a search of its own at that key
    assert engine.js("document.activeElement.value") == "h.9 attn"
    engine.press("ArrowDown", "ArrowUp", "Enter")
    assert chosen(engine) == "transformer.h.9.attn"
    engine.until("location.hash.startsWith('#at=transformer.h.9.attn&')")
    hash_, seen = engine.js("location.hash"), addresses(engine)
    show(graph, hash_)
    assert (chosen(engine), addresses(engine)) == ("transformer.h.9.attn", seen)
    engine.js("location.hash = '#at=transformer.wpe&depth=1'")
    engine.until(f"{VIEW}.place.at === 'transformer.wpe'")
    assert len(addresses(engine)) == 17


def test_the_address_follows_however_fast_it_is_walked(show: Open) -> None:
    """Safari refuses the hundredth change in ten seconds."""
    engine = show(View(MODELS["gpt2"](), depth="all"))
    engine.click_on(".ig-row")
    for _ in range(4):
        engine.press(*["ArrowDown"] * 50)
    assert chosen(engine) != "input_1"
    engine.until(f"new URLSearchParams(location.hash.slice(1)).get('at') === {VIEW}.place.at")


def test_mouse_and_wheel_move_it(show: Open) -> None:
    engine = show(View(MODELS["gpt2"]()))
    x, y, *_ = engine.rect(".ig-canvas")
    before = box(engine, "input_1")
    engine.drag(x + 40, y + 300, 50, -30)
    dragged = box(engine, "input_1")
    assert [dragged[way] - before[way] for way in "xy"] == pytest.approx([50, -30], abs=1)
    engine.wheel(x + 300, y + 300, 20, 90)
    turned = box(engine, "input_1")
    assert [turned[way] - dragged[way] for way in "xy"] == pytest.approx([-20, -90], abs=1)
    assert turned["width"] == before["width"]
    _, _, width, height = engine.rect(".ig-minimap")
    assert width > 10
    assert height > 10
    engine.press("*")
    engine.until(f"{VIEW}.still && {VIEW}.boxes().length === 629")
    engine.click_on(".ig-minimap")
    assert box(engine, "input_1")["y"] < -500  # half of it is above


def test_a_pinch_zooms_about_the_fingers(show: Open) -> None:
    engine = show(View(MODELS["gpt2"]()))
    before, (x, y) = box(engine, "transformer.wpe"), middle(engine, "transformer.wpe")
    if engine.version.startswith("Firefox"):  # from a trackpad: a wheel with Ctrl held
        engine.hold("Control")
        for _ in range(4):
            engine.wheel(x, y, 0, -10)
        engine.release()
    else:  # Debian's WebKit knows the events of Safari's trackpads only by name
        engine.js(
            f"""((canvas, place) => [1, 1.2, 1.4918].forEach((scale, i) => {{
                const event = new MouseEvent(i ? "gesturechange" : "gesturestart", place);
                canvas.dispatchEvent(Object.assign(event, {{ scale }}));
            }}))(document.querySelector(".ig-canvas"), {{ clientX: {x}, clientY: {y} }})"""
        )
    after = box(engine, "transformer.wpe")
    assert after["width"] == pytest.approx(1.4918 * before["width"], rel=0.02)  # exp(0.4)
    assert middle(engine, "transformer.wpe") == pytest.approx((x, y), abs=2)
    assert engine.js("visualViewport.scale") == 1


def test_fingers_drag_and_pinch_it(show: Open) -> None:
    engine = show(View(MODELS["gpt2"]()))
    if not engine.version.startswith("Firefox"):
        pytest.skip("WebKitGTK's driver has no fingers: it sends a mouse")
    before = box(engine, "transformer.wpe")
    x, y, *_ = engine.rect(".ig-canvas")
    engine.drag(x + 40, y + 300, 60, 20, by="touch")
    moved = box(engine, "transformer.wpe")
    assert [moved[way] - before[way] for way in "xy"] == pytest.approx([60, 20], abs=1)
    engine.pinch(*middle(engine, "transformer.wpe"), 40, 60)
    assert box(engine, "transformer.wpe")["width"] == pytest.approx(1.5 * before["width"], rel=0.05)


def test_facts_show_the_value_and_lead_on(show: Open) -> None:
    engine = show(PAGES["values"][0]())
    for address, picture in {"features.0": "Heat map", "paint": "Image"}.items():
        engine.click(*middle(engine, address))
        engine.until(f"document.querySelector('.ig-panel h2')?.textContent === '{address}'")
        pixels = engine.js(
            "[...document.querySelector('.ig-thumbnail').getContext('2d').getImageData(0, 0, 8, 8).data]"
        )
        assert len(set(pixels)) > 20
        assert engine.js("document.querySelector('.ig-thumbnail').ariaLabel").startswith(picture)
        _, _, width, height = engine.rect(".ig-thumbnail")
        assert width > 90
        assert height > 90
        assert engine.js("document.querySelectorAll('.ig-histogram rect').length") > 10
    engine.click_on(".ig-panel h2")  # one click takes a name, to be copied
    assert engine.js("getSelection().toString().trim()") == "paint"
    engine.click_on(".ig-panel .ig-link")
    assert engine.js("document.querySelector('.ig-panel h2').textContent") == "features.2"
    engine.click_on(".ig-panel header .ig-icon")
    assert engine.js("document.querySelector('.ig-panel')") is None


def test_the_bar_and_the_outline(show: Open) -> None:
    engine = show(View(MODELS["gpt2"]()))
    listed = "[...document.querySelector('[aria-label=\"%s\"]').options].map((option) => option.textContent)"
    assert engine.js(listed % "Colour by")[:2] == ["No colour", "Time"]  # Safari lists what is hidden, too
    assert engine.js(listed % "Depth") == ["0", "1", "2", "3", "4", "all"]
    engine.click_on("[aria-label^='Open one level']")
    assert len(addresses(engine)) == 24
    engine.click_on(".ig-row")
    engine.press("ArrowDown", "ArrowDown", "ArrowLeft")
    assert chosen(engine) == "transformer"
    engine.press("Enter")
    engine.until(f"{VIEW}.boxes().length === 5")
    engine.click_on("[aria-label='Show or hide the outline']")
    assert engine.rect(".ig-outline")[2] == 0
    background = f"{LIGHTNESS}(getComputedStyle(document.querySelector('.ig-toolbar')).backgroundColor)"
    assert engine.js(background) > 200
    engine.click_on("[aria-label='Light or dark']")
    engine.until(f"{background} < 60")
    pixel = "document.querySelector('.ig-canvas').getContext('2d').getImageData(3, 3, 1, 1).data"
    engine.until(f"{LIGHTNESS}({pixel}.slice(0, 3).join()) < 60")
    engine.resize(520, 800)
    engine.until(
        "innerWidth <= 520 && document.querySelector('.ig-canvas').getBoundingClientRect().width <= 520"
    )
    assert engine.js("document.documentElement.scrollWidth <= innerWidth")


def test_two_sides_walk_together(show: Open) -> None:
    engine = show(_beside())
    titles = "[...document.querySelectorAll('.ig-panel h2')].map((title) => title.textContent).join()"
    engine.click(*middle(engine, "paint"))
    engine.until(f"{titles} === 'paint,paint'")
    engine.click_on(".ig-sides > header button")  # to the first difference
    engine.until(f"{titles} === 'head,head'")


def test_a_worker_lays_out_as_the_page_does(show: Open) -> None:
    """Words are measured alike in both, else what is laid out away would not fit."""
    steps = nn.Sequential(*[nn.Linear(2, 2), nn.Tanh()] * 2600)
    graph = View(graph_of(steps, torch.zeros(1, 2)), depth="all", rolled=False)
    places = []
    for script in ("", "delete window.Worker"):
        engine = show(graph, script=script)
        engine.until(f"{VIEW}.visible.count > 5200", 60)
        places.append(engine.js(PLACES))
    assert places[0] == places[1]


@pytest.mark.parametrize("engine_name", KINDS)
def test_it_is_dark_where_the_system_is(
    begin: Callable[..., Engine], tmp_path: Path, engine_name: str
) -> None:
    engine = begin(engine_name, dark=True)
    path = tmp_path / "graph.html"
    path.write_text(with_ears(View(MODELS["encoder"]()).html()), encoding="utf-8")
    engine.goto(path.as_uri())
    engine.until("document.querySelector('#intus-graph')?.intusView?.still")
    assert engine.js(f"[{DARK}, {LIGHTNESS}({VIEW}.graphCanvas.theme.bg) < 60]") == [True, True]


def test_a_notebooks_cell(engine: Engine, tmp_path: Path) -> None:
    """In a dark notebook on a light system; where the engine hands that on to frames, the graph is dark."""
    path = tmp_path / "cell.html"
    shown = cell(with_ears(View(MODELS["recurrent"](), rolled=True).html()), title="Recurrent", height=640)
    tell = escape(f"<script>parent.told = {DARK}</script>")
    probe = f'<iframe style="color-scheme: dark" srcdoc="{tell}"></iframe>'
    body = f"<!doctype html><body data-jp-theme-light=false>{shown}{probe}"
    path.write_text(with_ears(body), encoding="utf-8")
    engine.goto(path.as_uri())
    engine.until("window.told !== undefined")
    hands_on = engine.js("told")
    assert hands_on or engine.version.startswith("WebKit")
    assert engine.js("troubles") == []
    engine.turn_to(0)
    engine.until("document.querySelector('#intus-graph')?.intusView?.still")
    is_dark = f"{LIGHTNESS}({VIEW}.graphCanvas.theme.bg) < 60"
    assert engine.js(is_dark) == hands_on
    engine.turn_to(None)
    engine.js("document.body.dataset.jpThemeLight = true")
    engine.turn_to(0)
    engine.until(f"!({is_dark})")  # it turns with the notebook
    assert len(addresses(engine)) == 11
    engine.click_on(".ig-search input")
    engine.press(*"tanh", "Enter")
    assert chosen(engine).startswith("tanh")


def test_a_notebooks_widget(engine: Engine, tmp_path: Path) -> None:
    """As anywidget shows it: its module, and a model that holds what Python and the page share."""
    widget = View(MODELS["gpt2"]()).widget()
    state = widget.get_state(["_assets", "_content", "height", "selected"])
    path = tmp_path / "widget.html"
    path.write_text(
        with_ears(
            f"""<!doctype html><meta charset=utf-8><div id=cell></div><script type=module>
            const state = {json.dumps(state)}, code = {json.dumps(widget._esm)};
            const model = {{ get: (name) => state[name], save_changes() {{}}, on() {{}}, off() {{}} }};
            model.set = (name, value) => {{ state[name] = window[name] = value; }};
            const source = URL.createObjectURL(new Blob([code], {{ type: "text/javascript" }}));
            (await import(source)).default.render({{ model, el: cell }});
            </script>"""
        ),
        encoding="utf-8",
    )
    engine.goto(path.as_uri())
    inside = "document.querySelector('#cell').shadowRoot"
    view = f"{inside}?.querySelector('div')?.intusView"
    engine.until(f"{view}?.still")
    box = next(found for found in engine.js(f"{view}.boxes()") if found["address"] == "transformer.wte")
    left, top = engine.js(
        f"(({{ x, y }}) => [x, y])({inside}.querySelector('.ig-canvas').getBoundingClientRect())"
    )
    engine.click(left + box["x"] + box["width"] / 2, top + box["y"] + box["height"] / 2)
    engine.until("window.selected === 'transformer.wte'")


def test_the_servers_page(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    static = tmp_path / "static"
    shutil.copytree(STATIC, static)
    index = static / "index.html"
    index.write_text(with_ears(index.read_text(encoding="utf-8")), encoding="utf-8")
    monkeypatch.setattr(page_routes, "STATIC", static)
    with plausible() as server:
        engine.goto(server.url)
        engine.until(f"document.querySelectorAll('.layers li').length === {len(LAYERS)}")
        engine.until("document.querySelector('.link').textContent === 'Live'")
        view = "document.querySelector('.graph-host').intusView"
        painted = f"new Set({view}.boxes().map((b) => b.colour)).size"
        engine.until(f"{view}?.still && {painted} >= {len(LAYERS)}")
        epoch = "document.querySelector('.timeline .epoch').textContent"
        server.add_epoch("digits")
        engine.until(f"{epoch} === 'epoch 13 of 13'")
        x, y, width, height = engine.rect(".timeline input")
        engine.click(x + 3, y + height / 2)
        engine.until(f"{epoch} === 'epoch 0 of 13' && location.hash.includes('epoch=0')")
        engine.press("ArrowRight", "ArrowRight")
        engine.until(f"{epoch} === 'epoch 2 of 13'")
        assert 0 < width < SIZE["width"]

        # A file that is offered comes as a link that is pressed.
        engine.js(
            """(window.offered = [], HTMLAnchorElement.prototype.click = async function () {
                const blob = await (await fetch(this.href)).blob();
                const image = blob.type === 'image/png' ? await createImageBitmap(blob) : { width: 0 };
                offered.push([this.download, blob.type, blob.size, image.width]);
            })"""
        )
        for kind in ("CSV", "SVG", "PNG"):
            find = f"[...document.querySelectorAll('button')].find((b) => b.textContent.endsWith('{kind}'))"
            engine.js(f"{find}.click()")
        engine.until("offered.length === 3")
        offered = sorted(engine.js("offered"), key=lambda row: row[1])
        assert [row[1] for row in offered] == ["image/png", "image/svg+xml", "text/csv"]
        assert offered[0][0].startswith("digits-DigitsNet-linear_f1-digit")
        assert offered[0][3] > 1000
        assert min(row[2] for row in offered) > 2000
        engine.goto("about:blank")
        engine.js("window.troubles = []")
