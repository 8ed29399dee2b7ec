"""The pages of every model by one tool, in the environment that holds it.

``python -m benchmarks.pagemakers intus FOLDER`` writes two pages of each model, one as it opens by default
and one with every module open; so does ``torchvista``. ``explorer`` serves them all until it is ended. Each
says in JSON, a line a model, what became of it: CPU seconds, sizes in kilobytes, addresses. It has drawn
something small before, so that no model pays for what a tool loads.
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

from .workloads import PICTURED, Chain

CELLS = 10  # of the notebook whose size is told


def intus(name: str, folder: Path) -> dict[str, Any]:
    """A page as it opens by default, and one with every module open."""
    import intus

    model, inputs = _made(name)
    began = time.process_time()
    found = intus.trace(model, inputs, save="none")
    pages = {"first": found.draw(folder / f"intus-{name}-first.html")}
    made = time.process_time() - began
    pages["all"] = found.draw(folder / f"intus-{name}-all.html", depth="all", rolled=False)
    return {"made": made, "notebook": _notebook(found._repr_html_()), **_written(pages)}


def torchvista(name: str, folder: Path) -> dict[str, Any]:
    """The same by torchvista; what it shows in a notebook is the page itself."""
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
    """Export and convert; ``config`` is what its server is given."""
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
    """Model Explorer's server, until it is ended."""
    import model_explorer

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _tell(port=port)
    model_explorer.visualize_from_config(config, port=port, no_open_in_browser=True)


def _made(name: str) -> tuple[Any, dict[str, Any]]:
    torch.manual_seed(0)
    model, inputs = PICTURED[name]() if name else (Chain(40), {"x": torch.ones(8)})
    if hasattr(model, "config"):
        model.config.use_cache = False  # whose cache torch.export cannot return
    return model.eval(), inputs


def _written(pages: dict[str, Path]) -> dict[str, Any]:
    found: dict[str, Any] = {"addresses": {what: page.as_uri() for what, page in pages.items()}}
    return found | ({"kilobytes": pages["all"].stat().st_size / 1000} if "all" in pages else {})


def _notebook(cell: str) -> float:
    """Kilobytes of a notebook whose ten cells show this."""
    output = {"data": {"text/html": [cell]}, "metadata": {}, "output_type": "display_data"}
    one = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [output], "source": []}
    return (
        len(json.dumps({"cells": [one] * CELLS, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})) / 1000
    )


def _tell(**facts: Any) -> None:
    print("FOUND " + json.dumps(facts), flush=True)


def _apart(make: Callable[..., dict[str, Any]], name: str, *given: Any) -> None:
    """In a process of its own, since an exception may leave torch as the tool has patched it."""
    process = multiprocessing.get_context("fork").Process(
        target=lambda: _tell(model=name, **make(name, *given))
    )
    process.start()
    process.join()


def main() -> None:
    """What the command line says."""
    tool, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    if tool == "explorer":
        import model_explorer

        config = model_explorer.config()
        explorer("", model_explorer.config())
        for name in PICTURED:
            _tell(model=name, **explorer(name, config))
        serve(config)
    else:
        make = {"intus": intus, "torchvista": torchvista}[tool]
        make("", folder)
        for name in PICTURED:
            _apart(make, name, folder)


if __name__ == "__main__":
    main()
