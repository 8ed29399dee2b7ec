"""FLOPs and unit axes of MXNet's operations, judged by formulas and planted units."""

from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd

import intus
from backends.counted_net import IN, MIDDLE, OUT, assert_counted
from intus.core.units import UnitAxes

nn = gluon.nn
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.random((8, 3, 10, 10)).astype(np.float32)


def started(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    net.initialize(mx.init.Xavier(), force_reinit=True)
    return net


def cnn():
    return started(
        nn.Conv2D(6, 3, groups=3, in_channels=3),
        nn.BatchNorm(),
        nn.MaxPool2D(2, 2),
        nn.Conv2DTranspose(5, 2, strides=2),
        nn.Activation("relu"),
        nn.AvgPool2D(2, 2),
        nn.Dense(7, activation="tanh"),
        nn.LayerNorm(),
        nn.Dropout(0.5),
        nn.Dense(4),
    )


#: What ``intus.trace`` counts of the same layers in PyTorch, which ``torch.utils.flop_counter`` judges there:
#: products 2 for each multiply-add, poolings 1 for each element under a window, norms 2 or 5 an element.
EXPECTED = {
    "Convolution": 2 * 8 * 6 * 8 * 8 * 9,
    "BatchNorm": 2 * 8 * 6 * 8 * 8,
    "Pooling": 8 * 6 * 4 * 4 * 4 + 8 * 5 * 4 * 4 * 4,
    "Deconvolution": 2 * 8 * 6 * 4 * 4 * 5 * 4,
    "Activation": 8 * 5 * 8 * 8 + 8 * 7,
    "FullyConnected": 2 * 8 * 80 * 7 + 2 * 8 * 7 * 4,
    "LayerNorm": 5 * 8 * 7,
    "Dropout": 0,
}


def counted(found):
    counts = {}
    for op in found:
        counts[op.type] = counts.get(op.type, 0) + op.flops
    return counts


def test_flops_of_cnn():
    net, x = cnn(), nd.array(IMAGES)
    found = intus.trace(net, x)
    assert found.flops_unknown == {}
    assert counted(found) == EXPECTED
    with autograd.train_mode():
        trained = counted(intus.trace(net, x))
    assert trained == {**EXPECTED, "BatchNorm": 5 * 8 * 6 * 8 * 8, "Dropout": 8 * 7}


@pytest.mark.parametrize(("layer", "gates"), [(gluon.rnn.LSTM, 4), (gluon.rnn.GRU, 3)])
def test_flops_of_recurrent_layer(layer, gates):
    """Every weight matrix counts once for each item of each step."""
    net = layer(5, 2, bidirectional=True, input_size=4)
    net.initialize()
    found = intus.trace(net, nd.ones((7, 2, 4)))
    weights = [one.shape for name, one in net.collect_params().items() if name.endswith("weight")]
    assert found.macs == 7 * 2 * sum(int(np.prod(shape)) for shape in weights)
    assert found.macs == 7 * 2 * 2 * gates * 5 * (4 + 5 + 10 + 5)


class Products(gluon.HybridBlock):
    def hybrid_forward(self, F, x, y):  # noqa: N803
        return (
            F.dot(x, y, transpose_b=True),
            F.dot(x, y, transpose_a=True),
            F.batch_dot(F.expand_dims(x, 0), F.expand_dims(y, 0), transpose_b=True),
            F.broadcast_add(x, y) * 2 - 1,
            F.sum(x, axis=1),
            F.softmax(x),
        )


def test_flops_of_operations():
    x, y = nd.ones((4, 5)), nd.ones((4, 5))
    found = intus.trace(Products(), x, y)
    assert counted(found) == {
        "dot": 2 * 4 * 4 * 5 + 2 * 5 * 5 * 4,
        "batch_dot": 2 * 4 * 4 * 5,
        "expand_dims": 0,
        "broadcast_add": 20,
        "mul_scalar": 20,
        "minus_scalar": 20,
        "sum": 20,
        "softmax": 5 * 20,
    }


def test_unit_axes():
    found = intus.trace(cnn(), nd.array(IMAGES))
    axes = UnitAxes(found.graph)
    assert [axes.of(found[str(at)].row) for at in range(10)] == [1] * 10
    found = intus.trace(started(nn.Embedding(9, 4), nn.Dense(3, flatten=False)), nd.array([[1, 2, 3]]))
    assert [UnitAxes(found.graph).of(found[name].row) for name in ("0", "1")] == [2, 2]
    np.testing.assert_array_equal(found.value("1[2]"), found["1"].value[:, :, 2])


def test_planted_unit():
    """One channel of the first layer is not zero."""
    net, x = cnn(), nd.array(IMAGES)
    net(x)
    planted = np.zeros(net[0].weight.shape)
    planted[4] = 1
    net[0].weight.set_data(nd.array(planted))
    found = intus.trace(net, x)
    for name in ("0", "1", "2"):
        units = [np.abs(found.value(f"{name}[{unit}]")).max() for unit in range(6)]
        assert np.flatnonzero(np.array(units) > 1e-3).tolist() == [4]
    assert [one.address for one in found.graph.params[:2]] == ["0.weight", "0.bias"]
    assert [UnitAxes(found.graph).of_parameter(number, "") for number in (0, 1)] == [0, 0]


@pytest.mark.parametrize("frozen", [False, True])
def test_running_statistics_are_no_parameters(frozen, tmp_path):
    net, x = (
        started(nn.Dense(MIDDLE, in_units=IN), nn.BatchNorm(in_channels=MIDDLE), nn.Dense(OUT)),
        nd.ones((5, IN)),
    )
    net.hybridize()
    if frozen:
        net.collect_params().setattr("grad_req", "null")
    trace = intus.trace(net, x)
    assert_counted(trace)
    assert [param.trainable for param in trace.graph.params] == [not frozen] * 6
    assert {op.buffer_address: op.value.tolist() for op in trace.buffers} == {
        "1.running_mean": [0] * MIDDLE,
        "1.running_var": [1] * MIDDLE,
    }
    net.export(str(tmp_path / "net"))
    assert_counted(intus.read(tmp_path / "net-symbol.json"))
    module = mx.mod.Module(mx.sym.load(str(tmp_path / "net-symbol.json")), label_names=None)
    module.bind([("data", x.shape)], for_training=False)
    module.init_params()
    assert_counted(intus.trace(module, x))


class Sums(gluon.HybridBlock):
    def hybrid_forward(self, F, x):  # noqa: N803
        return F.contrib.foreach(lambda row, state: (row + state, row + state), x, F.zeros((2, 3)))[0]


@pytest.mark.parametrize(
    "model", [gluon.rnn.LSTM(4, input_size=3), gluon.rnn.RNN(4, input_size=3), Sums()], ids=type
)
def test_loops_are_recurrent(model):
    model.initialize()
    x = nd.ones((5, 2, 3))
    assert intus.trace(model, x).is_recurrent
    assert not intus.trace(started(nn.Dense(4), nn.Dense(4)), x).is_recurrent


class Scaled(gluon.HybridBlock):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def hybrid_forward(self, F, x):  # noqa: N803
        return F.LeakyReLU(F.clip(x * self.number, -self.number, 0.7), slope=self.number)


@pytest.mark.parametrize("number", [0.3, 1e-5, 0.1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["block", "Module", "file", "file with values"])
def test_numbers_of_float32_have_the_shortest_text(number, dtype, kind, tmp_path):
    noisy = float(np.float32(number))  # as numbers of ONNX files or of numpy are
    net, x = Scaled(noisy), nd.ones((2, 3), dtype=dtype) * 5
    y = net(x)
    if dtype == "float32":  # MXNet computes the same with the shorter number
        assert (y.asnumpy() == Scaled(number)(x).asnumpy()).all()
    symbol, path = net(mx.sym.var("data", dtype=dtype)), tmp_path / "net-symbol.json"
    symbol.save(str(path))
    if kind == "Module":
        module = mx.mod.Module(symbol, label_names=None)
        module.bind([mx.io.DataDesc("data", x.shape, dtype=np.dtype(dtype))], for_training=False)
        module.init_params()
        trace = intus.trace(module, x)
    elif kind == "block":
        trace = intus.trace(net, x)
    else:
        nd.save(str(tmp_path / "net-0000.params"), {"arg:unused": nd.ones(1)})
        trace = intus.read(path, x.asnumpy()) if "values" in kind else intus.read(path)
    shown = number if dtype == "float32" else noisy
    settings = [trace.graph.setting(row) for row in range(len(trace.graph.ops))]
    assert {f"scalar={shown}", f"slope={shown}", f"a_max=0.7, a_min={-shown}"} <= set(settings), settings
