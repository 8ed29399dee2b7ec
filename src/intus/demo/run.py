"""``intus demo``: serve, train, ask, tell."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import ServeError
from ..serving.run import Server
from .hypotheses import open_to_the_left, upper_loop, upright_stroke
from .interrupt import interruptible
from .summary import sentences

MODEL = "DigitsNet"
_NEXT = """\
Next: put probe, register_targets and flush in your own script, as intus/demo/digits.py does, beside
`intus serve`; or look at a model at once: intus view FILE.py:Net --inputs "randn(1, 3, 224, 224)"."""
#: Every process of the demo computes on one core: a small network gains nothing from more.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def demo(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    epochs: int = 10,
    database: str | None = None,
    wait: bool = True,
) -> int:
    """Run the main job on real data; returns an exit code. With ``wait`` the page stays up until Ctrl+C;
    before that it raises KeyboardInterrupt."""
    began = time.monotonic()
    run = f"digits {time.strftime('%H:%M:%S')}"
    with tempfile.TemporaryDirectory(prefix="intus-demo-") as folder:
        store = database or str(Path(folder) / "demo.db")
        with Server(host=host, port=port if _is_free(host, port) else 0, database=store) as server:
            try:
                with interruptible() as check:
                    print(f"Watch it learn: {server.page_url}\n", flush=True)
                    accuracy = _train(server, epochs, run, Path(folder))
                    table = _ask(Path(folder), epochs, store, run, check)
                    _tell(store, run, accuracy, table, server.page_url, time.monotonic() - began)
            except KeyboardInterrupt:
                server.process.kill()  # it would finish scoring what nobody waits for
                raise
            if wait:
                print("\nThe page stays up; press Ctrl+C to end.", flush=True)
                with contextlib.suppress(KeyboardInterrupt):
                    server.process.wait()
    return 0


def _train(server: Server, epochs: int, run: str, folder: Path) -> str:
    """Run the training script as a user would; returns the accuracy it printed last."""
    command = [sys.executable, "-m", "intus.demo.digits", "--host", server.host, "--port", str(server.port)]
    command += ["--epochs", str(epochs), "--run", run, "--checkpoints", str(folder)]
    accuracy = "an unknown share of the unseen digits"
    script = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD},
        start_new_session=True,  # Ctrl+C is for the demo, which ends the script in turn
    )
    try:
        assert script.stdout is not None
        for line in script.stdout:
            print(line, end="", flush=True)
            if found := re.search(r"([\d.]+%) of the unseen digits", line):
                accuracy = f"{found.group(1)} of the unseen digits"
        script.wait()
    finally:
        script.kill()
        script.communicate()
    if script.returncode:
        raise ServeError(
            f"The training script ended with exit code {script.returncode}; its output stands above."
        )
    return accuracy


def _ask(folder: Path, epochs: int, store: str, run: str, check: Callable[[], None]) -> Any:
    """Which units answer to each idea, over three checkpoints."""
    import torch
    from sklearn.datasets import load_digits

    from ..inspection import inspect
    from .digits import DigitsNet

    check()

    def load(epoch: int) -> Callable[[], DigitsNet]:
        def checkpoint() -> DigitsNet:
            net = DigitsNet()
            net.load_state_dict(torch.load(folder / f"{epoch}.pt", weights_only=True))
            return net

        return checkpoint

    images = load_digits().images[:, None].astype(np.float32) / 16
    return inspect(
        models={epoch: load(epoch) for epoch in sorted({0, (epochs + 1) // 2, epochs})},
        hypotheses=[upright_stroke, open_to_the_left, upper_loop],
        scores=["iou_max"],
        data=images,
        units=[("features.1", "*"), ("features.3", "*"), ("features.6", "*")],
        store=store,
        run=run,
    )


def _tell(store: str, run: str, accuracy: str, table: Any, page: str, seconds: float) -> None:
    from ..storage.database import Database

    with Database(store) as database:
        points = database.points(run, MODEL, level="layer", kind="output")
        units = database.points(run, MODEL, level="unit")
    print(f"\nThe units that answer best at epoch {table['epoch'].max():g}:\n")
    print(_best(table).to_string(index=False, float_format="{:.3f}".format))
    print()
    for sentence in sentences(points, units, accuracy):
        print(f"- {sentence}")
    print(f"\nThe page: {page}  ({len(points) + len(units):,} scores, {seconds:.0f} s)")
    print(_NEXT)


def _best(table: Any, each: int = 2) -> Any:
    """The best units for each idea at the last checkpoint."""
    last = table[table["epoch"] == table["epoch"].max()].sort_values("value", ascending=False)
    shown = ["target", "address", "unit", "value", "low", "high", "baseline"]
    return last.groupby("target", sort=False).head(each).sort_values("target")[shown]


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
