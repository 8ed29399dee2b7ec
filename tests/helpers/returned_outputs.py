"""Compare what a trace of a file has as the outputs of modules with what the modules return in torch."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import torch
from torch import nn

from intus.core.errors import AddressError


def tensors_in(returned):
    """Return the tensors in what a module returned, in order."""
    if isinstance(returned, torch.Tensor):
        return [returned.detach().clone()]
    parts = returned.values() if isinstance(returned, dict) else returned
    return (
        [one for part in parts for one in tensors_in(part)]
        if isinstance(parts, list | tuple) or (isinstance(returned, dict))
        else []
    )


def judged(trace, model, args):
    """Return the addresses of modules by what a trace says of their output.

    ``first`` is the first tensor that the first call returned in torch, ``another`` a later one, ``wrong``
    none of these, ``unknown`` an error that says so, and ``absent`` an error of a module without operations.
    """
    returned, hooks = {}, []
    for address, module in model.named_modules():

        def note(module, inputs, output, address=address):
            returned.setdefault(address, tensors_in(output))

        hooks += [module.register_forward_hook(note)] if address else []
    with torch.no_grad():
        model(*args)
    for hook in hooks:
        hook.remove()
    found = {kind: [] for kind in ("first", "another", "wrong", "unknown", "absent")}
    for address, theirs in returned.items():
        found[_kind(trace, address, theirs)] += [address] if theirs else []
    return found


def _kind(trace, address, theirs):
    try:
        ours = np.asarray(trace[address].value)
    except AddressError as error:
        return "unknown" if "is not known" in str(error) else "absent"
    same = [ours.shape == tuple(one.shape) and np.allclose(ours, one, rtol=1e-4, atol=1e-4) for one in theirs]
    return "wrong" if not any(same) else "first" if same[0] else "another"


def counted(found):
    """Return the number of addresses of each kind."""
    return Counter({kind: len(addresses) for kind, addresses in found.items()})


class Child(nn.Module):
    """A module with steps that may leave it without being returned, drawn at random."""

    def __init__(self, draw):
        super().__init__()
        self.steps = [draw.random() < 0.5 for _ in range(4)]
        self.returns = draw.choice(["one", "one", "one", "after", "before", "computed"])
        self.inner = nn.Linear(6, 6)
        self.norm = Norm()
        self.register_buffer("own", torch.rand(6))

    def forward(self, x, shared):
        cast, masked, buffered, normed = self.steps
        h = x.to(torch.float32) if cast else x
        aux = torch.sigmoid(x)
        if masked:
            h = h * torch.arange(x.shape[-2]).cumsum(0).to(torch.float32)[:, None]
        h = h + (shared * self.own if buffered else self.own)
        y = torch.tanh(self.inner(self.norm(h) if normed else h) + x)
        if self.returns == "computed":
            return y, torch.exp(y)
        return {"one": y, "after": (y, aux), "before": (aux, y)}[self.returns]


class Norm(nn.Module):
    """A norm that casts what it is given to the dtype that it has, as those of language models."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6) + 1)

    def forward(self, x):
        h = x.to(torch.float32)
        return self.weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Parent(nn.Module):
    """Children in a row, which read one buffer and whose results are all used."""

    def __init__(self, seed):
        super().__init__()
        draw = random.Random(seed)
        self.blocks = nn.ModuleList(Child(draw) for _ in range(draw.randint(2, 4)))
        self.register_buffer("shared", torch.rand(5, 6))

    def forward(self, x):
        for block in self.blocks:
            found = block(x, self.shared)
            some = found if isinstance(found, tuple) else (found,)
            x = x + sum(some)
        return x


def generated(seed):
    """Return a model of random modules, and its inputs."""
    torch.manual_seed(seed)
    return Parent(seed).eval(), (torch.randn(2, 5, 6),)
