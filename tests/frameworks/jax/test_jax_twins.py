"""``compare`` of functions of JAX with those of PyTorch: right twins agree, planted numbers are named.

The main environment runs the functions of PyTorch and compares, in both orders; see ``torch_twins.py``.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from torch_help import run_with_torch

import intus


def _normalized(x, eps):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + eps)


def _length(x):
    return jnp.linalg.norm(x, axis=-1, keepdims=True)


#: Other ways to write functions of PyTorch.
TWINS = {
    "leaky_relu": [
        lambda x: jax.nn.leaky_relu(x, 0.01),
        lambda x: jnp.where(x > 0, x, 0.01 * x),
        lambda x: jnp.maximum(x, 0.01 * x),
        lambda x: jnp.maximum(x, 0) + 0.01 * jnp.minimum(x, 0),
    ],
    "elu": [jax.nn.elu, lambda x: jnp.where(x > 0, x, jnp.expm1(x))],
    "elu of another alpha": [lambda x: jax.nn.elu(x, 1.3)],
    "celu": [jax.nn.celu, jax.nn.elu],
    "celu of another alpha": [
        lambda x: jax.nn.celu(x, 1.3),
        lambda x: jnp.where(x > 0, x, 1.3 * jnp.expm1(x / 1.3)),
    ],
    "selu": [jax.nn.selu],
    "silu": [jax.nn.silu, lambda x: x * jax.nn.sigmoid(x)],
    "mish": [jax.nn.mish],
    "softplus": [jax.nn.softplus],
    "softplus of beta": [lambda x: jax.nn.softplus(2.0 * x) / 2.0],
    "hardtanh": [jax.nn.hard_tanh, lambda x: jnp.clip(x, -1, 1)],
    "relu6": [jax.nn.relu6, lambda x: jnp.clip(x, 0, 6)],
    "hardswish": [jax.nn.hard_swish],
    "hardsigmoid": [jax.nn.hard_sigmoid, lambda x: jnp.clip(x / 6 + 0.5, 0, 1)],
    "line": [lambda x: x / 6 + 0.5, lambda x: (x + 3.0) / 6],
    "logsigmoid": [jax.nn.log_sigmoid],
    "softsign": [jax.nn.soft_sign],
    "hardshrink": [lambda x: jnp.where(jnp.abs(x) > 0.3, x, 0.0)],
    "softshrink": [
        lambda x: jnp.where(x > 0.3, x - 0.3, jnp.where(x < -0.3, x + 0.3, 0.0)),
        lambda x: jnp.sign(x) * jnp.maximum(jnp.abs(x) - 0.3, 0),
    ],
    "threshold": [lambda x: jnp.where(x > 0.1, x, 7.0)],
    "prelu": [lambda x: jax.nn.leaky_relu(x, 0.25)],
    "gelu": [lambda x: jax.nn.gelu(x, approximate=False)],
    "gelu by tanh": [lambda x: jax.nn.gelu(x, approximate=True)],
    "softmax": [jax.nn.softmax],
    "log_softmax": [jax.nn.log_softmax],
    "normalize": [lambda x: x / jnp.maximum(_length(x), 1e-12)],
    "normalized": [
        lambda x: _normalized(x, 1e-5),
        lambda x: jax.nn.standardize(x, axis=-1, epsilon=1e-5),
    ],
    "layer_norm": [
        lambda x: _normalized(x, 1e-5),
        lambda x: jax.nn.standardize(x, axis=-1, epsilon=1e-5),
    ],
    "clamp": [lambda x: jnp.clip(x, -0.5, 0.5)],
    "clamp of min": [lambda x: jnp.maximum(x, 0.2), lambda x: jnp.where(x > 0.2, x, 0.2)],
    "masked_fill": [lambda x: jnp.where(x > 30, 7.0, x)],
    "abs": [jnp.abs, lambda x: jnp.where(x < 0, -x, x), lambda x: jnp.maximum(x, -x)],
    "sign": [jnp.sign],
    "remainder": [lambda x: jnp.remainder(x, 3.0)],
    "nan_to_num": [jnp.nan_to_num],
    "logit": [lambda x: jax.scipy.special.logit(jnp.clip(jax.nn.sigmoid(x), 1e-6, 1 - 1e-6))],
}

#: Functions with one number that is another, by the function of PyTorch; with what is said of it.
PLANTED = {
    "leaky_relu": {
        "0.01": [
            lambda x: jax.nn.leaky_relu(x, 0.02),
            lambda x: jnp.maximum(x, 0.02 * x),
            lambda x: jnp.maximum(x, 0) + 0.02 * jnp.minimum(x, 0),
        ],
        "0": [lambda x: jnp.where(x > 1e-5, x, 0.01 * x)],
    },
    "elu": {"1": [lambda x: jax.nn.elu(x, 1.1)]},
    "celu": {"1": [lambda x: jax.nn.celu(x, 1.1)]},
    "elu of another alpha": {"1.3": [jax.nn.elu, lambda x: jax.nn.elu(x, 1.4)]},
    "celu of another alpha": {"1.3": [lambda x: jax.nn.celu(x, 1.4)]},
    "relu6": {"": [lambda x: jnp.clip(x, 0, 5), jax.nn.relu]},
    "hardtanh": {"": [lambda x: jnp.clip(x, -1, 2)]},
    "hardsigmoid": {"": [lambda x: x / 6 + 0.5]},
    "hardswish": {"": [lambda x: x * (x / 6 + 0.5), lambda x: x * (x + 3.0) / 6]},
    "line": {"": [jax.nn.hard_sigmoid, lambda x: jnp.clip(x / 6 + 0.5, 0, 1)]},
    "threshold": {"": [lambda x: jnp.where(x > 0.1, x, 8.0), lambda x: jnp.where(x > 0.1001, x, 7.0)]},
    "hardshrink": {"": [lambda x: jnp.where(jnp.abs(x) > 0.3001, x, 0.0)]},
    "softshrink": {
        "": [lambda x: jnp.where(x > 0.4, x - 0.4, jnp.where(x < -0.4, x + 0.4, 0.0))],
    },
    "normalize": {"": [lambda x: x / jnp.maximum(_length(x), 1e-6)]},
    "normalized": {"": [lambda x: _normalized(x, 2e-5)]},
    "layer_norm": {"": [lambda x: _normalized(x, 2e-5)]},
    "masked_fill": {"": [lambda x: jnp.where(x > 30, 8.0, x), lambda x: jnp.where(x > 40, 7.0, x)]},
    "clamp of min": {"": [lambda x: jnp.maximum(x, 0.21)]},
}
_NUMBERS = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
INPUTS = {
    "mixed": _NUMBERS,
    "positive": np.abs(_NUMBERS) + 0.5,
    "negative": -np.abs(_NUMBERS) - 0.5,
    "small": _NUMBERS * 1e-2,
    "large": _NUMBERS * 9,
}


class Net(nnx.Module):
    def __init__(self, function):
        self.function = function

    def __call__(self, x):
        return self.function(x)


def cases():
    """Return the functions of JAX and what they are compared with, by name."""
    found = {}
    for inputs in INPUTS:
        for name, functions in TWINS.items():
            for number, function in enumerate(functions):
                found[f"twin {name} {number} {inputs}"] = function, name, inputs, ""
        for name, planted in PLANTED.items():
            for said, functions in planted.items():
                for number, function in enumerate(functions):
                    found[f"planted {name} {said} {number} {inputs}"] = function, name, inputs, said
    return found


CASES = cases()


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return the largest difference of both functions and what is said of them, by the name of the case."""
    folder = tmp_path_factory.mktemp("twins")
    for name, x in INPUTS.items():
        np.save(folder / f"{name}.npy", x)
    for name, (function, _, inputs, _) in CASES.items():
        intus.trace(Net(function), jnp.asarray(INPUTS[inputs])).save(folder / f"{name}.trace")
    named = {name: (of, inputs) for name, (_, of, inputs, _) in CASES.items()}
    (folder / "cases.json").write_text(json.dumps(named))
    return run_with_torch("import torch_twins; torch_twins.main()", folder)


#: Steps that JAX adds and that have no effect on numbers like these: compare says so, and is not sure.
UNSURE = {"remainder", "nan_to_num", "logit"}


def names(kind, *inputs):
    return [name for name, case in CASES.items() if name.startswith(kind) and case[2] in inputs]


@pytest.mark.parametrize("name", names("twin", "mixed", "large"))
def test_right_twin_agrees_in_both_orders(compared, name):
    apart, said = compared[name]
    assert apart <= 1e-5 * max(1.0, np.abs(INPUTS[CASES[name][2]]).max())
    if CASES[name][1] not in UNSURE:
        assert [one["agree"] for one in said] == [True, True], said[0]["text"]


@pytest.mark.parametrize("name", names("twin", "positive", "negative", "small"))
def test_right_twin_is_never_said_to_differ(compared, name):
    """Allow what is said of steps without effect on numbers of one sign, which only one side has."""
    for text in (one["text"] for one in compared[name][1]):
        assert not [line for line in text.splitlines() if "constant" in line or "diverge" in line], text


@pytest.mark.parametrize("name", names("planted", *INPUTS))
def test_planted_number_is_found_in_both_orders(compared, name):
    """Also where these inputs do not show it, because no number reaches a bound or a slope."""
    said, number = compared[name][1], CASES[name][3]
    one, other = (table["text"] for table in said)
    assert [table["agree"] for table in said] == [False, False], one
    if number and not any("diverge" in text or "only in" in text for text in (one, other)):
        assert f"are {number} in a" in one, one
        assert f"{number} in b" in other, other
