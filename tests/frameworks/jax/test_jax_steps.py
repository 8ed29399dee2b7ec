"""Steps of JAX that are observed: what compiles, what is hidden, and what is refused; JAX is the judge."""

from __future__ import annotations

import logging
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState

import intus
from backends.contract import Collect
from intus.backends.base import for_model
from intus.core.errors import CaptureError, InputError

ALL = ("output", "input", "grad_output", "grad_input", "parameter", "parameter_grad")


class Net(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.drop, self.out = (
            nnx.Linear(4, 5, rngs=rngs),
            nnx.Dropout(0.5, rngs=rngs),
            nnx.Linear(5, 2, rngs=rngs),
        )

    def __call__(self, x):
        return self.out(self.drop(nnx.relu(self.fc(x))))


X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)


def observed(model, step, *calls, kinds=("output",)):
    """Return the tap that collected the calls of a step, and the results."""
    tap, backend = Collect(), for_model(model)
    handle = backend.attach(model, backend.operations(model), kinds, tap)
    step = handle.through(step)
    results = [step(*arguments) for arguments in calls]
    handle.remove()
    return tap, results


@nnx.jit
def forward(model, x):
    return model(x)


def test_program_of_step_is_unchanged():
    model = Net(nnx.Rngs(0))
    before = forward.lower(model, X).as_text()
    tap, _ = observed(model, forward, (model, X), kinds=ALL)
    assert tap.seen[0]
    assert forward.lower(model, X).as_text() == before


def test_dropout_has_the_mask_of_the_step():
    model, same = Net(nnx.Rngs(0)), Net(nnx.Rngs(0))
    tap, results = observed(model, forward, (model, X), (model, X))
    for seen, result in zip(tap.seen, results, strict=True):
        np.testing.assert_allclose(seen["output", ""], result, rtol=1e-6)
        np.testing.assert_allclose(seen["output", "drop"], same.drop(nnx.relu(same.fc(X))), rtol=1e-6)
    assert not np.array_equal(*(seen["output", "drop"] == 0 for seen in tap.seen))


def test_each_set_of_shapes_has_its_own_shadow():
    model = Net(nnx.Rngs(0))
    tap, results = observed(model, forward, (model, X), (model, X[:2]), (model, X))
    assert [seen["output", "out"].shape for seen in tap.seen] == [(6, 2), (2, 2), (6, 2)]
    for seen, result in zip(tap.seen, results, strict=True):
        np.testing.assert_allclose(seen["output", ""], result, rtol=1e-6)


def test_too_many_shapes_are_reported():
    model = Net(nnx.Rngs(0))
    step = jax.jit(lambda model, x, number: model(x), static_argnums=2)
    tap, _ = observed(model, step, *((model, X, f"setting {number}") for number in range(18)))
    assert {type(error) for error in tap.errors} == {CaptureError}
    assert (len(tap.errors), tap.ended) == (2, 18)
    assert "more than 16 different shapes or settings" in str(tap.errors[0])


def test_numbers_that_change_are_no_new_shapes():
    model = Net(nnx.Rngs(0))

    @nnx.jit
    def scaled(model, x, scale):
        return model(x * scale)

    tap, results = observed(model, scaled, *((model, X, 0.1 * number) for number in range(20)))
    assert tap.errors == []
    np.testing.assert_allclose(tap.seen[-1]["output", ""], results[-1], rtol=1e-6)


def test_number_that_the_step_needs_is_part_of_the_program():
    model = Net(nnx.Rngs(0))

    @partial(jax.jit, static_argnums=2)
    def repeated(model, x, times):
        for _ in range(times):
            y = model(x)
        return y

    tap, _ = observed(model, repeated, (model, X, 2), (model, X, 3))
    assert tap.errors == []
    assert [sorted(seen) == sorted(tap.seen[0]) for seen in tap.seen] == [True, False]
    assert ("output", "fc:3") in tap.seen[1]


def test_function_that_jax_traced_once_is_observed_at_each_call():
    inner = jax.jit(lambda layer, x: layer(x))

    class Twice(nnx.Module):
        def __init__(self, rngs):
            self.one, self.two = (nnx.Linear(4, 4, rngs=rngs) for _ in range(2))

        def __call__(self, x):
            return inner(self.two, inner(self.one, inner(self.one, x)))

    model = Twice(nnx.Rngs(0))
    step = nnx.jit(lambda model, x: nnx.grad(lambda model: model(x).sum())(model))
    tap, _ = observed(model, step, (model, X), kinds=("output", "grad_output"))
    one, two = model.one, model.two
    expected = {
        ("output", "one"): one(X),
        ("output", "one:2"): one(one(X)),
        ("output", "two"): two(one(one(X))),
        ("grad_output", "one"): jax.grad(lambda value: two(one(value)).sum())(one(X)),
        ("grad_output", "one:2"): jax.grad(lambda value: two(value).sum())(one(one(X))),
    }
    for key, value in expected.items():
        np.testing.assert_allclose(tap.seen[0][key], value, rtol=1e-5, atol=1e-6)


def test_gradient_of_parameter_counts_all_its_uses():
    """A penalty outside of the model, and a module that is called twice."""
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    def loss(model, x):
        return model(model(x)).sum() + (model.kernel**2).sum()

    step = nnx.jit(lambda model, x: nnx.grad(loss)(model, x))
    tap, (gradients,) = observed(model, step, (model, X), kinds=("parameter_grad",))
    for name in ("kernel", "bias"):
        np.testing.assert_allclose(
            tap.seen[0]["parameter_grad", name], gradients[name].get_value(), rtol=1e-6
        )


def test_remat_is_observed_once():
    class Remat(nnx.Module):
        def __init__(self, rngs):
            self.fc = nnx.Linear(4, 4, rngs=rngs)

        def __call__(self, x):
            return nnx.remat(lambda fc, x: jnp.sin(fc(x)))(self.fc, x)

    model = Remat(nnx.Rngs(0))
    step = nnx.jit(lambda model, x: nnx.grad(lambda model: model(x).sum())(model))
    tap, (gradients,) = observed(model, step, (model, X), kinds=("output", "grad_output", "parameter_grad"))
    assert tap.errors == []
    seen = tap.seen[0]
    np.testing.assert_allclose(seen["output", "fc"], model.fc(X), rtol=1e-6)
    np.testing.assert_allclose(seen["grad_output", "fc"], np.cos(model.fc(X)), rtol=1e-5)
    np.testing.assert_allclose(
        seen["parameter_grad", "fc.kernel"], gradients["fc"]["kernel"].get_value(), rtol=1e-5
    )


def test_modules_inside_scan_are_never_called(caplog):
    class Scanned(nnx.Module):
        def __init__(self, rngs):
            self.cell, self.out = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, x):
            x, _ = jax.lax.scan(lambda carry, _: (self.cell(carry), None), x, length=3)
            return self.out(x)

    model = Scanned(nnx.Rngs(0))
    tap, (result,) = observed(model, forward, (model, X))
    assert tap.errors == []
    assert {address for _, address in tap.seen[0]} == {"", "out"}
    np.testing.assert_allclose(tap.seen[0]["output", "out"], result, rtol=1e-6)
    with intus.probe(model, "127.0.0.1", 1, budget=float("inf")) as watch:
        watch.through(forward)(model, X)
        assert watch.status()["never_called"] == ["cell"]
    assert "jax.lax.scan" in for_model(model).blind_spot


class ScannedBody(linen.Module):
    @linen.compact
    def __call__(self, carry, _):
        return jnp.tanh(linen.Dense(4, name="cell")(carry)), None


class LinenScanned(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.Dense(4, name="fc")(x)
        scan = linen.scan(ScannedBody, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = scan(name="layers")(x, None)
        return linen.Dense(2, name="out")(x)


@pytest.mark.parametrize("by", ["steps", "a probe set"])
@pytest.mark.parametrize("which", [None, ["layers.cell", "out"], ["out"]])
def test_linen_modules_inside_scan_are_never_called(by, which):
    """Their parameters exist; Linen's modules are known from calls alone, so these must name them."""
    net = LinenScanned()
    variables = net.init(jax.random.key(0), X)
    assert variables["params"]["layers"]["cell"]["kernel"].shape == (3, 4, 4)
    step = jax.jit(lambda variables, x: jax.grad(lambda v: net.apply(v, x).sum())(variables))
    given = {"probe_set": (X, {"half": np.arange(6) // 3})} if by == "a probe set" else {}
    with intus.probe(net.bind(variables), "127.0.0.1", 1, budget=float("inf"), which=which, **given) as watch:
        if given:
            watch.run_probe_set()
        else:
            plain, result = step(variables, X), watch.through(step)(variables, X)
            assert all(map(np.array_equal, jax.tree.leaves(plain), jax.tree.leaves(result)))
        hidden = [one for one in ("layers", "layers.cell") if which is None or one in which]
        status = watch.status()
        assert status["never_called"] == hidden
        assert set(hidden) <= set(status["silent"])
        assert "out" in watch.operations


@pytest.mark.parametrize("donated", [False, True])
def test_split_of_model_with_list_and_its_optimizer(donated):
    """The copies are found by the paths of modules, in which Flax counts the elements of a list otherwise."""

    class Deep(nnx.Module):
        def __init__(self, rngs):
            self.blocks = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(2)])
            self.heads = nnx.Dict(out=nnx.Linear(4, 2, rngs=rngs))

        def __call__(self, x):
            for block in self.blocks:
                x = jnp.tanh(block(x))
            return self.heads["out"](x)

    def of(step):
        model = Deep(nnx.Rngs(0))
        both = model, nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)
        graphdef, state = nnx.split(both)
        return model, step, (graphdef, state, X)

    def update(graphdef, state, x):
        model, optimizer = nnx.merge(graphdef, state)
        loss, gradients = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), loss, nnx.state(gradients)

    step = jax.jit(update, donate_argnums=1) if donated else jax.jit(update)
    plain = of(step)[1](*of(step)[2])
    model, _, arguments = of(step)
    expected, x = {}, X
    for number, block in enumerate(model.blocks):
        expected[f"blocks.{number}"] = block(x)
        x = jnp.tanh(expected[f"blocks.{number}"])
    expected["heads.out"] = model.heads["out"](x)
    tap, (result,) = observed(model, step, arguments, kinds=("output", "parameter", "parameter_grad"))
    assert tap.errors == []
    assert all(map(np.array_equal, jax.tree.leaves(plain), jax.tree.leaves(result)))
    for address, value in expected.items():
        np.testing.assert_allclose(tap.seen[0]["output", address], value, rtol=1e-5)
    for address, gradient in (("blocks.1", result[2]["blocks"][1]), ("heads.out", result[2]["heads"]["out"])):
        seen = tap.seen[0]["parameter_grad", f"{address}.kernel"]
        np.testing.assert_allclose(seen, gradient["kernel"].get_value(), rtol=1e-5)


def test_error_of_the_caller_is_no_trouble():
    """A step that raises by itself, as it does without a probe, is not reported as a fault of intus."""
    model = Net(nnx.Rngs(0))
    with intus.probe(model, "127.0.0.1", 1, budget=float("inf")) as watch:
        step = watch.through(forward)
        for call in (forward, step, step):
            with pytest.raises(TypeError, match="contracting dimensions"):
                call(model, X[:, :3])
        np.testing.assert_array_equal(step(model, X).shape, (6, 2))
        assert watch.status()["troubles"] == 0
        assert not any("TypeError" in one for one in watch.status()["faults"])
        assert watch.status()["never_called"] == []


@pytest.mark.parametrize(("names", "worded"), [("aba", 2), ("abcdefghijkl", 8)])
def test_each_different_error_is_a_fault(names, worded):
    """Two errors of one class are two sentences, equal ones are one, and there are not ever more of them."""
    model, traced = Net(nnx.Rngs(0)), set()

    @nnx.jit
    def step(model, x):
        if len(x) not in traced:  # by the shadow, which comes first
            traced.add(len(x))
            raise KeyError(names[len(x) - 1])
        return model(x)

    with intus.probe(model, "127.0.0.1", 1, budget=float("inf")) as watch:
        observed_step = watch.through(step)
        for rows in range(1, len(names) + 1):  # each number is traced anew
            assert observed_step(model, X[:1].repeat(rows, 0)).shape == (rows, 2)
        status = watch.status()
    found = [one for one in status["faults"] if "KeyError" in one]
    assert len(found) == len(set(found)) == worded
    assert status["troubles"] == len(names)


def test_callbacks_of_the_step_run_once():
    class Talking(nnx.Module):
        def __init__(self, rngs):
            self.fc = nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, x):
            jax.debug.callback(said.append, x.sum())
            return self.fc(x)

    said = []
    model = Talking(nnx.Rngs(0))
    tap, _ = observed(model, nnx.jit(lambda model, x: model(x)), (model, X))
    jax.effects_barrier()
    assert tap.errors == []
    assert len(said) == 1
    assert ("output", "fc") in tap.seen[0]


def test_step_that_needs_the_host_is_refused():
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)

    def step(model, x):
        return model(jax.experimental.io_callback(lambda x: x, shape, x))

    model = Net(nnx.Rngs(0))
    tap, (result,) = observed(model, nnx.jit(step), (model, X))
    assert result.shape == (6, 2)
    assert [str(error) for error in tap.errors] == [
        "The step calls io_callback on the way to a module, which cannot run twice."
    ]


def test_target_network_is_not_the_model():
    """Of two models of one class, the first argument counts; the optimizer's moments are built alike."""
    model, target = (eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(key)) for key in (0, 1))
    adam = optax.adam(0.01)

    @eqx.filter_jit
    def step(model, target, state, x):
        def loss(model):
            return ((jax.vmap(target)(x) - jax.vmap(model)(x)) ** 2).mean()

        gradients = eqx.filter_grad(loss)(model)
        updates, state = adam.update(gradients, state)
        return eqx.apply_updates(model, updates), state, gradients

    state = adam.init(eqx.filter(model, eqx.is_array))
    tap, (result,) = observed(model, step, (model, target, state, X), kinds=("output", "parameter_grad"))
    assert tap.errors == []
    seen = tap.seen[0]
    assert {address for kind, address in seen if kind == "output"} == {"", "layers.0", "layers.1"}
    np.testing.assert_allclose(seen["output", ""], jax.vmap(model)(X), rtol=1e-5, atol=1e-6)
    gradient = result[2].layers[0].weight
    np.testing.assert_allclose(seen["parameter_grad", "layers.0.weight"], gradient, rtol=1e-5, atol=1e-7)


def test_partitioned_equinox_model():
    model = eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0))
    parameters, static = eqx.partition(model, eqx.is_inexact_array)

    @eqx.filter_jit
    def step(parameters, static, x):
        return jax.vmap(eqx.combine(parameters, static))(x)

    tap, (result,) = observed(model, step, (parameters, static, X))
    assert tap.errors == []
    np.testing.assert_allclose(tap.seen[0]["output", ""], result, rtol=1e-6)


def test_linen_module_with_setup_and_other_modules():
    class Inner(linen.Module):
        def setup(self):
            self.fc = linen.Dense(3)

        def __call__(self, x):
            return self.fc(x)

    class Outer(linen.Module):
        width: int = 2

        def setup(self):
            self.inner, self.head = Inner(), linen.Dense(self.width)

        def __call__(self, x):
            return self.head(self.inner(x))

    net, other = Outer(), Outer(width=5)
    variables, others = (one.init(jax.random.key(0), X) for one in (net, other))
    step = jax.jit(lambda variables, others, x: (net.apply(variables, x), other.apply(others, x)))
    tap, (result,) = observed(net, step, (variables, others, X), kinds=("output", "parameter"))
    assert tap.errors == []
    assert set(tap.offered[0]) == {"", "inner", "inner.fc", "head"}
    assert tap.seen[0]["output", ""].shape == result[0].shape == (6, 2)
    kernel = variables["params"]["inner"]["fc"]["kernel"]
    assert np.array_equal(tap.seen[0]["parameter", "inner.fc.kernel"], kernel)


def test_model_that_is_no_argument_is_named(caplog):
    model = Net(nnx.Rngs(0))
    model.eval()
    step = jax.jit(lambda x: model(x))
    plain = np.asarray(step(X))
    with intus.probe(model, "127.0.0.1", 1) as watch:
        assert np.array_equal(watch.through(step)(X), plain)
        assert watch.status()["troubles"] > 0
    assert (
        "The model, a Net, is not among the arguments of the step. Pass it in: step(model, …)" in caplog.text
    )


@pytest.mark.parametrize("step", [lambda model, x: model(x), 3], ids=["plain function", "no function"])
def test_step_that_is_not_compiled_is_refused(step):
    model = Net(nnx.Rngs(0))
    with (
        intus.probe(model, "127.0.0.1", 1) as watch,
        pytest.raises(
            InputError, match=r"step compiled by jax.jit, nnx.jit or eqx.filter_jit, got .* without"
        ),
    ):
        watch.through(step)


@pytest.mark.parametrize("names", [True, False])
def test_partial_of_a_step_is_named_without_its_arguments(names):
    model = Net(nnx.Rngs(0))
    step = partial(forward if names else partial(forward, X), model)
    with intus.probe(model, "127.0.0.1", 1) as watch, pytest.raises(InputError) as caught:
        watch.through(step)
    assert "got a functools.partial of 'forward' without" in str(caught.value)
    assert len(str(caught.value)) < 250


def test_step_whose_trace_fails_is_tried_once(caplog):
    model = Net(nnx.Rngs(0))
    traces = []

    def step(model, x):
        traces.append(type(model))
        if type(model) is not Net:
            raise KeyError("only a Net")
        return model(x)

    tap, results = observed(model, nnx.jit(step), (model, X), (model, X))
    assert len(traces) <= 4  # the user's own, and ours with numbers as arrays and not
    assert [type(error) for error in tap.errors] == [KeyError] * 2
    assert [result.shape for result in results] == [(6, 2)] * 2


def test_attachment_keeps_no_model_after_removal():
    model = Net(nnx.Rngs(0))
    handle = for_model(model).attach(model, [], ("output",), Collect())
    handle.remove()
    assert handle.model is None
    assert handle.through(forward)(model, X).shape == (6, 2)


def test_logging_is_quiet(caplog):
    model = Net(nnx.Rngs(0))
    with caplog.at_level(logging.WARNING, "intus"):
        observed(model, forward, (model, X))
    assert caplog.text == ""


def test_lifted_linen_modules_and_train_state():
    class Lifted(linen.Module):
        @linen.compact
        def __call__(self, x):
            def body(cell, carry, _):
                return jnp.sin(cell(carry)), None

            x = linen.remat(linen.Dense)(4, name="remat")(x)
            scan = linen.scan(body, variable_broadcast="params", split_rngs={"params": False}, length=3)
            x, _ = scan(linen.Dense(4, name="cell"), x, None)
            return linen.Dense(2, name="out")(x)

    net = Lifted()
    parameters = net.init(jax.random.key(0), X)["params"]
    state = TrainState.create(apply_fn=net.apply, params=parameters, tx=optax.sgd(0.1))

    @jax.jit
    def step(state, x):
        gradients = jax.grad(lambda p: state.apply_fn({"params": p}, x).sum())(state.params)
        return state.apply_gradients(grads=gradients), gradients

    tap, (result,) = observed(net, step, (state, X), kinds=("output", "parameter_grad"))
    assert tap.errors == []
    assert sorted(tap.offered[0]) == ["", "out", "remat"]
    for name in ("remat", "out"):
        gradient = result[1][name]["kernel"]
        np.testing.assert_allclose(tap.seen[0]["parameter_grad", f"{name}.kernel"], gradient, rtol=1e-5)


def test_random_state_and_optimizer_that_hold_what_the_step_changes():
    class Drawing(nnx.Module):
        def __init__(self, rngs):
            self.fc, self.drop = nnx.Linear(4, 4, rngs=rngs), nnx.Dropout(0.5)

        def __call__(self, x, rngs):
            return self.drop(self.fc(x), rngs=rngs)

    @nnx.jit
    def step(optimizer, x, rngs):
        def loss(model, rngs):
            y = model(x, rngs=rngs)
            return y.sum(), y

        (_, y), gradients = nnx.value_and_grad(loss, has_aux=True)(optimizer.model, rngs)
        optimizer.update(gradients)
        return y

    model = Drawing(nnx.Rngs(0))
    optimizer, rngs = nnx.ModelAndOptimizer(model, optax.sgd(0.1)), nnx.Rngs(1)
    tap, results = observed(model, step, (optimizer, X, rngs), (optimizer, X, rngs))
    assert tap.errors == []
    for seen, result in zip(tap.seen, results, strict=True):
        np.testing.assert_allclose(seen["output", "drop"], result, rtol=1e-6)


@pytest.mark.parametrize("kind", ["output", "grad_output", "parameter", "parameter_grad"])
@pytest.mark.parametrize("calls_target", [False, True])
def test_graph_definition_with_the_states_of_two_models(kind, calls_target):
    """The optimizer's moments and an unused target are states that fit too, but the step calls one model."""

    class Plain(nnx.Module):
        def __init__(self, seed):
            self.fc, self.out = (nnx.Linear(4, 4, rngs=nnx.Rngs(seed + at)) for at in (0, 1))

        def __call__(self, x):
            return self.out(nnx.relu(self.fc(x)))

    model, target = Plain(0), Plain(2)
    adam, (graphdef, state) = optax.adam(0.01), nnx.split(model)

    @partial(jax.jit, static_argnums=0)
    def step(graphdef, state, moments, other, x):
        def loss(state):
            wanted = nnx.merge(graphdef, other)(x) if calls_target else 0
            return ((nnx.merge(graphdef, state)(x) - wanted) ** 2).mean()

        return jax.grad(loss)(state)

    arguments = graphdef, state, adam.init(state), nnx.state(target), X
    tap, (gradients,) = observed(model, step, arguments, kinds=(kind,))
    if calls_target:
        assert tap.seen == [{}]
        assert [type(error) for error in tap.errors] == [CaptureError]
        assert "Pass the modules themselves to a step that nnx.jit compiled." in str(tap.errors[0])
        return
    assert tap.errors == []
    expected = {
        "output": ("out", model(X)),
        "grad_output": ("out", model(X) / 12),
        "parameter": ("out.kernel", model.out.kernel[...]),
        "parameter_grad": ("out.kernel", gradients["out"]["kernel"][...]),
    }
    address, value = expected[kind]
    np.testing.assert_allclose(tap.seen[0][kind, address], value, rtol=1e-5, atol=1e-6)


def test_batch_axis_under_several_vmaps_is_not_claimed(caplog):
    """Times and batch have equal sizes, so that ids of items would fit both."""
    model = eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0))
    records = []

    class Listening(Collect):
        def on_tensor(self, ticket, tensor):
            records.append((tensor.kind, tensor.address, tensor.has_batch, tensor.copy(None, 0)))

    @eqx.filter_jit
    def step(model, x, plain):
        def loss(model):
            return jax.vmap(jax.vmap(model), in_axes=1, out_axes=1)(x).sum()

        return eqx.filter_grad(loss)(model), jax.vmap(model)(plain)

    backend = for_model(model)
    handle = backend.attach(model, backend.operations(model), ("output", "grad_output"), Listening())
    x = np.random.default_rng(0).normal(size=(6, 6, 4)).astype(np.float32)
    _, plain = handle.through(step)(model, x, X)
    handle.remove()
    found = {(kind, address): (known, value) for kind, address, known, value in records}
    known, value = found["output", ""]
    expected = jax.vmap(jax.vmap(model))(x)
    assert not known
    np.testing.assert_allclose(value, np.swapaxes(expected, 0, 1), rtol=1e-5, atol=1e-6)
    assert not found["grad_output", "layers.0"][0]
    known, value = found["output", ":2"]
    assert known
    np.testing.assert_allclose(value, plain, rtol=1e-5, atol=1e-6)
    with intus.probe(model, "127.0.0.1", 1, budget=np.inf) as watch:
        watch.items = np.arange(6)
        watch.through(step)(model, x, X)
    assert "is the batch is not known: it is inside of several transforms" in caplog.text


@pytest.mark.parametrize("known", [True, False])
def test_equinox_model_after_its_moving_average(caplog, known):
    model, average, other = (eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(key)) for key in range(3))

    @eqx.filter_jit
    def step(average, model, x):
        return jax.vmap(average)(x), jax.vmap(model)(x)

    later = jax.tree.map(lambda part: part + 1 if eqx.is_array(part) else part, model)
    calls = (average, model, X), (average, later, X[:2])
    tap, results = observed(model if known else other, step, *calls)
    assert tap.errors == []
    assert [len(seen) for seen in tap.seen] == [3, 3]
    for seen, result in zip(tap.seen, results, strict=True):
        np.testing.assert_allclose(seen["output", ""], result[1 if known else 0], rtol=1e-5, atol=1e-6)
    said = "of which none have its arrays, so the first is taken for it"
    assert caplog.text.count(said) == (0 if known else 1)


class WithStatistics(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(4, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, use_running_average=True, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.fc(x))


@pytest.mark.parametrize("extra", [False, True], ids=["model", "with another state"])
def test_model_split_into_several_states(extra):
    """The states of ``nnx.split(model, nnx.Param, …)`` are found, also among those of other objects."""
    model = WithStatistics(nnx.Rngs(0))
    graphdef, *states = nnx.split(model, nnx.Param, nnx.BatchStat, ...)
    other = nnx.state(nnx.Linear(2, 2, rngs=nnx.Rngs(1)))

    @jax.jit
    def step(graphdef, other, params, statistics, rest, x):
        def loss(params):
            return (nnx.merge(graphdef, params, statistics, rest)(x) ** 2).sum()

        return jax.grad(loss)(params)

    backend = for_model(model)
    tap = Collect(backend=backend, model=model)
    handle = backend.attach(model, backend.operations(model), ("output", "grad_output"), tap)
    x = np.ones((5, 4), np.float32) * np.arange(5)[:, None]
    handle.through(step)(graphdef, other if extra else None, *states, x)
    handle.remove()
    assert tap.errors == []
    np.testing.assert_allclose(tap.seen[0]["output", "fc"], model.fc(x), rtol=1e-5)
    assert ("grad_output", "norm") in tap.seen[0]


class Dense(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(2)(linen.relu(linen.Dense(5)(x)))


class Plain(nnx.Module):
    """A module without a flag that says its mode."""

    def __init__(self):
        self.fc = nnx.Linear(4, 2, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.fc(x)


def without_flags(kind):
    """Return a model, what a step gets for it, a compiled training step and a compiled evaluation."""
    if kind == "linen":
        model = Dense()
        given, call, jit = model.init(jax.random.key(0), X), model.apply, jax.jit
    elif kind == "equinox":
        model = given = eqx.nn.MLP(4, 2, 5, 1, key=jax.random.key(0))
        call, jit = (lambda net, x: jax.vmap(net)(x)), eqx.filter_jit
    else:
        model = given = Plain()
        call, jit = (lambda net, x: net(x)), nnx.jit
    grad = {"linen": jax.grad, "equinox": eqx.filter_grad, "nnx": nnx.grad}[kind]

    def train(given, x):
        return jax.tree.leaves(grad(lambda given: (call(given, x) ** 2).mean())(given))[0]

    return model, given, jit(train), jit(call)


@pytest.mark.parametrize("which", ["all", "first"])
@pytest.mark.parametrize("first", ["train", "evaluate"])
@pytest.mark.parametrize("kind", ["linen", "equinox", "nnx"])
def test_steps_with_and_without_gradients_have_modes_of_their_own(kind, first, which):
    model, given, train, evaluate = without_flags(kind)
    backend = for_model(model)
    tap = Collect(backend=backend, model=model)
    operations = backend.operations(model)[1:2] if which == "first" else backend.operations(model)
    handle = backend.attach(model, operations, ("output",), tap)
    train, evaluate = handle.through(train), handle.through(evaluate)
    for step in (train, evaluate, train) if first == "train" else (evaluate, train, train):
        step(given, X)
    handle.remove()
    assert tap.modes == (["train", "eval", "train"] if first == "train" else ["eval", "train", "train"])
    assert not tap.errors
    assert backend.mode(model) == "train"  # outside of a step


def test_functions_of_one_mode_are_named_once(caplog):
    model, given, _, evaluate = without_flags("linen")

    @jax.jit
    def test(given, x):
        return model.apply(given, x)

    @jax.jit
    def predict(given, x):
        return model.apply(given, x)

    backend = for_model(model)
    tap = Collect(backend=backend, model=model)
    handle = backend.attach(model, [], ("output",), tap)
    with caplog.at_level(logging.WARNING, "intus.backends"):
        for step in map(handle.through, (evaluate, test, predict, test)):
            step(given, X)
    handle.remove()
    assert tap.modes == ["eval"] * 4
    (record,) = caplog.records
    assert "apply and test both take no gradients of Dense" in record.getMessage()
    assert "Set Probe.mode" in record.getMessage()


class Generator(nnx.Module):
    def __init__(self):
        self.fc = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return nnx.tanh(self.fc(x))


def score(critic, x):
    return jnp.mean((critic(x) - 1) ** 2)


@pytest.mark.parametrize("wrt", ["generator", "both"])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_gradient_of_parameters_after_calls_without_one(first, wrt):
    """A GAN calls its generator for the critic before it takes the generator's gradient."""
    generator, critic = Generator(), nnx.Linear(4, 1, rngs=nnx.Rngs(1))
    loss = lambda g, c, x: score(c, g(x)) + score(c, g(g(x)))  # noqa: E731

    @nnx.jit
    def step(g, c, x):
        fakes = [g(x) for _ in range(first)]
        of_critic = [nnx.grad(score)(c, fake) for fake in fakes]
        return of_critic, nnx.grad(loss, argnums=(0, 1) if wrt == "both" else 0)(g, c, x)

    tap, _ = observed(generator, step, (generator, critic, X), kinds=ALL)
    assert tap.errors == []
    definition, state = nnx.split(generator)
    expected = jax.grad(lambda state: loss(nnx.merge(definition, state), critic, X))(state)
    for name in ("kernel", "bias"):
        found = tap.seen[0]["parameter_grad", f"fc.{name}"]
        np.testing.assert_allclose(found, expected["fc"][name].get_value(), rtol=2e-6, atol=1e-7)
        np.testing.assert_array_equal(tap.seen[0]["parameter", f"fc.{name}"], getattr(generator.fc, name))


def test_second_gradient_of_parameters_is_a_fault():
    generator, critic = Generator(), nnx.Linear(4, 1, rngs=nnx.Rngs(1))

    @nnx.jit
    def step(g, c, x):
        one = nnx.grad(lambda g: score(c, g(x)))(g)
        return one, nnx.grad(lambda g: jnp.sum(g(x)))(g)

    tap, results = observed(generator, step, (generator, critic, X), kinds=ALL)
    assert [str(one).split(" of which")[0] for one in tap.errors] == [
        "The step takes several gradients of fc.bias, fc.kernel,"
    ]
    first = results[0][0]["fc"]["kernel"].get_value()
    np.testing.assert_allclose(tap.seen[0]["parameter_grad", "fc.kernel"], first, rtol=2e-6, atol=1e-7)


def test_kind_that_no_layer_had_is_a_fault(tmp_path):
    generator = Generator()
    with intus.probe(
        generator, to=tmp_path / "run.db", kinds=("output", "parameter_grad"), budget=float("inf")
    ) as watch:
        step = watch.through(nnx.jit(lambda g, x: g(x)))
        watch.mode = "train"
        for epoch in range(2):
            watch.epoch = epoch + 1
            step(generator, X)
        faults = [one for one in watch.status()["faults"] if "of kind parameter_grad" in one]
    assert len(faults) == 1


def test_several_arrays_are_told():
    """A notice names the arrays that a module returns and that are not recorded, as for PyTorch."""

    class Pair(nnx.Module):
        def __init__(self):
            self.layer = nnx.Linear(4, 3, rngs=nnx.Rngs(0))

        def __call__(self, x):
            return self.layer(x), x

    told, tap, model = [], Collect(), Pair()
    tap.returned = lambda *facts, packed: told.append(facts)
    backend = for_model(model)
    handle = backend.attach(model, backend.operations(model), ("output",), tap)
    step = handle.through(nnx.jit(lambda model, x: model(x)[0]))
    for _ in range(2):
        step(model, jnp.ones((8, 4)))
    handle.remove()
    assert tap.errors == []
    assert told == [("", "0", ["1"])]


def test_step_through_a_removed_probe_is_told_once_and_runs(caplog):
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
    x, step = jnp.ones((2, 4)), nnx.jit(lambda model, x: model(x))
    watch = intus.probe(model, run="removed", name="Removed", structure=False)
    watch.remove()
    steps = [watch.through(step), watch.through(step)]
    assert all((one(model, x) == step(model, x)).all() for one in steps)
    said = "The probe of Removed records no more passes"
    assert len([one for one in caplog.messages if said[4:] in one]) == 1
    assert len([fault for fault in watch.status()["faults"] if fault.startswith(said)]) == 1
