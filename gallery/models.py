"""Known architectures at their published sizes, on the meta device: without memory and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Built = tuple[Callable[..., Any], Any]


class Known(NamedTuple):
    """An architecture; ``build()`` returns a model on the meta device and the inputs for ``trace``."""

    family: str
    name: str
    build: Callable[[], Built]


def known() -> Iterator[Known]:
    """Yield every architecture, family by family."""
    for family, names in _TRANSFORMERS.items():
        for name, (kind, inputs) in names.items():
            yield Known(family, name, partial(_from_transformers, kind, inputs))
    yield from _OWN


def _tokens(length: int = 32) -> dict[str, Tensor]:
    return {"input_ids": torch.ones(1, length, dtype=torch.long)}


def _both(length: int = 32) -> dict[str, Tensor]:
    return _tokens(length) | {"decoder_input_ids": torch.ones(1, 16, dtype=torch.long)}


def _image(size: int = 224) -> dict[str, Tensor]:
    return {"pixel_values": torch.ones(1, 3, size, size)}


def _clip() -> dict[str, Tensor]:
    return _tokens(16) | _image()


def _sound() -> dict[str, Tensor]:
    return {"input_values": torch.ones(1, 16_000)}


def _spectrum() -> dict[str, Tensor]:
    features = {"input_features": torch.ones(1, 80, 3000)}
    return features | {"decoder_input_ids": torch.ones(1, 8, dtype=torch.long)}


#: By family and name: a class of transformers, whose default configuration has the published size; inputs.
_TRANSFORMERS: dict[str, dict[str, tuple[str, Callable[[], dict[str, Tensor]]]]] = {
    "Text encoders": {
        "ALBERT": ("AlbertModel", _tokens),
        "BERT": ("BertModel", _tokens),
        "DistilBERT": ("DistilBertModel", _tokens),
        "ELECTRA": ("ElectraModel", _tokens),
        "ModernBERT": ("ModernBertModel", _tokens),
        "RoBERTa": ("RobertaModel", _tokens),
    },
    "Text decoders": {
        "BLOOM": ("BloomModel", _tokens),
        "Falcon": ("FalconModel", _tokens),
        "Gemma": ("GemmaModel", _tokens),
        "GPT-2": ("GPT2LMHeadModel", _tokens),
        "GPT-J": ("GPTJModel", _tokens),
        "GPT-NeoX": ("GPTNeoXModel", _tokens),
        "Llama": ("LlamaForCausalLM", _tokens),
        "Mamba": ("MambaModel", _tokens),
        "Mistral": ("MistralModel", _tokens),
        "OLMo": ("OlmoModel", _tokens),
        "OPT": ("OPTModel", _tokens),
        "Phi": ("PhiModel", _tokens),
        "Qwen 3": ("Qwen3Model", _tokens),
        "RWKV": ("RwkvModel", partial(_tokens, 8)),
    },
    "Text-to-text": {
        "BART": ("BartModel", _both),
        "Pegasus": ("PegasusModel", _both),
        "T5": ("T5Model", _both),
    },
    "Images": {
        "BEiT": ("BeitModel", _image),
        "ConvNeXt": ("ConvNextModel", _image),
        "DeiT": ("DeiTModel", _image),
        "DINOv2": ("Dinov2Model", _image),
        "MobileNet v2": ("MobileNetV2Model", _image),
        "MobileViT": ("MobileViTModel", _image),
        "ResNet-50": ("ResNetModel", _image),
        "SegFormer": ("SegformerModel", _image),
        "Swin": ("SwinModel", _image),
        "ViT": ("ViTModel", _image),
    },
    "Audio": {
        "HuBERT": ("HubertModel", _sound),
        "wav2vec 2.0": ("Wav2Vec2Model", _sound),
        "Whisper": ("WhisperModel", _spectrum),
    },
    "Images and text": {"CLIP": ("CLIPModel", _clip)},
}


def _from_transformers(kind: str, inputs: Callable[[], dict[str, Tensor]]) -> Built:
    import transformers

    cls = getattr(transformers, kind)
    with torch.device("meta"):
        return cls(cls.config_class()).eval(), inputs()


class UNet(nn.Module):
    """U-Net (Ronneberger, Fischer and Brox 2015): four levels down and up, with skip connections."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256, 512, 1024)) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.first = self.block(1, widths[0])
        self.down = nn.ModuleList(self.block(a, b) for a, b in pairs)
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.up = nn.ModuleList(self.block(b, a) for a, b in reversed(pairs))
        self.last = nn.Conv2d(widths[0], 2, 1)

    @staticmethod
    def block(a: int, b: int) -> nn.Module:
        """Return two convolutions with ReLU."""
        return nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Segment images (batch, 1, height, width)."""
        levels = [self.first(x)]
        for block in self.down:
            levels.append(block(nn.functional.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat([levels.pop(), grow(x)], 1))
        return self.last(x)


class Reader(nn.Module):
    """A recurrent network whose cell is called once per step."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.cell = nn.GRUCell(64, 128)
        self.head = nn.Linear(128, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Classify token sequences (batch, length)."""
        h = torch.zeros(tokens.shape[0], 128, device=tokens.device)
        for step in self.embed(tokens).unbind(1):
            h = self.cell(step, h)
        return self.head(h)


def _here(make: Callable[[], nn.Module], inputs: Callable[[], Any]) -> Built:
    with torch.device("meta"):
        return make().eval(), inputs()


_OWN = (
    Known("Images", "LeNet-5", partial(_here, lambda: _lenet(), lambda: torch.ones(1, 1, 32, 32))),
    Known("Images", "U-Net", partial(_here, UNet, lambda: torch.ones(1, 1, 256, 256))),
    Known(
        "Recurrent", "GRU, step by step", partial(_here, Reader, lambda: torch.ones(1, 8, dtype=torch.long))
    ),
    Known("Recurrent", "LSTM", partial(_here, lambda: nn.LSTM(64, 128, 2), lambda: torch.ones(10, 1, 64))),
    Known(
        "Text-to-text",
        "Transformer (2017)",
        partial(_here, nn.Transformer, lambda: (torch.ones(10, 1, 512), torch.ones(8, 1, 512))),
    ),
)


def _lenet() -> nn.Module:
    features = (
        nn.Conv2d(1, 6, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
    )
    head = (nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))
    return nn.Sequential(*features, *head)
