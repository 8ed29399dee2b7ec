"""The mode in which a step of JAX is scored: that in which its layers ran, and whether it takes gradients."""

from __future__ import annotations

import logging

import equinox as eqx
import jax
import numpy as np
import pytest
from flax import linen, nnx
from log_help import of_backends

import intus
from backends.contract import Collect
from intus.backends.base import for_model

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
FAR = 100 * X[::-1]


class Dropped(nnx.Module):
    def __init__(self, *, norm=False):
        rngs = nnx.Rngs(0)
        self.fc, self.drop = nnx.Linear(4, 5, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, rngs=rngs) if norm else None

    def __call__(self, x, evaluates=None):
        x = self.fc(x)
        x = x if self.norm is None else self.norm(x, use_running_average=evaluates)
        return self.drop(x, deterministic=evaluates)


@nnx.jit
def train(model, x):
    return nnx.grad(lambda model: (model(x) ** 2).mean())(model)


@nnx.jit
def evaluate(model, x):
    return model(x)


@nnx.jit
def evaluate_by_argument(model, x):
    return model(x, evaluates=True)


def collected(model, calls):
    """Return the tap that collected calls, each a step and its arguments, and the results."""
    backend = for_model(model)
    tap = Collect(backend=backend, model=model)
    handle = backend.attach(model, backend.operations(model), ("output",), tap)
    observed = {id(step): handle.through(step) for step, *_ in calls}
    results = [observed[id(step)](*arguments) for step, *arguments in calls]
    handle.remove()
    assert not tap.errors
    return tap, results


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("way", ["view", "argument", "positional", "graph definition"])
@pytest.mark.parametrize("first", ["train", "eval"])
def test_deterministic_calls_are_evaluations(way, first, norm, caplog):
    """The model stays in training mode, and its dropout is off in the call alone."""
    model = Dropped(norm=norm)
    train(model, X)  # the running averages are others than at the start
    view = nnx.view(model, deterministic=True, **({"use_running_average": True} if norm else {}))
    call = {
        "view": (evaluate, view, FAR),
        "argument": (evaluate_by_argument, model, FAR),
        "positional": (nnx.jit(lambda model, x: model(x, True)), model, FAR),
        "graph definition": (
            jax.jit(lambda graph, state, x: nnx.merge(graph, state)(x), static_argnums=0),
            *nnx.split(view),
            FAR,
        ),
    }[way]
    calls = [(train, model, X), call, (train, model, X), call]
    tap, results = collected(model, calls if first == "train" else calls[1:])
    modes = ["train", "eval", "train", "eval"]
    assert tap.modes == (modes if first == "train" else modes[1:])
    assert of_backends(caplog) == []
    assert model.drop.deterministic is False
    seen = [one["output", ""] for one, mode in zip(tap.seen, tap.modes, strict=True) if mode == "eval"]
    expected = [result for result, mode in zip(results, tap.modes, strict=True) if mode == "eval"]
    for one, other in zip(seen, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_layers_that_are_active_without_gradients_are_of_a_training_only_if_no_step_takes_any(caplog):
    model = Dropped()
    tap, _ = collected(model, [(evaluate, model, X)] * 2)
    assert tap.modes == ["train"] * 2
    tap, _ = collected(model, [(train, model, X), (evaluate, model, X), (train, model, X)])
    assert tap.modes == ["train", "eval", "train"]
    assert of_backends(caplog) == []
    tap, _ = collected(model, [(evaluate, model, X), (train, model, X), (evaluate, model, X)])
    assert tap.modes == ["train", "train", "eval"]
    assert (
        "evaluate and train both ran Dropped in mode 'train', so these rows are scored together"
        in caplog.text
    )


def test_flags_count_at_each_call(caplog):
    model, modes = Dropped(), []
    backend = for_model(model)
    tap = Collect(backend=backend, model=model)
    handle = backend.attach(model, backend.operations(model), ("output",), tap)
    step, test = handle.through(train), handle.through(evaluate)
    for mode in ("train", "eval", "eval", "train"):
        getattr(model, mode)()
        step(model, X)
        test(model, X)
        modes += [mode, "eval"]
    handle.remove()
    assert tap.modes == modes
    assert "evaluate and train both ran Dropped in mode 'eval'" in caplog.text


def test_gradients_in_evaluation_are_told(caplog):
    """A saliency map of a view takes gradients, and so does the training."""
    model = Dropped()
    view = nnx.view(model, deterministic=True)

    @nnx.jit
    def saliency(model, x):
        return jax.grad(lambda x: model(x).sum())(x)

    with caplog.at_level(logging.WARNING, "intus.backends"):
        tap, _ = collected(model, [(train, model, X), (saliency, view, X), (evaluate, view, X)])
    assert tap.modes == ["train", "eval", "eval"]
    assert "saliency and evaluate both ran Dropped in mode 'eval'" in caplog.text


class Dense(linen.Module):
    @linen.compact
    def __call__(self, x, train=False):
        return linen.Dropout(0.5, deterministic=not train)(linen.Dense(3)(x))


@pytest.mark.parametrize("kind", ["linen", "equinox", "nnx"])
def test_one_function_that_is_told_to_train_or_not(kind):
    """Pass an argument that JAX does not trace, which says whether to take gradients."""
    if kind == "linen":
        model = Dense()
        given, jit, grad = model.init(jax.random.key(0), X), jax.jit, jax.grad

        def run(given, x, *, train):
            return model.apply(given, x, train, rngs={"dropout": jax.random.key(1)})

    elif kind == "equinox":
        model = given = eqx.nn.MLP(4, 2, 5, 1, key=jax.random.key(0))
        jit, grad = eqx.filter_jit, eqx.filter_grad

        def run(given, x, *, train):
            return jax.vmap(given)(x)

    else:
        model = given = Dropped()
        jit, grad = nnx.jit, nnx.grad

        def run(given, x, *, train):
            return given(x, evaluates=not train)

    def step(given, x, train):
        if not train:
            return run(given, x, train=False)
        return jax.tree.leaves(grad(lambda given: (run(given, x, train=True) ** 2).mean())(given))[0]

    compiled = jit(step) if kind == "equinox" else jit(step, static_argnums=2)
    tap, _ = collected(model, [(compiled, given, X, train) for train in (True, False, True, False)])
    assert tap.modes == ["train", "eval"] * 2


@pytest.mark.parametrize("which", ["out", "fc"])
def test_gradients_of_a_part_of_the_model_are_a_training(which):
    """The step calls the layers itself, and one of them alone is observed."""

    class Parts(nnx.Module):
        def __init__(self):
            self.fc, self.out = (nnx.Linear(4, 4, rngs=nnx.Rngs(at)) for at in (0, 1))

    @nnx.jit
    def step(model, x):
        return nnx.grad(lambda model: model.out(jax.nn.relu(model.fc(x))).sum())(model)

    model = Parts()
    backend = for_model(model)
    tap = Collect(backend=backend, model=model)
    chosen = [one for one in backend.operations(model) if one.address == which]
    handle = backend.attach(model, chosen, ("output",), tap)
    handle.through(step)(model, X)
    handle.remove()
    assert tap.modes == ["train"]


def test_gradients_inside_of_a_loop_are_a_training():
    """Record nothing of the loop, but count its gradients."""
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    def step(definition, state, x):
        def body(total, row):
            return total + jax.grad(lambda row: nnx.merge(definition, state)(row).sum())(row).sum(), None

        return nnx.merge(definition, state)(x), jax.lax.scan(body, 0.0, x)[0]

    backend = for_model(model)
    tap = Collect(backend=backend, model=model)
    handle = backend.attach(model, backend.operations(model), ("output",), tap)
    result, _ = handle.through(jax.jit(step, static_argnums=0))(*nnx.split(model), X)
    handle.remove()
    assert tap.modes == ["train"]
    np.testing.assert_allclose(tap.seen[0]["output", ""], result, rtol=1e-6)


def test_functions_of_one_mode_are_a_fault_of_the_probe():
    model = Dropped()
    view = nnx.view(model, deterministic=True)
    with intus.probe(model, "127.0.0.1", 9, budget=np.inf) as watch:
        test, again = watch.through(evaluate), watch.through(nnx.jit(lambda model, x: 2 * model(x)))
        test(view, X)
        assert not [one for one in watch.status()["faults"] if "scored together" in one]
        again(view, X)
        (fault,) = [one for one in watch.status()["faults"] if "scored together" in one]
    assert fault.startswith("Evaluate and <lambda> both take no gradients of Dropped")


def test_functions_with_modes_of_the_script_are_no_fault():
    model = Dropped()
    with intus.probe(model, "127.0.0.1", 9, budget=np.inf) as watch:
        test, again = watch.through(evaluate), watch.through(nnx.jit(lambda model, x: 2 * model(x)))
        for watch.epoch in (0, 1):
            watch.mode = "one"
            test(model, X)
            watch.mode = "two"
            again(model, X)
        assert not [one for one in watch.status()["faults"] if "scored together" in one]
