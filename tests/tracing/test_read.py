"""``read`` and ``view`` of model files: the ending decides who reads a path."""

import numpy as np
import pytest
import torch

import intus
from intus import reading
from intus.cli import main
from intus.core.building import GraphBuilder, Scope
from intus.core.errors import CodecError, InputError
from intus.core.traced import Traced
from intus.storage.tensors import array_entry, write_tensors


def double(path, inputs=None, named=None):
    """Read a file of any content as a module that doubles its input ``x``."""
    given = [*(inputs or ()), *(named or {}).values()]
    if len(given) > 1:
        raise InputError(f"{path} takes 1 input, got {len(given)}.")
    builder = GraphBuilder(path.stem)
    x = builder.input("x", (2,), "float32")
    y = builder.op("Mul", (2,), "float32", scope=[Scope("fc", "Double")], parents=[(x, "0")])
    builder.output("y", y)
    graph, _ = builder.graph({"format": "Toy"})
    values = dict(enumerate([given[0], 2 * given[0], 2 * given[0]])) if given else {}
    return Traced(graph, values)


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "ENDINGS", (".toy", ".safetensors"))
    monkeypatch.setattr(reading, "read", double)
    (tmp_path / "net.toy").write_text("a model")
    return tmp_path / "net.toy"


X = np.array([1.0, -2.0], np.float32)


def test_without_inputs_there_are_no_values(net):
    t = intus.read(net)
    assert repr(t) == "<Trace of net: 1 operations, 0 values saved>"
    assert t.framework == "Toy"
    assert t["fc"].shape == (2,)


@pytest.mark.parametrize(
    "call",
    [
        lambda path: intus.read(path, X),
        lambda path: intus.read(str(path), x=X),
        lambda path: intus.read(path, {"x": X}),
        lambda path: intus.read(path, (X,)),
    ],
)
def test_values_of_inputs(net, call):
    t = call(net)
    assert t["fc"].value.tolist() == [2.0, -4.0]
    assert t.num_saved == 2


def test_view_of_a_model_file(net):
    assert intus.view(net).values is None
    assert intus.view(str(net), X, overlay="mean").values["mean"] == [-0.5, -1.0, -1.0]
    assert intus.view(net, x=X).values["mean"] == [-0.5, -1.0, -1.0]
    with pytest.raises(InputError, match="takes 1 input, got 2"):
        intus.view(net, X, X)
    with pytest.raises(InputError, match="inputs and seed have no effect"):
        intus.view(net, seed=3)


def test_saved_trace_with_the_ending_of_weights_is_a_trace(net):
    path = net.with_name("saved.safetensors")
    intus.trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).save(path)
    assert intus.load(path).framework == "torch"
    assert intus.view(path).title == "Linear"
    with pytest.raises(InputError, match="A trace is of a pass that ran already"):
        intus.view(path, X)
    write_tensors(path, [array_entry("weight", X)])
    assert intus.view(path).title == "saved"


def test_safetensors_header_that_begins_as_a_pickle(tmp_path):
    """The first bytes of a file of weights are the length of its header, which may be those of a pickle."""
    path = tmp_path / "weights.safetensors"
    for spare in range(0, 512, 8):
        write_tensors(path, [array_entry("fc.weight", X)], spare=spare)
        if path.read_bytes()[0] == 0x80:
            break
    assert path.read_bytes()[0] == 0x80
    t = intus.read(path)
    assert t.framework == "safetensors"
    assert t.modules["fc"].num_params == 2


def test_read_of_a_saved_trace_names_load(tmp_path):
    for name in ("net.trace", "net.safetensors", "net.onnx"):
        intus.trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).save(tmp_path / name)
        with pytest.raises(InputError, match=r"is a saved trace\. Use intus\.load"):
            intus.read(tmp_path / name)


def test_load_of_a_model_file_names_read(net):
    with pytest.raises(CodecError, match=r"net\.toy' is a file of a model.*Use intus\.read"):
        intus.load(net)


@pytest.mark.parametrize("path", [3, None, [1]])
def test_what_is_no_path(path):
    with pytest.raises(InputError, match="read takes the path of a model file"):
        intus.read(path)


def test_saved_trace_of_a_model_file(net, tmp_path):
    t = intus.read(net, X)
    t.save(tmp_path / "net.trace")
    again = intus.load(tmp_path / "net.trace")
    assert again.framework == "Toy"
    assert np.array_equal(again["fc"].value, t["fc"].value)
    with pytest.raises(InputError, match="it is of Toy, and only a trace of PyTorch can"):
        again.rerun({"fc": 0})


def test_command_line(net, tmp_path, capsys):
    out = tmp_path / "net.json"
    assert main(["view", str(net), "--out", str(out), "--no-open"]) == 0
    assert capsys.readouterr().out == f"net: {out}\n"
    with_values = ["view", str(net), "--inputs", "ones(2)", "--out", str(out), "--no-open"]
    assert main([*with_values, "--overlay", "mean"]) == 0
    assert '"mean":[1.0,2.0,2.0]' in out.read_text().replace(" ", "")
    assert main(["view", str(net.with_name("absent.toy")), "--no-open"]) == 1
    assert "There is no file" in capsys.readouterr().err
