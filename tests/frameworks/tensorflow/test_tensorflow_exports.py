"""Exports of models that are probed, judged by TensorFlow in a process that has no intus."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from contextlib import contextmanager

import keras
import numpy as np
import pytest
import tensorflow as tf

import intus
from backends.contract import Collect
from intus.backends.base import for_model
from intus.backends.tensorflow.exporting import NOT_RECORDED
from intus.callbacks import Keras
from intus.serving.run import Server

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras
X = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
ELSEWHERE = """
import json, sys
import numpy as np, tensorflow as tf
x = np.load(sys.argv[1])
for line in sys.stdin:
    path, name = json.loads(line)
    try:
        if name == "tflite":
            run = tf.lite.Interpreter(path)
            run.resize_tensor_input(run.get_input_details()[0]["index"], x.shape)
            run.allocate_tensors()
            run.set_tensor(run.get_input_details()[0]["index"], x)
            run.invoke()
            found = run.get_tensor(run.get_output_details()[0]["index"])
        else:
            loaded = tf.saved_model.load(path)
            found = (getattr(loaded, name) if name else loaded)(tf.constant(x)).numpy()
        print("said", json.dumps(found.tolist()), flush=True)
    except Exception as error:
        print("said", json.dumps(str(error)[-400:]), flush=True)
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Return a function that loads an export in another process, and returns what it computes."""
    inputs = tmp_path_factory.mktemp("exports") / "x.npy"
    np.save(inputs, X)
    options = {"env": {**os.environ, "PYTHONPATH": ""}, "text": True, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-c", ELSEWHERE, str(inputs)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)

    def load(path, name=""):
        print(json.dumps([str(path), name]), file=child.stdin, flush=True)
        line = next(line for line in child.stdout if line.startswith("said "))
        found = json.loads(line[5:])
        assert not isinstance(found, str), found
        return np.array(found, np.float32)

    yield load
    child.communicate(timeout=60)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(no_token=True, database=tmp_path_factory.mktemp("keras") / "keras.db", port=0) as running:
        yield running


def net():
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(6, activation="relu", name="fc"),
            layers.Dropout(0.2, name="drop"),
            layers.Dense(2, name="o"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=False)
    return model


@contextmanager
def observed(model):
    backend, tap = for_model(model), Collect()
    handle = backend.attach(model, backend.operations(model), ("output",), tap)
    try:
        yield tap
    finally:
        handle.remove()
    assert not tap.errors


class Dense(tf.Module):
    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable(tf.ones((8, 3)) * 0.3)

    def __call__(self, x):
        return x @ self.kernel


class Modules(tf.Module):
    def __init__(self):
        super().__init__()
        self.dense = Dense()

    def value(self, x):
        return tf.nn.relu(self.dense(x))


class Open(Modules):
    @tf.function
    def __call__(self, x):
        return self.value(x)


class Signed(Modules):
    @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32)])
    def __call__(self, x):
        return self.value(x)


class Eager(Modules):
    def __call__(self, x):
        return self.value(x)


def close(found, model):
    np.testing.assert_allclose(found, model(X).numpy(), 1e-5, 1e-6)


PROBES = {
    "every pass": lambda model, port: intus.probe(model, "127.0.0.1", port, budget=float("inf")),
    "probe set": lambda model, port: intus.probe(model, "127.0.0.1", port, probe_set=(X, {"y": Y})),
}


@pytest.mark.parametrize("how", PROBES)
def test_export_of_keras(how, server, elsewhere, tmp_path):
    model = net()
    watch = PROBES[how](model, server.port)
    watch.epoch = 1
    model.fit(X, Y, verbose=0, shuffle=False)
    model.export(tmp_path / "export", verbose=False)
    tf.saved_model.save(model, str(tmp_path / "saved"))
    light = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    (tmp_path / "light").write_bytes(light)
    assert not watch.status()["faults"]
    watch.remove()
    close(elsewhere(tmp_path / "export", "serve"), model)
    close(elsewhere(tmp_path / "light", "tflite"), model)


def fitted(callbacks):
    model = net()
    history = model.fit(X, Y, epochs=3, batch_size=16, verbose=0, callbacks=callbacks)
    return [history.history["loss"], *(one.numpy().tolist() for one in model.variables)], model


def test_export_in_a_fit_changes_neither(server, elsewhere, tmp_path):
    class Exporting(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.export(tmp_path / f"{epoch}", verbose=False)

    saving = keras.callbacks.ModelCheckpoint(tmp_path / "last.keras")
    plain, _ = fitted([Exporting(), saving])
    probe = Keras("127.0.0.1", server.port, probe_set=(X, {"y": Y}), budget=float("inf"), wait=False)
    found, model = fitted([Exporting(), saving, probe])
    assert found == plain
    close(elsewhere(tmp_path / "2", "serve"), model)
    close(keras.models.load_model(tmp_path / "last.keras")(X).numpy(), model)


@pytest.mark.parametrize("kind", [Open, Signed])
@pytest.mark.parametrize("when", ["while observed", "after"])
def test_export_of_a_module(kind, when, elsewhere, tmp_path):
    module = kind()
    module.step = tf.function(lambda x: module(x) * 2.0)
    with observed(module) as tap:
        for _ in range(2):
            module.step(tf.constant(X))
        if when == "while observed":
            tf.saved_model.save(module, str(tmp_path))
            module.step(tf.constant(X))
            assert len(tap.seen) == 3
    if when == "after":
        tf.saved_model.save(module, str(tmp_path))
    close(elsewhere(tmp_path), module)
    close(elsewhere(tmp_path, "step") / 2, module)


def test_export_in_another_form_after_a_training(elsewhere, tmp_path):
    """The function that calls another, which was traced for the training, is exported first."""
    module = Eager()
    inner = tf.function(lambda x: module(x))
    outer = tf.function(lambda x: inner(x) + 1.0)
    with observed(module) as tap:
        inner(tf.constant(X))
        module.outer = outer
        concrete = outer.get_concrete_function(tf.TensorSpec([None, 8]))
        tf.saved_model.save(module, str(tmp_path), signatures=concrete)
        assert not {op.type for op in concrete.graph.get_operations()} & {"PyFunc", "EagerPyFunc", "If"}
        outer(tf.constant(X))
        inner(tf.constant(X))
        assert len(tap.seen) == 3
        assert [str(error) for error in tap.errors] == [NOT_RECORDED]  # the script asked for it
        tap.errors.clear()
    close(elsewhere(tmp_path, "outer") - 1, module)


def test_export_does_not_trace_what_is_not_observed():
    count = []
    function = tf.function(lambda x: count.append(1) or x * 2.0)
    with observed(Eager()):
        for _ in range(2):
            function(tf.constant(X))
            function.get_concrete_function(tf.constant(X))
    assert len(count) == 1


def test_concrete_function_of_a_script_is_told(server):
    model = net()
    watch = intus.probe(model, "127.0.0.1", server.port, budget=float("inf"))
    tf.function(model).get_concrete_function(tf.constant(X))(tf.constant(X))
    assert any("get_concrete_function" in one for one in watch.status()["faults"])
    watch.remove()


def test_checkpoint_and_weights_of_an_observed_model(tmp_path):
    model = net()
    plain = tf.train.list_variables(tf.train.Checkpoint(model=model).save(str(tmp_path / "plain")))
    with observed(model):
        model.fit(X, Y, verbose=0)
        found = tf.train.list_variables(tf.train.Checkpoint(model=model).save(str(tmp_path / "found")))
        model.save_weights(tmp_path / "m.weights.h5")
        model.save(tmp_path / "m.keras")
    added = {name for name, _ in found} - {name for name, _ in plain}
    assert all("optimizer" in name for name in added)
    again = net()
    again.fit(X, Y, verbose=0)
    again.load_weights(tmp_path / "m.weights.h5")
    close(again(X).numpy(), model)
    close(keras.models.load_model(tmp_path / "m.keras")(X).numpy(), model)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", [Eager, Open])
def test_copy_of_an_observed_module(how, kind):
    module = kind()
    with observed(module) as tap:
        module(tf.constant(X))
        copied = COPIES[how](module)
        found = copied(tf.constant(X))
        assert len(tap.seen) == 1
    assert type(copied) is kind
    close(found.numpy(), module)


@pytest.mark.parametrize("how", [COPIES["deepcopy"], COPIES["pickle"], keras.models.clone_model])
def test_copy_of_an_observed_keras_model(how):
    model = net()
    model.fit(X, Y, verbose=0)
    with observed(model) as tap:
        model(X)
        how(model)(X)
        assert len(tap.seen) == 1


@pytest.mark.parametrize("verb", ["trace", "view", "inspect", "probe"])
@pytest.mark.parametrize("what", ["", "serve"])
def test_function_of_a_saved_model_is_refused_with_what_to_do(verb, what, tmp_path):
    net().export(tmp_path, verbose=False)
    loaded = tf.saved_model.load(str(tmp_path))
    given = getattr(loaded, what) if what else loaded
    others = {"inspect": ({"a": Y > 0}, "correlation", X, "o"), "probe": (), "view": (X,), "trace": (X,)}
    with pytest.raises(intus.IntusError, match="SavedModel"):
        getattr(intus, verb)(given, *others[verb])
