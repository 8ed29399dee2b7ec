"""The live page in Chromium on the real server: every part of it, and how they are connected."""

from __future__ import annotations

import csv
import io
import itertools
import re
import xml.etree.ElementTree as ET
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote

import pytest
from page_server import LAYERS, MODEL, PageServer, Row, plausible, unit_rows
from playwright.sync_api import Locator, Page, expect
from waiting import answered, eventually, redrawn, until
from zoo import MODELS

from intus.core.graph import Graph
from intus.core.results import Results

pytestmark = pytest.mark.browser

GRAPH = "document.querySelector('.graph-host').intusView"
#: The color of the end of the scale.
TOP = "rgb(253, 231, 37)"
Open = Callable[..., Page]


def rows(page: Page) -> dict[str, str]:
    """Return the shown value of each layer in the list."""
    return dict(
        page.eval_on_selector_all(
            ".layers li",
            "items => items.map(i => [i.dataset.key, i.querySelector('.value').textContent])",
        )
    )


def colours(page: Page) -> dict[str, str | None]:
    """Return the color of each box of the graph."""
    return dict(
        page.evaluate(
            "document.querySelector('.graph-host').intusView.boxes().map(b => [b.address, b.colour])"
        )
    )


def of_fc1(server: PageServer, run: str) -> list[float]:
    """Return the stored linear probe scores of layer fc1 by epoch."""
    query = {"score": "linear_f1", "target": "digit", "address": "fc1"}
    return server.database.columns(run, MODEL, ["value"], **query)["value"]


MARKER = """() => {
  const canvas = document.querySelector(".canvas .over");
  const probe = document.body.appendChild(document.createElement("span"));
  probe.style.color = "var(--accent)";
  const accent = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
  probe.remove();
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const counts = new Array(width).fill(0);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const at = 4 * (y * width + x);
    if (data[at + 3] > 100 && accent.every((c, k) => Math.abs(c - data[at + k]) < 40)) counts[x]++;
  }
  return counts.indexOf(Math.max(...counts)) / width;
}"""


def marker(page: Page) -> float:
    """Return the position of the vertical line at the current epoch as a fraction of the plot's width."""
    redrawn(page)
    return float(page.evaluate(MARKER))


def slide(page: Page, index: int) -> None:
    slider = page.get_by_label("Epoch", exact=True)
    slider.evaluate(
        "(s, v) => { s.value = v; s.dispatchEvent(new Event('input', { bubbles: true })) }", str(index)
    )


def settled(page: Page, layers: int = len(LAYERS)) -> Page:
    expect(page.locator(".layers li")).to_have_count(layers)
    until(page, f"document.querySelector('.graph-host').hidden || Boolean({GRAPH}?.still)")
    answered(page)
    return page


def point_at(page: Page, across: float, heights: Iterable[float], told: str) -> None:
    """Move the pointer over the plot, down a line, until the text beside it matches a pattern."""

    def matches() -> bool:
        return re.match(told, str(page.locator(".tip").text_content())) is not None

    for height in heights:
        page.mouse.move(across, height)
        if matches():
            redrawn(page)  # the text may still be that of the position before
            if matches():
                return


@pytest.mark.long
def test_initial_view_newest_run_and_score_of_target(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    expect(page.get_by_label("Run", exact=True).locator("option")).to_have_text(
        ["digits · DigitsNet", "first try · DigitsNet"]
    )
    expect(page.get_by_role("heading", name="Linear probe, macro F1 of digit")).to_be_visible()
    expect(page.locator(".link")).to_have_text("Live")
    expect(page.locator(".counts [data-key=dropped]")).to_have_text("3dropped")
    assert list(rows(page)) == list(LAYERS)
    painted = colours(page)
    assert len({painted[address] for address in LAYERS}) == len(LAYERS)
    assert marker(page) > 0.9


@pytest.mark.long
def test_target_and_score_update_list_graph_and_address_bar(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    before, painted = rows(page), colours(page)
    page.get_by_label("Target", exact=True).select_option("ink above the middle")
    expect(page.get_by_role("heading", name="Linear probe, macro F1 of ink above the middle")).to_be_visible()
    eventually(page, lambda: rows(page) != before)
    assert colours(page)["fc2"] != painted["fc2"]
    page.get_by_label("Score", exact=True).first.select_option("sparsity")
    expect(page.get_by_role("heading", name="Sparsity (share of zeros)")).to_be_visible()
    expect(page.get_by_label("Target", exact=True)).to_be_disabled()
    expect(page).to_have_url(re.compile("score=sparsity.*target=ink"))


def options(page: Page, group: str) -> list[str]:
    """Return the scores in a group of the picker."""
    return page.locator(f"optgroup[label='{group}'] option").all_inner_texts()


@pytest.mark.long
def test_registered_score_has_its_label_and_no_target(visit: Open, server: PageServer) -> None:
    page = visit(server)
    asked: list[str] = []
    page.on("request", lambda request: "/api/points" in request.url and asked.append(request.url))
    settled(page)
    assert options(page, "What activations are like")[-1] == "Excess kurtosis"
    assert "Excess kurtosis" not in options(page, "What layers know of a target")
    assert options(page, "Baselines") == ["Baseline: majority class"]
    asked.clear()
    page.get_by_label("Score", exact=True).first.select_option("kurtosis")
    expect(page.get_by_role("heading", name="Excess kurtosis", exact=True)).to_be_visible()
    expect(page.locator(".plot .heading")).to_contain_text("0 for a normal distribution.")
    expect(page.get_by_label("Target", exact=True)).to_be_disabled()
    known = server.database.columns("digits", MODEL, ["value"], score="kurtosis", epoch=12)["value"]

    def shown() -> list[float]:
        return [float(text.replace("−", "-")) for text in rows(page).values()]

    eventually(page, lambda: shown() == pytest.approx(known, rel=0.01))
    assert ["target" in url for url in asked if "score=kurtosis" in url] == [False]


def test_score_without_description_is_shown_by_name(visit: Open, server: PageServer) -> None:
    row = {"run": "old", "model": MODEL, "address": "conv1", "value": 0.5}
    pairs = [("linear_f1", "digit"), ("mine", ""), ("theirs", "digit"), ("a.b", "digit")]
    for score, target in pairs:  # as stored by an older version
        server.database.add(Results.from_rows([row | {"epoch": 0, "score": score, "target": target}]))
    page = visit(server, "#run=old&model=DigitsNet&score=mine")
    expect(page.get_by_role("heading", name="mine", exact=True)).to_be_visible()
    assert options(page, "What layers know of a target") == ["Linear probe, macro F1", "theirs", "a.b"]
    assert options(page, "What activations are like") == ["mine"]


@pytest.mark.long
def test_kinds_are_shown_by_labels(visit: Open, server: PageServer) -> None:
    for kind in ("grad_output", "parameter_grad", "output@eval"):
        server.add_run("kinds", 1, change=lambda row, kind=kind: row | {"kind": kind})
    server.add_run("kinds", 1)
    page = settled(visit(server, "#run=kinds&model=DigitsNet"))
    labels = page.get_by_label("Of", exact=True).locator("option").all_inner_texts()
    assert sorted(labels) == [
        "gradient of the output",
        "gradient of the parameter",
        "output",
        "output in mode eval",
    ]
    page.get_by_label("Of", exact=True).select_option("grad_output")
    expect(page.locator(".plot .heading")).to_contain_text("10 layers (gradient of the output)")


@pytest.mark.long
def test_slider_updates_graph_list_and_marker(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    painted, values = colours(page), rows(page)
    slide(page, 3)
    expect(page.locator(".epoch")).to_have_text("epoch 3 of 12")
    assert marker(page) == pytest.approx(0.12 + 0.85 * 3 / 12, abs=0.06)
    assert rows(page) != values
    assert colours(page)["conv1"] != painted["conv1"]
    expect(page.get_by_role("button", name="Follow live")).to_have_attribute("aria-pressed", "false")
    expect(page).to_have_url(re.compile("epoch=3"))


def test_missing_value_is_shown_as_nan(visit: Open, server: PageServer) -> None:
    page = settled(visit(server, "#epoch=3&run=digits&model=DigitsNet"))
    assert rows(page)["relu2"] == "NaN"
    assert colours(page)["relu2"] == "missing"
    expect(page.locator("[data-key=relu2] .value")).to_have_attribute("title", "12 of 1 797 rows hold NaN")
    expect(page.locator(".counts [data-key=empty]")).to_have_text("1without a value")


@pytest.mark.long
def test_new_epoch_appears_without_reload(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    expect(page.locator(".link")).to_have_text("Live")
    server.add_epoch("digits")
    expect(page.locator(".epoch")).to_have_text("epoch 13 of 13", timeout=5000)
    assert "over 14 epochs" in str(page.locator(".canvas [role=img]").get_attribute("aria-label"))
    slide(page, 2)
    server.add_epoch("digits")
    expect(page.locator(".epoch")).to_have_text("epoch 2 of 14", timeout=5000)
    page.get_by_role("button", name="Follow live").click()
    expect(page.locator(".epoch")).to_have_text("epoch 14 of 14")


def test_row_that_is_made_again_while_it_is_pressed_is_chosen(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    expect(page.locator(".link")).to_have_text("Live")
    row = page.get_by_role("option", name="fc1")

    def change(row: Row) -> Row:
        return row | {"address": row["address"].replace("conv1", "conv0")}

    press_until_made_again(page, row, lambda: server.add_epoch("digits", change=change))
    expect(page.get_by_role("option", name="fc1")).to_have_attribute("aria-selected", "true")


def press_until_made_again(page: Page, part: Locator, update: Callable[[], object]) -> None:
    """Press the mouse on a part of the page, and release it once an update has replaced the part."""
    answered(page)  # what the page asks for once it is live may replace the part too
    part.scroll_into_view_if_needed()
    part.hover()
    part.evaluate("one => { window.pressed = one }")
    page.mouse.down()
    update()
    until(page, "!window.pressed.isConnected")
    page.mouse.up()


def test_unit_whose_row_is_made_again_while_it_is_pressed_is_shown(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    expect(page.locator(".link")).to_have_text("Live")
    button = page.locator(".units tbody tr").nth(1).get_by_role("button")
    unit = button.inner_text()
    lower = [each | {"value": 0.99 * each["value"]} for each in unit_rows("digits", (0, 6, 12))]
    press_until_made_again(page, button, lambda: server.add(lower))
    expect(page.locator(".layers [aria-selected=true]")).to_have_attribute("data-key", unit)


def test_run_whose_box_is_made_again_while_it_is_pressed_is_compared(visit: Open, server: PageServer) -> None:
    server.add_run("third try", 2)
    page = settled(visit(server))
    expect(page.locator(".link")).to_have_text("Live")
    page.locator(".compare summary").click()
    labels = page.locator(".compare label")
    text, last = labels.first.inner_text(), labels.last.inner_text()
    press_until_made_again(page, labels.first, lambda: server.frontend.remove(last.partition(" ·")[0]))
    expect(page.get_by_role("checkbox", name=text)).to_be_checked()


@pytest.mark.long
def test_selection_is_shared_by_plot_and_graph(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    box = page.locator(".canvas .over").bounding_box()
    assert box is not None
    heights = (box["y"] + box["height"] * share / 100 for share in range(5, 95))
    point_at(page, box["x"] + box["width"] * 0.55, heights, "conv2epoch")
    expect(page.locator(".tip")).to_contain_text("1,797")
    expect(page.locator(".tip")).to_contain_text("95 % interval")
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".layers [aria-selected=true]")).to_have_attribute("data-key", "conv2")
    expect(page.locator(".ig-panel h2")).to_have_text("conv2")
    redrawn(page)
    until(page, f"{GRAPH}.still")
    find = "document.querySelector('.graph-host').intusView.boxes().find(b => b.address === 'relu2')"
    relu = page.evaluate(find)
    area = page.locator(".graph-host canvas").first.bounding_box()
    assert area is not None
    page.mouse.click(area["x"] + relu["x"] + relu["width"] / 2, area["y"] + relu["y"] + relu["height"] / 2)
    expect(page.locator(".layers [aria-selected=true]")).to_have_attribute("data-key", "relu2")
    expect(page).to_have_url(re.compile("address=relu2"))


@pytest.mark.long
def test_keyboard_controls_list_and_player(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    page.get_by_role("listbox", name="Layers, from input to output").focus()
    page.keyboard.press("End")
    expect(page.locator(".layers [aria-selected=true]")).to_have_attribute("data-key", "fc2")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".layers [aria-selected=true]")).to_have_attribute("data-key", "relu3")
    page.keyboard.press("Escape")
    expect(page.locator(".layers [aria-selected=true]")).to_have_count(0)
    page.get_by_label("Epoch", exact=True).focus()
    page.keyboard.press("Home")
    expect(page.locator(".epoch")).to_have_text("epoch 0 of 12")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".epoch")).to_have_text("epoch 1 of 12")
    page.get_by_role("button", name="Play through the epochs").click()
    expect(page.locator(".epoch")).to_have_text(
        re.compile(r"epoch ([3-9]|1\d) of 12")
    )  # a busy page skips some
    page.get_by_role("button", name="Pause").click()


def test_link_with_a_run_alone_opens_it_and_its_notices_come_first(visit: Open, server: PageServer) -> None:
    server.database.add_notice("probe", "About the first run.", level="warning", run="first try", model=MODEL)
    server.add_notice("warning", "probe", "About no run, and newer.")
    page = visit(server, "#run=first+try")
    expect(page.locator(".strip-text")).to_have_text("About the first run.")
    expect(page.locator(".notice-list li").first).to_contain_text("About the first run.")
    expect(page).to_have_title("first try · intus")


def test_link_to_a_run_that_does_not_exist_says_so(visit: Open, server: PageServer) -> None:
    page = settled(visit(server, "#run=gone"))
    alert = page.locator(".trouble")
    expect(alert).to_have_text("There is no run “gone”. Another is shown.")
    page.get_by_label("Run", exact=True).select_option('["first try","DigitsNet"]')
    expect(page).to_have_title("first try · intus")
    expect(alert).to_be_hidden()


@pytest.mark.long
def test_notices_are_shown_in_full_and_updated(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    notices = page.get_by_label("Notices")
    expect(notices).to_contain_text("has 1 500 labels")
    expect(notices).to_contain_text("they have 1 797")
    expect(notices).to_contain_text("13 times")
    server.add_notice("error", "evaluator", "The score 'mine' raised ZeroDivisionError on fc1 at epoch 4.")
    expect(notices.locator("li.error")).to_contain_text("ZeroDivisionError on fc1")
    expect(notices.locator(".badge")).to_have_text("2")


@pytest.mark.long
def test_unit_table_sorts_and_shows_curves(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    table = page.locator(".units table")
    expect(table.locator("tbody tr")).to_have_count(10)
    values = [float(text) for text in table.locator("td.figure:nth-child(3)").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    assert len(values) == 10
    page.get_by_role("button", name="Show all 24 units").click()
    expect(table.locator("tbody tr")).to_have_count(24)
    page.get_by_role("button", name="Value").click()
    expect(table.locator("th[aria-sort=ascending]")).to_have_text("Value")
    first = table.locator("tbody tr").first.inner_text()
    page.get_by_label("Hypothesis").select_option("a vertical stroke")
    expect(table.locator("tbody tr").first).not_to_have_text(first)
    curve = table.locator("svg").first.get_attribute("aria-label")
    assert curve is not None
    assert curve.startswith("epoch 0: ")
    assert ", epoch 12: " in curve
    summary = page.locator(".units .head > .soft")
    expect(summary).to_have_text("24 units · epoch 12")
    slide(page, 5)  # the layers on the plot are scored at each epoch
    expect(summary).to_have_text("24 units · epoch 6, the nearest to 5")
    slide(page, 12)
    table.get_by_role("button", name="conv1[3]").click()
    expect(page.locator(".layers [aria-selected=true]")).to_have_attribute("data-key", "conv1[3]")
    expect(page.locator(".layers li")).to_have_count(24)  # the plot shows the curves of all units
    expect(page.locator(".panel.plot h2")).to_have_text("Intersection over union of a vertical stroke")
    expect(page.locator(".panel.plot h2")).to_be_in_viewport()
    stored = server.database.columns("digits", MODEL, ["value"], level="unit", address="conv1", unit=3)
    assert rows(page)["conv1[3]"] == f"{stored['value'][-1]:.3f}"
    page.get_by_label("Score", exact=True).first.select_option("linear_f1")
    expect(page.locator(".layers li")).to_have_count(len(LAYERS))


@pytest.mark.long
def test_downloads_contain_shown_points(visit: Open, server: PageServer, tmp_path: Path) -> None:
    page = settled(visit(server))
    saved = {}
    for form in ("CSV", "SVG", "PNG"):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Download the plot as {form}").click()
        assert download.value.suggested_filename == f"digits-DigitsNet-linear_f1-digit.{form.lower()}"
        download.value.save_as(tmp_path / form)
        saved[form] = (tmp_path / form).read_bytes()
    table = list(csv.DictReader(io.StringIO(saved["CSV"].decode())))
    assert len(table) == len(LAYERS) * 13
    assert [float(row["value"]) for row in table if row["address"] == "fc1"] == of_fc1(server, "digits")
    assert [row["note"] for row in table if row["value"] == ""] == ["12 of 1 797 rows hold NaN"]
    picture = ET.fromstring(saved["SVG"])
    assert "fc2" in [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert saved["PNG"].startswith(b"\x89PNG")


def inked(page: Page, sheet: str, token: str) -> int:
    """Count the pixels of a canvas with the color of a token of theme.css."""
    return int(
        page.evaluate(
            """([sheet, token]) => {
  const canvas = document.querySelector(sheet);
  const probe = document.body.appendChild(document.createElement("span"));
  probe.style.color = `var(--${token})`;
  const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
  probe.remove();
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] > 150 && wanted.every((c, k) => Math.abs(c - data[at + k]) < 12)) found++;
  return found;
}""",
            [sheet, token],
        )
    )


@pytest.mark.long
def test_score_of_part_of_rows_is_marked(visit: Open, server: PageServer) -> None:
    page = settled(visit(server, "#run=digits&model=DigitsNet&epoch=5"))
    expect(page.locator(".doubts")).to_have_text(
        "Incomplete points: 1 from part of the rows (ring), 1 without a value (cross)."
    )
    value = page.locator("[data-key=conv1] .value")
    expect(value).to_have_attribute("title", "incomplete: 37 of 40 arrays came")
    marked = inked(page, ".canvas .over", "warning")
    page.locator("[data-key=fc2]").click()  # a layer whose scores are of all rows
    assert marked > 20
    eventually(page, lambda: inked(page, ".canvas .over", "warning") == 0)


def test_newest_warning_is_at_top(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    strip = page.locator(".strip")
    expect(strip).to_contain_text("The target 'word' has 1 500 labels")
    server.add_notice("error", "refused", "Refused: the array of fc1 has no item ids.")
    expect(strip).to_contain_text("Refused: the array of fc1")
    expect(strip).to_have_class(re.compile("error"))
    strip.get_by_role("button", name="and 1 more").click()
    expect(page.get_by_label("Notices")).to_be_in_viewport()


@pytest.mark.long
def test_compared_runs_in_plot_tooltip_and_downloads(visit: Open, server: PageServer, tmp_path: Path) -> None:
    page = settled(visit(server))
    lines = "document.querySelector('.canvas canvas').toDataURL()"
    alone = page.evaluate(lines)
    page.locator(".compare summary").click()
    page.get_by_label("first try · DigitsNet").check()
    expect(page.locator(".key li span")).to_have_text(["digits · DigitsNet", "first try · DigitsNet"])
    eventually(page, lambda: page.evaluate(lines) != alone)
    expect(page).to_have_url(re.compile("against="))
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the plot as CSV").click()
    download.value.save_as(tmp_path / "runs.csv")
    table = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    assert {(row["run"], row["epoch"]) for row in table} == {("digits", str(e)) for e in range(13)} | {
        ("first try", str(e)) for e in range(6)
    }
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the plot as SVG").click()
    download.value.save_as(tmp_path / "runs.svg")
    picture = ET.parse(tmp_path / "runs.svg")
    dashed = [
        p for p in picture.iter("{http://www.w3.org/2000/svg}path") if p.get("stroke-dasharray") == "7 4"
    ]
    assert len(dashed) == len(LAYERS)
    server.add_epoch("first try")  # compared runs are updated too
    page.reload()
    settled(page)
    expect(page.locator(".key li")).to_have_count(2)
    known = of_fc1(server, "first try")
    box = page.locator(".canvas .over").bounding_box()
    assert box is not None
    page.locator("[data-key=fc1]").click()
    # repeatedly, because the points of the other run may not be loaded yet
    heights = (box["y"] + box["height"] * share / 100 for share in 5 * [*range(2, 70)])
    point_at(page, box["x"] + box["width"] * (0.12 + 0.85 * 6 / 12), heights, "fc1epoch6.*first try")
    expect(page.locator(".tip")).to_contain_text(f"first try · DigitsNet{known[6]:.3f}")
    page.get_by_role("button", name="Stop comparing with first try · DigitsNet").click()
    expect(page.locator(".key")).to_be_hidden()


@pytest.mark.long
def test_paper_figure_button_selects_score(visit: Open, server: PageServer) -> None:
    page = settled(visit(server, "#run=digits&model=DigitsNet&score=mean&epoch=3"))
    page.get_by_role("button", name="Figure 2").click()
    expect(page.get_by_role("heading", name="k-means, mutual information of digit")).to_be_visible()
    expect(page.locator(".epoch")).to_have_text("epoch 12 of 12")


def test_filter_applies_to_plot_heat_map_list_and_csv(visit: Open, tmp_path: Path) -> None:
    page = settled(visit(plausible(200, 2)), 200)
    page.get_by_label("Filter layers by name").fill("layer.7. layer.12.mlp")
    expect(page.locator(".layers li")).to_have_count(5)
    expect(page.locator(".plot .heading")).to_contain_text("5 of 200 layers")
    expect(page.locator(".heat canvas")).to_have_attribute("aria-label", re.compile("5 layers by 2 epochs"))
    expect(page).to_have_url(re.compile("filter=layer.7"))
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the plot as CSV").click()
    download.value.save_as(tmp_path / "some.csv")
    assert len((tmp_path / "some.csv").read_text().splitlines()) == 11


def test_link_restores_view(visit: Open, server: PageServer) -> None:
    fragment = "#run=first+try&model=DigitsNet&score=effective_rank&target=even&epoch=2&address=pool1"
    page = settled(visit(server, fragment))
    expect(page.get_by_role("heading", name="Effective rank")).to_be_visible()
    expect(page.locator(".epoch")).to_have_text("epoch 2 of 5")
    expect(page.locator(".layers [aria-selected=true]")).to_have_attribute("data-key", "pool1")
    expect(page.get_by_label("Run", exact=True)).to_have_value('["first try","DigitsNet"]')


@pytest.mark.long
def test_reconnect_loads_missed_epoch(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    expect(page.locator(".link")).to_have_text("Live")
    server.stop()
    expect(page.locator(".link")).to_have_text("Reconnecting", timeout=5000)
    server.add_epoch("digits")
    server.start()
    expect(page.locator(".link")).to_have_text("Live", timeout=8000)
    expect(page.locator(".epoch")).to_have_text("epoch 13 of 13")


@pytest.mark.long
def test_first_steps_until_first_run(visit: Open, graph: Graph) -> None:
    server = PageServer(graph=graph)
    page = visit(server)
    expect(page.get_by_role("heading", name="No data received yet")).to_be_visible()
    port = page.evaluate("location.port")
    expect(page.locator("pre")).to_contain_text(f'intus.probe(model, "127.0.0.1", {port})')
    expect(page.locator(".work")).to_be_hidden()
    server.add_run("digits", 1)
    settled(page)
    expect(page.get_by_role("heading", name="No data received yet")).to_be_hidden()
    expect(page.get_by_label("Epoch", exact=True)).to_be_disabled()
    server.add_epoch("digits")
    expect(page.locator(".epoch")).to_have_text("epoch 1 of 1", timeout=5000)


def test_run_without_graph_shows_layers_as_bars(visit: Open) -> None:
    page = settled(visit(plausible(40, 3)), 40)
    expect(page.locator(".panel.graph .layers li")).to_have_count(40)
    page.get_by_label("Filter layers by name").fill("layer.7")
    expect(page.locator(".layers li")).to_have_count(4)
    page.get_by_label("Filter layers by name").fill("nowhere")
    expect(page.locator(".legend").get_by_text("No layer matches the filter.")).to_be_visible()


def test_run_with_only_unit_scores(visit: Open, graph: Graph) -> None:
    server = PageServer(graph=graph)
    server.add_run("asked later", 1, layers=False, units=True)
    page = visit(server)
    expect(page.locator(".layers li")).to_have_count(24)
    expect(page.get_by_label("Target", exact=True)).to_have_value("the upper loop")
    expect(page.locator(".units tbody tr")).to_have_count(10)


def test_inspected_checkpoints_open_on_their_own_plot(visit: Open, tmp_path: Path) -> None:
    """The results of `inspect(..., store=)` are curves of units, with a slider over checkpoints."""
    import torch

    from intus import inspect

    def model(seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, 8, 3)
        )

    images = torch.rand(30, 1, 8, 8).numpy()
    server = PageServer()
    table = inspect(
        {0: model(0), 5: model(1), 20: model(2)},
        {"ink": lambda image: image[0] > 0.5, "bright": lambda image: float(image.mean())},
        ["correlation", "mean_difference"],
        images,
        store=str(server.database.url.database),
        run="inspected",
    )
    page = settled(visit(server), 12)
    expect(page.locator(".timeline output")).to_have_text("epoch 20 of 20")
    slide(page, 1)
    expect(page.locator(".timeline output")).to_have_text("epoch 5 of 20")
    score, target = (page.get_by_label(name, exact=True).first.input_value() for name in ("Score", "Target"))
    assert (score, target) == ("correlation", "ink")
    shown = rows(page)
    of_epoch = table[(table.epoch == 5) & (table.score == score) & (table.target == target)]
    for row in of_epoch.itertuples():
        assert abs(float(shown[f"{row.address}[{row.unit}]"].replace("−", "-")) - row.value) < 6e-4
    painted = colours(page)
    assert len({painted[address] for address in ("0", "1", "2")}) == 3  # of the ReLU there is no score
    page.get_by_label("Hypothesis").select_option("bright")
    expect(page.get_by_label("Target", exact=True)).to_have_value("bright")
    expect(page.locator(".panel.plot h2")).to_have_text("Correlation of bright")


def test_units_are_ranked_by_strength_at_the_epoch_of_the_slider(visit: Open, tmp_path: Path) -> None:
    """A negative detector is the best unit: in the table, which follows the slider, and in the graph."""
    import numpy as np
    import torch

    from intus import inspect

    truth = np.tile([0.0, 1.0], 200)
    noise = np.random.default_rng(0).normal(size=(400, 3))
    data = np.column_stack([truth, noise]).astype(np.float32)

    def model(first: float) -> torch.nn.Module:
        encoder = torch.nn.Linear(4, 3, bias=False)
        with torch.no_grad():
            encoder.weight[:] = torch.eye(4)[1:]
            encoder.weight[1, 0] = first  # unit 1 follows the truth with this sign
            encoder.weight[2, 0] = 0.8
        return torch.nn.Sequential(OrderedDict(enc=encoder))

    server = PageServer()
    table = inspect(
        {0: model(0.1), 3: model(-1.0), 20: model(-4.0)},
        {"truth": truth},
        ["correlation", "auroc"],
        data,
        "enc",
        store=str(server.database.url.database),
        run="planted",
    )
    page = settled(visit(server, "#score=correlation"), 3)
    body = page.locator(".units tbody")

    def slide_to(place: int, epoch: int) -> None:
        slide(page, place)
        expect(page.locator(".units .head > .soft")).to_have_text(
            f"3 units · epoch {epoch} · strength: |value|"
        )

    for place, epoch, best in ((2, 20, 1), (0, 0, 2)):
        slide_to(place, epoch)
        stored = table[(table.epoch == epoch) & (table.score == "correlation")].set_index("unit")
        assert stored.value.abs().sort_values().index[-1] == best  # as planted
        shown = body.locator("td.figure:nth-child(3)").all_inner_texts()
        assert body.locator("th").all_inner_texts()[0] == f"enc[{best}]"
        if epoch == 20:
            assert shown[0] == f"{stored.value[1]:.3f}".replace("-", "−")
            assert stored.value[1] < -0.8 < 0 < stored.value[2]
            assert float(body.locator("td:nth-child(6)").first.inner_text()) > 0.6  # above the baseline
        legend = rows(page)
        names = body.locator("th").all_inner_texts()
        assert [legend[name] for name in names] == [text.strip() for text in shown]
        assert (colours(page)["enc"] == TOP) == (epoch == 20)
    expect(page.locator(".ig-legend")).to_contain_text("best unit by |value|")
    strongest = table[table.score == "correlation"].value.abs().max()
    expect(page.locator(".ig-scale-ends")).to_have_text(f"0{strongest:.3f}")
    slide_to(2, 20)
    assert colours(page)["enc"] == TOP
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download the plot as SVG").click()
    picture = saved.value.path().read_text()
    dashed = re.findall(
        r'd="M[\d.]+ ([\d.]+)[^"]*" fill="none" stroke="[^"]*" stroke-dasharray="5 4"', picture
    )
    zero = re.findall(r'y="([\d.]+)" [^>]*>0</text>', picture)[
        0
    ]  # of the values, which come before the epochs
    above, below = map(float, dashed)  # the baseline is drawn on both sides of 0
    assert (above + below) / 2 == pytest.approx(float(zero) - 4, abs=0.2)
    assert abs(below - above) > 10
    page.get_by_label("Score", exact=True).last.select_option("auroc")
    expect(page.locator(".units .head > .soft")).to_have_text("3 units · epoch 20 · strength: |value − 0.5|")
    assert body.locator("th").first.inner_text() == "enc[1]"  # an area of almost 0
    area = body.locator("td.figure:nth-child(3)").first.inner_text().replace("−", "-")
    assert float(area) < 0.01


def test_names_with_markup_are_text(visit: Open) -> None:
    nasty = '<img src=x onerror="document.title=1">'
    server = PageServer((nasty, "</script>", "x" * 500, "\u202eright to left", ""))
    server.add_run(nasty, 2)
    server.add_notice("warning", nasty, nasty)
    page = settled(visit(server), 5)
    assert page.locator("img").count() == 0
    assert page.locator(".layers .focus").count() == 0
    page.get_by_role("option", name="(the model)").click()  # the address of the model itself is empty
    expect(page.locator(".layers [aria-selected=true]")).to_have_attribute("data-key", "")
    expect(page).to_have_url(re.compile("&address=$"))
    expect(page.locator(".notice-list")).to_contain_text(nasty)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


#: Every text of the page that somebody reads or hears, without the places that hold raw values.
READ = """() => {
  const names = ["title", "aria-label", "placeholder", "alt", "label"];
  const texts = [document.title, document.body.innerText];
  for (const element of document.querySelectorAll("body *")) {
    texts.push(...names.map(name => element.getAttribute(name) ?? ""), element.textContent);
    if (element.matches("input:not([type=checkbox])")) texts.push(element.value);
  }
  return texts.join(" ");
}"""


@pytest.mark.parametrize("runs", [2, 22])
def test_characters_that_turn_or_hide_text_are_replaced(visit: Open, runs: int) -> None:
    turned = "a\u202egnp.exe\u2066 \u0007b"
    server = PageServer((f"layer {turned}", "fc"))
    for number in range(runs - 1):
        server.add_run(f"{number} {turned}", 1)
    server.add_run(
        turned,
        2,
        units=True,
        change=lambda row: row | {"target": row["target"] and f"target {turned}", "note": f"note {turned}"},
    )
    server.add_notice("warning", turned, f"first line\nsecond {turned}")
    page = settled(visit(server, f"#run={quote(turned)}&model=DigitsNet"), 2)
    page.get_by_role("option", name="layer").click()
    expect(page).to_have_title("a\ufffdgnp.exe\ufffd \ufffdb · intus")
    expect(page.locator(".strip-text")).to_contain_text("first line second a\ufffdgnp")
    expect(page.locator(".layers [aria-selected=true]")).to_have_attribute("data-key", f"layer {turned}")
    field = page.get_by_role("combobox", name="Run", exact=True)
    if runs > 20:
        expect(field).to_have_value("a\ufffdgnp.exe\ufffd \ufffdb · DigitsNet")
        field.click()
        expect(page.locator(".choices [role=option]").first).to_be_visible()
    read = page.evaluate(READ)
    assert "target a\ufffdgnp" in read
    assert [hex(ord(c)) for c in sorted(set(read)) if c in "\u202e\u2066\u0007"] == []


@pytest.mark.long
def test_theme_switch_is_saved(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Switch between light and dark").click()
    until(page, f"getComputedStyle(document.body).backgroundColor !== {light!r}")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    settled(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    assert marker(page) > 0.9


ACCESS = """() => {
  const named = e => e.getAttribute("aria-label") || e.textContent.trim() || e.title
    || [...(e.labels ?? [])].some(l => l.textContent.trim());
  const seen = e => e.checkVisibility();
  const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
  return {
    nameless: [...document.querySelectorAll("button, select, input, [role=img], [role=listbox]")]
      .filter(e => seen(e) && !named(e)).map(e => e.outerHTML.slice(0, 80)),
    doubled: ids.filter((id, i) => ids.indexOf(id) !== i),
    inside: document.querySelectorAll("ul > :not(li)").length,
    landmark: document.querySelectorAll("main").length,
    language: document.documentElement.lang,
  };
}"""


def test_controls_have_accessible_names(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    found = page.evaluate(ACCESS)
    assert found == {"nameless": [], "doubled": [], "inside": 0, "landmark": 1, "language": "en"}


@pytest.mark.parametrize("size", [(1280, 800), (900, 700), (390, 800)])
def test_no_horizontal_overflow(visit: Open, server: PageServer, size: tuple[int, int]) -> None:
    page = visit(server)
    page.set_viewport_size({"width": size[0], "height": size[1]})
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


@pytest.mark.parametrize("wide", [1400, 1310])
def test_toolbar_of_narrow_graph_is_one_row(visit: Open, wide: int) -> None:
    # A recurrent model has the toolbar with all buttons.
    page = visit(plausible(graph=MODELS["recurrent"]()))
    page.set_viewport_size({"width": wide, "height": 800})
    settled(page)
    bar = page.locator(".panel.graph .ig-toolbar").bounding_box()
    assert 520 <= bar["width"] < 600
    tools = page.locator(".ig-toolbar").locator("button:visible, select:visible, input:visible").all()
    boxes = [tool.bounding_box() for tool in tools]
    assert len(boxes) == 11
    assert len({round(box["y"] + box["height"] / 2) for box in boxes}) == 1
    for left, right in itertools.pairwise([*boxes, {"x": bar["x"] + bar["width"]}]):
        assert left["width"] >= 28
        assert left["x"] + left["width"] <= right["x"]


def test_scale_of_narrow_graph_covers_no_node(visit: Open, server: PageServer) -> None:
    page = visit(server)
    page.set_viewport_size({"width": 380, "height": 800})
    settled(page)
    scale, picture = page.locator(".panel.graph .ig-scale"), page.locator(".panel.graph .ig-canvas")
    panel = page.locator(".panel.graph").bounding_box()

    def beside(part: Locator) -> bool:
        """Return if a part is below the picture and inside the panel."""
        box, drawn = part.bounding_box(), picture.bounding_box()
        return (
            box["y"] >= drawn["y"] + drawn["height"] - 1
            and box["y"] + box["height"] <= panel["y"] + panel["height"] + 1
            and drawn["height"] >= 150
        )

    assert beside(scale)
    page.get_by_role("option", name="fc1").click()
    expect(page.locator(".panel.graph .ig-panel")).to_be_visible()
    expect(scale).to_be_hidden()
    assert beside(page.locator(".panel.graph .ig-panel"))


@pytest.mark.long
def test_heat_map_of_narrow_page_is_painted(visit: Open, server: PageServer) -> None:
    page = visit(server)
    page.set_viewport_size({"width": 380, "height": 800})
    settled(page)
    page.locator(".heat canvas").scroll_into_view_if_needed()
    colours = (
        "new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
    )
    until(page, f"(c => c.width && {colours} > 50)(document.querySelector('.heat canvas'))")
