"""Rows of a model in a step of JAX: their order, those of later calls, and members of an ensemble.

The truth is a tap that receives arrays, the model itself on known rows, and the order that the test draws.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import intus
from backends.contract import Collect
from intus.backends.base import for_model
from intus.backends.host_arrays import ALIKE

X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)


class Two(nnx.Module):
    """A model of several inputs; the others come first."""

    def __init__(self, rngs):
        self.fc = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, *inputs):
        return self.fc(sum(inputs))


def ensemble():
    return nnx.vmap(lambda key: Two(nnx.Rngs(key)))(jax.random.split(jax.random.key(0), 8))


class Orders:
    """A tap that notes the order of each step, and the layers with other rows."""

    def __init__(self, model):
        self.backend, self.orders, self.others, self.errors = for_model(model), [], [], []

    def on_forward_start(self, inputs):
        self.orders.append(self.backend.order(inputs, 0))

    def wants(self, operation):
        return operation

    def on_tensor(self, ticket, tensor):
        pass

    def on_forward_end(self, output):
        pass

    def on_other_rows(self, address):
        self.others.append(address)

    def on_error(self, error):
        self.errors.append(error)


def observed(model, step, *calls):
    """Return what a tap saw of calls of a step."""
    tap = Orders(model)
    handle = tap.backend.attach(model, tap.backend.operations(model), ("output",), tap)
    through = handle.through(step)
    for call in calls:
        through(model, *call)
    handle.remove()
    assert not tap.errors
    return tap


def test_order_is_of_the_rows_that_the_step_takes_of_a_dataset():
    model, data = Two(nnx.Rngs(0)), jnp.asarray(X)
    step = nnx.jit(lambda model, data, rows: model(data[rows]))
    one, other = np.arange(8), np.arange(8)[::-1].copy()
    first, second, third = observed(model, step, (data, one), (data, other), (data, one)).orders
    assert first == third != second
    assert isinstance(first, bytes)


@pytest.mark.parametrize("key", [jax.random.key, jax.random.PRNGKey])
def test_rows_that_a_step_draws_have_no_order(key):
    model, data = Two(nnx.Rngs(0)), jnp.asarray(X)
    step = nnx.jit(lambda model, data, key: model(data[jax.random.permutation(key, 40)[:8]]))
    (order,) = observed(model, step, (data, key(0))).orders
    assert "draws random numbers" in order


@settings(max_examples=15, deadline=None)
@given(inputs=st.integers(1, 3), at=st.integers(0, 2), rows=st.integers(2, 6), data=st.data())
def test_order_of_several_inputs_is_that_of_their_rows(inputs, at, rows, data):
    order = data.draw(st.permutations(range(rows)))
    constant = [np.ones((rows, 4), np.float32)] * inputs
    given_, moved = list(constant), list(constant)
    given_[at % inputs], moved[at % inputs] = X[:rows], X[list(order)]
    model = Two(nnx.Rngs(0))
    step = nnx.jit(lambda model, *given: model(*given))
    first, second, alike = observed(model, step, given_, moved, constant).orders
    assert (first == second) == (list(order) == list(range(rows)))
    assert alike == ALIKE


def test_keys_among_the_inputs_are_no_data():
    class Noisy(nnx.Module):
        def __init__(self, rngs):
            self.fc = nnx.Linear(4, 3, rngs=rngs)

        def __call__(self, x, key):
            return self.fc(x) + jax.random.normal(key, (3,))

    model = Noisy(nnx.Rngs(0))
    step = nnx.jit(lambda model, x, key: model(x, jax.random.split(key)[0]))
    keys = [jax.random.PRNGKey(seed) for seed in (0, 1)]
    first, second = observed(model, step, *((X[:8], key) for key in keys)).orders
    assert first == second
    assert isinstance(first, bytes)


class Normed(eqx.Module):
    fc: eqx.nn.Linear
    norm: eqx.nn.BatchNorm

    def __init__(self, key):
        self.fc, self.norm = eqx.nn.Linear(4, 3, key=key), eqx.nn.BatchNorm(3, "rows", mode="batch")

    def __call__(self, x, state):
        return self.norm(self.fc(x), state)


def test_state_of_normalizations_of_equinox_is_no_data():
    model, state = eqx.nn.make_with_state(Normed)(jax.random.key(0))

    @eqx.filter_jit
    def step(model, x, state):
        return jax.vmap(model, in_axes=(0, None), out_axes=(0, None), axis_name="rows")(x, state)

    _, later = step(model, X[:8], state)
    first, second, other = observed(model, step, (X[:8], state), (X[:8], later), (X[8:16], later)).orders
    assert first == second != other
    assert isinstance(first, bytes)


@pytest.mark.parametrize(
    ("call", "others"),
    [
        (lambda model, x, z: model(x).sum() + model(z).sum(), ["fc:2", ":2"]),
        (lambda model, x, z: model(x).sum() + model(x).sum(), []),
        (lambda model, x, z: model(x * 2).sum() + model(x * 2).sum(), []),
        (lambda model, x, z: model(x).sum() + model(x[::-1]).sum(), ["fc:2", ":2"]),
        (lambda model, x, z: model(x).sum() + model.fc(z).sum(), ["fc:2"]),
    ],
    ids=["others", "the same", "computed alike", "reordered", "a layer alone"],
)
def test_later_call_has_the_rows_of_the_first_only_if_it_gets_the_same(call, others):
    model = Two(nnx.Rngs(0))
    step = nnx.jit(lambda model, x, z: nnx.grad(lambda model: call(model, x, z))(model))
    assert sorted(observed(model, step, (X[:8], X[8:16])).others) == sorted(others)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("own_rows", [False, True])
def test_members_of_an_ensemble_are_no_rows(own_rows, gradients):
    """There are as many members as rows, so that ids would fit."""
    model = ensemble()

    def outputs(model, x):
        return nnx.vmap(lambda model, x: model(x), in_axes=(0, 0 if own_rows else None))(model, x)

    def each(model, x):
        return nnx.vmap(
            lambda model, x: nnx.grad(lambda model: model(x).sum())(model),
            in_axes=(0, 0 if own_rows else None),
        )(model, x)

    tap, seen = Collect(), []
    tap.on_tensor = lambda ticket, tensor: seen.append((tensor.address, tensor.has_batch))
    backend = for_model(model)
    handle = backend.attach(model, backend.operations(model), ("output",), tap)
    handle.through(nnx.jit(each if gradients else outputs))(
        model, np.stack([X[:8]] * 8) if own_rows else X[:8]
    )
    assert sorted(seen) == [("", False), ("fc", False)]


def test_ensemble_has_a_reason_for_the_missing_graph_and_labels(caplog):
    model = ensemble()
    step = nnx.jit(
        lambda model, x: nnx.vmap(lambda model, x: model(x), in_axes=(0, None), out_axes=0)(model, x)
    )
    with intus.probe(model, "127.0.0.1", 1, budget=np.inf) as watch:
        watch.items = np.arange(8)
        watch.through(step)(model, X[:8])
    assert "is that of the members of an ensemble" in caplog.text
    assert "no graph of Two, as it could not be made: CaptureError: the step runs jax.vmap" in caplog.text


def test_vmap_inside_of_the_model_runs_over_its_rows():
    class Inner(nnx.Module):
        def __init__(self, rngs):
            self.fc = nnx.Linear(4, 3, rngs=rngs)

        def __call__(self, x):
            return nnx.vmap(lambda fc, x: fc(x), in_axes=(None, 0))(self.fc, x)

    model, seen, tap = Inner(nnx.Rngs(0)), [], Collect()
    tap.on_tensor = lambda ticket, tensor: seen.append((tensor.address, tensor.has_batch))
    backend = for_model(model)
    handle = backend.attach(model, backend.operations(model), ("output",), tap)
    handle.through(nnx.jit(lambda model, x: model(x)))(model, X[:8])
    assert sorted(seen) == [("", True), ("fc", True)]
