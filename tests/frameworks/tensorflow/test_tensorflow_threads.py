"""Calls by several threads and in loops: a recorded pass is that of one call, and what is missing is said."""

from __future__ import annotations

import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from thread_help import run_in_threads

from backends.contract import Collect
from intus.backends.base import for_model
from intus.backends.tensorflow.function_calls import FunctionCall, under_way
from intus.backends.tensorflow.turns import Turns

ROWS, CALLS, THREADS = 16, 60, 4


class Part(tf.Module):
    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable(tf.eye(8) * 0.5)

    def __call__(self, x):
        return x @ self.kernel


class Modules(tf.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.o = Part(), Part()

    def __call__(self, x):
        return self.o(self.fc(x))


@pytest.fixture(autouse=True)
def no_frames_of_other_threads(monkeypatch):
    """Take away the function that reads them, which may end the process while these threads run."""
    monkeypatch.delattr(sys, "_current_frames")


def keras_model():
    return keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(8, name="fc"), keras.layers.Dense(8, name="o")]
    )


class Counting(Collect):
    """Counts refused calls too."""

    refused = 0

    def refuse_call(self, error):
        self.refused += 1
        assert "another thread's call" in str(error)


def observed(model, kinds=("input", "output")):
    backend, tap = for_model(model), Counting()
    return tap, backend.attach(model, backend.operations(model), kinds, tap)


@pytest.mark.parametrize("make", [Modules, keras_model])
@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_passes_of_threads_are_each_of_one_call(make, in_graph):
    model = make()
    tap, handle = observed(model)
    call = tf.function(lambda x: model(x)) if in_graph else model
    call(tf.zeros((ROWS, 8)))

    def run(thread):
        for number in range(CALLS):
            call(tf.fill((ROWS, 8), float(1 + 1000 * thread + number)))

    run_in_threads(run, THREADS)
    handle.remove()
    assert not tap.errors
    assert len(tap.seen) + tap.refused == CALLS * THREADS + 1
    assert len(tap.seen) > 1
    for seen in tap.seen:
        given = seen["input", "fc"]
        np.testing.assert_allclose(
            seen["output", "fc"], model.fc(given) if make is Modules else model.layers[0](given)
        )
        np.testing.assert_array_equal(seen["input", "o"], seen["output", "fc"])


class Failing(Modules):
    """Fails between its layers for large numbers."""

    def __call__(self, x):
        hidden = self.fc(x)
        with tf.control_dependencies([tf.debugging.assert_less(x, 5.0)]):
            return self.o(tf.identity(hidden))


@pytest.mark.parametrize("in_graph", [False, True])
def test_call_after_one_that_was_interrupted(in_graph):
    model = Failing()
    tap, handle = observed(model)
    call = tf.function(lambda x: model(x)) if in_graph else model
    for value in (1.0, 9.0, 9.0, 2.0, 3.0):
        try:
            call(tf.fill((2, 8), value))
        except tf.errors.InvalidArgumentError:
            assert value == 9.0
    handle.remove()
    assert not tap.errors
    assert not tap.refused
    found = [seen["input", "o"][0, 0] for seen in tap.seen if ("input", "o") in seen]
    assert found == [0.5, 1.0, 1.5]


@pytest.mark.parametrize("in_graph", [False, True])
def test_call_after_one_of_another_thread_that_was_interrupted(in_graph):
    """The other thread goes on, and has kept the error."""
    model = Failing()
    tap, handle = observed(model)
    call = tf.function(lambda x: model(x)) if in_graph else model
    call(tf.ones((2, 8)))
    failed, may_end, errors = threading.Event(), threading.Event(), []

    def fail():
        try:
            call(tf.fill((2, 8), 9.0))
        except tf.errors.InvalidArgumentError as error:
            errors.append(error)
        failed.set()
        may_end.wait()

    thread = threading.Thread(target=fail)
    thread.start()
    failed.wait()
    call(tf.fill((2, 8), 2.0))
    may_end.set()
    thread.join()
    handle.remove()
    assert errors
    assert not tap.errors
    assert not tap.refused
    assert [seen["input", "o"][0, 0] for seen in tap.seen if ("input", "o") in seen] == [0.5, 1.0]


@pytest.mark.parametrize("creates", [False, True])
def test_function_tells_of_its_calls_until_the_last_removal(creates):
    model, variables, told = Modules(), [], []

    @tf.function
    def function(x):
        if creates and not variables:
            variables.append(tf.Variable(1.0))
        tf.numpy_function(lambda: told.append(len(under_way())), [], [])
        return model(x)

    outer = tf.function(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: function(x), lambda: x))
    (_, first), (_, second) = observed(model), observed(model)
    for call in (function, function, outer):
        call(tf.ones((2, 8)))
    first.remove()
    outer(tf.ones((2, 8)))
    assert told == [1] * 4
    second.remove()
    outer(tf.ones((2, 8)))
    assert told == [1] * 4 + [0]
    assert not under_way()


def test_call_of_another_thread_is_not_taken_for_an_evaluation(monkeypatch):
    """A tap evaluates a model by a function as a call begins; calls of other functions come meanwhile."""
    functions = [FunctionCall(1, -1, None)]
    monkeypatch.setattr("intus.backends.tensorflow.turns.under_way", lambda: functions)
    turns = Turns()
    assert turns.take(is_eager=False, is_evaluation=False) == 1
    functions += [FunctionCall(2, threading.get_ident(), None), FunctionCall(3, -1, None)]
    taken = []

    def take(is_evaluation):
        taken.append(turns.take(is_eager=False, is_evaluation=is_evaluation))

    for one in (False, True):
        thread = threading.Thread(target=take, args=[one])
        thread.start()
        thread.join()
    assert taken == [0, 2]


def test_gradients_of_threads_are_of_their_call():
    model = Modules()
    tap, handle = observed(model, ("input", "grad_output"))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x) * x)
        return tape.gradient(loss, model.o.kernel)

    def run(thread):
        for number in range(CALLS):
            step(tf.fill((ROWS, 8), float(1 + 1000 * thread + number)))

    step(tf.zeros((ROWS, 8)))
    run_in_threads(run, THREADS)
    handle.remove()
    assert not tap.errors
    assert len(tap.seen) > 1
    for seen in tap.seen:
        np.testing.assert_array_equal(seen["grad_output", "o"], seen["input", "fc"])


class Looping(tf.Module):
    def __init__(self, outside):
        super().__init__()
        self.cell, self.outside = Part(), outside

    def __call__(self, x):
        h = self.cell(x) if self.outside else x
        for _ in tf.range(5):
            h = tf.tanh(self.cell(h))
        return h


@pytest.mark.parametrize("outside", [True, False])
def test_layer_that_also_runs_in_a_loop_is_told(outside):
    model = Looping(outside)
    tap, handle = observed(model)
    tf.function(lambda x: model(x))(tf.ones((4, 8)))
    handle.remove()
    told = ["'cell'" in str(one) and "both inside and outside" in str(one) for one in tap.errors]
    assert told == ([True] if outside else [])  # what runs in loops alone is never called
