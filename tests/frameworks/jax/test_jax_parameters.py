"""Parameters of JAX models, and gradients, where layers and steps compute with them; JAX is the judge."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from test_jax_steps import observed as observed_steps

import intus
from intus.core.errors import CaptureError

KINDS = ("output", "parameter", "parameter_grad")
X = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
TOKENS = np.random.default_rng(0).integers(0, 7, (16, 3))
MASK = (np.random.default_rng(1).random((6, 4)) > 0.5).astype(np.float32)

observed = partial(observed_steps, kinds=KINDS)


def by_address(tree):
    """Return the arrays of a tree by address."""
    named = {}
    for path, value in jax.tree_util.tree_flatten_with_path(tree)[0]:
        keys = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path]
        named[".".join(key for key in keys if key != "value")] = np.asarray(value)
    return named


def of_kind(tap, kind):
    """Return what a tap collected of a kind in the first call, by address."""
    return {address: value for (one, address), value in tap.seen[0].items() if one == kind}


def assert_same(found, expected):
    """Assert that arrays are the same, by address."""
    assert set(found) == set(expected)
    for address, value in expected.items():
        assert found[address].dtype == value.dtype
        np.testing.assert_allclose(found[address], value, rtol=1e-5, atol=1e-6, err_msg=address)


def linen_step(model, loss, x):
    """Return variables, and a step that returns the gradient of a loss by the parameters."""
    made = OneLayer() if isinstance(model, Mapped) else model  # which maps what there is
    variables = made.init(jax.random.key(0), x)

    @jax.jit
    def step(variables, x):
        def of(parameters):
            return loss(lambda p: model.apply({**variables, "params": p}, x), parameters)

        return jax.grad(of)(variables["params"])

    return variables, step


def squares(call, parameters):
    """Return a loss."""
    return (call(parameters) ** 2).mean()


class Setup(linen.Module):
    """A module with an embedding, a layer and a parameter of ``setup``; the embedding is perhaps tied."""

    tied: bool = False

    def setup(self):
        self.embed, self.fc = linen.Embed(7, 6), linen.Dense(6)
        self.scale = self.param("scale", linen.initializers.ones, (6,))

    def __call__(self, x):
        x = self.fc(self.embed(x)) * self.scale
        return self.embed.attend(x) if self.tied else x


class Compact(linen.Module):
    @linen.compact
    def __call__(self, x):
        embed = linen.Embed(7, 6)
        return embed.attend(linen.Dense(6)(embed(x))) * self.param("scale", linen.initializers.ones, (7,))


class Attended(linen.Module):
    """A module that uses a layer by another method than its call alone."""

    def setup(self):
        self.embed, self.fc = linen.Embed(4, 6), linen.Dense(6)

    def __call__(self, x):
        return self.embed.attend(self.fc(x))


class LinenWeightNorm(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.WeightNorm(linen.Dense(4, name="fc"), name="norm")(x)


class LinenSpectralNorm(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.SpectralNorm(linen.Dense(4, name="fc"), name="norm")(x, update_stats=False)


class Mapped(linen.Module):
    @linen.compact
    def __call__(self, x):
        doubled = linen.map_variables(
            linen.Dense, "params", lambda p: jax.tree.map(lambda a: 2 * jnp.abs(a), p)
        )
        return doubled(4, name="fc")(x)


class LinenRemat(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.remat(linen.Dense)(4, name="fc")(x)


class Boxed(linen.Module):
    @linen.compact
    def __call__(self, x):
        init = linen.with_partitioning(linen.initializers.lecun_normal(), (None, None))
        return linen.Dense(4, kernel_init=init)(x)


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize(
    ("model", "x"),
    [
        (Setup(), TOKENS),
        (Setup(tied=True), TOKENS),
        (Compact(), TOKENS),
        (Attended(), X),
        (LinenWeightNorm(), X),
        (LinenSpectralNorm(), X),
        (Mapped(), X),
        (LinenRemat(), X),
        (Boxed(), X),
    ],
)
def test_linen_parameters_are_those_that_entered(model, x, bound):
    variables, step = linen_step(model, squares, x)
    tap, (gradients,) = observed(model.bind(variables) if bound else model, step, (variables, x))
    assert tap.errors == []
    assert_same(of_kind(tap, "parameter"), by_address(variables["params"]))
    assert_same(of_kind(tap, "parameter_grad"), by_address(gradients))


class NnxWeightNorm(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.WeightNorm(nnx.Linear(6, 4, rngs=rngs), rngs=rngs)

    def __call__(self, x):
        return self.norm(x)


class NnxSpectralNorm(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.SpectralNorm(nnx.Linear(6, 4, rngs=rngs), rngs=rngs)

    def __call__(self, x):
        return self.norm(x, update_stats=True)


class NnxTied(nnx.Module):
    """A module that uses a layer by another method than its call alone."""

    def __init__(self, rngs):
        self.fc, self.embed = nnx.Linear(6, 6, rngs=rngs), nnx.Embed(4, 6, rngs=rngs)

    def __call__(self, x):
        return self.embed.attend(self.fc(x))


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("cls", [NnxWeightNorm, NnxSpectralNorm, NnxTied])
def test_nnx_parameters_are_those_that_entered(cls, split):
    model = cls(nnx.Rngs(0))
    graphdef, state = nnx.split(model)
    before = by_address(nnx.state(model, nnx.Param))
    loss = lambda model, x: (model(x) ** 2).mean()  # noqa: E731
    if split:
        step = jax.jit(
            lambda definition, state, x: nnx.grad(loss)(nnx.merge(definition, state), x), static_argnums=0
        )
        tap, (gradients,) = observed(model, step, (graphdef, state, X))
    else:
        step = nnx.jit(lambda model, x: nnx.grad(loss)(model, x))
        tap, (gradients,) = observed(model, step, (model, X))
    assert tap.errors == []
    assert_same(of_kind(tap, "parameter"), before)
    assert_same(of_kind(tap, "parameter_grad"), by_address(gradients))


class EquinoxWeightNorm(eqx.Module):
    norm: eqx.nn.WeightNorm
    out: eqx.nn.Linear

    def __init__(self):
        keys = jax.random.split(jax.random.key(0), 2)
        self.norm = eqx.nn.WeightNorm(eqx.nn.Linear(6, 4, key=keys[0]))
        self.out = eqx.nn.Linear(4, 2, key=keys[1])

    def __call__(self, x):
        return self.out(jnp.tanh(self.norm(x)))


@eqx.filter_jit
def equinox_step(model, x):
    return eqx.filter_grad(lambda model: (jax.vmap(model)(x) ** 2).mean())(model)


def test_equinox_parameters_are_those_that_entered():
    model = EquinoxWeightNorm()
    tap, (gradients,) = observed(model, equinox_step, (model, X))
    assert tap.errors == []
    assert_same(of_kind(tap, "parameter"), by_address(eqx.filter(model, eqx.is_inexact_array)))
    assert_same(of_kind(tap, "parameter_grad"), by_address(gradients))


class OneLayer(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(4, name="fc")(x)


def masked(call, parameters):
    """Return the loss of a pruned model."""
    return squares(call, {"fc": {**parameters["fc"], "kernel": parameters["fc"]["kernel"] * MASK}})


def test_masked_parameter_of_linen_is_refused():
    variables, step = linen_step(OneLayer(), masked, X)
    tap, (gradients,) = observed(OneLayer(), step, (variables, X))
    assert_same(of_kind(tap, "parameter"), {"fc.bias": np.asarray(variables["params"]["fc"]["bias"])})
    assert_same(of_kind(tap, "parameter_grad"), {"fc.bias": np.asarray(gradients["fc"]["bias"])})
    assert {type(error) for error in tap.errors} == {CaptureError}
    assert [str(error).split(":")[0] for error in tap.errors] == [
        f"{kind} of fc.kernel is not recorded" for kind in ("parameter", "parameter_grad")
    ]


def test_masked_parameter_of_nnx_is_refused():
    model = nnx.Linear(6, 4, rngs=nnx.Rngs(0))

    def loss(model, x):
        model.kernel[...] = model.kernel * MASK
        return (model(x) ** 2).mean()

    tap, (gradients,) = observed(model, nnx.jit(lambda model, x: nnx.grad(loss)(model, x)), (model, X))
    assert_same(of_kind(tap, "parameter_grad"), {"bias": np.asarray(gradients["bias"])})
    assert set(of_kind(tap, "parameter")) == {"bias"}
    assert len(tap.errors) == 2


def test_masked_parameter_of_equinox_is_refused():
    model = eqx.nn.Linear(6, 4, key=jax.random.key(0))

    @eqx.filter_jit
    def step(model, x):
        def loss(model):
            model = eqx.tree_at(lambda one: one.weight, model, model.weight * MASK.T)
            return (jax.vmap(model)(x) ** 2).mean()

        return eqx.filter_grad(loss)(model)

    tap, (gradients,) = observed(model, step, (model, X))
    assert_same(of_kind(tap, "parameter_grad"), {"bias": np.asarray(gradients.bias)})
    assert set(of_kind(tap, "parameter")) == {"bias"}
    assert len(tap.errors) == 2


def taught(call, parameters):
    """Return a loss in which a model of other parameters, which the step computes, is called first."""
    wanted = jax.lax.stop_gradient(call(jax.tree.map(lambda one: 0.9 * one + 0.1, parameters)))
    return ((call(parameters) - wanted) ** 2).mean()


def test_parameters_are_those_of_the_call_that_got_them_as_they_entered():
    variables, step = linen_step(OneLayer(), taught, X)
    tap, (gradients,) = observed(OneLayer(), step, (variables, X))
    assert tap.errors == []
    assert_same(of_kind(tap, "parameter"), by_address(variables["params"]))
    assert_same(of_kind(tap, "parameter_grad"), by_address(gradients))


class Pruned(linen.Module):
    """A model that masks a kernel itself."""

    @linen.compact
    def __call__(self, x):
        pruned = linen.map_variables(
            linen.Dense, "params", lambda p: jax.tree.map(lambda a: a * MASK if a.ndim == 2 else a, p)
        )
        return pruned(4, name="fc")(x)


def test_mask_in_the_call_of_the_model_is_seen_through():
    """The advice of the fault that a mask in the loss has."""
    model = Pruned()
    variables = OneLayer().init(jax.random.key(0), X)
    step = jax.jit(
        lambda variables, x: jax.grad(lambda p: (model.apply({"params": p}, x) ** 2).mean())(
            variables["params"]
        )
    )
    tap, (gradients,) = observed(model, step, (variables, X))
    assert tap.errors == []
    assert_same(of_kind(tap, "parameter"), by_address(variables["params"]))
    assert_same(of_kind(tap, "parameter_grad"), by_address(gradients))
    assert np.mean(of_kind(tap, "parameter_grad")["fc.kernel"] == 0) == np.mean(MASK == 0)


def halved(call, parameters):
    """Return a loss in a smaller dtype, with a penalty on the parameters themselves."""
    small = jax.tree.map(lambda one: one.astype(jnp.bfloat16), parameters)
    penalty = sum((one**2).sum() for one in jax.tree.leaves(parameters))
    return (call(small) ** 2).mean().astype(jnp.float32) + penalty


def test_parameters_in_a_smaller_dtype_have_their_own_values_and_gradients():
    variables, step = linen_step(OneLayer(), halved, X)
    tap, (gradients,) = observed(OneLayer(), step, (variables, X))
    assert tap.errors == []
    found = of_kind(tap, "parameter")
    assert all(np.array_equal(found[at], one) for at, one in by_address(variables["params"]).items())
    found = of_kind(tap, "parameter_grad")
    for address, value in by_address(gradients).items():
        assert found[address].dtype == value.dtype
        np.testing.assert_allclose(found[address], value, rtol=2e-2, atol=1e-3)


def test_parameters_in_one_vector_have_values_and_no_gradients():
    """A penalty on the vector would be no part of the gradients of its parts."""
    variables = OneLayer().init(jax.random.key(0), X)
    vector, restored = jax.flatten_util.ravel_pytree(variables["params"])
    step = jax.jit(
        jax.grad(lambda vector, x: (OneLayer().apply({"params": restored(vector)}, x) ** 2).mean())
    )
    tap, _ = observed(OneLayer(), step, (vector, X))
    assert_same(of_kind(tap, "parameter"), by_address(variables["params"]))
    assert of_kind(tap, "parameter_grad") == {}
    assert [str(error).split(":")[0] for error in tap.errors] == [
        "parameter_grad of fc.bias, fc.kernel is not recorded"
    ]


@pytest.mark.parametrize("in_axes", [0, 1])
def test_parameters_of_members_are_those_of_all(in_axes):
    kernels = np.random.default_rng(2).normal(size=(3, 6, 4)).astype(np.float32)
    kernels = np.moveaxis(kernels, 0, in_axes)

    class Linear(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(4, use_bias=False, name="fc")(x)

    @jax.jit
    def of_linen(parameters, x):
        def loss(parameters):
            call = jax.vmap(lambda one: Linear().apply({"params": one}, x), in_axes=in_axes)
            return (call(parameters) ** 2).mean()

        return jax.grad(loss)(parameters)

    tap, (gradients,) = observed(Linear(), of_linen, ({"fc": {"kernel": kernels}}, X))
    assert tap.errors == []
    gradient = np.moveaxis(np.asarray(gradients["fc"]["kernel"]), in_axes, 0)
    assert_same(of_kind(tap, "parameter"), {"fc.kernel": np.moveaxis(kernels, in_axes, 0)})
    assert_same(of_kind(tap, "parameter_grad"), {"fc.kernel": gradient})


def test_gradient_of_each_record_is_a_fault():
    model = Setup()
    variables = model.init(jax.random.key(0), TOKENS)

    @jax.jit
    def step(variables, x):
        loss = lambda p, row: (model.apply({"params": p}, row[None]) ** 2).mean()  # noqa: E731
        gradients = jax.vmap(lambda row: jax.grad(loss)(variables["params"], row))(x)
        return jax.tree.map(lambda one: one.mean(0), gradients)

    tap, _ = observed(model, step, (variables, TOKENS))
    assert_same(of_kind(tap, "parameter"), by_address(variables["params"]))
    assert of_kind(tap, "parameter_grad") == {}
    (error,) = tap.errors
    assert "The step differentiates by embed.embedding, fc.bias, fc.kernel, scale, but" in str(error)


class TwoHeads(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(2, name="used")(x), linen.Dense(2, name="other")(x)


@pytest.mark.parametrize("frozen", [False, True])
def test_parameter_that_the_loss_does_not_depend_on_is_a_fault(frozen):
    """A parameter by which the step does not differentiate is none."""
    variables = TwoHeads().init(jax.random.key(0), X)

    @jax.jit
    def step(variables, x):
        given = variables["params"]
        by = {"used": given["used"]} if frozen else given
        return jax.grad(lambda p: TwoHeads().apply({"params": {**given, **p}}, x)[0].sum())(by)

    tap, (gradients,) = observed(TwoHeads(), step, (variables, X))
    assert_same(of_kind(tap, "parameter"), by_address(variables["params"]))
    assert_same(of_kind(tap, "parameter_grad"), by_address({"used": gradients["used"]}))
    assert len(tap.errors) == (0 if frozen else 1)
    assert frozen or "The step differentiates by other.bias, other.kernel, but" in str(tap.errors[0])


def test_module_that_was_bound_in_the_step_is_called_in_inner_traces():
    model = Setup()
    variables = model.init(jax.random.key(0), TOKENS)

    @jax.jit
    def step(variables, x):
        bound = model.bind(variables)
        _, y = jax.lax.scan(lambda carry, row: (carry, bound(row)), 0, x)
        return y, jax.jit(lambda x: bound(x))(x), jax.vmap(bound)(x)

    tap, (result,) = observed(model, step, (variables, TOKENS))
    np.testing.assert_allclose(result[0], result[2], rtol=1e-5, atol=1e-6)
    assert_same(of_kind(tap, "parameter"), by_address(variables["params"]))


@pytest.mark.parametrize("shift", ["roll", "fftshift", "ifftshift"])
@pytest.mark.parametrize("kind", ["nnx", "linen", "equinox"])
def test_trace_of_shifted_arrays(kind, shift):
    function = {
        "roll": lambda x: jnp.roll(x, 1, 0),
        "fftshift": jnp.fft.fftshift,
        "ifftshift": jnp.fft.ifftshift,
    }

    class Nnx(nnx.Module):
        def __call__(self, x):
            return function[shift](x) + 1

    class Linen(linen.Module):
        @linen.compact
        def __call__(self, x):
            return function[shift](x) + 1

    class Equinox(eqx.Module):
        def __call__(self, x):
            return function[shift](x) + 1

    model = {"nnx": Nnx, "linen": lambda: Linen().bind({}), "equinox": Equinox}[kind]()
    trace = intus.trace(model, X)
    np.testing.assert_array_equal(trace.outputs[0].value, model(X))


class WithArray(linen.Module):
    """A module with an array among its settings."""

    mask: np.ndarray

    @linen.compact
    def __call__(self, x):
        return linen.Dense(4, name="fc")(x * self.mask)


def test_linen_module_with_an_array_as_a_setting_is_observed():
    model = WithArray(np.arange(6.0))
    variables, step = linen_step(model, squares, X)
    tap, (gradients,) = observed(model, step, (variables, X))
    assert tap.errors == []
    assert_same(of_kind(tap, "parameter_grad"), by_address(gradients))
