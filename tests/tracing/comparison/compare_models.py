"""Llama written by hand, with other operations in another order than in transformers."""

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, inner, self.heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
        self.size, self.groups = width // self.heads, config.num_key_value_heads
        self.n1, self.n2 = Norm(width, config.rms_norm_eps), Norm(width, config.rms_norm_eps)
        shared, self.scale = self.groups * self.size, True
        sizes = {"wq": (width, width), "wk": (width, shared), "wv": (width, shared), "wo": (width, width)}
        sizes |= {"w1": (width, inner), "w2": (inner, width), "w3": (width, inner)}
        for name, (a, b) in sizes.items():
            setattr(self, name, nn.Linear(a, b, bias=False))

    def rotate(self, x, cos, sin):
        a, b = x[..., : self.size // 2], x[..., self.size // 2 :]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        h = self.n1(x)
        k = self.wk(h).view(batch, length, self.groups, self.size).transpose(1, 2)
        q = self.wq(h).view(batch, length, self.heads, self.size).transpose(1, 2)
        v = self.wv(h).view(batch, length, self.groups, self.size).transpose(1, 2)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2)
        if self.scale:
            scores = scores / self.size**0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        x = x + self.wo(mixed.transpose(1, 2).reshape(batch, length, width))
        h = self.n2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, ids):
        size = self.blocks[0].size
        angles = torch.arange(ids.shape[1])[:, None] * 10_000.0 ** (-torch.arange(0, size, 2).float() / size)
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, angles.cos(), angles.sin())
        return self.head(self.norm(x))

    def copy_from(self, other):
        """Copy the weights of transformers' Llama."""
        names = {"model.embed_tokens": "embed", "model.norm": "norm", "lm_head": "head"}
        inner = {"n1": "input_layernorm", "n2": "post_attention_layernorm"}
        inner |= {f"w{name}": f"self_attn.{name}_proj" for name in "qkvo"}
        inner |= {"w1": "mlp.gate_proj", "w2": "mlp.down_proj", "w3": "mlp.up_proj"}
        for number in range(len(self.blocks)):
            for ours, theirs in inner.items():
                names[f"model.layers.{number}.{theirs}"] = f"blocks.{number}.{ours}"
        with torch.no_grad():
            for theirs, ours in names.items():
                self.get_submodule(ours).weight.copy_(other.get_submodule(theirs).weight)
        return self
