"""``trace`` and ``view`` of a framework other than torch, also where torch is not installed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_toy_framework import IMAGES, layers, plain_outputs
from toynet import Network, ToyBackend, TracingBackend

import intus
from intus.backends import base
from intus.core.errors import AddressError, InputError, MissingExtraError


@pytest.fixture(autouse=True)
def backend(monkeypatch):
    monkeypatch.setattr(base, "_BACKENDS", {**base._BACKENDS, "toynet": TracingBackend})


def test_trace_has_the_values_of_the_model():
    t = intus.trace(Network(layers), IMAGES)
    assert t.framework == "toynet"
    assert t.seconds > 0
    assert [op.module for op in t] == ["body.first", "body.act", "wide", "maps", "odd"]
    for op in t:
        assert np.array_equal(op.value, plain_outputs()[op.module])
    assert t.num_params == 64 * 16 + 16 * 5000
    assert t.modules["body"].outputs == [t["tanh_1"]]


@pytest.mark.parametrize(
    ("save", "saved"),
    [
        ("none", []),
        ("body.act", ["tanh_1_2"]),
        (["dense", -1], ["dense_1_1", "dense_2_3", "mystery_1_5"]),
        (lambda op: op.type == "conv", ["conv_1_4"]),
    ],
    ids=["none", "module", "types and ordinals", "predicate"],
)
def test_saved_values(save, saved):
    t = intus.trace(Network(layers), x=IMAGES, save=save)
    assert [op.label for op in t if op.saved] == saved
    assert t.num_saved == len(saved)


def test_save_of_what_did_not_run():
    with pytest.raises(AddressError, match=r"body\.second"):
        intus.trace(Network(layers), IMAGES, save="body.second")


def test_inputs_in_containers():
    for args, kwargs in [(((IMAGES,),), {}), (({"x": IMAGES},), {}), ((), {"kwargs": {"x": IMAGES}})]:
        assert len(intus.trace(Network(layers), *args, **kwargs)) == 5


def test_view():
    view = intus.view(Network(layers), IMAGES[:4], overlay="mean", depth=1)
    assert repr(view).startswith("<View of Network: 5 operations, 6 modules")
    assert intus.view(intus.trace(Network(layers), IMAGES[:4])).title == "Network"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seed": 0}, "seed= is for models of PyTorch, and this is one of toynet. Leave it out."),
        ({"grads": True, "decompose": True}, "grads= and decompose= are for models of PyTorch"),
        ({"store": "folder"}, "store= is"),
        ({"to": "cpu", "transform": len, "copy": True}, "to= and transform= and copy= are"),
        ({"on_error": "keep"}, "on_error= is"),
        ({"meta_value": True}, "meta_value= is"),
    ],
    ids=str,
)
def test_options_of_torch_are_refused(options, text):
    with pytest.raises(InputError, match=text):
        intus.trace(Network(layers), IMAGES, **options)


def test_functions_for_torch_are_refused(tmp_path):
    network = Network(layers)
    for call in (
        lambda: intus.validate(network, IMAGES),
        lambda: intus.why_nan(network, IMAGES),
        lambda: intus.collect(network, [IMAGES], "wide", tmp_path / "acts.safetensors"),
    ):
        with pytest.raises(InputError, match="takes models of PyTorch, and this is one of toynet"):
            call()
    with pytest.raises(InputError, match="it is of toynet, and only a trace of PyTorch can"):
        intus.trace(network, IMAGES).rerun({"wide": 0})


def test_method_and_class_of_a_model_are_refused():
    with pytest.raises(InputError, match="a model of toynet as a whole, got its method '__call__'"):
        intus.trace(Network(layers).__call__, IMAGES)
    with pytest.raises(InputError, match=r"Network is a class: write Network\(…\) to make one"):
        intus.trace(Network, IMAGES)


def test_backend_that_records_no_graph(monkeypatch):
    monkeypatch.setattr(base, "_BACKENDS", {**base._BACKENDS, "toynet": ToyBackend})
    with pytest.raises(InputError, match="a model of toynet, because its backend records no graph"):
        intus.trace(Network(layers), IMAGES)


@pytest.mark.parametrize("unknown", [type("Model", (), {})(), object(), None, 3, [1], {"weight": 1}])
@pytest.mark.parametrize("verb", [intus.trace, intus.view])
def test_unknown_object_names_the_frameworks(verb, unknown):
    with pytest.raises(InputError, match=r"of none of these frameworks: .*torch, toynet") as refused:
        verb(unknown, IMAGES)
    assert " a object" not in str(refused.value)


def test_models_and_functions_of_torch_are_recorded_as_before():
    x = torch.ones(2, 4)
    for model in (torch.nn.Linear(4, 3), lambda x: x * 2, torch.sin, torch.nn.Linear(4, 3).forward):
        t = intus.trace(model, x)
        assert t.framework == "torch"
        assert torch.equal(t.outputs[0].value, model(x))


def test_without_torch():
    code = """
import sys; sys.modules["torch"] = None
sys.path.insert(0, sys.argv[1])
import numpy as np, intus, toynet
from intus.backends import base
base.register("toynet", toynet.TracingBackend)
weight = np.eye(4, 3)
build = lambda: [toynet.Layer("a.first", "dense", lambda x: x @ weight, {"weight": weight})]
x = np.arange(8.0).reshape(2, 4)
t = intus.trace(toynet.Network(build), x)
assert np.array_equal(t["a"].value, x @ weight)
assert len(intus.view(toynet.Network(build), x).graph) == 1
for call in (intus.trace, intus.view, intus.validate):
    try:
        call(len, x)
    except intus.core.errors.MissingExtraError as error:
        name = getattr(call, "__name__", None)  # of trace and view, which other frameworks have too
        start = f"{name} got a function, which only PyTorch runs" if name else "intus.validate needs torch"
        assert str(error).startswith(start), error
        assert not name or f"Pass the model itself, of toynet: {name}(model, inputs)." in str(error), error
    else:
        raise AssertionError(call)
try:
    intus.trace(3, x)
except intus.core.errors.InputError as error:
    assert "needs a module or a function to run, got 3" in str(error)
"""
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert issubclass(MissingExtraError, ImportError)
