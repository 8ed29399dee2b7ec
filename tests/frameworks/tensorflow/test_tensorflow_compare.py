"""``compare`` of a saved pass of NNX with passes of the same network in Keras, of which one thing is changed.

The judge is Keras itself: of the network without a change, and of one with a dropout in evaluation mode, the
outputs are those of NNX.
"""

import importlib.util
from pathlib import Path

import keras
import numpy as np
import pytest

import intus

_FILE = Path(__file__).parent.parent / "saved" / "nnx_network.py"
_SPEC = importlib.util.spec_from_file_location("nnx_network", _FILE)
saved = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(saved)


def twin(*, eps=1e-5, norm_eps=1e-6, approximate=False, act="relu", dropout=False, no_bias="", **changes):
    """Return the network in Keras; ``changes`` are added to weights, named with ``_`` for the dot."""
    layers, w = keras.layers, saved.weights()
    for name, change in changes.items():
        w[name.replace("_", ".")] += np.float32(change)
    x = keras.Input((8, 8, 2))
    h = layers.Conv2D(4, 3, strides=2, padding="same", name="conv", use_bias=no_bias != "conv")(x)
    h = layers.BatchNormalization(epsilon=eps, name="bn")(h)
    h = layers.Activation(act, name="act")(h)
    h = layers.LayerNormalization(epsilon=norm_eps, name="ln")(layers.Flatten(name="flat")(h))
    h = layers.Dense(8, name="fc", use_bias=no_bias != "fc")(h)
    h = layers.Lambda(lambda y: keras.ops.gelu(y, approximate=approximate), name="gelu")(h)
    h = layers.Dropout(0.3)(h) if dropout else h
    net = keras.Model(x, layers.Dense(3, name="o", use_bias=no_bias != "o")(h))
    for name in ("conv", "fc", "o"):
        layer = net.get_layer(name)
        layer.set_weights([w[f"{name}.kernel"], w[f"{name}.bias"]][: len(layer.weights)])
    net.get_layer("bn").set_weights([np.ones(4), np.zeros(4), w["bn.mean"], w["bn.var"]])
    return net


def compared(tmp_path, **changes):
    """Return the comparison of both passes, each saved to a file, and the relative difference of outputs."""
    one, path = intus.load(saved.TRACE), tmp_path / "keras.trace"
    intus.trace(twin(**changes), saved.images()).save(path)
    other = intus.load(path)
    x, y = (np.asarray(trace["output_1"].value) for trace in (one, other))
    return intus.compare(one, other), float(np.linalg.norm(x - y) / np.linalg.norm(x))


@pytest.mark.parametrize("changes", [{}, {"dropout": True}], ids=["same", "dropout"])
def test_same_network_of_two_frameworks_agrees(changes, tmp_path):
    table, apart = compared(tmp_path, **changes)
    assert apart < 1e-5
    assert table.agree, str(table)
    assert not {"differs", "shape"} & set(table.verdict), str(table)


#: A change, the module that has it, and a part of the reason.
CHANGES = {
    "epsilon of a batch norm": ({"eps": 1e-2}, "bn", "its constants are 1e-05 (add_2_4) in a, y=0.01 ("),
    "epsilon of a layer norm": ({"norm_eps": 1e-2}, "ln", "its constants are 1e-06 (add_4_22) in a"),
    "mean": ({"bn_mean": 0.01}, "bn", "bn.mean of a and bn.moving_mean of b differ by 0.0"),
    "bias": ({"fc_bias": 0.001}, "fc", "fc.bias of a and of b may differ"),
    "kernel": ({"o_kernel": 0.001}, "o", "o.kernel of a and of b may differ"),
    "first kernel": ({"conv_kernel": 0.01}, "conv", "conv.kernel of a and of b may differ"),
    "activation": ({"act": "leaky_relu"}, "act", "a runs max_1_9 where b runs LeakyRelu"),
    "approximation": ({"approximate": True}, "gelu", "its constants are 0.70710677"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_is_named_with_its_reason(name, tmp_path):
    changes, module, reason = CHANGES[name]
    table, apart = compared(tmp_path, **changes)
    assert apart > 1e-5
    first = table.attrs["first"]
    assert first["module"] == module, str(table)
    assert reason in "\n".join(first["why"]), first
    assert not any(why.startswith("it is ") for why in first["why"]), first


@pytest.mark.parametrize("layer", ["conv", "fc", "o"])
def test_missing_bias_is_placed_in_its_layer_in_both_orders(layer):
    one, other = intus.load(saved.TRACE), intus.trace(twin(no_bias=layer), saved.images())
    for table in (intus.compare(one, other), intus.compare(other, one)):
        assert table.attrs["first"]["module"] == layer, str(table)
        assert f"{layer}.bias" in str(table.attrs["first"]["why"]), str(table)


def test_bound_that_is_not_reached_is_told(tmp_path):
    table, apart = compared(tmp_path, act="relu6")
    assert apart < 1e-5
    assert not table.agree
    assert "Relu6_1_12 in act ran only in b, and has no effect on these inputs." in str(table)


def test_values_of_parameters_of_passes_that_are_not_saved_are_the_reason(tmp_path):
    own = intus.trace(twin(), saved.images())
    other = intus.trace(twin(fc_bias=0.001), saved.images())
    assert "fc.bias of a and of b differ by" in str(intus.compare(own, other))


@pytest.mark.parametrize(
    "changed", [{"norm_eps": 1.1e-6}, {"eps": 1.01e-5}], ids=["layer norm", "batch norm"]
)
def test_other_epsilon_that_rounding_hides_is_told(changed):
    x = np.random.default_rng(0).normal(size=(4, 8, 8, 2)).astype(np.float32)
    one, same, other = (intus.trace(twin(**changes), x) for changes in ({}, {}, changed))
    assert intus.compare(one, same).agree
    for a, b in ((one, other), (other, one)):
        assert not intus.compare(a, b).agree
