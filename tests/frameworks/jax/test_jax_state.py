"""Nothing changes that a model of NNX or a bound one of Linen keeps, judged by the training without intus."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import intus

pytestmark = pytest.mark.usefixtures("unsent")
X = np.random.default_rng(0).normal(size=(32, 6)).astype(np.float32)
SET = X[:8], {"half": np.arange(8) // 4}


class Count(nnx.Variable):
    """A variable of the user's own kind."""


class Kept:
    """An object of the user's that the copies of a model share with it."""

    def __init__(self):
        self.seen = [0]


class Model(nnx.Module):
    def __init__(self, of):
        self.of = of
        self.out, self.drop = nnx.Linear(6, 3, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(1))
        self.norm = nnx.BatchNorm(6, rngs=nnx.Rngs(0))
        self.moving = nnx.BatchNorm(6, use_running_average=False, rngs=nnx.Rngs(0))
        self.rngs, self.n, self.counts = nnx.Rngs(3), Count(jnp.zeros(())), nnx.List([Count(jnp.zeros(()))])
        self.weight = nnx.Param(jnp.zeros(()))
        self.calls, self.kept, self.python = 0, Kept(), random.Random(0)

    def __call__(self, x):
        x = self.norm(x)
        return self.out(self.drop(x)) * (1 + 0.1 * NEXT[self.of](self, x))


def write(variable):
    variable[...] = variable[...] + 1
    return variable[...]


def averages(self, x):
    """Write to running averages although the model is in evaluation mode."""
    return self.moving(x, use_running_average=False).mean() + self.moving.mean[...].sum()


def count(self, x):
    self.calls += 1
    return self.calls


def listed(self, x):
    self.kept.seen.append(1)
    return len(self.kept.seen)


#: What happens in arrays, and what happens in Python, which a compiled step runs once alone.
ARRAYS = {
    "nothing": lambda self, x: 0.0,
    "rngs": lambda self, x: jax.random.normal(self.rngs(), ()),
    "variable": lambda self, x: write(self.n),
    "variable in a list": lambda self, x: write(self.counts[0]),
    "parameter": lambda self, x: write(self.weight),
    "running averages": averages,
}
PYTHON = {
    "counter": count,
    "list": listed,
    "random.Random": lambda self, x: self.python.random(),
    "random": lambda self, x: random.random(),
    "numpy.random": lambda self, x: np.random.random(),
}
NEXT = {**ARRAYS, **PYTHON}


def train(of, *, compiled, probed):
    random.seed(0)
    np.random.seed(0)
    model, losses = Model(of), []
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    def step(model, optimizer, x):
        value, gradients = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
        optimizer.update(model, gradients)
        return value

    step = nnx.jit(step) if compiled else step
    watch = intus.probe(model, "127.0.0.1", 9, probe_set=SET, structure=False) if probed else None
    # An eager step, which only a probe set looks at, shows each write of Python.
    run = watch.through(step) if probed and compiled else step
    for epoch in range(2):
        if probed:
            watch.epoch = epoch
        for start in range(0, 32, 16):
            losses.append(np.asarray(run(model, optimizer, X[start : start + 16])).tobytes())
        if probed:
            watch.run_probe_set()
    state = [repr(one) for one in jax.tree.leaves(nnx.state(model))]
    if probed:
        watch.remove()
        faults = [one for one in watch.status()["faults"] if "does not answer" not in one]
        assert watch.status()["troubles"] == 0, faults
    return losses, state, model.calls, list(model.kept.seen)


@pytest.mark.parametrize(
    ("of", "compiled"), [*((of, False) for of in NEXT), ("nothing", True), ("rngs", True), ("list", True)]
)
def test_training_with_a_probe_set_is_bitwise_identical(of, compiled, unsent):
    assert train(of, compiled=compiled, probed=True) == train(of, compiled=compiled, probed=False)
    assert {record.epoch for record in unsent} >= {0, 1}


@pytest.mark.parametrize("of", NEXT)
def test_call_after_a_trace_is_the_call_without_it(of):
    outputs = []
    for is_traced in (False, True):
        random.seed(0)
        np.random.seed(0)
        model = Model(of)
        model(X)
        if is_traced:
            assert intus.trace(model, jnp.asarray(X)).not_restored == []
        outputs.append(np.asarray(model(X)))
    assert np.array_equal(*outputs)


class Declared(linen.Module):
    """A model that declares its parts."""

    def setup(self):
        self.out, self.drop = linen.Dense(3), linen.Dropout(0.5, deterministic=False)

    def __call__(self, x):
        return self.drop(self.out(x))


class Compact(linen.Module):
    """A model that makes its parts as it is called."""

    @linen.compact
    def __call__(self, x):
        return linen.Dropout(0.5, deterministic=False)(linen.Dense(3)(x))


@pytest.mark.parametrize("kind", [Declared, Compact])
def test_watched_step_of_a_bound_module_of_linen_is_as_without(kind):
    """Before, the call of the script raised: names were in use, or what ``setup`` had made was gone."""

    def outputs(is_watched):
        keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
        bound = kind().bind(kind().init(keys, X), rngs={"dropout": jax.random.key(2)})
        step = jax.jit(lambda x: bound(x))
        if is_watched:
            watch = intus.probe(bound, "127.0.0.1", 9)
            step = watch.through(step)
        found = [np.asarray(step(X)), np.asarray(step(X)), np.asarray(bound(X)), np.asarray(bound(X))]
        if is_watched:
            watch.remove()
        return found

    for one, other in zip(outputs(True), outputs(False), strict=True):
        np.testing.assert_array_equal(one, other)
