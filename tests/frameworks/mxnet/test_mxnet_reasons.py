"""The reasons that ``compare`` gives for Gluon blocks and Modules: of planted changes, and of right twins."""

import ctypes

import mxnet as mx
import numpy as np
import planted
import pytest
from mxnet import nd
from mxnet.base import _LIB, c_str, check_call
from mxnet.gluon import nn
from planted_reasons import PlantedReasons
from torch_help import run_with_torch

import intus
from intus.tracing.comparison.values import settings


class Images(mx.gluon.HybridBlock):
    def __init__(self, *, bias=True, stride=1, padding=1, dilation=1, groups=1, eps=1e-5):
        super().__init__()
        with self.name_scope():
            self.conv = nn.Conv2D(4, 3, stride, padding, dilation, groups, in_channels=4)
            self.fc = nn.Dense(4, use_bias=bias, in_units=4)
            self.norm, self.out = nn.LayerNorm(epsilon=eps, in_channels=4), nn.Dense(3, in_units=4)

    def hybrid_forward(self, F, x):  # noqa: N803
        return self.out(self.norm(self.fc(F.mean(self.conv(x), axis=(2, 3)))))


class Rows(mx.gluon.HybridBlock):
    def __init__(self, axis):
        super().__init__()
        with self.name_scope():
            self.fc, self.out = nn.Dense(4, flatten=False, in_units=4), nn.Dense(3, flatten=False, in_units=4)
        self.axis = axis

    def hybrid_forward(self, F, x):  # noqa: N803
        return self.out(F.softmax(self.fc(x), axis=self.axis))


def filled(block, change=""):
    block.initialize()
    for name, value in planted.weights(change).items():
        layer, kind = name.split(".")
        own = {"weight": "gamma", "bias": "beta"}[kind] if layer == "norm" else kind
        if layer in vars(block) and getattr(getattr(block, layer), own) is not None:
            getattr(getattr(block, layer), own).set_data(nd.array(value))
    return block


def symbol_of_images(*, bias=True, stride=1, padding=1, dilation=1, groups=1, eps=1e-5):
    pairs = {"stride": (stride,) * 2, "pad": (padding,) * 2, "dilate": (dilation,) * 2}
    h = mx.sym.Convolution(
        mx.sym.var("data"), num_filter=4, kernel=(3, 3), num_group=groups, name="conv", **pairs
    )
    h = mx.sym.FullyConnected(mx.sym.mean(h, axis=(2, 3)), num_hidden=4, no_bias=not bias, name="fc")
    h = mx.sym.LayerNorm(h, name="norm", **({} if eps == 1e-5 else {"eps": eps}))
    return mx.sym.FullyConnected(h, num_hidden=3, name="out")


def symbol_of_rows(axis):
    h = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, flatten=False, name="fc")
    return mx.sym.FullyConnected(mx.sym.softmax(h, axis=axis), num_hidden=3, flatten=False, name="out")


def bound(symbol, x, change=""):
    module = mx.mod.Module(symbol, label_names=None)
    module.bind([("data", x.shape)], for_training=False)
    names = {"norm.weight": "norm_gamma", "norm.bias": "norm_beta"}
    values = {
        names.get(name, name.replace(".", "_")): nd.array(v) for name, v in planted.weights(change).items()
    }
    module.set_params({name: values[name] for name in module._param_names}, {})
    return module


def gluon(change, **settings):
    return intus.trace(filled(Images(**settings), change), nd.array(planted.images()))


def gluon_rows(other):
    return intus.trace(filled(Rows(1 if other else -1)), nd.array(planted.rows()))


def module(change, **settings):
    x = planted.images()
    return intus.trace(bound(symbol_of_images(**settings), x, change), nd.array(x))


def module_rows(other):
    x = planted.rows()
    return intus.trace(bound(symbol_of_rows(1 if other else -1), x), nd.array(x))


MODELS = {"Gluon": (gluon, gluon_rows), "Module": (module, module_rows)}


@pytest.fixture(scope="module", params=MODELS)
def models(request):
    return MODELS[request.param]


class TestPlanted(PlantedReasons):
    """Test the networks of ``models``."""


def test_defaults_are_those_that_mxnet_states():
    """The judge is the registry of operations."""
    for kind, stated in settings._MXNET.items():
        texts = registered(kind)
        for name, text in stated.items():
            own = texts[name].partition("default=")[2].strip("'")
            if text in ("True", "False"):
                assert bool(int(own)) == (text == "True"), (kind, name)
            elif settings.number_of(text) is not None:
                assert np.isclose(float(own), float(text), rtol=1e-6), (kind, name)
            else:
                assert own == text, (kind, name)


def registered(kind):
    """Return the types of the arguments of an operation, as MXNet has registered them."""
    handle, count = ctypes.c_void_p(), ctypes.c_uint()
    check_call(_LIB.NNGetOpHandle(c_str(kind), ctypes.byref(handle)))
    texts = [ctypes.c_char_p() for _ in range(4)]
    lists = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
    given = (*texts[:2], count, *lists, *texts[2:])
    check_call(_LIB.MXSymbolGetAtomicSymbolInfo(handle, *(ctypes.byref(one) for one in given)))
    return {lists[0][n].decode(): lists[1][n].decode() for n in range(count.value)}


HIDDEN = """
import json, sys, torch, planted, planted_twins

eps, other = float(sys.argv[2]), planted.read(sys.argv[1], "module")
norm = torch.nn.BatchNorm1d(4, eps=eps).eval()
norm.running_var.fill_(1e6)
own = planted_twins.intus.trace(norm, torch.tensor(other["input_1"].value))
print(json.dumps(planted_twins.both_orders(own, other)))
"""


@pytest.mark.parametrize(("eps", "agree"), [("1e-3", True), ("1e-5", False)])
def test_epsilon_by_default_that_rounding_hides_is_told_in_both_orders(eps, agree, tmp_path):
    x = np.random.RandomState(0).randn(8, 4).astype(np.float32) * 1000
    symbol = mx.sym.BatchNorm(mx.sym.var("data"), fix_gamma=False, name="bn")
    module = mx.mod.Module(symbol, label_names=None)
    module.bind([("data", x.shape)], for_training=False)
    states = {"bn_moving_mean": nd.zeros(4), "bn_moving_var": nd.ones(4) * 1e6}
    module.set_params({"bn_gamma": nd.ones(4), "bn_beta": nd.zeros(4)}, states)
    planted.write(tmp_path, "module", intus.trace(module, nd.array(x)))
    for said in run_with_torch(HIDDEN, tmp_path, eps):
        assert said["agree"] is agree, said["text"]
        assert ("Eps of" in said["text"]) is not agree


PAIR = """
import json, sys, planted, planted_twins

one, other = (planted.read(sys.argv[1], name) for name in ("one", "other"))
print(json.dumps(planted_twins.both_orders(one, other)))
"""


@pytest.mark.parametrize("change", ["", "matrix transposed", "stride"])
def test_block_and_symbol_that_leaves_defaults_out_are_compared(change, tmp_path):
    planted.write(tmp_path, "one", gluon(""))
    planted.write(tmp_path, "other", module(change, **planted.SETTINGS.get(change, {})))
    for said in run_with_torch(PAIR, tmp_path):
        if change:
            planted.check_reason(said, change)
        else:
            planted.check_twin(said)


def test_trace_holds_the_parameters_as_they_were():
    block = filled(Images())
    trace = intus.trace(block, nd.array(planted.images()))
    block.fc.weight.set_data(nd.zeros((4, 4)))
    assert np.array_equal(trace.value("fc.weight"), planted.weights()["fc.weight"])
    assert set(trace.modules) >= {"conv", "fc", "norm", "out"}


class Activated(mx.gluon.HybridBlock):
    def __init__(self, activation):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(4, in_units=4, weight_initializer=mx.init.One())
        self.activation = activation

    def hybrid_forward(self, F, x):  # noqa: N803
        return self.activation(F, self.dense(x))


@pytest.mark.parametrize(
    ("layer", "written", "said"),
    [
        (
            lambda f, x: f.LeakyReLU(x, act_type="gelu"),
            lambda f, x: x * 0.5 * (1 + f.erf(x / 2**0.5)),
            None,
        ),
        (
            lambda f, x: f.LeakyReLU(x, act_type="leaky", slope=0.5),
            lambda f, x: x * 0.25 * 4,
            "bounds of LeakyReLU_1_2 are only in a",
        ),
        # Before, an activation that is no relu was not known to be positive, and "ran only in b".
        (lambda f, x: f.Activation(x, act_type="sigmoid"), lambda f, x: f.sigmoid(x), None),
        (lambda f, x: f.Activation(x, act_type="softrelu"), lambda f, x: f.log1p(f.exp(x)), None),
        (lambda f, x: f.Activation(x, act_type="softsign"), lambda f, x: f.softsign(x), None),
    ],
    ids=["gelu", "leaky", "sigmoid", "softrelu", "softsign"],
)
def test_activation_has_the_bounds_of_its_function(tmp_path, layer, written, said):
    for name, activation in (("one", layer), ("other", written)):
        net = Activated(activation)
        net.initialize()
        x = nd.array([[0.1, -0.2, 0.3, 0.4], [0.2, 0.1, -0.1, 0.4]])  # the sums are positive
        planted.write(tmp_path, name, intus.trace(net, x))
    found = run_with_torch(PAIR, tmp_path)
    assert [one["agree"] for one in found] == [said is None] * 2, found
    assert said is None or said in found[0]["text"]
