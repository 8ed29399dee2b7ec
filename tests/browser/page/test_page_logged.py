"""Logged values, the mean over seeds and findings on the page, with a real server."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect
from sklearn.datasets import load_digits

import intus
from intus.serving.run import Server

pytestmark = pytest.mark.browser

DIGITS = load_digits()
IMAGES, LABELS = torch.tensor(DIGITS.data[:300] / 16).float(), DIGITS.target[:300]


def record(server: Server, run: str, seed: int, **facts: object) -> None:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 8))
    probe_set = IMAGES, {"digit": LABELS}
    with intus.probe(model, server.host, server.port, run=run, probe_set=probe_set, **facts) as watch:
        for watch.epoch in range(2):
            for _ in range(600):
                watch.log(loss=math.nan if watch.step == 700 else 1 / (1 + watch.step))
                watch.step += 1
            watch.log({"val/f1": 0.5 * watch.epoch})
            model(IMAGES)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("logged")
    with Server(database=folder / "x.db", port=0) as running:
        for seed in range(3):
            record(running, f"seed {seed}", seed, config={"width": 8, "seed": seed})
        record(running, "alone", 0)
        assert intus.flush(running.host, running.port)
        yield running


def test_logged_values_are_below_the_plot(server: Server, new_page: Callable[..., Page]) -> None:
    page = new_page()
    page.goto(f"{server.page_url}#run=alone&model=Sequential")
    curves = page.locator(".logged li")
    expect(curves).to_have_count(2)
    loss = curves.nth(0)
    expect(loss.locator("b")).to_have_text("loss")
    expect(loss.locator("p")).to_have_text(
        "8.33e−4 – 1.000 · step 0 – 1199 · extremes of 1,200 · 1 NaN or infinite"
    )
    assert loss.locator("path").nth(0).get_attribute("d").count("M") == 1  # the mark of NaN
    assert loss.locator("path").nth(1).get_attribute("d").count("M") == 2  # the line is interrupted
    page.get_by_label("Over", exact=True).select_option("epoch")
    expect(curves.nth(1).locator("p")).to_have_text("0 – 0.500 · epoch 0 – 1")
    expect(page.locator(".notice-list")).to_contain_text("loss is NaN at step 699. It was")


@pytest.mark.long
def test_curves_grow_while_values_are_logged(server: Server, new_page: Callable[..., Page]) -> None:
    page = new_page()
    record(server, "live", 1)
    assert intus.flush(server.host, server.port)
    page.goto(f"{server.page_url}#run=live&model=Sequential")
    expect(page.locator(".logged li")).to_have_count(2)
    with intus.probe(
        torch.nn.Linear(64, 8), server.host, server.port, run="live", name="Sequential"
    ) as watch:
        watch.log(extra=2, step=1)
    expect(page.locator(".logged li b")).to_have_text(["extra", "loss", "val/f1"])


@pytest.mark.long
def test_mean_over_seeds(server: Server, new_page: Callable[..., Page]) -> None:
    page = new_page()
    page.goto(f"{server.page_url}#run=seed+1&model=Sequential&score=linear_f1&target=digit")
    button = page.get_by_role("button", name="Mean over 3 runs")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".panel.plot h2")).to_have_text(
        "Linear probe, macro F1 of digit, mean of 3 runs and 95 % interval"
    )
    expect(page.locator(".panel.plot")).not_to_contain_text("held-out item")  # the interval of a single run
    table = intus.runs(f"{server.host}:{server.port}").grouped(target="digit", score="linear_f1")
    newest = table[(table["epoch"] == 1) & (table["address"] == "0")]["value"].item()
    expect(page.locator(".layers li[data-key='0'] .value")).to_have_text(f"{newest:.3f}")
    page.reload()
    expect(button).to_have_attribute("aria-pressed", "true")
    page.goto(f"{server.page_url}#run=alone&model=Sequential&group=true")
    expect(page.locator(".panel.plot h2")).not_to_contain_text("mean of")
    expect(page.get_by_role("button", name="Mean over")).to_be_hidden()
