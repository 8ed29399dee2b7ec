"""The data and initial weights that the scripts of all frameworks share, and how they are started.

Each script runs as ``python -m intus.examples.frameworks.torch_mlp PROBLEM`` in the environment of its
framework, where ``PROBLEM`` is a file that ``write`` made. Nothing here needs more than numpy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np


def write(path: Path) -> None:
    """Write scikit-learn's digits and the initial weights of a 64-32-10 network to a file.

    Args:
        path: The file, ``.npz``. Weights have the shape (inputs, outputs).
    """
    from sklearn.datasets import load_digits

    digits, random = load_digits(), np.random.default_rng(0)
    np.savez(
        path,
        images=(digits.data / 16).astype(np.float32),
        labels=digits.target,
        w1=random.normal(0, 64**-0.5, (64, 32)).astype(np.float32),
        b1=np.zeros(32, np.float32),
        w2=random.normal(0, 32**-0.5, (32, 10)).astype(np.float32),
        b2=np.zeros(10, np.float32),
    )


def batches(epoch: int, rows: int) -> list[np.ndarray]:
    """Return the rows of each batch of an epoch, which are the same in every framework."""
    return np.array_split(np.random.default_rng(epoch).permutation(rows), 28)


def start(train: Callable[..., list[float]]) -> None:
    """Run the ``train`` of a script with the arguments of the command line.

    Args:
        train: A function of the problem's file, host, port, epochs and run, which returns the loss of each
            step.
    """
    parser = argparse.ArgumentParser(description=train.__doc__)
    parser.add_argument("problem", help="the file with data and weights")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8082)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--run", default="frameworks")
    parser.add_argument("--losses", type=Path, help="a file for the loss of each step, as JSON")
    given = parser.parse_args()
    losses = train(given.problem, given.host, given.port, given.epochs, given.run)
    if given.losses:
        given.losses.write_text(json.dumps(losses))
