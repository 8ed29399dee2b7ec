"""``compare`` names one place where models of JAX and PyTorch diverge, whichever of both comes first.

The main environment runs the models of PyTorch and compares, in both orders.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from torch_help import run_with_torch

import intus

TORCH = """
import json, sys
import numpy as np, torch
import torch.nn.functional as F
from torch import nn
import intus

folder, said = sys.argv[1], {}
ACTS = {"relu": torch.relu, "gelu": F.gelu}
MOVES = {
    "transpose": lambda h: h.transpose(2, 3),
    "permute": lambda h: h.permute(0, 1, 3, 2).contiguous(),
    "flip": lambda h: h.flip(2),
    "flip of both": lambda h: h.flip(2, 3),
    "roll": lambda h: h.roll(1, 3),
    "rot90": lambda h: torch.rot90(h, 1, (2, 3)),
    "channels": lambda h: h.flip(1),
    "items": lambda h: h.flip(0),
    "none": lambda h: h,
}

class Images(nn.Module):
    def __init__(self, channels, act, move, is_before):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.act, self.move, self.is_before = act, move, is_before

    def forward(self, x):
        h = self.first(x)
        h = self.act(self.move(h)) if self.is_before else self.move(self.act(h))
        return self.second(h).mean((2, 3))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8, eps=1e-6)
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        h = self.norm(x)
        weights = torch.softmax(self.q(h) @ self.k(h).transpose(-1, -2) / 8**0.5, dim=-1)
        return x + self.out(weights @ self.v(h))

class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

def both(model, other, x):
    trace = intus.trace(model, x)
    labels = [op.label for op in trace.find()]
    found = []
    for table in (intus.compare(trace, other), intus.compare(other, trace)):
        found.append([table.agree, table.attrs["first"], table.attrs["summary"]])
    return labels, found

def loaded(model, saved):
    model.load_state_dict({name: torch.tensor(saved[name]) for name in model.state_dict()})
    return model.eval()

for name in json.load(open(f"{folder}/images.json")):
    other, saved = intus.load(f"{folder}/{name}.trace"), np.load(f"{folder}/{name}.npz")
    x = torch.tensor(saved["x"])
    for move in MOVES:
        for is_before in (False, True):
            model = Images(x.shape[1], ACTS[name.split()[0]], MOVES[move], is_before)
            place = f"{name} {move} {'before' if is_before else 'after'}"
            said[place] = both(loaded(model, saved), other, x)

other, saved = intus.load(f"{folder}/blocks.trace"), np.load(f"{folder}/blocks.npz")
x = torch.tensor(saved["x"])
for layer in ("q", "k", "v", "out"):
    for how in ("no", "zero"):
        model = loaded(Blocks(), saved)
        linear = getattr(model.blocks[1], layer)
        linear.bias = None if how == "no" else nn.Parameter(torch.zeros(8))
        said[f"{how} bias of {layer}"] = both(model, other, x)
said["blocks"] = both(loaded(Blocks(), saved), other, x)
print(json.dumps(said))
"""


class Images(nnx.Module):
    def __init__(self, channels, act):
        rngs = nnx.Rngs(0)
        self.first = nnx.Conv(channels, channels, (3, 3), padding=1, rngs=rngs)
        self.second = nnx.Conv(channels, channels, (3, 3), padding=1, rngs=rngs)
        self.act = act

    def __call__(self, x):
        return self.second(self.act(self.first(x))).mean((1, 2))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(8, rngs=rngs)
        for name in ("q", "k", "v", "out"):
            layer = nnx.Linear(8, 8, rngs=rngs)
            layer.bias[...] = jnp.linspace(-0.5, 1, 8)
            setattr(self, name, layer)

    def __call__(self, x):
        h = self.norm(x)
        weights = jax.nn.softmax(self.q(h) @ jnp.swapaxes(self.k(h), -1, -2) / 8**0.5)
        return x + self.out(weights @ self.v(h))


class Blocks(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.blocks = nnx.List([Block(rngs) for _ in range(2)])

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return x


ACTS = {"relu": jax.nn.relu, "gelu": lambda x: jax.nn.gelu(x, approximate=False)}
#: Of channels and pixels on each side, of which PyTorch has the channels first and Flax last.
SHAPES = [(4, 8), (6, 6), (8, 4), (3, 5)]
IMAGES = [f"{act} {channels} {size}" for act in ACTS for channels, size in SHAPES]
MOVES = ["transpose", "permute", "flip", "flip of both", "roll", "rot90", "channels", "items"]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return the labels of each model of PyTorch, with what is said of it in both orders."""
    folder, random = tmp_path_factory.mktemp("places"), np.random.default_rng(0)
    for name in IMAGES:
        act, channels, size = name.split()
        model = Images(int(channels), ACTS[act])
        x = random.normal(size=(2, int(channels), int(size), int(size))).astype(np.float32)
        state = {"x": x}
        for layer in ("first", "second"):
            own = getattr(model, layer)
            state[f"{layer}.weight"] = np.asarray(own.kernel[...]).transpose(3, 2, 0, 1)
            state[f"{layer}.bias"] = np.asarray(own.bias[...])
        np.savez(folder / f"{name}.npz", **state)
        intus.trace(model, jnp.asarray(x.transpose(0, 2, 3, 1))).save(folder / f"{name}.trace")
    (folder / "images.json").write_text(json.dumps(IMAGES))
    model, x = Blocks(), random.normal(size=(2, 5, 8)).astype(np.float32)
    state = {"x": x}
    for number, block in enumerate(model.blocks):
        state[f"blocks.{number}.norm.weight"] = np.asarray(block.norm.scale[...])
        state[f"blocks.{number}.norm.bias"] = np.asarray(block.norm.bias[...])
        for layer in ("q", "k", "v", "out"):
            own = getattr(block, layer)
            state[f"blocks.{number}.{layer}.weight"] = np.asarray(own.kernel[...]).T
            state[f"blocks.{number}.{layer}.bias"] = np.asarray(own.bias[...])
    np.savez(folder / "blocks.npz", **state)
    intus.trace(model, jnp.asarray(x)).save(folder / "blocks.trace")
    return run_with_torch(TORCH, folder)


def firsts(said, name):
    """Return the first differences in both orders, which name the same operations."""
    (_, one, text), (_, other, _) = said[name][1]
    assert one is not None, text
    assert (one["a"], one["b"]) == (other["b"], other["a"]), (one, other)
    return one, other


@pytest.mark.parametrize("name", [*(f"{one} none after" for one in IMAGES), "blocks"])
def test_right_twin_agrees_in_both_orders(said, name):
    assert [agree for agree, _, _ in said[name][1]] == [True, True], said[name][1]


@pytest.mark.parametrize("is_before", ["before", "after"])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("name", IMAGES)
def test_move_of_one_side_is_named_and_not_the_activation_beside_it(said, name, move, is_before):
    """Or what runs on it. All of them leave the sums of a tensor as they are."""
    one, _ = firsts(said, f"{name} {move} {is_before}")
    labels = said[f"{name} {move} {is_before}"][0]
    moves = [label for label in labels if not label.startswith(("conv", "relu", "gelu", "mean"))]
    assert one["a"] in (*moves, labels[1 + labels.index(moves[-1])]), one
    assert one["module"] in ("", "second"), one


@pytest.mark.parametrize("layer", ["q", "v", "out"])
@pytest.mark.parametrize("how", ["no", "zero"])
def test_missing_bias_is_placed_in_its_layer_in_both_orders(said, how, layer):
    for first in firsts(said, f"{how} bias of {layer}"):
        assert first["module"] == f"blocks.1.{layer}", first


@pytest.mark.parametrize("how", ["no", "zero"])
def test_missing_bias_that_a_softmax_hides_is_told_in_both_orders(said, how):
    for agree, _, text in said[f"{how} bias of k"][1]:
        assert not agree
        assert "blocks.1.k" in text, text
