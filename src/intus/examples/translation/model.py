"""The corpus as numbers, the translator, and the labels of its probe set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from .grammar import ANY_NAME, BOTH, SHARED, SOURCE, TARGET, Sentence, sentences

_KNOWN = sentences(3000, seed=9)  # every word occurs in some of these
WORDS = {word: k + 1 for k, word in enumerate(sorted({word for s in _KNOWN for word in s.words}))}
OTHERS = {word: k + 3 for k, word in enumerate(sorted({word.text for s in _KNOWN for word in s.other}))}
#: Numbers of the other language: the start and the end of a sentence; 0 pads.
START, END = 1, 2
#: The layers that are watched, from the words to the translation.
LAYERS = ["source", *(f"encoder.{k}" for k in range(3)), "target", *(f"decoder.{k}" for k in range(3))]


class Translator(nn.Module):
    """An encoder and a decoder of three layers each."""

    causal: torch.Tensor

    def __init__(self, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(len(WORDS) + 1, width), nn.Embedding(len(OTHERS) + 3, width)
        self.positions = nn.Parameter(torch.randn(2, max(SOURCE, TARGET), width) * 0.1)
        options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, **options) for _ in range(depth)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(width, 4, 2 * width, **options) for _ in range(depth)
        )
        self.norm, self.word = nn.LayerNorm(width), nn.Linear(width, len(OTHERS) + 3)
        self.register_buffer("causal", torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1))

    def forward(self, ids: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Return logits (n, u, words) of the translation of ids (n, t), given the words before (n, u)."""
        padding = ids == 0
        x = self.source(ids) + self.positions[0, : ids.shape[1]]
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=padding)
        length = before.shape[1]
        y = self.target(before) + self.positions[1, :length]
        for layer in self.decoder:
            y = layer(y, x, tgt_mask=self.causal[:length, :length], memory_key_padding_mask=padding)
        return self.word(self.norm(y))


def encode(of: Sequence[Sentence]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numbers of words (n, SOURCE) and of their translation, start and end (n, TARGET + 1)."""
    ids = torch.zeros(len(of), SOURCE, dtype=torch.long)
    others = torch.zeros(len(of), TARGET + 1, dtype=torch.long)
    for row, sentence in enumerate(of):
        ids[row, : len(sentence.words)] = torch.tensor([WORDS[word] for word in sentence.words])
        translated = [START, *(OTHERS[word.text] for word in sentence.other), END]
        others[row, : len(translated)] = torch.tensor(translated)
    return ids, others


def labels(of: Sequence[Sentence]) -> dict[str, Any]:
    """Return the labels of sentences, of their words, and of the word that the decoder writes next.

    Of two questions there is a second, harder form: only words of which the word alone does not tell the
    answer have a label.
    """
    source: dict[str, np.ndarray] = {
        name: np.full((len(of), SOURCE), None, object)
        for name in ("part of speech", "entity", "noun or verb", "which name", "topic of the word")
    }
    written = {
        name: np.full((len(of), TARGET), None, object) for name in ("next part of speech", "next entity")
    }
    for row, sentence in enumerate(of):
        length = len(sentence.words)
        source["part of speech"][row, :length] = sentence.tags
        source["entity"][row, :length] = sentence.entities
        for column, word in enumerate(sentence.words):
            if word in (*BOTH, *SHARED):
                source["noun or verb"][row, column] = sentence.tags[column]
            if word in ANY_NAME:
                source["which name"][row, column] = sentence.entities[column]
            if word in SHARED:
                source["topic of the word"][row, column] = sentence.topic
        written["next part of speech"][row, : len(sentence.other)] = [word.tag for word in sentence.other]
        written["next entity"][row, : len(sentence.other)] = [word.entity for word in sentence.other]
    whole = {"topic": [sentence.topic for sentence in of]}
    return {name: values.tolist() for name, values in (source | written).items()} | whole
