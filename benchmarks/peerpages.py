"""The same models drawn by torchvista and served by Model Explorer, in the environment that holds these.

``python -m benchmarks.peerpages torchvista MODEL FOLDER`` writes two pages and says what became of them,
``… explorer MODEL PORT`` says how long the export took, then serves until it is ended; both say it in JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from .workloads import PICTURED

DEEPEST = 99


def torchvista(model: Any, inputs: dict[str, Any], folder: Path) -> None:
    """A page as it opens by default, and one with every module open."""
    from torchvista import trace_model

    for name, depth in (("first", 1), ("all", DEEPEST)):
        began, error = time.perf_counter(), ""
        path = folder / f"torchvista-{name}.html"
        try:
            trace_model(
                model,
                tuple(inputs.values()),
                collapse_modules_after_depth=depth,
                export_format="html",
                export_path=str(path),
            )
        except (Exception, RecursionError) as raised:
            error = type(raised).__name__
        _tell(
            name=name, path=str(path) if path.exists() else "", made=time.perf_counter() - began, error=error
        )


def explorer(model: Any, inputs: dict[str, Any], port: int) -> None:
    """Export, convert and serve."""
    import model_explorer

    began = time.perf_counter()
    try:
        config = model_explorer.config()
        config.add_model_from_pytorch("model", torch.export.export(model, (), inputs))
    except (Exception, RecursionError) as raised:
        _tell(error=f"{type(raised).__name__} in torch.export or its adapter")
        return
    address = f"http://localhost:{port}/?data={config.to_url_param_value()}"
    opens = any(list(child.children()) for child in model.children())
    _tell(path=address, modules=opens, made=time.perf_counter() - began, error="")
    model_explorer.visualize_from_config(config, port=port, no_open_in_browser=True)


def _tell(**facts: Any) -> None:
    print("FOUND " + json.dumps(facts), flush=True)


def main() -> None:
    """What the command line says."""
    tool, name, where = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs = PICTURED[name]()
    model.eval()
    if hasattr(model, "config"):
        model.config.use_cache = False  # whose cache torch.export cannot return
    if tool == "torchvista":
        torchvista(model, inputs, Path(where))
    else:
        explorer(model, inputs, int(where))


if __name__ == "__main__":
    main()
