"""The pages in Firefox and WebKit (Safari's engine): `make test-engines`."""

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
from engines import KINDS, MISSING, SIZE, VIEW, Engine, with_collector
from page_server import LAYERS, STATIC, plausible
from torch import nn
from zoo import MODELS, Chain, graph_of

from intus import trace, view
from intus.serving.http import page_routes
from intus.viewing.cell import cell
from intus.viewing.html import View, content
from intus.viewing.pictures.draw import diagram

pytestmark = [pytest.mark.browser, pytest.mark.engines]
DARK = "matchMedia('(prefers-color-scheme: dark)').matches"
#: The lightness of a color, from 0 to 255.
LIGHTNESS = (
    "(colour => colour.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3)"
)
LAYOUT = f"""JSON.stringify([
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


def gpt2_boxes(depth: int | str = 1) -> set[str]:
    """Return the addresses of GPT-2's boxes, listed without a browser.

    They depend on the version of transformers.
    """
    return {box["address"] for box in diagram(content(MODELS["gpt2"](), depth=depth), title="")["boxes"]}


#: Views, and how many boxes each shows.
PAGES: dict[str, tuple[Callable[[], View], Callable[[], int]]] = {
    "folded": (lambda: View(MODELS["gpt2"]()), lambda: len(gpt2_boxes())),
    "all open": (lambda: View(MODELS["gpt2"](), depth="all"), lambda: len(gpt2_boxes("all"))),
    "values": (lambda: traced(Net()).show(), lambda: 9),
    "overlay": (lambda: traced(Net()).show(overlay="time"), lambda: 9),
    "failing": (lambda: traced(Net(fails=True), on_error="keep").show(), lambda: 8),
    "rolled": (lambda: View(MODELS["recurrent"](), rolled=True), lambda: 11),
    "side by side": (_beside, lambda: 9),
    "large": (
        lambda: View(graph_of(Chain(10_000), torch.zeros(1)), depth="all", rolled=False),
        lambda: 10_002,
    ),
}


@pytest.fixture(scope="module")
def launch_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def launched(name: str, **options: bool) -> Engine:
        if MISSING[name]:
            pytest.skip(MISSING[name])
        engines.append(KINDS[name](tmp_path_factory.mktemp(name) / "profile", **options))
        return engines[-1]

    yield launched
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module", params=KINDS)
def browser(request: pytest.FixtureRequest, launch_engine: Callable[..., Engine]) -> Engine:
    return launch_engine(request.param)


@pytest.fixture
def engine(browser: Engine) -> Iterator[Engine]:
    """Return the browser at its default size; afterwards release all keys and check for errors."""
    browser.resize(**SIZE)
    yield browser
    browser.release()
    assert browser.js("window.problems") == []


Open = Callable[..., Engine]


@pytest.fixture
def show(engine: Engine, tmp_path: Path) -> Open:
    """Save a page, open the file, and wait until its graph is shown."""

    def shown(view: View, fragment: str = "", script: str = "") -> Engine:
        path = tmp_path / "graph.html"
        path.write_text(with_collector(view.html(), script), encoding="utf-8")
        engine.goto(path.as_uri() + fragment)
        engine.until("document.querySelector('#intus-graph')?.intusView?.still", 60)
        return engine

    return shown


def box(engine: Engine, address: str) -> dict[str, Any]:
    """Return a box with its position in the window."""
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


def selected(engine: Engine) -> str:
    return str(engine.js(f"{VIEW}.place.at"))


@pytest.mark.parametrize("name", PAGES)
def test_saved_page_draws_text_inside_boxes(show: Open, name: str) -> None:
    made, count = PAGES[name]
    workers = (
        "var made = 0; window.Worker = class extends Worker { constructor(url) { super(url); made++; } }"
    )
    engine = show(made(), script=workers)
    engine.until(f"{VIEW}.visible.count === {count()}")
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
    assert shades > 30  # boxes, lines and smoothed text


def test_mouse_keys_and_address_bar(show: Open) -> None:
    graph = View(MODELS["gpt2"]())
    engine = show(graph)
    for opened in (False, True):
        at = box(engine, "transformer")
        engine.click(at["x"] + 16, at["y"] + 14)
        assert ("transformer.wte" in addresses(engine)) == opened
        moved = box(engine, "transformer")
        assert [moved["x"], moved["y"]] == pytest.approx(
            [at["x"], at["y"]], abs=1
        )  # it stays under the pointer
    engine.click(*middle(engine, "transformer.wte"))
    assert selected(engine) == "transformer.wte"
    assert engine.js("document.querySelector('.ig-panel h2').textContent") == "transformer.wte"
    for key, then in {"ArrowDown": "add_2_8", "ArrowUp": "to_1_7", "Escape": "transformer"}.items():
        engine.press(key)
        assert selected(engine) == then
    engine.press("Enter")
    assert "transformer.wte" not in addresses(engine)
    for key, depth in {"3": 3, "*": "all", "1": 1}.items():
        engine.press(key)
        engine.until(f"{VIEW}.still && {VIEW}.boxes().length === {len(gpt2_boxes(depth))}")
    engine.press("+")
    assert engine.until(f"{VIEW}.still && {VIEW}.cameraControl.camera.scale") == pytest.approx(1.25)

    engine.press("/", *"h.9 attn")  # Firefox has its own search for that key
    assert engine.js("document.activeElement.value") == "h.9 attn"
    engine.press("ArrowDown", "ArrowUp", "Enter")
    assert selected(engine) == "transformer.h.9.attn"
    engine.until("location.hash.startsWith('#at=transformer.h.9.attn&')")
    hash_, shown = engine.js("location.hash"), addresses(engine)
    show(graph, hash_)
    assert (selected(engine), addresses(engine)) == ("transformer.h.9.attn", shown)
    engine.js("location.hash = '#at=transformer.wpe&depth=1'")
    engine.until(f"{VIEW}.place.at === 'transformer.wpe'")
    assert addresses(engine) == gpt2_boxes()


def test_address_bar_follows_fast_navigation(show: Open) -> None:
    """Safari refuses more than a hundred changes in ten seconds."""
    engine = show(View(MODELS["gpt2"](), depth="all"))
    engine.click_on(".ig-row")
    for _ in range(4):
        engine.press(*["ArrowDown"] * 50)
    assert selected(engine) != "input_1"
    engine.until(f"new URLSearchParams(location.hash.slice(1)).get('at') === {VIEW}.place.at")


def test_drag_wheel_and_minimap(show: Open) -> None:
    engine = show(View(MODELS["gpt2"]()))
    x, y, *_ = engine.rect(".ig-canvas")
    before = box(engine, "input_1")
    engine.drag(x + 40, y + 300, 50, -30)
    dragged = box(engine, "input_1")
    assert [dragged[axis] - before[axis] for axis in "xy"] == pytest.approx([50, -30], abs=1)
    engine.wheel(x + 300, y + 300, 20, 90)
    turned = box(engine, "input_1")
    assert [turned[axis] - dragged[axis] for axis in "xy"] == pytest.approx([-20, -90], abs=1)
    assert turned["width"] == before["width"]
    _, _, width, height = engine.rect(".ig-minimap")
    assert width > 10
    assert height > 10
    engine.press("*")
    engine.until(f"{VIEW}.still && {VIEW}.boxes().length === {len(gpt2_boxes('all'))}")
    engine.click_on(".ig-minimap")
    assert box(engine, "input_1")["y"] < -500  # half of the graph is above


def test_trackpad_pinch_zooms_about_the_pointer(show: Open) -> None:
    engine = show(View(MODELS["gpt2"]()))
    before, (x, y) = box(engine, "transformer.wpe"), middle(engine, "transformer.wpe")
    if engine.version.startswith("Firefox"):  # a trackpad sends a wheel event with Ctrl
        engine.hold("Control")
        for _ in range(4):
            engine.wheel(x, y, 0, -10)
        engine.release()
    else:  # Debian's WebKit has no trackpad events, so they are dispatched by script
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


def test_touch_drag_and_pinch(show: Open) -> None:
    engine = show(View(MODELS["gpt2"]()))
    if not engine.version.startswith("Firefox"):
        pytest.skip("WebKitGTK's driver has no touch input")
    before = box(engine, "transformer.wpe")
    x, y, *_ = engine.rect(".ig-canvas")
    engine.drag(x + 40, y + 300, 60, 20, by="touch")
    moved = box(engine, "transformer.wpe")
    assert [moved[axis] - before[axis] for axis in "xy"] == pytest.approx([60, 20], abs=1)
    engine.pinch(*middle(engine, "transformer.wpe"), 40, 60)
    assert box(engine, "transformer.wpe")["width"] == pytest.approx(1.5 * before["width"], rel=0.05)


def test_panel_shows_values_and_links(show: Open) -> None:
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
    engine.click_on(".ig-panel h2")  # one click selects the name, so that it can be copied
    assert engine.js("getSelection().toString().trim()") == "paint"
    engine.click_on(".ig-panel .ig-link")
    assert engine.js("document.querySelector('.ig-panel h2').textContent") == "features.2"
    engine.click_on(".ig-panel header .ig-icon")
    assert engine.js("document.querySelector('.ig-panel')") is None


def test_toolbar_and_outline(show: Open) -> None:
    engine = show(View(MODELS["gpt2"]()))
    listed = "[...document.querySelector('[aria-label=\"%s\"]').options].map((option) => option.textContent)"
    assert engine.js(listed % "Color by")[:2] == ["No color", "Time"]  # Safari lists hidden options too
    assert engine.js(listed % "Depth") == ["0", "1", "2", "3", "4", "all"]
    engine.click_on("[aria-label^='Open one level']")
    assert addresses(engine) == gpt2_boxes(depth=2)
    engine.click_on(".ig-row")
    engine.press("ArrowDown", "ArrowDown", "ArrowLeft")
    assert selected(engine) == "transformer"
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


def test_two_sides_follow_each_other(show: Open) -> None:
    engine = show(_beside())
    titles = "[...document.querySelectorAll('.ig-panel h2')].map((title) => title.textContent).join()"
    engine.click(*middle(engine, "paint"))
    engine.until(f"{titles} === 'paint,paint'")
    engine.click_on(".ig-sides > header button")  # to the first difference
    engine.until(f"{titles} === 'head,head'")


def test_worker_and_page_give_equal_layouts(show: Open) -> None:
    """Both must measure text equally."""
    steps = nn.Sequential(*[nn.Linear(2, 2), nn.Tanh()] * 2600)
    graph = View(graph_of(steps, torch.zeros(1, 2)), depth="all", rolled=False)
    places = []
    for script in ("", "delete window.Worker"):
        engine = show(graph, script=script)
        engine.until(f"{VIEW}.visible.count > 5200", 60)
        places.append(engine.js(LAYOUT))
    assert places[0] == places[1]


@pytest.mark.parametrize("engine_name", KINDS)
def test_theme_follows_the_system(
    launch_engine: Callable[..., Engine], tmp_path: Path, engine_name: str
) -> None:
    engine = launch_engine(engine_name, dark=True)
    path = tmp_path / "graph.html"
    path.write_text(with_collector(View(MODELS["encoder"]()).html()), encoding="utf-8")
    engine.goto(path.as_uri())
    engine.until("document.querySelector('#intus-graph')?.intusView?.still")
    assert engine.js(f"[{DARK}, {LIGHTNESS}({VIEW}.graphCanvas.theme.bg) < 60]") == [True, True]


def test_notebook_cell(engine: Engine, tmp_path: Path) -> None:
    """A dark notebook on a light system: the graph is dark if the engine passes the scheme on to frames."""
    path = tmp_path / "cell.html"
    shown = cell(
        with_collector(View(MODELS["recurrent"](), rolled=True).html()), title="Recurrent", height=640
    )
    report = escape(f"<script>parent.frameIsDark = {DARK}</script>")
    probe = f'<iframe style="color-scheme: dark" srcdoc="{report}"></iframe>'
    body = f"<!doctype html><body data-jp-theme-light=false>{shown}{probe}"
    path.write_text(with_collector(body), encoding="utf-8")
    engine.goto(path.as_uri())
    engine.until("window.frameIsDark !== undefined")
    frame_is_dark = engine.js("frameIsDark")
    assert frame_is_dark or engine.version.startswith("WebKit")
    assert engine.js("problems") == []
    engine.switch_to(0)
    engine.until("document.querySelector('#intus-graph')?.intusView?.still")
    is_dark = f"{LIGHTNESS}({VIEW}.graphCanvas.theme.bg) < 60"
    assert engine.js(is_dark) == frame_is_dark
    engine.switch_to(None)
    engine.js("document.body.dataset.jpThemeLight = true")
    engine.switch_to(0)
    engine.until(f"!({is_dark})")  # it follows the notebook
    assert len(addresses(engine)) == 11
    engine.click_on(".ig-search input")
    engine.press(*"tanh", "Enter")
    assert selected(engine).startswith("tanh")


def test_notebook_widget(engine: Engine, tmp_path: Path) -> None:
    """Run the widget's module as anywidget does, with a model that stores the shared state."""
    widget = View(MODELS["gpt2"]()).widget()
    state = widget.get_state(["_assets", "_content", "height", "selected"])
    path = tmp_path / "widget.html"
    path.write_text(
        with_collector(
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


def test_server_page(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    static = tmp_path / "static"
    shutil.copytree(STATIC, static)
    index = static / "index.html"
    index.write_text(with_collector(index.read_text(encoding="utf-8")), encoding="utf-8")
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

        # The page offers a file by clicking a link to it. Its Content-Security-Policy forbids to fetch that.
        engine.js(
            """(window.downloads = [], window.files = {}, ((link) => {
                URL.createObjectURL = (blob) => { const url = link(blob); files[url] = blob; return url; };
            })(URL.createObjectURL), HTMLAnchorElement.prototype.click = async function () {
                const blob = files[this.href];
                const image = blob.type === 'image/png' ? await createImageBitmap(blob) : { width: 0 };
                downloads.push([this.download, blob.type, blob.size, image.width]);
            })"""
        )
        for kind in ("CSV", "SVG", "PNG"):
            find = f"[...document.querySelectorAll('button')].find((b) => b.textContent.endsWith('{kind}'))"
            engine.js(f"{find}.click()")
        engine.until("downloads.length === 3")
        offered = sorted(engine.js("downloads"), key=lambda row: row[1])
        assert [row[1] for row in offered] == ["image/png", "image/svg+xml", "text/csv"]
        assert offered[0][0].startswith("digits-DigitsNet-linear_f1-digit")
        assert offered[0][3] > 1000
        assert min(row[2] for row in offered) > 2000
        engine.goto("about:blank")
        engine.js("window.problems = []")
