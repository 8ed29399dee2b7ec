"""Real notebook programs in a separate environment (`make notebooks`) that imports this package."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venvs" / "notebooks" / "bin"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason="needs notebook programs and Chromium: make notebooks")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("notebooks")
            if not BIN.is_dir() or CHROMIUM is None:
                item.add_marker(missing)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return environment variables with which a program finds this package, and no user configuration."""
    home = tmp_path_factory.mktemp("home")
    paths = [str(ROOT / "src"), sysconfig.get_paths()["purelib"]]
    return os.environ | {
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
    }


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def serve(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """``with serve("jupyter-lab", *options, ready="/api/status") as url``: a server on a free port."""

    @contextmanager
    def running(program: str, *options: str, ready: str = "/") -> Iterator[str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        path = tmp_path_factory.mktemp("server") / "log"
        with path.open("w") as log:
            asked = [str(BIN / program), *(option.replace("PORT", str(port)) for option in options)]
            server = subprocess.Popen(asked, env=environment, stdout=log, stderr=log)
            url = f"http://127.0.0.1:{port}"
            try:
                for _ in range(360):
                    try:
                        urllib.request.urlopen(url + ready, timeout=2).read()
                        break
                    except OSError:
                        assert server.poll() is None, path.read_text()
                        time.sleep(0.25)
                yield url
            finally:
                server.terminate()
                try:
                    server.wait(20)
                except subprocess.TimeoutExpired:  # marimo waits for pages that are still open
                    server.kill()
                    server.wait(20)

    return running


@pytest.fixture(scope="session")
def write_notebook() -> Callable[[Path, list[str]], Path]:
    """Return a function that writes a notebook of cells that have not run."""

    def write(path: Path, sources: list[str]) -> Path:
        blank = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
        cells = [blank | {"id": f"cell{number}", "source": source} for number, source in enumerate(sources)]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}))
        return path

    return write


@pytest.fixture
def picture() -> Callable[[Any, str], None]:
    """Return a function that saves a screenshot in the folder INTUS_PICTURES, if that is set."""

    def keep(page: Any, name: str) -> None:
        if folder := os.environ.get("INTUS_PICTURES"):
            page.screenshot(path=Path(folder) / f"{name}.png")

    return keep


@pytest.fixture(scope="session")
def check_graph() -> Callable[..., None]:
    """Return a function that checks that the graph in a cell's frame is drawn and can be navigated."""

    def check(page: Any, number: int = 0) -> None:
        page.wait_for_function(
            "(n) => document.querySelectorAll('iframe[srcdoc]').length > n", arg=number, timeout=90_000
        )
        frame = page.query_selector_all("iframe[srcdoc]")[number].content_frame()
        view = "document.querySelector('#intus-graph')"
        frame.wait_for_function(f"Boolean({view}?.intusView)")
        labels = frame.evaluate(f"{view}.intusView.boxes().map((box) => box.label)")
        assert labels == ["input", "0", "1", "2", "output_1"]
        frame.locator(".ig-search input").fill("relu")
        frame.locator(".ig-found li").first.click()
        assert frame.locator(".ig-panel h2").inner_text() == "1"

    return check
