"""Layout of large graphs in a worker: equal layouts, a responsive page, and the fallback without a worker."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect
from torch import Tensor, nn
from waiting import until
from zoo import Chain, graph_of

from intus.core.graph import Graph
from intus.viewing.html import View

pytestmark = pytest.mark.browser
VIEW = "document.querySelector('#intus-graph').intusView"
LAYOUT = f"""JSON.stringify([
    {VIEW}.visible.boxes.map(b => [b.node.id, b.x, b.y, b.width, b.height, b.open]),
    {VIEW}.visible.lines.map(l => [l.container, l.x, l.y, ...l.route]),
])"""
# Counts frames drawn during the layout, and checks that a selection takes effect meanwhile.
WATCH = """
window.observed = { frames: 0, selected: null, waiting: 0 };
const observe = () => {
    requestAnimationFrame(observe);
    const view = document.querySelector('#intus-graph')?.intusView;
    if (!view || !document.querySelector('.ig-wait')) return;
    window.observed.frames++;
    window.observed.waiting = view.visible.count;
    if (window.observed.frames === 3) view.select('input_1');
    window.observed.selected = document.querySelector('.ig-panel h2')?.textContent ?? null;
};
requestAnimationFrame(observe);
"""
Open = Callable[..., Page]


class Nest(nn.Module):
    """Nested modules with a residual around each; the innermost level has ``wide ** depth`` modules."""

    def __init__(self, depth: int, wide: int) -> None:
        super().__init__()
        self.wide = wide
        self.inner = nn.ModuleList(Nest(depth - 1, wide) for _ in range(wide)) if depth else nn.ModuleList()

    def forward(self, x: Tensor) -> Tensor:
        for inner in self.inner:
            x = x + inner(x)
        if len(self.inner) == 0:
            for _ in range(self.wide):
                x = torch.tanh(x) * 2
        return x


@pytest.fixture(scope="module")
def seven_thousand() -> Graph:
    return graph_of(Nest(4, 5), torch.zeros(1))


def wait_until_still(page: Page) -> None:
    until(page, f"{VIEW}?.still ?? false", 60)


def page_of(text: str, new_page: Open, tmp_path: Path, script: str = "") -> Page:
    path = tmp_path / "graph.html"
    path.write_text(text, encoding="utf-8")
    page = new_page(offline=True, reduced_motion="reduce")
    if script:
        page.add_init_script(script)
    page.goto(path.as_uri())
    until(page, "Boolean(document.querySelector('#intus-graph')?.intusView)", 60)
    return page


@pytest.mark.long
def test_worker_and_page_give_equal_layouts(seven_thousand: Graph, new_page: Open, tmp_path: Path) -> None:
    """If workers are missing, raise, or are forbidden by the Content-Security-Policy, the page lays out."""
    text = View(seven_thousand, depth="all", rolled=False).html()
    assert "worker-src blob:" in text
    forbidden = text.replace("worker-src blob:", "worker-src 'none'")
    count = """const Native = window.Worker; window.made = 0;
        window.Worker = class extends Native { constructor(...given) { super(...given); window.made++; } }"""
    page = page_of(text, new_page, tmp_path, count)
    wait_until_still(page)
    assert page.evaluate("window.made") == 1
    assert page.evaluate(f"{VIEW}.visible.count") == 7812
    expect(page.get_by_label("Depth")).to_have_value("all")
    in_worker = page.evaluate(LAYOUT)
    for address in ("inner.4.inner.4.inner.4.inner.4", "inner.0"):  # cached layouts equal new ones
        page.evaluate(f"{VIEW}.close('{address}'), {VIEW}.open('{address}')")
        assert page.evaluate(LAYOUT) == in_worker
    raising = "window.Worker = class { constructor() { throw new Error('no workers here'); } }"
    for what, script in ((text, "window.Worker = undefined"), (text, raising), (forbidden, "")):
        page = page_of(what, new_page, tmp_path, script)
        wait_until_still(page)
        assert page.evaluate(LAYOUT) == in_worker


@pytest.mark.long
def test_page_responds_during_layout_of_hundred_thousand_boxes(new_page: Open, tmp_path: Path) -> None:
    graph = graph_of(Nest(5, 6), torch.zeros(1))
    assert len(graph.ops) > 100_000
    page = page_of(View(graph, depth="all", rolled=False).html(), new_page, tmp_path, WATCH)
    until(page, f"{VIEW}.still", 120)
    observed = page.evaluate("window.observed")
    assert observed["frames"] > 10  # a layout on the page itself would allow none
    assert observed["waiting"] < 100  # the outermost modules are shown meanwhile
    assert observed["selected"] == "input_1"
    assert page.evaluate(f"{VIEW}.visible.count") > 100_000
    expect(page.get_by_label("Depth")).to_have_value("all")
    expect(page.locator(".ig-wait")).to_have_count(0)


@pytest.mark.long
def test_layout_shows_a_note_and_can_be_canceled(
    seven_thousand: Graph, new_page: Open, tmp_path: Path
) -> None:
    stuck = "window.Worker = class { postMessage() {} terminate() { window.ended = true; } }"
    page = page_of(View(seven_thousand, depth=0, rolled=False).html(), new_page, tmp_path, stuck)
    before = page.evaluate(f"{VIEW}.visible.count")
    page.locator(".ig-canvas").focus()
    page.keyboard.press("*")
    note = page.get_by_role("status")
    expect(note).to_contain_text("Laying out 7,812 boxes")
    assert page.evaluate(f"{VIEW}.still") is False
    note.get_by_role("button", name="Cancel").click()
    expect(note).to_have_count(0)
    assert page.evaluate("window.ended") is True
    assert page.evaluate(f"{VIEW}.still") is True
    page.keyboard.press("*")
    page.locator(".ig-canvas").focus()
    page.keyboard.press("*")
    expect(note).to_have_count(1)
    page.keyboard.press("1")  # another request cancels the first
    expect(note).to_have_count(0)
    assert page.evaluate(f"{VIEW}.visible.count") > before


@pytest.mark.long
def test_layout_of_a_long_chain_shows_only_the_note(new_page: Open, tmp_path: Path) -> None:
    slow = """const Native = window.Worker;
        window.Worker = class extends Native {
            postMessage(task) { setTimeout(() => super.postMessage(task), 1500); }
        }"""
    text = View(graph_of(Chain(6000), torch.zeros(1)), rolled=False).html()
    page = page_of(text, new_page, tmp_path, slow)
    note = page.get_by_role("status")
    expect(note).to_contain_text("Laying out 6,002 boxes")
    expect(note.get_by_role("button")).to_have_count(0)  # there is nothing to return to
    assert page.evaluate(f"{VIEW}.boxes()") == []
    wait_until_still(page)
    boxes = page.evaluate(f"{VIEW}.boxes()")
    assert len(boxes) == 6002
    entry = next(box for box in boxes if box["kind"] == "input")
    assert 0 < entry["x"] < 1280  # the beginning is in view
    assert 0 < entry["y"] < 200


# Records for each task of a worker whether the page already showed a graph.
TASKS = """window.tasks = [];
    const Native = window.Worker;
    window.Worker = class extends Native {
        postMessage(task) {
            tasks.push(Boolean(document.querySelector('.intus-graph')));
            super.postMessage(task);
        }
    }"""


class Pieces(nn.Module):
    """An operation that returns six thousand tensors."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(x.unbind(0)).tanh()


@pytest.mark.long
def test_worker_starts_before_the_page_has_its_tree(
    seven_thousand: Graph, new_page: Open, tmp_path: Path
) -> None:
    page = page_of(View(seven_thousand, depth="all", rolled=False).html(), new_page, tmp_path, TASKS)
    wait_until_still(page)
    assert page.evaluate("tasks") == [False]
    assert page.evaluate(f"{VIEW}.visible.count") == 7812
    page = page_of(View(seven_thousand, depth=1, rolled=False).html(), new_page, tmp_path, TASKS)
    wait_until_still(page)
    assert page.evaluate("tasks") == []


def test_many_tensors_in_few_boxes_need_no_worker(new_page: Open, tmp_path: Path) -> None:
    graph = graph_of(Pieces(), torch.zeros(6000, 1))
    assert len(graph.ops) > 6000
    page = page_of(View(graph, depth="all").html(), new_page, tmp_path)
    wait_until_still(page)
    expect(page.locator(".ig-wait")).to_have_count(0)
    assert page.evaluate(f"{VIEW}.visible.count") == 5


# Part of the cell's own page, because Playwright starts its scripts late in a frame from another origin.
ANSWERS = """<script>
    window.answers = 0;
    const Native = window.Worker;
    window.Worker = class extends Native { constructor(...given) {
        super(...given);
        this.addEventListener('message', () => { window.answers++; });
    } }
</script>"""


@pytest.mark.long
def test_notebook_cell_uses_a_worker(seven_thousand: Graph, new_page: Open, tmp_path: Path) -> None:
    cell = View(seven_thousand, depth="all", rolled=False)._repr_html_()
    assert cell.count(escape("</title>")) == 1
    cell = cell.replace(escape("</title>"), escape("</title>" + ANSWERS))
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><html><body>{cell}</body></html>", encoding="utf-8")
    page = new_page(offline=True, reduced_motion="reduce")
    page.goto(path.as_uri())
    frame = page.frame_locator("iframe")
    expect(frame.get_by_label("Depth")).to_have_value("all", timeout=60_000)
    expect(frame.locator(".ig-wait")).to_have_count(0, timeout=60_000)
    assert page.frames[1].evaluate("answers") == 1
