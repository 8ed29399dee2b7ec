"""Two small networks that every framework builds from the same weights, and what is changed of them.

Lengths are equal where they would tell otherwise what is changed: matrices, kernels and images are square,
and there are as many channels before as after. ``planted_twins.py`` compares the passes in the environment
that has PyTorch and pandas.
"""

import re
from pathlib import Path

import numpy as np
from torch_help import run_with_torch

#: Of the network of images: the settings that a change makes other, as arguments of its builder.
SETTINGS = {
    "kernel with height and width swapped": {},
    "kernel with channels swapped": {},
    "one filter of the kernel": {},
    "matrix transposed": {},
    "one row of the matrix": {},
    "scale": {},
    "bias dropped": {"bias": False},
    "stride": {"stride": 2},
    "padding": {"padding": 0},
    "dilation": {"dilation": 2},
    "groups": {"groups": 2},
    "epsilon": {"eps": 1e-2},
}
#: All changes: also the axis of the softmax in the network of rows.
CHANGES = (*SETTINGS, "axis")


def _either(name, one, two):
    return rf"{name} is ({one} in a, {two}|{two} in a, {one}) in b"


_KERNEL, _FC = r"conv\.\w+ of a and.* of b", r"fc\.\w+ of a and.* of b"
#: The module that has a change, and what the reason has to say.
REASONS = {
    "kernel with height and width swapped": ("conv", rf"{_KERNEL} differ by 1\.3 of their norm"),
    "kernel with channels swapped": ("conv", rf"{_KERNEL} differ by 1\.3 of their norm"),
    "one filter of the kernel": ("conv", rf"{_KERNEL} differ by 0\.037 of their norm"),
    "matrix transposed": ("fc", rf"{_FC} are (transposes of each other|equal, but b uses it transposed)"),
    "one row of the matrix": ("fc", rf"{_FC} differ by 0\.05 of their norm"),
    "scale": ("norm", r"norm\.\w+ of a and.* of b differ by 0\.043 of their norm"),
    "bias dropped": ("fc", r"fc\.bias of (a has no counterpart in b|b has no counterpart in a)"),
    "stride": ("conv", _either(r"(window_)?strides?", r"[(\[](1, )?1, 1.*", r"[(\[](1, )?2, 2.*")),
    "padding": ("conv|pad", r"(\w*pad\w* is .* in a, .* in b|Pad.* ran only in [ab])"),
    "dilation": ("conv", _either(r"\w*dilat\w*", r"([(\[](1, )?1, 1.*|not given)", r"[(\[](1, )?2, 2.*")),
    "groups": ("conv", _either(r"\w*group\w*", "1", "2") + rf"|{_KERNEL} are of shapes .*"),
    "epsilon": ("norm", r"(its constants are |argument \d is |y is |eps is ).*\b0\.0(1\b|0999).*"),
    "axis": (".*", r"(its axes are |\w+ is ).*[012].* in a, .*[012].* in b|.* Transpose.* ran only in [ab]"),
}
#: What may be said besides: what follows from the change, and where.
_BESIDES = (
    r"its shape is .* in a, .* in b",
    r"a runs .* where b runs .*",
    r".* ran only in [ab]",
    r"no_bias is .* in a, .* in b",
    r"conv\.\w+ of a and.* of b are of shapes .*",  # of groups
)


def images(*, last=False):
    """Return images, with their channels first or last."""
    x = np.random.RandomState(0).randn(3, 4, 8, 8).astype(np.float32)
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x


def rows():
    """Return the inputs of the other network."""
    return np.random.RandomState(0).randn(4, 4, 4).astype(np.float32)


def weights(change="", *, last=False):
    """Return the weights by the names that PyTorch gives them.

    Args:
        change: The change.
        last: Whether matrices and kernels have their units last, as in Keras and Flax.
    """
    random = np.random.RandomState(1)
    w = {
        "conv.weight": random.randn(4, 4, 3, 3) * 0.3,
        "conv.bias": random.randn(4),
        "fc.weight": random.randn(4, 4),
        "fc.bias": random.randn(4),
        "norm.weight": random.rand(4) + 0.5,
        "norm.bias": random.randn(4),
        "out.weight": random.randn(3, 4),
        "out.bias": random.randn(3),
    }
    if change == "kernel with height and width swapped":
        w["conv.weight"] = w["conv.weight"].swapaxes(2, 3)
    if change == "kernel with channels swapped":
        w["conv.weight"] = w["conv.weight"].swapaxes(0, 1)
    if change == "one filter of the kernel":
        w["conv.weight"][2] *= 1.1
    if change == "matrix transposed":
        w["fc.weight"] = w["fc.weight"].T
    if change == "one row of the matrix":
        w["fc.weight"][1] += 0.1
    if change == "scale":
        w["norm.weight"][3] *= 1.1
    if change == "groups":
        w["conv.weight"] = w["conv.weight"][:, :2]
    if last:
        w = {
            name: value.transpose(*range(2, value.ndim), *range(min(value.ndim, 2))[::-1])
            for name, value in w.items()
        }
    return {name: np.ascontiguousarray(value, np.float32) for name, value in w.items()}


def compared(folder, images_of, rows_of):
    """Return what ``compare`` says of the passes of a framework, among each other and with PyTorch.

    Args:
        folder: A folder to write to.
        images_of: Returns the trace of the network of images, given a change and the changed settings.
        rows_of: Returns the trace of the network of rows, given whether its softmax is along the other axis.
    """
    for change, settings in {"": {}, **SETTINGS}.items():
        write(folder, change or "images", images_of(change, **settings))
    write(folder, "rows", rows_of(False))
    write(folder, "axis", rows_of(True))
    return run_with_torch("import planted_twins; planted_twins.main()", folder)


def write(folder, name, trace):
    """Write a trace and the values of its parameters, which a saved trace lacks."""
    trace.save(Path(folder) / f"{name}.trace")
    values = {param.address: np.asarray(trace.value(param.address)) for param in trace.graph.params}
    np.savez(Path(folder) / f"{name}.npz", **values)


def read(folder, name):
    """Return a trace as it was before it was saved: with its parameters."""
    from intus import load
    from intus.tracing.results.trace import Trace

    loaded = load(Path(folder) / f"{name}.trace")
    with np.load(Path(folder) / f"{name}.npz") as values:
        return Trace(loaded.graph, loaded.values, params=dict(values))


def check_reason(said, change):
    """Check that a comparison names the change, and no cause that is none."""
    module, pattern = REASONS[change]
    assert not said["agree"], said["text"]
    assert re.fullmatch(module, said["module"]), said["text"]
    assert any(re.fullmatch(pattern, why) for why in said["why"]), said["why"]
    others = [why for why in said["why"] if not re.fullmatch(pattern, why)]
    assert all(any(re.fullmatch(one, why) for one in _BESIDES) for why in others), others


def check_twin(said):
    """Check that a comparison finds no difference."""
    assert said["agree"], said["text"]
    assert not said["why"], said
