"""Cached layouts: opening in any order gives the layout of a new graph; searches by area are complete."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from playwright.sync_api import Page
from torch import Tensor, nn
from zoo import graph_of

from intus.viewing.html import View

pytestmark = pytest.mark.browser
WALK = """(seed) => {
    const view = document.querySelector('#intus-graph').intusView;
    const order = (a, b) => a[0] - b[0] || a[1] - b[1];
    const state = () => JSON.stringify([
        view.visible.boxes.map(b => [b.node.id, b.x, b.y, b.width, b.height, b.open]).sort(order),
        view.visible.lines.map(l => [l.edge.from, l.edge.to, l.x, l.y, ...l.route]).sort(order),
        view.visible.boxes.every(b => view.visible.box(b.node.id) === b),
    ]);
    const modules = view.tree.nodes.filter(n => n.kind === 'module' && n.children.length);
    const addresses = modules.map(n => n.address);
    const initial = state();
    let changed = 0;
    for (let i = 0; i < 40; i++) {
        seed = (seed * 1103515245 + 12345) % 2147483648;
        view[seed % 3 ? 'close' : 'open'](addresses[(seed >> 8) % addresses.length]);
        changed += state() !== initial;
    }
    const closed = modules.filter(n => !view.layoutView.open.has(n.id));
    for (const { address } of closed) view.open(address);
    return { initial, after: state(), changed, closed: closed.length };
}"""


class Nested(nn.Module):
    """Nested modules, some equal and some not, with a residual around each."""

    def __init__(self, depth: int, twist: int = 0) -> None:
        super().__init__()
        self.twist = twist
        self.inner = nn.ModuleList(Nested(depth - 1, i) for i in range(3)) if depth else nn.ModuleList()

    def forward(self, x: Tensor) -> Tensor:
        for inner in self.inner:
            x = x + inner(x)
        if len(self.inner) == 0:
            for _ in range(2 + self.twist % 2):
                x = torch.tanh(x) * 2
        return x


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 7])
def test_layout_after_opening_and_closing_equals_initial_layout(
    open_graph: Callable[..., Page], seed: int
) -> None:
    page = open_graph(View(graph_of(Nested(3), torch.zeros(2, 3)), depth="all", rolled=False))
    found = page.evaluate(WALK, seed)
    assert found["changed"] > 10
    assert found["closed"] > 3
    assert found["after"] == found["initial"]


FIND = """(seed) => {
    const { visible: frame } = document.querySelector('#intus-graph').intusView;
    const random = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
    const touches = (area, left, right, top, bottom) =>
        right >= area.x && left <= area.x + area.width && bottom >= area.y && top <= area.y + area.height;
    const wrong = [];
    let found = 0;
    const compare = (what, some, all) => {
        found += some.length;
        if (some.length !== all.length || some.some((one, i) => one !== all[i])) wrong.push(what);
    };
    for (let i = 0; i < 200; i++) {
        const area = {
            x: random() * frame.width * 1.2 - frame.width * 0.1, y: random() * frame.height * 1.1,
            width: random() ** 3 * frame.width, height: random() ** 3 * frame.height,
        };
        const boxes = frame.boxes.filter((b) => touches(area, b.x, b.x + b.width, b.y, b.y + b.height));
        compare('boxes', frame.boxesIn(area), boxes);
        const lines = frame.lines.filter((l) =>
            touches(area, l.x + l.left, l.x + l.right, l.y + l.top, l.y + l.bottom));
        compare('lines', frame.linesIn(area), lines);
    }
    const rows = Array.from({ length: frame.count }, (_, row) => frame.atRow(row));
    if (new Set(rows).size !== frame.boxes.length) wrong.push('rows');
    if (rows.some((id, row) => frame.rowOf(id) !== row)) wrong.push('row of a box');
    return { wrong, found };
}"""


class Wide(nn.Module):
    """Many boxes in one container, some of them open, with short and long edges."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList(Nested(1, number) for number in range(4))

    def forward(self, x: Tensor) -> Tensor:
        first = x
        for number in range(160):
            x = torch.tanh(x) if number % 9 else x + first
            if number % 40 == 0:
                x = self.inner[number // 40](x)
        return x


@pytest.mark.parametrize("make", [lambda: Nested(3), Wide], ids=["nested", "wide"])
def test_search_by_area_finds_all_boxes_and_lines(
    open_graph: Callable[..., Page], make: Callable[[], nn.Module]
) -> None:
    page = open_graph(View(graph_of(make(), torch.zeros(2, 3)), depth="all", rolled=False))
    found = page.evaluate(FIND, 3)
    assert found["wrong"] == []
    assert found["found"] > 1000
