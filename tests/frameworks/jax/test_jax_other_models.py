"""Other models of the probed one's class, given to a step that is observed."""

from __future__ import annotations

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from log_help import of_backends

from backends.contract import Collect
from intus.backends.base import for_model

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


class Net(nnx.Module):
    def __init__(self, seed=0):
        self.fc = nnx.Linear(4, 3, rngs=nnx.Rngs(seed))
        self.drop = nnx.Dropout(0.5, rngs=nnx.Rngs(seed))

    def __call__(self, x):
        return self.drop(self.fc(x))


@nnx.jit
def evaluate(model, x):
    return model(x)


def attached(model):
    backend, tap = for_model(model), Collect()
    return backend.attach(model, backend.operations(model), ("output",), tap), tap


def moved(tree, by=1.0):
    """Return arrays that were computed from others outside of all steps."""
    return jax.tree.map(lambda one: one + by if eqx.is_inexact_array(one) else one, tree)


@pytest.mark.parametrize(
    "make", [lambda model: Net(1), nnx.clone, copy.deepcopy], ids=["other", "clone", "copy"]
)
@pytest.mark.parametrize("first", ["student", "other"])
def test_other_object_is_not_recorded(make, first, caplog):
    """A copy is another one as soon as one of the two is trained."""
    student = Net()
    other = make(student)
    nnx.update(other, moved(nnx.state(other, nnx.Param)))
    handle, tap = attached(student)
    test = handle.through(evaluate)
    pair = [student, other] if first == "student" else [other, student]
    results = {id(model): test(model, X) for model in pair * 2}
    handle.remove()
    seen = [one["output", ""] for one in tap.seen if one]
    assert len(seen) == 2
    np.testing.assert_allclose(seen[1], results[id(student)], rtol=1e-5)
    assert "The Net among the arguments of evaluate is another one than that which was probed" in caplog.text


@pytest.mark.parametrize("holder", ["itself", "view", "list", "dict", "module"])
def test_probed_object_is_found_wherever_it_is(holder, caplog):
    student, other = Net(), Net(1)

    class Pair(nnx.Module):
        def __init__(self, *models):
            self.other, self.model = models

    given = {
        "itself": student,
        "view": nnx.view(student, deterministic=True),
        "list": [other, student],
        "dict": {"ema": other, "model": student},
        "module": Pair(other, student),
    }[holder]
    pick = {"list": lambda one: one[1], "dict": lambda one: one["model"], "module": lambda one: one.model}
    step = nnx.jit(lambda given, x: pick.get(holder, lambda one: one)(given)(x))
    handle, tap = attached(student)
    result = handle.through(step)(given, X)
    handle.remove()
    assert not tap.errors
    np.testing.assert_allclose(tap.seen[0]["output", ""], result, rtol=1e-5)
    assert of_backends(caplog) == []


class Dense(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(3)(x)


class Values:
    """A model that is a value: what steps get for it, another of its class, and steps.

    ``train`` returns a moving average, which comes first, and the trained model.
    """

    def __init__(self, kind):
        keys = jax.random.split(jax.random.key(0), 2)
        if kind == "equinox":
            self.given, self.other = (eqx.nn.MLP(4, 2, 5, 1, key=key) for key in keys)
            self.model, jit, grad = self.given, eqx.filter_jit, eqx.filter_grad
            call = lambda net, x: jax.vmap(net)(x)  # noqa: E731
        else:
            net, jit, grad = Dense(), jax.jit, jax.grad
            self.given, self.other = (net.init(key, X) for key in keys)
            self.model, call = (net.bind(self.given) if kind == "bound" else net), net.apply

        def train(given, average, x):
            gradients = grad(lambda given: (call(given, x) ** 2).mean())(given)
            given = combined(given, gradients, lambda one, by: one - 0.1 * by)
            return combined(average, given, lambda one, by: 0.5 * (one + by)), given, jnp.zeros(())

        self.train, self.evaluate = jit(train), jit(lambda given, x: call(given, x))


def combined(one, other, how):
    """Return a tree whose arrays of floats are combined with those of another."""
    return jax.tree.map(lambda a, b: how(a, b) if eqx.is_inexact_array(a) else a, one, other)


KINDS = ["equinox", "linen", "bound"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", ["train", "eval"])
def test_model_that_steps_return_is_the_probed_one(kind, first, caplog):
    one = Values(kind)
    handle, tap = attached(one.model)
    train, evaluate = handle.through(one.train), handle.through(one.evaluate)
    given, ema = one.given, moved(one.given)
    results = [evaluate(given, X)] if first == "eval" else []
    for _ in range(3):
        ema, given, _ = train(given, ema, X)
        results += [evaluate(given, X), evaluate(given, X[:3])]
    handle.remove()
    assert not tap.errors
    assert of_backends(caplog) == []
    assert len(tap.seen) == len(results) + 3
    np.testing.assert_allclose(tap.seen[-1]["output", ""], results[-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_model_from_elsewhere_is_told_once(kind, caplog):
    one = Values(kind)
    handle, tap = attached(one.model)
    evaluate = handle.through(one.evaluate)
    if kind == "linen":
        evaluate(one.given, X)
    results = [evaluate(model, X) for model in (one.other, moved(one.given))]
    handle.remove()
    assert not tap.errors
    np.testing.assert_allclose(tap.seen[-1]["output", ""], results[-1], rtol=1e-5)
    name = type(one.model).__name__
    assert caplog.text.count(f"The arrays of the {name} that <lambda> was given are neither those") >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_moving_average_that_a_step_returns_is_told(kind, caplog):
    """The average is beside the model in the result, and has its shapes."""
    one = Values(kind)
    handle, _ = attached(one.model)
    train, evaluate = handle.through(one.train), handle.through(one.evaluate)
    given, ema = one.given, moved(one.given)
    for _ in range(2):
        ema, given, _ = train(given, ema, X)
    evaluate(given, X)
    assert of_backends(caplog) == []
    evaluate(ema, X)
    assert f"<lambda> was given another {type(one.model).__name__} of a step's result" in caplog.text
    handle.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_two_models_without_a_step_between_are_told(kind, caplog):
    one = Values(kind)
    handle, _ = attached(one.model)
    train, evaluate = handle.through(one.train), handle.through(one.evaluate)
    _, given, _ = train(one.given, moved(one.given), X)
    evaluate(given, X)
    assert of_backends(caplog) == []
    evaluate(one.given, X)
    assert "with other arrays than before, and no observed step returned new ones in between" in caplog.text
    handle.remove()


def test_inference_mode_of_equinox_is_the_same_model(caplog):
    class Dropped(eqx.Module):
        fc: eqx.nn.Linear
        drop: eqx.nn.Dropout

        def __call__(self, x):
            return self.drop(self.fc(x))

    model = Dropped(eqx.nn.Linear(4, 3, key=jax.random.key(0)), eqx.nn.Dropout(0.5))
    handle, tap = attached(model)
    test = eqx.filter_jit(lambda net, x: jax.vmap(net)(x))
    result = handle.through(test)(eqx.nn.inference_mode(model), X)
    handle.remove()
    assert not tap.errors
    assert of_backends(caplog) == []
    np.testing.assert_allclose(tap.seen[0]["output", ""], result, rtol=1e-5)


def test_steps_that_are_left_out_return_the_model_too(caplog):
    """The tap leaves out most of a training, so that only results tell of it."""

    class Seldom(Collect):
        def leave_out(self, left):
            return 5

        def on_forward_start(self, inputs):
            self.asked = getattr(self, "asked", 0) + 1
            return super().on_forward_start(inputs) if self.asked % 2 else False

    one = Values("equinox")
    backend, tap = for_model(one.model), Seldom()
    handle = backend.attach(one.model, backend.operations(one.model), ("output",), tap)
    train = handle.through(one.train)
    given, ema = one.given, moved(one.given)
    for _ in range(40):
        ema, given, _ = train(given, ema, X)
    handle.remove()
    assert 2 < len(tap.seen) < 10
    assert not tap.errors
    assert of_backends(caplog) == []


def test_gradients_that_are_applied_outside_of_the_step_are_told_once():
    model = eqx.nn.MLP(4, 2, 5, 1, key=jax.random.key(0))
    adam = optax.adam(0.01)
    state = adam.init(eqx.filter(model, eqx.is_array))
    step = eqx.filter_jit(eqx.filter_grad(lambda net, x: (jax.vmap(net)(x) ** 2).mean()))

    warnings = set()
    backend, tap = for_model(model), Collect()
    tap.warn = warnings.add
    handle = backend.attach(model, backend.operations(model), ("output",), tap)
    observed = handle.through(step)
    for _ in range(3):
        updates, state = adam.update(observed(model, X), state)
        model = eqx.apply_updates(model, updates)
    handle.remove()
    assert [len(one) for one in tap.seen] == [3] * 3
    (warning,) = warnings
    assert "what updates them through Probe.through" in warning


def test_object_without_arrays_may_be_another():
    class Scale(nnx.Module):
        def __call__(self, x):
            return 2 * x

    handle, tap = attached(model := Scale())
    handle.through(evaluate)(model, X)
    handle.through(evaluate)(Scale(), X)
    handle.remove()
    np.testing.assert_allclose(tap.seen[0]["output", ""], 2 * X)
