"""``compare`` of a transformer of PyTorch with twins of Flax NNX whose modules have other names.

The blocks are wired otherwise, or the second norm of the last block is another one. The main environment runs
the models of PyTorch and compares, in both orders.
"""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from torch_help import run_with_torch

import intus

pytestmark = pytest.mark.long
TORCH = """
import json, math, sys
import numpy as np, torch
import torch.nn.functional as F
from torch import nn
import intus

class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * (1 + self.weight)

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        weights = torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2) / math.sqrt(8), -1)
        return self.o(weights @ self.v(x))

class Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.ln1, self.attn, self.ln2, self.fc = norm(), Attention(), norm(), nn.Linear(8, 8)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.fc(self.ln2(x))

class Net(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.emb, self.blocks = nn.Linear(4, 8), nn.ModuleList(Block(norm) for _ in range(2))
        self.lnf = norm()

    def forward(self, x):
        x = self.emb(x)
        for block in self.blocks:
            x = block(x)
        return self.lnf(x)

folder, said = sys.argv[1], {}
for name in json.load(open(f"{folder}/names.json")):
    kind, other = name.split(": ")[0], intus.load(f"{folder}/{name}.trace")
    saved = np.load(f"{folder}/{kind}.npz")
    model = Net(RMSNorm if kind == "rms" else lambda: nn.LayerNorm(8)).eval()
    model.load_state_dict({key: torch.tensor(saved[key]) for key in model.state_dict()})
    trace = intus.trace(model, torch.tensor(saved["x"]))
    tables = [intus.compare(trace, other), intus.compare(other, trace)]
    said[name] = [[table.agree, table.attrs["first"], table.attrs["summary"]] for table in tables]
print(json.dumps(said))
"""


class RMSNorm(nnx.Module):
    def __init__(self, eps=1e-5, one=1):
        self.scale, self.eps, self.one = nnx.Param(jnp.zeros(8)), eps, one

    def __call__(self, x):
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + self.eps) * (self.one + self.scale[...])


def layer_norm(eps=1e-5):
    return nnx.LayerNorm(8, epsilon=eps, rngs=nnx.Rngs(0))


class Mixer(nnx.Module):
    def __init__(self):
        names = ("query", "key", "value", "proj")
        self.query, self.key, self.value, self.proj = (nnx.Linear(8, 8, rngs=nnx.Rngs(0)) for _ in names)

    def __call__(self, x):
        weights = jax.nn.softmax(self.query(x) @ jnp.swapaxes(self.key(x), -1, -2) / math.sqrt(8))
        return self.proj(weights @ self.value(x))


class Layer(nnx.Module):
    def __init__(self, wiring, norm):
        self.norm1, self.mixer, self.norm2 = norm(), Mixer(), norm()
        self.dense, self.wiring = nnx.Linear(8, 8, rngs=nnx.Rngs(0)), wiring

    def __call__(self, x):
        if self.wiring == "parallel":
            return x + self.mixer(self.norm1(x)) + self.dense(self.norm2(x))
        if self.wiring == "post-norm":
            x = self.norm1(x + self.mixer(x))
            return self.norm2(x + self.dense(x))
        y = self.mixer(self.norm1(x))
        x = y if self.wiring == "no residual" else x + y
        return x + self.dense(self.norm2(x))


class Net(nnx.Module):
    def __init__(self, wirings, norm):
        self.stem = nnx.Linear(4, 8, rngs=nnx.Rngs(0))
        self.layers = nnx.List([Layer(wiring, norm) for wiring in wirings])
        self.out = norm()

    def __call__(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


WIRINGS = {
    "nothing": ["", ""],
    "parallel": ["", "parallel"],
    "post-norm": ["post-norm", "post-norm"],
    "no residual": ["no residual", ""],
}
NORMS = {"layer": layer_norm, "rms": RMSNorm}
#: The norms that the second of the last block is replaced by.
CHANGED = {
    "layer: eps": lambda: layer_norm(1e-2),
    "rms: eps": lambda: RMSNorm(1e-2),
    "rms: one": lambda: RMSNorm(one=0),
}
NAMES = {
    "stem": "emb",
    "layers": "blocks",
    "out": "lnf",
    "norm1": "ln1",
    "mixer": "attn",
    "norm2": "ln2",
    "dense": "fc",
    "query": "q",
    "key": "k",
    "value": "v",
    "proj": "o",
    "kernel": "weight",
    "scale": "weight",
}


def in_torch(path):
    return ".".join(NAMES.get(part, part) for part in map(str, path))


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return what is said of each twin, in both orders."""
    folder, names = tmp_path_factory.mktemp("names"), []
    for kind, norm in NORMS.items():
        random = np.random.default_rng(0)
        x, state = random.normal(size=(2, 5, 4)).astype(np.float32), {}
        nets = {f"{kind}: {wiring}": Net(wirings, norm) for wiring, wirings in WIRINGS.items()}
        for name in (name for name in CHANGED if name.startswith(kind)):
            nets[name] = Net(["", ""], norm)
            nets[name].layers[1].norm2 = CHANGED[name]()
        for path, param in nnx.to_flat_state(nnx.state(nets[f"{kind}: nothing"], nnx.Param)):
            own = np.asarray(param[...]) + 0.2 * random.normal(size=param.shape).astype(np.float32)
            state[in_torch(path)] = own.T
            for net in nets.values():
                at = net
                for part in path:
                    at = at[part] if isinstance(part, int) else getattr(at, part)
                at[...] = jnp.asarray(own)
        np.savez(folder / f"{kind}.npz", x=x, **state)
        for name, net in nets.items():
            intus.trace(net, jnp.asarray(x)).save(folder / f"{name}.trace")
        names += nets
    (folder / "names.json").write_text(json.dumps(names))
    return run_with_torch(TORCH, folder)


@pytest.mark.parametrize("kind", NORMS)
def test_right_twin_agrees(said, kind):
    for agree, _, text in said[f"{kind}: nothing"]:
        assert agree, text


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize(("wiring", "number"), [("parallel", 1), ("post-norm", 0)])
def test_norm_that_is_given_another_tensor_is_not_named(said, kind, wiring, number):
    for _, first, text in said[f"{kind}: {wiring}"]:
        assert first["module"] in (f"blocks.{number}", f"layers.{number}"), text
        assert first["why"][0].startswith("its inputs are others: "), text


@pytest.mark.parametrize("kind", NORMS)
def test_skipped_residual_is_in_its_block(said, kind):
    for _, first, text in said[f"{kind}: no residual"]:
        assert first["module"] in ("blocks.0", "layers.0"), text
        assert " ran only in " in first["why"][0], text


@pytest.mark.parametrize("change", CHANGED)
def test_changed_norm_behind_a_layer_with_a_bias_is_named(said, change):
    for _, first, text in said[change]:
        assert first["module"] in ("blocks.1.ln2", "layers.1.norm2"), text
        if change.endswith("eps"):
            assert any("0.01" in reason for reason in first["why"]), text
