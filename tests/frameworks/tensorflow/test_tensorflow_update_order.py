"""Variables are updated in place in an observed function, whatever it takes to ask the host."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from backends.contract import Collect
from intus.backends.base import for_model

RANDOM = np.random.default_rng(0)
X = tf.constant(RANDOM.normal(size=(64, 64)).astype(np.float32))
WIDTH = 512


class Affine(tf.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = tf.Variable(RANDOM.normal(size=(inputs, outputs)).astype(np.float32) / inputs)

    def __call__(self, x):
        return tf.matmul(x, self.weight)


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.layers = [Affine(64, WIDTH), Affine(WIDTH, WIDTH), Affine(WIDTH, 3)]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = tf.nn.relu(layer(x))
        return self.layers[-1](x)


def dense_net():
    dense = keras.layers.Dense
    return keras.Sequential(
        [keras.Input((64,)), dense(WIDTH, "relu"), dense(WIDTH, "relu"), dense(3, use_bias=False)]
    )


def step_of(model, unused=lambda x: None):
    """Return a step that trains a model by gradient descent."""

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        unused(variables)
        for variable, gradient in zip(variables, gradients, strict=True):
            (variable.value if isinstance(variable, keras.Variable) else variable).assign_sub(0.1 * gradient)
        return loss

    return step


def attached(model, starts):
    backend, tap = for_model(model), Collect(starts=starts)
    return backend.attach(model, backend.operations(model), ("output",), tap), tap


def address(variable):
    """Return where TensorFlow has the values of a variable."""
    return variable.value()._numpy_internal().ctypes.data


def before(op):
    """Return all operations that one waits for."""
    found, todo = set(), [op]
    while todo:
        one = todo.pop()
        more = [*(tensor.op for tensor in one.inputs), *one.control_inputs]
        todo += [two for two in more if two not in found]
        found.update(more)
    return found


@pytest.mark.parametrize("make", [Net, dense_net])
def test_updates_wait_for_all_that_reads_the_old_value(make):
    model = make()
    handle, _ = attached(model, lambda number: False)
    step = step_of(model)
    step(X)  # get_concrete_function is for exports
    (concrete,) = step._list_all_concrete_functions()
    graph = concrete.graph
    handle.remove()
    updates = [op for op in graph.get_operations() if op.type == "AssignSubVariableOp"]
    assert len(updates) == len(model.trainable_variables)
    checked = 0
    for update in updates:
        done = before(update)
        for read in graph.get_operations():
            if read.type == "ReadVariableOp" and read.inputs[0] is update.inputs[0]:
                readers = {op for op in read.outputs[0].consumers() if op.type == "MatMul"}
                assert readers <= done
                checked += len(readers)
    assert checked == 5  # three products forward, and two gradients of inputs


def decayed(model, x, out):
    for one in model.trainable_variables:
        one.value.assign_sub(one * 0.01)
    return out


#: What a step computes with a model, between its gradients and their application, from its input and output.
BETWEEN = {
    "other rows": lambda model, x, out: model(tf.cos(x)),
    "its own output": lambda model, x, out: model(out),
    "decay in place": decayed,
}


@pytest.mark.parametrize("between", BETWEEN)
def test_products_that_updates_need_not_come_after_are_fused(between):
    def trained(*, probed):
        keras.utils.set_random_seed(0)
        dense = keras.layers.Dense
        model = keras.Sequential([keras.Input((64,)), dense(32, "relu"), dense(24, "tanh"), dense(64)])
        handle, tap = attached(model, lambda number: True) if probed else (None, None)

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                out = model(x)
                loss = tf.reduce_mean((out - x) ** 2)
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            more = BETWEEN[between](model, x, out)
            for variable, gradient in zip(variables, gradients, strict=True):
                variable.value.assign_sub(0.1 * gradient)
            return loss, more

        found = [one for _ in range(10) for one in step(X)]
        if probed:
            handle.remove()
            assert tap.errors == []
        return [np.asarray(one).tobytes() for one in (*found, *model.get_weights())]

    assert trained(probed=True) == trained(probed=False)


@pytest.mark.parametrize("watched", [False, True])
def test_variables_stay_where_they_are(watched):
    """TensorFlow copies a variable to another place if it cannot be updated in place."""
    model = Net()
    handle, tap = attached(model, lambda number: watched)
    step = step_of(model)
    step(X)
    places = [address(one) for one in model.trainable_variables]
    for _ in range(20):
        step(X)
        assert [address(one) for one in model.trainable_variables] == places
    assert tap.passes == 21
    assert tap.errors == []
    handle.remove()


@pytest.fixture
def unoptimized():
    """Keep TensorFlow from removing what has no effect."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def test_nothing_runs_that_did_not_before(unoptimized):
    """A read of a variable whose result nothing needs stays uncomputed."""

    def unused(variables):
        tf.gather(tf.convert_to_tensor(variables[1]), 10 * WIDTH)  # there is no such row, so it would fail

    model = Net()
    handle, _ = attached(model, lambda number: False)
    step = step_of(model, unused)
    assert np.isfinite(step(X).numpy())
    handle.remove()
    assert "GatherV2" in {op.type for op in step.get_concrete_function(X).graph.get_operations()}


def test_branches_of_tensorflow_1(unoptimized):
    """An update does not wait for an operation of a branch not taken, after which it would not run."""

    def trained(*, probed):
        model = Net()
        for number, one in enumerate(model.trainable_variables):
            one.assign(np.random.default_rng(number).normal(size=one.shape) / 100)
        if probed:
            handle, tap = attached(model, lambda number: number % 2 == 0)

        @tf.function
        def step(x, flag):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x) ** 2)
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            off, on = tf.raw_ops.Switch(data=loss, pred=flag)
            result, _ = tf.raw_ops.Merge(inputs=[off, on * tf.reduce_sum(variables[1] * on)])
            for variable, gradient in zip(variables, gradients, strict=True):
                variable.assign_sub(0.1 * gradient)
            return result

        losses = [step(X, tf.constant(number % 3 == 0)).numpy() for number in range(6)]
        if probed:
            assert tap.errors == []
            assert len(tap.seen) == 3
            handle.remove()
        return [np.asarray(one).tobytes() for one in (*losses, *model.trainable_variables)]

    assert trained(probed=True) == trained(probed=False)


def test_no_transformation_of_functions_is_left():
    from tensorflow.python.eager.polymorphic_function.transform import FUNC_GRAPH_TRANSFORMS

    before_it = list(FUNC_GRAPH_TRANSFORMS)
    first, _ = attached(Net(), lambda number: True)
    second, _ = attached(Net(), lambda number: True)
    second.remove()
    first.remove()
    first.remove()
    assert before_it == FUNC_GRAPH_TRANSFORMS


def test_what_is_added_to_a_function_is_charged_once():
    charged = []

    class Charged(Collect):
        def prepared(self, wall, processor):
            charged.append((wall, processor))

    model, tap = Net(), Charged()
    backend = for_model(model)
    handle = backend.attach(model, backend.operations(model), ("output",), tap)
    step = step_of(model)
    for _ in range(3):
        step(X)
        assert len(charged) == 2  # the question, and what is recorded
    handle.remove()
    assert tap.errors == []
    assert all(wall > 0 and processor > 0 for wall, processor in charged)
