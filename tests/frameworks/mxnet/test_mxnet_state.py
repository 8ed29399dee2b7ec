"""A probe set changes nothing that a model of MXNet keeps, or is refused before it does."""

from __future__ import annotations

import random
from types import SimpleNamespace

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import intus
from intus.backends.base import for_model
from intus.core.errors import InputError

pytestmark = pytest.mark.usefixtures("unsent")
X = np.random.default_rng(0).normal(size=(32, 6)).astype(np.float32)
SET = X[:8], {"half": np.arange(8) // 4}


class Helper:
    """An object of the model's own package that is no block."""

    def __init__(self):
        self.calls = 0


class Keeping:
    """The state of a block. ``next`` returns a number that depends on the calls before."""

    def build(self, of):
        self.of = of
        self.out = nn.Dense(3, in_units=6)
        self.calls, self.seen, self.counts, self.hidden = 0, [0], {"n": 0}, None
        self.sum, self.array = mx.nd.zeros((1, 3)), np.zeros(1)
        self.python, self.numpy = random.Random(0), {"rng": np.random.default_rng(0)}
        self.helper, self.space = Helper(), SimpleNamespace(calls=0)

    def next(self, f):
        return {**PYTHON, **DRAWS}[self.of](self, f)

    def count(self, f):
        self.calls += 1
        return self.calls

    def listed(self, f):
        self.seen.append(1)
        return len(self.seen)

    def in_dict(self, f):
        self.counts["n"] += 1
        return self.counts["n"]

    def hidden_state(self, f):
        self.hidden = 1.0 if self.hidden is None else self.hidden * 0.9
        return self.hidden

    def in_place(self, f):
        self.array += 1
        return float(self.array[0])

    def of_helper(self, f):
        self.helper.calls += 1
        return self.helper.calls

    def of_space(self, f):
        self.space.calls += 1
        return self.space.calls


def dropped_in_training_mode(self, f):
    with autograd.train_mode():
        return f.Dropout(f.ones((1, 3)), p=0.5)


PYTHON = {
    "nothing": lambda self, f: 1.0,
    "counter": Keeping.count,
    "list": Keeping.listed,
    "dict": Keeping.in_dict,
    "hidden state": Keeping.hidden_state,
    "array": Keeping.in_place,
    "counter of an object": Keeping.of_helper,
    "counter of a namespace": Keeping.of_space,
    "random.Random": lambda self, f: self.python.random(),
    "default_rng": lambda self, f: self.numpy["rng"].random(),
    "random": lambda self, f: random.random(),
    "numpy.random": lambda self, f: np.random.random(),
}
DRAWS = {
    "normal": lambda self, f: f.random.normal(shape=(1, 3)),
    "uniform of an operation": lambda self, f: f.random_uniform(shape=(1, 3)),
    "like": lambda self, f: f.random.uniform_like(f.ones((1, 3))),
    "sample": lambda self, f: f.sample_normal(f.ones((3,)), f.ones((3,))).reshape((1, 3)),
    "shuffle": lambda self, f: f.shuffle(f.arange(0, 3)).reshape((1, 3)),
    "dropout always": lambda self, f: f.Dropout(f.ones((1, 3)), p=0.5, mode="always"),
    "numpy's names": lambda self, f: f.np.random.normal(size=(1, 3)).as_nd_ndarray(),
}


class Plain(gluon.Block, Keeping):
    def __init__(self, of):
        super().__init__()
        self.build(of)

    def forward(self, x):
        scale = self.next(mx.nd)
        return self.out(x) * (
            1 + 0.1 * (scale if isinstance(scale, mx.nd.NDArray) else mx.nd.array([[scale]]))
        )


class Summing(gluon.Block):
    """A block that writes to an array of its own that is no parameter."""

    def __init__(self):
        super().__init__()
        self.out, self.sum = nn.Dense(3, in_units=6), mx.nd.zeros((1, 3))

    def forward(self, x):
        out = self.out(x)
        with autograd.pause():
            self.sum += out.mean(axis=0, keepdims=True)
        return out + self.sum


class Hybrid(gluon.HybridBlock, Keeping):
    def __init__(self, of):
        super().__init__()
        self.build(of)

    def hybrid_forward(self, f, x):
        scale = self.next(f)
        out = self.out(x)
        if isinstance(scale, mx.nd.NDArray | mx.sym.Symbol):
            return f.broadcast_mul(out, 1 + 0.1 * scale)
        return out * (1 + 0.1 * scale)


class Within(gluon.Block):
    """A block around one that is hybridized."""

    def __init__(self, of):
        super().__init__()
        self.inner = Hybrid(of)
        self.inner.hybridize()

    def forward(self, x):
        return self.inner(x)


def hybridized(of):
    model = Hybrid(of)
    model.hybridize()
    return model


BUILDS = [Plain, Hybrid, hybridized, Within]


def train(model, *, probed):
    """Return the losses of a training, and the faults of its probe set."""
    mx.random.seed(1)
    random.seed(1)
    np.random.seed(1)
    model.initialize()
    trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.1})
    watch, losses, faults = None, [], []
    if probed:
        watch = intus.probe(model, "127.0.0.1", 1, probe_set=SET)
    mx.random.seed(4)
    for epoch in range(2):
        if probed:
            watch.epoch = epoch
        for start in range(0, 32, 16):
            with autograd.record():
                loss = (model(mx.nd.array(X[start : start + 16])) ** 2).mean()
            loss.backward()
            trainer.step(1)
            losses.append(loss.asnumpy().tobytes())
        if probed:
            watch.run_probe_set()
    if probed:
        watch.remove()
        faults = watch.status()["faults"]
    return losses, mx.nd.random.normal(shape=(3,)).asnumpy().tobytes(), " ".join(faults)


@pytest.mark.parametrize("of", PYTHON)
@pytest.mark.parametrize("build", BUILDS)
def test_training_with_a_probe_set_is_bitwise_identical(build, of, unsent):
    *found, faults = train(build(of), probed=True)
    assert found == list(train(build(of), probed=False)[:2])
    assert "random" not in faults
    assert {record.epoch for record in unsent if record.mode == "probe"} >= {0, 1}


def test_array_of_a_block_is_restored(unsent):
    assert train(Summing(), probed=True)[:2] == train(Summing(), probed=False)[:2]
    assert {record.epoch for record in unsent if record.mode == "probe"} >= {0, 1}


@pytest.mark.parametrize("of", DRAWS)
@pytest.mark.parametrize("build", BUILDS)
def test_probe_set_of_a_model_that_draws_is_refused_before_it_draws(build, of):
    if of == "shuffle" and build in (hybridized, Within):
        pytest.skip("MXNet does not hybridize it")
    *found, faults = train(build(of), probed=True)
    assert found == list(train(build(of), probed=False)[:2])
    assert "draws random numbers in evaluation mode" in faults


def test_dropout_in_training_mode_is_refused(monkeypatch):
    monkeypatch.setitem(DRAWS, "dropped", dropped_in_training_mode)
    model = Plain("dropped")
    model.initialize()
    with for_model(model).evaluation(model) as run, pytest.raises(InputError, match="'Dropout'"):
        run(X[:4])


def test_body_of_a_loop_that_draws_is_refused():
    class Loop(gluon.HybridBlock):
        def hybrid_forward(self, f, x):
            def step(row, state):
                return row + f.random.normal(shape=(6,)), state

            return f.contrib.foreach(step, x, [])[0]

    model = Loop()
    model.hybridize()
    with for_model(model).evaluation(model) as run, pytest.raises(InputError, match="draws random numbers"):
        run(X[:4])


def test_layers_that_draw_in_training_alone_and_initial_values_are_not_refused():
    model = nn.HybridSequential()
    model.add(nn.Dense(4), nn.Dropout(0.5), nn.BatchNorm(), nn.Dense(2))
    model.initialize()
    for _ in range(2):
        with for_model(model).evaluation(model) as run:  # the first pass draws the weights, of which it is
            run(X[:4])  # told the shapes
        model.hybridize()


def test_blocks_that_a_pass_would_make_are_refused():
    """They would be made twice, so that the training drew other weights."""

    class Lazy(gluon.Block):
        def forward(self, x):
            if not self._children:
                self.body = nn.Dense(3)
                self.body.initialize()
            return self.body(x)

    model = Lazy()
    with for_model(model).evaluation(model) as run, pytest.raises(InputError, match="draws random numbers"):
        run(X[:4])
    assert not model._children


def test_module_that_draws_is_refused():
    data = mx.sym.var("data")
    noise = mx.sym.random.normal(shape=(4, 3), name="noise")
    model = mx.mod.Module(mx.sym.FullyConnected(data, num_hidden=3) + noise, label_names=None)
    model.bind([("data", (4, 6))])
    model.init_params()
    with for_model(model).evaluation(model) as run, pytest.raises(InputError, match="'noise"):
        run(X[:4])
    with for_model(model).evaluation(model):
        mx.random.seed(3)
        first = mx.nd.zeros((1,)) + 1  # other operations run
    assert first.asscalar() == 1


def test_hybridizing_once_more_for_the_structure_changes_no_attribute(unsent):
    """The graph of symbols runs the block's code, of which the training knows nothing."""
    model = hybridized("counter")
    model.initialize()
    x = mx.nd.array(X)
    with intus.probe(model, "127.0.0.1", 1, budget=1e9):
        model(x)
    assert model.calls == 1
    intus.trace(model, x)
    assert model.calls == 1


def test_functions_of_mxnet_are_as_before_after_a_pass():
    from mxnet.ndarray import register

    before = register._imperative_invoke, gluon.HybridBlock._call_cached_op
    model = Plain("normal")
    model.initialize()
    with for_model(model).evaluation(model) as run:
        with for_model(model).evaluation(model):
            pass
        with pytest.raises(InputError):
            run(X[:4])
    assert (register._imperative_invoke, gluon.HybridBlock._call_cached_op) == before
    assert model(mx.nd.array(X)).shape == (32, 3)
