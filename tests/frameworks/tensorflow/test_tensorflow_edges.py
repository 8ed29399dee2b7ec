"""The edges of TensorFlow's graphs, judged by what TensorFlow's own operations read (``op.inputs``)."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intus
from intus.backends.tensorflow.plan import elements
from intus.backends.tensorflow.session_graph import _build
from intus.core.graph import INPUT, OP, OUTPUT

L = keras.layers
v1 = tf.compat.v1
SEQUENCE = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float32) * 0.05


def plain(x, y):
    return tf.tanh(x) + y


def written_list(x, y):
    kept = tf.TensorArray(tf.float32, 2)
    kept = kept.write(0, x)
    return kept.write(1, y).stack()


def read_list(x, y):
    return tf.TensorArray(tf.float32, 2).unstack(tf.stack([x, x * 2])).read(1)


def loop(x, y):
    return tf.while_loop(lambda n, _: n < 3, lambda n, z: (n + 1, z * 2), (tf.constant(0), x))[1]


def loop_over_list(x, y):
    def body(n, z, kept):
        return n + 1, tf.tanh(z), kept.write(n, z + y)

    kept = tf.TensorArray(tf.float32, 3, element_shape=x.shape)
    return tf.while_loop(lambda n, *_: n < 3, body, (tf.constant(0), x, kept))[2].stack()


def branch(x, y):
    return tf.cond(tf.reduce_sum(y) > 0, lambda: tf.exp(x), lambda: x + 1)


def branch_of_list(x, y):
    kept = tf.TensorArray(tf.float32, 1)
    return tf.cond(tf.reduce_sum(x) > 0, lambda: kept.write(0, y), lambda: kept.write(0, y * 2)).stack()


def mapped(x, y):
    return tf.map_fn(lambda row: row * 2, x)


def optional(x, y):
    return tf.experimental.Optional.from_value(x * 2).get_value()


def dataset(x, y):
    rows = tf.data.Dataset.from_tensor_slices(x).map(lambda row: row + 1)
    return rows.reduce(tf.zeros(x.shape[1:]), lambda total, row: total + row)


STEPS = (
    plain,
    written_list,
    read_list,
    loop,
    loop_over_list,
    branch,
    branch_of_list,
    mapped,
    optional,
    dataset,
)
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5
)


def program(steps):
    """Return a function of three tensors that runs steps, each on two of those computed so far."""

    def run(x, y, z):
        values = [x, y, z]
        for step, one, other in steps:
            value = step(values[one % len(values)], values[other % len(values)])
            values.append(tf.reshape(tf.tile(tf.reshape(value, [-1]), [6])[:6], [2, 3]))
        return values[3:]

    return run


class Module(tf.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run

    def __call__(self, x, y, z):
        return self.run(x, y, z)


def ancestors(start, parents):
    found, waiting = set(), [start]
    while waiting:
        for one in parents(waiting.pop()):
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found


def judged(graph, inputs):
    """Return the type of each operation with results, and the inputs that it descends from."""
    return [
        (
            op.type,
            frozenset(
                inputs[one.name]
                for one in ancestors(op, lambda one: [tensor.op for tensor in one.inputs])
                if one.name in inputs
            ),
        )
        for op in graph.get_operations()
        if op.outputs and op.type not in ("Const", "Placeholder", "NoOp")
    ]


def recorded(found):
    graph = found.graph
    ends = {row: number for number, row in enumerate(graph.rows_of(INPUT))}
    seen = {}
    for row in graph.rows_of(OP):
        of = frozenset(ends[one] for one in ancestors(row, graph.parents) if one in ends)
        seen.setdefault(int(graph.ops.event[row]), (graph.type_of(row), of))
    return list(seen.values())


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(PROGRAMS)
def test_operations_of_a_function_descend_from_the_inputs_that_tensorflow_says(steps):
    run = program(steps)
    arrays = [np.full((2, 3), number, np.float32) for number in (0.1, 0.2, 0.3)]
    function = tf.function(run, autograph=False).get_concrete_function(*map(tf.constant, arrays))
    inputs = {tensor.op.name: number for number, tensor in enumerate(function.inputs)}
    found = intus.trace(Module(run), *arrays)
    own = [one for one in judged(function.graph, inputs) if one[0] != "Identity"]
    assert sorted(map(str, own)) == sorted(str(one) for one in recorded(found) if one[0] != "Identity")


@pytest.mark.parametrize("control_flow_v2", [False, True])
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(steps=PROGRAMS)
def test_tensors_of_a_session_descend_from_the_inputs_that_tensorflow_says(control_flow_v2, steps):
    switch, was = (v1.disable_control_flow_v2, v1.enable_control_flow_v2), v1.control_flow_v2_enabled()
    switch[control_flow_v2]()
    try:
        with tf.Graph().as_default() as graph:
            placeholders = [v1.placeholder(tf.float32, (2, 3), name=f"in{n}") for n in range(3)]
            ends = program(steps)(*placeholders)
    finally:
        switch[was]()
    names = {one.op.name for one in placeholders}
    builder, rows = _build(graph, elements(graph, ends), frozenset(one.name for one in placeholders))
    built, order = builder.graph()
    name_of = {int(order[row]): name.partition(":")[0] for name, row in rows.rows.items()}
    checked = 0
    for row, name in name_of.items():
        op = graph.get_operation_by_name(name)
        # A graph without cycles cannot say that what is inside a loop reads what a later iteration computes.
        if op._get_control_flow_context() is None and op.type != "Placeholder":
            own = {one.name for one in ancestors(op, lambda one: [t.op for t in one.inputs])} & names
            assert {name_of[one] for one in ancestors(row, built.parents)} & names == own, name
            checked += 1
    assert checked


def test_session_runs_a_loop_with_lists():
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, (2, 3), name="x")
        y = loop_over_list(x, x)
        found = intus.trace(session, y, {x: np.ones((2, 3), np.float32)})
        expected = session.run(y, {x: np.ones((2, 3), np.float32)})
    assert np.array_equal(found["output_1"].value, expected)


def recurrent(layer):
    keras.utils.set_random_seed(1)
    x = keras.Input((6, 4))
    y = layer(L.LayerNormalization(name="norm")(L.Dense(4, name="dense")(x)))
    return keras.Model(x, L.Dense(2, name="out")(y))


@pytest.mark.parametrize("kind", [L.GRU, L.LSTM, L.SimpleRNN])
@pytest.mark.parametrize("at", ["dense", "norm", "layer"])
def test_fault_before_a_recurrent_layer_is_not_said_to_be_of_it(kind, at):
    model, other = (recurrent(kind(3, name="layer")) for _ in range(2))
    if at == "norm":
        other.get_layer("norm").epsilon = 1e-5
    else:
        weight = other.get_layer(at).trainable_weights[0]
        weight.assign(weight + np.random.default_rng(0).normal(size=weight.shape) * 0.1)
    a, b = intus.trace(model, SEQUENCE), intus.trace(other, SEQUENCE)
    first = intus.compare(a, b).attrs["first"]
    assert first["module"] == at
    assert {"dense": "dense.kernel", "norm": "y is 0.001", "layer": "kernel"}[at] in " ".join(first["why"])
    ends = ancestors(a.graph.rows_of(OUTPUT)[0], a.graph.parents)
    assert set(a.graph.rows_of(INPUT)) <= ends


@pytest.mark.parametrize("write", ["assign", "assign_add", "scatter", "fit"])
def test_value_of_a_parameter_is_what_it_was_in_the_pass(write):
    model = recurrent(L.GRU(3, name="layer"))
    kernel = model.get_layer("dense").kernel
    before = kernel.numpy().copy()
    found = intus.trace(model, SEQUENCE)
    if write == "fit":
        model.compile("sgd", "mse")
        model.fit(SEQUENCE, np.ones((3, 2)), verbose=0)
    elif write == "scatter":
        kernel.value.scatter_nd_update([[0]], tf.ones((1, 4)))
    else:
        getattr(kernel.value, write)(tf.ones((4, 4)))
    assert not np.array_equal(kernel.numpy(), before)
    assert np.array_equal(found.value("dense.kernel"), before)


def test_fault_before_a_loop_of_a_module_is_not_said_to_be_of_it():
    class Net(tf.Module):
        def __init__(self, first):
            super().__init__()
            self.first, self.step = tf.Variable(tf.fill((3, 3), first)), tf.Variable(tf.fill((3, 3), 0.2))

        @tf.function
        def __call__(self, x):
            x = x @ self.first
            kept = tf.TensorArray(tf.float32, 3)
            for n in tf.range(3):
                x = tf.tanh(x @ self.step)
                kept = kept.write(n, x)
            return kept.stack()

    x = np.ones((2, 3), np.float32)
    a, b = (intus.trace(Net(first), x) for first in (0.1, 0.15))
    first = intus.compare(a, b).attrs["first"]
    assert first["a"] == "MatMul_1_1"
    assert "first of a and of b differ" in first["why"][0]
