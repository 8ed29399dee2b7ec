"""Trainings of NNX, Linen and Equinox on digits through the real server."""

from __future__ import annotations

import json
from urllib.request import urlopen

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from sklearn.datasets import load_digits

from intus import flush, probe, register_targets
from intus.serving.run import Server

DIGITS = load_digits()
IMAGES, LABELS = (DIGITS.data / 16).astype(np.float32)[:512], DIGITS.target[:512]
ADAM = optax.adam(5e-3)
EPOCHS = 3


def read(server, path):
    with urlopen(f"{server.page_url}{path}", timeout=20) as reply:
        return json.load(reply)


def cross_entropy(logits, y):
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def numpy_of(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def epochs(watch, step, *, items=False):
    """Train, and return the losses."""
    losses = []
    for epoch in range(EPOCHS):
        if watch is not None:
            watch.epoch = epoch
        order = np.random.default_rng(epoch).permutation(512) if items else np.arange(512)
        for rows in np.split(order, 8):
            if watch is not None and items:
                watch.items = rows
            losses.append(step(jnp.asarray(IMAGES[rows]), jnp.asarray(LABELS[rows])))
    return numpy_of(losses)


class NnxNet(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.norm = nnx.Linear(64, 32, rngs=rngs), nnx.LayerNorm(32, rngs=rngs)
        self.drop, self.out = nnx.Dropout(0.1, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.out(self.drop(nnx.relu(self.norm(self.fc(x)))))


@nnx.jit
def nnx_step(model, optimizer, x, y):
    value, gradients = nnx.value_and_grad(lambda model: cross_entropy(model(x), y))(model)
    optimizer.update(model, gradients)
    return value


def nnx_training(start):
    """Rows in order of arrival."""
    model = NnxNet(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, ADAM, wrt=nnx.Param)
    watch, through = start(model)
    step = through(nnx_step)
    losses = epochs(watch, lambda x, y: step(model, optimizer, x, y))
    return losses + numpy_of(nnx.state((model, optimizer), nnx.Not(nnx.RngKey)))


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(10, name="out")(linen.relu(linen.Dense(32, name="fc")(x)))


LINEN = LinenNet()


@jax.jit
def linen_step(variables, state, x, y):
    value, gradients = jax.value_and_grad(lambda v: cross_entropy(LINEN.apply(v, x), y))(variables)
    updates, state = ADAM.update(gradients, state)
    return optax.apply_updates(variables, updates), state, value


def linen_training(start):
    """Shuffled, with ids."""
    variables = LINEN.init(jax.random.key(0), IMAGES[:1])
    now = [variables, ADAM.init(variables)]
    watch, through = start(LINEN)
    compiled = through(linen_step)

    def step(x, y):
        *now[:], value = compiled(*now, x, y)
        return value

    return epochs(watch, step, items=True) + numpy_of(now)


class EquinoxNet(eqx.Module):
    fc: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.fc, self.out = eqx.nn.Linear(64, 32, key=one), eqx.nn.Linear(32, 10, key=two)

    def __call__(self, x):
        return self.out(jax.nn.relu(self.fc(x)))


@eqx.filter_jit(donate="all-except-first")
def equinox_step(data, model, state):
    x, y = data
    value, gradients = eqx.filter_value_and_grad(lambda model: cross_entropy(jax.vmap(model)(x), y))(model)
    updates, state = ADAM.update(gradients, state)
    return eqx.apply_updates(model, updates), state, value


def equinox_training(start):
    """Shuffled, with ids; the step donates the model."""
    model = EquinoxNet(jax.random.key(0))
    now = [model, ADAM.init(eqx.filter(model, eqx.is_array))]
    watch, through = start(model)
    compiled = through(equinox_step)

    def step(x, y):
        *now[:], value = compiled((x, y), *now)
        return value

    return epochs(watch, step, items=True) + numpy_of(eqx.filter(now, eqx.is_array))


@pytest.mark.parametrize("training", [nnx_training, linen_training, equinox_training])
def test_training_through_server(training, tmp_path):
    plain = training(lambda model: (None, lambda step: step))
    assert training(lambda model: (None, lambda step: step)) == plain
    started = []

    with Server(no_token=True, database=tmp_path / "x.db", port=0) as server:

        def start(model):
            kinds = ("output", "grad_output")
            watch = probe(model, server.host, server.port, name="net", run="r", block=True, kinds=kinds)
            started.append(watch)
            return watch, watch.through

        assert register_targets(server.host, server.port, name="digit", targets=LABELS)
        assert training(start) == plain
        started[0].remove()
        assert flush(server.host, server.port)
        assert started[0].status()["troubles"] == 0
        run = read(server, "api/runs")["runs"][0]
        assert run["epochs"] == list(range(EPOCHS))
        assert {"", "fc", "out"} <= set(run["addresses"])
        query = "api/points?run=r&model=net&score=linear_f1&target=digit&address=out&kind=output"
        f1 = read(server, query)
        assert f1["epoch"] == list(range(EPOCHS))
        assert f1["value"][-1] > max(0.7, f1["baseline"][-1] + 0.4)  # rows and labels are aligned
        graph = read(server, "api/graph?run=r&model=net")
        assert {'"fc"', '"out"'} <= set(json.dumps(graph["modules"]).replace("[", "").split(", "))


def test_probe_set_of_a_model_that_steps_update(tmp_path):
    with Server(no_token=True, database=tmp_path / "x.db", port=0) as server:

        def start(model):
            held_out = IMAGES[:300], {"digit": LABELS[:300]}
            watch = probe(model, server.host, server.port, name="net", run="r", probe_set=held_out)
            watch.run_probe_set()
            watch.epoch = 1
            return watch, watch.through

        model = NnxNet(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, ADAM, wrt=nnx.Param)
        watch, through = start(model)
        step = through(nnx_step)
        for _ in range(3):
            for rows in np.split(np.arange(512), 8):
                step(model, optimizer, IMAGES[rows], LABELS[rows])
        watch.remove()
        assert watch.status()["troubles"] == 0
        assert flush(server.host, server.port)
        f1 = read(server, "api/points?run=r&model=net&score=linear_f1&target=digit&address=out")
        assert f1["epoch"] == [0, 1]
        assert f1["value"][1] > f1["value"][0]
