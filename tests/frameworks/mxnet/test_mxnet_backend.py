"""The MXNet backend beyond the contract: hybridized graphs, traces, real models, and a real server."""

from __future__ import annotations

import copy
import importlib.util
import pickle
from collections import namedtuple

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn
from mxnet.gluon.model_zoo import vision
from test_mxnet_contract import ModuleSubject, Net, symbol
from thread_help import run_in_threads

import intus
from backends.contract import Collect, attach
from backends.served import server
from intus.backends.base import for_model
from intus.backends.mxnet import MXNetBackend
from intus.core.errors import CaptureError, InputError, MissingExtraError
from intus.monitoring.sender import Sender

X = mx.nd.array(np.random.default_rng(0).normal(size=(4, 6)))


class Kinds:
    kinds = ("output", "grad_output", "parameter")


def dense(hybridized=False, **shared):
    mx.random.seed(0)
    net = nn.HybridSequential()
    net.add(nn.Dense(5, activation="relu"), nn.Dense(3))
    net.initialize()
    if hybridized:
        net.hybridize()
    return net


class Twice(gluon.HybridBlock):
    """Two blocks that compute the same from the same input, which MXNet merges."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.one, self.two = nn.Activation("relu"), nn.Activation("relu")

    def hybrid_forward(self, F, x):  # noqa: N803
        return self.one(x) * 2 + self.two(x)


def train(net, xs):
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001})
    for x in xs:
        with autograd.record():
            loss = net(x).square().sum()
        loss.backward()
        trainer.step(4)


def values(net):
    return [parameter.data().asnumpy().tobytes() for parameter in net.collect_params().values()]


@pytest.mark.parametrize("hybridized", [False, True])
def test_parameters_without_shape_before_first_call(hybridized):
    plain, net, tap = dense(hybridized), dense(hybridized), Collect()
    train(plain, [X, X])
    mx.random.seed(0)
    net = dense(hybridized)
    handle = attach(Kinds, net, tap)
    train(net, [X, X])
    handle.remove()
    assert tap.errors == []
    assert values(net) == values(plain)
    assert {address for kind, address in tap.seen[0] if kind == "parameter"} == {
        "0.weight", "0.bias", "1.weight", "1.bias",
    }  # fmt: skip


def test_hybridize_while_attached():
    plain, net, tap = dense(), dense(), Collect()
    for one in (plain, net):
        mx.random.seed(0)
        one(X)
    train(plain, [X])
    plain.hybridize()
    train(plain, [X, X])
    handle = attach(Kinds, net, tap)
    train(net, [X])
    net.hybridize()
    train(net, [X, X])
    handle.remove()
    assert tap.errors == []
    assert [set(seen) for seen in tap.seen[1:]] == [set(tap.seen[0])] * 2
    assert values(net) == values(plain)


def test_hybridized_block_inside_block():
    net = nn.Sequential()
    net.add(dense(hybridized=True), nn.Dense(2))
    net[1].initialize()
    tap = Collect()
    handle = attach(Kinds, net, tap)
    train(net, [X, X])
    handle.remove()
    assert tap.errors == []
    outputs = [address for kind, address in tap.seen[1] if kind == "output"]
    assert sorted(outputs) == ["", "0", "0.0", "0.0.act", "0.1", "1"]
    assert np.array_equal(tap.seen[1]["output", "0.1"], tap.seen[1]["output", "0"])


def test_operations_that_are_merged_are_refused():
    """The bits of gradients would be others if MXNet could not merge the two."""
    net, tap = Twice(), Collect()
    net.hybridize()
    x = X.copy()
    x.attach_grad()
    handle = attach(Kinds, net, tap)
    with autograd.record():
        net(x).sum().backward()
    handle.remove()
    assert "Twice runs Activation twice on the same input" in str(tap.errors[0])
    assert {address for _, address in tap.seen[0]} == {""}
    assert np.array_equal(x.grad.asnumpy(), 3.0 * (X.asnumpy() > 0))


def test_gradients_of_calls_that_overlap():
    """Of several calls before a backward pass, gradients of blocks belong to their calls, or are refused."""
    for hybridized in (False, True):
        net, tap = dense(hybridized), Collect()
        net(X)
        handle = attach(Kinds, net, tap)
        with autograd.record():
            first, second = net(X).sum(), (net(X) * 2).sum()
            loss = first + second
        loss.backward()
        handle.remove()
        if hybridized:
            assert "was called again before its backward pass" in str(tap.errors[0])
            assert ("grad_output", "1") not in {*tap.seen[0], *tap.seen[1]}
        else:
            assert (tap.seen[0]["grad_output", "1"] == 1).all()
            assert (tap.seen[1]["grad_output", "1"] == 2).all()


@pytest.mark.filterwarnings("ignore:register_op_hook is experimental")
def test_operation_hook_of_user_is_kept():
    net, tap, called = dense(hybridized=True), Collect(), []
    net(X)
    net.register_op_hook(lambda *given: called.append(given))
    handle = attach(Kinds, net, tap)
    net(X)
    handle.remove()
    assert "has an operation hook of its own" in str(tap.errors[0])
    assert len(called) > 0


@pytest.mark.parametrize("hybridized", [True, False])
def test_images_have_no_gradient_that_is_missed(hybridized):
    """That nothing is recorded of the gradient of data is no fault: no training computes it."""
    model = nn.HybridSequential()
    model.add(nn.Conv2D(4, 3), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Dense(2))
    model.initialize()
    if hybridized:
        model.hybridize()
    backend, tap = for_model(model), Collect()
    handle = backend.attach(model, backend.operations(model), ("grad_output", "grad_input"), tap)
    with autograd.record():
        loss = model(mx.nd.ones((2, 3, 8, 8))).sum()
    loss.backward()
    handle.remove()
    refused = {str(error).partition(" is not recorded")[0] for error in tap.errors}
    if hybridized:
        assert refused == set()
        assert {("grad_output", "0"), ("grad_input", "1")} <= set(tap.seen[0])
    else:  # what has a gradient, and four axes
        assert refused == {f"grad_{end}" for end in (
            "output of '0'", "output of '1'", "output of '2'", "input of '1'", "input of '2'", "input of '3'",
        )}  # fmt: skip
    assert ("grad_output", "3") in tap.seen[0]


def test_what_each_pass_refuses_is_one_trouble(caplog):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.Conv2D(4, 3), nn.GlobalAvgPool2D(), nn.Dense(2))
    net.initialize()
    net(image := mx.nd.ones((2, 3, 8, 8)))
    with intus.probe(net, "127.0.0.1", 2, kinds=("output", "grad_output"), budget=float("inf")) as watch:
        train(net, [image] * 5)
        status = watch.status()
    (fault,) = [fault for fault in status["faults"] if "is not recorded" in fault]
    assert status["troubles"] == 1
    assert caplog.text.count("is not recorded") == 1
    assert "grad_output of '0' is not recorded: the array has 4 axes" in fault


def test_all_layers_that_are_refused_for_one_reason_are_named(caplog, monkeypatch):
    news: list[str] = []  # as the page gets it
    monkeypatch.setattr(Sender, "tell", lambda self, epoch, told: news.extend(one["text"] for one in told))
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Conv2D(4, 3), nn.Dense(2))
    net.initialize()
    net(image := mx.nd.ones((2, 3, 8, 8)))
    with intus.probe(net, "127.0.0.1", 2, kinds=("output", "grad_output"), budget=float("inf")) as watch:
        train(net, [image] * 3)
        faults = watch.status()["faults"]
    sentence = "What an earlier warning says of '0' of HybridSequential is so of 2 more: '1' and '2'."
    assert [fault for fault in faults if "is so of" in fault] == [sentence]
    assert caplog.text.count(sentence[1:]) == 1
    assert news.count(sentence) == 1


class Ended:
    """An object with arrays, which is no container."""

    def __init__(self, late, early):
        self.late, self.early = late, early


Pair = namedtuple("Pair", "late early")


@pytest.mark.parametrize("made", [Pair, Ended, lambda late, early: {"late": late, "early": early}])
def test_first_of_what_a_block_returns_is_recorded_with_its_gradient(made):
    class Heads(gluon.Block):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.a, self.b = nn.Dense(3, in_units=6), nn.Dense(2, in_units=6)

        def forward(self, x):
            return made(self.a(x), self.b(x))

    class Net(gluon.Block):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.heads = Heads()

        def forward(self, x):
            parts = self.heads(x)
            late, early = parts.values() if isinstance(parts, dict) else (parts.late, parts.early)
            return (late**2).sum() + early.sum()

    net, tap = Net(), Collect()
    net.initialize()
    handle = attach(Kinds, net, tap)
    with autograd.record():
        loss = net(X)
    loss.backward()
    handle.remove()
    late = net.heads.a(X).asnumpy()
    np.testing.assert_array_equal(tap.seen[0]["output", "heads"], late)
    if made is Ended:
        (error,) = tap.errors
        assert "grad_output of 'heads' is not recorded, because the array is part of a Ended" in str(error)
    else:
        assert tap.errors == []
        np.testing.assert_allclose(tap.seen[0]["grad_output", "heads"], 2 * late, 1e-5)


def test_partitioned_graph_is_refused():
    net, tap = dense(hybridized=True), Collect()
    net(X)
    other = dense(hybridized=True)
    other.add(nn.Dense(2))
    net._cached_graph = (net._cached_graph[0], net._cached_graph[1] * 2)  # as partitioning replaces it
    handle = attach(Kinds, net, tap)
    net(X)
    handle.remove()
    assert "another graph than its code builds now" in str(tap.errors[0])


@pytest.mark.parametrize("hybridized", [False, True])
def test_gradient_that_is_added_to_an_input(hybridized):
    """MXNet's own identities lose what ``grad_req="add"`` accumulated, so that such arrays get none."""

    class Inputs(Kinds):
        kinds = ("grad_input", "grad_output")

    def accumulated():
        x.grad[:] = 1
        with autograd.record():
            net(x).sum().backward()
        return x.grad.asnumpy()

    net, x = dense(hybridized), X.copy()
    net(x)
    x.attach_grad("add")
    expected, tap = accumulated(), Collect()
    assert not np.array_equal(expected, np.ones_like(expected))
    handle = attach(Inputs, net, tap)
    assert np.array_equal(accumulated(), expected)
    handle.remove()
    assert "the array has a gradient of its own. Read .grad" in str(tap.errors[0])
    assert {kind for kind, address in tap.seen[0] if address == "0"} == {"grad_output"}


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_of_probed_model_are_not_probed(copier):
    net, tap = dense(), Collect()
    expected = net(X).asnumpy()
    handle = attach(Kinds, net, tap)
    twin = copier(net)
    assert np.array_equal(twin(X).asnumpy(), expected)
    assert tap.passes == 0
    handle.remove()


def test_exception_in_forward_ends_pass():
    net, tap = dense(), Collect()
    net(X)
    handle = attach(Kinds, net, tap)
    with pytest.raises(Exception, match=r"(?i)shape"):
        net(mx.nd.ones((4, 7))).wait_to_read()
    assert (tap.passes, tap.ended) == (1, 1)
    net(X)
    handle.remove()
    assert (tap.passes, tap.ended, tap.errors) == (2, 2, [])


class Every:
    kinds = ("output", "input", "grad_output", "grad_input", "parameter")


@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize("make", [vision.resnet18_v1, vision.mobilenet1_0])
def test_model_zoo(make, hybridized):
    """The parameters of a real network have the same bits as without a probe.

    Gradients that could not be read without changing them are refused.
    """
    x = mx.nd.array(np.random.default_rng(0).normal(size=(2, 3, 32, 32)))
    taps, states = [], []
    for watched in (False, True):
        mx.random.seed(0)
        np.random.seed(0)
        net = make(classes=10)
        net.initialize(mx.init.Xavier())
        if hybridized:
            net.hybridize()
        tap = Collect()
        handle = attach(Every, net, tap) if watched else None
        train(net, [x, x])
        if handle:
            handle.remove()
        taps.append(tap)
        states.append(values(net))
    assert states[0] == states[1]
    seen = taps[1].seen[1]
    names = {operation.address for operation in for_model(net).operations(net)}
    assert {address for kind, address in seen if kind == "output"} == names
    gradients = {address for kind, address in seen if kind == "grad_output"}
    if hybridized:
        assert taps[1].errors == []
        assert gradients == names
    else:
        assert {"", "output"} <= gradients < names
        assert all(seen["output", address].ndim == 2 for address in gradients)
        refused = {str(error) for error in taps[1].errors}
        assert {text.split("'")[1] for text in refused if text.startswith("grad_output")} == names - gradients
        assert all("Call hybridize()" in text for text in refused)


def test_module_of_model_zoo():
    results = []
    for watched in (False, True):
        mx.random.seed(0)
        np.random.seed(0)
        net = vision.resnet18_v1(classes=10, prefix="net_")
        model = mx.mod.Module(mx.sym.SoftmaxOutput(net(mx.sym.var("data")), name="softmax"))
        model.bind([("data", (2, 3, 32, 32))], [("softmax_label", (2,))])
        model.init_params(mx.init.Xavier())
        model.init_optimizer()
        tap = Collect()
        handle = attach(ModuleSubject, model, tap) if watched else None
        for _ in range(2):
            model.forward_backward(mx.io.DataBatch([mx.nd.ones((2, 3, 32, 32))], [mx.nd.array([1, 2])]))
            model.update()
        if handle:
            handle.remove()
            assert tap.errors == []
        mx.nd.waitall()  # MXNet does not make get_params wait for the statistics of batch norm
        trained, states = model.get_params()
        results.append([array.asnumpy().tobytes() for array in (*trained.values(), *states.values())])
    assert results[0] == results[1]
    kinds = {kind for kind, _ in tap.seen[1]}
    assert kinds == set(ModuleSubject.kinds)
    assert len([1 for kind, _ in tap.seen[1] if kind == "grad_output"]) > 60


def test_trace_of_block():
    """The graph has the blocks as modules, and values are those of the layers called one by one."""
    net = Net()
    net.initialize()
    before = values(net)
    graph, found, *_ = MXNetBackend().trace(net, (X,), {})
    layers = [net.first, net.norm, net.act, net.drop, net.cell, net.cell]
    value, outputs = X, []
    for layer in layers:
        value = layer(value)
        outputs.append(value.asnumpy())
    for at, address in enumerate(("first", "norm", "act", "drop", "cell:1", "cell:2")):
        (row,) = graph.rows(address)
        np.testing.assert_allclose(found[row], outputs[at], rtol=1e-6, atol=1e-6)
    (row,) = graph.rows("head.0")
    np.testing.assert_allclose(found[row], net(X).asnumpy(), rtol=1e-6, atol=1e-6)
    assert [module.address for module in graph.modules] == [
        "", "first", "norm", "act", "drop", "cell", "one", "two", "head", "head.0",
    ]  # fmt: skip
    shapes = {one.address: one.shape for one in (*graph.params, *graph.buffers)}
    assert shapes == {name: p.shape for name, p in net._collect_params_with_prefix().items()}
    assert set(found) == set(range(len(graph.ops))) - set(graph.rows_of(5)) or len(found) >= len(graph)
    assert values(net) == before
    assert all(parameter._var is None for parameter in net.collect_params().values())
    assert "intus" not in str([vars(block).get("forward") for block in net._children.values()])


@pytest.mark.parametrize("make", [vision.resnet18_v1, vision.mobilenet_v2_0_25])
def test_trace_of_model_zoo(make):
    net = make(classes=10)
    net.initialize(mx.init.Xavier())
    x = mx.nd.array(np.random.default_rng(0).normal(size=(1, 3, 64, 64)))
    graph, found, *_ = MXNetBackend().trace(net, (x,), {})
    (last,) = graph.rows("output")
    np.testing.assert_allclose(found[last], net(x).asnumpy(), rtol=1e-5, atol=1e-5)
    net.hybridize()
    again, values_again, *_ = MXNetBackend().trace(net, (x,), {})
    assert graph.labels == again.labels
    assert all(np.array_equal(found[row], values_again[row]) for row in found)


def test_trace_of_module():
    subject = ModuleSubject()
    model = subject.new()
    graph, found, *_ = MXNetBackend().trace(model, (X.asnumpy(),), {})
    model.reshape([("data", (4, 6))], [("softmax_label", (4,))])
    model.forward(mx.io.DataBatch([X]), is_train=False)
    (row,) = graph.rows("softmax")
    np.testing.assert_allclose(found[row], model.get_outputs()[0].asnumpy(), rtol=1e-6, atol=1e-6)
    assert [graph.type_of(graph.rows(name)[0]) for name in ("first", "sum")] == [
        "FullyConnected", "elemwise_add",
    ]  # fmt: skip


def test_trace_says_what_is_not_possible():
    backend = MXNetBackend()
    plain = nn.Sequential()
    plain.add(nn.Dense(2))
    plain.initialize()
    with pytest.raises(CaptureError, match=r"Sequential is a Block, .*HybridBlock"):
        backend.trace(plain, (X,), {})
    with pytest.raises(InputError, match="no keyword arguments, got 'x'"):
        backend.trace(dense(), (), {"x": X})


def test_refused_modules():
    backend = MXNetBackend()
    unbound = mx.mod.Module(symbol())
    with pytest.raises(InputError, match="not bound"):
        backend.attach(unbound, backend.operations(unbound), ("output",), Collect())
    with pytest.raises(InputError, match="A BucketingModule cannot be observed"):
        backend.operations(mx.mod.BucketingModule(lambda key: (symbol(), [], []), default_bucket_key=1))


def test_batches_of_other_sizes_in_module():
    """The last batch of an epoch is often smaller, for which the module makes another executor."""
    subject, tap = ModuleSubject(), Collect()
    model = subject.new()
    handle = attach(subject, model, tap)
    for rows in (16, 5, 16):
        model.forward(mx.io.DataBatch([mx.nd.ones((rows, 6))], [mx.nd.zeros(rows)]), is_train=True)
        model.backward()
    handle.remove()
    assert tap.errors == []
    assert [seen["output", "head"].shape for seen in tap.seen] == [(16, 3), (5, 3), (16, 3)]
    assert [seen["grad_output", "head"].shape for seen in tap.seen] == [(16, 3), (5, 3), (16, 3)]


@pytest.mark.parametrize("way", ["imperative", "hybridized", "probe set"])
def test_labels_are_learned_on_a_real_server(way, tmp_path):
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 128)
    images = random.normal(size=(128, 6)).astype(np.float32)
    images += 2 * labels[:, None]
    with server(tmp_path) as running:
        where = ("127.0.0.1", running.port)
        net = dense(hybridized=way == "hybridized")
        options = (
            {"probe_set": (mx.nd.array(images), {"side": labels})} if way == "probe set" else {"block": True}
        )
        with intus.probe(net, *where, name="Net", run="r", **options) as watch:
            if way != "probe set":
                intus.register_targets(*where, name="side", targets=labels)
            for watch.epoch in range(2):
                for items in np.split(random.permutation(128), 4):
                    if way != "probe set":
                        watch.items = items
                    net(mx.nd.array(images[items]))
        assert watch.status()["troubles"] == 0
        assert intus.flush(*where)
        points = running.points("r", "Net", "linear_f1", "side")
    assert {"", "0", "1"} <= set(points["address"])
    assert max(points["value"]) > 0.9


def test_trace_of_recurrent_layer_that_makes_its_states():
    layer = gluon.rnn.LSTM(4, input_size=3)
    layer.initialize()
    x = mx.nd.random.normal(shape=(5, 2, 3))
    expected = layer(x).asnumpy()
    trace = intus.trace(layer, x)
    assert np.array_equal(trace.outputs[0].parents[0].value, expected)
    assert "forward" not in vars(layer)
    assert np.array_equal(layer(x).asnumpy(), expected)


@pytest.mark.parametrize(
    ("probability", "recording", "lost"), [(0.5, True, 1), (0.5, False, 0), (0, True, 0)]
)
def test_trace_says_that_random_numbers_were_drawn(probability, recording, lost):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=6), nn.Dropout(probability))
    net.initialize()

    def drawn(traced):
        mx.random.seed(1)
        if traced:
            with autograd.record(train_mode=recording):
                assert len(intus.trace(net, X).not_restored) == lost
        with autograd.record():
            return nn.Dropout(0.5)(mx.nd.ones((50,))).asnumpy()

    assert np.array_equal(drawn(True), drawn(False)) == (not lost)


def test_probe_set_of_numpy_arrays():
    net = dense()
    net(X)
    data = X.asnumpy().astype(np.float64), {"label": [0, 1, 0, 1]}
    with intus.probe(net, "127.0.0.1", 1, probe_set=data) as watch:
        watch.run_probe_set()
        status = watch.status()
    assert (status["troubles"], status["recorded"]) == (
        0,
        4,
    )  # the network, two layers, and the activation of one


@pytest.mark.parametrize("asked", [False, True], ids=["at the end", "run_probe_set"])
@pytest.mark.parametrize("named", [None, 1])
def test_trained_model_is_not_shown_as_epoch_0(named, asked, monkeypatch):
    records = []
    monkeypatch.setattr(Sender, "gather", lambda self, record, *_: records.append(record))
    monkeypatch.setattr(Sender, "reserve", lambda *_: True)
    net = dense()
    net(X)
    data = X.asnumpy(), {"label": [0, 1, 0, 1]}
    with intus.probe(net, "127.0.0.1", 1, probe_set=data, structure=False) as watch:
        if named is not None:
            watch.epoch = named
        train(net, [X, X])
        if asked:
            watch.run_probe_set()
    looks = {record.epoch: record.array for record in records if not record.address}
    assert list(looks) == ([] if named is None else [0, 1])
    if looks:
        np.testing.assert_allclose(looks[1], net(X).asnumpy(), 1e-5)
    faults = [fault for fault in watch.status()["faults"] if "nothing says which epoch this is" in fault]
    assert len(faults) == (named is None)


def test_untrained_model_is_epoch_0(monkeypatch):
    records = []
    monkeypatch.setattr(Sender, "gather", lambda self, record, *_: records.append(record))
    monkeypatch.setattr(Sender, "reserve", lambda *_: True)
    net = dense()
    with intus.probe(net, "127.0.0.1", 1, probe_set=(X.asnumpy(), {}), structure=False):
        pass
    assert {record.epoch for record in records} == {0}


class TimeFirst(gluon.HybridBlock):
    """A network with time first, as recurrent layers of Gluon have by default, and a head for whole items."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.rnn, self.dense = gluon.rnn.GRU(5), gluon.nn.Dense(4, flatten=False)
            self.out = gluon.nn.Dense(2)

    def hybrid_forward(self, f, x):
        return self.out(self.dense(self.rnn(f.swapaxes(x, 0, 1))).mean(axis=0))


@pytest.mark.parametrize("length", [6, 9])
def test_rows_of_recurrent_layers_are_items(length, monkeypatch):
    net, found = TimeFirst(), {}
    net.initialize()
    data = np.random.default_rng(0).normal(size=(6, length, 3)).astype(np.float32)
    net(mx.nd.array(data))
    monkeypatch.setattr(Sender, "gather", lambda self, one, *_: found.setdefault(one.address, one))
    with intus.probe(net, "127.0.0.1", 1, probe_set=(data, {"label": [0, 1] * 3}), structure=False) as watch:
        watch.run_probe_set()
        faults = watch.status()["faults"]
    named = {address for address, one in found.items() if one.items is not None and (one.items >= 0).all()}
    turned = mx.nd.array(data).swapaxes(0, 1)
    dense = net.dense(net.rnn(turned)).asnumpy()
    if length == 6:  # as long as the batch
        assert named == {"rnn"}
        assert any("'dense'" in fault and "is not known" in fault for fault in faults)
    else:
        assert {"rnn", "dense", "out", ""} <= named
        np.testing.assert_allclose(
            np.moveaxis(found["dense"].array, found["dense"].batch_axis, 0)[2], dense[:, 2], 1e-4
        )
    assert found["rnn"].batch_axis == 1


@pytest.mark.skipif(bool(importlib.util.find_spec("uvicorn")), reason="a server can start here")
def test_to_without_the_packages_of_a_server_says_what_to_install(tmp_path):
    net = nn.Dense(3)
    net.initialize()
    needs = r"for to='.*runs.db' needs .*uvicorn, which are not installed. .* pip install 'intus\[server\]'"
    with pytest.raises(MissingExtraError, match=needs):
        intus.probe(net, to=tmp_path / "runs.db")
    assert not list(tmp_path.iterdir())


class Momentum(gluon.Block):
    """A block whose forward writes to its parameters, as a momentum encoder does."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Dense(2, in_units=4), nn.Dense(2, in_units=4)

    def forward(self, x):
        self.key.weight.set_data(0.9 * self.key.weight.data() + 0.1 * self.query.weight.data())
        return self.query(x) + self.key(x)


def test_evaluation_restores_parameters_that_a_forward_writes():
    model = Momentum()
    model.initialize()
    before = model.key.weight.data().asnumpy()
    with for_model(model).evaluation(model) as run:
        run(np.ones((3, 4), np.float32))
    assert np.array_equal(model.key.weight.data().asnumpy(), before)
    model(mx.nd.ones((3, 4)))
    assert not np.array_equal(model.key.weight.data().asnumpy(), before)


class Pair(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.one, self.two = nn.Dense(4), nn.Dense(3)

    def hybrid_forward(self, F, x):  # noqa: N803
        h = self.one(x)
        return self.two(h), h


class Around(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.pair, self.end = Pair(), nn.Dense(3)

    def hybrid_forward(self, F, x):  # noqa: N803
        first, second = self.pair(x)
        return first + self.end(second)


@pytest.mark.parametrize("hybridized", [False, True])
def test_several_arrays_are_told(hybridized):
    """A notice names the arrays that a block returns and that are not recorded, as for PyTorch."""
    told = []
    for net, address in ((Pair(), ""), (Around(), "pair")):
        net.initialize()
        if hybridized:
            net.hybridize()
        tap = Collect()
        tap.returned = lambda *facts, packed: told.append(facts)
        handle = attach(Kinds, net, tap)
        net(X)
        net(X)
        handle.remove()
        assert tap.errors == []
        assert told == [(address, "0", ["1"])]
        told.clear()


def test_graph_that_cannot_be_made(caplog):
    """Only the graph of the page failed, and that is what is said."""

    class Last(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.rnn, self.end = gluon.rnn.LSTM(5), nn.Dense(3)

        def hybrid_forward(self, F, x):  # noqa: N803
            return self.end(self.rnn(x)[-1])

    net = Last()
    net.initialize()
    with intus.probe(net, "127.0.0.1", 9, budget=float("inf")) as watch:
        net(mx.nd.ones((4, 3, 6)))
        status = watch.status()
    assert status["troubles"] == 0
    (fault,) = [one for one in status["faults"] if "MXNetError" in one]
    assert fault.startswith("The page has no graph of Last")
    assert "could not record" not in fault
    assert "Traceback" not in fault


@pytest.mark.parametrize("hybridized", [False, True])
def test_gradients_of_two_backward_passes(hybridized):
    """Each has an address of its own, so that the rows of one address are those of the batch once."""
    net, tap = dense(hybridized), Collect()
    handle = attach(Kinds, net, tap)
    with autograd.record():
        y = net(X)
        first, second = y.sum(), (y**2).sum()
    first.backward(retain_graph=True)
    second.backward()
    with autograd.record():
        third = net(X).sum()
    third.backward()
    handle.remove()
    assert tap.errors == []
    seen = [{at: value for (kind, at), value in one.items() if kind == "grad_output"} for one in tap.seen]
    assert set(seen[0]) == {"", "0", "0.act", "1", ":2", "0:2", "0.act:2", "1:2"}
    assert set(seen[1]) == {"", "0", "0.act", "1"}
    np.testing.assert_allclose(seen[0]["1"], np.ones((4, 3)))
    np.testing.assert_allclose(seen[0]["1:2"], 2 * net(X).asnumpy(), rtol=1e-5)


@pytest.mark.parametrize("hybridized", [False, True])
def test_passes_of_threads_are_each_of_one_call(hybridized):
    class Counting(Collect):
        refused = 0

        def refuse_call(self, error):
            self.refused += 1

    net = dense(hybridized)
    net(X)
    tap, calls = Counting(), 40
    handle = MXNetBackend().attach(net, MXNetBackend().operations(net), ("input", "output"), tap)

    def run(number):
        for one in range(calls):
            net(X * (number * 100 + one + 1)).wait_to_read()

    run_in_threads(run, 4)
    handle.remove()
    assert not tap.errors
    assert len(tap.seen) + tap.refused == 4 * calls
    assert len(tap.seen) > 1
    for seen in tap.seen:
        assert {address for _, address in seen} == {"", "0", "0.act", "1"}
        expected = net[0](mx.nd.array(seen["input", "0"])).asnumpy()
        np.testing.assert_allclose(seen["output", "0"], expected, 1e-5)
        np.testing.assert_array_equal(seen["input", "1"], seen["output", "0"])


def test_bucketing_module_is_refused_with_what_one_bucket_records():
    def bucket(key):
        h = mx.sym.FullyConnected(
            mx.sym.sum(mx.sym.var("data"), axis=1, keepdims=True), num_hidden=3, name="fc"
        )
        return (
            mx.sym.SoftmaxOutput(h, mx.sym.var("softmax_label"), name="softmax"),
            ("data",),
            ("softmax_label",),
        )

    model = mx.mod.BucketingModule(bucket, default_bucket_key=9)
    model.bind([mx.io.DataDesc("data", (8, 9))], [mx.io.DataDesc("softmax_label", (8,))])
    for refused in (intus.probe, lambda model: intus.trace(model, mx.nd.ones((8, 9)))):
        with pytest.raises(InputError, match="only the steps of that bucket"):
            refused(model)
    assert "fc" in [one.address for one in MXNetBackend().operations(model._buckets[9])]


def test_module_that_cannot_run_is_refused_by_trace():
    fc = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc")
    model, x = mx.mod.Module(fc, label_names=None), mx.nd.ones((2, 4))
    with pytest.raises(InputError, match=r"The Module is not bound. Call bind\(\)"):
        intus.trace(model, x)
    model.bind([("data", (2, 4))], for_training=False)
    with pytest.raises(InputError, match=r"The Module has no parameters yet. Call init_params\(\)"):
        intus.trace(model, x)
    model.init_params()
    assert intus.trace(model, mx.nd.ones((5, 4))).outputs[0].shape == (5, 3)
    with pytest.raises(InputError, match=r"fc_weight .* of shape \(3, 4\), .* need shape \(3, 6\)"):
        intus.trace(model, mx.nd.ones((2, 6)))
    whole = mx.mod.SequentialModule()
    whole.add(model)
    with pytest.raises(InputError, match="A SequentialModule cannot be observed"):
        intus.trace(whole, x)


@pytest.mark.parametrize("kinds", [("output",), ("grad_output",)])
def test_operations_of_a_module_with_several_outputs_are_told(kinds):
    """The first output is recorded; the symbol itself names all. A normalization shows one of its three."""

    class Told(Collect):
        def __init__(self):
            super().__init__()
            self.told = {}

        def returned(self, address, recorded, others, *, packed):
            self.told[address] = [recorded, *others]

    data = mx.sym.BatchNorm(mx.sym.var("data"), name="norm")
    parts = mx.sym.SliceChannel(data, num_outputs=2, axis=1, name="parts")
    heads = [mx.sym.FullyConnected(parts[at], num_hidden=3, name=f"fc{at}") for at in range(2)]
    whole = mx.sym.Group(heads)
    model = mx.mod.Module(whole, label_names=None)
    model.bind([("data", (4, 6))])
    model.init_params()
    backend, tap = MXNetBackend(), Told()
    handle = backend.attach(model, backend.operations(model), kinds, tap)
    model.forward(mx.io.DataBatch([mx.nd.ones((4, 6))]), is_train=False)
    handle.remove()
    names = [one for one in whole.get_internals().list_outputs() if one.startswith("parts")]
    expected = {"": whole.list_outputs(), "parts": names}
    assert not tap.errors
    assert tap.told == (expected if kinds == ("output",) else {})
