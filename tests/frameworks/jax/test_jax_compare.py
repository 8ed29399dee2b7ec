"""``compare`` of an NNX model with its twin in PyTorch, which the main environment runs."""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from torch_help import run_with_torch

import intus

TWIN = """
import json, sys, warnings
import numpy as np, torch
from torch import nn
import intus

folder, eps, approximate = sys.argv[1], float(sys.argv[2]), sys.argv[3]

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc, self.out = nn.LayerNorm(16, eps=eps), nn.Linear(16, 32), nn.Linear(32, 16)
        self.act = nn.GELU(approximate=approximate)

    def forward(self, x):
        return x + self.out(self.act(self.fc(self.norm(x))))

net = nn.Sequential(Block(), Block())
saved = np.load(f"{folder}/weights.npz")
net.load_state_dict({name: torch.tensor(saved[name]) for name in saved.files if name != "x"})
other = intus.load(f"{folder}/nnx.trace")
trace = intus.trace(net, torch.tensor(saved["x"]))
trace.save(f"{folder}/twin.trace")
table = intus.compare(trace, other)
modules = table.modules.set_index("a").verdict.to_dict()
back = intus.compare(other, trace)
said = {"agree": table.agree, "first": table.attrs["first"], "modules": modules}
texts = {"text": table.attrs["summary"], "back_text": back.attrs["summary"]}
print(json.dumps(said | texts | {"back": back.agree}))
"""


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(16, epsilon=1e-6, rngs=rngs)
        self.fc, self.out = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 16, rngs=rngs)

    def __call__(self, x):
        return x + self.out(nnx.gelu(self.fc(self.norm(x)), approximate=True))


class Net(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List([Block(rngs) for _ in range(2)])

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the trace of the NNX model and its weights under the names of the twin."""
    path = tmp_path_factory.mktemp("twin")
    model, x = Net(nnx.Rngs(0)), np.random.default_rng(0).normal(size=(3, 5, 16)).astype(np.float32) * 0.05
    weights = {"x": x}
    for number, block in enumerate(model.blocks):
        for name in ("fc", "out"):
            layer = getattr(block, name)
            weights[f"{number}.{name}.weight"] = np.asarray(layer.kernel[...]).T
            weights[f"{number}.{name}.bias"] = np.asarray(layer.bias[...])
        weights[f"{number}.norm.weight"] = np.asarray(block.norm.scale[...])
        weights[f"{number}.norm.bias"] = np.asarray(block.norm.bias[...])
    np.savez(path / "weights.npz", **weights)
    intus.trace(model, jnp.asarray(x)).save(path / "nnx.trace")
    return path


def compared(folder, eps="1e-6", approximate="tanh"):
    return run_with_torch(TWIN, folder, eps, approximate)


def test_twin_agrees(folder):
    found = compared(folder)
    assert found["agree"], found
    assert {found["modules"][name] for name in ("0", "0.norm", "0.fc", "1", "1.out")} <= {"equal", "close"}


def test_other_eps_that_rounding_hides_is_told_in_both_orders(folder):
    """The one states it as the argument of a norm, the other as a number that an operation adds."""
    found = compared(folder, eps="1.001e-6")
    assert not found["agree"]
    assert not found["back"]
    assert "1.001e-06 in a, 1e-06 in b" in found["text"]
    assert "1e-06 in a, 1.001e-06 in b" in found["back_text"]
    assert compared(folder)["back"]


def test_other_eps_is_named(folder):
    first = compared(folder, eps="1e-3")["first"]
    assert first["module"] == "0.norm"
    assert any("eps=0.001" in why and "1e-06" in why for why in first["why"]), first


def test_other_gelu_is_named(folder):
    first = compared(folder, approximate="none")["first"]
    assert first["module"] == "0.act", first


def test_saved_trace_of_torch_is_compared_without_torch(folder):
    compared(folder)
    table = intus.compare(intus.load(folder / "twin.trace"), intus.load(folder / "nnx.trace"))
    assert table.agree, str(table)
    other = Net(nnx.Rngs(1))
    x = np.load(folder / "weights.npz")["x"]
    table = intus.compare(intus.load(folder / "twin.trace"), intus.trace(other, x))
    assert table.attrs["first"]["module"] == "0.fc", str(table)


def test_models_of_jax_need_no_torch():
    """The environment of this test has none."""
    model, other = Net(nnx.Rngs(0)), Net(nnx.Rngs(0))
    other.blocks[1].norm.epsilon = 1e-3
    x = jnp.linspace(-1, 1, 48).reshape(3, 16)
    assert intus.compare(intus.trace(model, x), intus.trace(model, x)).agree
    table = intus.compare(intus.trace(model, x), intus.trace(other, x))
    assert table.attrs["first"]["module"] == "blocks.1.norm"
    assert "argument 1 is 1e-06 in a, 0.001 in b" in str(table)


class Recurrent(nnx.Module):
    def __init__(self, eps=1e-5):
        rngs = nnx.Rngs(0)
        self.fc, self.norm = nnx.Linear(8, 8, rngs=rngs), nnx.BatchNorm(8, epsilon=eps, rngs=rngs)
        self.group = nnx.GroupNorm(8, num_groups=4, rngs=rngs)
        self.rnn, self.out = nnx.RNN(nnx.GRUCell(8, 8, rngs=rngs)), nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, x):
        return self.out(self.rnn(self.group(self.norm(self.fc(x))))[:, -1])


RECURRENT_X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)


def recurrent_pair(**edited):
    """Return traces of a model that was called before, and of another, which count other random numbers."""
    model, other = Recurrent(), Recurrent(**edited)
    for one in (model, other):
        one.eval()
    model(RECURRENT_X)
    return model, other


def test_counter_of_random_numbers_is_no_difference():
    model, other = recurrent_pair()
    assert np.array_equal(model(RECURRENT_X), other(RECURRENT_X))
    found = intus.compare(intus.trace(model, RECURRENT_X), intus.trace(other, RECURRENT_X))
    assert found.agree
    assert found.attrs["first"] is None
    assert "No output depends on what differs in buffer" in str(found)
    assert "rnn.rngs.count" in str(found)


def test_counter_of_random_numbers_does_not_hide_a_setting():
    model, other = recurrent_pair(eps=1e-2)
    a, b = intus.trace(model, RECURRENT_X), intus.trace(other, RECURRENT_X)
    found = intus.compare(a, b)
    first = found.attrs["first"]
    # What follows takes the difference away, within rounding.
    label = first["a"] if first else str(found).partition("tensors differ, from ")[2].partition(" on.")[0]
    assert a[label].module == "norm", str(found)


@pytest.mark.parametrize(
    "path", ["norm.mean", "norm.var", "norm.bias", "fc.kernel", "rnn.cell.dense_h.kernel", "out.bias"]
)
def test_reason_names_the_changed_state(path):
    model, other = recurrent_pair()
    variable = other
    for name in path.split("."):
        variable = getattr(variable, name)
    variable[...] = variable[...] + np.random.default_rng(0).normal(size=variable.shape) * 0.1
    found = intus.compare(intus.trace(model, RECURRENT_X), intus.trace(other, RECURRENT_X))
    first = found.attrs["first"]
    assert not found.agree
    assert path.startswith(first["module"]), first
    why = " ".join(first["why"])
    assert f"{path} of a and of b differ" in why


def test_saved_pass_is_that_of_its_network():
    file = Path(__file__).parent.parent / "saved" / "nnx_network.py"
    spec = importlib.util.spec_from_file_location("nnx_network", file)
    saved = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(saved)
    table = intus.compare(intus.load(saved.TRACE), intus.trace(saved.network(), saved.images()))
    assert table.agree, str(table)
