"""The live page with incomplete, extreme and loading data, with axe-core, and with a server that dies."""

from __future__ import annotations

import csv
import io
import re
import socket
import xml.etree.ElementTree as ET
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from page_server import LAYERS, MODEL, PageServer, plausible
from playwright.sync_api import Page, expect
from torch import nn
from waiting import answered, eventually, until

from intus.core.notes import Facts
from intus.core.results import Results
from intus.serving.run import Server
from intus.storage.database import Database
from intus.tracing.run import trace

pytestmark = pytest.mark.browser
AXE = Path(__file__).parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"
Open = Callable[..., Page]


def settled(page: Page, layers: int = len(LAYERS)) -> Page:
    expect(page.locator(".layers li")).to_have_count(layers)
    answered(page)
    return page


def saved(page: Page, form: str, folder: Path) -> Path:
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Download the plot as {form}").click()
    download.value.save_as(folder / f"plot.{form.lower()}")
    return folder / f"plot.{form.lower()}"


def test_header_counts_of_current_run(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    expect(page.locator(".counts [data-key=dropped]")).to_have_text("3dropped")
    scores = page.locator(".counts [data-key=scores]").inner_text()
    page.get_by_label("Run", exact=True).select_option('["first try","DigitsNet"]')
    expect(page.locator(".counts [data-key=sent]")).to_have_text("not known:what was sent")  # and not 0
    expect(page.locator(".counts [data-key=scores]")).not_to_have_text(scores, use_inner_text=True)


@pytest.mark.long
def test_page_says_why_nothing_can_be_scored_now(visit: Open, server: PageServer) -> None:
    page, why = settled(visit(server)), "2 data points wait. The database's file was deleted."
    alert = page.locator(".trouble")
    expect(alert).to_be_hidden()
    server.count("digits", sent=10, kept=10, scored=8, waiting=2, queued=2, trouble=why)
    server.add_notice("info", "graph", "Something changed, so that pages ask.")
    expect(alert).to_have_text(why)
    expect(page.locator(".counts [data-key=waiting]")).to_have_text("2waiting, not scored now")
    server.count("digits", sent=10, kept=10, scored=10)
    expect(alert).to_be_hidden()  # without a change of scores


@pytest.mark.long
def test_header_counts_what_waits_and_how_long(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    server.count("digits", sent=3000, kept=3000, scored=725, waiting=2275, queued=2275, seconds_left=70.0)
    server.add_notice("info", "graph", "Something changed, so that pages ask.")
    expect(page.locator(".counts [data-key=waiting]")).to_have_text("2,275waiting, 70 s left")
    postponed = page.locator(".counts [data-key=postponed]")
    expect(postponed).to_have_count(0)
    counts = {"waiting": 2275, "queued": 2275, "postponed": 180, "seconds_left": 70}
    server.count("digits", sent=3000, kept=3000, scored=725, **counts)
    expect(postponed).to_have_text("180layers of older epochs wait")
    expect(postponed).to_have_attribute("title", re.compile("These are scored when there is time"))
    server.count("digits", sent=3000, kept=3000, scored=3000, dropped=3)
    expect(postponed).to_have_count(0)
    expect(page.locator(".counts [data-key=waiting]")).to_have_text("0waiting")  # without a change of scores


def test_point_changed_by_late_rows_is_marked(visit: Open, server: PageServer, tmp_path: Path) -> None:
    page = settled(visit(server, "#run=digits&model=DigitsNet&epoch=2"))
    changed = "1 point changed after the first scoring, as by late rows or another training under its name"
    expect(page.locator(".plot .heading")).to_contain_text(f"{changed} (diamond).")
    expect(page.locator("[data-key=fc2] .value")).to_have_attribute("title", "revision 1")
    table = list(csv.DictReader(io.StringIO(saved(page, "CSV", tmp_path).read_text())))
    assert [(row["address"], row["epoch"]) for row in table if row["revision"] != "0"] == [("fc2", "2")]
    assert "m0 -9l9 9l-9 9l-9 -9z" in saved(page, "SVG", tmp_path).read_text()


def test_scores_of_few_rows_are_marked(visit: Open) -> None:
    few = {"n": 3, "note": "matched 16 of 1797 labels"}
    server = PageServer()
    server.add_run("digits", 13, change=lambda row: row | few if row["epoch"] == 12 else row)
    page = settled(visit(server))
    expect(page.locator(".doubts")).to_contain_text("11 from part of the rows (ring)")
    expect(page.locator(".plot .heading")).to_contain_text("“matched 16 of 1797 labels” on 10 points")
    expect(page.locator(".layers .partial")).to_have_count(10)


def test_points_of_changing_weights_are_said_below_the_title(visit: Open) -> None:
    server = PageServer()
    modes = {"own": "train", "fixed": "probe"}
    for run, mode in modes.items():
        server.add_run(run, 3, change=lambda row, mode=mode: row | {"mode": mode, "step": -1})
    page = settled(visit(server, f"#run=own&model={MODEL}"))
    heading = page.locator(".plot .heading")
    caption = "recorded while the weights changed; the model at the end of the epoch may know more"
    expect(heading).to_contain_text(caption)
    page.get_by_label("Run", exact=True).select_option(f'["fixed","{MODEL}"]')
    expect(heading).not_to_contain_text(caption)
    page.get_by_label("Run", exact=True).select_option(f'["own","{MODEL}"]')
    expect(heading).to_contain_text(caption)
    page.get_by_label("Score", exact=True).first.select_option("mean")
    expect(heading).not_to_contain_text(caption)  # it is no knowledge of a target


def test_plot_is_busy_while_loading(visit: Open, server: PageServer) -> None:
    page = settled(visit(server))
    with server.pause():
        page.get_by_label("Target", exact=True).select_option("even")
        expect(page.locator(".panel.plot")).to_have_attribute("aria-busy", "true")
    expect(page.locator(".panel.plot")).to_have_attribute("aria-busy", "false")


def only_nan() -> tuple[PageServer, int, str]:
    nan = dict.fromkeys(("value", "low", "high", "baseline"), None) | {"note": "nan"}
    server = PageServer(("a", "b", "c"))
    server.add_run("blown up", 4, change=lambda row: row | nan)
    return server, 3, "12 without a value (cross)"


def one_layer_once() -> tuple[PageServer, int, str]:
    server = PageServer(("only",))
    server.add_run("short", 1)
    return server, 1, "1 layer · epoch 0"


def long_names() -> tuple[PageServer, int, str]:
    """Use names of the maximum length."""
    server = PageServer(("x" * 1000, "\u202eright to left", "שלום עולם", "block." * 40 + "leaf"))
    server.add_run("run " * 250, 2)
    server.add_notice("warning", "long", "w" * 1000)
    return server, 4, "4 layers · epoch 1"


def five_models() -> tuple[PageServer, int, str]:
    server = PageServer()
    for number in range(5):
        server.add_run("five", 2, model=f"model {number}")
    return server, len(LAYERS), "10 layers · epoch 1"


@pytest.mark.parametrize("make", [only_nan, one_layer_once, long_names, five_models])
def test_extreme_runs_fit_and_can_be_downloaded(
    visit: Open, tmp_path: Path, make: Callable[[], tuple[PageServer, int, str]]
) -> None:
    server, layers, heading = make()
    page = settled(visit(server), layers)
    expect(page.locator(".plot .heading")).to_contain_text(heading)
    expect(page.get_by_label("Run", exact=True).locator("option")).to_have_count(len(server.database.runs()))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    rows = csv.DictReader(io.StringIO(saved(page, "CSV", tmp_path).read_text()))
    assert {row["address"] for row in rows} == set(server.layers)


@pytest.mark.parametrize(
    ("layers", "is_open"), [(("block", "head"), False), (("block", "block.0", "head"), True)]
)
def test_module_without_scores_inside_is_closed(
    visit: Open, layers: tuple[str, ...], *, is_open: bool
) -> None:
    block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model = nn.Sequential(OrderedDict(block=block, head=nn.Linear(4, 2)))
    server = PageServer(layers, trace(model, torch.zeros(1, 4), save="none").graph)
    server.add_run("blocks", 2)
    page = settled(visit(server), len(layers))
    view = "document.querySelector('.graph-host').intusView"
    until(page, f"Boolean({view})")
    boxes = {box["address"]: box for box in page.evaluate(f"{view}.boxes()")}
    assert boxes["block"]["open"] is is_open
    assert boxes["block"]["colour"].startswith("rgb")
    assert ("block.0" in boxes) is is_open


PAINTED = """canvas => {
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] === 255) seen.add(data.slice(at, at + 3).join());
  return [...seen];
}"""


@pytest.mark.long
def test_heat_map_uses_color_scale_of_graph(visit: Open) -> None:
    page = settled(visit(plausible(60, 7)), 60)
    page.locator(".heat canvas").scroll_into_view_if_needed()

    def colours() -> set[str]:
        return set(page.locator(".heat canvas").evaluate(PAINTED))

    # the ends of the scale: the least and the largest value
    eventually(page, lambda: {"68,1,84", "253,231,37"} <= colours())
    assert len(colours()) > 100


def test_saved_svg_with_special_characters_is_valid(
    visit: Open, new_page: Callable[..., Page], tmp_path: Path
) -> None:
    nasty = ("<b>&amp;", "a\u0007bell", "b\uffff", "]]>")
    server = PageServer(nasty)
    server.add_run('"quoted" & <tagged>', 3)
    page = settled(visit(server), 4)
    file = saved(page, "SVG", tmp_path)
    texts = [text.text for text in ET.parse(file).iter("{http://www.w3.org/2000/svg}text")]
    assert {"<b>&amp;", "a\ufffdbell", "b\ufffd", "]]>"} <= set(texts)
    picture = new_page()
    picture.goto(file.as_uri())
    assert picture.evaluate("document.documentElement.tagName") == "svg"
    assert picture.evaluate("document.querySelector('parsererror')") is None
    assert picture.evaluate("document.querySelectorAll('path').length") >= 4


@pytest.mark.long
@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: run `npm ci` in web/")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Open, server: PageServer, scheme: str) -> None:
    for shown in (server, plausible(40, 3), PageServer()):
        page = visit(shown)
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        expect(page.locator(".link")).to_have_text("Live")
        settled(page, len(shown.layers) if shown.epochs else 0)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate(
            "axe.run(document, { resultTypes: ['violations'] }).then((result) => result.violations)"
        )
        assert [
            f"{one['id']}: {one['help']} {[node['html'][:120] for node in one['nodes']]}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ] == []


@pytest.mark.long
def test_target_of_numbers_is_shown_with_its_own_score(new_page: Callable[..., Page]) -> None:
    page, numbers = (
        new_page(),
        f"{Facts(are_numbers=True).note}; more than 50 classes: the discriminant alone",
    )
    about = {"run": "ages", "model": MODEL, "address": "fc1", "n": 400}
    with PageServer() as shown:
        for epoch in (0, 1):
            of_age = about | {"epoch": epoch, "target": "age"}
            shown.add(
                [
                    of_age | {"score": "linear_f1", "value": 0.0, "note": numbers},
                    of_age | {"score": "r2", "value": 0.9},
                    about | {"epoch": epoch, "target": "digit", "score": "linear_f1", "value": 0.8},
                ]
            )
        page.goto(shown.url)
        heading = page.locator("h2").filter(has_text=" of ")
        expect(heading).to_have_text("Linear regression, R² of age")
        target = page.get_by_label("Target", exact=True)
        target.select_option("digit")
        expect(heading).to_have_text("Linear probe, macro F1 of digit")
        target.select_option("age")
        expect(heading).to_have_text("Linear regression, R² of age")
        page.get_by_label("Score", exact=True).first.select_option("linear_f1")
        expect(heading).to_have_text("Linear probe, macro F1 of age")  # what the user chose
        page.close()


@pytest.mark.long
def test_request_without_an_answer_is_repeated(new_page: Callable[..., Page], server: PageServer) -> None:
    page = new_page()
    with server:
        page.goto(server.url)
        settled(page)
        page.route("**/api/points*", lambda route: route.abort())
        page.get_by_label("Target", exact=True).select_option("even")
        silent = "The server does not answer. The page goes on when it does."
        expect(page.get_by_role("alert")).to_have_text(silent)
        expect(page.locator(".link")).to_have_text("Live")
        page.unroute("**/api/points*")
        expect(page.locator(".trouble")).to_be_hidden(timeout=10_000)
        expect(page.locator(".plot")).to_have_attribute("aria-busy", "false")
        page.close()


def points_of(epoch: int) -> Results:
    where = {"run": ["r", "r"], "model": ["m", "m"], "address": ["a", "b"], "epoch": [epoch, epoch]}
    return Results(where | {"score": ["linear_f1"] * 2, "target": ["t"] * 2, "value": [0.1 * epoch, 0.2]})


@pytest.mark.long
def test_restarted_server_is_reconnected(new_page: Callable[..., Page], tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"database": tmp_path / "x.db", "port": port, "no_token": True}
    page = new_page()
    with Server(**options) as server, Database(tmp_path / "x.db") as database:
        database.add(points_of(0))
        page.goto(server.page_url)
        expect(page.locator(".epoch")).to_have_text("epoch 0 of 0")
        server.process.kill()
        server.process.wait()
        expect(page.locator(".link")).to_have_text("Reconnecting", timeout=10_000)
        silent = "The server does not answer. The page goes on when it does."
        expect(page.get_by_role("alert")).to_have_text(silent)
        page.goto(f"{page.url.partition('#')[0]}#run=other")  # asks the server, which is not there
        expect(page.get_by_role("alert")).to_have_text(silent)
        database.add(points_of(1))
        with Server(**options):
            expect(page.locator(".link")).to_have_text("Live", timeout=30_000)
            expect(page.get_by_role("alert")).to_have_text(
                "There is no run “other”. Another is shown.", timeout=10_000
            )
            expect(page.locator(".epoch")).to_have_text("epoch 1 of 1", timeout=10_000)
