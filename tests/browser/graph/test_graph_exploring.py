"""Exploring the graph: rolled layers, folds, decisions, edges, links, failures, values."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers_names import CACHE
from waiting import until
from zoo import MODELS, Recurrent, graph_of

from intus.core.graph import Graph
from intus.tracing.run import trace
from intus.tracing.view import view
from intus.viewing.html import View

pytestmark = pytest.mark.browser
VIEW = "document.querySelector('#intus-graph').intusView"
Open = Callable[..., Page]


def boxes(page: Page) -> dict[str, dict[str, Any]]:
    until(page, f"{VIEW}.still")
    return {found["address"]: found for found in page.evaluate(f"{VIEW}.boxes()")}


def routes(page: Page) -> dict[tuple[str, str], dict[str, Any]]:
    return {(found["from"], found["to"]): found for found in page.evaluate(f"{VIEW}.routes()")}


def click(page: Page, x: float, y: float) -> None:
    canvas = page.locator(".ig-canvas").bounding_box()
    assert canvas
    page.mouse.click(canvas["x"] + x, canvas["y"] + y)


def heading(page: Page) -> str:
    return page.locator(".ig-panel h2").inner_text()


# -- rolled ---------------------------------------------------------------------------------------------


def ranges(passes: set[int]) -> str:
    """Format numbers as the page does: 1-3, 5."""
    parts: list[list[int]] = []
    for number in sorted(passes):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def rolled_edges(graph: Graph) -> dict[tuple[str, str], tuple[str, str]]:
    """Compute the expected pass labels of every edge between layers independently."""
    bare = [label.partition(":")[0] for label in graph.labels]
    passes = graph.ops.passno.tolist()
    ends: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for src, dst in zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True):
        ends.setdefault((bare[src], bare[dst]), []).append((passes[src], passes[dst]))
    labels = {}
    for (src, dst), pairs in ends.items():
        out, into = {a for a, _ in pairs}, {b for _, b in pairs}
        labels[src, dst] = (
            "" if len(out) == bare.count(src) else f"Out {ranges(out)}",
            "" if len(into) == bare.count(dst) else f"In {ranges(into)}",
        )
    return labels


def test_rolled_layers_and_pass_labels_of_edges(open_graph: Open) -> None:
    graph = MODELS["recurrent"]()
    page = open_graph(View(graph, rolled=True))
    shown = boxes(page)
    assert shown["wh"]["label"] == "wh (x6)"
    assert {found["label"] for found in shown.values()} >= {"tanh (x6)", "add (x6)", "getitem (x6)", "zeros"}
    names = page.evaluate(
        f"Object.fromEntries({VIEW}.tree.nodes.flatMap(n => n.names.map(a => [a, n.address])))"
    )
    found = routes(page)
    expected = rolled_edges(graph)
    assert ("Out 1-5", "In 2-6") in expected.values()
    for (src, dst), (out, into) in expected.items():
        route = found[names[src], names[dst]]
        assert (route["out"], route["into"]) == (out, into)
    page.get_by_role("button", name="Rolled").click()
    assert {f"wh:{n}" for n in range(1, 7)} < set(boxes(page))
    page.get_by_role("button", name="Rolled").click()
    assert set(boxes(page)) == set(shown)


def test_rolled_layer_that_feeds_itself_has_a_loop(open_graph: Open) -> None:
    page = open_graph(View(MODELS["decoder"](), rolled=True))
    loop = routes(page)["cell", "cell"]
    assert loop["out"] == "Out 1-7"
    assert "In 2-8" in loop["into"]


def test_rolled_figures_are_summed_over_passes(open_graph: Open) -> None:
    page = open_graph(View(graph_of(Recurrent(6), torch.zeros(1, 6, 8)), rolled=True))
    page.evaluate(f"{VIEW}.select('tanh_1')")
    assert re.search(r"Activations\s+384 B", page.locator(".ig-panel").inner_text())  # six times 16 float32


def test_many_passes_are_rolled_by_default(open_graph: Open) -> None:
    page = open_graph(View(graph_of(Recurrent(20), torch.zeros(1, 20, 8))))
    assert "wh" in boxes(page)
    assert len(boxes(page)) < 20


# -- folds ----------------------------------------------------------------------------------------------


def test_fold_shows_one_member_and_controls_to_select_it(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"]()))
    fold = next(found for found in boxes(page).values() if found["kind"] == "group")
    assert fold["label"] == "h.0 … h.11"
    click(page, fold["x"] + 14, fold["y"] + 20)
    members = re.compile(r"^transformer\.h\.\d+$")
    assert [name for name in boxes(page) if members.match(name)] == ["transformer.h.0"]
    assert boxes(page)["transformer.h.0"]["open"]
    head = next(found for found in boxes(page).values() if found["kind"] == "group")
    scale = head["width"] / page.evaluate(f"{VIEW}.visible.boxes.find(b => b.node.kind === 'group').width")
    click(page, head["x"] + head["width"] - 44 * scale, head["y"] + 12)  # the arrow to the next member
    assert [name for name in boxes(page) if members.match(name)] == ["transformer.h.1"]
    click(page, head["x"] + head["width"] - 14 * scale, head["y"] + 12)  # all
    assert len([name for name in boxes(page) if members.match(name)]) == 12
    click(page, head["x"] + 120 * scale, head["y"] + 12)
    page.get_by_label("Member to show").select_option("5")
    assert [name for name in boxes(page) if members.match(name)] == ["transformer.h.5"]


@pytest.mark.long
def test_header_of_a_wide_box_stays_in_view(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"](), depth="all"))
    box = boxes(page)["transformer"]
    page.evaluate(f"([x, y]) => {VIEW}.cameraControl.pan(x, y)", [-100 - box["x"], 200 - box["y"]])
    box = boxes(page)["transformer"]
    assert box["x"] == pytest.approx(-100, abs=1)
    click(page, 16, box["y"] + 10)
    assert not boxes(page)["transformer"]["open"]


def test_search_by_shape_selects_inside_a_fold(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"](), depth=0))
    page.get_by_role("combobox", name="Find in the graph").fill("1x8x64 h.9 tanh")
    page.keyboard.press("Enter")
    assert heading(page).startswith("tanh_10_")
    assert "transformer.h.9.mlp.act" in boxes(page)
    assert "transformer.h.0" not in boxes(page)
    trail = page.get_by_role("navigation", name="Breadcrumb")
    assert trail.inner_text().split("\n")[-1].endswith("tanh")
    trail.get_by_role("button", name="mlp").click()
    assert heading(page) == "transformer.h.9.mlp"


# -- decisions, arguments, constants --------------------------------------------------------------------


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.plain = torch.ones(1, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z = self.fc(x) - y
        if (z * 2).sum() > 0:
            z = z + 1
        while z.sum() > 100:
            z = z / 2
        return torch.cat([z + x, self.plain * y], 1)


@pytest.mark.long
def test_details_switch_writes_labels_and_addresses_and_is_in_the_link(open_graph: Open) -> None:
    page = open_graph(View(MODELS["resnet50"](), depth=1))
    details = f"{VIEW}.visible.boxes.map(({{ height }}) => height)"
    short = page.evaluate(details)
    page.evaluate(f"{VIEW}.selectBox(2)")
    chosen = page.locator(".ig-panel h2").inner_text()
    menu = page.get_by_role("combobox", name="Details")
    assert menu.input_value() == "names"
    menu.select_option("full")
    tall = page.evaluate(details)
    assert len(tall) == len(short)
    assert all(b >= a + 13 for a, b in zip(short, tall, strict=True))
    assert page.locator(".ig-panel h2").inner_text() == chosen  # the selection is kept
    until(page, "location.hash.includes('details=full')")
    page.reload()
    until(page, f"Boolean({VIEW}?.still)")
    assert page.evaluate(details) == tall
    menu = page.get_by_role("combobox", name="Details")
    assert menu.input_value() == "full"
    menu.select_option("names")
    assert page.evaluate(details) == short
    until(page, "!location.hash.includes('details')")


@pytest.mark.long
def test_parameters_are_boxes_on_request(open_graph: Open) -> None:
    graph = MODELS["resnet50"]()
    page = open_graph(View(graph, depth="all"))
    drawn, reader = {param.address for param in graph.params}, "encoder.stages.0.layers.0.layer.0.convolution"
    kept = {address: box["kind"] for address, box in boxes(page).items()}
    assert not drawn & kept.keys()
    page.evaluate(f"{VIEW}.select({reader!r})")
    page.get_by_role("combobox", name="Details").select_option("parameters")
    until(page, f"{VIEW}.still")
    found = boxes(page)
    assert drawn == found.keys() - kept.keys()
    assert heading(page) == reader  # the selection is kept
    page.get_by_role("combobox", name="Find in the graph").fill(f"{reader}.weight")
    page.keyboard.press("Enter")
    assert heading(page) == f"{reader}.weight"
    assert page.locator(".ig-kind").inner_text() == "Parameter"
    panel = page.locator(".ig-panel")
    assert panel.get_by_role("button", name=reader, exact=True).is_visible()  # what reads it
    selected = f"decodeURIComponent(location.hash).includes({f'{reader}.weight'!r})"
    until(
        page, f"location.hash.includes('details=parameters') && {selected}"
    )  # the link follows a little later
    page.reload()
    until(page, f"Boolean({VIEW}?.still)")
    assert page.get_by_role("combobox", name="Details").input_value() == "parameters"
    assert boxes(page).keys() == found.keys()
    assert heading(page) == f"{reader}.weight"
    page.get_by_role("combobox", name="Details").select_option("names")
    assert {address: box["kind"] for address, box in boxes(page).items()} == kept


def test_key_value_cache_is_one_box(open_graph: Open) -> None:
    config = GPT2Config(n_layer=5, n_head=2, n_embd=8, vocab_size=16, n_positions=8, bos_token_id=0)
    model = GPT2LMHeadModel(config).eval()
    page = open_graph(trace(model, input_ids=torch.zeros(1, 3, dtype=torch.long), save="none").show())
    until(page, f"{VIEW}.still")
    found = {box["label"]: box for box in page.evaluate(f"{VIEW}.boxes()")}
    cache, logits = found[CACHE], found["logits"]
    assert cache["y"] < logits["y"]
    assert f"{cache['kind']} {logits['kind']}" == "group output"
    assert not [label for label in found if label.startswith(f"{CACHE}.")]
    assert [one["label"] for one in routes(page).values() if one["label"] == "10 tensors"] == ["10 tensors"]
    items = page.get_by_role("treeitem")
    assert items.filter(has_text="5 × GPT2Block").count() == 1
    row = items.filter(has_text=CACHE)
    assert "10 × output" in row.inner_text()
    row.dblclick()
    names = {box["label"] for box in boxes(page).values()}
    assert {f"{CACHE}.{n}.{kind}" for n in range(5) for kind in ("keys", "values")} <= names


def test_decisions_arguments_and_constants(open_graph: Open) -> None:
    torch.manual_seed(0)
    page = open_graph(
        View(trace(Odd(), (torch.ones(1, 3), -torch.ones(1, 3)), save="none").graph, rolled=False)
    )
    labels = {found["label"] for found in boxes(page).values()}
    assert {"gt  if ✓", "gt  while ✗"} < labels
    found = list(routes(page).values())
    into = {(route["from"], route["to"].partition("_")[0]): route["into"] for route in found}
    assert into["fc", "sub"] == "input"
    assert into["input_2", "sub"] == "other"
    assert {route["into"] for route in found if route["to"].startswith("cat")} == {"0", "1"}
    assert {route["into"] for route in found if route["to"].startswith("add")} == {""}
    starts = {route["to"].partition("_")[0] for route in found if route["branch"]}
    assert starts == {"mul", "sum"}
    kinds = {found["address"]: found["kind"] for found in boxes(page).values()}
    assert [kind for name, kind in kinds.items() if name.startswith("constant")] == ["constant"]
    assert sorted(name for name, kind in kinds.items() if kind == "output") == ["output_1"]
    assert "decision" in page.locator(".ig-legend").inner_text()


# -- edges, links ---------------------------------------------------------------------------------------


def test_click_on_an_edge_shows_its_tensor(open_graph: Open) -> None:
    page = open_graph(View(MODELS["unet"]()))
    route = next(found for found in routes(page).values() if found["label"] and found["from"] == "input_1")
    x, y = route["points"][0], (route["points"][1] + route["points"][-1]) / 2
    click(page, x, y)
    panel = page.locator(".ig-panel")
    assert heading(page) == route["label"]
    assert "Edge" in panel.inner_text()
    assert "float32" in panel.inner_text()
    panel.get_by_role("button", name="x", exact=True).click()
    assert heading(page) == "input_1"
    assert panel.locator(".ig-kind").inner_text() == "Input · x"


STREAM = (
    f"{VIEW}.visible.boxes.filter((box) => {VIEW}.stream.has(box.node.id)).map((box) => box.node.address)"
)


def test_selection_highlights_its_stream(open_graph: Open) -> None:
    page = open_graph(View(MODELS["unet"](), depth=0))
    page.evaluate(f"{VIEW}.select('down.1')")
    assert {"input_1", "down.0", "down.3", "join.2", "output_1"} < set(page.evaluate(STREAM))
    page.evaluate(f"{VIEW}.select('up.0')")
    assert {"down.3", "up.2"} < set(page.evaluate(STREAM))
    page.evaluate(f"{VIEW}.select('down.3')")
    page.evaluate(f"{VIEW}.open('down.3')")
    assert len(page.evaluate(STREAM)) > 8


@pytest.mark.long
@pytest.mark.parametrize("name", ["unet", "gpt2", "decoder"])
def test_highlighted_stream_equals_ancestors_and_descendants(open_graph: Open, name: str) -> None:
    graph = MODELS[name]()
    page = open_graph(View(graph, depth="all", rolled=False))
    parents: dict[int, set[int]] = {}
    for src, dst in zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True):
        parents.setdefault(dst, set()).add(src)
    children: dict[int, set[int]] = {}
    for dst, above in parents.items():
        for src in above:
            children.setdefault(src, set()).add(dst)

    def reached(row: int, steps: dict[int, set[int]]) -> set[int]:
        seen, waiting = {row}, [row]
        while waiting:
            waiting += (fresh := steps.get(waiting.pop(), set()) - seen)
            seen |= fresh
        return seen

    box_of = page.evaluate(f"[...{VIEW}.tree.boxOf].map((id) => id < 0 ? '' : {VIEW}.tree.nodes[id].address)")
    leaves = set(
        page.evaluate(f"{VIEW}.visible.boxes.filter((box) => !box.open).map((box) => box.node.address)")
    )
    alone = [row for row, box in enumerate(box_of) if box in leaves and box_of.count(box) == 1]
    for row in alone[:: max(1, len(alone) // 7)]:
        page.evaluate(f"(address) => {VIEW}.select(address)", box_of[row])
        up, down = reached(row, parents), reached(row, children)
        assert set(page.evaluate(STREAM)) & leaves == {box_of[one] for one in up | down} & leaves, box_of[row]
        along = {
            (box_of[src], box_of[dst])
            for src, dst in zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True)
            if {src, dst} <= up or {src, dst} <= down
        }
        for a, b, highlighted in page.evaluate(ALONG):
            assert highlighted == ((a, b) in along) or not {a, b} <= leaves, (a, b)


ALONG = f"""{VIEW}.visible.lines.map(({{ edge }}) =>
    [...[edge.from, edge.to].map((end) => {VIEW}.tree.nodes[end]?.address ?? ""),
    {VIEW}.stream.along(edge)])"""


@pytest.mark.long
def test_address_bar_restores_the_view(open_graph: Open) -> None:
    page = open_graph(View(MODELS["gpt2"]()))
    page.evaluate(f"{VIEW}.select('transformer.h.7.attn.c_proj')")
    before = boxes(page)
    url = page.evaluate("location.href")
    assert "transformer.h.7" in url
    page.goto("about:blank")
    page.goto(url)
    until(page, "Boolean(document.querySelector('#intus-graph')?.intusView)")
    assert set(boxes(page)) == set(before)
    assert heading(page) == "transformer.h.7.attn.c_proj"


# -- failures -------------------------------------------------------------------------------------------


class FailsFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(9, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


class Lookup(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return {"a": x.relu()}["b"]


class RaisesAtOnce(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("nothing ran")


def failed(model: nn.Module) -> View:
    return View(trace(model, torch.zeros(3, 4), save="none", on_error="keep").graph)


def test_failure_of_the_first_operation(open_graph: Open) -> None:
    page = open_graph(failed(FailsFirst()))
    assert "(3x4 and 9x2)" in page.get_by_role("alert").inner_text()
    panel = page.locator(".ig-panel").inner_text()
    assert heading(page) == "fc"
    for fact in (
        "failed here, in its operation",
        "mat1 and mat2",
        "3×4",
        "2×9",
        "return self.fc(x)",
        "test_graph_exploring.py",
    ):
        assert fact in panel


def test_failure_in_python_code(open_graph: Open) -> None:
    page = open_graph(failed(nn.Sequential(nn.Linear(4, 4), Lookup())))
    alert = page.get_by_role("alert").inner_text()
    for fact in ("KeyError: 'b'", "in forward", "module 1", 'return {"a": x.relu()}["b"]'):
        assert fact in alert
    assert heading(page) == "1"
    assert "failed here, in its own code" in page.locator(".ig-panel").inner_text()


def test_failure_in_python_code_of_a_nested_module(open_graph: Open, tmp_path: Path) -> None:
    inner = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Lookup()))
    view = failed(nn.Sequential(nn.Linear(4, 4), inner, nn.Linear(4, 4)))
    page = open_graph(view)
    assert heading(page) == "1.1.2"
    assert "KeyError: 'b'" in page.locator(".ig-panel").inner_text()
    assert view.save(tmp_path / "failed.svg", dark=False).read_text(encoding="utf-8").count("#b3261e") >= 2


def test_failure_in_the_root_module_links_to_the_last_operation(open_graph: Open) -> None:
    class Checks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            raise ValueError(f"got {tuple(self.fc(x).shape)}")

    page = open_graph(failed(Checks()))
    page.get_by_role("button", name="Last operation: fc").click()
    assert "failed here" not in page.locator(".ig-panel").inner_text()


def test_failure_before_the_first_operation(open_graph: Open) -> None:
    page = open_graph(failed(RaisesAtOnce()))
    alert = page.get_by_role("alert").inner_text()
    assert "ValueError: nothing ran" in alert
    assert 'raise ValueError("nothing ran")' in alert
    assert set(boxes(page)) == {"input_1"}


# -- values ---------------------------------------------------------------------------------------------


class Divides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.fc(x)) / torch.zeros(8)


class Unstable(nn.Module):
    """Eight equal blocks, of which the sixth takes the logarithm of possibly negative values."""

    class Block(nn.Module):
        def __init__(self, is_stable: bool) -> None:
            super().__init__()
            self.fc, self.is_stable = nn.Linear(4, 4), is_stable

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc(x)
            return torch.log(x.abs() if self.is_stable else x)

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Unstable.Block(number != 5) for number in range(8))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_nan_overlay_links_to_the_first_nan(open_graph: Open) -> None:
    t = trace(Unstable(), torch.ones(2, 4), seed=0)
    first = next(op.label for op in t.ops if op.value.isnan().any())
    page = open_graph(t.show(depth=0))
    page.get_by_label("Color by").select_option("nan")
    page.get_by_role("button", name="Go to the first").click()
    assert page.locator(".ig-panel").get_by_text("NaN").count()
    assert page.evaluate(f"{VIEW}.place.at") == first
    page.get_by_label("Color by").select_option("mean")
    assert page.get_by_role("button", name="Go to the first").count() == 0


class Diffusion(nn.Module):
    """A loop whose steps differ in a constant, so that producers and consumers of a tensor vary."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 8))

    def forward(self, x: Tensor) -> Tensor:
        for step in range(10, 0, -1):
            time = torch.full((x.shape[0], 1), step / 10)
            x = (x - 0.1 * self.net(torch.cat([x, time], 1))) / (1 - 0.05 * step / 10)
        return x


def test_labels_at_arrows_do_not_overlap(open_graph: Open) -> None:
    page = open_graph(View(graph_of(Diffusion(), torch.zeros(2, 8)), rolled=True))
    words = page.evaluate(
        """() => {
          const fillText = CanvasRenderingContext2D.prototype.fillText;
          const texts = [];
          CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
            const width = this.measureText(text).width * (this.textAlign === "right" ? -1 : 1);
            if (/In |Out /.test(text)) texts.push([text, Math.min(x, x + width), y, Math.abs(width)]);
            return fillText.call(this, text, x, y);
          };
          const view = document.querySelector("#intus-graph").intusView;
          return new Promise((done) => {
            view.select("net");
            requestAnimationFrame(() => requestAnimationFrame(() => {
              CanvasRenderingContext2D.prototype.fillText = fillText;
              done(texts);
            }));
          });
        }"""
    )
    words = {tuple(word) for word in words}
    assert len(words) > 15
    for (one, x, y, width), (other, left, top, wide) in itertools.combinations(words, 2):
        beside = x + width <= left or left + wide <= x
        assert beside or abs(y - top) >= 9, (one, other)


@pytest.mark.long
def test_panel_and_overlays_of_saved_values(open_graph: Open, tmp_path: Path) -> None:
    t = trace(Divides(), torch.randn(50, 4, generator=torch.manual_seed(1)), seed=0)
    page = open_graph(t.show())
    page.evaluate(f"{VIEW}.select('fc')")
    panel = page.locator(".ig-panel").inner_text()
    mean = float(re.search(r"Mean\s+(\S+)", panel)[1])  # type: ignore[index]
    assert mean == pytest.approx(float(t["fc"].value.mean()), rel=1e-3)
    assert page.locator(".ig-histogram rect").count() == 24
    page.evaluate(f"{VIEW}.select('relu_1')")
    zero = re.search(r"Zeros\s+(\S+) %", page.locator(".ig-panel").inner_text())
    assert zero
    assert float(zero[1]) == pytest.approx(100 * float((t["relu_1"].value == 0).float().mean()), rel=1e-2)
    page.evaluate(f"{VIEW}.select('div_1')")
    assert re.search(r"\d+ NaN, \d+ infinite", page.locator(".ig-panel").inner_text())
    page.get_by_label("Color by").select_option("nan")
    colours = {name: found["colour"] for name, found in boxes(page).items()}
    assert colours["relu_1_2"] is None  # zero is neutral
    assert colours["div_1_4"] == "rgb(227, 74, 51)"  # hot
    page.get_by_label("Color by").select_option("zero")
    assert colours != {name: found["colour"] for name, found in boxes(page).items()}
    page = open_graph(View(t.graph))
    page.evaluate(f"{VIEW}.select('fc')")
    assert page.locator(".ig-histogram").count() == 0
    assert page.get_by_label("Color by").locator("option[value=mean]").count() == 0


# -- inputs and outputs ---------------------------------------------------------------------------------


class Read(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total = torch.ones_like(x[0, :3]).sum()
        return torch.log(-total) + x


class Pair(nn.Module):
    def forward(self, image: Tensor, text: Tensor) -> dict[str, Tensor]:
        return {"logits": image @ text, "</script>": image + 1}


def test_inputs_and_outputs_have_the_names_in_the_code(open_graph: Open) -> None:
    page = open_graph(trace(Pair(), (torch.ones(2, 2), torch.ones(2, 2))).show())
    labels = {address: found["label"] for address, found in boxes(page).items() if "put_" in address}
    assert labels == {"input_1": "image", "input_2": "text", "output_1": "logits", "output_2": "</script>"}
    page.get_by_role("combobox", name="Find in the graph").fill("logits")
    page.keyboard.press("Enter")
    assert heading(page) == "output_1"
    assert page.locator(".ig-kind").inner_text() == "Output · logits"
    page.evaluate(f"{VIEW}.select('matmul_1_1')")
    assert page.locator(".ig-panel").get_by_role("button", name="image").is_visible()


def test_panel_shows_only_existing_statistics(open_graph: Open) -> None:
    block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    page = open_graph(trace(nn.Sequential(block, Read()), torch.ones(2, 4)).show())
    panel = page.locator(".ig-panel")

    def figures(address: str) -> dict[str, str]:
        page.evaluate(f"{VIEW}.select({address!r})")
        section = panel.locator("section").filter(has=page.get_by_role("heading", name="Value"))
        names, texts = section.locator("dt").all_inner_texts(), section.locator("dd").all_inner_texts()
        return dict(zip(names, texts, strict=True))

    assert figures("sum_1_5") == {"Number": "3"}
    assert figures("log_1_7") == {}  # no statistics without finite values
    assert panel.locator(".ig-bad").inner_text() == "1 NaN"
    assert list(figures("0"))[:3] == ["Mean", "Std", "Range"]  # the value of a module is its output
    assert panel.get_by_role("img", name="Histogram").is_visible()
    assert panel.get_by_role("img", name="Heat map of the value").is_visible()


PIXELS = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return Array.from({ length: data.length / 4 }, (_, i) => [...data.slice(4 * i, 4 * i + 4)]);
}"""


def test_heat_map_and_image_of_a_value(open_graph: Open) -> None:
    matrix = torch.tensor([[1.0, 0.0, -1.0], [float("nan"), 1.0, 1.0]])
    photo = torch.zeros(1, 3, 8, 8)
    photo[0, 0, 0, 0] = photo[0, 2] = 5.0  # blue, except for a corner with red
    page = open_graph(trace(lambda a, b: (a + 1, b + 1), (matrix, photo)).show(), color_scheme="dark")
    page.evaluate(f"{VIEW}.select('input_1')")
    map_ = page.get_by_role("img", name="Heat map of the value")
    red, white, blue, grey = (
        [178, 24, 43, 255],
        [247, 247, 247, 255],
        [33, 102, 172, 255],
        [128, 128, 128, 255],
    )
    assert map_.evaluate(PIXELS) == [red, white, blue, grey, red, red]
    assert page.locator("figcaption").inner_text() == "blue −1, white 0, red 1"
    page.evaluate(f"{VIEW}.select('add_1')")
    assert page.locator("figcaption").inner_text() == "white 0, red 2"  # it has no negative values
    page.evaluate(f"{VIEW}.select('input_2')")
    pixels = page.get_by_role("img", name="Image of the value[0]").evaluate(PIXELS)
    assert pixels == [[255, 0, 255, 255], *[[0, 0, 255, 255]] * 63]
    assert page.locator("figcaption").inner_text() == "[0]"


# -- notes ----------------------------------------------------------------------------------------------


def test_notes_of_a_file_are_shown(open_graph: Open, tmp_path: Path) -> None:
    save_file({"h.0.fc.weight": torch.zeros(3, 2)}, tmp_path / "net.safetensors")
    shown = open_graph(view(tmp_path / "net.safetensors"))
    notes = shown.locator(".ig-notes")
    assert notes.inner_text() == (
        "This file holds weights only. Which operations use them is not in it, nor which are buffers: "
        "all count as parameters."
    )
    box = notes.bounding_box()
    assert box is not None
    assert 0 < box["height"] < 80
    if folder := os.environ.get("INTUS_PICTURES"):
        shown.screenshot(path=f"{folder}/notes.png")
    plain = open_graph(view(torch.nn.Linear(2, 1), torch.ones(1, 2)))
    assert plain.locator(".ig-notes").count() == 0
