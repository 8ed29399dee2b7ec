"""Steps with derivatives of derivatives, and with modules in loops, judged by JAX itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from backends.contract import Collect
from intus.backends.base import for_model

T = jnp.linspace(0, 1, 8)[:, None]


class Net(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.fc, self.out = nnx.Linear(1, 16, rngs=rngs), nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, t):
        return self.out(jnp.tanh(self.fc(t)))


def observed(model, step, *args, kinds=("output", "grad_output", "parameter_grad")):
    backend, tap = for_model(model), Collect()
    handle = backend.attach(model, backend.operations(model), kinds, tap)
    result = handle.through(step)(model, *args)
    handle.remove()
    return tap, result


def residual(call, t):
    return ((jax.grad(lambda t: call(t).sum())(t) + t) ** 2).mean()


@pytest.mark.parametrize("with_value", [False, True])
def test_gradient_of_a_loss_of_a_derivative(with_value):
    model = Net()

    @nnx.jit
    def step(model, t):
        return nnx.grad(lambda model: residual(model, t) + (model(t).mean() if with_value else 0))(model)

    def loss(added):
        def call(t):
            return model.out(jnp.tanh(model.fc(t) + added))

        return residual(call, T)

    tap, gradients = observed(model, step, T)
    assert not tap.errors
    (seen,) = tap.seen
    np.testing.assert_allclose(seen["grad_output", "fc"], jax.grad(loss)(jnp.zeros((8, 16))), 1e-4, 1e-6)
    np.testing.assert_allclose(seen["parameter_grad", "fc.kernel"], gradients.fc.kernel[...], 1e-4, 1e-6)
    assert ("grad_output", "out") not in seen  # the loss's is zero, and the derivative's is another thing


def test_gradient_of_a_product_with_a_hessian():
    model = Net()

    @nnx.jit
    def step(model, t):
        graph, state = nnx.split(model)
        gradient = jax.grad(lambda state: nnx.merge(graph, state)(t).mean())
        return jax.jvp(gradient, (state,), (state,))

    tap, _ = observed(model, step, T)
    expected = jax.grad(lambda added: model.out(jnp.tanh(model.fc(T) + added)).mean())(jnp.zeros((8, 16)))
    np.testing.assert_allclose(tap.seen[0]["grad_output", "fc"], expected, 1e-4, 1e-6)


class Looping(nnx.Module):
    def __init__(self, outside):
        self.cell, self.outside = nnx.Linear(1, 1, rngs=nnx.Rngs(0)), outside

    def __call__(self, x):
        h = self.cell(x) if self.outside else x
        return jax.lax.fori_loop(0, 5, lambda i, h: jnp.tanh(self.cell(h)), h)


@pytest.mark.parametrize("outside", [True, False])
def test_module_that_also_runs_in_a_loop_is_told(outside):
    model = Looping(outside)
    tap, _ = observed(model, nnx.jit(lambda model, x: model(x)), T)
    assert [("'cell'" in str(one), "both inside and outside" in str(one)) for one in tap.errors] == (
        [(True, True)] if outside else []  # what runs in loops alone is never called
    )


class Frozen(nnx.Module):
    """Two parts one after the other, and one beside the first; the parameters of ``last`` are trained."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first, self.beside = nnx.Linear(1, 6, rngs=rngs), nnx.Linear(1, 6, rngs=rngs)
        self.last = nnx.Linear(6, 1, rngs=rngs)

    def __call__(self, t):
        return jnp.tanh(self.last(jnp.tanh(self.first(t)))) + jnp.tanh(self.beside(t)).sum(1, keepdims=True)


@pytest.mark.parametrize("is_linear", [False, True])
def test_derivative_of_a_frozen_part_is_not_taken_for_a_gradient_of_the_loss(is_linear):
    model = Frozen()

    def loss_of(call, t):
        return jax.grad(lambda t: call(t).sum())(t).mean() if is_linear else residual(call, t)

    @nnx.jit
    def step(model, t):
        return nnx.grad(lambda model: loss_of(model, t), argnums=nnx.DiffState(0, filter_last))(model)

    def filter_last(path, _):
        return path[0] == "last"

    tap, _ = observed(model, step, T, kinds=("output", "grad_output"))
    (seen,) = tap.seen
    assert {address for kind, address in seen if kind == "output"} >= {"first", "beside", "last"}
    recorded = {address for kind, address in seen if kind == "grad_output"}
    assert recorded <= {"last"}
    (error,) = tap.errors
    assert "Gradients at 'beside', 'first' are not recorded" in str(error)
    if recorded:

        def loss(added):
            def call(t):
                hidden = model.last(jnp.tanh(model.first(t))) + added
                return jnp.tanh(hidden) + jnp.tanh(model.beside(t)).sum(1, keepdims=True)

            return loss_of(call, T)

        np.testing.assert_allclose(seen["grad_output", "last"], jax.grad(loss)(jnp.zeros((8, 1))), 1e-4, 1e-6)


def test_plain_gradients_beside_a_penalty_are_recorded():
    """As of a discriminator, on real rows and, with a penalty on its derivative, on others."""
    model = Net()

    @nnx.jit
    def step(model, t):
        return nnx.grad(lambda model: (model(2 * t) ** 2).mean() + residual(model, t))(model)

    def loss(added):
        return (model.out(jnp.tanh(model.fc(2 * T) + added)) ** 2).mean()

    tap, _ = observed(model, step, T, kinds=("output", "grad_output"))
    assert not tap.errors
    expected = jax.grad(loss)(jnp.zeros((8, 16)))
    np.testing.assert_allclose(tap.seen[0]["grad_output", "fc"], expected, 1e-4, 1e-6)
