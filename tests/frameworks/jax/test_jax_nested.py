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
