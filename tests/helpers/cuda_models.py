"""Models for the tests on a GPU, each with the ways in which a GPU runs code that a CPU does not.

``INTUS_DEVICE=cpu`` runs these tests without a GPU, as far as they can, to work on them.
"""

from __future__ import annotations

import os
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read by the first product; makes it repeatable
DEVICE = os.environ.get("INTUS_DEVICE", "cuda")
#: Whether the machine has what is tested; only someone at work on the tests sets another device.
ON_GPU = DEVICE == "cuda"


class Residual(nn.Module):
    """A CNN with residual blocks, BatchNorm, dropout and writes in place."""

    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm, self.relu, self.drop = nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.Dropout2d(0.2)
        self.one = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.two = nn.Conv2d(width, width, 3, padding=1, groups=4)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(width, 10)

    def forward(self, x):
        x = self.relu(self.norm(self.stem(x)))
        x = x + self.two(self.drop(self.relu(self.one(x))))
        return self.head(self.pool(x).flatten(1))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.before(x)).chunk(3, -1)
        )
        dropout = self.dropout if self.training else 0.0
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        x = x + F.dropout(self.out(a.transpose(1, 2).flatten(2)), self.dropout, self.training)
        return x + self.down(F.gelu(self.up(self.after(x))))


class Decoder(nn.Module):
    """A transformer of token ids with causal attention."""

    def __init__(self, width=64, layers=2, vocabulary=101, dropout=0.1):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width, max(width // 32, 1), dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(12, 16, 2, batch_first=True, dropout=0.3), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class TwoDevices(nn.Module):
    """A layer on the CPU, the others on the GPU, with copies in between."""

    def __init__(self):
        super().__init__()
        self.here, self.there = nn.Linear(12, 32), nn.Linear(32, 8).to(DEVICE)

    def forward(self, x):
        x = self.here(x.cpu()).relu().to(DEVICE, non_blocking=True)
        back = self.there(x).to("cpu")
        return back + 1, self.there(x).sigmoid()


class Streams(nn.Module):
    """Two branches on two streams."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(12, 32), nn.Linear(12, 32)

    def forward(self, x):
        if not ON_GPU:
            return self.left(x).relu() * self.right(x).tanh()
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            left = self.left(x).relu()
        right = self.right(x).tanh()
        main.wait_stream(side)
        left.record_stream(main)
        return left * right


class Noisy(nn.Module):
    """Random numbers made on the device, by the default generator and by one of its own."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(12, 12)
        self.own = torch.Generator(DEVICE).manual_seed(5)

    def forward(self, x):
        x = self.lin(x) + torch.randn(x.shape, device=x.device)
        x = x * torch.rand(x.shape, device=x.device, generator=self.own)
        return x + torch.randn_like(x).relu_() + torch.bernoulli(torch.full_like(x, 0.5))


class Attends(nn.Module):
    """Attention by one kernel, which the model chooses."""

    def __init__(self, kernel):
        super().__init__()
        self.kernel, self.lin = kernel, nn.Linear(64, 64)

    def forward(self, x):
        q = self.lin(x).unflatten(-1, (2, 32)).transpose(1, 2)
        with sdpa_kernel(self.kernel):
            return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(2)


def images(rows=8):
    return torch.randn(rows, 3, 24, 24)


def tokens(rows=4, length=48):
    return torch.randint(0, 101, (rows, length))


def autocast(dtype):
    return lambda: torch.autocast(DEVICE, dtype=dtype)


#: Models by what is special about them: how they are made, an input, and what they run in.
CASES = {
    "cnn eval": (lambda: Residual().eval(), images, nullcontext),
    "cnn train": (Residual, images, nullcontext),
    "cnn float16": (lambda: Residual().half().eval(), lambda: images().half(), nullcontext),
    "cnn channels last": (
        lambda: Residual().to(memory_format=torch.channels_last),
        lambda: images().to(memory_format=torch.channels_last),
        nullcontext,
    ),
    "cnn autocast float16": (Residual, images, autocast(torch.float16)),
    "transformer eval": (lambda: Decoder().eval(), tokens, nullcontext),
    "transformer train": (Decoder, tokens, nullcontext),
    "transformer bfloat16": (lambda: Decoder().bfloat16().eval(), tokens, nullcontext),
    "transformer autocast bfloat16": (Decoder, tokens, autocast(torch.bfloat16)),
    "lstm train": (Recurrent, lambda: torch.randn(5, 7, 12), nullcontext),
    "lstm eval": (lambda: Recurrent().eval(), lambda: torch.randn(5, 7, 12), nullcontext),
    "two devices": (TwoDevices, lambda: torch.randn(5, 12), nullcontext),
    "streams": (Streams, lambda: torch.randn(5, 12), nullcontext),
    "random numbers": (Noisy, lambda: torch.randn(5, 12), nullcontext),
    "math attention": (lambda: Attends(SDPBackend.MATH), lambda: torch.randn(2, 40, 64), nullcontext),
    "efficient attention": (
        lambda: Attends([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]),
        lambda: torch.randn(2, 40, 64),
        nullcontext,
    ),
    "flash attention": (
        lambda: Attends([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]).bfloat16(),
        lambda: torch.randn(2, 40, 64).bfloat16(),
        nullcontext,
    ),
    "cudnn attention": (
        lambda: Attends([SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]).bfloat16(),
        lambda: torch.randn(2, 40, 64).bfloat16(),
        nullcontext,
    ),
}


def made(name):
    """Return the model of a case on the device, its input there, and what it runs in."""
    torch.manual_seed(0)
    make, given, within = CASES[name]
    model = make()
    model = model if isinstance(model, TwoDevices) else model.to(DEVICE)
    return model, given().to(DEVICE), within


def wait():
    """Wait for the device."""
    if ON_GPU:
        torch.cuda.synchronize()
