"""``intus demo``: serve, train, ask, tell."""

from __future__ import annotations

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
from .story import sentences

RUN = "digits"
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
    epochs: int = 12,
    database: str | None = None,
    wait: bool = True,
) -> int:
    """Run the main job on real data; returns an exit code. With ``wait`` the page stays up until Ctrl+C."""
    began = time.monotonic()
    run = f"{RUN} {time.strftime('%H:%M:%S')}"
    with tempfile.TemporaryDirectory(prefix="intus-demo-") as folder:
        store = database or str(Path(folder) / "demo.db")
        port = port if port == 0 or _is_free(host, port) else 0
        server, page = _serve(host, port, store)
        try:
            print(f"Watch it learn: {page}\n", flush=True)
            accuracy = _train(page, epochs, run, Path(folder))
            table = _ask(Path(folder), epochs, store, run)
            _tell(store, run, accuracy, table, page, time.monotonic() - began)
            if wait:
                print("\nThe page stays up; press Ctrl+C to end.", flush=True)
                server.wait()
        except KeyboardInterrupt:
            print()
        finally:
            server.terminate()
            server.wait(timeout=30)
    return 0


def _serve(host: str, port: int, database: str) -> tuple[subprocess.Popen[str], str]:
    """Start ``intus serve`` and return it with its page's address."""
    command = [
        sys.executable,
        "-m",
        "intus",
        "serve",
        "--host",
        host,
        "--port",
        str(port),
        "--database",
        database,
    ]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD, "PYTHONUNBUFFERED": "1"}
    )
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"http://\S+", line):
            return server, found.group().rstrip("/.,") + "/"
    raise ServeError(f"The server ended before it was up; run it by hand to see why: {' '.join(command)}")


def _train(page: str, epochs: int, run: str, folder: Path) -> str:
    """Run the training script as a user would; returns the accuracy it printed last."""
    host, _, port = page.removeprefix("http://").rstrip("/").rpartition(":")
    command = [sys.executable, "-m", "intus.demo.digits", "--host", host, "--port", port]
    command += ["--epochs", str(epochs), "--run", run, "--checkpoints", str(folder)]
    accuracy = "an unknown share of the unseen digits"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD}
    ) as script:
        assert script.stdout is not None
        for line in script.stdout:
            print(line, end="", flush=True)
            if found := re.search(r"([\d.]+%) of the unseen digits", line):
                accuracy = f"{found.group(1)} of the unseen digits"
    if script.returncode:
        raise ServeError(
            f"The training script ended with exit code {script.returncode}; its output stands above."
        )
    return accuracy


def _ask(folder: Path, epochs: int, store: str, run: str) -> Any:
    """Which units answer to the stroke's upper loop, over three checkpoints."""
    import torch
    from sklearn.datasets import load_digits

    from ..inspection import inspect
    from .digits import DigitsNet

    def load(epoch: int) -> Callable[[], DigitsNet]:
        def checkpoint() -> DigitsNet:
            net = DigitsNet()
            net.load_state_dict(torch.load(folder / f"{epoch}.pt", weights_only=True))
            return net

        return checkpoint

    images = load_digits().images[:, None].astype(np.float32) / 16
    return inspect(
        models={epoch: load(epoch) for epoch in sorted({0, (epochs + 1) // 2, epochs})},
        hypotheses=[upper_loop],
        scores=["iou"],
        data=images,
        units=[("features.1", "*"), ("features.3", "*")],
        store=store,
        run=run,
    )


def upper_loop(image: np.ndarray) -> np.ndarray:
    """Mask the loop in the upper half of a digit's stroke, as an 8 or a 9 has it: the hole and its rim.

    ``image`` is (1, 8, 8) with ink from 0 to 1; returns (8, 8) of zeros and ones.
    """
    from scipy import ndimage

    ink = image[0] > 0.3
    holes, count = ndimage.label(~ink)
    mask = np.zeros(ink.shape, dtype=np.float32)
    for hole in range(1, count + 1):
        rows, columns = np.nonzero(holes == hole)
        inside = min(rows.min(), columns.min()) > 0 and max(rows.max(), columns.max()) < 7
        if inside and rows.mean() < 3.5:
            mask[ndimage.binary_dilation(holes == hole, iterations=1)] = 1
    return mask


def _tell(store: str, run: str, accuracy: str, table: Any, page: str, seconds: float) -> None:
    from ..storage.database import Database

    with Database(store) as database:
        points = database.points(run, MODEL, level="layer", kind="output")
        units = database.points(run, MODEL, level="unit")
    print("\nUnits that answer best to the stroke's upper loop:\n")
    print(table.sort_values("value", ascending=False).head(6).to_string(index=False))
    print()
    for sentence in sentences(points, units, accuracy):
        print(f"- {sentence}")
    print(f"\nThe page: {page}  ({len(points) + len(units):,} scores, {seconds:.0f} s)")
    print(_NEXT)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
