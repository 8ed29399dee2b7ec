"""``compare`` of Keras with PyTorch: right activations agree, other numbers and missing biases are found.

The main environment runs the functions of PyTorch and compares, in both orders.
"""

import json
import os
import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf

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

class Attention(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        for number, name in enumerate(("queries", "keys", "centered")):
            layer = torch.nn.Linear(6, 6, bias=bias != f"no {name}")
            rng = np.random.default_rng(number)
            layer.weight.data = torch.tensor(rng.normal(size=(6, 6)).astype(np.float32).T.copy())
            if layer.bias is not None:
                layer.bias.data = torch.tensor(rng.normal(size=6).astype(np.float32))
            setattr(self, name, layer)

    def forward(self, x):
        x = x + torch.softmax(self.queries(x) @ self.keys(x).T, -1) @ x
        y = self.centered(x)
        return x + torch.tanh(y - y.mean(0))

for name in ("all", "no keys", "no centered"):
    for bias in ("all", "no keys", "no centered"):
        net, other = Attention(bias), intus.load(f"{folder}/{name}.trace")
        apart = float((net(x) - torch.tensor(np.asarray(other["output_1"].value))).abs().max())
        live = intus.trace(net, x)
        live.save(f"{folder}/torch.trace")
        found = []
        for own in (live, intus.load(f"{folder}/torch.trace")):
            for table in (intus.compare(own, other), intus.compare(other, own)):
                found.append((table.agree, table.attrs["summary"]))
        said[f"{name}, {bias}"] = [apart, found]
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


class Attention(keras.Model):
    """Layers whose biases a softmax and the subtraction of a mean hide, with all of them or without one."""

    def __init__(self, bias):
        super().__init__()
        self.bias = bias
        for name in LAYERS:
            setattr(self, name, keras.layers.Dense(6, use_bias=bias != f"no {name}"))

    def call(self, x):
        scores = tf.matmul(self.queries(x), self.keys(x), transpose_b=True)
        x = x + tf.matmul(tf.nn.softmax(scores), x)
        y = self.centered(x)
        return x + tf.tanh(y - tf.reduce_mean(y, 0))


LAYERS = ("queries", "keys", "centered")
BIASES = ("all", "no keys", "no centered")


def attention(bias):
    """Return the network; a layer has the numbers of its place."""
    net = Attention(bias)
    net(X)
    for number, name in enumerate(LAYERS):
        rng = np.random.default_rng(number)
        layer, kernel = getattr(net, name), rng.normal(size=(6, 6))
        layer.set_weights([kernel, rng.normal(size=6)][: len(layer.weights)])
    return net


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
    for bias in BIASES:
        intus.trace(attention(bias), X).save(folder / f"{bias}.trace")
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


@pytest.mark.parametrize("other", BIASES)
@pytest.mark.parametrize("name", BIASES)
def test_bias_of_one_side_is_told_although_what_follows_hides_it(compared, name, other):
    apart, tables = compared[f"{name}, {other}"]
    assert apart <= 1e-5
    missing = {one.removeprefix("no ") for one in (name, other) if name != other} - {"all"}
    for agree, text in tables:
        assert agree == (not missing), text
        assert all(f"What {layer} returns differs" in text for layer in missing), text
