"""The process of the demo that computes: train, inspect the units, and print what was found."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from .digits import DigitsNet, train

MODEL = "DigitsNet"
_NEXT = """\
Next: start `intus serve`, and put probe, register_targets and flush in your own script, as
intus/demo/digits.py does. Or view a model: intus view FILE.py:Net --inputs "randn(1, 3, 224, 224)"."""


def tell(
    *,
    host: str,
    port: int,
    page: str,
    epochs: int,
    run: str,
    store: str,
    checkpoints: str,
    began: float,
) -> None:
    """Train the network, inspect its units, and print what the scores say.

    Args:
        host: The host of the server.
        port: The server's port for probes.
        page: The address of the page.
        epochs: The number of epochs.
        run: The name of the run.
        store: The server's database.
        checkpoints: The folder for checkpoints.
        began: When the demo began, in seconds since 1970.
    """
    accuracy = train(host, port, epochs, run, Path(checkpoints))
    table = _inspect_units(Path(checkpoints), epochs, store, run)
    _report(store, run, epochs, f"{accuracy:.1%} of the unseen digits", table, page, time.time() - began)


def _inspect_units(folder: Path, epochs: int, store: str, run: str) -> Any:
    """Return the scores of units for each hypothesis at three checkpoints."""
    from ..inspection import inspect
    from .hypotheses import open_to_the_left, upper_loop, upright_stroke

    def load(epoch: int) -> Callable[[], DigitsNet]:
        def checkpoint() -> DigitsNet:
            net = DigitsNet()
            net.load_state_dict(torch.load(folder / f"{epoch}.pt", weights_only=True))
            return net

        return checkpoint

    images = load_digits().images[::3, None].astype(np.float32) / 16  # one in three is enough here
    return inspect(
        models={epoch: load(epoch) for epoch in sorted({0, (epochs + 1) // 2, epochs})},
        hypotheses=[upright_stroke, open_to_the_left, upper_loop],
        scores=["iou_max"],
        data=images,
        units=[("features.1", "*"), ("features.3", "*"), ("features.6", "*")],
        store=store,
        run=run,
    )


def _report(store: str, run: str, epochs: int, accuracy: str, table: Any, page: str, seconds: float) -> None:
    from ..storage.database import Database
    from .summary import sentences

    with Database(store) as database:
        points = database.points(run, MODEL, level="layer", kind="output")
        units = database.points(run, MODEL, level="unit")
    print(f"\nThe units that respond best at epoch {table['epoch'].max():g}:\n")
    print(_best(table).to_string(index=False, float_format="{:.3f}".format))
    print()
    for sentence in sentences(points, units, accuracy, epochs):
        print(f"- {sentence}")
    print(f"\nThe page: {page}  ({len(points) + len(units):,} scores, {seconds:.0f} s)")
    print(_NEXT)


def _best(table: Any, each: int = 2) -> Any:
    """Return the best units for each hypothesis at the last checkpoint."""
    last = table[table["epoch"] == table["epoch"].max()].sort_values("value", ascending=False)
    shown = ["target", "address", "unit", "value", "low", "high", "baseline"]
    return last.groupby("target", sort=False).head(each).sort_values("target")[shown]
