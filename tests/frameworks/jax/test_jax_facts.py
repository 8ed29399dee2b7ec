"""FLOPs and unit axes of JAX's operations, judged by XLA's own count and by units that are planted."""

from __future__ import annotations

import gc
import re
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from jax import lax

import intus
from backends.counted_net import IN, MIDDLE, OUT, assert_counted
from intus.backends.jax.graph import structure
from intus.backends.jax.nnx import Nnx
from intus.backends.jax.shadow import ModelCall
from intus.core.analysis.flops import flops, products
from intus.core.units import UnitAxes
from intus.core.vocabularies.jax import DRAWING, KEYS

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.random((8, 10, 10, 3)).astype(np.float32)
X, Y, W = (RANDOM.random(shape).astype(np.float32) for shape in ((4, 5), (4, 5), (5, 3)))
conv = partial(lax.conv_general_dilated, window_strides=(1, 1), dimension_numbers=("NHWC", "HWIO", "NHWC"))
KERNEL, GROUPED = np.ones((3, 3, 3, 6), np.float32), np.ones((3, 3, 1, 6), np.float32)


class Function(nnx.Module):
    def __init__(self, function):
        self.function = function

    def __call__(self, *arrays):
        return self.function(*arrays)


def counted(model, *arrays):
    """Return the graph of a call, without running it one operation at a time, and its operations."""
    graph = structure(Nnx(), model, ModelCall(arrays, {}))
    counts = flops(graph)
    assert (counts >= 0).all()
    return graph, counts


def xla(function, *arrays):
    """Return what XLA counts: operations, and elementary functions, which it counts apart."""
    counts = jax.jit(function).lower(*arrays).compile().cost_analysis()
    return counts.get("flops", 0) + counts.get("transcendentals", 0)


PRODUCTS = {
    "matrices": (jnp.dot, X, W),
    "transposed": (lambda x, y: x @ y.T, X, Y),
    "batched": (jnp.matmul, np.ones((2, 3, 4, 5), np.float32), np.ones((2, 3, 5, 6), np.float32)),
    "einsum": (partial(jnp.einsum, "abcd,aecd->acbe"), *[np.ones((2, 3, 4, 5), np.float32)] * 2),
    "several axes": (partial(jnp.tensordot, axes=2), np.ones((2, 4, 5), np.float32), X),
    "convolution": (partial(conv, padding="VALID"), IMAGES, KERNEL),
    "strides": (partial(conv, padding="VALID", window_strides=(2, 2)), IMAGES, KERNEL),
    "groups": (partial(conv, padding="VALID", feature_group_count=3), IMAGES, GROUPED),
    "channels first": (
        partial(lax.conv_general_dilated, window_strides=(1, 1), padding="VALID"),
        IMAGES.transpose(0, 3, 1, 2),
        KERNEL.transpose(3, 2, 0, 1),
    ),
    "transposed convolution": (
        partial(conv, padding=((2, 2), (2, 2)), lhs_dilation=(2, 2)),
        IMAGES,
        KERNEL,
    ),
}
ONCE = "abs ceil cos erf exp expm1 floor log log1p neg rsqrt sign sin sqrt tan tanh"
TWICE = "add atan2 div max min mul pow rem sub"


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_as_xla_counts_them(name):
    function, *arrays = PRODUCTS[name]
    graph, counts = counted(Function(function), *arrays)
    assert counts.sum() == xla(function, *arrays)
    assert products(graph).sum() == 1


def test_elementwise_operations_as_xla_counts_them():
    def run(x, y):
        both = [getattr(lax, name)(x, y) for name in TWICE.split()]
        return [getattr(lax, name)(x) for name in ONCE.split()] + both

    _, counts = counted(Function(run), X, Y)
    assert np.count_nonzero(counts == X.size) == len([*ONCE.split(), *TWICE.split()])
    assert counts.sum() == xla(run, X, Y)


def test_reductions_as_xla_counts_them():
    """XLA counts one less for each result, since it counts the steps between numbers."""

    def run(x):
        kinds = jnp.sum, jnp.max, jnp.min, jnp.prod
        return [kind(x, axis) for kind in kinds for axis in (0, (0, 1))]

    _, counts = counted(Function(run), X)
    assert counts.sum() == xla(run, X) + sum(map(np.size, run(X)))


class Cnn(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 6, (3, 3), padding="VALID", rngs=rngs)
        self.norm = nnx.BatchNorm(6, use_running_average=True, rngs=rngs)
        self.up = nnx.ConvTranspose(6, 5, (2, 2), (2, 2), padding="VALID", rngs=rngs)
        self.block = nnx.Sequential(nnx.relu, nnx.Linear(5, 7, rngs=rngs))
        self.fc = nnx.Linear(7 * 16, 4, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.norm(self.conv(x))), (2, 2), (2, 2))
        x = nnx.avg_pool(self.block(self.up(x)), (2, 2), (2, 2))
        return self.fc(x.reshape(x.shape[0], -1))


class Transformer(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(50, 32, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(4, 32, decode=False, rngs=rngs)
        self.norm, self.fc = nnx.LayerNorm(32, rngs=rngs), nnx.Linear(32, 64, rngs=rngs)
        self.proj = nnx.Linear(64, 32, rngs=rngs)

    def __call__(self, ids):
        x = self.embed(ids)
        x = x + self.attn(self.norm(x))
        return x + self.proj(jax.nn.gelu(self.fc(x)))


def made(cls):
    return nnx.jit(lambda: cls(nnx.Rngs(0)))()  # compiled as a whole, which is faster


TOKENS = np.arange(24).reshape(2, 12)


@pytest.fixture(scope="module", params=["cnn", "transformer"])
def traced(request):
    model, x = (made(Cnn), IMAGES) if request.param == "cnn" else (made(Transformer), TOKENS)
    return request.param, model, x, *counted(model, x)


def test_models_as_xla_counts_them(traced):
    """The sum differs by conversions and comparisons of indices, and what XLA simplifies."""
    _, model, x, _, counts = traced
    graphdef, state = nnx.split(model)
    expected = xla(lambda state, x: nnx.merge(graphdef, state)(x), state, x)
    assert counts.sum() == pytest.approx(expected, rel=0.02)


def test_unit_axes_of_models(traced):
    """Heads and features of a head come from one product, so that neither is known to be the units."""
    model, _, _, graph, _ = traced
    axes = UnitAxes(graph)
    if model == "cnn":
        names = "conv", "norm", "reduce_window_max_1", "up", "block", "reduce_window_sum_1"
        assert [axes.of(graph.rows(name)[0]) for name in names] == [3] * 6
        assert axes.of(graph.rows("fc")[0]) == 1
        return
    for name in ("embed", "attn", "norm", "fc", "proj", "output_1"):
        assert axes.of(graph.rows(name)[0]) == 2
    assert axes.find(graph.rows("attn.query")[0]) is None


def planted(model, unit):
    """Set a convolution's kernel to zero but for one channel."""
    kernel = model.conv.kernel.get_value()
    model.conv.kernel.set_value(jnp.zeros_like(kernel).at[..., unit].set(1.0))
    model.conv.bias.set_value(jnp.zeros_like(model.conv.bias.get_value()))
    return model


def test_inspect_has_a_row_for_each_unit():
    model = planted(made(Cnn), 4)
    labels = np.arange(8) % 2
    images = IMAGES * (1 + labels[:, None, None, None])
    table = intus.inspect(model, {"odd": labels}, "mean_difference", images, ["conv", "norm", "up", "block"])
    units = {address: sorted(rows.unit) for address, rows in table.groupby("address")}
    expected = {"conv": 6, "norm": 6, "up": 5, "block": 7}
    assert units == {address: list(range(count)) for address, count in expected.items()}
    for address in ("conv", "norm"):
        rows = table[table.address == address]
        assert rows[rows.value.abs() > 1e-3].unit.tolist() == [4]


def test_inspect_of_equinox_has_channels_first():
    net = eqx.nn.Conv2d(3, 6, 3, use_bias=False, key=jax.random.key(0))
    net = eqx.tree_at(lambda net: net.weight, net, jnp.zeros_like(net.weight).at[2].set(1.0))
    labels = np.arange(8) % 2
    images = (IMAGES * (1 + labels[:, None, None, None])).transpose(0, 3, 1, 2)
    table = intus.inspect(eqx.nn.Sequential([net]), {"odd": labels}, "mean_difference", images, "layers.0")
    assert sorted(table.unit) == list(range(6))
    assert table[table.value.abs() > 1e-3].unit.tolist() == [2]


def test_lookups_count_no_flops_and_a_bias_does():
    embed, by_type = nnx.Embed(9, 4, rngs=nnx.Rngs(0)), {}
    graph = structure(Nnx(), embed, ModelCall((np.ones((3, 5), int),), {}))
    for row, count in enumerate(flops(graph).tolist()):
        by_type[graph.type_of(row)] = count
    assert by_type["gather"] == 0
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
    linear = structure(Nnx(), model, ModelCall((np.ones((3, 4), np.float32),), {}))
    assert sorted(flops(linear).tolist())[-2:] == [3 * 4, 2 * 3 * 4 * 4]


class EquinoxNet(eqx.Module):
    layers: list

    def __init__(self):
        first, last = jax.random.split(jax.random.key(0))
        norm = eqx.nn.BatchNorm(MIDDLE, "batch", mode="ema")
        self.layers = [eqx.nn.Linear(IN, MIDDLE, key=first), norm, eqx.nn.Linear(MIDDLE, OUT, key=last)]

    def __call__(self, x, state):
        x, state = self.layers[1](self.layers[0](x), state, inference=True)
        return self.layers[2](x), state


def test_running_statistics_are_no_parameters():
    rngs, x = nnx.Rngs(0), jnp.ones((5, IN))
    norm = nnx.BatchNorm(MIDDLE, use_running_average=True, rngs=rngs)
    net = nnx.Sequential(nnx.Linear(IN, MIDDLE, rngs=rngs), norm, nnx.Linear(MIDDLE, OUT, rngs=rngs))
    assert_counted(intus.trace(net, x))
    norm = linen.BatchNorm(use_running_average=True)
    net = linen.Sequential([linen.Dense(MIDDLE), norm, linen.Dense(OUT)])
    assert_counted(intus.trace(net.bind(net.init(jax.random.key(0), x)), x))
    net, state = eqx.nn.make_with_state(EquinoxNet)()  # the statistics are in the state, an argument
    assert_counted(intus.trace(net, x[0], state), buffers=0)


@pytest.mark.parametrize(
    ("function", "recurrent"),
    [
        (lambda x: lax.fori_loop(0, 3, lambda at, state: state * 1.1, x), True),
        (lambda x: lax.while_loop(lambda state: state.sum() < 99, lambda state: state * 1.1, x), True),
        (lambda x: lax.scan(lambda state, row: (state + row, state), x[0], x)[1], True),
        (lambda x: lax.map(lambda row: row * 2, x), False),
        (lambda x: jnp.cumsum(x, 0) + lax.associative_scan(jnp.add, x), False),
    ],
)
def test_loop_that_passes_a_state_is_recurrent(function, recurrent):
    assert intus.trace(Function(function), X).is_recurrent == recurrent


def test_recurrent_layers_are_recurrent():
    x, rngs = jnp.ones((2, 5, 3)), nnx.Rngs(0)
    assert intus.trace(nnx.RNN(nnx.GRUCell(3, 4, rngs=rngs)), x).is_recurrent
    assert not intus.trace(nnx.MultiHeadAttention(1, 3, rngs=rngs, decode=False), x).is_recurrent
    layer = linen.RNN(linen.LSTMCell(4))
    assert intus.trace(layer.bind(layer.init(jax.random.key(0), x)), x).is_recurrent


def test_primitives_that_draw_are_those_of_jax():
    jax.random.key(0)  # jax registers its generators when they are first used
    made = {one.name for one in gc.get_objects() if type(one) is jax.extend.core.Primitive}
    assert {name for name in made if re.match("random_|rng_|threefry|philox", name)} == DRAWING | KEYS
