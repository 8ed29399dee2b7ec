"""The contract of backends, for NNX, Linen and Equinox; the judge is jax.grad on layers called one by one."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import intus
from backends.contract import (
    CLASSES,
    FEATURES,
    BackendContract,
    Collect,
    Returning,
    Subject,
    TraceContract,
    Training,
    attach,
    batch,
    unchanged,
)
from intus.core.errors import AddressError, InputError

KINDS = ("output", "input", "grad_output", "grad_input", "parameter", "parameter_grad")
CALLS = dict.fromkeys(("", "first", "norm", "drop", "head"), 1) | {"cell": 2}
ADAM = optax.adam(0.01)


def cross_entropy(logits, y):
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def arrays(tree):
    """Return the arrays of a tree as numpy, keys of random numbers as their data."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    is_key = [jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    return [
        np.asarray(jax.random.key_data(leaf) if key else leaf)
        for leaf, key in zip(leaves, is_key, strict=True)
    ]


def chained(layers, x, y):
    """Return inputs, outputs and their gradients of named layers that follow each other."""
    found, values = {}, [x]
    for _, layer in layers:
        values.append(layer(values[-1]))

    def rest(at):
        def loss(value):
            for _, layer in layers[at:]:
                value = layer(value)
            return cross_entropy(value, y)

        return loss

    gradients = [jax.grad(rest(at))(value) for at, value in enumerate(values)]
    for at, (name, _) in enumerate(layers):
        ends = {"input": at, "output": at + 1}
        found |= {(kind, name): values[end] for kind, end in ends.items()}
        # The data is no argument of the loss, so it has no gradient.
        found |= {(f"grad_{kind}", name): gradients[end] for kind, end in ends.items() if end}
    found |= {("input", ""): values[0], ("output", ""): values[-1], ("grad_output", ""): gradients[-1]}
    return found


class NnxNet(nnx.Module):
    """Batch norm, dropout, and a layer that is called twice."""

    def __init__(self, rngs):
        self.first, self.norm = nnx.Linear(FEATURES, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
        self.drop, self.cell = nnx.Dropout(0.3, rngs=rngs), nnx.Linear(8, 8, rngs=rngs)
        self.head = nnx.Linear(8, CLASSES, rngs=rngs)

    def __call__(self, x):
        return self.head(self.cell(self.cell(self.drop(nnx.relu(self.norm(self.first(x)))))))


@nnx.jit
def nnx_step(model, optimizer, x, y):
    loss, gradients = nnx.value_and_grad(lambda model: cross_entropy(model(x), y))(model)
    optimizer.update(model, gradients)
    return loss


@partial(jax.jit, donate_argnums=1)
def split_step(graphdef, state, x, y):
    model, optimizer = nnx.merge(graphdef, state)
    loss = nnx_step.__wrapped__(model, optimizer, x, y)
    return loss, nnx.state((model, optimizer))


class NnxSubject(Subject):
    name = "nnx.jit"
    parameters_at_end = False
    kinds = KINDS
    calls = CALLS

    def new(self):
        return NnxNet(nnx.Rngs(1))

    def through(self, watch):
        return watch.through

    def train(self, model, steps, *, through=unchanged, after=lambda step: None):
        optimizer, losses, step = nnx.Optimizer(model, ADAM, wrt=nnx.Param), [], through(nnx_step)
        for number in range(steps):
            losses.append(step(model, optimizer, *map(jnp.asarray, batch(number))))
            after(number)
        return Training(model, losses, arrays(nnx.state((model, optimizer))))

    def expected(self):
        model = self.new()
        x, y = map(jnp.asarray, batch(0))
        found = {("parameter", name): value for name, value in self.parameters(model).items()}
        gradients = nnx.to_flat_state(nnx.grad(lambda model: cross_entropy(model(x), y))(self.new()))
        found |= {("parameter_grad", ".".join(path)): value.get_value() for path, value in gradients}
        drawn = nnx.clone(model.drop)(jnp.ones((len(x), 8)))  # the same mask for each gradient
        layers = [
            ("first", model.first),
            ("norm", lambda value: nnx.clone(model.norm)(value)),
            ("relu", nnx.relu),
            ("drop", lambda value: value * drawn),
            *(("cell", model.cell), ("cell:2", model.cell), ("head", model.head)),
        ]
        found |= chained(layers, x, y)
        return {key: np.asarray(value) for key, value in found.items() if key[1] != "relu"}

    def parameters(self, model):
        state = nnx.to_flat_state(nnx.state(model, nnx.Param))
        return {".".join(path): np.asarray(value.get_value()) for path, value in state}

    def evaluated(self):
        model = self.new()
        model.eval()
        return np.asarray(model(batch(0)[0]))

    def footprint(self, model):
        return [
            (path, type(module), sorted(map(str, vars(module))), type(module).__call__)
            for path, module in nnx.iter_graph(model)
            if isinstance(module, nnx.Module)
        ]


class SplitSubject(NnxSubject):
    """``jax.jit`` with the graph definition and the state among the arguments, which it donates."""

    name = "nnx.split, jax.jit, donated"

    def train(self, model, steps, *, through=unchanged, after=lambda step: None):
        optimizer, losses, step = nnx.Optimizer(model, ADAM, wrt=nnx.Param), [], through(split_step)
        graphdef, state = nnx.split((model, optimizer))
        state = jax.tree.map(jnp.copy, state)  # the model itself stays usable
        for number in range(steps):
            loss, state = step(graphdef, state, *map(jnp.asarray, batch(number)))
            losses.append(loss)
            after(number)
        return Training(nnx.merge(graphdef, state)[0], losses, arrays(state))


class LinenNet(linen.Module):
    """As ``NnxNet``."""

    @linen.compact
    def __call__(self, x, train=False):
        x = linen.BatchNorm(name="norm")(linen.Dense(8, name="first")(x), use_running_average=not train)
        x = linen.Dropout(0.3, name="drop")(linen.relu(x), deterministic=not train)
        cell = linen.Dense(8, name="cell")
        return linen.Dense(CLASSES, name="head")(cell(cell(x)))


NET = LinenNet()


def linen_loss(parameters, rest, key, x, y):
    variables = {"params": parameters, **rest}
    logits, rest = NET.apply(variables, x, train=True, rngs={"dropout": key}, mutable=["batch_stats"])
    return cross_entropy(logits, y), rest


@jax.jit
def linen_step(parameters, rest, state, key, x, y):
    function = jax.value_and_grad(linen_loss, has_aux=True)
    (loss, rest), gradients = function(parameters, rest, key, x, y)
    updates, state = ADAM.update(gradients, state)
    return optax.apply_updates(parameters, updates), rest, state, loss


def by_key(tree):
    """Return the parameters of a mapping by address."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {".".join(key.key for key in path): np.asarray(value) for path, value in leaves}


class LinenSubject(Subject):
    name = "linen, jax.jit"
    parameters_at_end = False
    kinds = KINDS
    calls = CALLS

    def new(self):
        return NET.bind(NET.init(jax.random.key(1), batch(0)[0]))

    def through(self, watch):
        return watch.through

    def train(self, model, steps, *, through=unchanged, after=lambda step: None):
        net, variables = model.unbind()
        variables = dict(variables)
        parameters, losses, rest = variables.pop("params"), [], variables
        state = ADAM.init(parameters)

        step = through(linen_step)
        for number in range(steps):
            key = jax.random.key(number)
            parameters, rest, state, loss = step(parameters, rest, state, key, *batch(number))
            losses.append(loss)
            after(number)
        return Training(net.bind({"params": parameters, **rest}), losses, arrays((parameters, rest, state)))

    def expected(self):
        net, variables = self.new().unbind()
        parameters, rest = variables["params"], {"batch_stats": variables["batch_stats"]}
        x, y = map(jnp.asarray, batch(0))
        gradients, _ = jax.grad(linen_loss, has_aux=True)(parameters, rest, jax.random.key(0), x, y)
        trees = {"parameter": parameters, "parameter_grad": gradients}
        found = {(kind, name): value for kind, tree in trees.items() for name, value in by_key(tree).items()}
        _, seen = net.apply(
            variables,
            x,
            train=True,
            rngs={"dropout": jax.random.key(0)},
            mutable=["batch_stats", "intermediates"],
            capture_intermediates=True,
        )
        outputs = {name: one["__call__"] for name, one in seen["intermediates"].items() if name != "__call__"}
        dropped = outputs["drop"][0]
        kept = dropped != 0  # where ReLU gave 0 the gradient is 0 in any case
        layers = [
            ("first", lambda value: linen.Dense(8).apply({"params": parameters["first"]}, value)),
            ("norm", lambda value: linen.BatchNorm(use_running_average=False).apply(
                {"params": parameters["norm"], "batch_stats": rest["batch_stats"]["norm"]},
                value, mutable=["batch_stats"])[0]),
            ("relu", linen.relu),
            ("drop", lambda value: jnp.where(kept, value / 0.7, 0)),
            *[(name, lambda value: linen.Dense(8).apply({"params": parameters["cell"]}, value))
              for name in ("cell", "cell:2")],
            ("head", lambda value: linen.Dense(CLASSES).apply({"params": parameters["head"]}, value)),
        ]  # fmt: skip
        chain = chained(layers, x, y)
        np.testing.assert_allclose(chain["output", "cell:2"], outputs["cell"][1], rtol=1e-6, atol=1e-6)
        del chain["grad_output", "relu"], chain["grad_input", "drop"]  # not known where nothing was kept
        found |= chain
        return {key: np.asarray(value) for key, value in found.items() if key[1] != "relu"}

    def parameters(self, model):
        return by_key(model.unbind()[1]["params"])

    def evaluated(self):
        return np.asarray(self.new()(batch(0)[0]))

    def footprint(self, model):
        left = len(linen.module._global_interceptor_stack)
        return list(vars(LinenNet)), LinenNet.__call__, sorted(vars(model)), left


class EquinoxNet(eqx.Module):
    """As ``NnxNet`` without batch norm, for one record."""

    first: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    drop: eqx.nn.Dropout
    cell: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key):
        one, two, three = jax.random.split(key, 3)
        self.first, self.norm = eqx.nn.Linear(FEATURES, 8, key=one), eqx.nn.LayerNorm(8)
        self.drop, self.cell = eqx.nn.Dropout(0.3), eqx.nn.Linear(8, 8, key=two)
        self.head = eqx.nn.Linear(8, CLASSES, key=three)

    def __call__(self, x, key=None):
        x = self.drop(jax.nn.relu(self.norm(self.first(x))), key=key)
        return self.head(self.cell(self.cell(x)))


@eqx.filter_jit
def equinox_step(model, state, key, x, y):
    def loss(model):
        return cross_entropy(jax.vmap(model)(x, jax.random.split(key, len(x))), y)

    value, gradients = eqx.filter_value_and_grad(loss)(model)
    updates, state = ADAM.update(gradients, state)
    return eqx.apply_updates(model, updates), state, value


def by_attribute(tree):
    """Return the parameters of a module of Equinox by address."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_inexact_array))
    return {".".join(key.name for key in path): np.asarray(value) for path, value in leaves}


class EquinoxSubject(Subject):
    name = "equinox, filter_jit"
    parameters_at_end = False
    kinds = KINDS
    calls = CALLS

    def new(self):
        return EquinoxNet(jax.random.key(1))

    def through(self, watch):
        return watch.through

    def train(self, model, steps, *, through=unchanged, after=lambda step: None):
        state, losses = ADAM.init(eqx.filter(model, eqx.is_array)), []
        step = through(equinox_step)
        for number in range(steps):
            model, state, loss = step(model, state, jax.random.key(number), *map(jnp.asarray, batch(number)))
            losses.append(loss)
            after(number)
        return Training(model, losses, arrays((model, state)))

    def expected(self):
        model = self.new()
        x, y = map(jnp.asarray, batch(0))
        keys = jax.random.split(jax.random.key(0), len(x))
        gradients = eqx.filter_grad(lambda model: cross_entropy(jax.vmap(model)(x, keys), y))(model)
        trees = {"parameter": model, "parameter_grad": gradients}
        found = {
            (kind, name): value for kind, tree in trees.items() for name, value in by_attribute(tree).items()
        }
        layers = [
            *(("first", jax.vmap(model.first)), ("norm", jax.vmap(model.norm)), ("relu", jax.nn.relu)),
            ("drop", lambda value: jax.vmap(model.drop)(value, key=keys)),
            *(
                ("cell", jax.vmap(model.cell)),
                ("cell:2", jax.vmap(model.cell)),
                ("head", jax.vmap(model.head)),
            ),
        ]
        found |= chained(layers, x, y)
        return {key: np.asarray(value) for key, value in found.items() if key[1] != "relu"}

    def parameters(self, model):
        return by_attribute(model)

    def evaluated(self):
        return np.asarray(jax.vmap(eqx.nn.inference_mode(self.new()))(batch(0)[0]))

    def footprint(self, model):
        return jax.tree.structure(model), EquinoxNet.__call__, list(vars(EquinoxNet)), sorted(vars(model))


class TestJaxContract(BackendContract):
    @pytest.fixture(
        params=[NnxSubject(), SplitSubject(), LinenSubject(), EquinoxSubject()], ids=lambda one: one.name
    )
    def subject(self, request):
        return request.param

    def test_program_of_step_is_unchanged(self, subject):
        """The user's step, and the same function traced anew, have the same text if calls are recorded."""
        texts = []
        compiled = {"nnx.jit": nnx.jit, "equinox, filter_jit": eqx.filter_jit}.get(subject.name, jax.jit)

        def reading(through):
            def wrapped(step):
                observed = through(step)

                def call(*arguments):
                    anew = compiled(lambda *given: step.__wrapped__(*given))
                    texts.append([one.lower(*arguments).as_text() for one in (step, anew)])
                    return observed(*arguments)

                return call

            return wrapped

        subject.train(subject.new(), 2, through=reading(unchanged))
        assert all("dot_general" in text for text in texts[0])
        plain, texts = texts, []
        model, tap = subject.new(), Collect()
        handle = attach(subject, model, tap)
        subject.train(model, 2, through=reading(subject.through(handle)))
        handle.remove()
        assert tap.errors == []
        assert {kind for seen in tap.seen for kind, _ in seen} == set(KINDS)
        subject.train(subject.new(), 2, through=reading(unchanged))
        assert texts == plain * 2


class NnxEnc(nnx.Module):
    __call__ = Returning.enc


class NnxPair(nnx.Module):
    __call__ = Returning.pair


class NnxReturning(nnx.Module):
    __call__ = Returning.net

    def __init__(self):
        self.enc, self.same, self.pair = NnxEnc(), nnx.Dropout(0.3, deterministic=True), NnxPair()


class LinenEnc(linen.Module):
    __call__ = Returning.enc


class LinenPair(linen.Module):
    __call__ = Returning.pair


class LinenReturning(linen.Module):
    __call__ = Returning.net

    def setup(self):
        self.enc, self.same, self.pair = LinenEnc(), linen.Dropout(0.3, deterministic=True), LinenPair()


class EquinoxEnc(eqx.Module):
    __call__ = Returning.enc


class EquinoxPair(eqx.Module):
    __call__ = Returning.pair


class EquinoxReturning(eqx.Module):
    __call__ = Returning.net

    enc: EquinoxEnc
    same: eqx.nn.Dropout
    pair: EquinoxPair


class Looping(eqx.Module):
    cell: eqx.nn.GRUCell
    idle: eqx.nn.Linear

    def __call__(self, xs):
        def step(state, x):
            state = self.cell(x, state)
            return state, state

        return jax.lax.scan(step, jnp.zeros(4), xs)


def test_module_inside_of_a_loop_is_not_said_to_have_been_left_out():
    keys = jax.random.split(jax.random.key(0))
    net = Looping(eqx.nn.GRUCell(3, 4, key=keys[0]), eqx.nn.Linear(3, 4, key=keys[1]))
    t = intus.trace(net, jnp.ones((5, 3)))
    with pytest.raises(AddressError, match="'cell' ran inside of one operation, such as a loop"):
        t["cell"]
    with pytest.raises(AddressError, match="'idle' did not run in this pass"):
        t["idle"]


@pytest.mark.parametrize("wrap", [jax.jit, jax.vmap, eqx.filter_jit, eqx.filter_vmap])
def test_function_around_a_model_is_refused(wrap):
    """A trace of it would have no modules, or need PyTorch."""
    model = EquinoxReturning(EquinoxEnc(), eqx.nn.Dropout(0.3, inference=True), EquinoxPair())
    with pytest.raises(InputError, match=r"Pass the EquinoxReturning: trace\(model, inputs\)"):
        intus.trace(wrap(model), jnp.ones((2, 4, 6)))


class TestTraceContract(TraceContract):
    @pytest.fixture(params=["nnx", "linen", "equinox"])
    def net(self, request):
        if request.param == "nnx":
            return NnxReturning()
        if request.param == "linen":
            return LinenReturning().bind({})
        return EquinoxReturning(EquinoxEnc(), eqx.nn.Dropout(0.3, inference=True), EquinoxPair())
