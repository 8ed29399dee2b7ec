"""Frozen graphs of TensorFlow 1 with Switch and Merge, which import_graph_def makes without contexts."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import intus
from backends.contract import Collect
from intus.backends.base import for_model

tf1 = tf.compat.v1
ROWS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def frozen():
    """Return a graph with a conditional inside of a conditional, and a loop, without contexts."""
    graph = tf.Graph()
    tf1.disable_control_flow_v2()
    try:
        with graph.as_default():
            x = tf1.placeholder(tf.float32, [None, 3], "x")
            p, q = (tf1.placeholder(tf.bool, [], name) for name in ("p", "q"))
            h = tf.matmul(x, tf.constant(np.full((3, 3), 0.1, np.float32)), name="h")

            def inner():
                return tf1.cond(q, lambda: tf.tanh(h, name="a"), lambda: tf.exp(h, name="b")) * tf.constant(
                    [1.0, 2.0, 3.0]
                )

            y = tf1.cond(p, inner, lambda: tf.nn.relu(h, name="c"))
            z = tf.add(y, 1.0, name="z")
            _, w = tf1.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [tf.constant(0), z])
            tf.sqrt(tf.abs(w, name="size"), name="end")
    finally:
        tf1.enable_control_flow_v2()
    return graph.as_graph_def()


@pytest.fixture
def session():
    with tf.Graph().as_default() as graph:
        tf1.import_graph_def(frozen(), name="")
        assert graph.get_operation_by_name("cond/cond/a")._get_control_flow_context() is None
        with tf1.Session(graph=graph) as running:
            yield running


CASES = [(True, True), (True, False), (False, True)]


@pytest.mark.parametrize(("p", "q"), CASES)
def test_probe_of_imported_branches(session, p, q):
    feeds = {"x:0": ROWS, "p:0": p, "q:0": q}
    plain = session.run("end:0", feeds)
    backend, tap = for_model(session), Collect()
    operations = backend.operations(session)
    handle = backend.attach(session, operations, ("output",), tap)
    assert np.array_equal(session.run("end:0", feeds), plain)
    handle.remove()
    assert tap.errors == []
    seen = {address: value for (kind, address), value in tap.seen[-1].items() if kind == "output"}
    assert {"h", "z", "size", "end"} <= seen.keys()
    assert not {"cond/cond/a", "cond/cond/b", "cond/c"} & seen.keys()
    for name in ("h", "z", "end"):
        assert np.array_equal(seen[name], session.run(f"{name}:0", feeds))


@pytest.mark.parametrize(("p", "q"), CASES)
def test_trace_of_imported_branches(session, p, q):
    feeds = {"x:0": ROWS, "p:0": p, "q:0": q}
    trace = intus.trace(session, "end:0", feeds)
    for name in ("h", "z", "size", "end"):
        assert np.array_equal(trace[name].value, session.run(f"{name}:0", feeds))
    assert not trace["cond/cond/a"].saved
    assert not trace["cond/c"].saved
