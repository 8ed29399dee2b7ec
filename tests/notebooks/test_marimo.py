"""Views, traces and widgets in a real marimo: outputs, navigation, and the selection as an input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

APP = """
import marimo

app = marimo.App()


@app.cell
def _():
    import intus
    import marimo as mo
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    trace = intus.trace(net, torch.ones(1, 4))
    return intus, mo, net, torch, trace


@app.cell
def _(trace):
    trace
    return


@app.cell
def _(intus, net, torch):
    intus.view(net, torch.ones(1, 4), overlay="time")
    return


@app.cell
def _(mo, trace):
    widget = mo.ui.anywidget(trace.widget(depth=2))
    widget
    return (widget,)


@app.cell
def _(mo, widget):
    mo.md(f"selected: {widget.value['selected']}")
    return


if __name__ == "__main__":
    app.run()
"""
WIDGET = """(() => {
  const found = [];
  const look = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.intusView) found.push(element);
      if (element.shadowRoot) look(element.shadowRoot);
    }
  };
  look(document);
  return found[0]?.intusView;
})()"""


def test_marimo_outputs_and_selection(
    serve: Callable[..., Any], browser: Any, tmp_path: Path, check_graph: Any, picture: Any
) -> None:
    (tmp_path / "app.py").write_text(APP)
    options = ("--headless", "--no-token", "--port=PORT", "--host=127.0.0.1")
    with serve("marimo", "--yes", "run", str(tmp_path / "app.py"), *options, ready="/health") as url:
        page = browser.new_page(viewport={"width": 1200, "height": 2300})
        page.goto(url)
        check_graph(page)
        check_graph(page, 1)
        page.wait_for_function(f"Boolean({WIDGET})", timeout=60_000)
        page.wait_for_function("document.body.innerText.includes('selected: None')")
        page.evaluate(f"{WIDGET}.select('1')")
        page.wait_for_function("document.body.innerText.includes('selected: 1')", timeout=30_000)
        picture(page, "marimo")
        page.close()
