"""Traces in a real JupyterLab and Notebook: outputs, reopened notebooks, and the widget's selection."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from PIL import Image

BIN = Path(__file__).parents[2] / ".venvs" / "notebooks" / "bin"
MODEL = (
    "import torch, intus\n"
    "net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))\n"
    "t = intus.trace(net, torch.ones(1, 4))\n"
)
CELLS = [
    MODEL + "t",
    "w = t.widget(depth=2)\nw",
    "w.select('linear_2')",
    "import time\ntime.sleep(2)",
    "seen = []\nw.observe(lambda change: seen.append(change['new']), 'selected')",
]
OPTIONS = (
    *("--no-browser", "--allow-root", "--port=PORT", "--ip=127.0.0.1", "--IdentityProvider.token="),
    *("--expose-app-in-browser", "--LabApp.extension_manager=readonly"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebooks")


@pytest.fixture(scope="module")
def lab(serve: Callable[..., Any], folder: Path) -> Iterator[str]:
    with serve("jupyter-lab", *OPTIONS, f"--ServerApp.root_dir={folder}", ready="/api/status") as url:
        yield url


@pytest.fixture
def open_lab(lab: str, browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a notebook in JupyterLab, with a kernel or without."""
    pages: list[Any] = []

    def opened(name: str, *, kernel: bool = True, **options: Any) -> Any:
        page = browser.new_page(viewport={"width": 1400, "height": 1500}, **options)
        pages.append(page)
        page.set_default_timeout(90_000)
        page.goto(f"{lab}/lab/tree/{name}?reset")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        if kernel:
            page.wait_for_function("window.jupyterapp?.shell.currentWidget?.sessionContext?.isReady")
        return page

    yield opened
    for page in pages:
        page.close()


def test_trace_output_and_widget_selection(
    open_lab: Any, folder: Path, write_notebook: Any, check_graph: Any, picture: Any
) -> None:
    write_notebook(folder / "net.ipynb", CELLS)
    page = open_lab("net.ipynb")
    run(page, "notebook:run-all-cells")
    check_graph(page)
    page.wait_for_function(f"{WIDGET} && {WIDGET}.intusView")
    page.wait_for_function(f"{WIDGET}.intusView.boxes().some((box) => box.label === '2')")
    page.wait_for_function("document.querySelectorAll('.jp-InputPrompt')[4].textContent.includes('[5]')")
    picked = f"{WIDGET}.querySelector('.ig-panel h2')?.textContent"
    page.wait_for_function(f"{picked} === '2'")  # Python selects, the page shows its facts
    picture(page, "jupyterlab")
    page.evaluate(f"{WIDGET}.intusView.select('0')")  # the page selects, Python is told
    page.evaluate(ADD, "print('selected', w.selected, seen[-1:])")
    run(page, "notebook:run-all-below")
    page.wait_for_function("document.body.textContent.includes(\"selected 0 ['0']\")")
    run(page, "docmanager:save")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    held = json.loads((folder / "net.ipynb").read_text())
    shown = held["cells"][0]["outputs"][0]["data"]
    assert set(shown) == {"text/html", "text/plain"}
    assert len(shown["text/html"]) < 75_000
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }")
    page.wait_for_function(f"{WIDGET}.previousElementSibling.hidden === false")
    picture(page, "jupyterlab-restarted")
    page.evaluate(f"{WIDGET}.intusView.select('1')")  # it is still walked in
    assert page.evaluate(picked) == "1"


def test_output_and_widget_follow_dark_theme(
    open_lab: Any, folder: Path, write_notebook: Any, picture: Any
) -> None:
    write_notebook(folder / "dark.ipynb", [MODEL + "t", "t.widget()"])
    page = open_lab("dark.ipynb", color_scheme="null")  # emulated, it would hold in every frame
    run(page, "notebook:run-all-cells")
    page.frame_locator("iframe[srcdoc]").locator(".ig-canvas").wait_for()
    page.wait_for_function(f"{WIDGET} && {WIDGET}.intusView")
    canvases = [page.frame_locator("iframe[srcdoc]").locator(".ig-canvas"), page.locator(".ig-canvas")]
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        page.evaluate(THEME, theme)
        for canvas in canvases:
            wait_for_shade(canvas, dark="Dark" in theme)
        picture(page, theme.replace(" ", "-").lower())


def wait_for_shade(canvas: Any, *, dark: bool) -> None:
    grey = -1.0
    for _ in range(100):
        grey = median(Image.open(BytesIO(canvas.screenshot())).convert("L").tobytes())
        if grey < 64 if dark else grey > 192:
            return
        time.sleep(0.1)
    raise AssertionError(f"{'dark' if dark else 'light'} was wanted, and it is {grey} of 255")


def test_executed_notebook_opens_with_graph(
    open_lab: Any, folder: Path, write_notebook: Any, check_graph: Any, environment: Any, picture: Any
) -> None:
    path = write_notebook(folder / "headless.ipynb", [MODEL + "t", "intus.view(net, torch.ones(1, 4))"])
    execute(path, environment)
    page = open_lab("headless.ipynb", kernel=False)
    page.wait_for_function(
        "document.body.textContent.includes('not shown because this notebook is not trusted')"
    )
    assert "color-scheme" not in page.locator(".jp-Notebook").inner_text()
    trust(path, environment)
    page = open_lab("headless.ipynb", kernel=False)
    check_graph(page)
    check_graph(page, 1)
    picture(page, "jupyterlab-reopened")


def test_ten_graphs_in_one_notebook(
    open_lab: Any, folder: Path, write_notebook: Any, environment: Any, picture: Any
) -> None:
    """Each cell is self-contained: one can be deleted; ten real models take less than 2 MB."""
    source = (Path(__file__).with_name("ten_models.py")).read_text()
    cells = [source, *(f"shown({number})" for number in range(10))]
    path = write_notebook(folder / "ten.ipynb", cells)
    execute(path, environment)
    held = json.loads(path.read_text())
    for cell in held["cells"][1:]:
        assert "text/html" in cell["outputs"][-1]["data"], cell["outputs"]
    assert path.stat().st_size < 2_000_000
    del held["cells"][:2]  # the first graph is gone
    path.write_text(json.dumps(held))
    trust(path, environment)
    page = open_lab("ten.ipynb", kernel=False)
    for number in range(9):
        page.evaluate("(n) => window.jupyterapp.shell.currentWidget.content.scrollToItem(n)", number)
        cell = f"window.jupyterapp.shell.currentWidget.content.widgets[{number}].node"
        page.wait_for_function(f"{cell}.isConnected && {cell}.querySelector('iframe[srcdoc]')")
        frame = page.evaluate_handle(f"{cell}.querySelector('iframe[srcdoc]')").as_element().content_frame()
        frame.wait_for_function("document.querySelector('#intus-graph')?.intusView?.boxes().length > 3")
    picture(page, "jupyterlab-ten")


def test_notebook_exported_to_html(
    browser: Any, tmp_path: Path, write_notebook: Any, check_graph: Any, environment: Any, picture: Any
) -> None:
    path = write_notebook(tmp_path / "net.ipynb", [MODEL + "t"])
    execute(path, environment)
    subprocess.run(
        [str(BIN / "jupyter-nbconvert"), "--to", "html", str(path)], env=environment, check=True, timeout=120
    )
    page = browser.new_page(offline=True)
    page.goto((tmp_path / "net.html").as_uri())
    check_graph(page)
    picture(page, "nbconvert")
    page.close()


def test_notebook_7(
    serve: Any,
    browser: Any,
    tmp_path: Path,
    write_notebook: Any,
    check_graph: Any,
    environment: Any,
    picture: Any,
) -> None:
    path = write_notebook(tmp_path / "net.ipynb", [MODEL + "t"])
    execute(path, environment)
    trust(path, environment)
    options = (*OPTIONS[:-1], f"--ServerApp.root_dir={tmp_path}")
    with serve("jupyter-notebook", *options, ready="/api/status") as url:
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        page.goto(f"{url}/notebooks/net.ipynb")
        check_graph(page)
        picture(page, "notebook-7")
        page.close()


def execute(path: Path, environment: dict[str, str]) -> None:
    """Run a notebook with nbclient and store its outputs."""
    asked = [str(BIN / "jupyter-execute"), "--inplace", "--timeout=240", str(path)]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def trust(path: Path, environment: dict[str, str]) -> None:
    """Trust a notebook as `File > Trust Notebook` does; else Jupyter removes frames and scripts."""
    subprocess.run([str(BIN / "jupyter-trust"), str(path)], env=environment, check=True, timeout=60)


WIDGET = (
    "[...document.querySelectorAll('.jp-OutputArea-output *')].map((e) => e.shadowRoot).filter(Boolean)"
    ".map((root) => root.querySelector('div')).find((host) => host?.intusView)"
)
THEME = "(theme) => { window.jupyterapp.commands.execute('apputils:change-theme', { theme }); }"
ADD = """(source) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = notebook.widgets.length - 1;
  notebook.activeCell.model.sharedModel.setSource(source);
}"""


def run(page: Any, command: str) -> None:
    page.evaluate("(command) => { window.jupyterapp.commands.execute(command); }", command)
