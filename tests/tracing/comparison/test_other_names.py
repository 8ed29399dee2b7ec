"""``compare`` of twins whose modules have other names: the place and the reason as with equal names.

The blocks of a transformer are wired otherwise, norms are set otherwise, and the names are random.
"""

import math
import re
from random import Random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import intus

WIDTH = 8
#: The names of the modules, and of those inside of a block, of an attention and of the layers after it.
NAMES = ("emb", "ln0", "blocks", "lnf", "head", "ln1", "attn", "ln2", "mlp", "q", "k", "v", "o", "up", "down")
WORDS = (
    *("embed", "stem", "tokens", "norm", "norm_in", "input_norm", "layers", "h", "stage", "encoder"),
    *("final", "norm_out", "lm_head", "readout", "classifier", "norm1", "norm2", "pre", "post", "before"),
    *("attention", "self_attn", "mixer", "ffn", "feed_forward", "dense", "fc1", "fc2", "query", "key"),
    *("value", "proj", "wq", "wk", "wv", "wo", "inner", "outer", "gate", "block", "body", "unit"),
)


class LayerNormInSteps(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias


class RMSNorm(nn.Module):
    def __init__(self, eps=1e-6, one=1.0):
        super().__init__()
        self.weight, self.eps, self.one = nn.Parameter(torch.zeros(WIDTH)), eps, one

    def forward(self, x):
        return F.rms_norm(x, (WIDTH,), None, self.eps) * (self.one + self.weight)


class RMSNormInSteps(RMSNorm):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (self.one + self.weight)


NORMS = {
    "layer norm": (lambda **eps: nn.LayerNorm(WIDTH, **eps), lambda **eps: nn.LayerNorm(WIDTH, **eps)),
    "layer norm in steps": (lambda **eps: nn.LayerNorm(WIDTH, **eps), LayerNormInSteps),
    "rms norm": (RMSNorm, RMSNormInSteps),
}


class Named(nn.Module):
    """A module whose parts have names that are given; ``part`` returns the one of a name of ``NAMES``."""

    def __init__(self, names, **parts):
        super().__init__()
        self.names = names
        for name, part in parts.items():
            setattr(self, names[name], part)

    def part(self, name):
        return getattr(self, self.names[name])


class Attention(Named):
    def __init__(self, names):
        super().__init__(names, **{name: nn.Linear(WIDTH, WIDTH) for name in "qkvo"})

    def forward(self, x):
        q, k, v = (self.part(name)(x) for name in "qkv")
        return self.part("o")(torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(WIDTH), -1) @ v)


class Mlp(Named):
    def __init__(self, names):
        super().__init__(names, up=nn.Linear(WIDTH, 12), down=nn.Linear(12, WIDTH))

    def forward(self, x):
        return self.part("down")(F.gelu(self.part("up")(x)))


class Block(Named):
    def __init__(self, names, wiring, norm):
        super().__init__(names, ln1=norm(), attn=Attention(names), ln2=norm(), mlp=Mlp(names))
        self.wiring = wiring

    def forward(self, x):
        ln1, attn, ln2, mlp = (self.part(name) for name in ("ln1", "attn", "ln2", "mlp"))
        if self.wiring == "parallel":
            return x + attn(ln1(x)) + mlp(ln2(x))
        if self.wiring == "post-norm":
            x = ln1(x + attn(x))
            return ln2(x + mlp(x))
        x = ln1(x) if self.wiring == "residual after the norm" else x
        y = attn(x if self.wiring == "residual after the norm" else ln1(x))
        x = y if self.wiring == "no residual" else x + y
        return x + mlp(ln2(x))


class Net(Named):
    """A transformer, with its blocks in a list, or each under a name of its own."""

    def __init__(self, names, wirings, norm, *, is_flat=False, positions_first=True):
        super().__init__(names, emb=nn.Linear(4, WIDTH), ln0=norm())
        self.positions = nn.Parameter(torch.randn(5, WIDTH))
        blocks = [Block(names, wiring, norm) for wiring in wirings]
        self.flat = [f"{names['blocks']}_{n}" for n in range(len(blocks))] if is_flat else []
        for name, block in zip(self.flat, blocks, strict=False):
            setattr(self, name, block)
        if not is_flat:
            setattr(self, names["blocks"], nn.ModuleList(blocks))
        setattr(self, names["lnf"], norm())
        setattr(self, names["head"], nn.Linear(WIDTH, 3))
        self.positions_first = positions_first

    def own_blocks(self):
        return [getattr(self, name) for name in self.flat] or [*self.part("blocks")]

    def forward(self, x):
        x, norm = self.part("emb")(x), self.part("ln0")
        x = norm(x + self.positions) if self.positions_first else norm(x) + self.positions
        for block in self.own_blocks():
            x = block(x)
        return self.part("head")(self.part("lnf")(x))


class Around(nn.Module):
    def __init__(self, name, net):
        super().__init__()
        self.name = name
        setattr(self, name, net)

    def forward(self, x):
        return getattr(self, self.name)(x)


SAME = {name: name for name in NAMES}
PARALLEL, POST, AFTER, NONE = "parallel", "post-norm", "residual after the norm", "no residual"
#: What is planted; with where it is, and whether an operation is given another tensor.
PLANTED = {
    "nothing": (None, None),
    PARALLEL: ("blocks.1", True),
    POST: ("blocks.0", True),
    AFTER: ("blocks.0", True),
    NONE: ("blocks.0", False),
    "positions": ("", True),
    "eps": ("blocks.1.ln2", False),
}
#: The wirings of both blocks.
WIRINGS = {PARALLEL: ["", PARALLEL], POST: [POST, POST], AFTER: [AFTER, ""], NONE: [NONE, ""]}


def twins(planted, norms, names, *, is_flat=False, around=""):
    """Return a model and its twin of other names, in which something is planted; and the input."""
    torch.manual_seed(0)
    one, other = NORMS[norms]
    a = Net(SAME, ["", ""], one)
    b = Net(
        names,
        WIRINGS.get(planted, ["", ""]),
        other,
        is_flat=is_flat,
        positions_first=planted != "positions",
    )
    with torch.no_grad():
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            if p.ndim == 1:
                p.add_(0.2 * torch.randn(p.shape))
            q.copy_(p)
    if planted == "eps":
        b.own_blocks()[1].part("ln2").eps = 1e-2
    return a.eval(), (Around(around, b) if around else b).eval(), torch.randn(2, 5, 4)


def back(address, names, *, is_flat=False, around=""):
    """Return an address of a twin under the names of the model."""
    own = {name: key for key, name in names.items()}
    parts = address.split(".")
    parts = parts[1:] if around and parts[0] == around else parts
    if is_flat and parts and (match := re.fullmatch(rf"{names['blocks']}_(\d)", parts[0])):
        parts = [names["blocks"], match[1], *parts[1:]]
    return ".".join(own.get(part, part) for part in parts)


def said(one, other, *, turned, of_twin):
    """Return whether two traces agree, with the place and the reasons in the names of the model."""
    table = intus.compare(other, one) if turned else intus.compare(one, other)
    if table.attrs["first"] is None:
        return table.agree, None, []
    first = table.attrs["first"]
    place = _in_model(first["module"], of_twin)
    why = []
    for reason in first["why"]:
        text = re.sub(r"[\w.]+\.(?:weight|bias)", lambda match: _in_model(match[0], of_twin), reason)
        why.append(re.sub(r"(\S+) of a and \1 of b", r"\1 of a and of b", text))
    return table.agree, place, why


def _in_model(address, of_twin):
    return address if address.startswith(("blocks", "ln", "emb", "head")) else of_twin(address)


def random_names(seed):
    """Return names for all modules, and how the blocks are held."""
    random = Random(seed)
    names = dict(zip(NAMES, random.sample(WORDS, len(NAMES)), strict=True))
    held = {"is_flat": random.random() < 0.4, "around": random.choice(["", "", "model", "net"])}
    return names, held


def check(planted, norms, seed):
    """Check that random names change nothing of what is said, in both orders."""
    names, held = random_names(seed)
    a, same, x = twins(planted, norms, SAME)
    _, other, _ = twins(planted, norms, names, **held)
    if planted == "nothing":
        assert torch.allclose(a(x), other(x), atol=1e-5)
    traces = [intus.trace(model, x) for model in (a, same, other)]
    for turned in (False, True):
        expected = said(traces[0], traces[1], turned=turned, of_twin=lambda address: address)
        found = said(
            traces[0], traces[2], turned=turned, of_twin=lambda address: back(address, names, **held)
        )
        assert found == expected, (names, held)
        place, is_given_another = PLANTED[planted]
        assert found[:2] == (planted == "nothing", place), found
        if is_given_another is not None:
            assert found[2][0].startswith("its inputs are others: ") == is_given_another, found


@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("planted", PLANTED)
def test_other_names_change_neither_place_nor_reason(planted, norms):
    check(planted, norms, seed=f"{planted} {norms}")


#: Of the seeds of names, all but a few are for the sweeps.
SEEDS = [pytest.param(seed, marks=pytest.mark.long if seed < 3 else pytest.mark.slow) for seed in range(12)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("planted", PLANTED)
def test_random_names_change_neither_place_nor_reason(planted, norms, seed):
    check(planted, norms, seed)


class BatchNormInSteps(nn.Module):
    def __init__(self, eps=1e-5, *, is_affine=True):
        super().__init__()
        self.eps, self.is_affine = eps, is_affine
        if is_affine:
            self.weight, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))
        self.register_buffer("running_mean", torch.zeros(WIDTH))
        self.register_buffer("running_var", torch.ones(WIDTH))

    def forward(self, x):
        y = (x - self.running_mean) / torch.sqrt(self.running_var + self.eps)
        return y * self.weight + self.bias if self.is_affine else y


class Images(nn.Module):
    """Convolutions and batch norms, with the channels first or, in steps, last."""

    def __init__(self, names, norms):
        super().__init__()
        self.names, self.is_last = names, isinstance(norms[0], BatchNormInSteps)
        for n, norm in enumerate(norms):
            setattr(self, f"{names[0]}_{n}", nn.Conv2d(3 if n == 0 else WIDTH, WIDTH, 1))
            setattr(self, f"{names[1]}_{n}", norm)

    def forward(self, x):
        for n in range(3):
            conv, norm = (getattr(self, f"{name}_{n}") for name in self.names)
            x = norm(conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) if self.is_last else conv(x)).relu()
        return x.mean((1, 2) if self.is_last else (2, 3))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"eps": 1e-3}, "its constants are eps=1e-05"),
        ({"is_affine": False}, "norm_1.weight of a has no counterpart in b"),
    ],
)
def test_batch_norm_in_steps_under_another_name_is_named(change, reason):
    torch.manual_seed(0)
    a = Images(("conv", "norm"), [nn.BatchNorm2d(WIDTH) for _ in range(3)]).eval()
    for n in range(3):
        norm = getattr(a, f"norm_{n}")
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias)
        nn.init.normal_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.05, 0.3)
    b = Images(("c", "bn"), [BatchNormInSteps(), BatchNormInSteps(**change), BatchNormInSteps()]).eval()
    state = {name.replace("conv", "c").replace("norm", "bn"): value for name, value in a.state_dict().items()}
    b.load_state_dict(state, strict=False)
    x = torch.randn(2, 3, 5, 5)
    first = intus.compare(intus.trace(a, x), intus.trace(b, x.permute(0, 2, 3, 1))).attrs["first"]
    assert first["module"] == "norm_1", first
    assert any(one.startswith(reason) for one in first["why"]), first
