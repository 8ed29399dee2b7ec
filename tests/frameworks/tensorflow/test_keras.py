"""Behavior particular to Keras, judged by Keras itself: extractors, and the same fit without a probe."""

from __future__ import annotations

import json
import sys
import urllib.parse
import urllib.request

import keras
import numpy as np
import pytest
import tensorflow as tf
from poor_probe import poor
from sklearn.datasets import load_digits

import intus
from backends.contract import Collect
from intus.backends.base import for_model
from intus.callbacks import Keras
from intus.core.errors import CaptureError, InputError
from intus.monitoring.sender import Sender
from intus.serving.run import Server

DIGITS = load_digits()
IMAGES, LABELS = (DIGITS.data[:640] / 16).astype(np.float32), DIGITS.target[:640]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(no_token=True, database=tmp_path_factory.mktemp("keras") / "keras.db", port=0) as running:
        yield running


def net(**options):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(32, activation="relu", name="hidden"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dropout(0.1, name="drop"),
            keras.layers.Dense(10, name="logits"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, **{"jit_compile": False, **options})
    return model


def bits(model, history):
    return [
        np.asarray(one).tobytes() for one in (history.history["loss"], *(v.numpy() for v in model.variables))
    ]


def fit(model, callbacks=(), **options):
    options = {"batch_size": 64, "epochs": 3, "shuffle": False, "verbose": 0, **options}
    return model.fit(IMAGES, LABELS, callbacks=list(callbacks), **options)


def points(server, run, score, model="Sequential"):
    query = urllib.parse.urlencode({"run": run, "model": model, "score": score, "target": "digit"})
    with urllib.request.urlopen(f"{server.page_url}api/points?{query}", timeout=20) as answer:
        return json.load(answer)


def attached(model, kinds=("output",)):
    backend, tap = for_model(model), Collect(backend=for_model(model), model=model)
    return backend.attach(model, backend.operations(model), kinds, tap), tap


# -- fit ---------------------------------------------------------------------------------------------------


def test_fit_with_callback_and_labels_by_order(server):
    """The bits of a training are the same with the probe, epochs are those of fit, and the layers learn."""
    model = net()
    intus.register_targets("127.0.0.1", server.port, name="digit", targets=LABELS)
    callback = Keras("127.0.0.1", server.port, run="order", block=True, kinds=("output", "grad_output"))
    history = fit(model, [callback], validation_data=(IMAGES[:100], LABELS[:100]))
    plain = net()
    assert bits(model, history) == bits(plain, fit(plain, validation_data=(IMAGES[:100], LABELS[:100])))
    assert not callback.watch.status()["faults"]
    found = points(server, "order", "linear_f1")
    assert set(found["epoch"]) == {1, 2, 3}
    assert set(found["address"]) >= {"hidden", "norm", "logits"}
    points_of_output = zip(found["kind"], found["epoch"], found["value"], strict=True)
    assert min(value for kind, epoch, value in points_of_output if (kind, epoch) == ("output", 3)) > 0.8


class Weights(keras.callbacks.Callback):
    """Notes the weights at the end of each epoch, by their layer and name."""

    def __init__(self):
        super().__init__()
        self.noted = {}

    def on_epoch_end(self, epoch, logs=None):
        self.noted[epoch + 1] = {
            "/".join(one.path.split("/")[-2:]): one.numpy().tobytes()
            for one in self.model.trainable_variables
        }


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
@pytest.mark.parametrize("at", range(3))
def test_parameters_of_a_model_that_fit_builds(at, eager, unsent):
    """The parameters of each epoch are those that Keras's own callback sees at its end."""
    make = (Subclassed, OwnStep, sequential_without_input)[at]

    def trained(*callbacks):
        keras.utils.set_random_seed(1)
        model = make()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, jit_compile=False, run_eagerly=eager)
        return bits(model, fit(model, callbacks, epochs=2))

    weights = Weights()
    kinds = ("output", "parameter")
    probed = Keras("127.0.0.1", 9, budget=float("inf"), kinds=kinds, wait=False)
    assert trained(weights, probed) == trained()
    shown = {(one.epoch, one.address): one.array.tobytes() for one in unsent if one.kind == "parameter"}
    names = ("hidden.kernel", "hidden.bias", "logits.kernel", "logits.bias")
    assert set(shown) == {(epoch, name) for epoch in (1, 2) for name in names}
    for (epoch, name), values in shown.items():
        assert values == weights.noted[int(epoch)][name.replace(".", "/")]


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
def test_shuffled_fit_has_no_labels_by_order(eager, server, caplog, monkeypatch):
    monkeypatch.delattr(sys, "_current_frames")  # to read those of other threads may end the process
    model = net(run_eagerly=eager)
    intus.register_targets("127.0.0.1", server.port, name="digit", targets=LABELS)
    fit(model, [Keras("127.0.0.1", server.port, run=f"shuffled {eager}", block=True)], shuffle=True)
    assert "do not come in the order of their dataset: fit shuffles them" in caplog.text
    assert not points(server, f"shuffled {eager}", "linear_f1")["value"]


def test_probe_set_in_shuffled_fit(server):
    model = net()
    probe_set = (IMAGES[:200], {"digit": LABELS[:200]})
    history = fit(model, [Keras("127.0.0.1", server.port, run="set", probe_set=probe_set)], shuffle=True)
    plain = net()
    assert bits(model, history) == bits(plain, fit(plain, shuffle=True))
    found = points(server, "set", "linear_f1")
    assert set(found["epoch"]) == {0, 1, 2, 3}


def layer(units, name):
    return keras.layers.Dense(units, activation="relu", name=name)


def functional():
    x = keras.Input((64,), name="x")
    return keras.Model(x, layer(10, "logits")(layer(16, "hidden")(x)))


def functional_with_two_inputs():
    left, right = keras.Input((64,), name="left"), keras.Input((64,), name="right")
    hidden = keras.layers.Add(name="sum")([layer(16, "hidden")(left), layer(16, "other")(right)])
    return keras.Model([left, right], layer(10, "logits")(hidden))


def functional_with_named_inputs():
    left, right = keras.Input((64,), name="left"), keras.Input((64,), name="right")
    hidden = keras.layers.Add(name="sum")([layer(16, "hidden")(left), layer(16, "other")(right)])
    return keras.Model({"left": left, "right": right}, layer(10, "logits")(hidden))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.logits = layer(16, "hidden"), layer(10, "logits")

    def call(self, x):
        return self.logits(self.hidden(x))


def sequential():
    return keras.Sequential([keras.Input((64,)), layer(16, "hidden"), layer(10, "logits")])


def sequential_without_input():
    return keras.Sequential([layer(16, "hidden"), layer(10, "logits")])


class OwnStep(Subclassed):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


ONE = (functional, Subclassed, sequential, sequential_without_input)
TWO = (functional_with_two_inputs, functional_with_named_inputs)


@pytest.mark.parametrize("make", [*ONE, *TWO], ids=lambda make: make.__name__)
def test_probe_set_with_every_way_to_write_a_model(server, caplog, make):
    """Nothing of a pass is missing, and the graph is recorded, which for NumPy's arrays it was not."""
    keras.utils.set_random_seed(1)
    model, x = make(), IMAGES
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    if make in TWO:
        x = {"left": IMAGES, "right": IMAGES[:, ::-1].copy()}
    some = {name: one[:200] for name, one in x.items()} if make in TWO else x[:200]
    if make is functional_with_two_inputs:
        x, some = tuple(x.values()), (list(some.values()),)
    run = make.__name__
    callback = Keras("127.0.0.1", server.port, run=run, probe_set=(some, {"digit": LABELS[:200]}), block=True)
    model.fit(x, LABELS, epochs=1, batch_size=64, verbose=0, callbacks=[callback])
    assert "could not" not in caplog.text
    with urllib.request.urlopen(f"{server.page_url}api/runs", timeout=20) as answer:
        (name,) = {one["model"] for one in json.load(answer)["runs"] if one["run"] == run}
    query = urllib.parse.urlencode({"run": run, "model": name})
    with urllib.request.urlopen(f"{server.page_url}api/notices?run={run}", timeout=20) as answer:
        notices = json.load(answer)["notices"]
    assert [one["text"] for one in notices if one["level"] != "info"] == []
    with urllib.request.urlopen(f"{server.page_url}api/graph?{query}", timeout=20) as answer:
        assert "hidden" in answer.read().decode()
    found = points(server, run, "linear_f1", name)
    assert set(found["epoch"]) == {0, 1}


def test_misspelled_option_of_callback():
    with pytest.raises(InputError, match="probe has no option 'kind'"):
        Keras(kind="output")


def test_modes_of_fit_evaluate_and_predict():
    model = net()
    handle, tap = attached(model)
    fit(model, epochs=1, batch_size=320, validation_data=(IMAGES[:64], LABELS[:64]))
    model.evaluate(IMAGES[:64], LABELS[:64], 64, verbose=0)
    model.predict(IMAGES[:64], 64, verbose=0)
    model.test_on_batch(IMAGES[:32], LABELS[:32])
    model(IMAGES[:16], training=False)
    handle.remove()
    assert tap.errors == []
    assert tap.modes == ["train"] * 2 + ["eval"] * 5
    assert tap.rows == [320, 320, 64, 64, 64, 32, 16]
    assert model.call.__func__ is keras.Sequential.call


def test_steps_per_execution():
    """Every step of a loop of steps within one function is a pass."""
    model = net(steps_per_execution=5)
    handle, tap = attached(model)
    history = fit(model, epochs=2)
    handle.remove()
    assert (tap.errors, tap.passes, tap.ended) == ([], 20, 20)
    plain = net(steps_per_execution=5)
    assert bits(model, history) == bits(plain, fit(plain, epochs=2))


def test_probe_removed_within_fit():
    class Remove(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                handle.remove()

    model = net()
    fit(model, epochs=1)  # compiled before anything is attached
    handle, tap = attached(model)
    history = fit(model, [Remove()], epochs=1)
    assert (tap.errors, tap.passes) == ([], 4)
    plain = net()
    fit(plain, epochs=1)
    assert bits(model, history) == bits(plain, fit(plain, epochs=1))


def test_xla_is_refused_without_touching_the_training():
    model = net(jit_compile=True)
    handle, tap = attached(model)
    history = fit(model, epochs=1)
    handle.remove()
    assert tap.passes == 0
    assert "jit_compile=False, or pass a probe_set" in str(tap.errors[0])
    plain = net(jit_compile=True)
    assert bits(model, history) == bits(plain, fit(plain, epochs=1))


def test_xla_in_a_step_of_ones_own(server, caplog):
    """A script with ``tf.function(jit_compile=True)`` trains on, is told what to do, and gets a probe set."""

    def trained(**probed):
        model = net()
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        watch = intus.probe(model, "127.0.0.1", server.port, **probed) if probed else None
        if watch is not None:
            watch.epoch = 1

        @tf.function(jit_compile=True)
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            weights = model.trainable_variables
            for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(0.1 * gradient)
            return loss

        losses = [step(tf.constant(IMAGES[:32]), tf.constant(LABELS[:32])).numpy() for _ in range(3)]
        if watch is not None:
            if "probe_set" in probed:
                watch.run_probe_set()
            status = watch.status()
            watch.remove()
            assert status["passes"] == 0
            if "probe_set" in probed:  # no pass of a training is recorded beside one
                assert (status["faults"], status["troubles"]) == ([], 0)
            else:
                (fault,) = status["faults"]
                assert "jit_compile=False, or pass a probe_set" in fault
        return [np.asarray(one).tobytes() for one in (*losses, *model.get_weights())]

    plain = trained()
    assert trained(run="xla") == plain
    assert caplog.text.count("The call is compiled by XLA (jit_compile=True), which cannot call Python.") == 1
    assert trained(run="xla set", probe_set=(IMAGES[:200], {"digit": LABELS[:200]})) == plain
    assert intus.flush("127.0.0.1", server.port)
    scores = points(server, "xla set", "linear_f1")
    assert set(scores["epoch"]) == {0, 1}
    assert not any("incomplete" in note for note in scores["note"])


@pytest.mark.parametrize("asked", [False, True], ids=["at the end", "run_probe_set"])
@pytest.mark.parametrize("named", [None, 0, 1])
def test_trained_model_is_not_shown_as_epoch_0(named, asked, monkeypatch):
    records = []
    monkeypatch.setattr(Sender, "gather", lambda self, record, *_: records.append(record))
    monkeypatch.setattr(Sender, "reserve", lambda *_: True)
    model, held_out = net(), (IMAGES[:50], {"digit": LABELS[:50]})
    with intus.probe(model, "127.0.0.1", 1, probe_set=held_out, structure=False) as watch:
        if named is not None:
            watch.epoch = named
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(IMAGES[:64], training=True) ** 2)
        weights = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        if asked:
            watch.run_probe_set()
    trained = model(IMAGES[:50], training=False).numpy()
    looks = {record.epoch: record.array for record in records if record.address == "logits"}
    assert list(looks) == {None: [], 0: [0], 1: [0, 1]}[named]
    if looks:
        np.testing.assert_allclose(looks[max(looks)], trained, atol=1e-5)
    faults = [fault for fault in watch.status()["faults"] if "was not run" in fault]
    assert len(faults) == (named is None)
    assert all("nothing says which epoch this is" in fault for fault in faults)


# -- calls that are skipped for long -----------------------------------------------------------------------


def test_skipped_steps_of_fit_are_counted_without_a_call_of_the_host(server):
    """The first step of an epoch and each of an evaluation are reported; all are counted at any time."""

    class Count(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            watch.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if batch % 7 == 3:
                counted.append((watch.status()["passes"], watch.step))

    model, counted = net(), []
    options = {"batch_size": 8, "validation_data": (IMAGES[:64], LABELS[:64])}
    with intus.probe(model, "127.0.0.1", server.port, run="poor") as watch:
        reported = poor(watch)
        history = fit(model, [Count()], **options)
        status = watch.status()
    assert (status["passes"], status["skipped"]) == (3 * (80 + 8), 3 * (80 + 8))
    begun = [88 * epoch + batch + 1 for epoch in range(3) for batch in range(80) if batch % 7 == 3]
    assert counted == [(number, number) for number in begun]
    assert [mode for _, mode, _ in reported].count("eval") == 3 * 8
    trained = [epoch for epoch, mode, _ in reported if mode == "train"]
    assert set(trained) == {0, 1, 2}
    assert len(trained) < 3 * 80 / 2
    plain = net()
    assert bits(model, history) == bits(plain, fit(plain, **options))


def test_ids_are_those_of_the_next_step_after_skipped_ones(server):
    model = net()
    with intus.probe(model, "127.0.0.1", server.port, run="poor ids", name="ids") as watch:
        reported = poor(watch)
        for _ in range(20):
            model.train_on_batch(IMAGES[:8], LABELS[:8])
        assert len(reported) < 20
        before = len(reported)
        watch.items = np.arange(8)
        model.train_on_batch(IMAGES[:8], LABELS[:8])
        model.train_on_batch(IMAGES[:8], LABELS[:8])
        assert [ids for _, _, ids in reported[before:]] == [list(range(8)), None]
        before = len(reported)
        watch.mode = "other"
        model.train_on_batch(IMAGES[:8], LABELS[:8])
        assert reported[before:] == [(0, "other", None)]
        assert watch.status()["passes"] == 23


@pytest.mark.parametrize("every", [None, 7])
def test_probe_set_runs_between_steps_that_are_not_reported(server, every):
    """It runs before the steps that it would run before if all were reported."""
    model, looks = net(), []
    held_out = IMAGES[:8], {"digit": LABELS[:8]}
    with intus.probe(
        model, "127.0.0.1", server.port, run=f"poor {every}", probe_set=held_out, every=every
    ) as watch:
        tap, reported = watch._tap, poor(watch)
        own = tap.probe_runs.run
        tap.probe_runs.run = lambda *state: (looks.append(tap.passes), own(*state))
        for epoch in range(3):
            watch.epoch = epoch
            for _ in range(10):
                model.train_on_batch(IMAGES[:8], LABELS[:8])
    assert looks == ([10, 20, 30] if every is None else [0, 7, 14, 21, 28, 30])
    trained = len(reported) - len(looks)
    assert trained <= (3 if every is None else 10)


def test_function_traced_while_attached_calls_host_no_longer():
    model = net()
    handle, tap = attached(model)
    step = tf.function(lambda x: model(x, training=False))
    x = tf.constant(IMAGES[:8])
    first = step(x).numpy()
    handle.remove()
    assert np.array_equal(step(x).numpy(), first)
    assert tap.passes == 1
    assert set(tap.seen[0]) == {("output", name) for name in ("", "hidden", "norm", "drop", "logits")}


def test_calls_within_one_function_are_passes_in_their_order():
    """Neither call depends on the other, so TensorFlow alone runs them in any order, also interleaved."""
    model = net()
    handle, tap = attached(model)

    @tf.function
    def step(real, fake):
        return model(real, training=True), model(fake, training=True)

    for _ in range(40):
        step(tf.constant(IMAGES[:8]), tf.constant(IMAGES[:4]))
    handle.remove()
    assert tap.errors == []
    assert tap.rows == [8, 4] * 40
    for seen in tap.seen:
        assert set(seen) == {("output", name) for name in ("", "hidden", "norm", "drop", "logits")}


# -- values ------------------------------------------------------------------------------------------------


def extracted(model, x):
    """Return the outputs of a functional model's layers by Keras's own means."""
    layers = [one for one in model.layers if not isinstance(one, keras.layers.InputLayer)]
    extractor = keras.Model(model.inputs[0], [one.output for one in layers])
    return dict(zip([one.name for one in layers], extractor(x, training=False), strict=True))


@pytest.mark.parametrize("name", ["MobileNetV2", pytest.param("EfficientNetB0", marks=pytest.mark.long)])
def test_application(name):
    """Every layer of a real network is traced and observed with the values of Keras's own extractor."""
    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, input_shape=(64, 64, 3))
    x = np.random.default_rng(0).random((2, 64, 64, 3), np.float32)
    expected = extracted(model, x)
    backend = for_model(model)
    traced = backend.trace(model, (x,), {})
    for name, value in expected.items():
        (row,) = traced.graph.rows(name)
        np.testing.assert_allclose(traced.values[row], value, rtol=1e-4, atol=1e-5, err_msg=name)
    shapes = {one.address: one.shape for one in traced.graph.params}
    assert sorted(shapes.values()) == sorted(tuple(one.shape) for one in model.trainable_variables)
    used = {traced.graph.params[number].address for _, number in traced.graph.op_params}
    assert used == set(shapes)
    plain = model.predict(x, verbose=0)
    handle, tap = attached(model)
    assert np.array_equal(model.predict(x, verbose=0), plain)
    handle.remove()
    assert tap.errors == []
    found = {address: value for (_, address), value in tap.seen[0].items() if address}
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_masks_pass_through():
    """A mask that a layer computes reaches the layers behind it, with gradients observed."""

    def new():
        keras.utils.set_random_seed(2)
        return keras.Sequential(
            [
                keras.Input((5,), dtype="int32"),
                keras.layers.Embedding(10, 4, mask_zero=True, name="embed"),
                keras.layers.LSTM(3, name="lstm"),
            ]
        )

    tokens = np.array([[1, 2, 0, 0, 0], [3, 4, 5, 6, 0]])
    plain, model = new(), new()
    handle, tap = attached(model, ("output", "grad_output"))
    with tf.GradientTape() as tape:
        out = model(tokens)
        loss = tf.reduce_sum(out)
    gradients = tape.gradient(loss, model.trainable_variables)
    handle.remove()
    assert tap.errors == []
    with tf.GradientTape() as tape:
        expected = plain(tokens)
        loss = tf.reduce_sum(expected)
    assert np.array_equal(out, expected)
    for one, other in zip(gradients, tape.gradient(loss, plain.trainable_variables), strict=True):
        assert np.array_equal(tf.convert_to_tensor(one), tf.convert_to_tensor(other))
    assert ("grad_output", "embed") in tap.seen[0]


@pytest.mark.parametrize("wrap", [tf.function, lambda step: step], ids=["graph", "eager"])
def test_gradients_of_two_tapes(wrap):
    """Each gradient has its own address, in the order in which they are computed."""
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3, name="fc"), keras.layers.Dense(2, name="out")]
    )
    handle, tap = attached(model, ("output", "grad_output"))
    x = tf.constant(IMAGES[:8, 20:24])

    def losses(y):
        return tf.reduce_sum(y**2), tf.reduce_sum(tf.sin(y))

    @wrap
    def step(x):
        with tf.GradientTape() as one, tf.GradientTape() as two:
            first, second = losses(model(x))
        return [
            tape.gradient(loss, model.trainable_variables) for tape, loss in ((one, first), (two, second))
        ]

    for _ in range(2):
        step(x)
    handle.remove()
    assert tap.errors == []
    assert len(tap.seen) == 2
    hidden = model.layers[0](x)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(hidden)
        first, second = losses(model.layers[1](hidden))
    for seen in tap.seen:
        for address, loss in (("fc", first), ("fc:2", second)):
            np.testing.assert_allclose(seen["grad_output", address], tape.gradient(loss, hidden), rtol=1e-5)
        assert ("output", "fc:2") not in seen


def test_gradients_of_two_tapes_through_two_calls():
    """A gradient of no call of a layer that cannot be named is refused, with the reason."""
    cell = keras.layers.Dense(4, name="cell")
    start = keras.Input((4,))
    model = keras.Model(start, cell(cell(start)))
    handle, tap = attached(model, ("grad_output",))
    with tf.GradientTape(persistent=True) as tape:
        y = model(tf.constant(IMAGES[:8, 20:24]))
        first, second = tf.reduce_sum(y**2), tf.reduce_sum(y)
    tape.gradient(first, model.trainable_variables)
    tape.gradient(second, model.trainable_variables)
    handle.remove()
    assert {address for _, address in tap.seen[0]} == {"", ":2", "cell", "cell:2"}
    assert "'cell' was called several times, and several gradients" in str(tap.errors[0])


def test_symbolic_calls_are_not_passes():
    """Layers can be used in new models while something is attached."""
    model = net()
    handle, tap = attached(model)
    extractor = keras.Model(model.inputs[0], model.get_layer("hidden").output)
    again = keras.Model(model.inputs[0], model(model.inputs[0]))
    assert tap.passes == 0
    assert extractor(IMAGES[:3]).shape == (3, 32)
    assert tap.passes == 0
    assert again(IMAGES[:3]).shape == (3, 10)
    assert tap.passes == 1
    handle.remove()


class Block(keras.layers.Layer):
    """A layer of two, which Keras builds by a call in a graph of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.second = keras.layers.Dense(16), keras.layers.Dense(16)

    def call(self, x):
        return self.second(keras.ops.tanh(self.first(x)))


class Nested(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = [Block(), Block()], keras.layers.Dense(10)

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.mark.filterwarnings("ignore:.*does not have a `build:UserWarning")
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("built", [False, True])
def test_nested_layers_that_fit_builds(built, eager):
    """A call by which Keras learns the shapes of nested layers is neither a pass nor a loop."""
    model = Nested()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=eager)
    if built:
        model.build((None, 64))
    handle, tap = attached(model)
    fit(model, epochs=1)
    handle.remove()
    assert tap.errors == []
    assert tap.passes == len(IMAGES) // 64
    inner = {f"blocks.{n}{part}" for n in (0, 1) for part in ("", ".first", ".second")}
    assert all({address for _, address in seen} == {"", "head", *inner} for seen in tap.seen)


def test_layers_within_loops_are_left_out():
    class Loop(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = keras.layers.Dense(4), keras.layers.Dense(2)

        def call(self, x):
            for _ in range(1):
                _, x = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, self.inner(y)), [0, x])
            return self.outer(x)

    keras.utils.set_random_seed(0)
    model = Loop()
    x = tf.ones((2, 4))
    expected = model(x)
    handle, tap = attached(model)
    found = tf.function(model)(x)
    handle.remove()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert tap.errors == []
    assert {address for _, address in tap.seen[0]} == {"", "outer"}


def test_inspect():
    """Every unit's correlation equals numpy's on the values of Keras."""
    model = net()
    fit(model, epochs=1)
    bright = IMAGES.mean(1)
    table = intus.inspect(model, {"bright": bright}, "correlation", IMAGES, ["hidden", ("logits", [7, 3])])
    expected = extracted(model, IMAGES)
    assert set(table.address) == {"hidden", "logits"}
    for row in table.itertuples():
        behavior = np.asarray(expected[row.address])[:, row.unit]
        if behavior.std():  # a ReLU may be dead
            assert row.value == pytest.approx(np.corrcoef(behavior, bright)[0, 1], abs=1e-4)
    assert table.value.notna().sum() > 20
    assert table[table.address == "logits"].unit.tolist() == [7, 3]


def test_units_of_convolution_are_its_channels():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Conv2D(5, 3, name="conv")])
    labels = {"odd": np.arange(64) % 2}
    table = intus.inspect(model, labels, "mean_difference", IMAGES[:64].reshape(-1, 8, 8, 1), "conv")
    assert sorted(table.unit) == [0, 1, 2, 3, 4]


def test_trace_restores_model():
    """A call in training mode is traced without a change of moving averages or random states."""
    model = net()
    before = [one.numpy().tobytes() for one in model.variables]
    traced = for_model(model).trace(model, (IMAGES[:8],), {"training": True})
    assert [one.numpy().tobytes() for one in model.variables] == before
    assert traced.graph.rows("drop")
    types = {traced.graph.type_of(row) for row in range(len(traced.graph.ops))}
    assert "StatelessRandomUniformV2" in types
    assert "call" not in vars(model.layers[0])


class Momentum(keras.layers.Layer):
    """A layer whose call writes to a trainable weight, as a momentum encoder does."""

    def build(self, shape):
        self.query = self.add_weight(shape=(shape[-1], 10), name="query")
        self.key = self.add_weight(shape=(shape[-1], 10), name="key")

    def call(self, x):
        self.key.assign(0.9 * self.key + 0.1 * self.query)
        return keras.ops.matmul(x, self.query) + keras.ops.matmul(x, self.key)


def test_evaluation_restores_weights_that_a_call_writes():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((64,)), Momentum()])
    before = [one.numpy() for one in model.variables]
    with for_model(model).evaluation(model) as run:
        run(IMAGES[:4])
    assert all(map(np.array_equal, before, [one.numpy() for one in model.variables]))
    model(IMAGES[:4])
    assert not all(map(np.array_equal, before, [one.numpy() for one in model.variables]))


def test_other_backend_of_keras_has_probe_sets_alone(monkeypatch):
    """On JAX and PyTorch only calls of intus are observed. Here the name of the backend is another's."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(2, name="fc")])
    plain = model(IMAGES[:4])
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    backend, tap = for_model(model), Collect()
    handle = backend.attach(model, backend.operations(model), ("output", "parameter"), tap)
    assert np.array_equal(model(IMAGES[:4]), plain)
    assert tap.passes == 0
    assert "Of Keras on jax, the training's own passes cannot be recorded." in str(tap.errors[0])
    assert "Pass a probe_set to probe()" in str(tap.errors[0])
    with backend.evaluation(model) as run:
        assert np.array_equal(run(backend.inputs(model, IMAGES[:4])), plain)
    handle.remove()
    assert len(tap.errors) == 1
    assert np.array_equal(tap.seen[0]["output", "fc"], plain)
    assert np.array_equal(tap.seen[0]["parameter", "fc.kernel"], model.layers[0].kernel.numpy())
    with pytest.raises(InputError, match="kinds of Keras on jax must be of output, input, parameter"):
        backend.attach(model, [], ("grad_output",), tap)
    with pytest.raises(CaptureError, match="KERAS_BACKEND=tensorflow"):
        backend.trace(model, (IMAGES[:4],), {})
    assert backend.graph_recorder(model) is None


def test_recurrent_layers_are_whole():
    """A cell runs in a loop, so that its layer is recorded: every step, with the cell's variables."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    stacked = layers.RNN([layers.GRUCell(3), layers.LSTMCell(2)], name="stacked")
    model = keras.Sequential(
        [
            keras.Input((5, 4)),
            layers.SimpleRNN(6, return_sequences=True, name="rnn"),
            layers.Bidirectional(layers.GRU(3, return_sequences=True), name="both"),
            stacked,
        ]
    )
    model.compile("sgd", "mse", jit_compile=False)
    backend, tap = for_model(model), Collect()
    known = backend.operations(model)
    expected = ["", "rnn", "both", "both.forward_layer", "both.backward_layer", "stacked"]
    assert [one.address for one in known] == expected
    names = [f"{one.address}.{name}" for one in known for name in backend.parameters(one)]
    assert len(names) == len(set(names)) == len(model.trainable_variables)
    rows = np.random.default_rng(0).random((8, 5, 4)).astype(np.float32)
    handle = backend.attach(model, known, ("output",), tap)
    model.predict(rows, verbose=0)
    handle.remove()
    assert tap.errors == []
    shown = tap.seen[0]
    extractor = keras.Model(model.inputs, [layer.output for layer in model.layers])
    for layer, own in zip(model.layers, extractor.predict(rows, verbose=0), strict=True):
        np.testing.assert_allclose(shown["output", layer.name], own, atol=1e-6)
    traced = intus.trace(model, rows)
    np.testing.assert_allclose(traced["rnn"].value, extractor.predict(rows, verbose=0)[0], atol=1e-6)


def test_cause_of_a_failing_trace():
    """The error holds the sentence that Keras itself gives, in one line."""
    model = net()
    with pytest.raises(ValueError, match="incompatible") as own:
        model.layers[0](IMAGES[:4, :3])
    with pytest.raises(CaptureError) as ours:
        intus.trace(model, IMAGES[:4, :3])
    sentence = str(own.value).partition("is incompatible")[2].split(", but")[0]
    assert sentence
    assert sentence in str(ours.value)
    assert not {"\n", "\x1b"} & set(str(ours.value))


@pytest.mark.parametrize("compiled", [False, True])
def test_several_tensors_are_told(compiled):
    """A notice names the tensors that a layer returns and that are not recorded, as for PyTorch."""
    x = keras.Input((3, 2))
    rows, state, _ = keras.layers.LSTM(4, return_sequences=True, return_state=True, name="lstm")(x)
    model = keras.Model(x, {"a": keras.layers.Dense(3, name="one")(state), "b": rows})
    told, tap = [], Collect()
    tap.returned = lambda *facts, packed: told.append(facts)
    handle = for_model(model).attach(model, for_model(model).operations(model), ("output",), tap)
    call = tf.function(model) if compiled else model
    for _ in range(2):
        call(tf.ones((5, 3, 2)))
    handle.remove()
    assert tap.errors == []
    assert sorted(told) == [("", "a", ["b"]), ("lstm", "0", ["1", "2"])]
