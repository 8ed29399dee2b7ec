"""A trace in a real JupyterLab: a cell's last line shows it, a reopened notebook still does, and the widget's
selection is Python's. Run by `make jupyter`, which gives JupyterLab an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LAB = ROOT / ".venvs" / "jupyter" / "bin" / "jupyter-lab"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")

pytestmark = [
    pytest.mark.jupyter,
    pytest.mark.skipif(not LAB.exists() or CHROMIUM is None, reason="needs JupyterLab: make jupyter"),
]

CELLS = [
    "import torch, intus\n"
    "net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))\n"
    "t = intus.trace(net, torch.ones(1, 4))\n"
    "t",
    "w = t.widget(depth=2)\nw",
    "w.select('linear_2')",
    "import time\ntime.sleep(2)",
    "seen = []\nw.observe(lambda change: seen.append(change['new']), 'selected')",
]


def notebook() -> dict[str, Any]:
    def code(number: int, source: str) -> dict[str, Any]:
        kind = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
        return kind | {"id": f"cell{number}", "source": source}

    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [code(number, source) for number, source in enumerate(CELLS)]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "net.ipynb").write_text(json.dumps(notebook()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tmp_path_factory.mktemp("home")
    paths = [str(ROOT / "src"), sysconfig.get_paths()["purelib"]]
    own = {
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": f"{LAB.parent}:{os.environ['PATH']}",
    }
    own |= {"JUPYTER_CONFIG_DIR": str(home / "config"), "JUPYTER_DATA_DIR": str(home / "data")}
    options = [
        "--no-browser",
        "--allow-root",
        f"--port={port}",
        "--ip=127.0.0.1",
        "--IdentityProvider.token=",
    ]
    options += [
        f"--ServerApp.root_dir={folder}",
        "--expose-app-in-browser",
        "--LabApp.extension_manager=readonly",
    ]
    with open(home / "log", "w") as log:
        server = subprocess.Popen([str(LAB), *options], env=os.environ | own, stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(240):
                try:
                    urllib.request.urlopen(f"{url}/api/status", timeout=2).read()
                    break
                except OSError:
                    assert server.poll() is None, (home / "log").read_text()
                    time.sleep(0.25)
            yield url, folder
        finally:
            server.terminate()
            server.wait(20)


def test_a_trace_shows_stays_and_shares_its_selection(lab: tuple[str, Path]) -> None:
    from playwright.sync_api import sync_playwright

    url, folder = lab
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 1500})
        page.set_default_timeout(90_000)
        page.goto(f"{url}/lab/tree/net.ipynb?reset")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.wait_for_function("window.jupyterapp?.shell.currentWidget?.sessionContext?.isReady")
        run(page, "notebook:run-all-cells")
        standing(page)
        page.wait_for_function(f"{WIDGET} && {WIDGET}.intusView")
        page.wait_for_function(f"{WIDGET}.intusView.boxes().some((box) => box.label === '2')")
        page.wait_for_function("document.querySelectorAll('.jp-InputPrompt')[4].textContent.includes('[5]')")
        picked = f"{WIDGET}.querySelector('.ig-panel h2')?.textContent"
        page.wait_for_function(f"{picked} === '2'")  # Python selects, the page shows its facts
        if os.environ.get("INTUS_PICTURES"):
            page.screenshot(path=os.environ["INTUS_PICTURES"])
        page.evaluate(f"{WIDGET}.intusView.select('0')")  # the page selects, Python is told
        page.evaluate(ADD, "print('selected', w.selected, seen[-1:])")
        run(page, "notebook:run-all-below")
        page.wait_for_function("document.body.textContent.includes(\"selected 0 ['0']\")")
        run(page, "docmanager:save")
        page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
        held = json.loads((folder / "net.ipynb").read_text())
        shown = held["cells"][0]["outputs"][0]["data"]
        assert set(shown) == {"text/html", "text/plain"}
        assert len(shown["text/html"]) < 100_000
        page.goto(f"{url}/lab/tree/net.ipynb")  # opened again, nothing run
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        standing(page)
        browser.close()


WIDGET = (
    "[...document.querySelectorAll('.jp-OutputArea-output *')].map((e) => e.shadowRoot).filter(Boolean)"
    ".map((root) => root.querySelector('div')).find((host) => host?.intusView)"
)
ADD = """(source) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = notebook.widgets.length - 1;
  notebook.activeCell.model.sharedModel.setSource(source);
}"""


def run(page: Any, command: str) -> None:
    page.evaluate("(command) => { window.jupyterapp.commands.execute(command); }", command)


def standing(page: Any) -> None:
    """The graph in the first cell's frame stands."""
    frame = page.wait_for_selector("iframe[srcdoc]").content_frame()
    frame.wait_for_function("Boolean(document.querySelector('#intus-graph')?.intusView)")
    labels = frame.evaluate(
        "document.querySelector('#intus-graph').intusView.boxes().map((box) => box.label)"
    )
    assert labels == ["input_1", "0", "1", "2", "output_1"]
