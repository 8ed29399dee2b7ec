"""Networks in which one side alone has an operation between modules, with the truth of what it is.

A test writes the passes of the networks of its framework with ``write``, and ``compared`` has the main
environment compare them with twins in PyTorch, in both orders; see ``torch_one_side.py``. The network is an
``embed`` layer, a ``block`` of a ``norm`` and an ``up`` layer around which the input is added, and a ``last``
normalization. An operation before a normalization is hidden by it, but for the block's skip.
"""

from itertools import product

import numpy as np
from torch_help import run_with_torch

#: The operations, by the beginning of their names in most frameworks.
STEPS = {"mul": lambda x: x * 2.0, "sub": lambda x: x - 0.5, "add": lambda x: x + 1.5}
NAMES = {"mul": ("mul", "_mul"), "sub": ("sub", "_minus", "minus"), "add": ("add", "_plus", "plus")}
#: The module that an operation runs in, by the module before which it runs.
POINTS = {"block": "", "norm": "block", "up": "block", "last": ""}
CASES = [f"{side} {step} before {point}" for side, step, point in product(("own", "torch"), STEPS, POINTS)]
X = np.random.default_rng(0).normal(scale=2.0, size=(3, 6)).astype(np.float32)


def before(planted, point, x):
    """Return what a module is given: a tensor, or what the operation makes of it that was planted there."""
    step, at = planted
    return STEPS[step](x) if at == point else x


def weights():
    """Return the weights of the layers as PyTorch has them, by name."""
    rng = np.random.default_rng(1)
    shapes = {"embed": (8, 6), "up": (8, 8)}
    return {name: rng.normal(size=shape).astype(np.float32) / 2 for name, shape in shapes.items()}


def compared(folder, trace):
    """Return what was said of every case, in both orders.

    Args:
        folder: A folder for the passes.
        trace: A function that returns the pass of the network with an operation before a module.
    """
    trace("", "").save(folder / "right.trace")
    for step, point in product(STEPS, POINTS):
        trace(step, point).save(folder / f"{step} before {point}.trace")
    return run_with_torch("import torch_one_side; torch_one_side.main()", folder)


def check_right(compared):
    """Check that the networks without an operation of one side agree."""
    assert [one["agree"] for one in compared["right"]] == [True, True], compared["right"][0]["text"]


def check_named(compared, case):
    """Check that an operation of one side alone has no partner, and is found."""
    step, point = case.split()[1::2]
    for one in compared[case]:
        assert not one["agree"], one["text"]
        assert len(one["rows"]) == 1, one
        assert sum(map(bool, one["rows"][0])) == 1, one
        label = "".join(one["rows"][0])
        assert label.lower().startswith(NAMES[step]), label
        if one["first"] is None:
            assert f"{label} in" in one["text"], one["text"]
        else:
            assert label in (one["first"]["a"], one["first"]["b"]), one["text"]
            assert one["first"]["module"] == POINTS[point]
