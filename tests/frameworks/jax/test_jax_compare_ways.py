"""``compare`` of modules of two libraries that compute the same in two ways."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import intus

X = jnp.array(np.random.default_rng(0).normal(size=6).astype(np.float32))


class Flax(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(6, 8, rngs=rngs)
        self.norm = nnx.LayerNorm(8, epsilon=1e-5, rngs=rngs)
        self.second = nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, x):
        return self.second(self.norm(self.first(x)))


class Equinox(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    second: eqx.nn.Linear

    def __call__(self, x):
        return self.second(self.norm(self.first(x)))


def twins(eps=1e-5):
    """Return both models: one computes the variance from the mean of squares, the other around the mean."""
    flax, key = Flax(nnx.Rngs(0)), jax.random.key(0)
    other = Equinox(eqx.nn.Linear(6, 8, key=key), eqx.nn.LayerNorm(8, eps=eps), eqx.nn.Linear(8, 4, key=key))
    for name in ("first", "second"):
        layer = getattr(flax, name)
        other = eqx.tree_at(
            lambda net, name=name: (getattr(net, name).weight, getattr(net, name).bias),
            other,
            (layer.kernel[...].T, layer.bias[...]),
        )
    return flax, other


def in_both_orders(one, other, x=X):
    traces = intus.trace(one, x), intus.trace(other, x)
    return [intus.compare(*traces), intus.compare(*traces[::-1])]


def test_twins_agree_whichever_way_their_norms_compute_the_variance():
    flax, equinox = twins()
    assert np.allclose(flax(X), equinox(X), atol=1e-6)
    for table in in_both_orders(flax, equinox):
        assert table.agree, str(table)
        assert not table.verdict.isin(["differs", "shape"]).any()
        assert "norm" in set(table.region)


def test_other_epsilon_of_such_norms_is_found_in_the_norm():
    for table in in_both_orders(*twins(eps=1e-2)):
        assert table.attrs["first"]["module"] == "norm", str(table)


class Head(nnx.Module):
    """A layer in a module's own code, with a unit that is never above 0, and one of two ways to bound it."""

    def __init__(self, dead, chooses):
        rng = np.random.default_rng(1)
        self.kernel = nnx.Param(jnp.array(rng.normal(size=(6, 4)).astype(np.float32)))
        self.bias = nnx.Param(jnp.array([0.5, dead, 0.0, 0.1], jnp.float32))
        self.chooses = chooses

    def __call__(self, x):
        y = x @ self.kernel[...] + self.bias[...]
        return jnp.where(y > 0, y, 0.0) if self.chooses else jnp.maximum(y, 0.0)


class WithHead(nnx.Module):
    def __init__(self, *args):
        self.head = Head(*args)

    def __call__(self, x):
        return self.head(x) * 2


class Scaled(nnx.Module):
    """A root mean square norm, in one of two ways, of numbers that are scaled before it."""

    def __init__(self, scale, divides):
        self.scale, self.divides = scale, divides

    def __call__(self, x):
        y = x * self.scale
        mean = (y * y).mean(-1, keepdims=True)
        return y / jnp.sqrt(mean) if self.divides else y * jax.lax.rsqrt(mean)


class WithScale(nnx.Module):
    def __init__(self, *args):
        self.first, self.norm = nnx.Linear(6, 8, rngs=nnx.Rngs(0)), Scaled(*args)

    def __call__(self, x):
        return self.norm(self.first(x)) * 2


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_step_of_another_number_is_no_other_way(scale):
    one, other = WithScale(0.5, False), WithScale(scale, True)
    x = jnp.stack([X, -X, X / 2])
    assert np.allclose(one(x), other(x), atol=1e-5)
    for table in in_both_orders(one, other, x):
        assert table.agree == (scale == 0.5), str(table)


@pytest.mark.parametrize("dead", [-50.0, -60.0])
def test_difference_that_a_bound_hides_is_no_other_way(dead):
    one, other = WithHead(-50.0, False), WithHead(dead, True)
    x = jnp.stack([X, -X, X / 2])
    assert np.allclose(one(x), other(x))
    for table in in_both_orders(one, other, x):
        assert table.agree == (dead == -50.0), str(table)


class Layer(nnx.Module):
    """A layer with a bias that is a parameter or a constant, or without."""

    def __init__(self, number, bias):
        rng = np.random.default_rng(number)
        self.kernel = nnx.Param(jnp.array(rng.normal(size=(6, 6)).astype(np.float32)))
        values = jnp.linspace(-1, 1, 6)  # of all layers
        self.bias = nnx.Param(values) if bias == "parameter" else None
        self.constant = (lambda: values) if bias == "constant" else None

    def __call__(self, x):
        y = x @ self.kernel[...]
        y = y if self.bias is None else y + self.bias[...]
        return y if self.constant is None else y + self.constant()


class Hiding(nnx.Module):
    """Layers whose biases a softmax, the mean of the batch or that of the features hides, in two ways."""

    def __init__(self, biases, divides):
        self.names = ("keys", "centered", "normed")
        for number, name in enumerate(self.names):
            setattr(self, name, Layer(number, biases.get(name, "parameter")))
        self.divides = divides

    def __call__(self, x):
        x = x + jax.nn.softmax(x @ self.keys(x).T) @ x
        y = self.centered(x)
        x = x + jnp.tanh(y - (y.sum(0) / len(y) if self.divides else y.mean(0)))
        y = self.normed(x.T)
        return x + jnp.tanh(y - y.mean(0)).T


def rows_of(seed, rows):
    return jnp.array(np.random.default_rng(seed).normal(size=(rows, 6)).astype(np.float32))


@pytest.mark.parametrize("bias", ["parameter", "constant"])
@pytest.mark.parametrize("name", ["keys", "centered", "normed"])
def test_parameter_of_one_side_is_no_other_way(name, bias):
    x = rows_of(1, 6)
    one, other = Hiding({name: bias}, False), Hiding({name: ""}, True)
    assert np.allclose(one(x), other(x), atol=1e-5)
    for table in in_both_orders(one, other, x):
        assert not table.agree, str(table)
        assert name in table.attrs["summary"], str(table)


@pytest.mark.parametrize("bias", ["parameter", "constant"])
def test_parameter_of_both_sides_agrees_whichever_way_it_is_hidden(bias):
    biases = dict.fromkeys(("keys", "centered", "normed"), bias)
    for table in in_both_orders(Hiding(biases, False), Hiding(biases, True), rows_of(1, 6)):
        assert table.agree, str(table)
