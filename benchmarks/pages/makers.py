"""Make the pages of every model with one tool, in the environment where it is installed.

``python -m benchmarks.pages.makers intus FOLDER`` writes two pages of each model, one as it opens by default
and one with every module open; so does ``torchvista``. ``explorer`` serves all models until it is killed.
Each prints one line of JSON per model with CPU seconds, sizes in kilobytes, and addresses. Each draws a small
model first, so that the import time of a tool is not counted.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from ..workloads import PICTURED, Chain

CELLS = 10  # of the notebook whose size is measured


def intus(name: str, folder: Path) -> dict[str, Any]:
    """Make a page as it opens by default, and one with every module open."""
    import intus

    model, inputs = _made(name)
    began = time.process_time()
    traced = intus.trace(model, inputs, save="none")
    pages = {"first": traced.draw(folder / f"intus-{name}-first.html")}
    made = time.process_time() - began
    pages["all"] = traced.draw(folder / f"intus-{name}-all.html", depth="all", rolled=False)
    return {"made": made, "notebook": _notebook(traced._repr_html_()), **_written(pages)}


def torchvista(name: str, folder: Path) -> dict[str, Any]:
    """Make the same pages with torchvista, which shows the page itself in a notebook."""
    from torchvista import trace_model

    model, inputs = _made(name)
    pages, facts = {}, {}
    for what, depth in (("all", 99), ("first", 1)):
        began, facts["error"] = time.process_time(), ""
        pages[what] = folder / f"torchvista-{name}-{what}.html"
        try:
            trace_model(
                model,
                tuple(inputs.values()),
                collapse_modules_after_depth=depth,
                export_format="html",
                export_path=str(pages[what]),
            )
        except (Exception, RecursionError) as raised:
            facts["error"] = type(raised).__name__
        facts["made"] = time.process_time() - began
    pages = {what: page for what, page in pages.items() if page.exists()}
    if "first" in pages:
        facts["notebook"] = _notebook(pages["first"].read_text(encoding="utf-8"))
    return {**facts, **_written(pages)}


def explorer(name: str, config: Any) -> dict[str, Any]:
    """Export a model and convert it for Model Explorer; ``config`` is the configuration of its server."""
    model, inputs = _made(name)
    began = time.process_time()
    try:
        config.add_model_from_pytorch(name, torch.export.export(model, (), inputs))
    except (Exception, RecursionError) as raised:
        return {"error": f"{type(raised).__name__} in torch.export or its adapter"}
    data = quote(json.dumps({"models": config.model_sources[-1:]}))
    toggles = any(list(child.children()) for child in model.children())
    return {"made": time.process_time() - began, "addresses": {"first": f"?data={data}"}, "toggles": toggles}


def serve(config: Any) -> None:
    """Run Model Explorer's server until it is killed."""
    import model_explorer

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _print(port=port)
    model_explorer.visualize_from_config(config, port=port, no_open_in_browser=True)


def _made(name: str) -> tuple[Any, dict[str, Any]]:
    torch.manual_seed(0)
    model, inputs = PICTURED[name]() if name else (Chain(40), {"x": torch.ones(8)})
    if hasattr(model, "config"):
        model.config.use_cache = False  # torch.export cannot return a cache
    return model.eval(), inputs


def _written(pages: dict[str, Path]) -> dict[str, Any]:
    found: dict[str, Any] = {"addresses": {what: page.as_uri() for what, page in pages.items()}}
    return found | ({"kilobytes": pages["all"].stat().st_size / 1000} if "all" in pages else {})


def _notebook(cell: str) -> float:
    """Return the kilobytes of a notebook with ten cells that show this."""
    output = {"data": {"text/html": [cell]}, "metadata": {}, "output_type": "display_data"}
    one = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [output], "source": []}
    return (
        len(json.dumps({"cells": [one] * CELLS, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})) / 1000
    )


def _print(**facts: Any) -> None:
    print("FOUND " + json.dumps(facts), flush=True)


def _in_process(make: Callable[..., dict[str, Any]], name: str, *given: Any) -> None:
    """Make pages in a forked process, since an exception may leave torch patched by the tool."""
    process = multiprocessing.get_context("fork").Process(
        target=lambda: _print(model=name, **make(name, *given))
    )
    process.start()
    process.join()


def main() -> None:
    """Make the pages with the tool that the command line names."""
    tool, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    if tool == "explorer":
        import model_explorer

        config = model_explorer.config()
        explorer("", model_explorer.config())
        for name in PICTURED:
            _print(model=name, **explorer(name, config))
        serve(config)
    else:
        make = {"intus": intus, "torchvista": torchvista}[tool]
        make("", folder)
        for name in PICTURED:
            _in_process(make, name, folder)


if __name__ == "__main__":
    main()
