"""A small network of images, with its channels last, and what is changed in twins that have them first.

``channels_first.py`` compares its pass with twins in PyTorch, in the environment that has PyTorch and pandas.
"""

import numpy as np
from torch_help import run_with_torch

#: The places of each change of a twin: the module that has it, ``""`` outside of all.
CHANGES = {
    "no residual 0": "blocks.0",
    "no residual 1": "blocks.1",
    "no activation 0": "blocks.0",
    "no activation 1": "blocks.1",
    "other activation 0": "blocks.0",
    "epsilon 0": "blocks.0.norm",
    "weight 1": "blocks.1.conv",
    "weight behind the layout": "head",
    "no layout": "",
    "flip": "",
    "transposed pixels": "",
    "scale": "",
}
_RANDOM = np.random.default_rng(0)
IMAGES = _RANDOM.normal(size=(2, 5, 7, 3)).astype(np.float32)


def _weights():
    """Return the parameters by the names and in the layouts of PyTorch."""
    shapes = {"stem": (6, 3, 3, 3), "blocks.0.conv": (6, 6, 1, 1), "blocks.1.conv": (6, 6, 3, 3)}
    shapes["head"] = (4, 6 * 5 * 7)
    found = {f"{name}.weight": _RANDOM.normal(size=shape) / shape[1] for name, shape in shapes.items()}
    found |= {f"{name}.bias": _RANDOM.normal(size=shape[0]) for name, shape in shapes.items()}
    for norm in ("blocks.0.norm", "blocks.1.norm"):
        for name, low in (("weight", 0.5), ("bias", -0.5), ("running_mean", -0.5), ("running_var", 0.5)):
            found[f"{norm}.{name}"] = low + _RANDOM.uniform(size=6)
    return {name: value.astype(np.float32) for name, value in found.items()}


WEIGHTS = _weights()


def kernel(name):
    """Return the weight of a layer in the layout of the other frameworks."""
    weight = WEIGHTS[f"{name}.weight"]
    return weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T


def compared(trace, folder):
    """Return what is said of a pass and of each of its twins, in both orders.

    Args:
        trace: The pass of the network.
        folder: An empty folder.
    """
    trace.save(folder / "images.trace")
    return run_with_torch("import channels_first; channels_first.main()", folder / "images.trace")


def check_right(said):
    """Check that a right twin agrees."""
    assert [one["agree"] for one in said["right"]] == [True, True], said["right"][0]["text"]


def check_named(said, change):
    """Check that the module that has the change is named, and no other is said to make a difference."""
    for one in said[change]:
        assert not one["agree"]
        assert one["module"] == CHANGES[change], one["text"]
        assert one["sources"] == [CHANGES[change]], one["text"]
        assert "also originate" not in one["text"], one["text"]
    ends = [{one["a"], one["b"]} for one in said[change]]
    assert ends[0] == ends[1]
