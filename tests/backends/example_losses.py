"""Compare the example of a framework with that of PyTorch, each run in its own environment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from backends.served import PYTHON, server

_WRITE = (
    "import sys, pathlib; from intus.examples.frameworks.problem import write\n"
    "write(pathlib.Path(sys.argv[1]))"
)


def assert_same_losses(name: str, folder: Path) -> None:
    """Assert that the first losses of a framework's example are those of PyTorch's, to 1e-4.

    The labels' scores must reach the page, and show that they were learned.

    Args:
        name: The framework.
        folder: A new folder.
    """
    problem = folder / "problem.npz"
    subprocess.run([PYTHON, "-c", _WRITE, str(problem)], check=True)
    losses = {}
    with server(folder) as running:
        for python, one in ((PYTHON, "torch"), (sys.executable, name)):
            script = f"intus.examples.frameworks.{one}_mlp"
            command = [python, "-m", script, str(problem), "--port", str(running.port), "--epochs", "2"]
            command += ["--run", "r", "--losses", str(folder / one)]
            subprocess.run(command, check=True, timeout=240)
            losses[one] = json.loads((folder / one).read_text())
        points = running.points("r", name, "linear_f1", "digit")
    assert len(losses[name]) == len(losses["torch"]) == 56
    np.testing.assert_allclose(losses[name][:5], losses["torch"][:5], atol=1e-4)
    assert max(points["value"]) > 0.7
