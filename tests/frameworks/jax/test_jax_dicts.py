"""Dicts that modules take and return: JAX sorts their keys, and their code may go by their order."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from backends.contract import Collect
from intus import trace
from intus.backends.base import for_model
from intus.backends.jax.arrays import mapped

X = jax.random.normal(jax.random.key(0), (8, 4))


class Parts(NamedTuple):
    """A container in which a dict is nested."""

    inner: dict


def heads(a, b, x):
    """Return three arrays, of which the first is neither the first nor the last of the sorted keys."""
    h = a(x["given"])
    return {"mid": h, "zero": {"late": b(x["given"]), "again": h}, "aux": x["more"] * 1.0}


def first(parts):
    mid, zero, _ = parts.inner.values()
    return next(iter(zero.values())) + mid


class NnxHeads(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(4, 3, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        return Parts(heads(self.a, self.b, x))


class NnxNet(nnx.Module):
    def __init__(self):
        self.heads = NnxHeads(nnx.Rngs(0))

    def __call__(self, x):
        given, more = x.values()
        parts = self.heads({"more": more, "given": given})
        return {"last": first(parts), "early": parts.inner["aux"]}


class EqxHeads(eqx.Module):
    a: eqx.nn.Linear
    b: eqx.nn.Linear

    def __call__(self, x):
        return Parts(heads(self.a, self.b, x))


class EqxNet(eqx.Module):
    heads: EqxHeads

    def __init__(self):
        keys = jax.random.split(jax.random.key(0))
        self.heads = EqxHeads(*(eqx.nn.Linear(4, 3, key=key) for key in keys))

    def __call__(self, x):
        return NnxNet.__call__(self, x)


class LinenHeads(linen.Module):
    @linen.compact
    def __call__(self, x):
        return Parts(heads(linen.Dense(3), linen.Dense(3), x))


class LinenNet(linen.Module):
    def setup(self):
        self.heads = LinenHeads()

    def __call__(self, x):
        return NnxNet.__call__(self, x)


def features(x):
    return {"z": x, "y": 2 * x}  # JAX would take "y" first


def of_nnx():
    return NnxNet(), lambda model, x: model(features(x)), nnx.jit


def of_equinox():
    return EqxNet(), lambda model, x: jax.vmap(model)(features(x)), eqx.filter_jit


def of_linen():
    model = LinenNet()
    variables = model.init(jax.random.key(0), features(X))
    return model.bind(variables), lambda model, x: model(features(x)), None


@pytest.mark.parametrize("made", [of_nnx, of_equinox, of_linen])
def test_first_that_a_module_returns_is_recorded_and_its_code_sees_the_order(made):
    model, call, compiled = made()
    expected = call(model, X)

    def loss(result):
        return (result["last"] ** 2).sum() + result["early"].sum()

    if compiled is None:
        unbound, variables = model.unbind()
        subject = model

        @jax.jit
        def step(variables, x):
            return jax.grad(lambda variables: loss(unbound.apply(variables, features(x))))(variables)

        args = variables, X
    else:
        grad = nnx.grad if compiled is nnx.jit else eqx.filter_grad
        step = compiled(lambda model, x: grad(lambda model: loss(call(model, x)))(model))
        subject, args = model, (model, X)
    backend, tap = for_model(subject), Collect()
    handle = backend.attach(subject, backend.operations(subject), ("output", "grad_output"), tap)
    told = {}
    handle._several._returned = lambda address, name, others, **_: told.update({address: (name, others)})
    handle.through(step)(*args)
    handle.remove()
    assert tap.errors == []
    (seen,) = tap.seen
    np.testing.assert_allclose(seen["output", ""], expected["last"], 1e-5, 1e-6)
    np.testing.assert_allclose(seen["grad_output", ""], 2 * expected["last"], 1e-5, 1e-6)
    # Used twice, in "mid" and in "again": what is recorded at "mid" is the sum of both.
    (a,) = [one for one in ("heads.a", "heads.Dense_0") if ("output", one) in seen]
    np.testing.assert_array_equal(seen["output", "heads"], seen["output", a])
    np.testing.assert_allclose(seen["grad_output", "heads"], 2 * expected["last"], 1e-5, 1e-6)
    assert told == {
        "": ("last", ["early"]),
        "heads": ("0.mid", ["0.zero.late", "0.zero.again", "0.aux"]),
    }


@pytest.mark.parametrize("made", [of_nnx, of_linen])
def test_trace_gives_the_model_its_dict_in_the_order_of_the_caller(made):
    model, call, _ = made()
    expected = call(model, X)
    traced = trace(model, (features(X),))
    np.testing.assert_allclose(traced.outputs[0].value, expected["last"], 1e-5, 1e-6)
    np.testing.assert_allclose(traced.outputs[1].value, expected["early"], 1e-5, 1e-6)


def test_array_that_a_module_returns_twice_has_the_gradient_of_both():
    class Twice(nnx.Module):
        def __init__(self):
            self.fc = nnx.Linear(4, 3, rngs=nnx.Rngs(0))

        def __call__(self, x):
            h = self.fc(x)
            return {"b": h, "a": h}

    class Net(nnx.Module):
        def __init__(self):
            self.twice = Twice()

        def __call__(self, x):
            parts = self.twice(x)
            return parts["b"] * 3 + parts["a"] ** 2

    model, tap = Net(), Collect()
    step = nnx.jit(lambda model, x: nnx.grad(lambda model: model(x).sum())(model))
    backend = for_model(model)
    handle = backend.attach(model, backend.operations(model), ("output", "grad_output"), tap)
    handle.through(step)(model, X)
    handle.remove()
    expected = jax.grad(lambda h: (h * 3 + h**2).sum())(model.twice.fc(X))
    np.testing.assert_allclose(tap.seen[0]["grad_output", "twice"], expected, 1e-5, 1e-6)


def test_defaultdict_keeps_its_class_and_order():
    value = defaultdict(list, {"b": jnp.ones(2), "a": None, "c": (jnp.zeros(1), 3)})
    result = mapped(lambda leaf: leaf + 1, value)
    assert type(result) is defaultdict
    assert result.default_factory is list
    assert list(result) == ["b", "a", "c"]
    assert (result["a"], result["c"][1]) == (None, 4)
