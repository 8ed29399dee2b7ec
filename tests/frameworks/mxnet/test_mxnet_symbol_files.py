"""Symbol files of MXNet against MXNet itself: structure, shapes, parameters and values."""

import json

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn, rnn
from mxnet.gluon.model_zoo import vision

import intus
from intus.core.errors import InputError


class Recurrent(mx.gluon.HybridBlock):
    def __init__(self):
        super().__init__(prefix="my_net_")
        with self.name_scope():
            self.embed, self.lstm, self.out = nn.Embedding(10, 6), rnn.LSTM(5, layout="NTC"), nn.Dense(3)

    def hybrid_forward(self, F, x):  # noqa: N803
        left, right = F.split(self.lstm(self.embed(x)), 2, axis=1)
        return self.out(left - right)


NETS = {
    "resnet18_v1": (lambda: vision.resnet18_v1(), (1, 3, 64, 64)),
    "resnet18_v2": (lambda: vision.resnet18_v2(), (1, 3, 64, 64)),
    "mobilenet_v2_0_25": (lambda: vision.mobilenet_v2_0_25(), (1, 3, 64, 64)),
    "densenet121": (lambda: vision.densenet121(), (1, 3, 224, 224)),
    "squeezenet1_0": (lambda: vision.squeezenet1_0(), (1, 3, 224, 224)),
    "recurrent": (Recurrent, (2, 4)),
}


def single(trace):
    """Return the rows of operations with one output."""
    return {op.row for op in trace.ops if trace.graph.ops.output[op.row] < 0}


@pytest.fixture(scope="module", params=NETS)
def exported(request, tmp_path_factory):
    make, shape = NETS[request.param]
    mx.random.seed(0)
    net = make()
    net.initialize()
    net.hybridize()
    x = mx.nd.random.uniform(0, 9, shape=shape)
    output = net(x)
    folder = tmp_path_factory.mktemp(request.param)
    net.export(str(folder / "net"))
    return folder / "net-symbol.json", net, x.asnumpy(), output.asnumpy()


def test_structure_is_that_of_the_symbol(exported):
    path, net, *_ = exported
    trace, symbol = intus.read(path), mx.sym.load(str(path))
    nodes = json.loads(symbol.tojson())["nodes"]
    ops = [node["op"] for node in nodes if node["op"] != "null"]
    events = dict.fromkeys(int(trace.graph.ops.event[op.row]) for op in trace.ops)
    assert len(events) == len(ops)
    assert sorted({op.type for op in trace.ops}) == sorted({op.strip("_") for op in ops})
    theirs = {name: tuple(one.shape) for name, one in net.collect_params().items()}
    ours = {one.address: one.shape for one in (*trace.graph.params, *trace.graph.buffers)}
    assert len(ours) == len(theirs)
    assert sorted(ours.values()) == sorted(theirs.values())
    owners = {module.address for module in trace.graph.modules}
    for name in theirs:  # each parameter is in the block whose prefix it has
        (address,) = [one for one in ours if name.endswith(one.replace(".", "_"))][-1:]
        assert address.rpartition(".")[0] in owners


def test_values_are_those_of_mxnet(exported):
    path, _, x, output = exported
    trace = intus.read(path, x)
    np.testing.assert_allclose(trace.outputs[0].value, output, rtol=1e-5, atol=1e-6)
    symbol = mx.sym.load(str(path))
    internals = symbol.get_internals()
    names = [name for name in internals.list_outputs() if name.endswith("_output")]
    _, shapes, _ = internals.infer_shape(data=x.shape)
    shapes = dict(zip(internals.list_outputs(), shapes, strict=True))
    ours = sorted(op.shape for op in trace.ops if op.row in single(trace))
    if "lstm" not in str(names):  # MXNet does not infer the shape of its first state from the input
        assert sorted(shapes[name] for name in names) == ours
    assert all(op.saved and op.value.shape == op.shape for op in trace.ops)
    params = mx.nd.load(str(path.with_name("net-0000.params")))
    for name, address in zip(sorted(params), sorted(params), strict=True):
        found = [one for one in trace._param_values if name.replace(".", "_").endswith(one.replace(".", "_"))]
        assert any(np.array_equal(trace._param_values[one], params[address].asnumpy()) for one in found)


def test_flops_are_those_of_the_trace(exported):
    path, net, x, _ = exported
    file, trace = intus.read(path, x), intus.trace(net, mx.nd.array(x))
    assert file.flops == trace.flops > 0
    counts = [{op.type: op.flops for op in one.ops} for one in (file, trace)]
    if "copy" not in counts[0]:  # the place of a block that returns its input, which no file has
        assert counts[1].pop("copy", 0) == 0
    assert counts[0].keys() == counts[1].keys() or "RNN" in counts[0]
    assert file.flops_unknown == trace.flops_unknown


def test_inputs_that_do_not_fit(exported):
    path, _, x, _ = exported
    with pytest.raises(InputError, match="takes 1 input"):
        intus.read(path, x, x)
    with pytest.raises(InputError, match="cannot run on these inputs"):
        intus.read(path, np.ones((1, 2, 3, 4, 5, 6, 7), np.float32))
    path.with_name("other-symbol.json").write_bytes(path.read_bytes())
    with pytest.raises(InputError, match=r"Copy other-0000.params beside it"):
        intus.read(path.with_name("other-symbol.json"), x)


def test_modules_and_view(exported):
    path, *_ = exported
    graph = intus.view(path).graph
    addresses = {module.address for module in graph.modules}
    expected = {
        "resnet18_v1": {"stage1.conv0", "stage4.batchnorm1", "dense0"},
        "mobilenet_v2_0_25": {"features.linearbottleneck3.conv1", "output_pred"},
        "recurrent": {"embedding0", "lstm0", "dense0"},
    }
    name = next(one for one in NETS if path.parent.name.startswith(one))
    assert expected.get(name, set()) <= addresses


def test_inputs_are_arrays_of_mxnet_too(exported):
    path, _, x, output = exported
    assert np.array_equal(intus.read(path, mx.nd.array(x)).outputs[0].value, output)
