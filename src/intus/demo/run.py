"""``intus demo``: start a server, train, inspect, and report."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
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
Next: start `intus serve`, and put probe, register_targets and flush in your own script, as
intus/demo/digits.py does. Or view a model: intus view FILE.py:Net --inputs "randn(1, 3, 224, 224)"."""
#: The training script, which gets its arguments once the server is there. What an optimizer of PyTorch and
#: the first pass would import is imported before, while the server starts: the first curve comes sooner.
_SCRIPT = (
    "import json, sys; from intus.demo.digits import main; import torch._dynamo, intus.tracing.run; "
    "print('ready', flush=True); main(json.loads(sys.stdin.readline()))"
)
#: Every process of the demo computes on one core, because a small network gains nothing from more.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def demo(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    epochs: int = 6,
    database: str | None = None,
    wait: bool = True,
) -> int:
    """Run the demo: train a network on real digits with a probe, inspect its units, and print what was found.

    Args:
        host: The address to serve on.
        port: The port of the page; a free one is used if it is taken.
        epochs: The number of epochs.
        database: The file for the scores. Default: a temporary one.
        wait: Whether to keep the page up until Ctrl+C.

    Returns:
        The exit code, 0.

    Raises:
        KeyboardInterrupt: If Ctrl+C is pressed before the demo is done.
        ServeError: If the server cannot start, or the training script fails.
    """
    began = time.monotonic()
    run = f"digits {time.strftime('%H:%M:%S')}"
    with tempfile.TemporaryDirectory(prefix="intus-demo-") as folder, _script() as script:
        store = database or str(Path(folder) / "demo.db")
        with Server(host=host, port=port if _is_free(host, port) else 0, database=store) as server:
            try:
                with interruptible() as check:
                    script.stdout.readline()  # it has imported what it needs
                    print(f"Watch it learn: {server.page_url}\n", flush=True)
                    accuracy = _train(script, server, epochs, run, Path(folder))
                    table = _inspect_units(Path(folder), epochs, store, run, check)
                    _report(store, run, epochs, accuracy, table, server.page_url, time.monotonic() - began)
            except KeyboardInterrupt:
                server.process.kill()  # without waiting for the scores that are left
                raise
            if wait:
                with contextlib.suppress(KeyboardInterrupt):
                    print("\nThe page stays up; press Ctrl+C to end.", flush=True)
                    server.process.wait()
    return 0


@contextlib.contextmanager
def _script() -> Iterator[Any]:
    """Start the training script, which imports what it needs while the server starts."""
    script = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD},
        start_new_session=True,  # Ctrl+C reaches the demo only, which then ends the script
    )
    try:
        yield script
    finally:
        script.kill()
        with contextlib.suppress(OSError):
            script.communicate()


def _train(script: Any, server: Server, epochs: int, run: str, folder: Path) -> str:
    """Run the training script as a user would, and return the accuracy that it printed last."""
    arguments = ["--host", server.host, "--port", str(server.port), "--epochs", str(epochs), "--run", run]
    accuracy = "an unknown share of the unseen digits"
    with contextlib.suppress(BrokenPipeError):
        script.stdin.write(json.dumps([*arguments, "--checkpoints", str(folder)]) + "\n")
        script.stdin.close()
    script.stdin = None
    for line in script.stdout:
        print(line, end="", flush=True)
        if found := re.search(r"([\d.]+%) of the unseen digits", line):
            accuracy = f"{found.group(1)} of the unseen digits"
    script.wait()
    if script.returncode:
        raise ServeError(
            f"The training script ended with exit code {script.returncode}. Its output is above."
        )
    return accuracy


def _inspect_units(folder: Path, epochs: int, store: str, run: str, check: Callable[[], None]) -> Any:
    """Return the scores of units for each hypothesis at three checkpoints."""
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


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
