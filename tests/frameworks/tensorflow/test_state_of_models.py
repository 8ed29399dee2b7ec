"""A probe set and a trace change nothing that a model keeps: the same training without them is the judge."""

from __future__ import annotations

import contextlib
import random
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

import intus

pytestmark = pytest.mark.usefixtures("unsent")
X = np.random.default_rng(0).normal(size=(32, 6)).astype(np.float32)
SET = X[:8], {"half": np.arange(8) // 4}


class Helper:
    """An object of the model's own package that is neither a layer nor a module."""

    def __init__(self):
        self.calls = 0
        self.step = tf.Variable(0.0, trainable=False)


class State:
    """All that a model may keep. ``next`` returns a number that depends on the calls before."""

    def build_state(self, of):
        self.of = of
        self.calls, self.seen, self.counts, self.hidden = 0, [0], {"n": 0}, None
        self.array, self.python = np.zeros(1), random.Random(0)
        self.numpy = {"state": np.random.RandomState(0), "rng": np.random.default_rng(0)}
        self.step, self.weight = tf.Variable(0.0, trainable=False), tf.Variable(0.0)
        self.steps, self.named = [tf.Variable(0.0, trainable=False)], {"n": tf.Variable(0.0, trainable=False)}
        self.generator = tf.random.Generator.from_seed(1)
        self.generators = [tf.random.Generator.from_seed(1)]
        self.seeds, self.seed_list = keras.random.SeedGenerator(1), [keras.random.SeedGenerator(1)]
        self.mean = keras.metrics.Mean()
        self.helper, self.space = Helper(), SimpleNamespace(calls=0)

    def next(self):
        return NEXT[self.of](self)

    def count(self):
        self.calls += 1
        return self.calls

    def list_count(self):
        self.seen.append(1)
        return len(self.seen)

    def dict_count(self):
        self.counts["n"] += 1
        return self.counts["n"]

    def hidden_state(self):
        self.hidden = tf.ones(()) if self.hidden is None else self.hidden * 0.9
        return self.hidden

    def write_array(self):
        self.array += 1
        return float(self.array[0])

    def replaced_variable(self):
        self.step = tf.Variable(self.step + 1, trainable=False)
        return self.step * 1.0

    def update_mean(self):
        self.mean.update_state(self.mean.count)
        return self.mean.result()

    def count_of_helper(self):
        self.helper.calls += 1
        return self.helper.calls

    def count_of_space(self):
        self.space.calls += 1
        return self.space.calls


#: What happens in the Python code of a call, which a compiled step runs once alone.
PYTHON = {
    "counter": State.count,
    "list": State.list_count,
    "dict": State.dict_count,
    "hidden state": State.hidden_state,
    "array": State.write_array,
    "replaced variable": State.replaced_variable,
    "counter of an object": State.count_of_helper,
    "counter of a namespace": State.count_of_space,
    "random.Random": lambda self: self.python.random(),
    "RandomState": lambda self: self.numpy["state"].random_sample(),
    "default_rng": lambda self: self.numpy["rng"].random(),
    "random": lambda self: random.random(),
    "numpy.random": lambda self: np.random.random(),
}
WRITTEN = {
    "variable": lambda self: self.step.assign_add(1.0),
    "trainable variable": lambda self: self.weight.assign_add(1.0),
    "variable in a list": lambda self: self.steps[0].assign_add(1.0),
    "variable in a dict": lambda self: self.named["n"].assign_add(1.0),
    "variable of an object": lambda self: self.helper.step.assign_add(1.0),
    "branch": lambda self: tf.cond(self.step < 1e9, lambda: self.step.assign_add(1.0), lambda: self.step * 1),
    "metric": State.update_mean,
    "Generator": lambda self: self.generator.normal(()),
    "Generator in a list": lambda self: self.generators[0].normal(()),
    "global Generator": lambda self: tf.random.get_global_generator().normal(()),
    "tf.random": lambda self: tf.random.normal(()),
    "tf.random with a seed": lambda self: tf.random.normal((), seed=3),
    "SeedGenerator": lambda self: keras.random.normal((), seed=self.seeds),
    "SeedGenerator in a list": lambda self: keras.random.normal((), seed=self.seed_list[0]),
    "global SeedGenerator": lambda self: keras.random.normal(()),
}
NEXT = {**PYTHON, **WRITTEN}
#: What no graph can have, in which ``fit`` and a trace run a call, and Keras's own building.
EAGER = {"replaced variable"}
EAGER_OF_KERAS = {*EAGER, "hidden state"}


class Layer(keras.layers.Layer, State):
    def __init__(self, of):
        super().__init__()
        self.build_state(of)

    def call(self, x):
        return x * (1 + 0.1 * tf.cast(self.next(), tf.float32))


class Module(tf.Module, State):
    def __init__(self, of):
        super().__init__()
        self.build_state(of)
        self.kernel = tf.Variable(tf.ones((6, 3)))

    def __call__(self, x):
        return x @ self.kernel * (1 + 0.1 * tf.cast(self.next(), tf.float32))


class ModuleWithLayer(tf.Module):
    """A module of which Keras has the state: ``tf.Module`` does not look into layers."""

    def __init__(self, of):
        super().__init__()
        self.layer, self.kernel = Layer(of), tf.Variable(tf.ones((6, 3)))

    def __call__(self, x):
        return self.layer(x) @ self.kernel


class Function(Module):
    """A module whose call is a ``tf.function``."""

    __call__ = tf.function(lambda self, x: x @ self.kernel * (1 + 0.1 * tf.cast(self.next(), tf.float32)))


def of_keras(of):
    return keras.Sequential([keras.Input((6,)), Layer(of), keras.layers.Dense(3, name="out")])


def seeded(build, of):
    keras.utils.set_random_seed(1)
    keras.src.backend.common.global_state.set_global_attribute("global_seed_generator", None)
    tf.random.set_global_generator(tf.random.Generator.from_seed(2))
    return build(of)


def probed(model, is_probed):
    return intus.probe(model, "127.0.0.1", 1, probe_set=SET) if is_probed else contextlib.nullcontext()


def trained(build, of, is_probed):
    model, losses = seeded(build, of), []
    with probed(model, is_probed) as watch:
        for epoch in range(2):
            if is_probed:
                watch.epoch = epoch
            for start in range(0, 32, 16):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(model(tf.constant(X[start : start + 16])) ** 2)
                for one, gradient in zip(w := model.trainable_variables, tape.gradient(loss, w), strict=True):
                    if gradient is not None:
                        one.assign_sub(0.1 * gradient)
                losses.append(loss.numpy().tobytes())
            if is_probed:
                watch.run_probe_set()
        if is_probed:
            status = watch.status()
            assert status["troubles"] == 0, status["faults"]
    return losses


@pytest.mark.parametrize(
    ("build", "of"),
    [(of_keras, one) for one in NEXT if one not in EAGER_OF_KERAS]
    + [(build, one) for build in (Module, ModuleWithLayer) for one in NEXT],
)
def test_training_with_a_probe_set_is_bitwise_identical(build, of, unsent):
    assert trained(build, of, True) == trained(build, of, False)
    assert {record.epoch for record in unsent} == {0, 1}


@pytest.mark.parametrize("of", WRITTEN)
def test_training_of_a_function_with_a_probe_set_is_bitwise_identical(of, unsent):
    assert trained(Function, of, True) == trained(Function, of, False)
    assert {record.epoch for record in unsent} == {0, 1}


@pytest.mark.parametrize("of", [one for one in NEXT if one not in EAGER_OF_KERAS])
def test_fit_with_a_probe_set_is_bitwise_identical(of, unsent):
    losses = {}
    for is_probed in (False, True):
        model = seeded(of_keras, of)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        with probed(model, is_probed) as watch:
            found = losses.setdefault(is_probed, [])
            for epoch in range(2):
                if is_probed:
                    watch.epoch = epoch
                found += model.fit(X, np.arange(32) % 3, verbose=0, shuffle=False).history["loss"]
    assert losses[True] == losses[False]
    assert {record.epoch for record in unsent} == {0, 1}


@pytest.mark.parametrize(
    ("build", "of"),
    [(of_keras, one) for one in NEXT if one not in EAGER_OF_KERAS]
    + [(build, one) for build in (Module, ModuleWithLayer) for one in NEXT if one not in EAGER],
)
def test_call_after_a_trace_is_the_call_without_it(build, of):
    outputs = []
    for is_traced in (False, True):
        model = seeded(build, of)
        model(tf.constant(X))
        if is_traced:
            assert intus.trace(model, tf.constant(X[:4])).not_restored == []
        outputs.append(np.asarray(model(tf.constant(X))))
    assert np.array_equal(*outputs)


def test_containers_of_a_module_can_be_saved_after_a_pass(tmp_path):
    """TensorFlow refuses to save lists and dicts that were changed without its wrappers."""
    for of in ("list", "dict", "counter"):
        model = Module(of)
        model.helper = model.space = model.numpy = None
        intus.trace(model, tf.constant(X[:4]))
        tf.train.Checkpoint(model=model).save(str(tmp_path / of))
