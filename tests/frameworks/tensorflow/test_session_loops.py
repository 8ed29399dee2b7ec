"""Loops, branches and functions of a Session's graph hide what is inside of them, and nothing behind them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import intus
from intus.backends.tensorflow.plan import observable
from intus.monitoring import sender

tf1 = tf.compat.v1
ROWS = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
LABELS = np.arange(12) % 3


def while_loop(h):
    return tf.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, h * 1.1), [0, h], name="around")[1]


def nested_loops(h):
    def body(i, h):
        return i + 1, tf.while_loop(lambda j, _: j < 2, lambda j, h: (j + 1, tf.tanh(h)), [0, h])[1]

    return tf.while_loop(lambda i, _: i < 3, body, [0, h], name="around")[1]


def scan(h):
    steps = tf.transpose(tf.stack([h, h * 2, h * 3], 1), [1, 0, 2])
    return tf.scan(lambda state, row: tf.tanh(state + row), steps, name="around")[-1]


def map_fn(h):
    return tf.map_fn(lambda row: row * 2.0, h, name="around")


def cond(h):
    return tf.cond(tf.reduce_sum(h) > 0, lambda: h * 2.0, lambda: h, name="around")


def function(h):
    return tf.function(lambda h: tf.tanh(h) * 2.0)(h)


def network(hides, *, gradients):
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(1)
        x, y = tf1.placeholder(tf.float32, [None, 6], "x"), tf1.placeholder(tf.int64, [None], "y")
        h = tf.nn.relu(tf.matmul(x, tf1.get_variable("w1", [6, 8])), name="h1")
        h = tf.nn.relu(tf.matmul(hides(h), tf1.get_variable("w2", [8, 8])), name="h2")
        logits = tf.matmul(h, tf1.get_variable("w3", [8, 3]), name="logits")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        step = tf1.train.AdamOptimizer(0.01).minimize(loss) if gradients else None
        return graph, loss, step, tf1.global_variables_initializer()


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request):
    (tf1.disable_control_flow_v2 if request.param == 1 else tf1.enable_control_flow_v2)()
    yield request.param
    tf1.enable_control_flow_v2()


ALL = [while_loop, nested_loops, scan, map_fn, cond, function]


@pytest.mark.parametrize("hides", ALL, ids=lambda hides: hides.__name__)
def test_gradients_take_away_no_operation(hides, version):
    """A graph has the same operations to observe before and after ``minimize``."""
    before, after = (
        [one.address for one in observable(network(hides, gradients=gradients)[0])]
        for gradients in (False, True)
    )
    assert before == after
    assert {"h1", "h2", "logits"} <= set(after)


@pytest.mark.parametrize("hides", ALL, ids=lambda hides: hides.__name__)
def test_training_around_a_loop(hides, version, monkeypatch):
    """Operations outside are recorded with the values of a plain run, and the weights keep their bits."""
    shown, gather = [], sender.Sender.gather

    def noted(self, record, *rest):
        shown.append(record)
        return gather(self, record, *rest)

    def train(probed):
        graph, loss, step, initializer = network(hides, gradients=True)
        names = [one.address for one in observable(graph) if not one.apart]
        with tf1.Session(graph=graph) as session:
            session.run(initializer)
            feeds, expected, losses = {"x:0": ROWS, "y:0": LABELS}, [], []
            watch = intus.probe(session, "127.0.0.1", 9, budget=float("inf")) if probed else None
            for _ in range(3):
                if not probed:
                    expected.append(session.run([f"{name}:0" for name in names], feeds))
                losses.append(session.run([loss, step], feeds)[0])
            faults = watch.status()["faults"] if probed else []
            if probed:
                watch.remove()
            bits = [
                np.asarray(one).tobytes()
                for one in [*losses, *session.run(graph.get_collection("variables"))]
            ]
            return names, expected, bits, faults

    names, expected, plain, _ = train(False)
    monkeypatch.setattr(sender.Sender, "gather", noted)
    monkeypatch.setattr(sender.Sender, "reserve", lambda *_, **__: True)
    _, _, probed, faults = train(True)
    assert probed == plain
    graph, loss, *_ = network(hides, gradients=True)
    needed = {
        node.name for node in tf1.graph_util.extract_sub_graph(graph.as_graph_def(), [loss.op.name]).node
    }
    assert {"h1", "h2", "logits"} <= needed
    for number, name in enumerate(names):
        if name not in needed:  # the last state of a scan, which nothing reads
            continue
        found = [one.array for one in shown if one.address == name and one.kind == "output"]
        assert len(found) == 3, name
        for step, array in enumerate(found):
            np.testing.assert_allclose(array, expected[step][number], rtol=1e-5, atol=1e-6)
    (sentence,) = [one for one in faults if "Operations inside" in one]
    assert ("'around" in sentence) or ("PartitionedCall" in sentence)


def test_which_selects_behind_a_loop(version):
    graph, *_ = network(while_loop, gradients=True)
    with (
        tf1.Session(graph=graph) as session,
        intus.probe(session, "127.0.0.1", 9, which=["h2", "logits"]) as watch,
    ):
        assert list(watch.operations) == ["h2", "logits"]


def test_without_loops_nothing_is_said():
    graph, *_ = network(lambda h: h, gradients=True)
    with tf1.Session(graph=graph) as session, intus.probe(session, "127.0.0.1", 9) as watch:
        assert not any("Operations inside" in one for one in watch.status()["faults"])
