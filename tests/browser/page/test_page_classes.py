"""The table of confused classes and the paired comparison, on a real server with a real probe set."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect
from sklearn.datasets import load_digits
from waiting import eventually

from intus import flush, probe
from intus.scores import infos
from intus.serving.run import Server

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"
DIGITS = load_digits()
LABELS = DIGITS.target[:500]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A run of two epochs; the second layer keeps four numbers of the first, and later only one."""
    folder: Path = tmp_path_factory.mktemp("classes")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 4))
    inputs = torch.tensor(DIGITS.data[:500] / 16, dtype=torch.float32)
    with Server(no_token=True, database=folder / "x.db", port=0) as running:
        at = running.host, running.port
        labels = {"digit": LABELS, "item": [f"no. {number}" for number in range(500)]}
        with probe(model, *at, run="r", name="Net", probe_set=(inputs, labels)) as watch:
            for watch.epoch in range(2):
                watch.run_probe_set()
                with torch.no_grad():
                    model[1].weight[1:] = 0
        assert flush(*at)
        yield running


def read(server: Server, path: str, **query: object) -> dict:
    url = f"{server.page_url}api/{path}?{urllib.parse.urlencode({'run': 'r', 'model': 'Net'} | query)}"
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)


@pytest.mark.long
def test_classes_of_selected_layer(server: Server, new_page: Callable[..., Page]) -> None:
    page = new_page()
    page.goto(f"{server.page_url}#run=r&model=Net&score=linear_f1&target=digit")
    panel = page.locator(".panel.classes")
    expect(page.locator(".layers li")).to_have_count(3)
    expect(panel).to_be_hidden()  # no layer is selected
    page.locator(".layers li[data-key='1']").click()
    expect(panel.locator("h2")).to_have_text("Classes of digit at 1")
    table = read(server, "confusion", address="1", target="digit", score="linear_f1", epoch=1)
    expect(panel.locator("tbody tr")).to_have_count(10)
    cells = panel.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.querySelectorAll('.count')].map(n => Number(n.textContent) || 0))"
    )
    assert cells == table["matrix"]
    held_out = int(np.sum(cells))
    expect(panel).to_contain_text(f"epoch 1 · rows are true, columns predicted, {held_out} held-out rows")
    found = panel.locator("tbody .figure:not(.soft)").all_inner_texts()
    assert [float(text) for text in found] == pytest.approx(table["f1"], abs=6e-4)

    def widths() -> list[float]:
        return panel.locator(".bar > span").evaluate_all(
            "bars => bars.map(bar => bar.offsetWidth / bar.parentElement.offsetWidth)"
        )

    eventually(page, lambda: widths() == pytest.approx(table["f1"], abs=0.02))  # they grow in an animation

    page.get_by_label("Epoch", exact=True).press("ArrowLeft")
    expect(panel).to_contain_text("epoch 0 · rows")
    scores = page.get_by_role("combobox", name="Score", exact=True)
    for score in ("lda_accuracy", "mean"):  # of the same predictions as lda_f1; no classifier
        scores.fill(infos()[score].label)
        scores.press("Enter")
        expect(page).to_have_url(re.compile(f"score={score}&"))
        expect(panel).to_be_visible(visible=score != "mean")


def test_paired_comparison(server: Server, new_page: Callable[..., Page]) -> None:
    page = new_page()
    page.goto(f"{server.page_url}#run=r&model=Net&score=linear_f1&target=digit&address=0&epoch=1")
    versus = page.get_by_label("Compare with", exact=True)
    point = {"address": "0", "target": "digit", "score": "linear_f1", "epoch": 1}
    versus.select_option(label="1")
    gap = read(server, "above", **point, other_address="1")
    sentence = page.locator(".classes [role=status]")
    expect(sentence).to_have_text(
        f"{gap['value']:.3f} above 1 (95 % interval {gap['low']:.3f} – {gap['high']:.3f}), p < 0.0001, on "
        f"the same {gap['n']} held-out rows."
    )
    versus.select_option(label="epoch 0")
    expect(sentence).to_have_text(
        f"Equal to epoch 0 (95 % interval 0 – 0), p = 1.000, on the same {gap['n']} held-out rows."
    )
    page.locator(".layers li[data-key='1']").click()
    expect(sentence).to_contain_text("below epoch 0 (95 % interval −")
    versus.select_option(label="nothing")
    expect(sentence).to_be_hidden()


def test_interval_of_a_score_is_described(server: Server, new_page: Callable[..., Page]) -> None:
    page = new_page()
    with urllib.request.urlopen(f"{server.page_url}api/runs", timeout=20) as answer:
        infos = {info["name"]: info for info in json.load(answer)["scores"]}
    for score in ("linear_f1", "kmeans_ami"):
        assert infos[score]["interval"]
        page.goto(f"{server.page_url}#run=r&model=Net&score={score}&target=digit")
        expect(page.locator(".panel.plot")).to_contain_text(
            f"Interval: {infos[score]['interval']}. Baseline: "
        )


@pytest.mark.long
@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: run `npm ci` in web/")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_classes(
    server: Server, new_page: Callable[..., Page], scheme: str
) -> None:
    page = new_page(color_scheme=scheme)
    page.goto(f"{server.page_url}#run=r&model=Net&score=linear_f1&target=digit&address=1&epoch=1")
    expect(page.locator(".classes tbody tr")).to_have_count(10)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run('.classes', { resultTypes: ['violations'] }).then((r) => r.violations)")
    assert [
        f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found if one["impact"] != "minor"
    ] == []
