"""The models that are measured: chains of tiny operations, an LSTM as a Python loop, and known models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Chain(nn.Module):
    """A chain of ``length`` operations on eight numbers, so that the cost is that of the calls."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, x: Tensor) -> Tensor:
        """Apply all operations."""
        for _ in range(self.length // 4):
            x = torch.tanh(torch.relu(x) + 1) * 0.5
        return x


class LoopLstm(nn.Module):
    """An LSTM cell of elementary operations, called step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.of_input, self.of_state = nn.Linear(16, 128), nn.Linear(32, 128)

    def forward(self, x: Tensor) -> Tensor:
        """Process sequences (batch, steps, 16)."""
        h = c = x.new_zeros(x.shape[0], 32)
        for step in range(x.shape[1]):
            i, f, g, o = (self.of_input(x[:, step]) + self.of_state(h)).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


Made = tuple[nn.Module, dict[str, Any]]


def _chain(length: int) -> Callable[[], Made]:
    return lambda: (Chain(length), {"x": torch.ones(8)})


def _lstm(steps: int = 200) -> Made:
    return LoopLstm(), {"x": torch.randn(4, steps, 16)}


def _resnet50() -> Made:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig(depths=[3, 4, 6, 3])), {"pixel_values": torch.randn(1, 3, 224, 224)}


def _gpt2() -> Made:
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config()), {"input_ids": torch.randint(0, 50257, (1, 128))}


def _vit() -> Made:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig()), {"pixel_values": torch.randn(1, 3, 224, 224)}


def llama_70b() -> Made:
    """Return a model of the size of Llama 70B on ``meta``, and its inputs."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80}
    heads = {"num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256}
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**shape, **heads, max_position_embeddings=8192)).eval()
        return model, {"input_ids": torch.zeros(1, 4096, dtype=torch.long)}


#: By name: a function that makes the model and its keyword inputs.
WORKLOADS: dict[str, Callable[[], Made]] = {
    "chain of 1,000": _chain(1_000),
    "chain of 10,000": _chain(10_000),
    "chain of 100,000": _chain(100_000),
    "Python LSTM, 200 steps": _lstm,
    "ResNet-50, batch 1": _resnet50,
    "GPT-2 small, 128 tokens": _gpt2,
    "ViT-B/16, batch 1": _vit,
}

#: The models whose pages are compared with those of other tools.
PICTURED: dict[str, Callable[[], Made]] = {
    "ResNet-50": _resnet50,
    "GPT-2 small": _gpt2,
    "Python LSTM, 40 steps": lambda: _lstm(40),
    "chain of 1,000": _chain(1_000),
    "chain of 10,000": _chain(10_000),
}
