"""``compare`` of activations of Keras with those of PyTorch: right twins agree, other numbers are found.

The main environment runs the functions of PyTorch and compares, in both orders.
"""

import json
import os
import subprocess

import keras
import numpy as np
import pytest

import intus

TORCH = """
import json, sys
import numpy as np, torch
import torch.nn.functional as F
import intus

FUNCTIONS = {
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "softplus": F.softplus,
    "relu6": F.relu6,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "gelu": F.gelu,
    "hardshrink": lambda x: F.hardshrink(x, 0.5),
    "softshrink": lambda x: F.softshrink(x, 0.5),
    "threshold": lambda x: F.threshold(x, 0.1, 7.0),
}

class Net(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)

folder, said = sys.argv[1], {}
x = torch.tensor(np.load(f"{folder}/x.npy"))
for name, of in json.load(open(f"{folder}/cases.json")).items():
    other, net = intus.load(f"{folder}/{name}.trace"), Net(FUNCTIONS[of])
    apart = float((net(x) - torch.tensor(np.asarray(other["output_1"].value))).abs().max())
    own = intus.trace(net, x)
    tables = intus.compare(own, other), intus.compare(other, own)
    said[name] = [apart, [(table.agree, table.attrs["summary"]) for table in tables]]
print(json.dumps(said))
"""
of = keras.activations
TWINS = {
    "leaky_relu": lambda x: of.leaky_relu(x, 0.2),
    "elu": of.elu,
    "celu": of.celu,
    "selu": of.selu,
    "softplus": of.softplus,
    "relu6": of.relu6,
    "hardsigmoid": of.hard_sigmoid,
    "hardswish": of.hard_swish,
    "mish": of.mish,
    "gelu": lambda x: of.gelu(x, approximate=False),
    "hardshrink": of.hard_shrink,
    "softshrink": of.soft_shrink,
    "threshold": lambda x: of.threshold(x, 0.1, 7.0),
}
PLANTED = {
    "leaky_relu": lambda x: of.leaky_relu(x, 0.1),
    "elu": lambda x: of.elu(x, 1.1),
    "celu": lambda x: of.celu(x, 1.1),
    "relu6": of.relu,
    "hardsigmoid": lambda x: x / 6 + 0.5,
    "hardshrink": lambda x: of.hard_shrink(x, 0.6),
    "softshrink": lambda x: of.soft_shrink(x, 0.6),
    "threshold": lambda x: of.threshold(x, 0.1, 8.0),
}
CASES = {f"twin {name}": name for name in TWINS} | {f"planted {name}": name for name in PLANTED}
X = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return the largest difference of both functions and what is said of them, by the name of the case."""
    folder = tmp_path_factory.mktemp("twins")
    np.save(folder / "x.npy", X)
    (folder / "cases.json").write_text(json.dumps(CASES))
    for case, name in CASES.items():
        function = (TWINS if case.startswith("twin") else PLANTED)[name]
        given = keras.Input((6,))
        model = keras.Model(given, keras.layers.Lambda(function, name="act")(given))
        intus.trace(model, X).save(folder / f"{case}.trace")
    command = [os.environ["INTUS_SERVER_PYTHON"], "-c", TORCH, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", TWINS)
def test_right_twin_agrees_in_both_orders(compared, name):
    apart, tables = compared[f"twin {name}"]
    assert apart <= 1e-5
    assert [agree for agree, _ in tables] == [True, True], tables[0][1]


@pytest.mark.parametrize("name", PLANTED)
def test_planted_number_is_found_in_both_orders(compared, name):
    tables = compared[f"planted {name}"][1]
    assert [agree for agree, _ in tables] == [False, False], tables[0][1]
