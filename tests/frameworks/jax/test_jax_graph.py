"""Graphs and values of JAX models, judged by what the models themselves return."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from sklearn.datasets import load_digits

import intus
from backends.contract import Collect
from intus.backends.base import for_model
from intus.core.errors import AddressError, CaptureError, InputError
from intus.core.graph import OUTPUT

DIGITS = load_digits()
IMAGES, LABELS = (DIGITS.data / 16).astype(np.float32)[:300], DIGITS.target[:300]


def traced(model, *args, **kwargs):
    """Return the graph, and the values by row."""
    return for_model(model).trace(model, args, kwargs)


def outputs(result):
    return [result.values[row] for row in np.flatnonzero(result.graph.ops.kind == OUTPUT)]


def row_of(graph, label):
    return graph.labels.index(label)


def setting(graph, label):
    return graph.settings[graph.ops.setting[row_of(graph, label)]]


class Block(nnx.Module):
    def __init__(self, width, rngs):
        self.norm1, self.norm2 = nnx.LayerNorm(width, rngs=rngs), nnx.LayerNorm(width, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
        self.fc = nnx.Linear(width, 4 * width, rngs=rngs)
        self.proj = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.proj(nnx.gelu(self.fc(self.norm2(x))))


class Transformer(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(100, 32, rngs=rngs)
        self.blocks = nnx.List([Block(32, rngs) for _ in range(2)])
        self.norm, self.head = nnx.LayerNorm(32, rngs=rngs), nnx.Linear(32, 100, rngs=rngs)

    def __call__(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def test_transformer_has_the_bits_of_the_model():
    model, ids = Transformer(nnx.Rngs(0)), jnp.arange(12).reshape(2, 6)
    result = traced(model, ids)
    graph = result.graph
    (output,) = outputs(result)
    assert np.array_equal(output, model(ids))
    assert {one.address for one in graph.modules} == {
        ".".join(map(str, path))
        for path, node in nnx.iter_graph(model)
        if isinstance(node, nnx.Module) and callable(node)
    }
    assert len(graph.modules) == 24
    assert set(result.values) == set(range(len(graph.ops)))
    (embedded,) = graph.rows("embed")
    np.testing.assert_array_equal(result.values[embedded], model.embed(ids))
    (attended,) = graph.rows("blocks.0.attn")
    expected = model.blocks[0].attn(model.blocks[0].norm1(model.embed(ids)))
    np.testing.assert_allclose(result.values[attended], expected, rtol=1e-6, atol=1e-7)


def test_parameters_of_operations():
    model = Transformer(nnx.Rngs(0))
    graph = traced(model, jnp.arange(3)[None]).graph
    flat = nnx.to_flat_state(nnx.state(model, nnx.Param))
    expected = {".".join(map(str, path)): value.get_value().shape for path, value in flat}
    assert {one.address: one.shape for one in graph.params} == expected
    assert {graph.params[number].address for _, number in graph.op_params} == set(expected)


def test_lines_of_operations_are_those_of_the_caller():
    """``jnp.take`` is traced once by JAX, and called at two lines."""

    class Takes(nnx.Module):
        def __call__(self, x):
            a = jnp.take(x, jnp.array([0]))
            b = jnp.take(x, jnp.array([1]))
            return a + b

    graph = traced(Takes(), jnp.arange(3.0)).graph
    gathers = [row for row in range(len(graph.ops)) if graph.labels[row].startswith("gather")]
    first, second = (graph.sites[graph.ops.site[row]] for row in gathers)
    assert (second.line - first.line, first.file) == (1, __file__)


def test_settings_have_literals():
    norm = nnx.LayerNorm(4, epsilon=1e-3, rngs=nnx.Rngs(0))
    graph = traced(norm, jnp.ones((2, 4))).graph
    (rsqrt,) = [row for row, label in enumerate(graph.labels) if label.startswith("rsqrt")]
    before = graph.edges.src[graph.edges.dst == rsqrt][0]
    assert graph.settings[graph.ops.setting[before]] == "0.001"
    assert "axes=(1,)" in setting(graph, "reduce_sum_1_2")


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (jnp.float32, 0.3),
        (jnp.float32, 1e-5),
        (jnp.float16, 0.1),
        (jnp.float16, -65504.0),
        (jnp.bfloat16, 0.1),
    ],
)
def test_literals_have_the_shortest_text_of_their_dtype(dtype, number):
    class Scaled(nnx.Module):
        def __call__(self, x):
            return jnp.maximum(x * number, jnp.asarray(number, dtype)) + float(np.float32(0.3))

    graph = traced(Scaled(), jnp.ones(3, dtype)).graph
    assert [setting(graph, label) for label in ("mul_1_1", "max_1_2")] == [str(number)] * 2
    assert setting(graph, "add_1_3") == "0.3"


def test_literals_of_float64_stay():
    class Scaled(nnx.Module):
        def __call__(self, x):
            return x * float(np.float32(0.3)) + 0.1

    with jax.enable_x64(True):
        graph = traced(Scaled(), jnp.ones(3, jnp.float64)).graph
    assert [setting(graph, label) for label in ("mul_1_1", "add_1_2")] == ["0.30000001192092896", "0.1"]


def test_loops_are_one_operation_with_the_value_of_the_model():
    class Loop(nnx.Module):
        def __init__(self, rngs):
            self.cell = nnx.Linear(4, 4, rngs=rngs)

        def __call__(self, x):
            x, _ = jax.lax.scan(lambda carry, _: (jnp.sin(self.cell(carry)), None), x, length=3)
            x = jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)
            return jax.lax.while_loop(lambda x: x.sum() > 1, lambda x: x / 2, x)

    model, x = Loop(nnx.Rngs(0)), jnp.ones((2, 4))
    result = traced(model, x)
    types = {result.graph.types[number] for number in result.graph.ops.type}
    assert {"scan", "cond", "while"} <= types
    np.testing.assert_array_equal(outputs(result)[0], model(x))


def test_random_state_and_statistics_are_unchanged():
    class Random(nnx.Module):
        def __init__(self, rngs):
            self.norm, self.drop = nnx.BatchNorm(4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            return self.drop(self.norm(x))

    model, same, x = Random(nnx.Rngs(0)), Random(nnx.Rngs(0)), jnp.arange(8.0).reshape(2, 4)
    result = traced(model, x)
    np.testing.assert_array_equal(outputs(result)[0], same(x))
    fresh = nnx.state(Random(nnx.Rngs(0)))
    for one, other in zip(jax.tree.leaves(nnx.state(model)), jax.tree.leaves(fresh), strict=True):
        assert (one == other).all()
    assert {one.address for one in result.graph.buffers} >= {"norm.mean", "drop.rngs.key"}


class Shifted(nnx.Module):
    """Has arrays that are no variables."""

    def __init__(self):
        self.linear = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
        self.shift, self.unused = nnx.data(jnp.ones(3)), nnx.data([jnp.zeros(2)])

    def __call__(self, x):
        return self.linear(x) + self.shift


def test_arrays_of_a_module_that_are_no_variables_are_buffers():
    """Before, tracing such a module raised AttributeError."""
    model, x = Shifted(), jnp.ones((2, 4))
    found = traced(model, x)
    assert [found.graph.label(row) for row in range(len(found.graph.ops))][-2:] == ["add_2_3", "output_1"]
    assert "shift" in {each.address for each in found.graph.buffers}
    assert {each.address for each in found.graph.params} == {"linear.kernel", "linear.bias"}
    assert np.array_equal(outputs(found)[0], model(x))


class Conv(linen.Module):
    @linen.compact
    def __call__(self, x, train=False):
        x = linen.BatchNorm(use_running_average=not train)(linen.Conv(8, (3, 3), name="conv")(x))
        return linen.Dense(10, name="out")(linen.relu(x).mean((1, 2)))


@pytest.mark.parametrize("train", [False, True])
def test_linen_module_with_batch_statistics(train):
    net, x = Conv(), jax.random.normal(jax.random.key(0), (2, 6, 6, 1))
    variables = net.init(jax.random.key(0), x)
    mutable = ["batch_stats"] if train else False
    result = traced(net.bind(variables, mutable=mutable), x, train=train)
    expected = net.apply(variables, x, train, mutable=mutable)
    np.testing.assert_array_equal(outputs(result)[0], expected[0] if train else expected)
    assert [one.type for one in result.graph.modules] == ["Conv", "Conv", "BatchNorm", "Dense"]
    assert {one.address for one in result.graph.buffers} == {"BatchNorm_0.mean", "BatchNorm_0.var"}


def test_linen_module_without_variables_is_refused():
    with pytest.raises(InputError, match=r"The Linen module Conv has no variables. Pass module.bind"):
        traced(Conv(), jnp.ones((1, 6, 6, 1)))


class Encoder(linen.Module):
    def setup(self):
        self.fc = linen.Dense(3)

    def encode(self, x):
        return jnp.tanh(self.fc(x))

    __call__ = encode


def test_linen_module_whose_call_is_a_function_of_another_name():
    class Encoded(linen.Module):
        def setup(self):
            self.one = Encoder()

        def __call__(self, x):
            return self.one(x) * 2

    net, x = Encoded(), jax.random.normal(jax.random.key(0), (2, 4))
    variables = net.init(jax.random.key(0), x)
    expected = Encoder().apply({"params": variables["params"]["one"]}, x)
    t = intus.trace(net.bind(variables), x)
    np.testing.assert_array_equal(t["one"].value, expected)
    assert (t.modules["one"].type, t.modules["one"].num_calls) == ("Encoder", 1)


def test_equinox_model_and_its_arguments():
    class Model(eqx.Module):
        mlp: eqx.nn.MLP
        scale: float

        def __call__(self, x, *, mask):
            return {"y": self.mlp(x * self.scale) * mask, "x": x}

    model = Model(eqx.nn.MLP(4, 3, 8, 1, key=jax.random.key(0)), 0.5)
    x, mask = jnp.arange(4.0), jnp.array([1.0, 0.0, 1.0])
    result = traced(model, x, mask=mask)
    assert result.graph.facts["inputs"] == ["x", "mask"]
    assert result.graph.facts["outputs"] == ["y", "x"]
    expected = model(x, mask=mask)
    for output, name in zip(outputs(result), expected, strict=True):
        np.testing.assert_array_equal(output, expected[name])
    addresses = ["", "mlp", "mlp.layers.0", "mlp.layers.1"]
    assert [one.address for one in result.graph.modules] == addresses
    assert result.graph.rows("mlp.layers.1")


def test_call_that_fails_names_the_reason():
    with pytest.raises(CaptureError, match="JAX could not trace the call: TypeError: dot_general"):
        traced(nnx.Linear(4, 4, rngs=nnx.Rngs(0)), jnp.ones((2, 3)))


def test_graph_without_values_is_the_same():
    from intus.backends.jax.graph import structure, trace
    from intus.backends.jax.nnx import Nnx
    from intus.backends.jax.shadow import ModelCall

    model, ids = Transformer(nnx.Rngs(0)), jnp.arange(12).reshape(2, 6)
    shape = jax.ShapeDtypeStruct(ids.shape, ids.dtype)
    graph = structure(Nnx(), model, ModelCall((shape,), {}))
    assert graph.labels == trace(Nnx(), model, (ids,), {}).graph.labels


def test_trace_of_the_front_door(tmp_path):
    model, ids = Transformer(nnx.Rngs(0)), jnp.arange(12).reshape(2, 6)
    trace = intus.trace(model, ids)
    np.testing.assert_array_equal(trace.modules["head"].value, model(ids))
    trace.save(tmp_path / "t.trace")
    again = intus.load(tmp_path / "t.trace")
    np.testing.assert_array_equal(again["head"].value, model(ids))


class Digits(eqx.Module):
    fc: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    out: eqx.nn.Linear

    def __init__(self, key):
        self.fc, self.out = eqx.nn.Linear(64, 32, key=key), eqx.nn.Linear(32, 10, key=key)
        self.norm = eqx.nn.BatchNorm(32, axis_name="batch", mode="batch")

    def __call__(self, x, state):
        x, state = self.norm(self.fc(x), state)
        return self.out(jax.nn.relu(x)), state


def test_graph_of_a_call_inside_vmap_has_the_batch():
    model, state = eqx.nn.make_with_state(Digits)(jax.random.key(0))
    backend = for_model(model)
    recorder, graphs = backend.graph_recorder(model), []

    class Tap(Collect):
        def on_forward_start(self, inputs):
            recorder.begin(model, inputs)
            return True

        def on_forward_end(self, output):
            graphs.append(recorder.end(output))

    tap = Tap()
    handle = backend.attach(model, [], ("output",), tap)

    @eqx.filter_jit
    def step(model, state, x):
        return jax.vmap(model, in_axes=(0, None), out_axes=(0, None), axis_name="batch")(x, state)

    handle.through(step)(model, state, IMAGES[:8])
    handle.remove()
    assert tap.errors == []
    (graph,) = graphs
    (row,) = graph.rows("fc")
    assert graph.metas[graph.ops.meta[row]].shape == (8, 32)


class LinenDigits(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(10, name="out")(linen.relu(linen.Dense(32, name="fc")(x)))


class NnxDigits(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.out = nnx.Linear(64, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.fc(x)))


class EquinoxDigits(eqx.Module):
    fc: eqx.nn.Linear

    def __init__(self, key):
        self.fc = eqx.nn.Linear(64, 32, key=key)

    def __call__(self, x):
        return jax.nn.relu(self.fc(x))


@pytest.mark.parametrize("library", ["nnx", "linen", "equinox"])
def test_inspect_has_the_correlations_of_numpy(library):
    net = LinenDigits()
    bound = net.bind(net.init(jax.random.key(0), IMAGES[:1]))
    equinox = EquinoxDigits(jax.random.key(0))
    model, fc = {
        "nnx": lambda: ((one := NnxDigits(nnx.Rngs(0))), one.fc),
        "linen": lambda: (bound, linen.Dense(32).bind({"params": bound.variables["params"]["fc"]})),
        "equinox": lambda: (equinox, jax.vmap(equinox.fc)),
    }[library]()
    found = intus.inspect(model, {"odd": LABELS % 2}, "correlation", IMAGES, "fc")
    outputs = np.asarray(fc(IMAGES))
    expected = [np.corrcoef(outputs[:, unit], LABELS % 2)[0, 1] for unit in range(32)]
    np.testing.assert_allclose(found["value"], expected, atol=1e-5)


def test_input_has_its_name_whatever_the_model_calls_itself():
    class Named(nnx.Module):
        def __call__(s, x, scale):  # noqa: N805
            return x * scale

    result = traced(Named(), np.ones(3, np.float32), np.ones(3, np.float32))
    assert result.graph.facts["inputs"] == ["x", "scale"]


def test_complex_values_are_saved_and_keys_have_a_reason():
    class Fourier(nnx.Module):
        def __call__(self, x):
            return jnp.fft.fft(x), jax.random.key(3), x

    traced = intus.trace(Fourier(), x := jnp.ones((3, 4)))
    waves, key, _ = traced.outputs
    np.testing.assert_array_equal(waves.value, jnp.fft.fft(x))
    with pytest.raises(AddressError, match="it has the dtype key<fry>, which holds no numbers"):
        key.value  # noqa: B018
