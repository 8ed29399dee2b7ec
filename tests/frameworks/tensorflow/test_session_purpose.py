"""A Session watches the operations of the model, whatever else a script has put in the graph.

The judge is the graph of the same model alone: what is added to it restores, counts, averages or writes.
"""

from __future__ import annotations

import random
from itertools import chain

import numpy as np
import pytest
import tensorflow as tf

import intus
from backends.contract import Collect
from intus.backends.base import for_model
from intus.backends.tensorflow.session import session_evaluation

tf1 = tf.compat.v1
ROWS = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
FEEDS = {"x:0": ROWS, "y:0": np.arange(16) % 3}


def saver(net):
    tf1.train.Saver()
    tf1.train.Saver(sharded=True, name="sharded")


def scaffold(net):
    tf1.train.get_or_create_global_step()
    tf1.train.Scaffold().finalize()


def averages(net):
    average = tf1.train.ExponentialMovingAverage(0.9, zero_debias=True)
    average.apply([*tf1.trainable_variables(), tf.reduce_mean(net["h"] * 2.0, 0), net["loss"]])


def metrics(net):
    chance = tf.nn.softmax(net["logits"])[:, 0]
    first = tf.equal(net["y"], 0)
    tf1.metrics.mean(net["h"])
    tf1.metrics.mean_tensor(tf.reduce_mean(net["h"], 0))
    tf1.metrics.accuracy(net["y"], tf.argmax(net["logits"], 1))
    tf1.metrics.auc(first, chance)
    tf1.metrics.precision_at_thresholds(first, chance, [0.2, 0.5])
    tf1.metrics.mean_per_class_accuracy(net["y"], tf.argmax(net["logits"], 1), 3)


def summaries(net):
    tf1.summary.histogram("squares", net["h"] ** 2)
    tf1.summary.scalar("size", tf.reduce_mean(tf.abs(net["h"])))
    tf1.summary.image("picture", tf.reshape(net["h"], [-1, 4, 2, 1]))
    tf1.summary.merge_all()
    with tf.summary.create_file_writer("unused").as_default():
        tf.summary.write("halves", net["h"] / 2.0, step=0)


def checks(net):
    tf.debugging.assert_less(tf.abs(net["h"]), 1e9)
    tf1.Assert(tf.reduce_all(net["h"] * 3.0 < 1e9), [net["h"]])
    tf1.add_check_numerics_ops()
    tf.print(net["h"] + 1.0)


def statistics(net):
    mean = tf1.get_variable("mean", [8], trainable=False)
    tf1.assign(mean, mean * 0.9 + tf.reduce_mean(net["h"], 0) * 0.1)
    tf1.assign_sub(mean, (mean - tf.reduce_mean(net["h"], 0)) * 0.1)


def set_by_feeds(net):
    given = tf1.placeholder(tf.float32, [6, 8], "given")
    tf1.assign(net["w"], given * 2.0)


def initialized_by_feeds(net):
    given = tf1.placeholder(tf.float32, [5, 8], "start")
    tf1.Variable(given / 2.0, name="table", trainable=False)


def data_set(net):
    given = tf1.placeholder(tf.float32, [None, 6], "all_rows")
    tf1.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(given * 2.0).batch(4)).get_next()


def queue(net):
    given = tf1.placeholder(tf.float32, [6], "one_row")
    tf1.train.batch([given / 3.0], 4)
    tf1.train.string_input_producer(["unused"])


def second_training(net):
    rate = tf1.placeholder(tf.float32, None, "rate")
    step = tf1.train.get_or_create_global_step()
    decayed = tf1.train.exponential_decay(rate * 0.5, step, 10, 0.9)
    tf1.train.MomentumOptimizer(decayed, 0.9, name="other").minimize(net["loss"], step, name="other")


ADDITIONS = {
    one.__name__: one
    for one in (
        saver,
        scaffold,
        averages,
        metrics,
        summaries,
        checks,
        statistics,
        set_by_feeds,
        initialized_by_feeds,
        data_set,
        queue,
        second_training,
    )
}
CASES = [*((name,) for name in ADDITIONS), tuple(ADDITIONS)]
CASES += [tuple(random.Random(seed).sample(sorted(ADDITIONS), 4)) for seed in range(4)]


def network(additions, *, resource):
    """Return the graph of a model and its training with additions, and the names of what the loss needs."""
    graph = tf.Graph()
    with graph.as_default(), tf1.variable_scope("", use_resource=resource):
        tf1.set_random_seed(1)
        x = tf1.placeholder(tf.float32, [None, 6], "x")
        y = tf1.placeholder(tf.int64, [None], "y")
        w = tf1.get_variable("w", [6, 8])
        h = tf.nn.relu(tf.matmul(x, w, name="product"), name="h")
        scaled = tf.multiply(h, tf1.placeholder_with_default(1.0, [], "keep"), name="scaled")
        logits = tf.matmul(scaled, tf1.get_variable("o", [8, 3]), name="logits")
        tf.nn.softmax(logits, name="chances")
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        loss = tf.sqrt(tf.reduce_mean(losses), name="loss")
        tf1.train.AdamOptimizer(0.01).minimize(loss, name="train")
        net = {"x": x, "y": y, "w": w, "h": h, "logits": logits, "loss": loss}
        for name in sorted(additions, key=lambda name: name == "scaffold"):  # which finalizes the graph
            with tf1.variable_scope(f"of_{name}"):
                ADDITIONS[name](net)
    return graph


def initialized(session):
    """Initialize one variable after another, for an average reads that of the model."""
    for one in chain(*map(session.graph.get_collection, ("variables", "local_variables"))):
        if "table" not in one.name:  # it needs a feed
            session.run(one.initializer)


def watched(graph):
    with tf1.Session(graph=graph) as session:
        return [one.address for one in for_model(session).operations(session)]


ALONE = ["product", "h", "scaled", "logits", "chances"]


@pytest.mark.parametrize("resource", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("additions", CASES, ids="-".join)
def test_what_is_added_to_a_model_is_not_watched(additions, resource):
    alone = watched(network((), resource=resource))
    assert set(ALONE) <= set(alone)
    graph = network(additions, resource=resource)
    assert watched(graph) == alone
    with tf1.Session(graph=graph) as session:
        initialized(session)
        expected = session.run("chances:0", FEEDS)
        backend, tap = for_model(session), Collect()
        handle = backend.attach(session, backend.operations(session), ("output",), tap)
        with session_evaluation(session) as run:
            run({"x:0": ROWS})
        handle.remove()
    assert tap.errors == []
    assert {address for _, address in tap.seen[0]} == set(ALONE)
    assert np.array_equal(tap.seen[0]["output", "chances"], expected)


@pytest.mark.parametrize("resource", [True, False])
def test_imported_training_is_watched(resource):
    """A graph of ``import_meta_graph`` does not tell what its gradients are of; they may be watched."""
    graph = network(("saver", "metrics", "statistics"), resource=resource)
    with graph.as_default():
        exported = tf1.train.export_meta_graph(graph=graph)
    imported = tf.Graph()
    with imported.as_default():
        tf1.train.import_meta_graph(exported)
    found = set(watched(imported))
    assert set(watched(network((), resource=resource))) <= found
    assert not any(name.startswith(("save", "of_")) for name in found)


def test_saving_and_restoring_while_probed(tmp_path):
    graph = network((), resource=True)
    with graph.as_default(), tf1.Session(graph=graph) as session:
        keeper = tf1.train.Saver()
        initialized(session)
        with intus.probe(session, "127.0.0.1", 9, budget=float("inf")) as watch:
            for watch.epoch in (1, 2):
                session.run(["train", "chances:0"], FEEDS)
                keeper.save(session, str(tmp_path / "kept"))
                keeper.restore(session, str(tmp_path / "kept"))
            status = watch.status()
    assert not any(name.startswith("save") for name in watch.operations)
    assert watch.step == 2
    assert status["never_called"] == []
    assert status["troubles"] == 0


def test_state_that_the_model_goes_on_with_is_watched():
    """The value that a write of no metric returns may be computed with."""
    graph = tf.Graph()
    with graph.as_default(), tf1.variable_scope("", use_resource=False):
        x = tf1.placeholder(tf.float32, [None, 6], "x")
        state = tf1.get_variable("state", [4, 6], trainable=False)
        after = tf1.assign(state, tf.tanh(x + state, name="next"))
        tf.nn.relu(after * 2.0, name="end")
    assert {"next", "end"} <= set(watched(graph))


def test_metrics_alone_are_not_a_training():
    graph = network(("metrics",), resource=True)
    with tf1.Session(graph=graph) as session:
        initialized(session)
        backend, tap = for_model(session), Collect()
        handle = backend.attach(session, backend.operations(session), ("output",), tap)
        update = next(op for op in graph.get_operations() if op.name.endswith("mean/AssignAddVariableOp"))
        session.run([update, "logits:0"], FEEDS)
        evaluated = backend.mode(session)
        session.run("train", FEEDS)
        trained = backend.mode(session)
        handle.remove()
    assert (evaluated, trained) == ("eval", "train")
