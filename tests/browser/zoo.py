"""Small models with random weights to draw: common architectures, and random graphs."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from intus.core.graph import Graph
from intus.tracing.run import trace


class Wild(nn.Module):
    """A random graph in which any later operation, in nested modules or outside, may use any value."""

    def __init__(self, seed: int, depth: int = 2) -> None:
        super().__init__()
        self.seed = seed
        self.inner = nn.ModuleList(Wild(seed * 7 + i + 1, depth - 1) for i in range(3)) if depth else []

    def forward(self, *given: Tensor) -> Tensor:
        pick = random.Random(self.seed)
        values = list(given)
        for number in range(pick.randint(3, 14)):
            some = pick.choices(values, k=pick.randint(1, 3))
            if pick.random() < 0.15:
                some.append(torch.ones(2))
            if len(self.inner) and number % 4 == 1:
                values.append(self.inner[number // 4 % 3](*some))
            else:
                values.append(sum(some[1:], torch.tanh(some[0])))
        return values[-1] + values[len(values) // 2]


def _block(given: int, made: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(given, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU())


class UNet(nn.Module):
    """A U-Net: downsampling, then upsampling with skip connections."""

    def __init__(self, *wide: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(_block(a, b) for a, b in zip((3, *wide[:-1]), wide, strict=True))
        pairs = list(itertools.pairwise(wide))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
        self.join = nn.ModuleList(_block(2 * a, a) for a, _ in pairs)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for step in self.down[:-1]:
            x = step(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return x


class Recurrent(nn.Module):
    """A recurrent loop followed by a decision."""

    def __init__(self, steps: int = 6) -> None:
        super().__init__()
        self.steps = steps
        self.wx, self.wh, self.out = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(1, 16)
        for step in range(self.steps):
            h = torch.tanh(self.wx(x[:, step]) + self.wh(h))
        if h.mean() > 5:
            h = h * 2
        return self.out(h)


class Decoder(nn.Module):
    """An LSTM cell with an output at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(20, 8), nn.LSTMCell(8, 16), nn.Linear(16, 20)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(len(x), 16)
        outputs = []
        for step in range(x.shape[1]):
            h, c = self.cell(self.embed(x[:, step]), (h, c))
            outputs.append(self.out(h))
        return torch.stack(outputs, 1)


class Chain(nn.Module):
    """A chain of operations."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.length):
            x = x.neg()
        return x


def graph_of(model: nn.Module, *inputs: Any, **named: Tensor) -> Graph:
    """Trace a model's structure."""
    torch.manual_seed(0)
    return trace(model.eval(), inputs, save="none", **named).graph


@contextmanager
def _without_warnings() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        yield transformers


_HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1}
_SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4}
_TEXT: dict[str, Any] = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1}
_DECODER = {**_SMALL, **_HEADS, **_TEXT}
_IMAGE: dict[str, Any] = {**_SMALL, "num_attention_heads": 2, "image_size": 16, "patch_size": 8}
_TOKENS = torch.zeros(1, 8, dtype=torch.long)
_T5 = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 3, "num_heads": 2, "decoder_start_token_id": 0}
_SWIN = {"embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "image_size": 32, "window_size": 4}
_PIXELS = torch.zeros(1, 3, 32, 32)


def _known(name: str, config: dict[str, Any], *inputs: Tensor, head: str = "Model") -> Callable[[], Graph]:
    def make() -> Graph:
        with _without_warnings() as transformers:
            model = getattr(transformers, name + head)(getattr(transformers, name + "Config")(**config))
            return graph_of(model, *inputs)

    return make


def _t5() -> Graph:
    with _without_warnings() as transformers:
        model = transformers.T5Model(transformers.T5Config(vocab_size=50, **_T5))
        return graph_of(model, input_ids=_TOKENS, decoder_input_ids=_TOKENS[:, :4])


MODELS: dict[str, Callable[[], Graph]] = {
    "gpt2": _known(
        "GPT2",
        {"n_layer": 12, "n_embd": 16, "n_head": 2, "use_cache": False, **_TEXT},
        _TOKENS,
        head="LMHeadModel",
    ),
    "llama": _known("Llama", _DECODER, _TOKENS, head="ForCausalLM"),
    "mixtral": _known("Mixtral", {**_DECODER, "num_local_experts": 3}, _TOKENS),
    "qwen3": _known("Qwen3", {**_DECODER, "head_dim": 8}, _TOKENS),
    "bert": _known("Bert", {**_SMALL, "num_attention_heads": 2, "vocab_size": 50}, _TOKENS),
    "vit": _known("ViT", _IMAGE, torch.zeros(1, 3, 16, 16)),
    "swin": _known("Swin", _SWIN, _PIXELS),
    "t5": _t5,
    "resnet50": _known("ResNet", {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 32]}, _PIXELS),
    "unet": lambda: graph_of(UNet(4, 8, 16, 16), _PIXELS),
    "recurrent": lambda: graph_of(Recurrent(), torch.zeros(1, 6, 8)),
    "decoder": lambda: graph_of(Decoder(), _TOKENS),
    "lstm": lambda: graph_of(nn.LSTM(4, 8, 2), torch.zeros(5, 1, 4)),
    "encoder": lambda: graph_of(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 3, enable_nested_tensor=False),
        torch.zeros(5, 1, 16),
    ),
    "chain": lambda: graph_of(Chain(3000), torch.zeros(1)),
    "one operation": lambda: graph_of(nn.Linear(2, 2), torch.zeros(1, 2)),
    **{f"wild {seed}": lambda seed=seed: graph_of(Wild(seed), torch.zeros(2)) for seed in range(6)},
}
