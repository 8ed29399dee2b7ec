"""Behavior particular to Sessions, judged by ``Session.run`` and ``tf.gradients``."""

from __future__ import annotations

import json
import threading
import urllib.parse
import urllib.request
from collections import namedtuple
from contextlib import suppress

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits
from thread_help import run_in_threads

import intus
from backends.contract import Collect
from intus.backends.base import for_model
from intus.core.errors import AddressError, CaptureError, InputError
from intus.monitoring import sender
from intus.serving.run import Server

tf1 = tf.compat.v1
ROWS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def attached(session, kinds=("output",)):
    backend, tap = for_model(session), Collect()
    return backend.attach(session, backend.operations(session), kinds, tap), tap


def outputs(tap, number=-1):
    return {address: value for (kind, address), value in tap.seen[number].items() if kind == "output"}


@pytest.fixture
def session():
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        a = tf.nn.relu(x, name="a")
        b = tf.exp(a, name="b")
        tf.multiply(a, b, name="c")
        tf1.Variable(tf.ones([3], name="ones"), name="unused")
        with tf1.Session(graph=graph) as running:
            yield running


@pytest.mark.parametrize("taken", [True, False])
def test_v1_cond(taken):
    """Operations in a branch are left out, whichever is taken: the dead one would end the run."""
    graph = tf.Graph()
    with graph.as_default():
        tf1.disable_control_flow_v2()
        try:
            x, p = tf1.placeholder(tf.float32, [None, 3], "x"), tf1.placeholder(tf.bool, [], "p")
            branch = tf1.cond(p, lambda: tf.nn.relu(x, name="yes"), lambda: tf.tanh(x, name="no"))
            y = tf.multiply(branch, 2.0, name="y")
        finally:
            tf1.enable_control_flow_v2()
        assert "Switch" in {op.type for op in graph.get_operations()}
        with tf1.Session(graph=graph) as session:
            plain = session.run(y, {x: ROWS, p: taken})
            handle, tap = attached(session)
            assert np.array_equal(session.run(y, {x: ROWS, p: taken}), plain)
            handle.remove()
    assert tap.errors == []
    assert list(outputs(tap)) == ["cond/Merge", "y"]
    assert np.array_equal(outputs(tap)["y"], plain)


@pytest.mark.parametrize("version", [1, 2])
def test_training_through_a_branch(version):
    """A conditional of either version, whose own operation may not be fetchable, is trained and traced."""
    outside = {} if version == 2 else {"cond/Merge": 1}

    def training(watched):
        graph = tf.Graph()
        with graph.as_default():
            if version == 1:
                tf1.disable_control_flow_v2()
                tf1.disable_v2_tensorshape()
            try:
                x = tf1.placeholder(tf.float32, [None, 3], "x")
                w = tf1.get_variable("w", initializer=ROWS[:3, :3].copy())
                h = tf.matmul(x, w, name="h")
                branch = tf1.cond(tf.reduce_mean(h) < 100.0, lambda: h * 2.0, lambda: h, name="cond")
                loss = tf.reduce_mean(tf.square(branch, name="end"), name="loss")
                train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
                with tf1.Session(graph=graph) as session:
                    session.run(tf1.global_variables_initializer())
                    handle, tap = attached(session, ("output", "grad_output")) if watched else (None, None)
                    losses = [session.run([train, loss], {x: ROWS})[1] for _ in range(3)]
                    if watched:
                        handle.remove()
                        assert tap.errors == []
                        assert {"h", "end", *outside} <= set(outputs(tap))
                        traced = for_model(session).trace(session, (loss, {x: ROWS}), {})
                        for name in ("h", "end"):
                            (row,) = traced.graph.rows(name)
                            assert np.array_equal(traced.values[row], session.run(f"{name}:0", {x: ROWS}))
                    return np.array(losses).tobytes() + session.run(w).tobytes()
            finally:
                tf1.enable_control_flow_v2()
                tf1.enable_v2_tensorshape()

    assert training(True) == training(False)


def test_fetches_of_ours_that_fail_are_not_the_users(session, monkeypatch):
    """If TensorFlow refuses what is observed, the user's run goes on as it is, and the tap learns of it."""
    handle, tap = attached(session)
    monkeypatch.setattr("intus.backends.tensorflow.plan.can_fetch", lambda tensor: True)
    session.graph.prevent_fetching(session.graph.get_operation_by_name("b"))
    assert np.array_equal(session.run("a:0", {"x:0": ROWS}), np.maximum(ROWS, 0))
    plain = type(session).run(session, "c:0", {"x:0": ROWS})
    assert np.array_equal(session.run("c:0", {"x:0": ROWS}), plain)
    handle.remove()
    assert [type(one).__name__ for one in tap.errors] == ["InaccessibleTensorError"]


def test_v1_while_loop():
    graph = tf.Graph()
    with graph.as_default():
        tf1.disable_control_flow_v2()
        try:
            x = tf1.placeholder(tf.float32, [None, 3], "x")
            _, y = tf1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(y)), [0, tf.nn.relu(x)])
            y = tf.negative(y, name="end")
        finally:
            tf1.enable_control_flow_v2()
        with tf1.Session(graph=graph) as session:
            plain = session.run(y, {x: ROWS})
            handle, tap = attached(session)
            assert np.array_equal(session.run(y, {x: ROWS}), plain)
            handle.remove()
    assert tap.errors == []
    assert set(outputs(tap)) == {"Relu", "while/Exit_1", "end"}
    assert np.array_equal(outputs(tap)["while/Exit_1"], -plain)


def test_only_what_the_run_computes_anyway(session):
    handle, tap = attached(session)
    session.run("a:0", {"x:0": ROWS})
    assert set(outputs(tap)) == {"a"}
    session.run("c:0", {"x:0": ROWS})
    assert set(outputs(tap)) == {"a", "b", "c"}
    session.run("unused/Assign")
    assert tap.passes == 2
    handle.remove()


def test_feed_of_intermediate_tensor(session):
    """A fed tensor and what only it needs are not computed, so they are not recorded."""
    handle, tap = attached(session)
    value = session.run("c:0", {"b:0": ROWS, "x:0": ROWS})
    assert np.array_equal(value, np.maximum(ROWS, 0) * ROWS)
    assert set(outputs(tap)) == {"a", "c"}
    assert np.array_equal(session.run("c:0", {"a:0": ROWS, "b:0": ROWS}), ROWS * ROWS)
    assert set(outputs(tap)) == {"c"}
    assert tap.errors == []
    handle.remove()


def test_nested_fetches(session):
    Pair = namedtuple("Pair", "one other")
    graph = session.graph
    a, b, c = (graph.get_tensor_by_name(f"{name}:0") for name in "abc")
    fetches = {"pair": Pair(a, [b, (c, "a:0")]), "op": c.op, "none": []}
    plain = session.run(fetches, {"x:0": ROWS})
    handle, tap = attached(session)
    found = session.run(fetches, feed_dict={"x:0": ROWS})
    handle.remove()
    assert tap.errors == []
    assert type(found["pair"]) is Pair
    assert found["op"] is None
    tf.nest.map_structure(np.testing.assert_array_equal, found, plain)
    assert set(outputs(tap)) == {"a", "b", "c"}


def test_fetches_that_change_between_runs(session):
    """A list of fetches may hold others in the next run, and a name may be another string each time."""
    handle, tap = attached(session)
    fetches = ["a:0"]
    session.run(fetches, {"x:0": ROWS})
    assert set(outputs(tap)) == {"a"}
    fetches[0] = "c:0"
    session.run(fetches, {"x:0": ROWS})
    assert set(outputs(tap)) == {"a", "b", "c"}
    inner = [session.graph.get_tensor_by_name("a:0")]
    session.run([inner], {"x:0": ROWS})
    inner[0] = session.graph.get_tensor_by_name("b:0")
    session.run([inner], {"x:0": ROWS})
    assert set(outputs(tap)) == {"a", "b"}
    for number in range(600):
        session.run(["".join(["c", ":0"])], {"".join(["x", ":0"]): ROWS})
        assert number % 100 or set(outputs(tap)) == {"a", "b", "c"}
    assert len(vars(session)["_intus_attachments"].known) <= 256
    handle.remove()


def test_run_that_was_kept_beyond_the_removal(session):
    handle, tap = attached(session)
    run = session.run
    handle.remove()
    assert np.array_equal(run("a:0", {"x:0": ROWS}), np.maximum(ROWS, 0))
    assert tap.passes == 0


def test_errors_of_run_are_the_users_own(session):
    handle, tap = attached(session)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value for placeholder"):
        session.run("c:0")
    with pytest.raises((ValueError, TypeError), match="nothing"):
        session.run("nothing:0", {"x:0": ROWS})
    assert (tap.passes, tap.ended) == (1, 1)
    assert np.array_equal(session.run("a:0", {"x:0": ROWS}), np.maximum(ROWS, 0))
    assert set(outputs(tap)) == {"a"}
    handle.remove()


def test_runs_outside_of_run_are_reported(session):
    handle, tap = attached(session)
    assert session.make_callable("ones:0")().tolist() == [1, 1, 1]
    call = session.make_callable("c:0", feed_list=["x:0"])
    np.testing.assert_allclose(call(ROWS), np.maximum(ROWS, 0) * np.exp(np.maximum(ROWS, 0)), rtol=1e-6)
    setup = session.partial_run_setup(["a:0"], ["x:0"])
    assert np.array_equal(session.partial_run(setup, "a:0", {"x:0": ROWS}), np.maximum(ROWS, 0))
    handle.remove()
    reported = [str(one) for one in tap.errors]
    assert [one.split()[1] for one in reported] == ["make_callable", "partial_run_setup"]
    assert "without a feed_list" in reported[0]
    assert "Pass a feed_list" in reported[0]
    assert "make_callable without a feed_list" in for_model(session).blind_spot
    assert tap.passes == 1
    assert set(outputs(tap)) == {"a", "b", "c"}
    assert {"run", "make_callable", "partial_run_setup"}.isdisjoint(vars(session))


def test_finalized_graph(session):
    session.graph.finalize()
    handle, tap = attached(session, ("output", "grad_output"))
    session.run("c:0", {"x:0": ROWS})
    handle.remove()
    assert tap.errors == []
    assert for_model(session).trace(session, ("c:0", {"x:0": ROWS}), {}).graph.rows("c")


def test_closed_session(session):
    session.close()
    with pytest.raises(InputError, match="The Session is closed"):
        intus.probe(session, "127.0.0.1", 1)


def test_gradients_of_several_consumers():
    """Gradients of a tensor that several operations read are their sum, as tf.gradients gives it."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        with tf1.variable_scope("layer"):
            weight = tf1.get_variable("w", initializer=ROWS[:3, :3].copy())
            h = tf.tanh(tf.matmul(x, weight, name="product"), name="h")
        y = tf.add(h * h, tf.exp(h, name="e"), name="y")
        loss = tf.reduce_mean(y)
        with tf1.name_scope("training"):
            train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        initialize = tf1.global_variables_initializer()
        size = len(graph.get_operations())
        with tf1.Session(graph=graph) as session:
            session.run(initialize)
            handle, tap = attached(session, ("output", "grad_output"))
            session.run(train, {x: ROWS})
            handle.remove()
            assert len(graph.get_operations()) == size
            session.run(initialize)
            found = {at: value for (kind, at), value in tap.seen[0].items() if kind == "grad_output"}
            assert {"layer/h", "layer/product", "e"} <= set(found)
            for name, value in found.items():
                (own,) = tf1.gradients(loss, [graph.get_tensor_by_name(f"{name}:0")])
                np.testing.assert_allclose(value, session.run(own, {x: ROWS}), rtol=1e-6, atol=1e-7)


class Meeting(Collect):
    """A tap in which the beginnings of two runs meet, if both threads get there."""

    def __init__(self):
        super().__init__()
        self.refused, self._barrier = [], threading.Barrier(2)

    def on_forward_start(self, inputs):
        begun = super().on_forward_start(inputs)
        with suppress(threading.BrokenBarrierError):
            self._barrier.wait(0.2)
        return begun

    def refuse_call(self, error):
        self.refused.append(error)


def test_runs_of_several_threads_are_several_passes(session):
    """Every pass has the tensors of one run, under their own addresses."""
    backend, tap = for_model(session), Meeting()
    handle = backend.attach(session, backend.operations(session), ("output",), tap)
    results = {}

    def work(number):
        rows = np.full((2 + number, 3), number, np.float32)
        results[number] = [session.run("c:0", {"x:0": rows}) for _ in range(50)]

    run_in_threads(work, 4)
    handle.remove()
    assert tap.errors == []
    assert len(tap.seen) + len(tap.refused) == 200
    for seen in tap.seen:
        (rows,) = {len(array) for array in seen.values()}
        assert set(seen) == {("output", address) for address in ("a", "b", "c")}
        assert np.unique(seen["output", "a"]).tolist() == [rows - 2]
        assert np.array_equal(seen["output", "c"], results[rows - 2][0])
    assert all("while another thread's run" in str(one) for one in tap.refused)


def test_run_during_a_recorded_run_of_another_thread():
    """It is not recorded but counted, and the reason is said; the other is complete."""
    graph, inside, go_on, results = tf.Graph(), threading.Event(), threading.Event(), {}
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")

        def wait(rows):
            if rows[0, 0] == 0:
                inside.set()
                assert go_on.wait(30)
            return rows

        held = tf.ensure_shape(tf.numpy_function(wait, [tf.nn.relu(x, name="a")], tf.float32), [None, 3])
        tf.multiply(held, 2.0, name="b")

    def work(number):
        results[number] = session.run("b:0", {"x:0": np.full((2, 3), number, np.float32)})

    with (
        tf1.Session(graph=graph) as session,
        intus.probe(session, "127.0.0.1", 19, budget=float("inf")) as watch,
    ):
        first = threading.Thread(target=work, args=(0,))
        first.start()
        assert inside.wait(30)
        work(1)
        go_on.set()
        first.join(30)
        work(2)
        status = watch.status()
        assert watch.step == 3
        assert watch._tap.recorded == 2 * len(watch.operations)
    assert [results[number][0, 0] for number in range(3)] == [0, 2, 4]
    assert status["troubles"] == 1
    assert any("while another thread's run" in one for one in status["faults"])


def test_ids_set_by_two_threads(session, monkeypatch):
    """If nobody can know whose ids are those of a run, its rows have none."""
    seen = []
    monkeypatch.setattr(sender.Sender, "gather", lambda self, record, *_: seen.append(record.items))
    with intus.probe(session, "127.0.0.1", 21, budget=float("inf")) as watch:
        watch.items = np.arange(4)
        run_in_threads(lambda _: setattr(watch, "items", np.arange(10, 14)), 1)
        session.run("a:0", {"x:0": ROWS})
        session.run("a:0", {"x:0": ROWS})
        watch.items = np.arange(4)
        session.run("a:0", {"x:0": ROWS})
        faults = watch.status()["faults"]
    assert [bool((items < 0).all()) for items in seen] == [True, True, False]
    assert any("Two threads set Probe.items" in one for one in faults)


def gradients_of(tap, number=-1):
    return {at: value for (kind, at), value in tap.seen[number].items() if kind == "grad_output"}


@pytest.mark.parametrize("is_trained_first", [True, False])
@pytest.mark.parametrize("is_same_loss", [True, False])
def test_several_gradients_of_an_operation(is_trained_first, is_same_loss):
    """Each computation of gradients has an address of its own, decided by the graph and not by the run."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        h = tf.nn.relu(tf.matmul(x, tf1.get_variable("w", initializer=ROWS[:3, :3].copy())), name="relu")
        y = tf.matmul(h, tf1.get_variable("v", initializer=ROWS[1:4, :3].copy()), name="logits")
        loss = tf.reduce_mean(y**2)
        other = loss if is_same_loss else tf.reduce_sum(y[:, 0])

        def training():
            return tf1.train.GradientDescentOptimizer(0.0).minimize(loss, name="train")

        first = training() if is_trained_first else None
        (saliency,) = tf1.gradients(other, [x])
        train = first or training()
        own = {name: tf1.gradients(name_of, [h, y]) for name, name_of in (("train", loss), ("other", other))}
        with tf1.Session(graph=graph) as session:
            session.run(tf1.global_variables_initializer())
            expected = session.run(own, {x: ROWS})
            handle, tap = attached(session, ("output", "grad_output"))
            notes = []
            tap.note = notes.append
            for fetches in (train, saliency, [train, saliency]):
                session.run(fetches, {x: ROWS})
            handle.remove()
    assert tap.errors == []
    of_train, of_other = ("", ":2") if is_trained_first else (":2", "")
    found = [
        {at: value for at, value in gradients_of(tap, number).items() if at.startswith(("relu", "logits"))}
        for number in range(3)
    ]
    assert set(found[0]) == {f"relu{of_train}", f"logits{of_train}"}
    assert set(found[1]) == {f"relu{of_other}", f"logits{of_other}"}
    assert set(found[2]) == {*found[0], *found[1]}
    for seen in found:
        for at, name in ((of_train, "train"), (of_other, "other")):
            for operation, value in zip(("relu", "logits"), expected[name], strict=True):
                if f"{operation}{at}" in seen:
                    np.testing.assert_allclose(seen[f"{operation}{at}"], value, rtol=1e-5, atol=1e-6)
    (sentence,) = notes
    assert "that of 'gradients' as 'MatMul', that of 'gradients_1' as 'MatMul:2'" in sentence


def test_gradient_penalty():
    """A gradient that is computed through another one has an address of its own."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        h = tf.tanh(tf.matmul(x, tf1.get_variable("w", initializer=ROWS[:3, :3].copy())), name="h")
        score = tf.reduce_sum(h**2)
        (inner,) = tf1.gradients(score, [x])
        loss = score + tf.reduce_sum(inner**2)
        train = tf1.train.GradientDescentOptimizer(0.0).minimize(loss)
        expected = [tf1.gradients(one, [h])[0] for one in (score, loss)]
        with tf1.Session(graph=graph) as session:
            session.run(tf1.global_variables_initializer())
            values = session.run(expected, {x: ROWS})
            handle, tap = attached(session, ("output", "grad_output"))
            session.run(train, {x: ROWS})
            handle.remove()
    assert tap.errors == []
    for address, value in zip(("h", "h:2"), values, strict=True):
        np.testing.assert_allclose(gradients_of(tap)[address], value, rtol=1e-5, atol=1e-6)


def test_gradients_that_cannot_be_told_apart():
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 4], "x")
        a, b = tf.split(tf.tanh(x, name="h"), 2, axis=1, name="halves")
        (gradient,) = tf1.gradients(tf.reduce_sum(a * a + b * 3.0), [x])
        with tf1.Session(graph=graph) as session:
            handle, tap = attached(session, ("output", "grad_output"))
            notes = []
            tap.note = notes.append
            session.run(gradient, {x: np.ones((2, 4), np.float32)})
            handle.remove()
    assert "halves" not in gradients_of(tap)
    assert "h" in gradients_of(tap)
    (sentence,) = notes
    assert "'halves'" in sentence


def test_random_operations_are_not_evaluated():
    """A probe set must not draw from a Session's generators; what needs it is refused."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        first = tf.nn.relu(x, name="first")
        tf.negative(tf1.nn.dropout(first, rate=0.5, seed=1), name="after")
        with tf1.Session(graph=graph) as session:
            backend = for_model(session)
            handle, tap = attached(session)
            with backend.evaluation(session) as run:
                run({"x:0": ROWS})
                with pytest.raises(InputError, match="mapping of placeholders"):
                    run(ROWS)
            assert backend.inputs(session, ROWS) == {"x:0": ROWS}
            handle.remove()
            assert "first" in outputs(tap)
            assert not any(name.startswith(("after", "dropout/SelectV2")) for name in outputs(tap))
            draws = [session.run("after:0", {"x:0": ROWS}) for _ in range(2)]
    assert not np.array_equal(*draws)


@pytest.mark.parametrize("is_resource", [True, False])
def test_evaluation_restores_variables_that_a_forward_writes(is_resource):
    """Slim's batch normalization updates its averages so, without a collection of updates."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        made = {"use_resource": is_resource}
        mean = tf1.get_variable("mean", initializer=tf.zeros(3), trainable=False, **made)
        calls = tf1.get_local_variable("calls", initializer=0.0, **made)
        with tf.control_dependencies([tf1.assign(mean, 0.9 * mean + 0.1 * tf.reduce_mean(x, 0))]):
            tf.multiply(x - mean, tf1.assign_add(calls, 1.0), name="after")
        size = len(graph.get_operations())
        with tf1.Session(graph=graph) as session:
            session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
            graph.finalize()
            with for_model(session).evaluation(session) as run:
                run({"x:0": ROWS})
            assert [each.tolist() for each in session.run([mean, calls])] == [[0.0] * 3, 0.0]
            session.run("after:0", {"x:0": ROWS})
            assert session.run(mean).any()
            assert session.run(calls) == 1
    assert len(graph.get_operations()) == size + 2


def test_blind_spot_says_what_a_probe_set_leaves_out(session):
    assert "draws random numbers" in for_model(session).blind_spot
    assert "placeholder that it does not feed" in for_model(session).blind_spot


def test_trace_with_values(session):
    """Every value equals that of run; name scopes are modules."""
    traced = for_model(session).trace(session, (["c:0"],), {"feed_dict": {"x:0": ROWS}})
    graph = traced.graph
    for name in "abc":
        (row,) = graph.rows(name)
        assert np.array_equal(traced.values[row], session.run(f"{name}:0", {"x:0": ROWS}))
    assert [graph.type_of(row) for row in range(len(graph.ops))] == ["input", "Relu", "Exp", "Mul", "output"]
    with pytest.raises(CaptureError, match="could not run the fetches"):
        for_model(session).trace(session, (["c:0"],), {})


@pytest.mark.parametrize("resource", [True, False])
def test_trace_does_not_train(resource):
    """Fetches that write a variable are refused, whatever the optimizer; no variable changes."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        w = tf1.get_variable("w", initializer=ROWS[:3, :3].copy(), use_resource=resource)
        loss = tf.reduce_mean(tf.square(x @ w, name="square"))
        makers = (tf1.train.AdamOptimizer, tf1.train.GradientDescentOptimizer, tf1.train.RMSPropOptimizer)
        writes = [maker(0.1).minimize(loss, name=maker.__name__) for maker in makers]
        writes += [tf1.scatter_update(w, [0], ROWS[:1]), tf1.assign_add(w, ROWS[:3, :3])]
        with tf1.Session(graph=graph) as session:
            session.run(tf1.global_variables_initializer())
            before = session.run(tf1.global_variables())
            for write in writes:
                with pytest.raises(InputError, match="writes a variable"):
                    intus.trace(session, [write, loss], {x: ROWS})
            assert intus.trace(session, loss, {x: ROWS}).not_restored == []
            for old, new in zip(before, session.run(tf1.global_variables()), strict=True):
                assert np.array_equal(old, new)


def test_trace_tells_of_random_numbers():
    """The generators of a Session advance: the trace says so."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        y = tf1.nn.dropout(x, rate=0.5, seed=1, name="drop")

        def draws(traced):
            with tf1.Session(graph=graph) as session:
                trace = intus.trace(session, y, {x: ROWS}) if traced else None
                return session.run(y, {x: ROWS}), trace

        plain, traced = draws(False)[0], draws(True)
    assert not np.array_equal(plain, traced[0])
    (sentence,) = traced[1].not_restored
    assert "RandomUniform" in sentence


def test_digits_with_server(tmp_path):
    """A training has the same bits with the probe, and its layers learn the digits."""
    digits = load_digits()
    images, labels = (digits.data[:640] / 16).astype(np.float32), digits.target[:640]

    def training(watched, port=0):
        graph = tf.Graph()
        with graph.as_default():
            x, y = tf1.placeholder(tf.float32, [None, 64]), tf1.placeholder(tf.int64, [None])
            init = tf1.glorot_uniform_initializer(seed=1)
            first = tf1.get_variable("first", (64, 32), initializer=init)
            second = tf1.get_variable("second", (32, 10), initializer=init)
            hidden = tf.nn.relu(tf.matmul(x, first), name="hidden")
            logits = tf.matmul(hidden, second, name="logits")
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
            train = tf1.train.AdamOptimizer(0.01).minimize(loss)
            with tf1.Session(graph=graph) as session:
                session.run(tf1.global_variables_initializer())
                watch = intus.probe(session, "127.0.0.1", port, run="tf1", block=True) if watched else None
                losses = []
                for epoch in range(3):
                    if watch:
                        watch.epoch = epoch
                    for start in range(0, 640, 64):
                        rows = slice(start, start + 64)
                        losses.append(session.run([train, loss], {x: images[rows], y: labels[rows]})[1])
                if watch:
                    assert watch.status()["troubles"] == 0
                    assert set(watch.operations) >= {"hidden", "logits"}
                    watch.remove()
                return [np.asarray(one).tobytes() for one in (losses, *session.run([first, second]))]

    with Server(no_token=True, database=tmp_path / "digits.db", port=0) as server:
        intus.register_targets("127.0.0.1", server.port, name="digit", targets=labels)
        watched = training(True, server.port)
        assert intus.flush("127.0.0.1", server.port)
        query = urllib.parse.urlencode(
            {"run": "tf1", "model": "Session", "score": "linear_f1", "target": "digit"}
        )
        with urllib.request.urlopen(f"{server.page_url}api/points?{query}", timeout=20) as answer:
            points = json.load(answer)
    assert watched == training(False)
    last = {
        a: v for a, v, e in zip(points["address"], points["value"], points["epoch"], strict=True) if e == 2
    }
    assert min(last["hidden"], last["logits"]) > 0.8


def test_trace_has_the_shapes_of_its_values(session):
    trace = intus.trace(session, "c:0", {"x:0": ROWS})
    computed = [op for op in trace if op.value is not None]
    assert len(computed) >= 3
    for op in computed:
        assert (op.shape, op.nbytes) == (op.value.shape, op.value.nbytes), op.label


@pytest.mark.parametrize("fed", [(), ("x",), ("x", "y")])
def test_trace_names_the_placeholders_without_a_value(fed):
    graph = tf.Graph()
    with graph.as_default():
        made = {name: tf1.placeholder(tf.float32, [None], name) for name in "xy"}
        optional = tf1.placeholder_with_default(2.0, [], "optional")
        total = tf.add_n([tf.reduce_sum(one) for one in made.values()]) * optional
        with tf1.Session() as session:
            feeds = {made[name]: ROWS[0] for name in fed}
            if len(fed) == 2:
                assert intus.trace(session, total, feeds).graph.ops
                assert intus.trace(session, total, {total.op.inputs[0]: 1.0}).graph.ops
                return
            with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value for placeholder"):
                session.run(total, feeds)
            with pytest.raises(CaptureError) as caught:
                intus.trace(session, total, feeds)
    text = str(caught.value)
    assert [name for name in "xy" if repr(f"{name}:0") in text] == [one for one in "xy" if one not in fed]


def test_trace_says_why_a_run_failed():
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        seven = tf.reshape(x, [-1, 7])
        with (
            tf1.Session() as session,
            pytest.raises(CaptureError, match="12 values, but the requested shape"),
        ):
            intus.trace(session, seven, {x: ROWS})


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "missing a required argument: 'fetches'"),
        (("c:0",), {"feeds": {}}, "got an unexpected keyword argument 'feeds'"),
        (("c:0", {}, None, None, 1), {}, "too many positional arguments"),
    ],
)
def test_trace_takes_what_run_takes(session, args, kwargs, said):
    with pytest.raises(InputError, match=f"trace\\(session, fetches, feed_dict\\): {said}"):
        intus.trace(session, *args, **kwargs)


@pytest.mark.parametrize("kind", ["MonitoredSession", "SingularMonitoredSession"])
def test_what_runs_a_session_is_refused(kind):
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        y = tf.nn.relu(x, name="y")
        with getattr(tf1.train, kind)() as monitored:
            for take in (lambda: intus.probe(monitored, "127.0.0.1", 1), lambda: intus.trace(monitored, y)):
                with pytest.raises(InputError, match=f"A {kind} of TensorFlow runs a Session.*raw_session"):
                    take()
            if kind == "SingularMonitoredSession":
                handle, tap = attached(monitored.raw_session())
                found = monitored.run(y, {x: ROWS})
                handle.remove()
                np.testing.assert_array_equal(outputs(tap)["y"], found)


@pytest.fixture
def named():
    """Yield a Session, feeds, and a fetch whose operations have names of scopes, labels and types."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 4], "x")
        weight = tf1.get_variable("w", initializer=np.eye(4, dtype=np.float32) * 2)
        tf.matmul(x, weight, name="MatMul")  # which no fetch needs
        hidden = tf.matmul(tf.matmul(x, weight), weight, name="fc")
        norm = tf.nn.l2_normalize(hidden, 1, name="norm")
        crop = tf.strided_slice(norm, [0, 0], tf.stack([tf.shape(norm)[0], 3], name="crop/end"), name="crop")
        one, two, three = tf.split(crop[:, : tf.shape(crop)[1]], 3, 1)
        total = tf.reduce_sum(two * three, name="total")
        loss = tf.add(total, tf.reduce_mean(two, name="mean"), name="loss")
        with tf1.Session(graph=graph) as running:
            running.run(tf1.global_variables_initializer())
            feeds = {x: np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)}
            yield running, feeds, loss, one


def test_name_of_an_operation_is_its_output(named):
    """A name means what the Session means by it, in a trace as in a probe, or it is refused."""
    session, feeds, loss, _ = named
    trace = intus.trace(session, loss, feeds)
    known = []
    for op in session.graph.get_operations():
        if op.outputs and op.type != "VarHandleOp":
            try:
                found = trace[op.name].value
            except AddressError:
                continue
            np.testing.assert_array_equal(found, session.run(op.outputs[0], feeds), err_msg=op.name)
            known.append(op.name)
    assert {"norm", "norm/Rsqrt", "crop", "crop/end", "strided_slice_1", "split", "total", "loss"} <= set(
        known
    )
    assert "MatMul" not in known
    with pytest.raises(AddressError, match="'MatMul' is the name of a tensor or operation of Session, which"):
        trace["MatMul"]
    handle, tap = attached(session)
    session.run(loss, feeds)
    handle.remove()
    for name in {"norm", "crop", "split"} & set(outputs(tap)):
        np.testing.assert_array_equal(outputs(tap)[name], trace[name].value)


def test_scope_of_the_name_of_an_operation_ends_in_a_slash(named):
    session, feeds, loss, _ = named
    trace = intus.trace(session, loss, feeds)
    assert (trace.modules["norm"].type, trace.modules["norm/"].type) == ("Mul", "scope")
    np.testing.assert_array_equal(trace["norm/"].value, session.run("norm:0", feeds))


def test_second_output_is_not_the_first_call(named):
    """TensorFlow's ``split:1`` is refused, where an address would mean the first call."""
    session, feeds, loss, first = named
    trace = intus.trace(session, loss, feeds)
    np.testing.assert_array_equal(trace["split"].value, session.run(first, feeds))
    with pytest.raises(AddressError, match="'split:1' is the name of a tensor") as refused:
        trace["split:1"]
    label = str(refused.value).partition(" in this trace")[0].rpartition(", ")[2].strip("'")
    np.testing.assert_array_equal(trace[label].value, session.run("split:1", feeds))
    fed = {**feeds, "split:1": np.full((3, 1), 7, np.float32)}
    trace = intus.trace(session, loss, fed)
    np.testing.assert_array_equal(trace[r"split\:1"].value, fed["split:1"])
    assert r"split\:1" in trace.graph.ends
    assert "input" in {trace.graph.type_of(row) for row in trace.graph.parents(trace.graph.rows("mean")[0])}
