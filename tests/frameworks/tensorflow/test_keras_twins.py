"""``compare`` of Keras with PyTorch: right activations agree, other numbers and missing biases are found.

The main environment runs the twins in PyTorch and compares, in both orders; see ``torch_twins.py``.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from torch_help import run_with_torch

import intus

of = keras.activations
TWINS = {
    "leaky_relu of 0.2": lambda x: of.leaky_relu(x, 0.2),
    "elu": of.elu,
    "celu": of.celu,
    "selu": of.selu,
    "softplus": of.softplus,
    "relu6": of.relu6,
    "hardsigmoid": of.hard_sigmoid,
    "hardswish": of.hard_swish,
    "mish": of.mish,
    "gelu": lambda x: of.gelu(x, approximate=False),
    "hardshrink of 0.5": of.hard_shrink,
    "softshrink of 0.5": of.soft_shrink,
    "threshold": lambda x: of.threshold(x, 0.1, 7.0),
}
PLANTED = {
    "leaky_relu of 0.2": lambda x: of.leaky_relu(x, 0.1),
    "elu": lambda x: of.elu(x, 1.1),
    "celu": lambda x: of.celu(x, 1.1),
    "relu6": of.relu,
    "hardsigmoid": lambda x: x / 6 + 0.5,
    "hardshrink of 0.5": lambda x: of.hard_shrink(x, 0.6),
    "softshrink of 0.5": lambda x: of.soft_shrink(x, 0.6),
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
    (folder / "cases.json").write_text(json.dumps({case: (name, "x") for case, name in CASES.items()}))
    for case, name in CASES.items():
        function = (TWINS if case.startswith("twin") else PLANTED)[name]
        given = keras.Input((6,))
        model = keras.Model(given, keras.layers.Lambda(function, name="act")(given))
        intus.trace(model, X).save(folder / f"{case}.trace")
    for bias in BIASES:
        intus.trace(attention(bias), X).save(folder / f"{bias}.trace")
    return run_with_torch("import torch_twins; torch_twins.main()", folder, *BIASES)


@pytest.mark.parametrize("name", TWINS)
def test_right_twin_agrees_in_both_orders(compared, name):
    apart, said = compared[f"twin {name}"]
    assert apart <= 1e-5
    assert [one["agree"] for one in said] == [True, True], said[0]["text"]


@pytest.mark.parametrize("name", PLANTED)
def test_planted_number_is_found_in_both_orders(compared, name):
    said = compared[f"planted {name}"][1]
    assert [one["agree"] for one in said] == [False, False], said[0]["text"]


@pytest.mark.parametrize("other", BIASES)
@pytest.mark.parametrize("name", BIASES)
def test_bias_of_one_side_is_told_although_what_follows_hides_it(compared, name, other):
    apart, said = compared[f"{name}, {other}"]
    assert apart <= 1e-5
    missing = {one.removeprefix("no ") for one in (name, other) if name != other} - {"all"}
    assert len(said) == 4
    for one in said:
        assert one["agree"] == (not missing), one["text"]
        assert all(f"What {layer} returns differs" in one["text"] for layer in missing), one["text"]
