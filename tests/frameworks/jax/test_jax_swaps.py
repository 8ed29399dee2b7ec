"""``compare`` of models of JAX with twins in PyTorch of which two layers are swapped."""

import equinox as eqx
import jax
import jax.numpy as jnp
import planted_swaps
import pytest
from flax import linen, nnx
from swap_reasons import SwappedLayers

import intus


class Functions:
    matmul, exp, tanh, softmax = jnp.matmul, jnp.exp, jnp.tanh, jax.nn.softmax

    @staticmethod
    def turned(x):
        return x.swapaxes(-1, -2)

    @staticmethod
    def rows(x):
        return x.reshape(len(x), -1, 4)


class FunctionsOfChannelsFirst(Functions):
    @staticmethod
    def rows(x):
        return x.reshape(len(x), 4, -1).swapaxes(1, 2)


def of_flax(layer, weight, bias):
    """Return the values of a layer by the names that Flax gives them."""
    name = "scale" if layer.startswith("norm") else "kernel"
    return {name: jnp.asarray(planted_swaps.stored(layer, weight)), "bias": jnp.asarray(bias)}


class NnxNet(nnx.Module):
    def __init__(self, name):
        self.name = name
        rngs = nnx.Rngs(0)
        makers = {
            "conv": lambda: nnx.Conv(4, 4, (3, 3), padding=1, rngs=rngs),
            "norm": lambda: nnx.LayerNorm(4, epsilon=1e-5, rngs=rngs),
        }
        for layer, values in planted_swaps.weights(name).items():
            made = makers.get(layer[:4], lambda: nnx.Linear(4, 4, rngs=rngs))()
            for kind, value in of_flax(layer, *values).items():
                getattr(made, kind)[...] = value
            setattr(self, layer, made)

    def __call__(self, x):
        return planted_swaps.NETS[self.name].run(self, Functions, x)


def nnx_traced(name):
    return intus.trace(NnxNet(name), jnp.asarray(planted_swaps.inputs(name)))


class LinenNet(linen.Module):
    net: str

    def setup(self):
        makers = {
            "conv": lambda: linen.Conv(4, (3, 3), padding=1),
            "norm": lambda: linen.LayerNorm(epsilon=1e-5),
        }
        for layer in planted_swaps.NETS[self.net].layers:
            setattr(self, layer, makers.get(layer[:4], lambda: linen.Dense(4))())

    def __call__(self, x):
        return planted_swaps.NETS[self.net].run(self, Functions, x)


def linen_traced(name):
    values = {layer: of_flax(layer, *both) for layer, both in planted_swaps.weights(name).items()}
    return intus.trace(LinenNet(name).bind({"params": values}), jnp.asarray(planted_swaps.inputs(name)))


class EquinoxNet(eqx.Module):
    layers: dict
    name: str = eqx.field(static=True)

    def __init__(self, name):
        self.name, self.layers, key = name, {}, jax.random.key(0)
        makers = {
            "conv": lambda: eqx.nn.Conv2d(4, 4, 3, padding=1, key=key),
            "norm": lambda: eqx.nn.LayerNorm(4),
        }
        for layer, (weight, bias) in planted_swaps.weights(name).items():
            made = makers.get(layer[:4], lambda: eqx.nn.Linear(4, 4, key=key))()
            values = jnp.asarray(weight), jnp.asarray(bias).reshape(made.bias.shape)
            self.layers[layer] = eqx.tree_at(lambda one: (one.weight, one.bias), made, values)

    def __call__(self, x):
        return planted_swaps.NETS[self.name].run(self, FunctionsOfChannelsFirst, x)

    def __getattr__(self, layer):
        if layer not in planted_swaps.NETS[self.name].layers:
            raise AttributeError(layer)
        mapped = jax.vmap(self.layers[layer])
        return mapped if layer.startswith("conv") else jax.vmap(mapped)


def equinox_traced(name):
    return intus.trace(EquinoxNet(name), jnp.asarray(planted_swaps.inputs(name, last=False)))


@pytest.fixture(
    scope="module", params=[nnx_traced, linen_traced, equinox_traced], ids=["NNX", "Linen", "Equinox"]
)
def traced(request):
    return request.param


class TestSwaps(SwappedLayers):
    """Test the networks of ``traced``."""
