"""``compare`` of NNX with PyTorch names what was planted where each has its axes in another order.

The main environment runs the models of PyTorch and compares, in both orders.
"""

import channels_last
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

class Block(nn.Module):
    def __init__(self, is_residual):
        super().__init__()
        self.conv, self.is_residual = nn.Conv2d(6, 6, 1), is_residual

    def forward(self, x):
        return x + self.conv(x) if self.is_residual else self.conv(x)

class Images(nn.Module):
    def __init__(self, pool, missing):
        super().__init__()
        self.blocks = nn.ModuleList(Block(number != missing) for number in range(2))
        pools = {"mean": torch.mean, "sum": torch.sum, "max": torch.amax}
        self.head, self.pool = nn.Linear(6, 2), pools[pool]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.pool(x, (2, 3)))

class Steps(nn.Module):
    def __init__(self, padding="constant"):
        super().__init__()
        self.conv, self.last, self.out = nn.Conv1d(8, 8, 3), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 3)
        self.padding = padding

    def forward(self, x):
        h = torch.tanh(self.conv(F.pad(x.transpose(1, 2), (2, 0), mode=self.padding)))
        return self.out(self.last(h.transpose(1, 2))[0][:, -1])

class Attention(nn.Module):
    def __init__(self, scaled):
        super().__init__()
        self.q, self.k, self.v, self.scaled = *(nn.Linear(8, 8) for _ in range(3)), scaled

    def forward(self, x):
        q, k, v = (layer(x).view(2, 5, 2, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scale = torch.arange(1.0, 5.0)
        q, k = q * scale, k * scale if self.scaled else k
        return ((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 8)

class Heads(nn.Module):
    def __init__(self, scaled=True):
        super().__init__()
        self.first, self.attention, self.last = nn.Linear(8, 8), Attention(scaled), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.attention(self.first(x)))

def add(place, name, model, change=lambda model: None):
    other, saved = intus.load(f"{folder}/{name}.trace"), np.load(f"{folder}/{name}.npz")
    model.load_state_dict({name: torch.tensor(saved[name]) for name in model.state_dict()})
    with torch.no_grad():
        change(model)
    trace, said[place] = intus.trace(model.eval(), torch.tensor(saved["x"])), []
    for table in (intus.compare(trace, other), intus.compare(other, trace)):
        modules = table.modules.set_index("a")
        found = {"verdict": modules.verdict.to_dict(), "is_source": modules.is_source.to_dict()}
        said[place].append({"agree": table.agree, "first": table.attrs["first"], **found})

for pool in ("mean", "sum", "max"):
    add(f"twin {pool}", pool, Images(pool, None))
    for number in (0, 1):
        add(f"{pool} {number}", pool, Images(pool, number))
add("twin steps", "steps", Steps())
add("weight of gru", "steps", Steps(), lambda model: model.last.weight_ih_l0.mul_(1.3))
add("padding", "steps", Steps("replicate"))
add("twin heads", "heads", Heads())
add("keys", "heads", Heads(False))
print(json.dumps(said))
"""


class Block(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(6, 6, (1, 1), rngs=rngs)

    def __call__(self, x):
        return x + self.conv(x)


class Images(nnx.Module):
    def __init__(self, pool):
        rngs = nnx.Rngs(0)
        self.blocks = nnx.List([Block(rngs) for _ in range(2)])
        self.head, self.pool = nnx.Linear(6, 2, rngs=rngs), pool

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(getattr(x, self.pool)((1, 2)))


class Steps(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(8, 8, (3,), padding="CAUSAL", rngs=rngs)
        self.last, self.out = nnx.RNN(nnx.GRUCell(8, 8, rngs=rngs)), nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        return self.out(self.last(jnp.tanh(self.conv(x)))[:, -1])


class Attention(nnx.Module):
    def __init__(self, rngs):
        self.q, self.k, self.v = (nnx.Linear(8, 8, rngs=rngs) for _ in range(3))

    def __call__(self, x):
        q, k, v = (layer(x).reshape(2, 5, 2, 4) for layer in (self.q, self.k, self.v))
        q, k = q * jnp.arange(1.0, 5.0), k * jnp.arange(1.0, 5.0)
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(2, 5, 8)


class Heads(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first, self.attention = nnx.Linear(8, 8, rngs=rngs), Attention(rngs)
        self.last = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        return self.last(self.attention(self.first(x)))


def state_of(model):
    """Return the parameters of a model by the names and in the layouts of PyTorch."""
    found = {}
    for path, value in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        own, *module = np.asarray(value[...]), *map(str, path[:-1])
        name = ".".join([*module, "weight" if path[-1] == "kernel" else path[-1]])
        found[name] = own.transpose(*range(own.ndim)[::-1]) if own.ndim != 4 else own.transpose(3, 2, 0, 1)
    for name in [name for name in found if "dense" in name]:
        value, (_, _, kind, of) = found.pop(name), name.split(".")
        found[f"last.{of}_{kind[-1]}h_l0"] = value
    if "last.weight_ih_l0" in found:
        found["last.bias_hh_l0"] = np.zeros(24, np.float32)
    return found


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return what is said of each model of PyTorch, in both orders."""
    folder, random = tmp_path_factory.mktemp("layouts"), np.random.default_rng(0)
    images = random.normal(size=(2, 5, 5, 6)).astype(np.float32)
    steps, rows = (random.normal(size=(2, count, 8)).astype(np.float32) for count in (6, 5))
    models = {pool: (Images(pool), images) for pool in ("mean", "sum", "max")}
    for name, (model, x) in {**models, "steps": (Steps(), steps), "heads": (Heads(), rows)}.items():
        given = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
        np.savez(folder / f"{name}.npz", x=given, **state_of(model))
        intus.trace(model, jnp.asarray(x)).save(folder / f"{name}.trace")
    return run_with_torch(TORCH, folder)


@pytest.mark.parametrize("name", ["mean", "sum", "max", "steps", "heads"])
def test_right_twin_agrees_in_both_orders(said, name):
    assert [one["agree"] for one in said[f"twin {name}"]] == [True, True], said[f"twin {name}"]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("pool", ["mean", "sum", "max"])
def test_missing_residual_is_named_in_its_block_and_not_after_it(said, pool, number):
    for one in said[f"{pool} {number}"]:
        block = f"blocks.{number}"
        assert one["first"]["module"] == block, one
        assert [name for name, is_source in one["is_source"].items() if is_source] == [block]
        assert one["verdict"][block] == "differs"


def test_weight_of_a_recurrent_layer_is_named_and_not_the_transposition_before_it(said):
    for one in said["weight of gru"]:
        assert one["first"]["module"] == "last", one
        assert not [why for why in one["first"]["why"] if "shape" in why], one
        assert [why for why in one["first"]["why"] if "weight_ih_l0" in why], one
        assert [name for name, is_source in one["is_source"].items() if is_source] == ["last"]


def test_value_that_jax_pads_with_is_no_width_of_padding(said):
    for one in said["padding"]:
        assert one["first"]["module"] in ("", "conv"), one
        assert not [why for why in one["first"]["why"] if "pad is 0" in why], one


def test_step_that_the_keys_lack_is_named_and_not_the_layout_of_the_queries(said):
    for one in said["keys"]:
        assert one["first"]["module"] in ("attention", "attention.k"), one
        assert not [why for why in one["first"]["why"] if "shape" in why], one


class Normed(nnx.Module):
    def __init__(self, size, rngs):
        self.conv = nnx.Conv(6, 6, (size, size), rngs=rngs)
        self.norm = nnx.BatchNorm(6, epsilon=1e-5, use_running_average=True, rngs=rngs)

    def __call__(self, x):
        return jax.nn.relu(x + self.norm(self.conv(x)))


class Pixels(nnx.Module):
    """The network of ``channels_last.py``."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.stem = nnx.Conv(3, 6, (3, 3), rngs=rngs)
        self.blocks = nnx.List([Normed(size, rngs) for size in (1, 3)])
        self.head = nnx.Linear(6 * 5 * 7, 4, rngs=rngs)

    def __call__(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.reshape(len(x), -1))


@pytest.fixture(scope="module")
def said_of_changes(tmp_path_factory):
    net = Pixels()
    names = {"scale": "weight", "mean": "running_mean", "var": "running_var"}
    for (*path, name), value in nnx.to_flat_state(nnx.state(net, (nnx.Param, nnx.BatchStat))):
        layer = ".".join(map(str, path))
        own = channels_last.WEIGHTS.get(f"{layer}.{names.get(name, name)}")
        value[...] = jnp.asarray(channels_last.kernel(layer) if own is None else own)
    trace = intus.trace(net, jnp.asarray(channels_last.IMAGES))
    return channels_last.compared(trace, tmp_path_factory.mktemp("changes"))


def test_right_twin_of_blocks_agrees_in_both_orders(said_of_changes):
    channels_last.check_right(said_of_changes)


@pytest.mark.parametrize("change", channels_last.CHANGES)
def test_module_that_has_a_planted_change_is_named(said_of_changes, change):
    channels_last.check_named(said_of_changes, change)
