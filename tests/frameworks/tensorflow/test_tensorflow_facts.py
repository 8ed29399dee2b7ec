"""FLOPs and unit axes of TensorFlow's operations, judged by TensorFlow's own statistics and planted units."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

import intus
from backends.counted_net import IN, MIDDLE, OUT, assert_counted
from intus.backends.tensorflow.plan import is_random
from intus.core.building import GraphBuilder
from intus.core.units import UnitAxes
from intus.core.vocabularies import draws_at_random

L = keras.layers
IMAGES = np.random.default_rng(0).random((8, 10, 10, 3)).astype(np.float32)


def cnn():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((10, 10, 3), batch_size=8),
            L.Conv2D(6, 3, name="conv"),
            L.BatchNormalization(name="norm"),
            L.ReLU(name="relu"),
            L.MaxPooling2D(2, name="pool"),
            L.DepthwiseConv2D(2, depth_multiplier=2, padding="same", name="each"),
            L.Conv2DTranspose(5, 2, strides=2, name="up"),
            keras.Sequential([L.Activation("tanh"), L.Dropout(0.5)], name="block"),
            L.AveragePooling2D(2, name="mean"),
            L.Flatten(name="flat"),
            L.Dense(4, name="fc"),
        ]
    )


def attention():
    keras.utils.set_random_seed(0)
    x = keras.Input((5, 8), batch_size=2)
    y = L.LayerNormalization(name="norm")(x)
    return keras.Model(x, L.Dense(3, name="fc")(L.MultiHeadAttention(2, 4, name="attn")(y, y)))


def counted(found):
    counts = {}
    for op in found:
        counts[op.type] = counts.get(op.type, 0) + op.flops
    return counts


def registered(model, x):
    """Return what TensorFlow's own statistics count, by type of operation."""
    function = tf.function(lambda x: model(x, training=False)).get_concrete_function(tf.constant(x))
    counts = {}
    for op in function.graph.get_operations():
        flops = ops.get_stats_for_node_def(function.graph, op.node_def, "flops").value
        if flops:
            counts[op.type] = counts.get(op.type, 0) + flops
    return counts


@pytest.fixture(scope="module", params=["cnn", "attention"])
def traced(request):
    model, x = (cnn(), IMAGES) if request.param == "cnn" else (attention(), IMAGES[:2, :5, :8, 0])
    return request.param, model, x, intus.trace(model, x)


PRODUCTS = "Conv2D DepthwiseConv2dNative Conv2DBackpropInput MatMul BatchMatMulV2"
OTHERS = "BiasAdd Relu MaxPool AvgPool Mul Sub AddV2 Neg"


def test_flops_as_tensorflow_counts_them(traced):
    name, model, x, found = traced
    assert found.flops_unknown == {}
    ours, theirs = counted(found), registered(model, x)
    known = {type_ for type_ in ours if type_ in theirs and type_ in f"{PRODUCTS} {OTHERS}".split()}
    assert known >= ({"Conv2D", "MaxPool", "MatMul"} if name == "cnn" else {"BatchMatMulV2", "MatMul"})
    assert {type_: ours[type_] for type_ in known} == {type_: theirs[type_] for type_ in known}


def test_flops_of_products_of_attention():
    """Four projections, and the products of queries, keys and values."""
    found = intus.trace(attention(), IMAGES[:2, :5, :8, 0])
    assert found.macs == 2 * 5 * (4 * 8 * 8 + 2 * 5 * 8 + 8 * 3)


def test_flops_of_session():
    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [4, 5], "x")
        tf.nn.relu(tf.matmul(x, tf.constant(np.ones((3, 5), np.float32)), transpose_b=True), name="out")
        assert counted(intus.trace(session, "out:0", {x: np.ones((4, 5))})) == {"MatMul": 120, "Relu": 12}


def test_unit_axes(traced):
    name, _, _, found = traced
    axes = UnitAxes(found.graph)
    if name == "cnn":
        names = "conv", "norm", "relu", "pool", "each", "up", "block", "mean"
        assert [axes.of(found[name].row) for name in names] == [3] * 8
        assert axes.of(found["fc"].row) == 1
        np.testing.assert_array_equal(found.value("conv[2]"), found["conv"].value[..., 2])
        assert [axes.of_parameter(number, "kernel") for number in (0, 1)] == [3, 0]
    else:
        assert [axes.of(found[name].row) for name in ("attn", "fc")] == [2, 2]


def test_inspect_has_a_row_for_each_unit():
    """One channel of the first layer is not zero. Layers without a layout of their own have units too."""
    model = cnn()
    kernel = np.zeros((3, 3, 3, 6))
    kernel[..., 4] = 1
    model.get_layer("conv").kernel.assign(kernel)
    labels = np.arange(8) % 2
    images = IMAGES * (1 + labels[:, None, None, None])
    counts = {"conv": 6, "norm": 6, "relu": 6, "each": 12, "up": 5, "block": 5, "fc": 4}
    table = intus.inspect(model, {"odd": labels}, "mean_difference", images, list(counts))
    units = {address: sorted(rows.unit) for address, rows in table.groupby("address")}
    assert units == {address: list(range(count)) for address, count in counts.items()}
    for address in ("conv", "norm", "relu"):
        rows = table[table.address == address]
        assert rows[rows.value.abs() > 1e-3].unit.tolist() == [4]


@pytest.mark.parametrize("frozen", [False, True])
def test_running_statistics_are_no_parameters(frozen):
    layers = [keras.Input((IN,)), L.Dense(MIDDLE), L.BatchNormalization(), L.Dense(OUT)]
    net, x = keras.Sequential(layers), np.ones((5, IN), np.float32)
    net.trainable = not frozen
    trace = intus.trace(net, x)
    assert_counted(trace)
    assert [param.trainable for param in trace.graph.params] == [not frozen] * 6


def test_running_statistics_of_a_session_are_no_parameters():
    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, IN], "x")
        sizes = {"scale": 1.0, "offset": 0.0, "mean": 0.0, "variance": 1.0}
        norm = {
            name: tf1.get_variable(
                name, MIDDLE, initializer=tf1.constant_initializer(value), trainable=at < 2
            )
            for at, (name, value) in enumerate(sizes.items())
        }
        value = tf.matmul(x, tf1.get_variable("w1", [IN, MIDDLE])) + tf1.get_variable("b1", MIDDLE)
        value, _, _ = tf1.nn.fused_batch_norm(value[:, None, None], **norm, is_training=False)
        value = tf.matmul(value[:, 0, 0], tf1.get_variable("w2", [MIDDLE, OUT])) + tf1.get_variable("b2", OUT)
        session.run(tf1.global_variables_initializer())
        assert_counted(intus.trace(session, value, {x: np.ones((5, IN), np.float32)}))


@pytest.mark.parametrize("layer", [L.LSTM(4), L.GRU(4), L.SimpleRNN(4), L.LSTM(4, unroll=True)], ids=type)
def test_recurrent_layers_are_recurrent(layer):
    x = np.ones((2, 5, 3), np.float32)
    assert intus.trace(keras.Sequential([keras.Input((5, 3)), layer]), x).is_recurrent
    net = keras.Sequential([keras.Input((5, 3)), L.TimeDistributed(L.Dense(4)), L.Conv1D(2, 2)])
    assert not intus.trace(net, x).is_recurrent


@pytest.mark.parametrize("version", [1, 2])
def test_while_loop_of_a_session_is_recurrent(version):
    tf1 = tf.compat.v1
    (tf1.enable_control_flow_v2 if version == 2 else tf1.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default(), tf1.Session() as session:
            x = tf1.placeholder(tf.float32, [2, 3], "x")
            _, end = tf.while_loop(lambda at, _: at < 3, lambda at, state: (at + 1, state * 2), (0, x))
            fed = {x: np.ones((2, 3), np.float32)}
            assert intus.trace(session, tf.identity(end), fed).is_recurrent
            assert not intus.trace(session, x * 2, fed).is_recurrent
    finally:
        tf1.enable_control_flow_v2()


@pytest.mark.parametrize(
    "number", [0.3, 1e-5, 1.1e-5, 0.1, float(np.nextafter(np.float32(0.3), np.float32(1)))]
)
def test_numbers_of_float32_have_the_shortest_text(number):
    given = keras.Input((4,))
    layers = keras.layers.LeakyReLU(negative_slope=number), keras.layers.LayerNormalization(epsilon=number)
    model = keras.Model(given, layers[0](layers[1](given)))
    graph = intus.trace(model, np.ones((2, 4), np.float32)).graph
    settings = {graph.setting(row) for row in range(len(graph.ops))}
    assert {f"alpha={np.float32(number)!s}", f"y={np.float32(number)!s}"} <= settings, settings


tf1 = tf.compat.v1
ONES = np.ones((4, 4), np.float32)
#: Operations that may draw, by type, and others with a name like theirs.
DRAWN = {
    "RandomUniform": lambda: tf.random.uniform([9]),
    "RandomUniformInt": lambda: tf.random.uniform([9], 0, 99, tf.int32),
    "RandomStandardNormal": lambda: tf.random.normal([9]),
    "TruncatedNormal": lambda: tf.random.truncated_normal([9]),
    "RandomGamma": lambda: tf.random.gamma([9], 2.0),
    "RandomPoissonV2": lambda: tf.random.poisson([9], 50.0),
    "RandomShuffle": lambda: tf.random.shuffle(tf.range(30)),
    "Multinomial": lambda: tf.random.categorical(ONES, 30),
    "NonDeterministicInts": lambda: tf.raw_ops.NonDeterministicInts(shape=[9]),
    "SampleDistortedBoundingBoxV2": lambda: tf.image.sample_distorted_bounding_box(
        [99, 99, 3], [[[0.1, 0.2, 0.8, 0.9]]], min_object_covered=0.1
    )[0],
    "UniformCandidateSampler": lambda: tf.random.uniform_candidate_sampler([[1]], 1, 9, True, 999)[0],
    "StatelessRandomUniformV2": lambda: tf.random.stateless_uniform([9], [1, 2]),
    "RandomGammaGrad": lambda: tf.raw_ops.RandomGammaGrad(alpha=[2.0], sample=[1.0]),
    "StatelessWhile": lambda: tf.while_loop(lambda x: x < 5, lambda x: x + 1, [tf.constant(1)])[0],
    "StatelessIf": lambda: tf.cond(tf.reduce_sum(ONES) > 1, lambda: tf.exp(1.0), lambda: tf.exp(2.0)),
    "StatefulPartitionedCall": lambda: tf.raw_ops.StatefulPartitionedCall(
        args=[], Tout=[tf.float32], f=tf.function(lambda: tf.exp(1.0)).get_concrete_function()
    )[0],
}


@pytest.mark.parametrize("kind", DRAWN)
def test_operations_that_draw_return_other_numbers_in_each_run(kind):
    graph = tf.Graph()
    with graph.as_default():
        tf1.enable_control_flow_v2()
        result = DRAWN[kind]()
        kinds = {op.type: op for op in graph.get_operations()}
        with tf1.Session(graph=graph) as session:
            first, second = session.run(result), session.run(result)
    assert is_random(kinds[kind]) == (not np.array_equal(first, second))
    builder = GraphBuilder("Net")
    row = builder.op(kind, (9,), "float32")
    draws = draws_at_random(builder.graph({"framework": "tensorflow"})[0], row)
    assert draws == (is_random(kinds[kind]) or kind.startswith("StatelessRandom"))
