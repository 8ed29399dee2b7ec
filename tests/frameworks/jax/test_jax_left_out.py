"""Steps that are skipped in a row are counted, though few of them are reported."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from poor_probe import poor

import intus

X = jnp.asarray(np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32))


class Net(nnx.Module):
    def __init__(self):
        self.layer = nnx.Linear(4, 3, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.layer(x)


def loss_of(model, x):
    return (model(x) ** 2).mean()


@nnx.jit
def train_step(model, optimizer, x):
    loss, gradients = nnx.value_and_grad(loss_of)(model, x)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def eval_step(model, x):
    return loss_of(model, x)


@pytest.fixture
def training():
    """Yield a probe that skips all passes, what is reported, and functions that train and evaluate."""
    model = Net()
    optimizer = nnx.Optimizer(model, optax.sgd(0.01), wrt=nnx.Param)
    with intus.probe(model, "127.0.0.1", 9) as watch:
        train, evaluate = watch.through(train_step), watch.through(eval_step)
        yield watch, poor(watch), lambda: train(model, optimizer, X), lambda: evaluate(model, X)


def test_skipped_steps_are_counted_at_any_time(training):
    watch, reported, train, evaluate = training
    calls = 0
    for epoch in range(3):
        watch.epoch = epoch
        for number in range(80):
            train()
            calls += 1
            if number % 20 == 7:
                evaluate()
                evaluate()
                calls += 2
            if number % 7 == 3:
                assert (watch.status()["passes"], watch.step) == (calls, calls)
    watch.epoch = 3
    status = watch.status()
    assert (status["passes"], status["skipped"]) == (calls, calls)
    assert {one[:2] for one in reported} == {
        (epoch, mode) for epoch in range(3) for mode in ("train", "eval")
    }
    assert len(reported) < calls / 3


def test_ids_and_mode_are_those_of_the_next_step(training):
    watch, reported, train, _ = training
    for _ in range(20):
        train()
    assert len(reported) < 20
    before = len(reported)
    watch.items = np.arange(8)
    train()
    train()
    assert [ids for _, _, ids in reported[before:]] == [list(range(8)), None]
    before = len(reported)
    watch.mode = "other"
    train()
    assert reported[before:] == [(0, "other", None)]
    assert watch.status()["passes"] == 23


def test_removed_while_steps_are_left_out(training):
    watch, reported, train, _ = training
    for _ in range(10):
        train()
    watch.remove()
    assert watch.status()["passes"] == 10
    before = len(reported)
    for _ in range(100):
        train()
    assert len(reported) == before
    assert watch.status()["passes"] == 10


@pytest.mark.parametrize("every", [None, 7])
def test_probe_set_runs_when_it_would_if_all_steps_were_reported(every):
    model, looks = Net(), []
    optimizer = nnx.Optimizer(model, optax.sgd(0.01), wrt=nnx.Param)
    with intus.probe(model, "127.0.0.1", 9, probe_set=(np.asarray(X), {}), every=every) as watch:
        train = watch.through(train_step)
        tap, reported = watch._tap, poor(watch)
        own = tap.probe_runs.run
        tap.probe_runs.run = lambda *state: (looks.append(tap.passes), own(*state))
        for epoch in range(3):
            if every is None:
                watch.epoch = epoch
            for _ in range(10):
                train(model, optimizer, X)
    assert looks == ([10, 20, 30] if every is None else [0, 7, 14, 21, 28, 30])
    others = len(looks) + (2 if every is None else 3)  # some looks also run the rows in another order
    assert len(reported) - others <= (3 if every is None else 10)
