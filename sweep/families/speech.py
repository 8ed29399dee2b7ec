"""The architectures of torchaudio that ``transformers`` lacks, small and by hand: torchaudio is not needed.

``transformers`` has wav2vec 2.0, HuBERT, WavLM and the Conformer (``wav2vec2-conformer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..architecture import Architecture


class DeepSpeech(nn.Module):
    """Three clipped layers, a bidirectional recurrent layer, and letters (Hannun et al., 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.ModuleList(nn.Linear(a, b) for a, b in ((8, 16), (16, 16), (16, 16), (32, 16)))
        self.rnn, self.letters = nn.RNN(16, 16, nonlinearity="relu", bidirectional=True), nn.Linear(16, 29)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.dense[:3]:
            x = F.relu(layer(x)).clamp(max=20)
        x = F.relu(self.dense[3](self.rnn(x)[0])).clamp(max=20)
        return self.letters(x).log_softmax(-1)


class Conformer(nn.Module):
    """A block of half a dense layer, attention, convolution and half a dense layer (Gulati et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.convolution = nn.Sequential(
            *(nn.Conv1d(16, 32, 1), nn.GLU(1), nn.Conv1d(16, 16, 3, padding=1, groups=16)),
            *(nn.BatchNorm1d(16), nn.SiLU(), nn.Conv1d(16, 16, 1)),
        )

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        padding = torch.arange(x.shape[1])[None] >= lengths[:, None]
        x = x + 0.5 * self.dense[0](x)
        h = self.norms[0](x)
        x = x + self.attention(h, h, h, key_padding_mask=padding, need_weights=False)[0]
        x = x + self.convolution(self.norms[1](x).mT).mT
        return self.norms[2](x + 0.5 * self.dense[1](x))


class Tacotron2(nn.Module):
    """Text to spectrogram with location-sensitive attention until a stop token (Shen et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.mels = nn.Embedding(20, 16), nn.Linear(32, 8)
        self.convolutions = nn.Sequential(nn.Conv1d(16, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU())
        self.encoder = nn.LSTM(16, 8, batch_first=True, bidirectional=True)
        self.first, self.second = nn.LSTMCell(24, 16), nn.LSTMCell(32, 16)
        self.prenet = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
        self.query, self.place, self.score = nn.Linear(16, 8), nn.Conv1d(2, 8, 3, padding=1), nn.Linear(8, 1)
        self.memory, self.stop = nn.Linear(16, 8, bias=False), nn.Linear(32, 1)
        self.postnet = nn.Sequential(nn.Conv1d(8, 8, 5, padding=2), nn.Tanh(), nn.Conv1d(8, 8, 5, padding=2))

    def forward(self, text: Tensor) -> tuple[Tensor, Tensor]:
        memory, _ = self.encoder(self.convolutions(self.letters(text).mT).mT)
        keys, rows = self.memory(memory), len(text)
        one, two = (memory.new_zeros(rows, 16),) * 2, (memory.new_zeros(rows, 16),) * 2
        frame, context = memory.new_zeros(rows, 8), memory.new_zeros(rows, 16)
        weights = total = memory.new_zeros(rows, text.shape[1])
        frames: list[Tensor] = []
        while len(frames) < 5:
            dropped = F.dropout(self.prenet(frame), 0.5, training=True)  # also when the model is evaluated
            one = self.first(torch.cat([dropped, context], 1), one)
            places = self.place(torch.stack([weights, total], 1)).mT
            weights = self.score(torch.tanh(self.query(one[0])[:, None] + keys + places))[..., 0].softmax(1)
            total = total + weights
            context = torch.bmm(weights[:, None], memory)[:, 0]
            two = self.second(torch.cat([one[0], context], 1), two)
            both = torch.cat([two[0], context], 1)
            frame = self.mels(both)
            frames.append(frame)
            if bool((torch.sigmoid(self.stop(both)) > 0.9).all()):
                break
        spectrogram = torch.stack(frames, 2)
        return spectrogram, spectrogram + self.postnet(spectrogram)


class WaveRNN(nn.Module):
    """Samples of a waveform, one by one, from a spectrogram (Kalchbrenner et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(8, 8, 4, stride=4)
        self.cell, self.out = nn.GRUCell(9, 16), nn.Linear(16, 16)

    def forward(self, spectrogram: Tensor) -> Tensor:
        frames = self.up(spectrogram).permute(2, 0, 1)
        h, sample, wave = frames.new_zeros(frames.shape[1], 16), frames.new_zeros(frames.shape[1], 1), []
        for frame in frames:
            h = self.cell(torch.cat([frame, sample], 1), h)
            chosen = torch.multinomial(self.out(h).softmax(-1), 1)
            sample = 2 * chosen / 15 - 1
            wave.append(sample)
        return torch.cat(wave, 1)


class ConvTasNet(nn.Module):
    """Masks over a learned basis separate two speakers (Luo and Mesgarani, 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Conv1d(1, 16, 8, 4), nn.ConvTranspose1d(16, 1, 8, 4)
        self.norm, self.mask = nn.GroupNorm(1, 16), nn.Conv1d(16, 32, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(nn.Conv1d(16, 16, 1), nn.PReLU(), nn.GroupNorm(1, 16)),
                *(nn.Conv1d(16, 16, 3, padding=2**n, dilation=2**n, groups=16), nn.PReLU()),
                *(nn.GroupNorm(1, 16), nn.Conv1d(16, 32, 1)),
            )
            for n in range(3)
        )

    def forward(self, wave: Tensor) -> Tensor:
        basis = self.encoder(wave)
        h, skips = self.norm(basis), torch.zeros_like(basis)
        for block in self.blocks:
            onward, skip = block(h).chunk(2, 1)
            h, skips = h + onward, skips + skip
        masks = torch.sigmoid(self.mask(skips)).view(len(wave), 2, 16, -1)
        separated = (masks * basis[:, None]).flatten(0, 1)
        return self.decoder(separated).view(len(wave), 2, -1)


_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "Conformer": (Conformer, lambda: (torch.randn(2, 10, 16), torch.tensor([10, 7]))),
    "Conv-TasNet": (ConvTasNet, lambda: torch.randn(1, 1, 64)),
    "DeepSpeech": (DeepSpeech, lambda: torch.randn(10, 1, 8)),
    "Tacotron 2": (Tacotron2, lambda: torch.randint(0, 20, (1, 7))),
    "WaveRNN": (WaveRNN, lambda: torch.randn(1, 8, 3)),
}


def architectures() -> Iterator[Architecture]:
    """Yield one architecture per model, by name."""
    for name in _MODELS:
        yield Architecture("speech", name, partial(_build, name))


def _build(name: str) -> tuple[nn.Module, Any]:
    make, given = _MODELS[name]
    return make().eval(), given()
