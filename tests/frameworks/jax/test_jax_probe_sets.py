"""Probe sets of models whose steps return another one: looks are of the trained one, or are refused."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

from intus import flush, probe
from intus.core.errors import InputError
from intus.monitoring.sender import Sender
from intus.serving.run import Server
from intus.storage.database import Database

RANDOM = np.random.default_rng(0)
ROWS, LABELS = RANDOM.normal(size=(96, 6)).astype(np.float32), RANDOM.integers(0, 3, 96)
SET = ROWS[:40], {"class": LABELS[:40]}
ADAM = optax.adam(1e-2)


def loss(logits, y):
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


class EquinoxNet(eqx.Module):
    fc: eqx.nn.Linear
    drop: eqx.nn.Dropout
    out: eqx.nn.Linear

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.fc, self.out = eqx.nn.Linear(6, 6, key=one), eqx.nn.Linear(6, 3, key=two)
        self.drop = eqx.nn.Dropout(0.2)

    def __call__(self, x, key=None):
        return self.out(self.drop(jax.nn.relu(self.fc(x)), key=key))


class LinenNet(linen.Module):
    train: bool = False

    @linen.compact
    def __call__(self, x):
        x = linen.BatchNorm(use_running_average=not self.train, name="norm")(linen.Dense(6, name="fc")(x))
        return linen.Dense(3, name="out")(linen.relu(x))


class NnxNet(nnx.Module):
    def __init__(self):
        self.fc, self.out = nnx.Linear(6, 6, rngs=nnx.Rngs(0)), nnx.Linear(6, 3, rngs=nnx.Rngs(1))

    def __call__(self, x):
        return self.out(nnx.relu(self.fc(x)))


class EquinoxTraining:
    """The step donates the model, and has its gradients and moments beside it, which are built alike."""

    def __init__(self):
        self.model = EquinoxNet(jax.random.key(0))
        self.now = self.model, ADAM.init(eqx.filter(self.model, eqx.is_array))

        @eqx.filter_jit(donate="all-except-first")
        def step(data, model, state):
            def of(model):
                keys = jax.random.split(jax.random.key(1), len(data[0]))
                return loss(jax.vmap(model)(data[0], keys), data[1])

            value, gradients = eqx.filter_value_and_grad(of)(model)
            updates, state = ADAM.update(gradients, state)
            return gradients, value, eqx.apply_updates(model, updates), state

        self.compiled = step

    def step(self, rows):
        _, value, *now = self.compiled((jnp.asarray(ROWS[rows]), jnp.asarray(LABELS[rows])), *self.now)
        self.now = now
        return value

    def outputs(self):
        model = eqx.nn.inference_mode(self.now[0])
        return np.asarray(jax.vmap(model)(ROWS[:40])), np.asarray(jax.vmap(model.fc)(ROWS[:40]))


class LinenTraining:
    """Parameters in a tuple, statistics of batches apart from them, and a moving average beside."""

    def __init__(self):
        net = LinenNet(train=True)
        variables = LinenNet().init(jax.random.key(0), ROWS[:1])
        self.model = LinenNet().bind(variables)
        params, norm = variables["params"], variables["batch_stats"]
        self.now = norm, params, ADAM.init(params), jax.tree.map(jnp.copy, params)

        @jax.jit
        def step(norm, params, state, average, x, y):
            def of(params):
                variables = {"params": params, "batch_stats": norm}
                logits, changed = net.apply(variables, x, mutable=["batch_stats"])
                return loss(logits, y), changed["batch_stats"]

            (value, norm), gradients = jax.value_and_grad(of, has_aux=True)(params)
            updates, state = ADAM.update(gradients, state)
            params = optax.apply_updates(params, updates)
            average = jax.tree.map(lambda one, other: 0.9 * one + 0.1 * other, average, params)
            return average, (params, state), norm, value

        self.compiled = step

    def step(self, rows):
        average, (params, state), norm, value = self.compiled(*self.now, ROWS[rows], LABELS[rows])
        self.now = norm, params, state, average
        return value

    def outputs(self):
        variables = {"params": self.now[1], "batch_stats": self.now[0]}
        fc = self.now[1]["fc"]
        return np.asarray(LinenNet().apply(variables, ROWS[:40])), ROWS[:40] @ fc["kernel"] + fc["bias"]


class SplitTraining:
    """An NNX module that is split into definition and state."""

    def __init__(self):
        self.model = NnxNet()
        self.definition, state = nnx.split(self.model)
        self.now = state, ADAM.init(state)

        @jax.jit
        def step(definition, state, moments, x, y):
            def of(state):
                return loss(nnx.merge(definition, state)(x), y)

            value, gradients = jax.value_and_grad(of)(state)
            updates, moments = ADAM.update(gradients, moments)
            return optax.apply_updates(state, updates), moments, value

        self.compiled = step

    def step(self, rows):
        *self.now, value = self.compiled(self.definition, *self.now, ROWS[rows], LABELS[rows])
        return value

    def outputs(self):
        model = nnx.merge(self.definition, self.now[0])
        return np.asarray(model(ROWS[:40])), np.asarray(model.fc(ROWS[:40]))


TRAININGS = [EquinoxTraining, LinenTraining, SplitTraining]


def train(training, watch=None, epochs=3):
    """Return the losses, and what the framework itself computes at the end of each epoch."""
    losses, expected = [], []
    for epoch in range(epochs):
        if watch is not None:
            watch.epoch = epoch
        for rows in np.split(np.arange(96), 4):
            losses.append(np.asarray(training.step(rows)).tobytes())
        expected.append(training.outputs())
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(training.now, eqx.is_array))]
    return losses, [array.tobytes() for array in arrays], expected


@pytest.fixture
def sent(monkeypatch):
    """Return the list of the records that a sender gets."""
    records = []

    def gather(self, record, nbytes, contents=None):
        records.append(record)

    monkeypatch.setattr(Sender, "reserve", lambda *args: True)  # although no server answers
    monkeypatch.setattr(Sender, "gather", gather)
    return records


@pytest.mark.parametrize("kind", TRAININGS)
def test_looks_are_of_the_trained_model(kind, sent):
    plain = train(kind())
    training = kind()
    untrained = training.outputs()
    with probe(training.model, port=9, probe_set=SET, structure=False) as watch:
        watch.run_probe_set()
        training.compiled = watch.through(training.compiled)
        losses, state, expected = train(training, _Shifted(watch))
    assert (losses, state) == plain[:2]
    assert [each for each in watch.status()["faults"] if "does not answer" not in each] == []
    looks = {}
    for record in sent:
        looks.setdefault(record.epoch, {})[record.address] = record
    assert sorted(looks) == [0, 1, 2, 3]
    for epoch, (output, hidden) in enumerate([untrained, *expected]):
        np.testing.assert_allclose(looks[epoch][""].array, output, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(looks[epoch]["fc"].array, hidden, rtol=1e-5, atol=1e-6)
        assert looks[epoch][""].items.tolist() == list(range(40))
        assert looks[epoch][""].mode == "probe"


class _Shifted:
    """A probe whose epochs are numbered from 1."""

    def __init__(self, watch):
        object.__setattr__(self, "watch", watch)

    def __setattr__(self, name, value):
        self.watch.epoch = value + 1


@pytest.mark.parametrize("kind", TRAININGS)
def test_looks_before_steps_need_no_second_step(kind, sent):
    training = kind()
    with probe(training.model, port=9, probe_set=SET, structure=False, every=1) as watch:
        training.compiled = watch.through(training.compiled)
        expected = [training.outputs()]
        for rows in np.split(np.arange(96), 4):
            training.step(rows)
            expected.append(training.outputs())
    looks = {record.epoch: record.array for record in sent if not record.address}
    assert sorted(looks) == [0, 1, 2, 3, 4]
    for number, (output, _) in enumerate(expected):
        np.testing.assert_allclose(looks[number], output, rtol=1e-5, atol=1e-6)


def faults_of(model, use, **options):
    """Return the faults of a probe set, and the numbers of the epochs with records."""
    with probe(model, port=9, probe_set=SET, structure=False, **options) as watch:
        use(watch)
    return " ".join(watch.status()["faults"]), watch


def test_first_look_after_one_step_is_refused(sent):
    training = EquinoxTraining()

    def use(watch):
        training.compiled = watch.through(training.compiled)
        training.step(slice(None))
        watch.epoch = 1
        training.step(slice(None))
        training.step(slice(None))

    faults, _ = faults_of(training.model, use)
    assert "known once another step was given it" in faults
    assert {record.epoch for record in sent} == {1}
    last = [record.array for record in sent if not record.address]
    np.testing.assert_allclose(last[0], training.outputs()[0], rtol=1e-5, atol=1e-6)


def test_step_that_returns_gradients_is_refused(sent):
    model = eqx.nn.Linear(6, 3, key=jax.random.key(0))  # whose gradients are built alike

    def use(watch):
        @eqx.filter_jit
        def gradients(model, x, y):
            return eqx.filter_grad(lambda model: loss(jax.vmap(model)(x), y))(model)

        step, now = watch.through(gradients), model
        for epoch in (0, 0, 1, 1):
            watch.epoch = epoch
            now = eqx.apply_updates(now, jax.tree.map(lambda g: -0.1 * g, step(now, ROWS, LABELS)))

    faults, _ = faults_of(model, use)
    assert "does not return the model that the next step gets" in faults
    assert sent == []


@pytest.mark.parametrize("case", ["other model", "copy", "twice"])
def test_step_without_the_very_arrays_is_refused(case, sent):
    training = EquinoxTraining()
    model, state = training.now

    def use(watch):
        step, data, given = watch.through(training.compiled), (jnp.asarray(ROWS), jnp.asarray(LABELS)), model
        if case == "other model":
            given = EquinoxNet(jax.random.key(5))
        elif case == "copy":
            given = jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, model)
        elif case == "twice":
            step = watch.through(eqx.filter_jit(lambda data, model, state: (model, state)))
            data = *data, model
        step(data, given, state)

    faults, _ = faults_of(training.model, use)
    assert "was given another model, or a copy" in faults
    assert sent == []


def test_evaluation_and_frozen_arrays_between_steps(sent):
    """An observed evaluation returns nothing of the model; frozen arrays are not in the step's result."""
    first = EquinoxNet(jax.random.key(0))

    @eqx.filter_jit
    def step(model, x):
        return jax.tree.map(lambda array: array * 1.5, model.out), jax.vmap(model.fc)(x).sum()

    @eqx.filter_jit
    def evaluate(model, x):
        return jax.vmap(model)(x).argmax(1).sum()

    now = first
    with probe(first, port=9, probe_set=SET, structure=False) as watch:
        train_step, test_step = watch.through(step), watch.through(evaluate)
        for epoch in range(3):
            watch.epoch = epoch
            for _ in range(2):
                out, _ = train_step(now, ROWS)
                now = eqx.tree_at(lambda model: model.out, now, out)
            test_step(eqx.nn.inference_mode(now), ROWS)
            expected = np.asarray(jax.vmap(eqx.nn.inference_mode(now))(ROWS[:40]))
            watch.epoch = epoch + 1
            looks = {record.epoch: record.array for record in sent if not record.address}
            np.testing.assert_allclose(looks[epoch], expected, rtol=1e-5, atol=1e-6)
    assert [fault for fault in watch.status()["faults"] if "model" in fault and "step" in fault] == []


def test_linen_module_without_variables_is_refused():
    with pytest.raises(InputError, match=r"Pass module.bind\(variables\)"):
        probe(LinenNet(), port=9, probe_set=SET)


def test_sixteen_looks_at_a_linen_model_compile_once(sent):
    training = LinenTraining()
    with probe(training.model, port=9, probe_set=SET, structure=False) as watch:
        training.compiled = watch.through(training.compiled)
        for epoch in range(20):
            watch.epoch = epoch
            training.step(slice(0, 48))
            training.step(slice(48, 96))
        assert len(watch._attachment._shadows) == 1
    assert len({record.epoch for record in sent}) == 20


@pytest.mark.parametrize("kind", TRAININGS)
def test_scores_of_a_server(kind, tmp_path):
    training = kind()
    with Server(no_token=True, database=tmp_path / "x.db", port=0) as server:
        with probe(training.model, server.host, server.port, name="net", run="r", probe_set=SET) as watch:
            watch.run_probe_set()
            training.compiled = watch.through(training.compiled)
            train(training, _Shifted(watch), epochs=2)
        assert flush(server.host, server.port)
    with Database(tmp_path / "x.db") as database:
        points = database.points("r", "net").where(target="class", score="linear_f1")
        assert set(points["epoch"].tolist()) == {0.0, 1.0, 2.0}
        assert {"", "fc", "out"} <= set(points["address"].tolist())


class Precision(nnx.Module):
    """A model whose output shows the precision that JAX multiplies with."""

    def __init__(self):
        self.fc, self.slope = nnx.Linear(6, 3, rngs=nnx.Rngs(0)), 0

    def __call__(self, x):
        return self.fc(x) * 0 * self.slope + float(jax.config.jax_default_matmul_precision == "highest")


@pytest.mark.parametrize("first", ["highest", None])
@pytest.mark.parametrize("later", ["highest", None])
def test_every_look_has_the_precision_of_the_first(first, later, sent):
    model = Precision()
    with probe(model, port=9, probe_set=SET, structure=False) as watch:
        with jax.default_matmul_precision(first):
            watch.run_probe_set()
        jax.config.update("jax_default_matmul_precision", later)
        try:
            watch.epoch = 1
            model.fc.kernel[...] = model.fc.kernel[...] + 1
            model.slope = 1  # so that the look is compiled anew
            watch.run_probe_set()
            assert jax.config.jax_default_matmul_precision == later
        finally:
            jax.config.update("jax_default_matmul_precision", None)
    looks = {record.epoch: record.array for record in sent if not record.address}
    assert {epoch: array.max() for epoch, array in looks.items()} == dict.fromkeys((0, 1), first == "highest")


@pytest.mark.parametrize("asked", [False, True], ids=["at the end", "run_probe_set"])
@pytest.mark.parametrize("named", [False, True], ids=["no epochs", "epochs"])
@pytest.mark.parametrize("kind", TRAININGS)
def test_trained_model_is_not_shown_as_epoch_0(kind, named, asked, sent):
    training = kind()
    with probe(training.model, port=9, probe_set=SET, structure=False) as watch:
        if named:
            watch.epoch = 1
        training.compiled = watch.through(training.compiled)
        train(training, epochs=1)
        if asked:
            watch.run_probe_set()
    looks = {record.epoch: record.array for record in sent if not record.address}
    assert list(looks) == ([0, 1] if named else [])
    if named:
        np.testing.assert_allclose(looks[1], training.outputs()[0], rtol=1e-5, atol=1e-6)
    faults = [fault for fault in watch.status()["faults"] if "nothing says which epoch this is" in fault]
    assert len(faults) == (not named)


def test_changed_model_is_not_shown_twice_in_an_epoch(sent):
    """A model of Equinox is the same object after its steps."""
    training = EquinoxTraining()
    with probe(training.model, port=9, probe_set=SET, structure=False) as watch:
        watch.epoch = 0
        training.compiled = watch.through(training.compiled)
        watch.run_probe_set()
        train(training, epochs=1)
        watch.run_probe_set()
    assert {record.epoch for record in sent} == {0}
    assert any("already run in epoch 0" in fault for fault in watch.status()["faults"])


class TimeFirst(nnx.Module):
    """A model whose recurrent layer has time first, and a head for whole items."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.embed = nnx.Linear(3, 4, rngs=rngs)
        self.rnn = nnx.RNN(nnx.GRUCell(4, 5, rngs=rngs), time_major=True)
        self.behind, self.out = nnx.Linear(5, 5, rngs=rngs), nnx.Linear(5, 2, rngs=rngs)

    def __call__(self, x):
        hidden = self.behind(self.rnn(self.embed(x).swapaxes(0, 1)))
        return self.out(hidden.mean(0))

    def item(self, x):
        """Return what the layers compute of one item."""
        embedded = self.embed(x)
        rnn = self.rnn(embedded[:, None])[:, 0]
        behind = self.behind(rnn)
        out = self.out(behind.mean(0))
        return {"embed": embedded, "rnn": rnn, "behind": behind, "out": out, "": out}


class TimeFirstLinen(linen.Module):
    """The same of Linen, which makes its layers in the call."""

    @linen.compact
    def __call__(self, x):
        hidden = linen.RNN(linen.GRUCell(5), time_major=True, name="rnn")(x.swapaxes(0, 1))
        return linen.Dense(2, name="out")(hidden.mean(0))


@pytest.mark.parametrize("length", [6, 9], ids=["as long as the set", "longer"])
@pytest.mark.parametrize("of_set", [True, False], ids=["probe set", "own passes"])
def test_rows_of_layers_with_time_first_are_of_their_items(length, of_set, sent):
    model = TimeFirst()
    inputs = RANDOM.normal(size=(6, length, 3)).astype(np.float32)
    labels = {"half": [0, 1] * 3}
    options = {"probe_set": (inputs, labels)} if of_set else {"block": True}
    with probe(model, port=9, structure=False, **options) as watch:
        if of_set:
            watch.run_probe_set()
        else:
            watch.register_targets(name="half", targets=labels["half"])
            step = watch.through(nnx.jit(lambda model, x: model(x)))
            watch.items = range(6)
            step(model, inputs)
    faults = " ".join(watch.status()["faults"])
    alone = [model.item(jnp.asarray(one)) for one in inputs]
    named = set()
    for record in sent:
        if record.items is None or (record.items < 0).any() or record.address not in alone[0]:
            continue
        named.add(record.address)
        rows = np.moveaxis(record.array, record.batch_axis, 0)
        for at, item in enumerate(record.items):
            np.testing.assert_allclose(rows[at], alone[item][record.address], rtol=1e-4, atol=1e-5)
    if of_set:
        assert named == set(alone[0])
        assert "is the batch is not known" not in faults
    elif named != set(alone[0]):
        assert "is the batch is not known" in faults


def test_rows_of_a_linen_layer_with_time_first_are_of_their_items(sent):
    inputs = RANDOM.normal(size=(6, 6, 3)).astype(np.float32)
    module = TimeFirstLinen()
    model = module.bind(module.init(jax.random.key(0), inputs))
    with probe(model, port=9, structure=False, probe_set=(inputs, {"half": [0, 1] * 3})) as watch:
        watch.run_probe_set()
    (rnn,) = [record for record in sent if record.address == "rnn"]
    assert (rnn.batch_axis, rnn.items.tolist()) == (1, list(range(6)))
