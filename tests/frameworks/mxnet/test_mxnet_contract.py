"""The contract of backends, for Gluon blocks, hybridized ones, and Module; the judge is MXNet's autograd."""

from __future__ import annotations

import ctypes

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

from backends.contract import (
    CLASSES,
    FEATURES,
    ROWS,
    BackendContract,
    Subject,
    TraceContract,
    Training,
    batch,
    unchanged,
)

OF_BLOCKS = ("output", "input", "grad_output", "grad_input", "parameter")


class Net(gluon.HybridBlock):
    """Batch norm, dropout, a layer that is called twice, a nested one, and a tensor with three readers."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.first, self.norm = nn.Dense(8, in_units=FEATURES), nn.BatchNorm(in_channels=8)
            self.act, self.drop, self.cell = nn.Activation("relu"), nn.Dropout(0.3), nn.Dense(8, in_units=8)
            self.one, self.two = nn.Dense(8, in_units=8), nn.Dense(8, in_units=8)
            self.head = nn.HybridSequential()
            with self.head.name_scope():
                self.head.add(nn.Dense(CLASSES, in_units=8))

    def hybrid_forward(self, F, x):  # noqa: N803
        x = self.drop(self.act(self.norm(self.first(x))))
        x = self.cell(self.cell(x))
        return self.head(self.one(x) + self.two(x) * 0.5 + x)


class Piece:
    """A layer with its own input, so that autograd gives the gradient of that."""

    def __init__(self, layer, x):
        self.input = x.detach()
        self.input.attach_grad()
        with autograd.record():
            self.output = layer(self.input)

    def backward(self, gradient=None):
        """Return the gradient of the input, given that of the output."""
        self.gradient = gradient
        self.output.backward(gradient)
        return self.input.grad


class GluonSubject(Subject):
    kinds = OF_BLOCKS
    calls = dict.fromkeys(("", "first", "norm", "act", "drop", "one", "two", "head", "head.0"), 1) | {
        "cell": 2
    }

    def __init__(self, name, **hybridized):
        self.name, self._hybridized = name, hybridized

    def new(self):
        mx.random.seed(1)
        np.random.seed(1)
        net = Net()
        net.initialize(mx.init.Xavier())
        if self._hybridized:
            net.hybridize(**self._hybridized)
        return net

    def train(self, model, steps, *, through=unchanged, after=lambda step: None):
        mx.random.seed(0)
        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        trainer = gluon.Trainer(model.collect_params(), "adam", {"learning_rate": 0.01})
        losses = []
        for number in range(steps):
            x, y = map(mx.nd.array, batch(number))
            with autograd.record():
                value = loss(model(x), y)
            value.backward()
            trainer.step(ROWS)
            losses.append(value.asnumpy())
            after(number)
        rest = mx.nd.random.uniform(shape=3).asnumpy()  # the state of the random numbers
        return Training(model, losses, [p.data().asnumpy() for p in model.collect_params().values()] + [rest])

    def expected(self):
        net = self.new()
        found = {("parameter", key): value for key, value in self.parameters(net).items()}
        mx.random.seed(0)
        x, y = map(mx.nd.array, batch(0))
        pieces = {}  # each layer by itself, so that gradients are those of leaves
        for name in ("first", "norm", "act", "drop", "cell", "cell:2"):
            pieces[name] = Piece(getattr(net, name.partition(":")[0]), x)
            x = pieces[name].output
        pieces["one"], pieces["two"] = Piece(net.one, x), Piece(net.two, x)
        pieces["head"] = Piece(net.head, pieces["one"].output + pieces["two"].output * 0.5 + x)
        loss = Piece(lambda output: gluon.loss.SoftmaxCrossEntropyLoss()(output, y), pieces["head"].output)
        total = pieces["head"].backward(loss.backward())
        gradient = pieces["one"].backward(total) + pieces["two"].backward(total * 0.5) + total
        for name in ("cell:2", "cell", "drop", "act", "norm", "first"):
            gradient = pieces[name].backward(gradient)
        pieces["head.0"] = pieces["head"]
        pieces[""] = Piece.__new__(Piece)
        pieces[""].input, pieces[""].output = pieces["first"].input, pieces["head"].output
        pieces[""].gradient = pieces["head"].gradient
        for name, piece in pieces.items():
            found["input", name], found["output", name] = piece.input.asnumpy(), piece.output.asnumpy()
            if name not in ("", "first"):  # whose input is data
                found["grad_input", name] = piece.input.grad.asnumpy()
            found["grad_output", name] = piece.gradient.asnumpy()
        return found

    def parameters(self, model):
        return {key: one.data().asnumpy() for key, one in model._collect_params_with_prefix().items()}

    def evaluated(self):
        return self.new()(mx.nd.array(batch(0)[0])).asnumpy()

    def footprint(self, model):
        found = {}
        for key, block in [("", model), *[(b.name, b) for b in _descendants(model)]]:
            attributes = vars(block)
            graph = attributes["_cached_graph"]
            found[key.replace(model.name, "")] = (
                type(block),
                sorted(attributes),
                [len(attributes["_forward_hooks"]), len(attributes["_forward_pre_hooks"])],
                attributes["_callback"],
                "intus" in graph[1].tojson() if graph else False,
                type(attributes["_cached_op"]).__name__.replace("NoneType", "CachedOp"),
            )
        return found


def _descendants(block):
    for child in block._children.values():
        yield child
        yield from _descendants(child)


def symbol():
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="first")
    x = mx.sym.BatchNorm(x, name="norm", fix_gamma=False)
    x = mx.sym.Dropout(mx.sym.Activation(x, act_type="relu", name="act"), p=0.3, name="drop")
    x = mx.sym.FullyConnected(x, num_hidden=8, name="cell")
    x = mx.sym.elemwise_add(mx.sym.FullyConnected(x, num_hidden=8, name="one"), x, name="sum")
    x = mx.sym.FullyConnected(x, num_hidden=CLASSES, name="head")
    return mx.sym.SoftmaxOutput(x, name="softmax", normalization="batch")


class ModuleSubject(Subject):
    name = "Module"
    kinds = ("output", "grad_output", "parameter", "parameter_grad", "update")
    calls = dict.fromkeys(("", "first", "norm", "act", "drop", "cell", "one", "sum", "head", "softmax"), 1)

    def new(self):
        mx.random.seed(1)
        np.random.seed(1)
        model = mx.mod.Module(symbol(), context=mx.cpu())
        model.bind([("data", (ROWS, FEATURES))], [("softmax_label", (ROWS,))])
        model.init_params(mx.init.Xavier())
        return model

    def train(self, model, steps, *, through=unchanged, after=lambda step: None):
        mx.random.seed(0)
        model.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.01}, force_init=True)
        losses = []
        for number in range(steps):
            x, y = map(mx.nd.array, batch(number))
            model.forward_backward(mx.io.DataBatch([x], [y]))
            model.update()
            chosen = mx.nd.pick(model.get_outputs()[0], y)
            losses.append(chosen.asnumpy())
            after(number)
        rest = mx.nd.random.uniform(shape=3).asnumpy()
        return Training(model, losses, [*self._states(model).values(), rest])

    def _states(self, model):
        trained, states = model.get_params()
        return {name: array.asnumpy() for name, array in {**trained, **states}.items()}

    def expected(self):
        model = self.new()
        before = self._states(model)
        (executor,) = model._exec_group.execs
        seen = {}

        def keep(name, handle):  # as mxnet.monitor.Monitor does
            array = mx.nd.NDArray(ctypes.cast(handle, mx.base.NDArrayHandle), writable=False)
            seen[name.decode()] = array.asnumpy()

        executor.set_monitor_callback(keep)
        self.train(model, 1)
        after = self._states(model)
        found = {("parameter", _address(name)): value for name, value in before.items()}
        found["output", ""] = seen["softmax_output"]
        for name in self.calls:
            if name:
                found["output", name] = seen[f"{name}_output"]
        sources = {
            "first": "norm_backward_output0",
            "norm": "act_backward_output",
            "act": "drop_backward_output",
            "drop": "cell_backward_output0",
            "one": "head_backward_output0",
            "sum": "head_backward_output0",
            "head": "softmax_backward_output0",
        }
        for name, source in sources.items():
            found["grad_output", name] = seen[source]
        found["grad_output", "cell"] = seen["one_backward_output0"] + seen["head_backward_output0"]
        for name, gradient in executor.grad_dict.items():
            if gradient is not None:
                found["parameter_grad", _address(name)] = gradient.asnumpy()
                found["update", _address(name)] = after[name] - before[name]
        return found

    def parameters(self, model):
        return {_address(name): value for name, value in self._states(model).items()}

    def evaluated(self):
        model, (x, _) = self.new(), batch(0)
        model.forward(mx.io.DataBatch([mx.nd.array(x)]), is_train=False)
        return model.get_outputs()[0].asnumpy()

    def footprint(self, model):
        group = model._exec_group
        (executor,) = group.execs
        return sorted(vars(model)), sorted(vars(group)), sorted(vars(executor)), executor._monitor_callback


def _address(name):
    operation, _, own = name.partition("_")
    return f"{operation}.{own}"


SUBJECTS = [
    GluonSubject("Gluon"),
    GluonSubject("hybridized", active=True),
    GluonSubject("static", static_alloc=True, static_shape=True),
    ModuleSubject(),
]


class TestMXNetContract(BackendContract):
    @pytest.fixture(params=SUBJECTS, ids=lambda one: one.name)
    def subject(self, request):
        return request.param


class Enc(gluon.HybridBlock):
    def hybrid_forward(self, F, x):  # noqa: N803
        early = F.slice_axis(x, axis=1, begin=0, end=2) * 2
        return F.slice_axis(x, axis=1, begin=0, end=3) + 1, early


class Same(gluon.HybridBlock):
    def hybrid_forward(self, F, x):  # noqa: N803
        return x


class Pair(gluon.HybridBlock):
    def hybrid_forward(self, F, x):  # noqa: N803
        return x, x * 3


class GluonReturning(gluon.HybridBlock):
    returns_dict = False

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.enc, self.same, self.pair = Enc(), Same(), Pair()

    @staticmethod
    def as_input(x):
        return mx.nd.array(x)

    def hybrid_forward(self, F, x):  # noqa: N803
        late, early = self.enc(x)
        given, more = self.pair(self.same(late))
        return given + 1, early + F.slice_axis(more, axis=1, begin=0, end=2)


class TestTraceContract(TraceContract):
    @pytest.fixture(params=[False, True], ids=["plain", "hybridized"])
    def net(self, request):
        net = GluonReturning()
        net.initialize()
        if request.param:
            net.hybridize()
        return net
