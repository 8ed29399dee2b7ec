"""`intus demo`: it trains on real digits while Chromium shows its page."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.long]

EPOCHS = 3
PAINT = (
    "Object.fromEntries(document.querySelector('.graph-host').intusView.boxes()"
    ".map(b => [b.address, b.colour]))"
)
VALUES = (
    "Object.fromEntries([...document.querySelectorAll('.layers li')]"
    ".map(i => [i.dataset.key, i.querySelector('.value').textContent]))"
)


class Demo:
    """A process of `intus demo`; ``lines`` contains its output so far."""

    def __init__(self, folder: str) -> None:
        command = [sys.executable, "-m", "intus", "demo", "--port", "0", "--epochs", str(EPOCHS)]
        self.process = subprocess.Popen(
            [*command, "--database", os.path.join(folder, "demo.db")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl+C in a terminal interrupts the whole process group
        )
        self.lines: list[str] = []
        self._grew = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                with self._grew:
                    self.lines.append(line.rstrip())
                    self._grew.notify_all()

    def wait_for(self, pattern: str, seconds: float = 180) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            return next((m for line in self.lines if (m := re.search(pattern, line))), None)

        with self._grew:
            match = self._grew.wait_for(found, seconds)
        assert match, f"{pattern!r} was not printed within {seconds} s:\n" + "\n".join(self.lines)
        return match

    def interrupt(self) -> int:
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    running = Demo(str(tmp_path_factory.mktemp("demo")))
    yield running
    if running.process.poll() is None:
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()


def box(page: Page, address: str) -> dict[str, object]:
    boxes = page.evaluate("document.querySelector('.graph-host').intusView.boxes()")
    return next(b for b in boxes if b["address"] == address)


def click_header(page: Page, address: str) -> None:
    """Click the arrow in the corner of a module's box."""
    at = box(page, address)
    canvas = page.locator(".graph-host canvas").first.bounding_box()
    assert canvas is not None
    page.mouse.click(canvas["x"] + at["x"] + 14, canvas["y"] + at["y"] + 14)


def slide(page: Page, index: int) -> None:
    slider = page.get_by_label("Epoch", exact=True)
    slider.evaluate(
        "(s, v) => { s.value = v; s.dispatchEvent(new Event('input', { bubbles: true })) }", str(index)
    )


def test_page_of_a_training_is_live_and_complete(demo: Demo, new_page: Callable[..., Page]) -> None:
    address = demo.wait_for(r"Watch it learn: (http://\S+)").group(1)
    page = new_page(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
    page.goto(address)

    # The layers appear during the training, and the slider grows without a reload.
    page.get_by_label("Epoch", exact=True).wait_for(timeout=120_000)
    until(page, "document.querySelectorAll('.layers li').length >= 14", 120)
    seen = int(page.get_by_label("Epoch", exact=True).get_attribute("max") or 0)
    demo.wait_for(r"The page stays up")
    until(page, f"Number(document.querySelector('input[type=range]').max) === {EPOCHS}", 60)
    assert seen < EPOCHS, "the page showed nothing before the training ended"

    # The graph is of the first pass of the training; a click opens or closes a module.
    until(page, "Boolean(document.querySelector('.graph-host')?.intusView)", 30)
    assert box(page, "features")["open"]
    assert "features.2" in page.evaluate(PAINT)
    click_header(page, "features")
    until(page, f"!('features.2' in {PAINT})")
    click_header(page, "features")
    until(page, f"'features.2' in {PAINT}")

    # The slider changes colors and values: epoch 0 is the untrained network.
    after, paint_after = page.evaluate(VALUES), page.evaluate(PAINT)
    slide(page, 0)
    until(page, f"({VALUES})['classifier.3'] !== '{after['classifier.3']}'")
    before, paint_before = page.evaluate(VALUES), page.evaluate(PAINT)
    assert float(after["classifier.3"]) > float(before["classifier.3"]) + 0.1
    assert paint_after != paint_before
    expect(page.get_by_text(re.compile(f"epoch 0 of {EPOCHS}"))).to_be_visible()

    # Another target.
    page.get_by_label("Target", exact=True).select_option("ink above the middle")
    expect(page.get_by_role("heading", name=re.compile("of ink above the middle"))).to_be_visible()

    # The results of inspect.
    expect(page.get_by_role("heading", name="Unit scores")).to_be_visible()
    hypotheses = page.get_by_label("Hypothesis").locator("option").all_inner_texts()
    assert sorted(hypotheses) == ["open_to_the_left", "upper_loop", "upright_stroke"]


def test_demo_prints_three_findings_with_figures(demo: Demo) -> None:
    demo.wait_for(r"The page stays up")
    sentences = [line for line in demo.lines if line.startswith("- ")]
    assert len(sentences) == 3
    assert all(len(re.findall(r"\d\.\d\d", sentence)) >= 3 for sentence in sentences)
    learned = re.search(r"last layer, classifier\.3, rose from (\d\.\d+) to (\d\.\d+)", sentences[0])
    assert learned
    assert float(learned.group(2)) > float(learned.group(1)) + 0.1
    assert f"Over {EPOCHS} epochs" in sentences[0]


def test_interrupt_during_training(tmp_path: Path) -> None:
    busy = Demo(str(tmp_path))
    busy.wait_for(r"epoch  1")
    assert busy.interrupt() == 130
    assert busy.lines[-1] == "Interrupted."
    assert not any("Traceback" in line for line in busy.lines), "\n".join(busy.lines)


def test_interrupt_stops_server(demo: Demo) -> None:
    address = demo.wait_for(r"Watch it learn: (http://\S+)").group(1)
    demo.wait_for(r"The page stays up")
    assert demo.interrupt() == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=5)
    assert not any("Traceback" in line for line in demo.lines), "\n".join(demo.lines)
